"""Capture: from callables, modules and files; calls inlined, nodes tagged once each, in every program of the zoo."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxlib._jax import mlir as xla_mlir

from tests.kit.programs import SHIFTED, depthwise_net, net_arguments, outputs, small_program
from tpugraphs.errors import BadFile, BadRequest
from tpugraphs.measure import check
from tpugraphs.program import Node, Program, capture_callable, mlir, resolve_source
from tpugraphs.program.capture import program_of_module
from tpugraphs.program.trees import describe_tree, rebuild
from tpugraphs.program.xla import hlo_of_stablehlo
from tpugraphs.space import Config
from tpugraphs.space.form import FORMS, Form
from tpugraphs.space.forms import convolution
from tpugraphs.space.product import apply, space_of

KINDS = "convolution|dot|reshape|transpose|reduce-window|select-and-scatter|gather|scatter|power|sort|topk"
NODE = re.compile(rf"= \S+ ({KINDS})\(.*op_name=\"(tpugraphs\.node\d+)\"")


TUNED = ("resnet50", "efficientnetb0", "mobilenetv2", "transformer")
"""The programs that the first forms and options were made for."""


@pytest.fixture(scope="module", params=TUNED)
def zoo_program(request: pytest.FixtureRequest) -> Program:
    return resolve_source(request.param)


def hlo_nodes(module: object) -> Counter[tuple[str, str]]:
    """How many operations of each kind carry each tag in the HLO that the compiler gets."""
    computation = xla_mlir.mlir_module_to_xla_computation(mlir.to_text(module))  # pyright: ignore[reportArgumentType]
    return Counter(NODE.findall(computation.get_hlo_module().to_string()))


def as_in_hlo(nodes: Iterable[Node]) -> Counter[tuple[str, str]]:
    """Each once."""
    return Counter((node.operation.removesuffix("_general").replace("_", "-"), node.tag) for node in nodes)


def written(tag: str, form: str) -> Config:
    return Config.of({f"{mlir.short(tag)}.form": form})


pytestmark = pytest.mark.xdist_group("zoo")


class TestZoo:
    """Promises that tuning makes for whole programs."""

    def test_tags_map_one_to_one(self, zoo_program: Program) -> None:
        assert sum(node.computes for node in zoo_program.nodes) >= 25
        assert hlo_nodes(apply(zoo_program, Config()).module) == as_in_hlo(zoo_program.nodes)

    def test_tags_survive_every_rewrite(self, zoo_program: Program) -> None:
        """Nodes that keep their form keep their one operation; each rewritten node's parts carry its tag."""
        space = space_of(zoo_program, ("form",), forms=SHIFTED)
        changed = {knob.place for knob in space.knobs}
        module = apply(zoo_program, space.config({knob.name: knob.choices[1] for knob in space.knobs})).module
        found = hlo_nodes(module)
        assert {kind for kind, tag in found if tag in changed} <= {"reshape"}, "of a rewritten node's weights"
        kept = Counter({node: count for node, count in found.items() if node[1] not in changed})
        assert kept == as_in_hlo(node for node in zoo_program.nodes if node.tag not in changed)
        assert set(mlir.TAG.findall(mlir.to_text(module))) == {node.tag for node in zoo_program.nodes}

    def test_right_forms_pass_and_wrong_ones_are_caught(self, zoo_program: Program) -> None:
        """A node that is off by one percent, early, in the middle or late, is caught; so is one tap too few."""
        expected = outputs(zoo_program, Config())
        space = space_of(zoo_program, options={"fusion_library": ("off",)}, forms=SHIFTED)
        right = space.config({knob.name: knob.choices[1] for knob in space.knobs})
        assert check.deviation(outputs(zoo_program, right), expected)[0] <= 1
        nodes = zoo_program.nodes
        for node in (nodes[0], nodes[len(nodes) // 2], nodes[-1]):
            wrong = outputs(zoo_program, written(node.tag, "scaled"), WRONG)
            assert check.deviation(wrong, expected)[0] > 1, node
        with_forms = [knob.place for knob in space.knobs if knob.kind == "form"]
        for tag in with_forms[:1] + with_forms[-1:]:
            wrong = outputs(zoo_program, written(tag, "one tap short"), WRONG)
            assert check.deviation(wrong, expected)[0] > 1, tag


WRITTEN = (
    "resnet50-64/inference/b1",
    "mobilenetv2-64/inference/b1",
    "unet-tiny/train/b1",
    "bert-tiny/train/b1",
    "dlrm-tiny/train/b32",
    "gcn-cora/train/b1",
    "vae-mnist/inference/b1",
)


@pytest.mark.parametrize("name", WRITTEN)
def test_programs_compute_the_same_with_every_node_in_a_random_form(name: str) -> None:
    program = resolve_source(name)
    expected = outputs(program, Config())
    space = space_of(program, ("form",))
    assert len(space.knobs) > 3
    rng = np.random.default_rng(0)
    for _ in range(2):
        config = space.config({knob.name: str(rng.choice(knob.choices[1:])) for knob in space.knobs})
        excess, where = check.deviation(outputs(program, config), expected)
        assert excess <= 1, f"{where}: {config.to_json()}"


def _scaled(op: object) -> object:
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    copy = op.clone()  # pyright: ignore[reportAttributeAccessIssue]
    kind = ir.RankedTensorType(copy.results[0].type)
    factor = ir.DenseElementsAttr.get_splat(kind, ir.FloatAttr.get(kind.element_type, 1.01))
    return stablehlo.multiply(copy.results[0], stablehlo.constant(factor))


def _short(window: convolution.Window) -> object:
    window.__dict__["offsets"] = window.offsets[:-1]
    return convolution.shifted(window)


WRONG = {
    "scaled": Form("scaled", "times 1.01", "", applies=lambda op: True, rewrite=_scaled),
    "one tap short": Form(
        "one tap short", "without its last tap", "", FORMS["shifted"].applies, convolution.writing(_short)
    ),
}


def test_a_softmax_alone_would_hide_a_wrong_form() -> None:
    """Its output hardly moves; what goes into it tells."""
    program = small_program()
    expected, wrong = (
        outputs(program, config, WRONG) for config in (Config(), written(program.nodes[0].tag, "scaled"))
    )
    assert np.abs(wrong["output 0"] - expected["output 0"]).max() < 1e-5
    assert check.deviation(wrong, expected)[0] > 1


def test_calls_are_inlined_so_that_each_execution_has_its_own_node() -> None:
    @jax.jit
    def layer(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.tanh(jax.jit(lambda y: y @ w)(x))

    def net(x: jax.Array, w: jax.Array) -> jax.Array:
        return layer(layer(layer(x, w), w), w)

    program = capture_callable(net, np.ones((4, 8), np.float32), np.ones((8, 8), np.float32))
    assert "call" not in program.text
    assert [node.description for node in program.nodes] == ["dot, 4x8"] * 3
    assert [spec.fan_in for spec in program.inputs] == [None, 8]


def test_a_loop_keeps_its_body_and_its_captured_values() -> None:
    @jax.jit
    def step(carry: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.tanh(carry @ w)

    def net(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 3, lambda _, carry: step(carry, w), x)

    x, w = (np.random.default_rng(seed).normal(size=(4, 4)).astype(np.float32) for seed in (0, 1))
    program = capture_callable(net, x, w)
    assert len(program.nodes) == 1
    assert "call" not in program.text


def test_weights_are_known_inside_loops_and_optimiser_state_is_not_taken_for_them() -> None:
    """An argument of a loop's body is not the program's argument of the same number."""

    def net(square: jax.Array, x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
        scanned, _ = jax.lax.scan(lambda carry, _: (jnp.tanh(carry @ w), None), x, None, length=3)
        return scanned, jnp.sqrt(square)

    program = capture_callable(net, *(np.ones((4, 4), np.float32) for _ in range(3)))
    assert [spec.fan_in for spec in program.inputs] == [None, None, 4]


def test_what_nobody_uses_is_no_node() -> None:
    """Chains and loops whose results go nowhere are gone; what has an effect stays."""
    program = program_of_module(
        """
        func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
          %dead = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0]
            : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
          %deader = stablehlo.tanh %dead : tensor<4x4xf32>
          %loop = stablehlo.while(%carry = %deader) : tensor<4x4xf32>
            cond { %true = stablehlo.constant dense<true> : tensor<i1>
              stablehlo.return %true : tensor<i1> }
            do { %next = stablehlo.dot_general %carry, %x, contracting_dims = [1] x [0]
                : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
              stablehlo.return %next : tensor<4x4xf32> }
          %called = stablehlo.custom_call @effect(%x) {has_side_effect = true} : (tensor<4x4xf32>) -> tensor<4x4xf32>
          %alive = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0]
            : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
          return %alive : tensor<4x4xf32>
        }
        """,
        "dead",
    )
    assert len(program.nodes) == 1
    assert "tanh" not in program.text
    assert "while" not in program.text
    assert "@effect" in program.text


def test_unused_arguments_stay() -> None:
    program = capture_callable(lambda x, unused: x + 1, np.ones(3, np.float32), np.ones(4, np.float32))
    assert [spec.shape for spec in program.inputs] == [(3,), (4,)]


def test_descriptions_are_in_words() -> None:
    assert [node.description for node in small_program().nodes] == [
        "depthwise 3x3 convolution, 1x32x32x48",
        "1x1 convolution, 1x32x32x48",
        "depthwise 5x5 convolution stride 2x2, 1x16x16x48",
        "dot, 1x10",
    ]


def test_a_stablehlo_file_is_a_program(tmp_path: Path) -> None:
    path = tmp_path / "net.mlir"
    path.write_text(jax.jit(depthwise_net).lower(*net_arguments()).as_text())
    program = resolve_source(str(path))
    assert program.name == "net"
    assert [node.tag for node in program.nodes] == [node.tag for node in small_program().nodes]
    assert program.arguments is None
    assert all(np.isfinite(value).all() for value in outputs(program, Config()).values())


@pytest.mark.parametrize("kind", ["text", "proto"])
def test_an_hlo_file_is_a_program_of_the_same_nodes_that_computes_the_same(tmp_path: Path, kind: str) -> None:
    path, lowered = tmp_path / "net.hlo", jax.jit(depthwise_net).lower(*net_arguments())
    if kind == "text":
        path.write_text(lowered.as_text("hlo"))
    else:
        path.write_bytes(hlo_of_stablehlo(lowered.as_text()))
    program, wanted = resolve_source(str(path)), small_program()
    assert [node.description for node in program.nodes] == [node.description for node in wanted.nodes]
    given = replace(program, arguments=wanted.arguments)
    form = Config.of({"node0.form": "shifted"})
    for config in (Config(), form):
        found, expected = (next(iter(outputs(one, config).values())) for one in (given, wanted))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_function_of_a_module_is_a_program(tmp_path: Path) -> None:
    (tmp_path / "helper_of_mine.py").write_text("SCALE = 3\n")
    path = tmp_path / "my_model.py"
    path.write_text(
        "import numpy as np\nfrom helper_of_mine import SCALE\n"
        "def infer(x): return x @ x.T * SCALE\n"
        "def infer_args(): return (np.ones((4, 8), np.float32),)\n"
        "def other(x): return x + 1\n"
    )
    assert resolve_source(f"{path}:infer").inputs[0].shape == (4, 8)
    assert resolve_source(f"{path}:infer", arguments=("f32[2,3]",)).inputs[0].shape == (2, 3)
    specs = resolve_source(f"{path}:other", arguments=("s32[5]",)).inputs
    assert (specs[0].shape, specs[0].dtype) == ((5,), "int32")
    with pytest.raises(
        BadRequest, match=r"other needs example arguments: give --arg f32\[8,128\] for each, or define other_args"
    ):
        resolve_source(f"{path}:other")
    with pytest.raises(BadRequest, match="has no function nothing"):
        resolve_source(f"{path}:nothing")
    with pytest.raises(BadRequest, match="--arg f99: expected a dtype and a shape"):
        resolve_source(f"{path}:infer", arguments=("f99",))


@pytest.mark.parametrize(
    ("source", "error", "says"),
    [
        ("nobody", BadRequest, "nobody: not a program; expected MODULE.py:FUNCTION"),
        ("/nowhere/model.py:f", BadRequest, "/nowhere/model.py: no such file"),
        ("/nowhere/x.mlir", BadFile, "expected a file, found nothing"),
    ],
)
def test_sources_that_are_none(source: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=re.escape(says)):
        resolve_source(source)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hello", "expected StableHLO text or bytecode"),
        ("module { hello }", "expected a module that parses"),
        ("func.func @other() { return }", "expected a function named main, found other"),
        (
            "func.func @main(%a: tensor<?xf32>) -> tensor<?xf32> { return %a : tensor<?xf32> }",
            "expected a static shape",
        ),
    ],
)
def test_broken_stablehlo(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "bad.mlir"
    path.write_text(text)
    with pytest.raises(BadFile, match=re.escape(says)):
        resolve_source(str(path))


def test_trees_are_described_and_rebuilt() -> None:
    tree = {"a": (1, [2, None]), "b": {}, "c": 3}
    described = describe_tree(jax.tree.structure(tree))
    assert rebuild(described, ["x", "y", "z"]) == {"a": ("x", ["y", None]), "b": {}, "c": "z"}
