"""From what a user has to a Program: a callable with arguments, `module.py:function`, a file, a zoo name."""

from __future__ import annotations

import difflib
import importlib.util
import math
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tpugraphs.errors import BadFile, BadRequest
from tpugraphs.graph import modules_in
from tpugraphs.program import mlir
from tpugraphs.program.isolated import IsolatedXla
from tpugraphs.program.sources import KINDS, kind_of, read_source
from tpugraphs.program.trees import describe_tree
from tpugraphs.program.types import Program
from tpugraphs.program.zoo import PROGRAMS, ZooProgram

_ARGUMENT = re.compile(r"(?P<dtype>[a-z]+[0-9]*)\[(?P<shape>[0-9, ]*)\]")
_SHORT = {"f": "float", "s": "int", "i": "int", "u": "uint", "bf": "bfloat"}


def capture_callable(function: Callable[..., Any], *arguments: Any, name: str | None = None) -> Program:
    """The program that `jax.jit(function)` would run on these arguments, arrays or `jax.ShapeDtypeStruct`s.

    Arguments that are containers (dicts, lists, tuples) of several arrays are taken for the trained parameters.
    """
    containers = [one for one in arguments if len(jax.tree.leaves(one)) > 1]
    return _traced(function, arguments, name or str(getattr(function, "__name__", "program")), _count(containers))


def capture_zoo(program: ZooProgram, *, concrete: bool = True) -> Program:
    """A program of the zoo; without `concrete`, no arrays are made."""
    made = program.make(concrete=concrete)
    return _traced(made.function, made.arguments, program.name, _count(made.weights))


def _count(tree: Any) -> int | None:
    return sum(math.prod(np.shape(leaf)) for leaf in jax.tree.leaves(tree)) or None


def _traced(function: Callable[..., Any], arguments: tuple[Any, ...], name: str, parameters: int | None) -> Program:
    try:
        lowered = jax.jit(lambda *args: function(*args), keep_unused=True).lower(*arguments)
    except Exception as error:
        raise BadRequest(f"{name}: could not be traced: {_in_one_line(error)}") from error
    leaves, in_tree = jax.tree.flatten(arguments)
    known = not any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves)
    return replace(
        program_of_module(lowered.as_text(), name),
        in_tree=describe_tree(in_tree),
        out_tree=describe_tree(jax.tree.structure(lowered.out_info)),
        arguments=tuple(np.asarray(leaf) for leaf in leaves) if known else None,
        parameters=parameters,
    )


def resolve_source(source: str, *, arguments: tuple[str, ...] = ()) -> Program:
    """The program behind a name on the command line, to be run."""
    program = program_of_source(source, arguments=arguments)
    if program is not None:
        return program
    path = Path(source)
    data = read_source(path)
    kind = kind_of(data, path)
    with IsolatedXla() as isolated:
        if kind == "stablehlo":
            return isolated.stablehlo(data, path, path.stem)
        if kind == "hlo-text":
            return isolated.raised(isolated.hlo_of_text(data, path), path, path.stem)
        largest = max(modules_in(data, path), key=lambda one: len(one.module))
        return isolated.raised(bytes(largest.module), path, path.stem)


def program_of_source(source: str, *, arguments: tuple[str, ...] = (), concrete: bool = True) -> Program | None:
    """The program if the source names one of the zoo or a function of a module; None if it names a file or folder."""
    if source in PROGRAMS:
        return capture_zoo(PROGRAMS[source], concrete=concrete)
    path, colon, function_name = source.rpartition(":")
    if colon and path.endswith(".py"):
        return _from_module(Path(path), function_name, arguments)
    if Path(source).exists():
        return None
    if "/" in source and source.split("/")[0] in PROGRAMS:
        variant = source.split("/")[0]
        there = ", ".join(name for name in PROGRAMS if name.startswith(f"{variant}/"))
        raise BadRequest(f"{source}: no such program of the zoo; of {variant} there are {there}")
    if "." in Path(source).name or os.sep in source:
        raise BadFile(source, "source", expected="a file", found="nothing")
    near = difflib.get_close_matches(source, PROGRAMS.variants, n=3, cutoff=0.5)
    perhaps = f", perhaps {' or '.join(near)}" if near else ""
    raise BadRequest(
        f"{source}: not a program; expected MODULE.py:FUNCTION, a file ({KINDS}), XLA's dump folder, or a program of "
        f"the zoo{perhaps} (`tpugraphs programs` lists them)"
    )


def program_of_module(source: str | bytes, name: str) -> Program:
    """The program in StableHLO, text or bytecode: calls inlined, what nobody uses removed, nodes tagged."""
    module = mlir.parse(source, name)
    mlir.inline_calls(module, name)
    mlir.generalize_dots(module, name)
    mlir.remove_unused(module, name)
    nodes = mlir.tag_nodes(module, name)
    return Program(name=name, text=mlir.to_text(module), inputs=mlir.input_specs(module, name), nodes=nodes)


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
