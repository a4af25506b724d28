"""The driver's side of the child process that hands files to XLA."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tpugraphs.child import ChildFailed, ChildProcess
from tpugraphs.errors import BadFile
from tpugraphs.graph import Costs
from tpugraphs.program.types import InputSpec, Node, Program

LIMIT_S = 1800.0
_RAISED = re.compile(r"^\w*(?:Error|Exception): ")
_BAD_FILE = re.compile(r"BadFile: .*?: (?P<what>[^:]*): expected (?P<expected>.*?), found (?P<found>.*)", re.DOTALL)


class IsolatedXla:
    """XLA in a process of its own, started when first needed."""

    def __init__(self) -> None:
        environment = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "2"}
        self._child = ChildProcess("tpugraphs.program.child", environment)
        self._files = 0

    def __enter__(self) -> IsolatedXla:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.__exit__()

    def hlo_of_text(self, text: bytes, label: str | Path) -> bytes:
        return self._convert("hlo_text", text, label, "HLO text")[0]

    def stablehlo(self, data: bytes, label: str | Path, name: str) -> Program:
        """The program, its nodes tagged."""
        return self._program("stablehlo", data, label, "StableHLO", name)

    def raised(self, hlo: bytes, label: str | Path, name: str) -> Program:
        """The program that a serialized HLO module is, as StableHLO, its nodes tagged."""
        return self._program("raised", hlo, label, "HLO", name)

    def _program(self, do: str, data: bytes, label: str | Path, what: str, name: str) -> Program:
        text, reply = self._convert(do, data, label, what, name=name)
        return Program(
            name=name,
            text=text.decode("utf-8"),
            inputs=tuple(InputSpec(**{**spec, "shape": tuple(spec["shape"])}) for spec in reply["inputs"]),
            nodes=tuple(Node(**node) for node in reply["nodes"]),
        )

    def hlo_of_stablehlo(self, text: str, label: str | Path) -> bytes:
        return self._convert("lower", text.encode(), label, "StableHLO")[0]

    def simplified(self, hlo: bytes, label: str | Path) -> bytes:
        return self._convert("simplify", hlo, label, "HLO proto")[0]

    def costs(self, hlo: bytes, label: str | Path) -> Costs:
        return Costs(**self._ask("costs", label, "HLO proto", source=self._put(hlo)))

    def _convert(self, do: str, data: bytes, label: str | Path, what: str, **more: Any) -> tuple[bytes, dict[str, Any]]:
        target = self._child.folder / "result"
        reply = self._ask(do, label, what, source=self._put(data), target=str(target), **more)
        return target.read_bytes(), reply

    def _put(self, data: bytes) -> str:
        source = self._child.folder / "source"
        source.write_bytes(data)
        return str(source)

    def _ask(self, do: str, label: str | Path, what: str, **arguments: Any) -> dict[str, Any]:
        if not self._child.alive:
            self._child.start()
        try:
            reply = self._child.ask(do, LIMIT_S, **arguments)
        except ChildFailed as error:
            raise BadFile(label, what, expected="what XLA can take", found=f"XLA gave up: {error}") from error
        if "error" in reply:
            said = reply["error"]
            if (ours := _BAD_FILE.match(said)) is not None:
                raise BadFile(label, **ours.groupdict())
            raise BadFile(label, what, expected="what XLA can take", found=_RAISED.sub("", said))
        return reply
