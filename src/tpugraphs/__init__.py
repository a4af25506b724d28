"""Capture tensor programs, measure how compiler configurations perform, learn to rank them, tune.

import tpugraphs as tg
ds = tg.load("layout:xla:random", split="valid")
print(tg.Evaluator("layout:xla:random").evaluate({"unet_3d.4x4.bf16": scores}))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpugraphs.data import Collection, PackedGraph, export_official, import_official, load, verify_root
    from tpugraphs.errors import TpuGraphsError
    from tpugraphs.metrics import Evaluation, Evaluator
    from tpugraphs.tuning import Outcome, tune
    from tpugraphs.types import Graph, GraphSummary

__version__ = "0.1.0"

_HOME = {
    "Collection": "tpugraphs.data",
    "Evaluation": "tpugraphs.metrics",
    "Evaluator": "tpugraphs.metrics",
    "Graph": "tpugraphs.types",
    "GraphSummary": "tpugraphs.types",
    "PackedGraph": "tpugraphs.data",
    "TpuGraphsError": "tpugraphs.errors",
    "export_official": "tpugraphs.data",
    "import_official": "tpugraphs.data",
    "Outcome": "tpugraphs.tuning",
    "load": "tpugraphs.data",
    "tune": "tpugraphs.tuning",
    "verify_root": "tpugraphs.data",
}

__all__ = [
    "Collection",
    "Evaluation",
    "Evaluator",
    "Graph",
    "GraphSummary",
    "Outcome",
    "PackedGraph",
    "TpuGraphsError",
    "export_official",
    "import_official",
    "load",
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
