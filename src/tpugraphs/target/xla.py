"""XLA on the CPU: building, running, and time per operation."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from jax._src import compiler
from jaxlib import xla_client

from tpugraphs.program.mlir import TAG

_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = ")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$")
_CALLS = re.compile(r"(?:calls|to_apply)=%?([\w.\-]+)")
OTHER = "other"


class Executable:
    """A compiled program."""

    def __init__(self, loaded: Any) -> None:
        self._loaded = loaded

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        """Runs on device arrays of exactly the program's shapes and dtypes; returns when the results are there."""
        results = self._loaded.execute(arguments)
        for result in results:
            result.block_until_ready()
        return results

    @property
    def hlo(self) -> str:
        """The optimised program as text."""
        return self._loaded.hlo_modules()[0].to_string()

    def profile(self, arguments: Sequence[Any], calls: int) -> dict[str, float]:
        """ns per call by node tag, and `other` for operations that belong to no node.

        What the compiler fused from several nodes is shared among them by the number of their parts in it.
        """
        with tempfile.TemporaryDirectory(prefix="tpugraphs-profile-") as folder:
            with jax.profiler.trace(folder, profiler_options=jax.profiler.ProfileOptions()):
                for _ in range(calls):
                    self(arguments)
            [path] = Path(folder).rglob("*.xplane.pb")
            spent = _by_operation(jax.profiler.ProfileData.from_file(str(path)))
        shares = shares_by_operation(self.hlo)
        by_tag: dict[str, float] = {}
        for operation, ns in spent.items():
            for tag, share in shares.get(operation, {OTHER: 1.0}).items():
                by_tag[tag] = by_tag.get(tag, 0.0) + share * ns / calls
        return by_tag


def build(module: bytes | str, options: Mapping[str, str]) -> Executable:
    """Compiles a StableHLO module; raises what XLA raises."""
    device = jax.devices("cpu")[0]
    settings = compiler.get_compile_options(num_replicas=1, num_partitions=1, env_options_overrides=dict(options))
    return Executable(device.client.compile_and_load(module, xla_client.DeviceList((device,)), settings))


def _by_operation(data: Any) -> dict[str, float]:
    spent: dict[str, float] = {}
    for plane in data.planes:
        for line in plane.lines:
            for event in line.events:
                operation = dict(event.stats).get("hlo_op")
                if operation is not None:
                    spent[str(operation)] = spent.get(str(operation), 0.0) + event.duration_ns
    return spent


def shares_by_operation(hlo: str) -> dict[str, dict[str, float]]:
    """For each instruction of an HLO text, the nodes it belongs to by their share of what it is made of."""
    own: dict[str, Counter[str]] = {}
    calls: dict[str, str] = {}
    inside: dict[str, Counter[str]] = {}
    current = ""
    for line in hlo.splitlines():
        if (head := _COMPUTATION.match(line)) is not None:
            current = head[1]
        elif (instruction := _INSTRUCTION.match(line)) is not None:
            tag, called = TAG.search(line), _CALLS.search(line)
            if called is not None:
                calls[instruction[1]] = called[1]
            if tag is not None:
                own[instruction[1]] = Counter([tag[0]])
                inside.setdefault(current, Counter())[tag[0]] += 1
    fused = {name: inside[called] for name, called in calls.items() if called in inside}
    return {
        name: {tag: count / parts.total() for tag, count in parts.items()} for name, parts in {**own, **fused}.items()
    }
