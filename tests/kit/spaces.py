"""What every space promises, as checks: parametrize a test over `CHECKS` and give each the space."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tpugraphs.errors import BadRequest
from tpugraphs.space import Config, Knob, Space

DRAWS = 60
_ELSEWHERE = """
import json, sys
from tpugraphs.space import Config
print(json.dumps([Config.of(changes).digest for changes in json.load(sys.stdin)]))
"""


def drawn(space: Space, seed: int = 0, count: int = DRAWS) -> Iterator[Config]:
    """Configs by all ways of drawing: uniform ones, neighbours of them and of the default, children."""
    rng = np.random.default_rng(seed)
    last = Config()
    for index in range(count):
        one = space.uniform(rng)
        near = space.near(last, rng, 1 + index % 3)
        yield from (one, near, space.near(Config(), rng, 2), space.cross(one, near, rng))
        last = one


def check_draws_are_members(space: Space) -> None:
    for config in drawn(space):
        assert space.parse(config.to_json()) == config
        assert space.config(config.as_dict()) == config


def check_draws_follow_the_seed(space: Space) -> None:
    assert list(drawn(space, 1)) == list(drawn(space, 1))
    if space.size > DRAWS:
        assert list(drawn(space, 1)) != list(drawn(space, 2))


def check_every_choice_can_be_drawn(space: Space) -> None:
    rng = np.random.default_rng(0)
    missing = {(knob.name, choice) for knob in space.knobs for choice in knob.choices}
    for _ in range(20 * max(len(knob.choices) for knob in space.knobs)):
        chosen = space.uniform(rng).as_dict()
        missing -= {(knob.name, chosen.get(knob.name, knob.default)) for knob in space.knobs}
    assert not missing


def check_neighbours_differ_in_few_places(space: Space) -> None:
    rng = np.random.default_rng(0)
    for places in (1, 2, len(space.places), len(space.places) + 5):
        for _ in range(DRAWS):
            base = space.uniform(rng)
            near = space.near(base, rng, places)
            changed = {name for name, _ in set(base.changes) ^ set(near.changes)}
            where = {place for place, knobs in space.places.items() if changed & {knob.name for knob in knobs}}
            assert len(where) <= places


def check_children_take_places_from_their_parents(space: Space) -> None:
    rng = np.random.default_rng(0)
    for _ in range(DRAWS):
        one, other = space.uniform(rng), space.uniform(rng)
        child, parents = space.cross(one, other, rng).as_dict(), (one.as_dict(), other.as_dict())
        for knobs in space.places.values():
            names = {knob.name for knob in knobs}
            parts = [{name: of[name] for name in names & of.keys()} for of in (child, *parents)]
            assert parts[0] in parts[1:]


def check_enumeration(space: Space, most: int = 3000) -> None:
    """Whole and without doubles where the space is small; from the default outwards everywhere."""
    configs = [config for config, _ in zip(space.enumerate(), range(most), strict=False)]
    assert configs[0].is_default
    assert len(set(configs)) == len(configs) == min(space.size, most)
    distances = [len(config.changes) for config in configs]
    assert distances == sorted(distances)
    assert all(space.config(config.as_dict()) == config for config in configs)


def check_json_is_canonical(space: Space) -> None:
    rng = np.random.default_rng(0)
    for config in drawn(space):
        assert space.parse(config.to_json()).to_json() == config.to_json()
        shuffled = list(config.as_dict().items())
        rng.shuffle(shuffled)
        assert space.config(dict(shuffled)).to_json() == config.to_json()
        spelt_out = {knob.name: config.as_dict().get(knob.name, knob.default) for knob in space.knobs}
        assert space.parse(json.dumps(spelt_out, indent=3)) == config


def check_the_default_is_empty(space: Space) -> None:
    assert space.config({}) == Config()
    assert space.config({knob.name: knob.default for knob in space.knobs}).is_default
    assert space.parse("{}").to_json() == "{}"


def check_digests_tell_configs_apart(space: Space) -> None:
    configs = set(drawn(space))
    assert len({config.digest for config in configs}) == len(configs)
    assert all(space.parse(config.to_json()).digest == config.digest for config in configs)


def check_digests_hold_in_another_process(space: Space) -> None:
    configs = list(drawn(space, count=5))
    told = json.dumps([config.as_dict() for config in configs])
    ended = subprocess.run([sys.executable, "-c", _ELSEWHERE], input=told, capture_output=True, text=True, check=True)
    assert json.loads(ended.stdout) == [config.digest for config in configs]


def check_strangers_are_refused(space: Space) -> None:
    knob = space.knobs[0]
    with pytest.raises(BadRequest, match="nobody: no such knob in this space"):
        space.config({"nobody": "x"})
    with pytest.raises(BadRequest, match=f"^{knob.name}: expected one of .*, found none of these"):
        space.config({knob.name: "none of these"})
    for text in ("{", "[]", '"x"', "null", '{"' + knob.name + '": 1}'):
        with pytest.raises(BadRequest, match="expected a JSON object of knobs and choices"):
            space.parse(text)


def check_the_product(space: Space) -> None:
    more = Space((Knob("another", "flag", "program", ("a", "b", "c"), "made up"),))
    both = space * more
    assert both.size == space.size * more.size
    assert both.knobs == (*space.knobs, *more.knobs)
    assert both.digest != space.digest
    with pytest.raises(BadRequest, match=f"share knobs.*{space.knobs[0].name}"):
        _ = space * Space((space.knobs[0], *more.knobs))


CHECKS: tuple[Callable[[Space], None], ...] = (
    check_draws_are_members,
    check_draws_follow_the_seed,
    check_every_choice_can_be_drawn,
    check_neighbours_differ_in_few_places,
    check_children_take_places_from_their_parents,
    check_enumeration,
    check_json_is_canonical,
    check_the_default_is_empty,
    check_digests_tell_configs_apart,
    check_digests_hold_in_another_process,
    check_strangers_are_refused,
    check_the_product,
)
