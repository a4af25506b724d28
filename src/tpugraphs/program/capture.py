"""From what a user has to a Program: a callable with arguments, `module.py:function`, a StableHLO file, a zoo name."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tpugraphs.errors import BadFile, BadRequest
from tpugraphs.program import mlir
from tpugraphs.program.trees import describe_tree
from tpugraphs.program.types import Program
from tpugraphs.program.zoo import PROGRAMS

_ARGUMENT = re.compile(r"(?P<dtype>[a-z]+[0-9]*)\[(?P<shape>[0-9, ]*)\]")
_SHORT = {"f": "float", "s": "int", "i": "int", "u": "uint", "bf": "bfloat"}
_SUFFIXES = (".mlir", ".stablehlo")


def capture_callable(function: Callable[..., Any], *arguments: Any, name: str | None = None) -> Program:
    """The program that `jax.jit(function)` would run on these arguments."""
    name = name or str(getattr(function, "__name__", "program"))
    try:
        lowered = jax.jit(lambda *args: function(*args), keep_unused=True).lower(*arguments)
    except Exception as error:
        raise BadRequest(f"{name}: could not be traced: {_in_one_line(error)}") from error
    leaves, in_tree = jax.tree.flatten(arguments)
    out_tree = jax.tree.structure(lowered.out_info)
    return _program(
        lowered.as_text(),
        name,
        in_tree=describe_tree(in_tree),
        out_tree=describe_tree(out_tree),
        arguments=tuple(np.asarray(leaf) for leaf in leaves),
    )


def resolve_source(source: str, *, arguments: tuple[str, ...] = ()) -> Program:
    """The program behind a name on the command line."""
    if source in PROGRAMS:
        function, values = PROGRAMS[source].make()
        return capture_callable(function, *values, name=source)
    path, colon, function_name = source.rpartition(":")
    if colon and path.endswith(".py"):
        return _from_module(Path(path), function_name, arguments)
    if source.endswith(_SUFFIXES):
        return capture_file(Path(source))
    raise BadRequest(
        f"{source}: not a program; expected MODULE.py:FUNCTION, a StableHLO file ({' or '.join(_SUFFIXES)}), "
        f"or one of {', '.join(PROGRAMS)}"
    )


def capture_file(path: Path) -> Program:
    """A program in StableHLO text; its inputs will be made up from their shapes."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise BadFile(path, "StableHLO", expected="a file", found="nothing") from error
    except (OSError, UnicodeDecodeError) as error:
        raise BadFile(path, "StableHLO", expected="readable text", found=str(error)) from error
    return _program(text, path.stem)


def _program(text: str, name: str, **trees: Any) -> Program:
    module = mlir.parse(text, name)
    mlir.inline_calls(module, name)
    nodes = mlir.tag_nodes(module, name)
    return Program(name=name, text=mlir.to_text(module), inputs=mlir.input_specs(module, name), nodes=nodes, **trees)


def _from_module(path: Path, function_name: str, arguments: tuple[str, ...]) -> Program:
    """Runs the user's module; example arguments come from `--arg`, else from its function `FUNCTION_args()`."""
    if not path.is_file():
        raise BadRequest(f"{path}: no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise BadRequest(f"{path}: not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent.absolute()))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise BadRequest(f"{path}: could not be imported: {_in_one_line(error)}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise BadRequest(f"{path}: has no function {function_name}")
    if arguments:
        values = tuple(_example(text) for text in arguments)
    else:
        maker = getattr(module, f"{function_name}_args", None)
        if not callable(maker):
            raise BadRequest(
                f"{path}:{function_name} needs example arguments: give --arg f32[8,128] for each, or define "
                f"{function_name}_args() in the module, returning them as a tuple"
            )
        made = maker()
        values = made if isinstance(made, tuple) else (made,)
    return capture_callable(function, *values, name=function_name)


def _in_one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _example(text: str) -> np.ndarray:
    """An array as `f32[8,128]` says, of seeded values."""
    match = _ARGUMENT.fullmatch(text.strip())
    letters, bits = re.fullmatch(r"([a-z]+)([0-9]*)", match["dtype"]).groups() if match else ("", "")  # pyright: ignore[reportOptionalMemberAccess]
    try:
        dtype = jax.numpy.dtype(f"{_SHORT.get(letters, letters)}{bits}")
    except TypeError as error:
        raise BadRequest(f"--arg {text}: expected a dtype and a shape such as f32[8,128] or s32[4]") from error
    shape = tuple(int(part) for part in match["shape"].split(",") if part.strip()) if match else ()
    rng = np.random.default_rng(0)
    return rng.normal(size=shape).astype(dtype) if dtype.kind in "fV" else rng.integers(0, 8, shape).astype(dtype)
