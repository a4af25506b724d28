"""Tiles: how the loops of a kernel are cut, for threads, for registers, and along its sums.

A choice is a `Tiles` in text, as `64,64,0 / 8,16,0 / 0,0,16`. What is offered is bounded by the loops' lengths, by what
registers and the stack hold, and by what compilers are known to refuse: what threads get is whole register tiles, or
the whole loop. A large space is sampled, a small one is whole; the compiler's own choice is always a member.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from tpugraphs.errors import BadRequest
from tpugraphs.space.knobs import TILE, Knob, Space
from tpugraphs.types import Kernel, Loop, Tiles

DEFAULT = "default"
MOST = 256
"""Of one kernel's choices."""
_INNERMOST, _NEXT, _OUTER = (8, 16, 32, 64), (1, 2, 4, 6, 7, 8, 12, 14, 16), (1, 2)
"""Register tiles of the parallel loops, from the innermost outwards."""
_SUMS = (1, 2, 4, 8, 16, 32, 64)
_MOST_IN_REGISTERS = 512
"""Elements of a register tile: 32 registers of 16 numbers."""
_MOST_UNROLLED = 8192
"""Multiply-adds of a register tile's sum, which the compiler writes out."""
_TRIES = 64
"""So many draws for each choice that is wanted."""


def tile_space(kernels: Sequence[Kernel], *, most: int = MOST, seed: int = 0) -> Space:
    """A knob for each distinct kernel that is tiled, named by its hash."""
    distinct = {kernel.digest: kernel for kernel in kernels if kernel.tiles is not None and kernel.loops}
    return Space(
        tuple(
            Knob(f"{digest}.tile", TILE, digest, (DEFAULT, *map(str, choices)), kernel.what)
            for digest, kernel in distinct.items()
            if (choices := tilings(kernel, most=most, seed=seed))
        )
    )


def parse_tiles(text: str) -> Tiles:
    """What `str` of a `Tiles` gives back."""
    try:
        levels = [tuple(int(one) for one in level.split(",")) for level in text.split("/")]
        distribution, parallel, reduction = levels
    except ValueError as error:
        raise BadRequest(f"tiles {text!r}: expected three levels such as 64,64,0 / 8,16,0 / 0,0,16") from error
    return Tiles(distribution, parallel, reduction)


def tilings(kernel: Kernel, *, most: int = MOST, seed: int = 0) -> list[Tiles]:
    """Up to so many others than the compiler's own: all of them, or some at random."""
    options = [list(_cuts(loop, place)) for loop, place in zip(kernel.loops, _places(kernel.loops), strict=True)]
    if prod(map(len, options)) <= _TRIES * most:
        drawn: Iterator[tuple[tuple[int, int, int], ...]] = itertools.product(*options)
    else:
        rng = np.random.default_rng([seed, int(kernel.digest, 16) % (1 << 32)])
        drawn = (tuple(cuts[int(rng.integers(len(cuts)))] for cuts in options) for _ in range(_TRIES * most))
    found: dict[Tiles, None] = {}
    for cuts in drawn:
        tiles = Tiles(*(tuple(level) for level in zip(*cuts, strict=True)))
        if tiles != kernel.tiles and fits(kernel.loops, tiles):
            found[tiles] = None
    if len(found) <= most:
        return list(found)
    rng = np.random.default_rng([seed, len(found)])
    every = list(found)
    return [every[index] for index in sorted(rng.choice(len(every), most, replace=False).tolist())]


def fits(loops: Sequence[Loop], tiles: Tiles) -> bool:
    """Whether registers hold it, and the code that is written out for it stays of a size."""
    held = prod(tile for loop, tile in zip(loops, tiles.parallel, strict=True) if not loop.reduces)
    summed = prod(tile for loop, tile in zip(loops, tiles.reduction, strict=True) if loop.reduces)
    return held <= _MOST_IN_REGISTERS and held * summed <= _MOST_UNROLLED


def _places(loops: Sequence[Loop]) -> list[int]:
    """How many loops of the same kind lie inside of each."""
    return [sum(other.reduces == loop.reduces for other in loops[index + 1 :]) for index, loop in enumerate(loops)]


def _cuts(loop: Loop, place: int) -> Iterator[tuple[int, int, int]]:
    """One loop's distribution, register and reduction tile."""
    if loop.reduces:
        wanted = _SUMS if place == 0 else (1, loop.length)
        yield from ((0, 0, tile) for tile in sorted({tile for tile in wanted if tile <= loop.length}))
        return
    wanted = (_INNERMOST, _NEXT, _OUTER)[min(place, 2)]
    registers = sorted({tile for tile in wanted if tile <= loop.length} or {loop.length})
    for register in registers:
        for distribution in _shares(loop.length, register):
            yield distribution, register, 0


def _shares(length: int, register: int) -> list[int]:
    """Whole register tiles, doubling, and the whole loop."""
    shares = [register << power for power in range(12) if register << power < length]
    return [*shares, length]
