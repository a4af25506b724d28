"""What every target promises, as checks: parametrize a test over `CHECKS` and give each a case."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pytest

from tpugraphs.measure.check import by_name, deviation
from tpugraphs.measure.inputs import spread_inputs
from tpugraphs.program import Program
from tpugraphs.program.mlir import TAG
from tpugraphs.space import Config
from tpugraphs.target import Executable, Job, Target, target_named


@dataclass(frozen=True, slots=True)
class Case:
    """A target, and a program with two configs of it that are other programs than the default and right ones."""

    target: Target
    program: Program
    configs: tuple[Config, Config]
    broken: Config | None = None
    """One that does not compile, where there is such a one."""
    lays_out: bool = True
    """Whether the target takes arguments in other layouts than row-major."""


def built(case: Case, config: Config) -> tuple[Executable, list[Any]]:
    """The executable in this process, and its arguments in place."""
    job = case.target.prepare(case.program, config)
    return case.target.build(job.module, job.options), placed(case, job)


def placed(case: Case, job: Job) -> list[Any]:
    inputs = spread_inputs(case.program.inputs, case.program.arguments)
    return [case.target.place(value, job.input_layouts.get(index)) for index, value in enumerate(inputs)]


def all_configs(case: Case) -> Sequence[Config]:
    return (Config(), *case.configs)


def check_its_name_makes_it_again(case: Case) -> None:
    again = target_named(case.target.name)
    assert again.name == case.target.name
    assert again.backend == case.target.backend
    job, other = (one.prepare(case.program, case.configs[0]) for one in (case.target, again))
    assert job == other


def check_jobs_are_plain_data(case: Case) -> None:
    for config in all_configs(case):
        job = case.target.prepare(case.program, config)
        assert isinstance(job.module, bytes)
        assert job.probing is None or isinstance(job.probing, bytes)
        rest = {key: value for key, value in asdict(job).items() if not isinstance(value, bytes)}
        assert json.loads(json.dumps(rest))["options"] == job.options
        assert all(isinstance(text, str) for pair in job.options.items() for text in pair)


def check_preparing_leaves_the_program_alone(case: Case) -> None:
    before = case.program.text
    first = case.target.prepare(case.program, Config())
    case.target.prepare(case.program, case.configs[0])
    assert case.program.text == before
    assert case.target.prepare(case.program, Config()) == first


def check_results_are_arrays_and_always_the_same(case: Case) -> None:
    executable, arguments = built(case, Config())
    first, second = executable(arguments), executable(arguments)
    assert first
    for one, other in zip(first, second, strict=True):
        assert isinstance(one, np.ndarray)
        np.testing.assert_array_equal(one, other)


def check_every_config_computes_what_the_default_does(case: Case) -> None:
    default, *others = (by_name(executable(arguments), []) for executable, arguments in _all_built(case))
    for found in others:
        worst, where = deviation(found, default)
        assert worst <= 1, where


def check_probes_come_behind_the_results(case: Case) -> None:
    own = len(built(case, Config())[0]([*built(case, Config())[1]]))
    tags = [node.tag for node in case.program.nodes][:1]
    for config in all_configs(case):
        job = case.target.prepare(case.program, config, tags)
        if job.probing is None:
            assert not job.probes
            continue
        assert set(tags) <= set(job.probes)
        assert len(case.target.build(job.probing, job.options)(placed(case, job))) == own + len(job.probes)


def check_identity_is_of_the_program(case: Case) -> None:
    """With its options: those may change code without changing what the compiler shows."""

    def identity(config: Config) -> tuple[str, str]:
        job = case.target.prepare(case.program, config)
        return case.target.build(job.module, job.options).identity, json.dumps(job.options, sort_keys=True)

    once, again = ([identity(config) for config in all_configs(case)] for _ in range(2))
    assert once == again
    assert len(set(once)) == len(once)
    assert all(re.fullmatch("[0-9a-f]{16}", told) for told, _ in once)


def check_more_calls_take_longer(case: Case) -> None:
    executable, arguments = built(case, Config())
    executable(arguments)
    few, many = (min(executable.sample_ns(arguments, calls) for _ in range(5)) for calls in (1, 50))
    assert 0 < few < many


def check_the_profile_is_by_node(case: Case) -> None:
    for executable, arguments in _all_built(case):
        executable(arguments)
        spent = executable.profile(arguments, 2)
        assert all(name == "other" or TAG.fullmatch(name) for name in spent)
        assert all(ns >= 0 for ns in spent.values())


def check_places_keep_values(case: Case) -> None:
    value = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for layout in (None, (2, 1, 0), (0, 1, 2), (1, 2, 0)) if case.lays_out else (None,):
        np.testing.assert_array_equal(np.asarray(case.target.place(value, layout)), value)


def check_what_does_not_compile_raises(case: Case) -> None:
    with pytest.raises(Exception, match=r".+"):
        case.target.build(b"this is no module", {})
    if case.broken is not None:
        with pytest.raises(Exception, match=r".+"):
            built(case, case.broken)
    executable, arguments = built(case, Config())
    assert executable(arguments)


def _all_built(case: Case) -> list[tuple[Executable, list[Any]]]:
    return [built(case, config) for config in all_configs(case)]


CHECKS: tuple[Callable[[Case], None], ...] = (
    check_its_name_makes_it_again,
    check_jobs_are_plain_data,
    check_preparing_leaves_the_program_alone,
    check_results_are_arrays_and_always_the_same,
    check_every_config_computes_what_the_default_does,
    check_probes_come_behind_the_results,
    check_identity_is_of_the_program,
    check_more_calls_take_longer,
    check_the_profile_is_by_node,
    check_places_keep_values,
    check_what_does_not_compile_raises,
)
