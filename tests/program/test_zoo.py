"""The zoo: every program lowers to a sound graph whose tags are one to one; every small one runs."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import tpugraphs as tg
from tests.kit.programs import quickly
from tpugraphs.errors import BadRequest
from tpugraphs.graph import CapturedGraph
from tpugraphs.graph.hlo import HloColumns, HloFields, read_hlo
from tpugraphs.program import Program, ZooProgram, graphs, mlir
from tpugraphs.program.capture import capture_zoo, program_of_source
from tpugraphs.program.graphs import capture

PAPER = ["ResNet", "EfficientNet", "Mask R-CNN", "Transformer"]


@pytest.mark.parametrize("program", tg.programs.values(), ids=tg.programs)
def test_every_program_lowers_to_a_sound_graph(program: ZooProgram) -> None:
    """What `capture` does with a name, in its steps: the tags of both sides are compared, and tracing takes long."""
    captured = program_of_source(program.name, concrete=False)
    assert captured is not None
    graph = graphs._graph(graphs._lowered(captured))
    hlo = read_hlo(graph.hlo, program.name)
    consumer, producer = graph.edge_index.T
    assert (producer < consumer).all(), "producers come first"
    assert graph.edge_index.max() < graph.num_nodes
    assert np.bincount(hlo.computation[hlo.is_root], minlength=len(hlo.computation_names)).tolist() == [1] * len(
        hlo.computation_names
    ), "one root a computation"
    assert np.isfinite(graph.node_feat).all()
    assert set(graph.unknown_opcodes) <= {"topk"}, "the only operation here that came after the official table"
    assert graph.node_config_ids is not None
    assert (np.diff(graph.node_config_ids) > 0).all()
    check_tags(captured, graph, hlo)
    assert graph.parameters == sum(np.prod(leaf.shape, dtype=int) for leaf in _weights(program))
    assert (graph.num_nodes > 10_000) == (program.tier == "large")


ONLY_HERE = ("transpose", *(name.partition(".")[2] for name in mlir.WRITABLE))
"""Nodes with knobs that are not configurable in the sense of the release."""


def check_tags(program: Program, graph: CapturedGraph, hlo: HloColumns) -> None:
    """Tags are one to one. What is configurable only here is no such node of a graph, but in the module; lowering may
    merge reshapes in a row, and transposes."""
    assert [node.tag for node in program.nodes] == [f"tpugraphs.node{index}" for index in range(len(program.nodes))]
    assert len(set(graph.config_tags)) == len(graph.config_tags)
    absent = {node.tag: node for node in program.nodes}
    for tag in graph.config_tags:
        del absent[tag]
    metadata, _ = hlo.sparse(HloFields.METADATA)
    lowered = set(metadata.text(HloFields.METADATA_OP_NAME))
    for tag, node in absent.items():
        merged = node.operation in ("transpose", "reshape") and tag not in lowered
        assert merged or (node.operation in ONLY_HERE and tag in lowered), node


def _weights(program: ZooProgram) -> list[jax.ShapeDtypeStruct]:
    return jax.tree.leaves(program.make(concrete=False).weights)


@pytest.mark.parametrize("program", tg.programs.tier("small"), ids=lambda program: program.name)
def test_every_small_program_runs_and_gives_finite_output(program: ZooProgram) -> None:
    """On the inputs that tuning uses, which are meaner than those the program brings."""
    captured = capture_zoo(program)
    outputs = quickly(captured, captured.text)
    assert outputs
    for output in outputs:
        assert output.dtype.kind in "biu" or np.isfinite(output).all()
    assert any(output.size == 1 or (output.size and output.dtype.kind == "f" and np.ptp(output)) for output in outputs)


PUBLISHED = [program for variant in tg.programs.variants if (program := tg.programs[variant]).published]


@pytest.mark.parametrize("program", PUBLISHED, ids=lambda program: program.entry.variant)
def test_counts_agree_with_published_ones_within_one_percent(program: ZooProgram) -> None:
    graph, published = capture(program.as_published()), program.published
    assert published is not None
    assert graph.parameters == pytest.approx(published.parameters, rel=0.01)
    if published.multiply_adds is not None:
        assert graph.multiply_adds.sum() == pytest.approx(published.multiply_adds, rel=0.01)


def test_the_zoo_is_broad() -> None:
    assert list(tg.programs.families[:4]) == PAPER
    assert len(tg.programs.families) >= 25
    assert len(tg.programs) >= 150
    assert len(tg.programs.tier("small")) >= 60
    assert len(tg.programs.tier("large")) >= 10
    assert all(any(program.family == family for program in PUBLISHED) for family in PAPER)


def test_programs_are_found_by_name() -> None:
    program = tg.programs["resnet50/inference/b8"]
    assert (program.family, program.mode, program.batch, program.source) == (
        "ResNet", "inference", 8, "keras.applications",
    )  # fmt: skip
    assert tg.programs["resnet50"].name == "resnet50/inference/b1"
    assert tg.programs["dlrm-tiny"].name == "dlrm-tiny/inference/b32"
    assert tg.programs["gpt2-medium"].name == "gpt2-medium/train/b1"
    assert "nobody" not in tg.programs
    assert repr(tg.programs).startswith("<Zoo of ")


def test_keras_on_another_backend_is_told_off(monkeypatch: pytest.MonkeyPatch) -> None:
    import keras

    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(BadRequest, match="needs keras on JAX, but it runs on torch; set KERAS_BACKEND=jax"):
        tg.programs["vgg16"].make(concrete=False)
