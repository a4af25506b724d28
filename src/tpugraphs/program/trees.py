"""How arguments and results nest, as data that can be saved: dicts, lists, tuples, None, and numbers for leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tpugraphs.errors import BadRequest


def describe_tree(structure: Any) -> Any:
    """A JAX tree structure as JSON; containers other than dict, list, tuple and None become `unknown`."""
    return _encode(structure.unflatten(range(structure.num_leaves)))


def _encode(tree: Any) -> Any:
    if tree is None or type(tree) is int:
        return tree
    if type(tree) is dict:
        return {"dict": [[key, _encode(value)] for key, value in tree.items()]}
    if type(tree) in (list, tuple):
        return {type(tree).__name__: [_encode(value) for value in tree]}
    return {"unknown": type(tree).__name__}


def rebuild(tree: Any, leaves: Sequence[Any]) -> Any:
    """The described tree with these leaves."""
    if tree is None:
        return None
    if isinstance(tree, int):
        return leaves[tree]
    [(kind, content)] = tree.items()
    if kind == "dict":
        return {key: rebuild(value, leaves) for key, value in content}
    if kind == "list":
        return [rebuild(value, leaves) for value in content]
    if kind == "tuple":
        return tuple(rebuild(value, leaves) for value in content)
    raise BadRequest(
        f"the program returns a {content}, which cannot be rebuilt; return dicts, lists or tuples of arrays"
    )
