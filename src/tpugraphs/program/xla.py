"""What XLA does for capture: from StableHLO and HLO text to protos, its own simplification, and its cost analysis."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import jax
from jaxlib import xla_client
from jaxlib._hlo import HloModule, hlo_module_from_text
from jaxlib._jax import hlo_module_cost_analysis, mlir

from tpugraphs.graph import Costs, modules_in

_STEP = re.compile(r"\.(\d{4})\.(.+)\.hlo\.pb$")
_LAYOUT_ASSIGNMENT = "after_layout-assignment"


def hlo_of_stablehlo(text: str) -> bytes:
    """The serialized HLO module that the frontend's program becomes, before any pass."""
    return mlir.mlir_module_to_xla_computation(text).as_serialized_hlo_module_proto()


def hlo_of_text(text: str) -> bytes:
    return hlo_module_from_text(text).as_serialized_hlo_module_proto()


def stablehlo_of_hlo(hlo: bytes) -> str | bytes:
    """A serialized HLO module as StableHLO, text or bytecode."""
    return mlir.hlo_to_stablehlo(hlo)


def costs_of(hlo: bytes) -> Costs:
    """By XLA's cost analysis of the module as it stands."""
    module = HloModule.from_serialized_hlo_module_proto(hlo)
    found = hlo_module_cost_analysis(jax.devices("cpu")[0].client, module)
    return Costs(
        flops=max(0.0, found.get("flops", 0.0)),
        transcendentals=max(0.0, found.get("transcendentals", 0.0)),
        bytes_accessed=max(0.0, found.get("bytes accessed", 0.0)),
    )


def simplified(hlo: bytes) -> bytes:
    """The module as it enters XLA:CPU's layout assignment.

    The compiler writes the module down whenever a pass has changed it; what was written last before layout assignment
    is what layout assignment gets.
    """
    module = stablehlo_of_hlo(hlo)
    with tempfile.TemporaryDirectory(prefix="tpugraphs-simplify-") as folder:
        options = xla_client.CompileOptions()
        options.env_option_overrides = [
            ("xla_dump_to", folder),
            ("xla_dump_hlo_as_proto", True),
            ("xla_dump_hlo_pass_re", ".*"),
            ("xla_backend_optimization_level", 0),  # what comes after the graph is not wanted
            ("xla_llvm_disable_expensive_passes", True),
        ]
        device = jax.devices("cpu")[0]
        device.client.compile_and_load(module, xla_client.DeviceList((device,)), options)
        dumped = list(Path(folder).iterdir())
        steps = sorted((int(match[1]), match[2], path) for path in dumped if (match := _STEP.search(path.name)))
        last = None
        for _, name, path in steps:
            if _LAYOUT_ASSIGNMENT in name or "after_layout_assignment" in name:
                break
            last = path
        if last is None:
            [last] = (path for path in dumped if path.name.endswith(".before_optimizations.hlo.pb"))
        [contained] = modules_in(last.read_bytes(), last)
        return bytes(contained.module)
