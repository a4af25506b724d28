"""What machine, compiler and settings a measurement comes from, and which of them must agree for it to hold again."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_ISA = frozenset(
    "sse4_2 avx avx2 f16c fma avx512f avx512bw avx512dq avx512vl avx_vnni avx512_vnni avx512_bf16 avx512_fp16 "
    "amx_tile amx_int8 amx_bf16 amx_fp16 avx10 asimd asimdhp asimddp bf16 i8mm sve sve2 sme vsx".split()
)
"""What a code generator or library chooses its instructions by, as Linux spells it."""

_THREADS = frozenset({"NPROC", "PJRT_NPROC", "OMP_NUM_THREADS"})
"""The first two set the size of XLA's pool of threads whatever the number of CPUs (seen with jaxlib 0.10.2)."""
_IDLE_WORDS = frozenset("CACHE LOG LOGGING DUMP DUMPS TRACEBACK TRACEBACKS COORDINATOR".split())
"""Words in names of JAX's variables that say what is kept or told, not what is computed; they often hold paths."""

_UNKNOWN = "unknown"


def fingerprint(*, root: Path = Path("/"), variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Processor, system, versions and settings of this process; never fails.

    `root` is where proc/ is, `variables` the environment (the process's own).
    """
    about = _about_processor(root)
    return {
        "processor": _processor(about),
        "isa": _isa(about),
        "cores": str(os.cpu_count() or _UNKNOWN),
        "affinity": _affinity(),
        "memory": _memory(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": _version("numpy"),
        "jax": _version("jax"),
        "jaxlib": _version("jaxlib"),
        "iree": _version("iree-base-compiler"),
        "environment": _environment(os.environ if variables is None else variables),
    }


def strict(found: Mapping[str, str]) -> str:
    """12 digits: where they are equal, a measured ratio may be taken for true without measuring again.

    In, because it changes the code that is made or the threads that run it: processor, isa (a hypervisor may hide
    instructions of a processor of the same name, or the name itself), cores, affinity (XLA makes as many threads as
    the process may use CPUs), jax (lowers the program), jaxlib, iree, environment; and Python's minor version, whose
    call overhead is part of the times of small programs on both sides of a ratio.

    Out: Python's patch release, numpy (arguments are placed before the clock starts), the system's release (an update
    would throw everything away, and what it changes meets both sides of a pair), the amount of memory.

    A wrong difference costs a measurement, a wrong agreement costs the truth: where in doubt it is in. A key that an
    older release did not store counts as unknown, which is not the same as unset.
    """
    kept = {key: found.get(key, _UNKNOWN) for key in ("processor", "isa", "cores", "affinity", "jax", "jaxlib", "iree")}
    kept["environment"] = found.get("environment", _UNKNOWN)
    kept["python"] = _minor(found.get("python", _UNKNOWN))
    return _digits("strict", kept)


def loose(found: Mapping[str, str]) -> str:
    """12 digits: where they are equal, a measurement is a good place to begin, to be measured again.

    Processor and cores decide which kernels and tiles suit, major.minor of jaxlib and iree which knobs there are and
    roughly what they do. Settings and patch releases move ratios, seldom the order of good configs.
    """
    kept = {key: found.get(key, _UNKNOWN) for key in ("processor", "cores")}
    kept |= {key: _minor(found.get(key, _UNKNOWN)) for key in ("jaxlib", "iree")}
    return _digits("loose", kept)


def _digits(kind: str, kept: Mapping[str, str]) -> str:
    text = json.dumps([kind, sorted(kept.items())])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _minor(release: str) -> str:
    """Major.minor of a version: 3.11 of 3.11.7; as it stands what is none."""
    found = re.match(r"\d+\.\d+", release)
    return found.group() if found else release


def _about_processor(root: Path) -> dict[str, str]:
    """The first value of every key of /proc/cpuinfo."""
    try:
        lines = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = [(key.strip(), value.strip()) for key, colon, value in (line.partition(":") for line in lines) if colon]
    return dict(reversed(pairs))


def _processor(about: Mapping[str, str]) -> str:
    if about.get("model name"):
        return about["model name"]
    # ARM's Linux gives numbers for a name, and platform only the architecture, which all of them share
    numbers = [f"{key} {about[f'CPU {key}']}" for key in ("implementer", "part") if about.get(f"CPU {key}")]
    name = platform.processor() or platform.machine()
    return " ".join([name, *numbers]).strip() or _UNKNOWN


def _isa(about: Mapping[str, str]) -> str:
    flags = about.get("flags", about.get("Features"))
    return _UNKNOWN if flags is None else " ".join(sorted(_ISA.intersection(flags.split()))) or "none"


def _affinity() -> str:
    """Of the calling thread, which threads and processes that it starts inherit."""
    try:
        return str(len(os.sched_getaffinity(0)))
    except (AttributeError, OSError):  # not on every system
        return str(os.cpu_count() or _UNKNOWN)


def _memory() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    except (AttributeError, OSError, ValueError):
        return _UNKNOWN


def _environment(variables: Mapping[str, str]) -> str:
    """The variables that change what is computed or how fast, `NAME=value`, sorted, apart by `; `."""
    kept = {name: value for name, value in variables.items() if name in _THREADS or _of_jax(name)}
    # order is kept: of a flag given twice the last one counts
    flags = [flag for flag in variables.get("XLA_FLAGS", "").split() if not flag.startswith("--xla_dump_")]
    kept["XLA_FLAGS"] = " ".join(flags)
    return "; ".join(f"{name}={value}" for name, value in sorted(kept.items()) if value)


def _of_jax(name: str) -> bool:
    # all but the idle ones, since a list of those that matter would not know what the next release brings
    return name.startswith("JAX_") and not _IDLE_WORDS.intersection(name.split("_"))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
