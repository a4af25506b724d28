"""Capture tensor programs, measure how compiler configurations perform, learn to rank them, tune.

import tpugraphs as tg
ds = tg.load("layout:xla:random", split="valid")
print(tg.Evaluator("layout:xla:random").evaluate({"unet_3d.4x4.bf16": scores}))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpugraphs.data import (
        Collection,
        PackedGraph,
        export_official,
        import_official,
        load,
        load_graph,
        save_graph,
        verify_root,
    )
    from tpugraphs.errors import TpuGraphsError
    from tpugraphs.graph import CapturedGraph, Graph
    from tpugraphs.metrics import Evaluation, Evaluator
    from tpugraphs.program import capture, programs
    from tpugraphs.tuning import Outcome, tune
    from tpugraphs.types import GraphSummary

__version__ = "0.1.0"

_HOME = {
    "Collection": "tpugraphs.data",
    "Evaluation": "tpugraphs.metrics",
    "Evaluator": "tpugraphs.metrics",
    "CapturedGraph": "tpugraphs.graph",
    "Graph": "tpugraphs.graph",
    "GraphSummary": "tpugraphs.types",
    "PackedGraph": "tpugraphs.data",
    "TpuGraphsError": "tpugraphs.errors",
    "export_official": "tpugraphs.data",
    "import_official": "tpugraphs.data",
    "Outcome": "tpugraphs.tuning",
    "capture": "tpugraphs.program",
    "load": "tpugraphs.data",
    "load_graph": "tpugraphs.data",
    "save_graph": "tpugraphs.data",
    "programs": "tpugraphs.program",
    "tune": "tpugraphs.tuning",
    "verify_root": "tpugraphs.data",
}

__all__ = [
    "CapturedGraph",
    "Collection",
    "Evaluation",
    "Evaluator",
    "Graph",
    "GraphSummary",
    "Outcome",
    "PackedGraph",
    "TpuGraphsError",
    "capture",
    "export_official",
    "import_official",
    "load",
    "load_graph",
    "programs",
    "save_graph",
    "tune",
    "verify_root",
]


def __getattr__(name: str) -> Any:
    """Public names arrive when they are first used, so that `import tpugraphs` and `--help` stay fast."""
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'tpugraphs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
