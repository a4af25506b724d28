"""Programs to try things on, by name: `VARIANT/MODE/bBATCH`. Making one imports what it needs; listing does not."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tpugraphs.program.zoo.catalogue import ENTRIES, Entry, Published

if TYPE_CHECKING:
    from tpugraphs.program.zoo.made import Made

__all__ = ["PROGRAMS", "Published", "Zoo", "ZooProgram"]


@dataclass(frozen=True, slots=True)
class ZooProgram:
    """A program of the zoo, not made yet."""

    name: str
    entry: Entry
    mode: str
    batch: int
    tier: str
    """`small` runs in less than 150 ms on two cores, `large` has more than 10,000 nodes, `medium` is between."""

    @property
    def family(self) -> str:
        return self.entry.family

    @property
    def source(self) -> str:
        """Where its definition comes from."""
        return self.entry.source

    @property
    def published(self) -> Published | None:
        return self.entry.published

    def as_published(self) -> ZooProgram:
        """The same with what has to be set for its counts to compare with the published ones."""
        changed = {**self.entry.options, **(self.published.options if self.published else {})}
        return replace(self, entry=replace(self.entry, options=changed))

    def make(self, *, concrete: bool = True) -> Made:
        """The callable and its arguments; without `concrete` their shapes only."""
        from tpugraphs.program.zoo.values import Values

        module: Any = importlib.import_module(f"tpugraphs.program.zoo.{self.entry.module}")
        return module.make(Values(concrete=concrete), mode=self.mode, batch=self.batch, **self.entry.options)


class Zoo(Mapping[str, ZooProgram]):
    """All programs by name; the name of a variant alone means its inference on the smallest batch, if it has that."""

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        programs = (
            ZooProgram(f"{entry.variant}/{mode}/b{batch}", entry, mode, batch, tier)
            for entry in entries
            for mode, batch, tier in entry.programs
        )
        self._programs = {program.name: program for program in programs}
        self._chosen: dict[str, ZooProgram] = {}
        for program in sorted(self._programs.values(), key=lambda one: (one.mode != "inference", one.batch)):
            self._chosen.setdefault(program.entry.variant, program)
        self.variants = tuple(entry.variant for entry in entries)

    def __getitem__(self, name: str) -> ZooProgram:
        return (self._programs if "/" in name else self._chosen)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._programs)

    def __len__(self) -> int:
        return len(self._programs)

    def __repr__(self) -> str:
        return f"<Zoo of {len(self)} programs in {len(self.families)} families>"

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(program.family for program in self.values()))

    def tier(self, tier: str) -> tuple[ZooProgram, ...]:
        return tuple(program for program in self.values() if program.tier == tier)


PROGRAMS = Zoo(ENTRIES)
