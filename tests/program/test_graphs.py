"""From anything that holds a program to its graph; and what is said of things that hold none."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tpugraphs as tg
from tests.kit.programs import CHANNELS, convolve, depthwise_net, net_arguments
from tpugraphs.errors import BadFile, BadRequest
from tpugraphs.graph import opcode_name
from tpugraphs.program.xla import hlo_of_stablehlo

pytestmark = pytest.mark.xdist_group("graphs")


def net(weights: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Without inner functions: capturing StableHLO inlines calls, HLO is taken as it is."""
    x = convolve(x, weights["first"], groups=CHANNELS)
    x = jnp.maximum(convolve(x, weights["mix"], groups=1), 0)
    return x.mean(axis=(1, 2)) @ weights["head"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One program in every form a file can have."""
    folder = tmp_path_factory.mktemp("sources")
    lowered = jax.jit(net, keep_unused=True).lower(*net_arguments(8))
    (folder / "text.mlir").write_text(lowered.as_text())
    (folder / "text.hlo").write_text(lowered.as_text("hlo"))
    (folder / "proto.pb").write_bytes(hlo_of_stablehlo(lowered.as_text()))
    (folder / "portable.bc").write_bytes(jax.export.export(jax.jit(net))(*net_arguments(8)).mlir_module_serialized)
    (folder / "dump").mkdir()
    lowered.compile(compiler_options={"xla_dump_to": str(folder / "dump")})
    return folder


def opcodes(graph: tg.Graph) -> list[str]:
    return sorted(opcode_name(int(opcode)) for opcode in graph.node_opcode)


@pytest.mark.parametrize("name", ["text.mlir", "text.hlo", "proto.pb", "portable.bc", "dump"])
def test_every_form_of_a_file_gives_the_same_graph(sources: Path, name: str) -> None:
    expected = tg.capture(net, *net_arguments(8))
    graph = tg.capture(sources / name)
    unused = name == "portable.bc"  # there an argument that nobody uses is gone
    assert graph.num_nodes == expected.num_nodes - unused
    assert graph.num_edges == expected.num_edges
    assert unused or opcodes(graph) == opcodes(expected)
    assert graph.multiply_adds.sum() == expected.multiply_adds.sum()
    assert graph.stage == ("lowered" if name in ("text.mlir", "portable.bc") else "given")
    assert graph.node_config_ids is not None
    kinds = [opcode_name(int(graph.node_opcode[node])) for node in graph.node_config_ids]
    assert kinds == ["convolution", "convolution", "dot"]


def test_a_callable_is_captured_with_tags_parameters_and_costs() -> None:
    graph = tg.capture(depthwise_net, *net_arguments(8), costs=True)
    assert graph.config_tags == tuple(f"tpugraphs.node{index}" for index in range(4))
    assert graph.parameters == 9 * 48 + 25 * 48 + 48 * 48 + 48 * 10
    by_hand = 8 * 8 * 48 * (9 + 48) + 4 * 4 * 48 * 25 + 48 * 10
    assert graph.multiply_adds.sum() == by_hand
    assert graph.costs is not None
    assert 1.5 * by_hand < graph.costs.flops < 4 * by_hand
    assert graph.costs.bytes_accessed > 4 * graph.parameters
    assert (
        repr(graph)
        == f"<CapturedGraph depthwise_net, lowered: {graph.num_nodes} nodes, {graph.num_edges} edges, 4 configurable>"
    )


def test_shapes_alone_are_enough() -> None:
    graph = tg.capture(lambda x: x @ x.T, jax.ShapeDtypeStruct((300_000, 8), np.float32), name="wide")
    assert graph.name == "wide"
    assert graph.multiply_adds.sum() == 300_000**2 * 8
    assert graph.parameters is None


def test_the_simplified_stage_keeps_the_tags_of_what_is_left() -> None:
    def net(x: jax.Array, w: jax.Array) -> jax.Array:
        unused = jnp.sum(x * 0)
        heads = jnp.einsum("bqd,bkd->bqk", x, x)
        return jax.nn.softmax(heads) @ x @ w + unused * 0

    arguments = np.ones((2, 16, 8), np.float32), np.ones((8, 8), np.float32)
    lowered, simplified = (tg.capture(net, *arguments, stage=stage) for stage in ("lowered", "simplified"))
    assert simplified.stage == "simplified"
    assert opcodes(simplified) != opcodes(lowered)
    assert sorted(simplified.config_tags) == sorted(lowered.config_tags) == [f"tpugraphs.node{i}" for i in range(3)]


def test_kernels_of_the_release_are_captured_one_by_one(release: Path) -> None:
    path = release / "pb/op_tuning_data.pb"
    largest, first = tg.capture(path), tg.capture(path, module=0)
    assert largest.num_nodes == 56
    assert first.name == "op_tuning_data#0"
    assert first.num_nodes < largest.num_nodes
    with pytest.raises(BadRequest, match="has modules 0 to 14, not 15"):
        tg.capture(path, module=15)


def test_the_releases_layout_proto_brings_its_configurable_nodes(release: Path) -> None:
    graph = tg.capture(release / "pb/module_tuning_data_layout.pb", costs=True)
    official = np.load(release / "npz/layout/xla/default/valid/unet_3d.4x4.bf16.npz")
    assert graph.node_config_ids is not None
    assert (graph.node_config_ids == official["node_config_ids"]).all()
    assert graph.costs is not None
    assert graph.costs.flops > 9e12


def test_a_saved_graph_comes_back(sources: Path, tmp_path: Path) -> None:
    graph, path = tg.capture(sources / "text.mlir"), tmp_path / "graph.npz"
    tg.save_graph(graph, path)
    with np.load(path, allow_pickle=False) as saved:
        assert {"node_feat", "node_opcode", "edge_index", "node_splits", "node_config_ids"} <= set(saved)
    back = tg.load_graph(path)
    for name in ("name", "stage", "config_tags", "node_names", "computation_names", "entry", "parameters", "hlo"):
        assert getattr(back, name) == getattr(graph, name), name
    for name in ("node_feat", "edge_index", "node_config_ids", "multiply_adds", "computation"):
        assert (getattr(back, name) == getattr(graph, name)).all(), name
    assert list(back.extended) == list(graph.extended)
    assert all((back.extended[name] == column).all() for name, column in graph.extended.items())
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(BadFile, match="expected a whole zip archive"):
        tg.load_graph(path)
    np.savez(path, node_feat=graph.node_feat)
    with pytest.raises(BadFile, match="node_opcode: expected this key in a captured graph, found node_feat"):
        tg.load_graph(path)


class TestExtended:
    """What the official columns leave out."""

    def test_dimension_numbers_of_dots_and_gathers(self) -> None:
        graph = tg.capture(lambda x, i: jnp.einsum("bij,bjk->bik", x[i], x), np.ones((3, 4, 4)), np.zeros(3, np.int32))
        [dot] = np.flatnonzero(graph.node_opcode == 34).tolist()
        said = graph.explain(dot).columns
        assert (said["extended.dot_lhs_batch_0"], said["extended.dot_lhs_contracting_0"]) == (0, 2)
        assert said["extended.dot_rhs_contracting_0"] == 1
        assert "extended.dot_rhs_contracting_1" not in said
        [gather] = np.flatnonzero(graph.node_opcode == 42).tolist()
        assert graph.column("extended.gather_slice_size_1")[gather] == 4
        assert graph.column("extended.gather_collapsed_slice_dim_0")[gather] == 0

    def test_interior_padding_constants_comparisons_and_third_dimensions(self) -> None:
        def net(x: jax.Array) -> jax.Array:
            padded = jax.lax.pad(x, jnp.float32(2.5), [(1, 2, 0), (0, -1, 3), (4, 5, 6)])
            return jnp.where(padded > 7, padded, 0)[1:2, 2:4, 3:9:2]

        graph = tg.capture(net, np.ones((4, 5, 6), np.float32))
        [pad] = np.flatnonzero(graph.node_opcode == 62).tolist()
        said = graph.explain(pad).columns
        assert [said[f"extended.padding_interior_{index}"] for index in range(3)] == [0, 3, 6]
        assert (graph.column("extended.padding_low_2")[pad], graph.column("extended.padding_high_1")[pad]) == (4, -1)
        [part] = np.flatnonzero(graph.node_opcode == 92).tolist()
        assert [graph.column(f"extended.slice_{name}_2")[part] for name in ("start", "limit", "stride")] == [3, 9, 2]
        constants = graph.column("extended.constant_value")[graph.column("extended.has_constant_value") > 0]
        assert {2.5, 7.0, 0.0} <= set(constants.tolist())
        [compare] = np.flatnonzero(graph.node_opcode == 20).tolist()
        assert graph.column("extended.comparison")[compare] == ("EQ", "NE", "GE", "GT", "LE", "LT").index("GT")

    @pytest.mark.parametrize(
        "dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "bfloat16", "bool"]
    )
    def test_constants_of_every_common_type(self, dtype: str) -> None:
        value = 1 if dtype == "bool" else 3
        graph = tg.capture(
            lambda x: jnp.where(x > 0, jnp.asarray(value, dtype), jnp.asarray(0, dtype)), np.ones(4, np.float32)
        )
        known = graph.column("extended.has_constant_value") > 0
        assert value in graph.column("extended.constant_value")[known].tolist()

    def test_lists_end_in_minus_one(self) -> None:
        graph = tg.capture(lambda x: x.T, np.ones((4, 5), np.float32))
        [transpose] = np.flatnonzero(graph.node_opcode == 98).tolist()
        assert [graph.column(f"extended.dimension_{index}")[transpose] for index in range(3)] == [1, 0, -1]
        with pytest.raises(BadRequest, match="extended.nothing: no such feature; graph.extended has shape_dim_0"):
            graph.column("extended.nothing")


DYNAMIC = b"module { func.func @main(%a: tensor<?x4xf32>) -> tensor<?x4xf32> { return %a : tensor<?x4xf32> } }"
BROKEN = {
    "text": ("x.txt", b"hello", "expected StableHLO text or .* release, found text that starts with 'hello'"),
    "empty": ("x.pb", b"", "source: expected StableHLO text .*, found an empty file"),
    "bytes": ("x.pb", b"\x00\x01\x02", "proto: expected a serialized HloModuleProto, .* found no field at byte 0"),
    "hlo": ("x.hlo", b"HloModule x\nENTRY a { x = f32[3] foo() }", "HLO text: .* 2:22.*Unknown opcode: foo"),
    "mlir": ("x.mlir", b"module { func.func @main() { return 3 } }", 'StableHLO: .* module that parses, .*"-":1:36'),
    "dynamic": ("x.mlir", DYNAMIC, r"argument 0: expected a static shape, found .* \(dimension 0 is dynamic\)"),
    "bytecode": ("x.bc", b"ML\xefR\x01\x02\x03", "StableHLO: expected a module that parses"),
}


@pytest.mark.parametrize(("name", "content", "says"), BROKEN.values(), ids=BROKEN)
def test_files_that_hold_no_program(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BadFile, match=says) as caught:
        tg.capture(path)
    assert str(caught.value).startswith(str(path))


def test_a_cut_off_proto_is_told_off(sources: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.pb"
    path.write_bytes((sources / "proto.pb").read_bytes()[:-50])
    with pytest.raises(BadFile, match="reaches beyond its message's end"):
        tg.capture(path)


def test_what_aborts_xla_is_reported(tmp_path: Path) -> None:
    """A reshape to another number of elements fails a check, which ends the process that reads it."""
    path = tmp_path / "abort.hlo"
    path.write_text("HloModule x\nENTRY a {\n  p = f32[2,3]{1,0} parameter(0)\n  ROOT r = f32[7]{0} reshape(p)\n}\n")
    with pytest.raises(BadFile, match="found XLA gave up: the worker ended with signal SIGABRT: .*Check failed"):
        tg.capture(path)


def test_a_module_that_contradicts_itself_is_told_off(tmp_path: Path) -> None:
    path = tmp_path / "dot.hlo"
    dot = "dot(p, p), lhs_contracting_dims={7}, rhs_contracting_dims={7}"
    path.write_text(f"HloModule x\nENTRY a {{\n  p = f32[2,3] parameter(0)\n  ROOT r = f32[2,9] {dot}\n}}\n")
    with pytest.raises(BadFile, match="found a dot over dimension 7 of an operand of rank 2"):
        tg.capture(path)


@pytest.mark.parametrize(
    ("source", "arguments", "says"),
    [
        ("nobody", (), "nobody: not a program; expected MODULE.py:FUNCTION, a file"),
        ("resnet5", (), "perhaps resnet50"),
        ("resnet50/inference/b99", (), "resnet50/inference/b99: no such program of the zoo; of resnet50 there are"),
        ("resnet50", (np.ones(3),), "arguments go with a callable"),
        ("/nowhere/x.hlo", (), "expected a file, found nothing"),
    ],
)
def test_sources_that_are_none(source: str, arguments: tuple[object, ...], says: str) -> None:
    with pytest.raises((BadFile, BadRequest), match=re.escape(says)):
        tg.capture(source, *arguments)


def test_stages_and_folders_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="stage 'late': expected lowered or simplified"):
        tg.capture("resnet50", stage="late")
    with pytest.raises(BadRequest, match="no module in it; expected XLA's dump folder"):
        tg.capture(tmp_path)
