"""Config features as small codes: a lossless dictionary form that is drawn from a memory map.

A config array is (configs, places, width): for layouts a place is a configurable node and the width is 18,
for tiles a place is a column and the width is 1. Few distinct vectors occur, fewer at one place, and many
places always change together. So a config is stored as one code per *group* of places:

    codes[config, group]                       which of its vectors the group's places take
    offsets[place] + that code                 a row of `place_vectors`
    place_vectors[row]                         a row of `vectors`, the distinct vectors of the whole array

Codes number a place's vectors in order of first appearance, so two places belong to one group exactly when
their columns of codes are equal.
"""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tpugraphs.errors import BadFile, BadRequest
from tpugraphs.types import Array

MAX_VECTORS = 1 << 16
"""Past this many distinct vectors a dictionary saves nothing; the array is then stored as it is."""


_DRAWS_BEFORE_KEEPING = 3
_KEEP_EACH, _KEEP_ALL = 4 << 20, 128 << 20
"""Bytes of decoded features that one reader, and all readers together, may keep."""

_FACTOR, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(29)
"""Multiply and shift: every bit of a word reaches every bit of the key."""


class DictionaryFull(Exception):
    """The array has too many distinct vectors for the coded form."""


@dataclass(frozen=True, slots=True, eq=False)
class Codebook:
    """What is needed to turn codes back into features."""

    vectors: Array
    """(v, width) distinct vectors, in the narrowest dtype that holds them exactly."""
    group_of_place: NDArray[np.int32]
    """(places,)"""
    group_sizes: NDArray[np.int32]
    """(groups,) how many codes each group has."""
    place_vectors: NDArray[np.int32]
    """For each place in turn, the vector behind each of its codes."""

    @property
    def offsets(self) -> NDArray[np.intp]:
        """(places,) where a place's run in `place_vectors` starts."""
        sizes = self.group_sizes[self.group_of_place].astype(np.intp)
        return np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.intp)[: len(sizes)]

    def problem(self) -> str:
        """What is wrong with the tables, if anything: a decoder must not read outside them."""
        sizes, groups, rows = self.group_sizes, self.group_of_place, self.place_vectors
        if any(array.ndim != 1 for array in (sizes, groups, rows)) or self.vectors.ndim != 2:
            return "tables of the wrong rank"
        if groups.size and (groups.min() < 0 or groups.max() >= len(sizes)):
            return "a place in a group that does not exist"
        if sizes.size and sizes.min() < 1:
            return "a group without codes"
        if len(rows) != int(sizes[groups].astype(np.int64).sum()):
            return f"{len(rows)} place vectors where the groups have {int(sizes[groups].sum())}"
        if rows.size and (rows.min() < 0 or rows.max() >= len(self.vectors)):
            return "a code for a vector that does not exist"
        return ""


class CodeReader:
    """Draws features from codes, which may be a memory map.

    Small arrays are decoded whole once they have been drawn from a few times: copying rows is faster than gathering
    vectors. What all readers of a process keep that way is bounded.
    """

    _kept_bytes = 0

    def __init__(self, codes: Array, book: Codebook, label: str | Path = "codes") -> None:
        self.codes, self._label = codes, label
        self.book = book
        self._groups = book.group_of_place.astype(np.intp)
        self._offsets = book.offsets
        self._tables: dict[np.dtype[Any], Array] = {}
        self._whole: Array | None = None
        self._draws = 0

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self.codes), len(self._groups), self.book.vectors.shape[1]

    def features(self, rows: Any = slice(None), dtype: DTypeLike = np.float32) -> Array:
        """The features of these configs, (rows, places, width); any numpy index into the first axis will do."""
        dtype = np.dtype(dtype)
        if self._whole is None:
            self._draws += 1
            if self._draws == _DRAWS_BEFORE_KEEPING:
                self._keep_whole()
        if self._whole is None:
            return self._gather(rows, dtype)
        drawn = self._whole[rows]
        if dtype != drawn.dtype:
            self._table(dtype)  # refuses a dtype that does not hold the features
        return drawn.astype(dtype, copy=not drawn.flags.owndata)

    def _gather(self, rows: Any, dtype: np.dtype[Any]) -> Array:
        drawn = np.asarray(self.codes[rows])
        if (drawn >= self.book.group_sizes).any():
            raise BadFile(
                self._label,
                "codes",
                expected="codes within their group's table",
                found="one outside",
                todo="run `tpugraphs verify` and import the graph again",
            )
        index = drawn.astype(np.intp).take(self._groups, axis=-1)
        index += self._offsets
        taken = self._table(dtype).take(index.reshape(-1))
        return taken.view(dtype).reshape(*index.shape, self.book.vectors.shape[1])

    def _table(self, dtype: np.dtype[Any]) -> Array:
        """All place vectors one after another, each a single opaque item: numpy gathers those fastest."""
        if dtype not in self._tables:
            rows = self.book.vectors[self.book.place_vectors]
            table = np.ascontiguousarray(cast_exactly(rows, dtype))
            item = np.dtype((np.void, dtype.itemsize * rows.shape[1]))
            self._tables[dtype] = table.view(item).reshape(-1)
        return self._tables[dtype]

    def _keep_whole(self) -> None:
        dtype = self.book.vectors.dtype
        size = math.prod(self.shape) * dtype.itemsize
        if size <= _KEEP_EACH and CodeReader._kept_bytes + size <= _KEEP_ALL:
            self._whole = self._gather(slice(None), dtype)
            CodeReader._kept_bytes += size
            weakref.finalize(self, _let_go, size)


def _let_go(size: int) -> None:
    CodeReader._kept_bytes -= size


class Encoder:
    """Takes a config array in blocks of rows and finds codes, groups and tables; memory stays near the codes' own."""

    def __init__(self, places: int, width: int, dtype: np.dtype[Any]) -> None:
        self._places, self._width, self._dtype = places, width, dtype
        self._vectors = _VectorIndex(width, dtype)
        self._codes = _PlaceCodes(places)
        self._groups = _Groups(places)

    def add(self, block: Array) -> None:
        """The next rows, (rows, places, width)."""
        rows = len(block)
        if not rows:
            return
        vectors = self._vectors.lookup(np.ascontiguousarray(block).reshape(rows * self._places, self._width))
        self._groups.add(self._codes.lookup(vectors.reshape(rows, self._places)))

    def finish(self) -> tuple[Array, Codebook]:
        """The codes, (rows, groups), and the tables behind them."""
        codes, group_of_place = self._groups.finish()
        per_place = self._codes.vectors_by_place()
        first_member = np.unique(group_of_place, return_index=True)[1]
        sizes = np.array([len(per_place[place]) for place in first_member], dtype=np.int32)
        joined = np.concatenate(per_place) if per_place else np.empty(0)
        book = Codebook(
            vectors=narrowest(self._vectors.table()),
            group_of_place=group_of_place,
            group_sizes=sizes,
            place_vectors=joined.astype(np.int32),
        )
        return codes, book


class _VectorIndex:
    """Numbers distinct vectors in order of first appearance, comparing them bit for bit."""

    def __init__(self, width: int, dtype: np.dtype[Any]) -> None:
        self._dtype, self._width = dtype, width
        size = width * dtype.itemsize
        self._word = np.dtype(np.uint64 if size % 8 == 0 else np.uint32 if size % 4 == 0 else np.uint8)
        words = size // self._word.itemsize
        self._rows = np.empty((0, words), dtype=self._word)
        self._keys = np.empty(0, dtype=np.uint64)
        self._order = np.empty(0, dtype=np.int32)

    def table(self) -> Array:
        return np.ascontiguousarray(self._rows).view(self._dtype).reshape(-1, self._width)

    def lookup(self, vectors: Array) -> NDArray[np.int32]:
        words = vectors.view(self._word).reshape(len(vectors), self._rows.shape[1])
        keys = self._key(words)
        at = self._find(keys)
        new = self._keys[at] != keys if len(self._keys) else np.ones(len(keys), dtype=bool)
        if new.any():
            self._learn(words[new], keys[new])
            at = self._find(keys)
        numbers = self._order[at]
        if not (self._rows[numbers] == words).all():
            raise DictionaryFull("two vectors share a key")
        return numbers

    def _key(self, words: Array) -> NDArray[np.uint64]:
        key = np.zeros(len(words), dtype=np.uint64)
        for column in range(words.shape[1]):
            key ^= words[:, column]
            key *= _FACTOR
            key ^= key >> _SHIFT
        return key

    def _find(self, keys: Array) -> NDArray[np.intp]:
        return np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)

    def _learn(self, words: Array, keys: Array) -> None:
        _, first = np.unique(keys, return_index=True)
        first.sort()
        if len(self._rows) + len(first) > MAX_VECTORS:
            raise DictionaryFull(f"more than {MAX_VECTORS} distinct vectors")
        self._rows = np.concatenate([self._rows, words[first]])
        known = self._key(self._rows)
        self._order = np.argsort(known).astype(np.int32)
        self._keys = known[self._order]


class _PlaceCodes:
    """Numbers the vectors of each place in order of first appearance there."""

    def __init__(self, places: int) -> None:
        self._seen: list[list[int]] = [[] for _ in range(places)]
        self._code_of = np.full((places, 16), -1, dtype=np.int32)

    def vectors_by_place(self) -> list[list[int]]:
        return self._seen

    def lookup(self, vectors: NDArray[np.int32]) -> NDArray[np.int32]:
        places = vectors.shape[1]
        known = int(vectors.max(initial=-1)) + 1
        if known > self._code_of.shape[1]:
            if places * known > (1 << 28):
                raise DictionaryFull("too many vectors for so many places")
            wider = np.full((places, max(known, 2 * self._code_of.shape[1])), -1, dtype=np.int32)
            wider[:, : self._code_of.shape[1]] = self._code_of
            self._code_of = wider
        index = vectors + np.arange(places, dtype=np.int64) * self._code_of.shape[1]
        codes = self._code_of.reshape(-1)[index]
        if (codes < 0).any():
            self._learn(vectors, codes < 0)
            codes = self._code_of.reshape(-1)[index]
        return codes

    def _learn(self, vectors: NDArray[np.int32], unseen: NDArray[np.bool_]) -> None:
        row, place = np.nonzero(unseen)  # row by row, so first appearances come first
        pair = place * np.int64(self._code_of.shape[1]) + vectors[row, place]
        for at in np.sort(np.unique(pair, return_index=True)[1]):
            where, vector = int(place[at]), int(vectors[row[at], place[at]])
            self._code_of[where, vector] = len(self._seen[where])
            self._seen[where].append(vector)


class _Groups:
    """Splits places into groups of equal columns, block by block; only one column a group is kept."""

    def __init__(self, places: int) -> None:
        self._group_of = np.zeros(places, dtype=np.int32)
        self._stands_for = [0] * min(places, 1)
        """Per group the place whose column is kept."""
        self._parent = [0] * min(places, 1)
        """Per group the one it split off from."""
        self._blocks: list[Array] = []

    def add(self, codes: NDArray[np.int32]) -> None:
        kept = np.array(self._stands_for, dtype=np.intp)
        stray = (codes != codes[:, kept[self._group_of]]).any(axis=0)
        found: dict[tuple[int, bytes], int] = {}
        for place in np.nonzero(stray)[0]:
            parent = int(self._group_of[place])
            key = (parent, codes[:, place].tobytes())
            if key not in found:
                found[key] = len(self._stands_for)
                self._stands_for.append(int(place))
                self._parent.append(parent)
            self._group_of[place] = found[key]
        self._blocks.append(_narrow_codes(codes[:, self._stands_for]))

    def finish(self) -> tuple[Array, NDArray[np.int32]]:
        """All rows, (rows, groups). Before a group split off, its column was its parent's."""
        groups, parent = len(self._stands_for), np.array(self._parent, dtype=np.intp)
        dtype = max((block.dtype for block in self._blocks), default=np.dtype(np.uint8), key=lambda t: t.itemsize)
        codes = np.empty((sum(map(len, self._blocks)), groups), dtype=dtype)
        start = 0
        for block in self._blocks:
            then = np.arange(groups)
            while (late := then >= block.shape[1]).any():
                then = np.where(late, parent[then], then)
            codes[start : start + len(block)] = block[:, then]
            start += len(block)
        return codes, self._group_of


def _narrow_codes(codes: NDArray[np.int32]) -> Array:
    return codes.astype(np.uint8 if codes.max(initial=0) < 256 else np.uint16)


def cast_exactly(features: Array, dtype: np.dtype[Any]) -> Array:
    """A copy in another dtype; integers that do not hold the features are refused."""
    cast = features.astype(dtype)
    if dtype.kind in "iub" and not (cast == features).all():
        raise BadRequest(f"{dtype.name} does not hold these config features, {features.min()} to {features.max()}")
    return cast


def narrowest(array: Array) -> Array:
    """The same values in the smallest integer dtype that gives every bit back, else as they were."""
    if array.dtype.kind not in "fiu":
        return array
    for dtype in (np.int8, np.int16, np.int32):
        if np.dtype(dtype).itemsize >= array.dtype.itemsize:
            break
        with np.errstate(invalid="ignore"):
            narrow = array.astype(dtype)
        if narrow.astype(array.dtype).tobytes() == array.tobytes():
            return narrow
    return array
