"""From protos to graphs: the release's golden pair to the bit, and what each part of a module becomes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.protobuf import instruction, message, module
from tpugraphs.errors import BadFile, BadRequest
from tpugraphs.graph import NODE_FEATURES, OPCODES, graph_of_hlo, modules_in
from tpugraphs.graph.features import graph_of, unknown_opcodes
from tpugraphs.graph.hlo import read_hlo


@pytest.fixture(scope="module")
def golden(release: Path) -> bytes:
    """The raw protobuf of unet_3d.4x4.bf16."""
    return (release / "pb/module_tuning_data_layout.pb").read_bytes()


@pytest.mark.parametrize("search", ["default", "random"])
def test_the_golden_pair_is_equal_to_the_last_bit(release: Path, golden: bytes, search: str) -> None:
    [contained] = modules_in(golden, "golden")
    graph = graph_of(read_hlo(contained.module, "golden"), contained.config_ids)
    official = np.load(release / f"npz/layout/xla/{search}/valid/unet_3d.4x4.bf16.npz")
    for key in ("node_feat", "node_opcode", "edge_index", "node_splits", "node_config_ids"):
        ours, theirs = getattr(graph, key), official[key]
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), key
        assert ours.tobytes() == theirs.tobytes(), key


TWO = [instruction("a", "parameter", 1), instruction("b", "parameter", 2), instruction("c", "add", 3, [2, 1, 2])]


def test_edges_name_each_producer_once_and_reach_into_called_computations() -> None:
    body = [instruction("x", "parameter", 10), instruction("y", "negate", 11, [10])]
    call = instruction("z", "call", 4, [3], message([(38, [1])]))
    graph = graph_of_hlo(module(("body", body, 11), ("main", [*TWO, call], 4)), "x")
    assert graph.edge_index.tolist() == [[1, 0], [4, 2], [4, 3], [5, 1], [5, 4]]
    assert graph.column("is_root").tolist() == [0, 1, 0, 0, 0, 1]
    assert [OPCODES[index] for index in graph.node_opcode[-2:]] == ["add", "call"]


def test_splits_stand_behind_clusters_loops_and_conditions() -> None:
    one = [instruction("x", "parameter", 1)]
    two = [instruction("y", "parameter", 2), instruction("z", "negate", 3, [2])]
    for names, expected in (
        (("reducer", "main"), [0, 3]),
        (("while_body", "main"), [0, 1, 3]),
        (("a", "cluster"), [0, 3]),
    ):
        splits = graph_of_hlo(module((names[0], one, 1), (names[1], two, 3)), "x").node_splits
        assert splits is not None
        assert splits.tolist() == [expected]


def test_features_are_read_by_name() -> None:
    graph = graph_of_hlo(module(("main", TWO, 3)), "x")
    assert graph.column("shape_dim_1").tolist() == [3, 3, 3]
    assert graph.column("shape_dim_product").tolist() == [6, 6, 6]
    assert graph.column("layout_minor_to_major_0").tolist() == [1, 1, 1]
    assert graph.column("window_size_product").tolist() == [1, 1, 1]
    assert graph.explain(-1).columns["element_type_f32"] == 1
    assert str(graph.explain(2)).startswith("node 2: add\n  is_root")
    with pytest.raises(BadRequest, match="window_stride_9: no such feature; there are window_stride_0"):
        graph.column("window_stride_9")
    with pytest.raises(BadRequest, match="node 3: the graph has nodes 0 to 2"):
        graph.explain(3)


def test_opcodes_of_tomorrow_are_counted_and_mapped_to_zero() -> None:
    made = module(("main", [*TWO, instruction("n", "entangle", 4, [3]), instruction("m", "entangle", 5, [4])], 5))
    hlo = read_hlo(made, "x")
    assert unknown_opcodes(hlo) == {"entangle": 2}
    assert graph_of(hlo).node_opcode.tolist()[-2:] == [0, 0]


def test_element_types_of_tomorrow_have_no_column() -> None:
    strange = message([(2, 99), (3, [4])])
    made = module(("main", [message([(1, "a"), (2, "parameter"), (3, strange), (35, 1)])], 1))
    kinds = [index for index, name in enumerate(NODE_FEATURES) if name.startswith("element_type_")]
    assert graph_of_hlo(made, "x").node_feat[0, kinds].sum() == 0


def test_products_beyond_64_bits_wrap_around_as_in_the_official_extractor() -> None:
    huge = message([(2, 11), (3, [2**40, 2**40, 3])])
    made = module(("main", [message([(1, "a"), (2, "parameter"), (3, huge), (35, 1)])], 1))
    assert graph_of_hlo(made, "x").column("shape_dim_product")[0] == 0


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "no computation in it"),
        (message([(3, message([(1, "empty")]))]), "no instruction in it"),
        (module(("main", [instruction("a", "", 1)], 1)), "instruction 0 has no opcode"),
        (module(("main", [instruction("a", "add", 1, [7])], 1)), "instruction id 7 is named but not there"),
        (module(("main", [*TWO, *TWO], 3)), "instruction id 1 stands there twice"),
        (module(("main", TWO, 3))[:-9], "reaches beyond its message's end"),
    ],
)
def test_broken_modules(data: bytes, says: str) -> None:
    with pytest.raises(BadFile, match="HLO proto: expected a whole serialized module, found .*" + says):
        graph_of_hlo(data, "broken.pb")


@given(data=st.data())
def test_a_damaged_module_is_read_or_told_off(data: st.DataObject) -> None:
    whole = bytearray(module(("body", TWO[:1], 1), ("main", TWO[1:2], 2)))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        graph = graph_of_hlo(bytes(whole[: data.draw(st.integers(0, len(whole)))]), "damaged")
    except BadFile:
        return
    assert len(graph.node_feat) == graph.num_nodes
