"""What happened to one config, as a value: a run time over the default's, or how it failed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tpugraphs.measure.timing import Ratio
from tpugraphs.space import Config

OK, COMPILE_ERROR, RUN_ERROR, WRONG_RESULT = "ok", "compile-error", "run-error", "wrong-result"
CRASH, TIMEOUT, OUT_OF_MEMORY = "crash", "timeout", "out-of-memory"
STATUSES = (OK, COMPILE_ERROR, RUN_ERROR, WRONG_RESULT, CRASH, TIMEOUT, OUT_OF_MEMORY)
_MEMORY = re.compile(r"RESOURCE_EXHAUSTED|MemoryError|bad_alloc|out of memory|cannot allocate memory|SIGKILL", re.I)


@dataclass(frozen=True, slots=True)
class Measurement:
    """What happened to one config."""

    config: Config
    status: str
    """ok, compile-error, run-error, wrong-result, crash, timeout or out-of-memory."""
    ratio: Ratio | None = None
    """Run time over the default's, measured in turns with it."""
    samples_ns: tuple[float, ...] = ()
    baseline_ns: tuple[float, ...] = ()
    """The default's samples of the same rounds."""
    compile_s: float = 0.0
    message: str = ""
    """What compiler, worker or check said."""
    identity: str = ""
    """Of the compiled program with its options: two configs of one identity are the same program."""
    same_as: str = ""
    """The digest of the config whose measurement this is, where both compile to the same program."""
    node_ns: Mapping[str, float] = field(default_factory=dict)
    """ns per call by node tag, where the target's profile was taken."""
    load: float = 0.0
    """The machine's load average just then."""
    drifted: bool = False
    """Whether the default took clearly another time than at first, so that the machine had changed."""
    ticks: int = 0
    """How many samples lie at multiples of the kernel's tick: of a thread that waited for its turn."""

    def to_json(self) -> dict[str, Any]:
        """Without what is empty."""
        value = {**asdict(self), "config": self.config.as_dict()}
        return {key: content for key, content in value.items() if content or key == "config"}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Measurement:
        ratio = value.get("ratio")
        return Measurement(
            config=Config.of(value["config"]),
            status=value["status"],
            ratio=None if ratio is None else Ratio(**ratio),
            samples_ns=tuple(value.get("samples_ns", ())),
            baseline_ns=tuple(value.get("baseline_ns", ())),
            compile_s=value.get("compile_s", 0.0),
            message=value.get("message", ""),
            identity=value.get("identity", ""),
            same_as=value.get("same_as", ""),
            node_ns=value.get("node_ns", {}),
            load=value.get("load", 0.0),
            drifted=value.get("drifted", False),
            ticks=value.get("ticks", 0),
        )


def status_of(status: str, message: str) -> str:
    """The failure's class: what was said of memory goes before how it ended."""
    return OUT_OF_MEMORY if status != TIMEOUT and _MEMORY.search(message) else status
