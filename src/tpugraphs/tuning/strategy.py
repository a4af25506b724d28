"""Which config to measure next: whole forms first, then each node in its best, then climbing where the time goes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from tpugraphs.space import Config, Knob, Space
from tpugraphs.space.knobs import FLAG, FORM

_CLEARLY = 0.95
"""A form is taken for better at a node if the node takes less than this share of the time there."""
_WORTH_A_CORNER = 0.02
"""Of the default's time; a form of nodes that take less is tried at each of them when its turn comes."""


class CornersThenClimb:
    """Ask and tell.

    The corners write every node that can be in one form. Where times by node are told, a corner says of each node how
    it fares in that form, so the mixtures come next: every node in the form it was fastest in, with every combination
    of options. Then the corners with other options, since a choice that hurts alone may help together with another, and
    what those say put together likewise. From the best so far single knobs are turned, those first whose nodes take the
    most time, then pairs of them; after an improvement the turning starts again from there. It ends when nothing is
    left to try.
    """

    def __init__(self, space: Space, ns_by_tag: Mapping[str, float]) -> None:
        self._knobs = sorted(space.knobs, key=lambda knob: -ns_by_tag.get(knob.place, 0.0))
        self._nodes = [knob for knob in self._knobs if knob.kind == FORM]
        self._flags = [knob for knob in self._knobs if knob.kind == FLAG]
        self._spent = dict(ns_by_tag)
        self._told: dict[Config, Mapping[str, float]] = {Config(): ns_by_tag}
        """Times by node, of the default and the corners."""
        self._asked = {Config()}
        self._best, self._best_ratio = Config(), 1.0
        self._proposals = self._opening()
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

    def tell(self, config: Config, ratio: float | None, node_ns: Mapping[str, float] | None = None) -> None:
        """What measuring gave: run time over the default's, None for a failure; and times by node, where known."""
        if ratio is not None and node_ns:
            self._told[config] = node_ns
        if ratio is not None and ratio < self._best_ratio:
            self._best, self._best_ratio = config, ratio
            if self._climbing:
                self._proposals = self._neighbours()

    def _opening(self) -> Iterator[Config]:
        *others, own = self._options()
        yield from self._corners(own)
        yield from self._mixtures(own, [*others, own])
        for options in others:
            yield from self._corners(options)
            yield Config.of(options)
        for options in others:
            yield from self._mixtures(options, [options])

    def _corners(self, options: Mapping[str, str]) -> Iterator[Config]:
        for form in self._forms():
            yield Config.of({**self._written(form), **options})

    def _forms(self) -> list[str]:
        """Those first that hold where the most time goes; none that hold where hardly any does."""
        spent: dict[str, float] = {}
        for knob in self._nodes:
            for form in knob.choices[1:]:
                spent[form] = spent.get(form, 0.0) + self._spent.get(knob.place, 0.0)
        least = _WORTH_A_CORNER * sum(self._spent.values())
        return sorted((form for form in spent if spent[form] >= least), key=lambda form: -spent[form])

    def _written(self, form: str) -> dict[str, str]:
        return {knob.name: form for knob in self._nodes if form in knob.choices[1:]}

    def _options(self) -> list[dict[str, str]]:
        """Every combination, the compiler's own last."""
        return [
            {knob.name: choice for knob, choice in zip(self._flags, chosen, strict=True) if choice != knob.default}
            for chosen in itertools.product(*(reversed(knob.choices) for knob in self._flags))
        ]

    def _mixtures(self, told: Mapping[str, str], wanted: Sequence[Mapping[str, str]]) -> Iterator[Config]:
        """What the corners with some options told, with these options and with others."""
        own = self._told.get(Config.of(told))
        if own is not None:
            fastest = self._fastest(told, own)
            yield from (Config.of({**fastest, **options}) for options in wanted)

    def _fastest(self, options: Mapping[str, str], own: Mapping[str, float]) -> dict[str, str]:
        """By knob, the form in which its node took the least time, where that is clearly less than in its own."""
        chosen = {}
        for knob in self._nodes:
            least = _CLEARLY * own.get(knob.place, 0.0)
            for form in knob.choices[1:]:
                told = self._told.get(Config.of({**self._written(form), **options}))
                if told is not None and told.get(knob.place, 0.0) < least:
                    least, chosen[knob.name] = told.get(knob.place, 0.0), form
        return chosen

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
