"""Messages by the thousand read as one by one; damaged ones are told apart, never crashed on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.protobuf import message, varint
from tpugraphs.graph.wire import NotAMessage, Ragged, Wire

NUMBERS = st.integers(-(2**63), 2**63 - 1)
ROWS = st.lists(st.tuples(NUMBERS, st.lists(NUMBERS, max_size=6), st.text(max_size=8)), max_size=60)


@given(rows=ROWS, packed=st.booleans(), extra=st.booleans())
def test_columns_hold_what_was_written(rows: list[tuple[int, list[int], str]], packed: bool, extra: bool) -> None:
    """Few messages go through the loop, many through the steps: both give the same."""
    fixed = varint(90 << 3 | 1) + b"\xff" * 8 + varint(91 << 3 | 5) + b"\xff" * 4 if extra else b""
    parts = [
        message([(1, number), (2, values), (3, text)] if values else [(1, number), (3, text)], packed=packed) + fixed
        for number, values, text in rows
    ]
    inner, owner = Wire(message([(7, part) for part in parts])).root().children(7)
    assert len(inner) == len(rows)
    assert (owner == 0).all()
    assert inner.integer(1).tolist() == [number for number, _, _ in rows]
    assert inner.text(3) == [text for _, _, text in rows]
    lists = inner.integers(2)
    split = np.split(lists.values, np.cumsum(lists.counts))[:-1]
    assert [one.tolist() for one in split] == [values for _, values, _ in rows]


@given(lists=st.lists(st.lists(st.integers(-50, 50), max_size=5), max_size=10))
def test_ragged_lists_reduce_as_lists_do(lists: list[list[int]]) -> None:
    ragged = Ragged.of(
        np.array([value for one in lists for value in one], np.int64), np.array([len(one) for one in lists], np.int64)
    )
    assert ragged.sums().tolist() == [sum(one) for one in lists]
    assert ragged.products().tolist() == [int(np.prod(one, dtype=np.int64)) for one in lists]
    assert ragged.first(3, fill=-9).tolist() == [[*one, -9, -9, -9][:3] for one in lists]
    assert ragged.owners.tolist() == [index for index, one in enumerate(lists) for _ in one]


@given(data=st.binary(max_size=200), copies=st.sampled_from([1, 40]))
def test_any_bytes_are_a_message_or_told_off(data: bytes, copies: int) -> None:
    """One copy goes through the loop, forty through the steps: they agree."""
    results = []
    for count in (1, copies):
        try:
            inner, _ = Wire(message([(7, data)] * count)).root().children(7)
            results.append([inner._fields.number[: len(inner._fields.number) // count].tolist()])
        except NotAMessage as error:
            assert len(str(error)) < 200
            results.append(None)
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (varint(1 << 3 | 2) + varint(100) + b"abc", "field 1 at byte 0 reaches beyond its message's end at byte 5"),
        (b"\x0b", "no field at byte 0 (number 1, wire type 3)"),
        (b"\x00\x01", "no field at byte 0 (number 0, wire type 0)"),
        (b"\x08" + b"\xff" * 11, "a number that does not end before byte 12"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, says: str) -> None:
    with pytest.raises(NotAMessage) as caught:
        Wire(data).root()
    assert str(caught.value) == says


def test_a_field_of_another_kind_is_told_off() -> None:
    root = Wire(message([(1, "text"), (2, 5)])).root()
    with pytest.raises(NotAMessage, match="field 1 .*expected wire type 0, found 2"):
        root.integer(1)
    with pytest.raises(NotAMessage, match="field 2 .*expected wire type 2, found 0"):
        root.text(2)
    assert root.integers(2).values.tolist() == [5]
    assert (root.kind_of(1), root.kind_of(2), root.kind_of(3)) == (2, 0, None)
