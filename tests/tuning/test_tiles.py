"""The search for tiles: every kernel at once, the fastest of each kept, small ones left alone."""

from __future__ import annotations

from tpugraphs.space.tile import DEFAULT
from tpugraphs.tuning.tiles import CHOICES, TileSearch, by_digest
from tpugraphs.types import Kernel, Loop, Tiles

TILES = Tiles((64, 64, 0), (8, 16, 0), (0, 0, 16))


def kernel(name: str, digest: str) -> Kernel:
    loops = (Loop(512, False), Loop(768, False), Loop(1024, True))
    return Kernel(name, digest, "matmul", "pipeline", loops, TILES, ("tpugraphs.node0",))


LARGE, OTHER, SMALL = (kernel(f"main_dispatch_{n}", digest) for n, digest in enumerate(("aa", "bb", "cc")))
TIMES = {LARGE.name: 1e6, OTHER.name: 5e5, SMALL.name: 10.0}


def cost(name: str, choice: str) -> float:
    """What a kernel takes: less than by default with long register tiles."""
    if choice == DEFAULT:
        return 1.0
    return 0.5 if name == "aa.tile" and ",32," in choice else 0.99


def searched() -> TileSearch:
    search = TileSearch([LARGE, OTHER, SMALL], TIMES)
    own = by_digest([LARGE, OTHER, SMALL], TIMES)
    while asked := search.ask():
        search.tell(asked, {name.removesuffix(".tile"): cost(name, asked[name]) * own[name[:2]] for name in asked})
    return search


def test_the_fastest_of_each_kernel_is_kept_where_it_is_clearly_faster() -> None:
    best = searched().best
    assert list(best) == ["aa.tile"], "the other is never clearly faster"
    assert cost("aa.tile", best["aa.tile"]) == 0.5


def test_every_kernel_that_matters_is_asked_about_in_every_turn() -> None:
    search = TileSearch([LARGE, OTHER, SMALL], TIMES)
    assert [knob.place for knob in search.space.knobs] == ["aa", "bb"], "what takes no time keeps its tiles"
    turns = 0
    while asked := search.ask():
        assert set(asked) == {"aa.tile", "bb.tile"}
        turns += 1
    assert turns == CHOICES


def test_what_was_not_measured_is_not_taken() -> None:
    search = TileSearch([LARGE], TIMES)
    asked = search.ask()
    search.tell(asked, {})
    search.tell({}, {"aa": 1.0})
    assert search.best == {}


def test_a_kernel_under_several_names_is_one() -> None:
    assert by_digest([LARGE, kernel("main_dispatch_9", "aa")], {LARGE.name: 2.0, "main_dispatch_9": 3.0}) == {"aa": 5.0}
