"""Searches propose what was not seen; the genetic one learns, and finds its way back by being told the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median

import numpy as np
import pytest

from tests.kit.studies import small_space
from tpugraphs.errors import BadRequest
from tpugraphs.space import Config, Knob, Space
from tpugraphs.space.search import SEARCHES, GeneticSearch, RandomSearch, Search, few, search_named
from tpugraphs.target.simulated import SimulatedTarget

Cost = Callable[[Config], float | None]


def cost_of(seed: int) -> Cost:
    target = SimulatedTarget(seed=seed)
    return lambda config: target.true_ns("net", config.as_dict()) / target.default_ns


def run(search: Search, count: int, cost: Cost, batch: int = 12) -> list[Config]:
    """Asks for so many in batches and tells each, as collecting does."""
    asked: list[Config] = []
    while len(asked) < count and (configs := search.ask(min(batch, count - len(asked)))):
        for config in configs:
            search.tell(config, cost(config))
        asked += configs
    return asked


def tiny_space(choices: int = 3, knobs: int = 2) -> Space:
    options = tuple(str(index) for index in range(choices))
    return Space(tuple(Knob(f"k{index}", "flag", "program", options, "") for index in range(knobs)))


@pytest.mark.parametrize("name", SEARCHES)
def test_nothing_is_asked_twice_and_never_the_default(name: str) -> None:
    asked = run(search_named(name, small_space(), count=150, seed=3), 150, cost_of(0))
    assert len(asked) == 150
    assert len(set(asked)) == 150
    assert Config() not in asked


@pytest.mark.parametrize("name", SEARCHES)
def test_the_seed_decides_whatever_the_batches(name: str) -> None:
    space = small_space()

    def asked(seed: int, batch: int) -> list[Config]:
        return run(search_named(name, space, count=60, seed=seed), 60, cost_of(0), batch)

    assert asked(1, 12) == asked(1, 12) == asked(1, 5) == asked(1, 1)
    assert asked(1, 12) != asked(2, 12)


def test_a_small_space_is_asked_for_entirely() -> None:
    space = tiny_space()
    asked = run(RandomSearch(space, count=100, seed=0), 100, cost_of(0))
    assert {*asked, Config()} == set(space.enumerate())
    assert len(asked) == space.size - 1
    assert [len(config.changes) for config in asked] == [1] * 4 + [2] * 4


def test_random_stays_near_the_default_three_times_out_of_four() -> None:
    space = tiny_space(choices=25, knobs=60)
    asked = run(RandomSearch(space, count=1000, seed=0), 1000, lambda _: 1.0)
    near = sum(len(config.changes) < len(space.knobs) / 2 for config in asked)
    assert 0.70 < near / len(asked) < 0.80


def test_few_is_mostly_one() -> None:
    rng = np.random.default_rng(0)
    drawn = [few(rng) for _ in range(1000)]
    assert min(drawn) == 1
    assert 0.4 < drawn.count(1) / len(drawn) < 0.6
    assert max(drawn) < 20


def test_the_genetic_search_beats_random_at_equal_count() -> None:
    space = small_space()
    found: Mapping[str, list[float]] = {name: [] for name in SEARCHES}
    for seed in range(9):
        cost = cost_of(seed)
        for name in SEARCHES:
            asked = run(search_named(name, space, count=120, seed=seed), 120, cost)
            found[name].append(min(cost(config) or 1.0 for config in asked))
    assert median(found["default"]) < median(found["random"])
    better = sum(ours < theirs for ours, theirs in zip(found["default"], found["random"], strict=True))
    assert better > len(found["random"]) / 2


def test_it_learns_from_generation_to_generation() -> None:
    space, cost = small_space(), cost_of(1)
    asked = run(GeneticSearch(space, seed=0), 8 * 16, cost)
    first, last = ([cost(config) or 1.0 for config in part] for part in (asked[:16], asked[-16:]))
    assert median(last) < median(first)


def test_told_the_same_it_asks_for_the_same() -> None:
    """However the tells came: at once, one by one, in another order within a generation."""
    space, cost = small_space(), cost_of(2)
    asked = run(GeneticSearch(space, seed=5), 100, cost)
    again = GeneticSearch(space, seed=5)
    replayed: list[Config] = []
    while len(replayed) < 100:
        configs = again.ask(100 - len(replayed))
        for config in reversed(configs):
            again.tell(config, cost(config))
        replayed += configs
    assert replayed == asked


def test_told_otherwise_it_goes_elsewhere() -> None:
    space = small_space()
    one, other = (run(GeneticSearch(space, seed=5), 64, cost_of(seed)) for seed in (0, 1))
    assert one[:16] == other[:16]
    assert one[16:] != other[16:]


def test_it_waits_for_its_generation() -> None:
    search, cost = GeneticSearch(small_space(), seed=0), cost_of(0)
    first = search.ask(1000)
    assert len(first) == search.generation
    assert search.ask(1) == []
    for config in first[:-1]:
        search.tell(config, cost(config))
    assert search.ask(1) == []
    search.tell(first[-1], None)
    assert len(search.ask(1000)) == search.generation


def test_failures_have_no_children() -> None:
    """Where all of a generation fail, the next starts from the default again."""
    space = tiny_space(choices=25, knobs=60)

    def changes_of_the_third_generation(cost: Cost) -> int:
        asked = run(GeneticSearch(space, seed=0), 48, cost)
        return sum(len(config.changes) for config in asked[32:])

    assert changes_of_the_third_generation(lambda _: None) < 0.6 * changes_of_the_third_generation(lambda _: 0.9)


@pytest.mark.parametrize("name", SEARCHES)
def test_it_ends_where_a_space_is_used_up(name: str) -> None:
    space = tiny_space()
    search = search_named(name, space, count=4, seed=0)
    asked = run(search, 10_000, cost_of(0))
    assert search.ask(5) == []
    assert len(set(asked)) == len(asked) == space.size - 1


@pytest.mark.parametrize("name", SEARCHES)
def test_a_space_of_one_more_config_has_just_that(name: str) -> None:
    space = tiny_space(choices=2, knobs=1)
    assert run(search_named(name, space, count=10, seed=0), 10, cost_of(0)) == [Config.of({"k0": "1"})]


def test_a_search_that_is_not_there_is_refused() -> None:
    with pytest.raises(BadRequest, match="annealing: no such search; expected random or default"):
        search_named("annealing", tiny_space(), count=1, seed=0)
