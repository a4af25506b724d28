"""Files, packs and metrics against their plain alternatives: sizes, speeds, memory, as ratios of one run.

    python bench/data.py [--quick] [--save]

Real files are looked for under ../shared/data/tpugraphs (or $TPUGRAPHS_RELEASE); without them only generated ones
are measured. --quick leaves out the 7 GB import. --save writes the tables into bench/RESULTS.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import machine
import numpy as np
from scipy.stats import kendalltau

import tpugraphs as tg
from tpugraphs.data.codes import narrowest
from tpugraphs.data.npz import ArrayHeader, NpzReader, NpzWriter
from tpugraphs.data.synthetic import layout_graph, tile_graph
from tpugraphs.metrics import concordance, kendall_tau, opa
from tpugraphs.model import TRIVIAL_RANKERS

REPOSITORY = Path(__file__).resolve().parent.parent
RELEASE = Path(os.environ.get("TPUGRAPHS_RELEASE", REPOSITORY.parent / "shared/data/tpugraphs"))
DRAW, ROUNDS = 128, 60
GENERATED = {  # nodes, configurable nodes = 5 * layers, configs
    "small": (600, 20, 2000),
    "medium": (3000, 120, 5000),
    "large": (10000, 620, 2500),
}


def main() -> None:
    quick, save = "--quick" in sys.argv, "--save" in sys.argv
    sections: list[str] = []
    with tempfile.TemporaryDirectory(prefix="tpugraphs-bench-") as scratch:
        for measure in (files_and_packs, opening, metrics, *(() if quick else (large_import,))):
            folder = Path(scratch) / measure.__name__
            folder.mkdir()
            table = "\n".join(measure(folder))
            print(f"{table}\n")
            sections.append(table)
    if save:
        command = f"python bench/data.py{' --quick' if quick else ''} --save"
        machine.save("Files, packs and metrics", command, "\n\n".join(sections))


def files_and_packs(scratch: Path) -> Iterator[str]:
    """Round trips, sizes, and drawing 128 random configs."""
    official, root, back = scratch / "official", scratch / "packs", scratch / "back"
    for name, (nodes, layers, configs) in GENERATED.items():
        graph = layout_graph(1, nodes=nodes, layers=layers, configs=configs)
        graph.save(official / f"npz/layout/synthetic/random/train/{name}.npz")
    for seed in range(20):
        tile_graph(seed).save(official / f"npz/tile/synthetic/train/kernel_{seed}.npz")
    names = tg.import_official(official, root).collections
    if RELEASE.is_dir():
        names += tg.import_official(RELEASE, root).collections
    exact = identical = total = 0
    for name in names:
        report = tg.export_official(tg.load(name, root=root), back)
        for place in report.written:
            source = (official if "synthetic" in place.collection else RELEASE) / place.npz_path()
            exact += _same_arrays(source, back / place.npz_path())
            total += 1
        identical += report.identical
    exactly = (
        f"{exact} of {total} files exact in values, dtypes, shapes and key order, {identical} of them byte for byte"
    )
    yield f"Round trip npz → pack → npz: {exactly}."
    yield ""
    yield _row("file", "configs × nodes", "config data", "pack", "draw int8", "", "draw float32", "")
    yield _row(*["---"] * 8)
    yield _row("", "", "float32 / pack ≥ 40", "pack / npz ≤ 1.1", *["npz / pack ≥ 100", "pack / int8 map ≤ 4"] * 2)
    for name in names:
        if name.startswith("layout"):
            for graph in tg.load(name, root=root):
                if graph.summary.configs >= 400:
                    source = (
                        (official if "synthetic" in name else RELEASE) / "npz" / name.replace(":", "/") / graph.split
                    )
                    yield _pack_row(name, graph, source / f"{graph.name}.npz", scratch)


def _pack_row(name: str, graph: tg.PackedGraph, source: Path, scratch: Path) -> str:
    files = graph.files.manifest.files
    config_bytes = files["codes.npy"].bytes + files["configs.npz"].bytes
    pack_bytes = sum(path.stat().st_size for path in graph.files.folder.iterdir())
    bare = scratch / "bare.npy"
    np.save(bare, narrowest(graph.node_config_feat).astype(np.int8))
    mapped, rng, configs = np.load(bare, mmap_mode="r"), np.random.default_rng(0), graph.summary.configs

    def from_npz(rows: np.ndarray) -> np.ndarray:
        return np.load(source)["node_config_feat"][rows]

    drawn = _interleaved(
        ROUNDS,
        lambda: rng.integers(0, configs, DRAW),
        pack32=lambda rows: graph.config_features(rows),
        pack8=lambda rows: graph.config_features(rows, np.int8),
        bare8=lambda rows: mapped[rows],
    )
    slow = _interleaved(5, lambda: rng.integers(0, configs, DRAW), npz=from_npz)
    rows = rng.integers(0, configs, DRAW)
    assert (from_npz(rows) == graph.config_features(rows)).all()
    assert (mapped[rows] == graph.config_features(rows, np.int8)).all()
    return _row(
        f"{name} {graph.name}",
        f"{configs} × {graph.summary.configurable_nodes}",
        f"{graph.files.config_header.nbytes / config_bytes:.0f}",
        f"{pack_bytes / source.stat().st_size:.2f}",
        *(f"{slow['npz'] / drawn['pack8']:.0f}", f"{drawn['pack8'] / drawn['bare8']:.2f}"),
        *(f"{slow['npz'] / drawn['pack32']:.0f}", f"{drawn['pack32'] / drawn['bare8']:.2f}"),
    )


def opening(scratch: Path) -> Iterator[str]:
    """A collection of 1,000 graphs: importing it, opening it, drawing from graphs never touched before."""
    official, root = scratch / "official", scratch / "packs"
    for number in range(1000):
        graph = layout_graph(number, nodes=120, layers=4, configs=40)
        graph.save(official / f"npz/layout/synthetic/random/train/graph_{number:04d}.npz")
    start = time.perf_counter()
    tg.import_official(official, root)
    imported = time.perf_counter() - start
    times = [_timed(lambda: tg.load("layout:synthetic:random", root=root)) for _ in range(21)]
    ds = tg.load("layout:synthetic:random", root=root)
    first = [_timed(lambda name=name: ds[name].config_features([0, 5, 7])) for name in ds.names]
    again = [_timed(lambda name=name: ds[name].config_features([0, 5, 7])) for name in ds.names]
    yield "| a collection of 1,000 graphs | time |"
    yield "|---|---|"
    yield f"| opened (≤ 100 ms): median of 21, worst | {1e3 * median(times):.1f} ms, {1e3 * max(times):.1f} ms |"
    yield f"| first draw from a graph, later draws | {1e3 * median(first):.2f} ms, {1e3 * median(again):.3f} ms |"
    command = [sys.executable, "-m", "tpugraphs", "--help"]
    helped = [_timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)) for _ in range(11)]
    yield f"| `tpugraphs --help` (≤ 300 ms), the worst | {1e3 * median(helped):.0f} ms, {1e3 * max(helped):.0f} ms |"
    yield f"| imported, each graph synced to disk | {imported:.1f} s, {1e3 * imported / len(ds):.1f} ms a graph |"


def metrics(_: Path) -> Iterator[str]:
    """Kendall, OPA and their noise-aware form on 100,000 configs; and the check values on the release's rows."""
    rng = np.random.default_rng(0)
    runtime = np.round(1e9 * np.exp(rng.normal(0, 0.1, 100_000)))
    scores = np.round(runtime + rng.normal(0, 5e7, len(runtime)), -6)
    ours = _timed(lambda: kendall_tau(runtime, scores)), _timed(lambda: opa(runtime, scores))
    aware = _timed(lambda: concordance(runtime, scores, noise_floor=0.01))
    difference = abs(kendall_tau(runtime, scores) - np.asarray(kendalltau(scores, runtime))[0])
    some = slice(0, 2000)
    faster = runtime[some, None] < runtime[some]
    brute = (faster & (scores[some, None] < scores[some])).sum() / faster.sum()
    yield "| 100,000 configs | figure |"
    yield "|---|---|"
    yield f"| Kendall tau-b (≤ 1 s) | {ours[0]:.3f} s, differs from scipy's by {difference:.1e} |"
    off = abs(opa(runtime[some], scores[some]) - brute)
    yield f"| OPA (≤ 1 s) | {ours[1]:.3f} s, differs from brute force on 2,000 by {off:.1e} |"
    yield f"| concordance beyond a noise floor | {aware:.3f} s |"
    if RELEASE.is_dir():
        yield ""
        yield from _check_values()


def _check_values() -> Iterator[str]:
    yield "| unet_3d.4x4.bf16, official rows, score = sum of features | tau-b | OPA | top-1 / 10 / 100 error |"
    yield "|---|---|---|---|"
    with tempfile.TemporaryDirectory() as root:
        for name in tg.import_official(RELEASE, Path(root)).collections:
            if name.startswith("layout:xla"):
                listed = RELEASE / "eval_indices" / f"{name.removeprefix('layout:').replace(':', '_')}.json"
                evaluator = tg.Evaluator(name, root=root, rows=listed)
                graph = evaluator.collection["unet_3d.4x4.bf16"]
                scores = TRIVIAL_RANKERS["feature-sum"](graph, evaluator.rows(graph.name))
                judged = evaluator.evaluate({graph.name: scores}).graphs[0]
                errors = " / ".join(f"{error:.4g}" for error in judged.top_k.values())
                yield f"| {name} | {judged.tau:.6f} | {judged.opa:.6f} | {errors} |"


_IMPORT = r"""
import re, sys
from pathlib import Path
from tpugraphs.cli.main import run
assert run(["import", sys.argv[1], "--into", sys.argv[2]]) == 0
print(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])
"""
"""The system's own record of the peak; what getrusage says of a child includes its parent before the exec."""


def large_import(scratch: Path) -> Iterator[str]:
    """A file whose features are 7 GB as float32: peak memory and time of importing it, in a process of its own."""
    nodes, configurable, configs = 20_000, 3_000, 32_500
    path = scratch / "official/npz/layout/synthetic/random/train/huge.npz"
    path.parent.mkdir(parents=True)
    features = ArrayHeader(np.dtype(np.float32), (configs, configurable, 18))
    small = layout_graph(0, nodes=nodes, layers=configurable // 5, configs=8).arrays
    rng = np.random.default_rng(0)
    vectors = np.unique(small["node_config_feat"].reshape(-1, 18), axis=0)
    layer = np.arange(configurable) % (configurable // 5)
    with NpzWriter(path) as writer:
        for key, array in small.items():
            if key == "node_config_feat":
                with writer.stream(key, features) as put:
                    for start in range(0, configs, 100):
                        choice = rng.integers(0, len(vectors), (min(100, configs - start), configurable // 5))
                        put(vectors[choice[:, layer]])
            elif key == "config_runtime":
                writer.write(key, rng.integers(10**8, 10**9, configs))
            else:
                writer.write(key, array)
    root = scratch / "packs"
    start = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, "-c", _IMPORT, str(path), str(root)], check=True, capture_output=True, text=True
    )
    seconds = time.perf_counter() - start
    peak = int(ended.stdout.split()[-1]) * 1024
    inflate = _timed(lambda: _read_through(path))
    packed = sum(file.stat().st_size for file in root.rglob("*") if file.is_file())
    size = f"{features.nbytes / 1e9:.2f} GB of features, {path.stat().st_size / 1e6:.0f} MB as npz"
    yield f"| a file of {size} | figure |"
    yield "|---|---|"
    yield f"| peak memory of the import (≤ 1 GB) | {peak / 1e9:.2f} GB |"
    yield f"| time of the import, and against unzipping alone | {seconds:.0f} s, {seconds / inflate:.1f}x |"
    yield f"| pack | {packed / 1e6:.0f} MB |"


def _read_through(path: Path) -> None:
    with NpzReader(path) as reader:
        for _ in reader.blocks("node_config_feat"):
            pass


def _same_arrays(one: Path, other: Path) -> bool:
    with NpzReader(one) as first, NpzReader(other) as second:
        same = list(first.headers.items()) == list(second.headers.items())
        return same and all(first.read(key).tobytes() == second.read(key).tobytes() for key in first.keys)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _interleaved(
    rounds: int, draw: Callable[[], np.ndarray], **calls: Callable[[np.ndarray], object]
) -> dict[str, float]:
    """Median time of each call, all of them taking turns on the same rows."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        rows = draw()
        for name, call in calls.items():
            times[name].append(_timed(lambda call=call, rows=rows: call(rows)))
    return {name: median(values) for name, values in times.items()}


if __name__ == "__main__":
    main()
