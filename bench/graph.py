"""From serialized modules to graphs: time a graph, against the plain parsing of the same protos.

    python bench/graph.py [--save]

Each module is read in turns: by this project (columns, features, edges), by this project with the extended features,
by protobuf's C parser, which only makes objects of the same fields, and by XLA's C++ reader, which builds its module of
them. --save writes the table into bench/RESULTS.md.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import machine
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from jaxlib._hlo import HloModule

from tpugraphs.graph import extended_features, graph_of_hlo, modules_in
from tpugraphs.graph.hlo import read_hlo
from tpugraphs.program import capture
from tpugraphs.program.zoo import encoders
from tpugraphs.program.zoo.values import Values

REPOSITORY = Path(__file__).resolve().parent.parent
RELEASE = Path(os.environ.get("TPUGRAPHS_RELEASE", REPOSITORY.parent / "shared/data/tpugraphs"))
PROGRAMS = ("resnet50/inference/b1",)
LARGE_NODES, ROUNDS = 43_000, 9
LIMIT_S, AIM_NODES_A_SECOND = 0.5, 200_000

# What this project reads of HLO's protos: number, name, kind (message name, or a type), repeated.
MESSAGES: dict[str, list[tuple[int, str, str, bool]]] = {
    "Layout": [(1, "minor_to_major", "int64", True)],
    "Shape": [
        (2, "element_type", "int64", False),
        (3, "dimensions", "int64", True),
        (4, "tuple_shapes", "Shape", True),
        (5, "layout", "Layout", False),
    ],
    "WindowDimension": [(number, f"field{number}", "int64", False) for number in range(1, 8)],
    "Window": [(1, "dimensions", "WindowDimension", True)],
    "Numbers": [(number, f"field{number}", "int64", number in (6, 11, 12)) for number in (*range(3, 5), *range(6, 13))],
    "Slice": [(number, f"field{number}", "int64", False) for number in range(1, 4)],
    "Padding": [(1, "dimensions", "Slice", True)],
    "Metadata": [(1, "op_type", "string", False), (2, "op_name", "string", False), (3, "source_file", "string", False)],
    "Instruction": [
        (1, "name", "string", False),
        (2, "opcode", "string", False),
        (3, "shape", "Shape", False),
        (7, "metadata", "Metadata", False),
        (9, "parameter_number", "int64", False),
        (14, "dimensions", "int64", True),
        (15, "window", "Window", False),
        (16, "convolution", "Numbers", False),
        (17, "slices", "Slice", True),
        (20, "dynamic_slice_sizes", "int64", True),
        (21, "padding", "Padding", False),
        (35, "id", "int64", False),
        (36, "operands", "int64", True),
        (38, "called", "int64", True),
        (50, "feature_groups", "int64", False),
        (58, "batch_groups", "int64", False),
        (60, "is_stable", "bool", False),
    ],
    "Computation": [
        (1, "name", "string", False),
        (2, "instructions", "Instruction", True),
        (5, "id", "int64", False),
        (6, "root", "int64", False),
    ],
    "Module": [(1, "name", "string", False), (3, "computations", "Computation", True), (6, "entry", "int64", False)],
}


def main() -> None:
    lines = list(_table())
    print("\n".join(lines))
    if "--save" in sys.argv:
        machine.save("Graphs from serialized modules", "python bench/graph.py --save", "\n".join(lines))


def _table() -> Iterator[str]:
    parse = _bare_parser()
    yield "| module | nodes | MB | graph | nodes a second | with extended | protobuf's C parser | XLA's reader |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, data in _modules():
        readers: dict[str, Callable[[], Any]] = {
            "graph": lambda data=data: graph_of_hlo(data, "bench"),
            "extended": lambda data=data: _with_extended(data),
            "protobuf": lambda data=data: parse(data),
            "xla": lambda data=data: HloModule.from_serialized_hlo_module_proto(data),
        }
        seconds = _in_turns(readers)
        nodes, graph_s = graph_of_hlo(data, name).num_nodes, seconds["graph"]
        others = " | ".join(f"{seconds[key]:.3f} s ({graph_s / seconds[key]:.1f}x)" for key in ("protobuf", "xla"))
        rate = f"{nodes / graph_s:,.0f}"
        ours = f"{graph_s:.3f} s | {rate} | {seconds['extended']:.3f} s"
        yield f"| {name} | {nodes:,} | {len(data) / 1e6:.1f} | {ours} | {others} |"
    yield ""
    yield f"Asked: {LARGE_NODES:,} nodes in at most {LIMIT_S} s; the aim is {AIM_NODES_A_SECOND:,} nodes a second."
    yield "In brackets: how many times as long as that reader this project takes."


def _modules() -> Iterator[tuple[str, bytes]]:
    path = RELEASE / "pb/module_tuning_data_layout.pb"
    if path.is_file():
        [contained] = modules_in(path.read_bytes(), path)
        yield "unet_3d.4x4.bf16 of the release", bytes(contained.module)
    for name in PROGRAMS:
        yield name, capture(name).hlo
    yield _large()


def _large() -> tuple[str, bytes]:
    """A training step of so many layers that its graph is as large as the release's largest."""
    nodes = [capture(_training_step(count)[0], *_training_step(count)[1]).num_nodes for count in (1, 2)]
    layers = 1 + math.ceil((LARGE_NODES - nodes[0]) / (nodes[1] - nodes[0]))
    function, arguments = _training_step(layers)
    return f"an encoder of {layers} layers, training", capture(function, *arguments).hlo


def _training_step(layers: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    made = encoders.make(Values(concrete=False), mode="train", batch=1, layers=layers, width=128, heads=2)
    return made.function, made.arguments


def _bare_parser() -> Callable[[bytes], Any]:
    """protobuf's own parser for the same fields."""
    file = descriptor_pb2.FileDescriptorProto(name="hlo_bench.proto", package="bench", syntax="proto3")
    kinds = {"int64": 3, "bool": 8, "string": 9}
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field, kind, repeated in fields:
            made = message.field.add(name=field, number=number, label=3 if repeated else 1, type=kinds.get(kind, 11))
            if kind not in kinds:
                made.type_name = f".bench.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    module = message_factory.GetMessageClass(pool.FindMessageTypeByName("bench.Module"))
    return module.FromString


def _with_extended(data: bytes) -> None:
    graph_of_hlo(data, "bench")
    extended_features(read_hlo(data, "bench"))


def _in_turns(readers: dict[str, Callable[[], Any]]) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in readers}
    for _ in range(ROUNDS):
        for name, read in readers.items():
            start = time.perf_counter()
            read()
            seconds[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in seconds.items()}


if __name__ == "__main__":
    main()
