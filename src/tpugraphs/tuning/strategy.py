"""Which config to measure next: the corners of the space first, then climbing from the best, where the time goes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from tpugraphs.space import Config, Knob, Space


class CornersThenClimb:
    """Ask and tell.

    The corners write all nodes in one form, with every combination of options: a choice that hurts alone may help
    together with another. From the best so far, single knobs are turned, those first whose nodes take the most time,
    then pairs of them; after an improvement the turning starts again from there. It ends when nothing is left to try.
    """

    def __init__(self, space: Space, ns_by_tag: Mapping[str, float]) -> None:
        self._knobs = sorted(space.knobs, key=lambda knob: -ns_by_tag.get(knob.place, 0.0))
        self._asked = {Config()}
        self._best, self._best_ratio = Config(), 1.0
        self._proposals = self._corners()
        self._climbing = False

    @property
    def best(self) -> Config:
        return self._best

    def ask(self) -> Config | None:
        """A config that was not asked before, or None at the end."""
        while True:
            for config in self._proposals:
                if config not in self._asked:
                    self._asked.add(config)
                    return config
            if self._climbing:
                return None
            self._climbing, self._proposals = True, self._neighbours()

    def tell(self, config: Config, ratio: float | None) -> None:
        """What measuring gave: run time over the default's, None for a failure."""
        if ratio is not None and ratio < self._best_ratio:
            self._best, self._best_ratio = config, ratio
            if self._climbing:
                self._proposals = self._neighbours()

    def _corners(self) -> Iterator[Config]:
        nodes = [knob for knob in self._knobs if knob.kind == "form"]
        flags = [knob for knob in self._knobs if knob.kind == "flag"]
        forms = dict.fromkeys(choice for knob in nodes for choice in knob.choices)
        for form in [*reversed(forms)] or [None]:
            written = {knob.name: form for knob in nodes if form in knob.choices[1:]}
            for chosen in itertools.product(*(reversed(knob.choices) for knob in flags)):
                turned = {
                    knob.name: choice for knob, choice in zip(flags, chosen, strict=True) if choice != knob.default
                }
                yield Config.of({**written, **turned})

    def _neighbours(self) -> Iterator[Config]:
        base = self._best.as_dict()
        for knob in self._knobs:
            yield from (_turned(base, (knob, choice)) for choice in knob.choices)
        for one, other in itertools.combinations(self._knobs, 2):
            for choices in itertools.product(one.choices, other.choices):
                yield _turned(base, (one, choices[0]), (other, choices[1]))


def _turned(base: Mapping[str, str], *turns: tuple[Knob, str]) -> Config:
    changed = dict(base)
    for knob, choice in turns:
        if choice == knob.default:
            changed.pop(knob.name, None)
        else:
            changed[knob.name] = choice
    return Config.of(changed)
