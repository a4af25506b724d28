"""Compilers' options that apply to a whole program: as a space, as the compiler takes them, and as feature columns.

An option is in the tables if it changes what is generated or called, is taken by a single compile, and is no debugging
aid. Its first value is the compiler's own. The table for the CPU was tried, option by option and value by value, with
jaxlib 0.10.2 (see docs/flags.md); those for GPU and TPU are from documentation and were not run. The table for
`llvm-cpu` is IREE's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tpugraphs.errors import BadRequest
from tpugraphs.space.knobs import FLAG, PROGRAM, Knob, Space
from tpugraphs.space.option_tables import OPTIONS, Option

__all__ = ["OPTIONS", "Option", "compiler_options", "flag_columns", "flag_settings", "flag_space"]


def flag_space(backend: str, only: Mapping[str, Sequence[str]] | None = None) -> Space:
    """A knob for each option of a backend; `only` keeps to some options, and to these values beside the default."""
    if only is None:
        only = {option.name: option.alternatives for option in _options(backend)}
    for name, values in only.items():
        _option(name, backend)
        for value in values:
            _setting(name, value, backend)
    return Space(
        tuple(
            Knob(
                option.name,
                FLAG,
                PROGRAM,
                tuple(dict.fromkeys((option.default, *only[option.name]))),
                option.name.replace("_", " "),
            )
            for option in _options(backend)
            if option.name in only
        )
    )


def compiler_options(chosen: Mapping[str, str], backend: str) -> dict[str, str]:
    """The compiler's options behind chosen values; passes that several of them leave out are joined."""
    merged: dict[str, str] = {}
    for name, value in chosen.items():
        for flag, text in _setting(name, value, backend).items():
            merged[flag] = f"{merged[flag]},{text}" if flag in merged else text
    return merged


def flag_columns(backend: str) -> tuple[str, ...]:
    """The feature columns of a backend's options: one for each value that is not the default."""
    return tuple(_column(option.name, value) for option in _options(backend) for value in option.alternatives)


def flag_settings(name: str, value: str, backend: str) -> dict[str, float]:
    """Which columns a choice sets, so that a config's encoding is the sum over its choices; none for the default."""
    return {_column(name, value): 1.0} if _setting(name, value, backend) else {}


def _column(name: str, value: str) -> str:
    return f"flag.{name}.{value}"


def _options(backend: str) -> tuple[Option, ...]:
    if backend not in OPTIONS:
        raise BadRequest(f"{backend}: no such backend; expected {', '.join(OPTIONS)}")
    return OPTIONS[backend]


def _option(name: str, backend: str) -> Option:
    by_name = {option.name: option for option in _options(backend)}
    if name not in by_name:
        raise BadRequest(f"{name}: no such option on {backend}; expected {', '.join(by_name)}")
    return by_name[name]


def _setting(name: str, value: str, backend: str) -> Mapping[str, str]:
    settings = _option(name, backend).settings
    if value not in settings:
        raise BadRequest(f"{name}: expected one of {', '.join(settings)}, found {value}")
    return settings[value]
