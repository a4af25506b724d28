"""From a program and a config to the job that a target builds, whatever the compiler."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from tpugraphs.errors import BadRequest
from tpugraphs.program import Program, mlir
from tpugraphs.program.probes import add_probes
from tpugraphs.space import Config
from tpugraphs.space.form import Form
from tpugraphs.space.knobs import FORM, LAYOUT, TILE, canonical
from tpugraphs.space.product import apply, may_change_results
from tpugraphs.target.contract import TILES, Job


def prepare_job(
    program: Program,
    config: Config,
    probe: Collection[str] | None,
    *,
    backend: str,
    forms: Mapping[str, Form],
    spaces: Collection[str],
    write: Callable[[Any], bytes],
) -> Job:
    """What may change results (forms, some options) is judged by results inside the program too, in a second module,
    where a rewritten node is computed in both ways; layouts only move values, and for them the program's own results
    will do."""
    for name, _ in config.changes:
        if (space := _space(name)) not in spaces:
            raise BadRequest(f"{name}: {space} cannot be chosen on {backend}; expected {', '.join(spaces)}")
    applied = apply(program, config, backend=backend, forms=forms)
    probing, probes = None, ()
    rewritten = [mlir.long(name.removesuffix(".form")) for name, _ in config.changes if name.endswith(".form")]
    if probe is not None or rewritten or may_change_results(config, backend):
        both = apply(program, config, backend=backend, forms=forms, keep=True).module
        probes = add_probes(both, program, {*rewritten, *(probe or ())})
        probing = write(both)
    options = dict(applied.options)
    if applied.tiles:
        options[TILES] = canonical(applied.tiles)
    return Job(write(applied.module), options, applied.input_layouts, probing, probes)


def _space(name: str) -> str:
    """Of a knob, by its name."""
    owner, _, aspect = name.rpartition(".")
    if not owner:
        return "flags"
    return aspect if aspect in (FORM, TILE) else LAYOUT
