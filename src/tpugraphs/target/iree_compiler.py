"""IREE's compiler in memory: text in, module out, and what it says of failures. Errors are its own first words."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

_SAID = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
_KERNEL = re.compile(r"\b[\w$]+_dispatch_\d+_\w+")
_MOST_NAMED = 4
_ERROR = 2
"""The severity of a diagnostic, as IREE counts: note, warning, error."""
_CONFIGURED = b"executable-configurations"
"""The phase after which every kernel is a function of its own, with its tiles chosen and no code made."""


class CompileFailed(Exception):
    """What the compiler said first."""


@lru_cache(maxsize=2)
def configured(text: bytes, flags: tuple[str, ...]) -> bytes:
    """StableHLO text to MLIR bytecode in which every kernel's tiles are chosen, locations kept.

    The last results are kept: who tries other tiles comes back with the same text.
    """
    return _compiled(text + b"\0", flags, until=_CONFIGURED)


def finished(module: bytes, flags: Sequence[str]) -> bytes:
    """From there to what the runtime loads."""
    return _compiled(module, flags, since=_CONFIGURED)


def _compiled(source: bytes, flags: Sequence[str], *, since: bytes = b"", until: bytes = b"") -> bytes:
    """Threads may compile side by side; no file is written."""
    from iree.compiler import api

    said: list[str] = []
    session = api.Session()
    try:
        session.set_flags(*flags)
        invocation = session.invocation()
        listener = _SAID(lambda severity, text, length, _: _take(said, severity, text, length))
        _function("ireeCompilerInvocationEnableCallbackDiagnostics")(invocation._inv_p, 0, listener, None)
        if since:
            _function("ireeCompilerInvocationSetCompileFromPhase")(invocation._inv_p, since)
        if until:
            _function("ireeCompilerInvocationSetCompileToPhase")(invocation._inv_p, until)
        held = api.Source.wrap_buffer(session, source)
        if not (invocation.parse_source(held) and invocation.execute()):
            raise CompileFailed(_in_one_line(said))
        output = api.Output.open_membuffer()
        try:
            if until:
                invocation.output_ir_bytecode(output)
            else:
                invocation.output_vm_bytecode(output)
            return bytes(output.map_memory())
        finally:
            output.close()
            invocation.close()
            del listener  # the compiler held nothing but its address
    finally:
        session.close()


def _take(said: list[str], severity: int, text: int, length: int) -> None:
    if severity == _ERROR:
        said.append(ctypes.string_at(text, length).decode("utf-8", "replace"))


def _in_one_line(said: Sequence[str]) -> str:
    """The first error, without the program that it quotes, and the kernels that are named anywhere."""
    if not said:
        return "the compiler failed and said nothing"
    first = " ".join(said[0].partition("see current operation")[0].split())[:300]
    named = sorted(set(_KERNEL.findall(" ".join(said))))
    return f"{first} (in {', '.join(named)})" if 0 < len(named) <= _MOST_NAMED else first


@cache
def _function(name: str) -> Any:
    """Of the compiler's library: what its wrapper leaves out."""
    from iree.compiler.api import ctypes_dl

    function = getattr(ctypes_dl._dylib, name)
    pointer = ctypes.c_void_p
    function.argtypes = [pointer, ctypes.c_int, _SAID, pointer] if "Diagnostics" in name else [pointer, ctypes.c_char_p]
    function.restype = None
    return function
