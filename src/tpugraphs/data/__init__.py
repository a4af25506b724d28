"""Official npz files, packs, collections and splits."""

from tpugraphs.data.collection import Collection, load
from tpugraphs.data.exporting import export_official
from tpugraphs.data.graph_file import load_graph, save_graph
from tpugraphs.data.importing import import_official
from tpugraphs.data.packed import PackedGraph
from tpugraphs.data.verifying import verify_root

__all__ = [
    "Collection",
    "PackedGraph",
    "export_official",
    "import_official",
    "load",
    "load_graph",
    "save_graph",
    "verify_root",
]
