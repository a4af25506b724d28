"""Run as a program of its own, away from JAX's threads: packs cross process borders by fork, spawn and torch's loader.

python -m tests.kit.crossing ROOT
"""

from __future__ import annotations

import multiprocessing
import sys

import torch.utils.data

import tpugraphs as tg
from tests.kit.files import LAYOUT_NAME


def first_features(graph: tg.PackedGraph) -> float:
    return float(graph.config_features([0, 1]).sum() + graph.config_runtime[0])


class Draws(torch.utils.data.Dataset):
    """What a user would write."""

    def __init__(self, ds: tg.Collection) -> None:
        self.ds = ds

    def __len__(self) -> int:
        return len(self.ds)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.ds[index].config_features([0, 1]))


def main() -> None:
    ds = tg.load(LAYOUT_NAME, root=sys.argv[1])
    expected = [first_features(graph) for graph in ds]
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(first_features, list(ds)) == expected, method
        loader = torch.utils.data.DataLoader(Draws(ds), num_workers=2, batch_size=None, multiprocessing_context=method)
        for read, graph in zip(loader, ds, strict=True):
            assert (read.numpy() == graph.config_features([0, 1])).all(), method
    print("the same on the other side")


if __name__ == "__main__":
    main()
