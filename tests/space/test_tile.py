"""Tilings of a kernel: bounded, consistent, the same for the same seed; text gives them back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.spaces import CHECKS
from tpugraphs.errors import BadRequest
from tpugraphs.space import Space
from tpugraphs.space.tile import DEFAULT, fits, parse_tiles, tile_space, tilings
from tpugraphs.types import Kernel, Loop, Tiles

OWN = Tiles((64, 64, 0), (8, 16, 0), (0, 0, 16))


def kernel(*loops: tuple[int, bool], tiles: Tiles | None = OWN, digest: str = "0123456789ab") -> Kernel:
    return Kernel("main_dispatch_3", digest, "matmul", "pipeline", tuple(Loop(*loop) for loop in loops), tiles, ("a",))


MATMUL = kernel((512, False), (768, False), (1024, True))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_contract(check: Callable[[Space], None]) -> None:
    other = kernel((64, False), (64, False), tiles=Tiles((64, 64), (1, 16), (0, 0)), digest="ba9876543210")
    check(tile_space([MATMUL, other], most=24))


def test_a_product_of_matrices_has_many_tilings_and_each_fits() -> None:
    found = tilings(MATMUL, most=200)
    assert len(found) == len(set(found)) == 200
    assert OWN not in found, "the compiler's own is the default"
    for tiles in found:
        assert fits(MATMUL.loops, tiles)
        for loop, share, register, step in zip(
            MATMUL.loops, tiles.distribution, tiles.parallel, tiles.reduction, strict=True
        ):
            if loop.reduces:
                assert (share, register) == (0, 0)
                assert 1 <= step <= loop.length
            else:
                assert 1 <= register <= share <= loop.length
                assert share % register == 0 or share == loop.length
                assert step == 0


def test_what_registers_do_not_hold_is_not_offered() -> None:
    assert not fits(MATMUL.loops, Tiles((64, 64, 0), (16, 64, 0), (0, 0, 1)))
    assert not fits(MATMUL.loops, Tiles((64, 64, 0), (8, 32, 0), (0, 0, 64)))
    assert fits(MATMUL.loops, OWN)


def test_a_small_kernel_has_all_of_its_tilings() -> None:
    small = kernel((4, False), (8, False), (3, True), tiles=Tiles((4, 8, 0), (4, 8, 0), (0, 0, 1)))
    found = tilings(small)
    assert len(found) == len(set(found))
    assert found == tilings(small, seed=1)
    assert {tiles.reduction for tiles in found} == {(0, 0, 1), (0, 0, 2)}
    assert {tiles.parallel[:2] for tiles in found} == {(1, 8), (2, 8), (4, 8)}


def test_the_same_seed_draws_the_same() -> None:
    assert tilings(MATMUL, most=50) == tilings(MATMUL, most=50)
    assert tilings(MATMUL, most=50) != tilings(MATMUL, most=50, seed=1)


def test_a_convolutions_window_is_summed_place_by_place_or_whole() -> None:
    loops = [(1, False), (28, False), (28, False), (64, False), (3, True), (3, True), (32, True)]
    convolution = kernel(*loops, tiles=Tiles((0, 4, 28, 64, 0, 0, 0), (1, 1, 7, 16, 0, 0, 0), (0, 0, 0, 0, 1, 1, 8)))
    found = tilings(convolution, most=64)
    assert len(found) == 64
    assert {tiles.reduction[4] for tiles in found} <= {1, 3}
    assert len({tiles.reduction[6] for tiles in found}) > 2


def test_the_space_has_a_knob_for_each_distinct_kernel_that_is_tiled() -> None:
    other = kernel((64, False), (64, False), tiles=Tiles((64, 64), (1, 16), (0, 0)), digest="ba9876543210")
    space = tile_space([MATMUL, MATMUL, other, kernel((8, False), tiles=None, digest="ffffffffffff")], most=30)
    assert [knob.name for knob in space.knobs] == ["0123456789ab.tile", "ba9876543210.tile"]
    for knob in space.knobs:
        assert knob.default == DEFAULT
        assert 20 <= len(knob.choices) <= 31
        assert all(str(parse_tiles(choice)) == choice for choice in knob.choices[1:])


@pytest.mark.parametrize("text", ["", "1,2,3", "1 / 2", "a / b / c", "1,2 / 3 / 4 / 5"])
def test_text_that_is_no_tiling(text: str) -> None:
    with pytest.raises(BadRequest, match="expected three levels such as"):
        parse_tiles(text)
