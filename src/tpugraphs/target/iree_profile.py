"""Time per kernel of a program that IREE runs, in place: its own tools tell it, and tell it to nobody else."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from tpugraphs.types import Array

_GROUP = "host_dispatch_group"


def kernel_times(module: bytes, device: str, arguments: Sequence[Array], calls: int) -> dict[str, float]:
    """ns a call of the program, by the kernel's name, of all places that run it."""
    with tempfile.TemporaryDirectory(prefix="tpugraphs-profile-") as name:
        folder = Path(name)
        (folder / "module").write_bytes(module)
        profile = folder / "profile"
        _run(
            "iree-benchmark-module",
            f"--module={folder / 'module'}",
            f"--device={device}",
            "--function=main",
            f"--benchmark_min_time={calls}x",
            "--device_profiling_mode=host-execution",
            f"--device_profiling_output={profile}",
            *_inputs(folder, arguments),
        )
        told = [json.loads(line) for line in _run("iree-profile", "dispatch", "--format=jsonl", profile).splitlines()]
    return {row["key"]: row["total_ns"] / calls for row in told if row["type"] == _GROUP}


def _inputs(folder: Path, arguments: Sequence[Array]) -> Iterator[str]:
    for index, value in enumerate(arguments):
        path = folder / f"input{index}"
        if value.dtype.name == "bfloat16":  # no dtype of npy
            path.write_bytes(value.tobytes())
            yield f"--input={'x'.join([*map(str, value.shape), 'bf16'])}=@{path}"
        else:
            with path.with_suffix(".npy").open("wb") as file:
                np.save(file, value, allow_pickle=False)
            yield f"--input=@{path.with_suffix('.npy')}"


def _run(tool: str, *words: str | Path) -> str:
    """What a tool of the runtime prints."""
    from iree import _runtime_libs  # where its tools are; nothing public says it

    command = [str(Path(next(iter(_runtime_libs.__path__))) / tool), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (the runtime's own)
    if done.returncode:
        raise RuntimeError(f"{tool}: {' '.join(done.stderr.split())[:300]}")
    return done.stdout
