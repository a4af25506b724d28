"""A session on XLA itself: what is measured of a config, and programs that nobody can measure."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.kit.programs import small_program
from tests.kit.studies import small_captured
from tpugraphs.errors import BadRequest, TpuGraphsError
from tpugraphs.measure import machine
from tpugraphs.measure.measurement import OK, WRONG_RESULT
from tpugraphs.measure.session import Session
from tpugraphs.program import Program, capture_callable
from tpugraphs.program.capture import program_of_module
from tpugraphs.space import Config
from tpugraphs.space.product import space_of
from tpugraphs.target import Job
from tpugraphs.target.simulated import SimulatedTarget
from tpugraphs.target.xla import XlaTarget

TYPES = "(tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>"
ABORTING = f"""
func.func @main(%a: tensor<4x8xf32>, %b: tensor<8x8xf32>) -> tensor<4x8xf32> {{
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : {TYPES}
  %1 = stablehlo.custom_call @TopK(%0) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}}
"""
"""XLA looks for attributes that are not there, and ends the process."""
VALUES = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32)


class Wrong(XlaTarget):
    """Takes the first argument's transpose in every config but the default."""

    def prepare(self, program: Program, config: Config, probe: Collection[str] | None = None) -> Job:
        job = super().prepare(program, Config(), probe)
        return job if config.is_default else replace(job, input_layouts={0: (0, 1)})


def session_of(program: Program, **options: Any) -> Session:
    return Session(program, XlaTarget("cpu"), **options)


def captured(function: Any, *arguments: Any) -> Program:
    return capture_callable(function, *arguments, name="odd")


def begin(program: Program, **options: Any) -> None:
    with session_of(program, **options) as session:
        session.begin()


def test_layouts_are_measured_beside_the_default() -> None:
    program, _ = small_captured()
    space = space_of(program, ("layout",))
    rng = np.random.default_rng(0)
    configs = [Config(), *(space.uniform(rng) for _ in range(3))]
    with session_of(program) as session:
        session.begin()
        measured = session.measure(configs, rounds=3, sample_s=0.001, profiled_calls=1)
        assert [one.config for one in measured] == configs
        assert [one.status for one in measured] == [OK] * 4, [one.message for one in measured]
        assert all(len(one.samples_ns) == len(one.baseline_ns) == 3 for one in measured)
        assert all(one.identity and one.compile_s > 0 for one in measured)
        tags = {node.tag for node in program.nodes}
        assert all(tags & one.node_ns.keys() for one in measured), "the profile tells nodes apart"
        assert session.spent_s.keys() >= {"start", "prepare", "build", "check", "time", "profile", "drop"}


def test_what_was_found_right_is_not_judged_inside_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own results are compared all the same; what is new in a config is judged inside."""
    program, _ = small_captured()
    first, second, option = {"node0.form": "dots"}, {"node1.form": "shifted"}, {"fusion_library": "off"}
    probed: list[list[bool]] = []
    with session_of(program) as session:
        session.begin()
        real = session.worker.build

        def build(jobs: dict[str, Job], limit_s: float) -> list[dict[str, Any]]:
            probed.append([job.probing is not None for job in jobs.values()])
            return real(jobs, limit_s)

        monkeypatch.setattr(session.worker, "build", build)
        for changes in (first, second, option, first | second | option, first | {"node1.form": "patches"}):
            [measured] = session.measure([Config.of(changes)], rounds=2, sample_s=0.001)
            assert measured.status == OK, measured.message
    assert probed == [[True], [True], [True], [False], [True]]


def test_a_config_that_compiles_to_a_known_program_is_not_timed_again() -> None:
    program, _ = small_captured()
    explicit = {knob.name: knob.choices[1] for knob in space_of(program, ("layout",)).knobs if "output" in knob.name}
    row_major = Config.of(dict([next(iter(explicit.items()))]))
    with session_of(program) as session:
        session.begin()
        first, second = (session.measure([row_major], rounds=2, sample_s=0.001)[0] for _ in range(2))
        assert second.same_as, "measured before"
        assert (second.ratio, second.samples_ns) == (first.ratio, ())
        [again] = session.measure([row_major], rounds=2, sample_s=0.001, again=True)
        assert again.samples_ns, "unless it is asked for"


def test_a_wrong_result_is_a_status() -> None:
    program = captured(lambda w, x: jnp.tanh(x @ w), VALUES, 2 * VALUES)
    with Session(program, Wrong("cpu")) as session:
        session.begin()
        [one] = session.measure([Config.of({"node0.form": "wrong"})], rounds=2, sample_s=0.001)
    assert one.status == WRONG_RESULT
    assert "of the output's spread" in one.message
    assert not one.samples_ns


def test_a_worker_that_somebody_killed_is_no_failure_of_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    program, _ = small_captured()
    config = next(one for one in space_of(program, ("layout",)).enumerate() if not one.is_default)
    with session_of(program) as session:
        session.begin()
        real, killed = session.worker.ask, []

        def ask(do: str, limit_s: float, **arguments: Any) -> dict[str, Any]:
            if do == "check" and not killed and session.worker.pid:
                killed.append(session.worker.pid)
                os.kill(session.worker.pid, signal.SIGKILL)
            return real(do, limit_s, **arguments)

        monkeypatch.setattr(session.worker, "ask", ask)
        [one] = session.measure([config], rounds=2, sample_s=0.001)
        assert (one.status, session.starts, len(killed)) == (OK, 2, 1)


def test_what_is_hopelessly_slow_is_not_waited_for() -> None:
    """Its first call says so; the others of its batch are timed as ever."""
    target = SimulatedTarget(effect=3.0, noise=0.001, real_time=True, default_ns=1e6)
    program, _ = small_captured()
    knobs = space_of(program, ("layout",)).knobs
    configs = [Config.of({knob.name: choice}) for knob in knobs for choice in knob.choices[1:]]
    ranked = sorted(configs, key=lambda config: target.true_ns(program.name, config.as_dict()))
    quick, slow = ranked[0], next(one for one in ranked if target.true_ns(program.name, one.as_dict()) > 2e8)
    with Session(program, target) as session:
        session.begin()
        measured = session.measure([slow, quick], rounds=5, sample_s=0.001)
    assert [len(one.samples_ns) for one in measured] == [2, 5]
    assert measured[0].ratio is not None
    assert measured[0].ratio.value > 100


def test_what_aborts_xla_is_told() -> None:
    program = program_of_module(ABORTING, "abort")
    with pytest.raises(TpuGraphsError, match=r"abort: the default itself fails: .*SIGABRT"):
        begin(program)


def test_a_program_that_never_ends_is_given_up() -> None:
    def endless(w: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda s: jnp.isfinite(s).all(), lambda s: jnp.tanh(s @ w), x)

    with pytest.raises(TpuGraphsError, match="odd: the default itself fails: no answer to check within 3 s"):
        begin(captured(endless, VALUES, VALUES), first_limit_s=3)


def test_a_program_that_eats_all_memory_is_given_up() -> None:
    def hungry(w: jax.Array, x: jax.Array) -> jax.Array:
        wide = jnp.outer(jnp.tile((x @ w).ravel(), 300), jnp.arange(40000, dtype=jnp.float32))
        return jnp.sort(wide, axis=0)[:3, :3]  # 12 GB, sorted, so that they must be there

    with pytest.raises(TpuGraphsError, match=r"odd: the default itself fails: .*(?i:memory|allocat)"):
        begin(captured(hungry, VALUES, VALUES), memory=1 << 31)


def test_results_that_are_nan_by_nature_cannot_be_checked() -> None:
    with pytest.raises(BadRequest, match="odd: its outputs are not finite, so no result could be checked"):
        begin(captured(lambda x: jnp.log(-jnp.square(x) - 1), VALUES))


def test_where_results_are_nan_but_nodes_inside_are_not_those_are_compared() -> None:
    program = captured(lambda w, x: jnp.log(-jnp.square(x @ w) - 1), VALUES, 2 * VALUES)
    config = Config.of({"node0.output": "{0,1}"})
    with Session(program, Wrong("cpu")) as session:
        session.begin()
        [one] = session.measure([config], rounds=2, sample_s=0.001)
    assert (one.status, one.message[:16]) == (WRONG_RESULT, "tpugraphs.node0:")


def test_results_that_are_nan_in_places_can() -> None:
    program = captured(lambda w, x: jnp.log(x @ w), VALUES, VALUES)
    config = next(iter(space_of(program, ("layout",)).enumerate()))
    with session_of(program) as session:
        session.begin()
        [one] = session.measure([config], rounds=2, sample_s=0.001)
    assert one.status == OK


def test_samples_at_ticks_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "tick_hz", lambda: 250)
    with session_of(small_program()) as session:
        session.begin()
        names = ["baseline", Config().digest]
        samples = {names[0]: [1e6, 1e6, 1e6], names[1]: [4.0e6, 8.01e6, 1e6]}
        monkeypatch.setattr(session, "time", lambda *_: samples)
        session.default_ns = 1e6
        [one] = session.measure([Config()])
    assert one.ticks == 2


def test_the_main_thread_is_kept_where_it_is_steadiest() -> None:
    program, _ = small_captured()
    with session_of(program, pinned=True) as session:
        session.begin()
        tried = session.try_places(2, range(2))
        assert session.pinning in tried
        assert {len(samples) for samples in tried.values()} == {4}
        assert session.pin(None)
        assert not session.pin((10_000,)), "there is no such processor"
