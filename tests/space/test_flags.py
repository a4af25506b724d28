"""Every option is documented as it is, compiles, and leaves the results alone; unknown ones are refused."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.kit.programs import convolve
from tpugraphs.errors import BadRequest
from tpugraphs.measure.child import BASELINE
from tpugraphs.measure.inputs import spread_inputs
from tpugraphs.measure.worker import Worker
from tpugraphs.program import Program, capture_callable
from tpugraphs.space import Config
from tpugraphs.space.flags import OPTIONS, Option, compiler_options, flag_columns, flag_settings, flag_space
from tpugraphs.space.option_tables import DISABLED_PASSES
from tpugraphs.target import target_named

PAGE = Path(__file__).parents[2] / "docs" / "flags.md"
CHOICES = [
    (backend, option, value)
    for backend, options in OPTIONS.items()
    for option in options
    for value in option.alternatives
]


def convolution_and_dot() -> Program:
    rng = np.random.default_rng(0)
    x, kernel, head = (rng.normal(size=shape).astype(np.float32) for shape in ((1, 12, 12, 8), (3, 3, 8, 16), (16, 10)))

    def net(kernel: jax.Array, head: jax.Array, x: jax.Array) -> jax.Array:
        features = jax.nn.relu(convolve(x, kernel, groups=1)).reshape(-1, 16)
        return jax.nn.softmax(features @ head)

    return capture_callable(net, kernel, head, x)


def documented(backend: str) -> dict[str, list[str]]:
    """The rows of a backend's table by the option's name, without the figures of what changed when tried."""
    section = re.search(rf"^## {backend}\b.*?(?=^##|\Z)", PAGE.read_text(encoding="utf-8"), re.M | re.S | re.I)
    assert section is not None, backend
    rows = [
        [cell.strip() for cell in line.strip("| ").split(" | ")] for line in section[0].splitlines() if "| `" in line
    ]
    return {row[0].strip("`"): row[1:6] for row in rows}


def in_words(option: Option) -> list[str]:
    settings = {pair for setting in option.settings.values() for pair in setting.items()}
    flags = {f"{flag}={text}" if flag == DISABLED_PASSES else flag for flag, text in settings}
    listed = [", ".join(f"`{one}`" for one in some) for some in ([option.default], option.alternatives, sorted(flags))]
    return [*listed, option.meaning, option.may_change_results or "no"]


@pytest.mark.parametrize("backend", OPTIONS)
def test_the_page_lists_the_options_as_they_are(backend: str) -> None:
    assert documented(backend) == {option.name: in_words(option) for option in OPTIONS[backend]}


@pytest.mark.parametrize(("name", "limit_s"), [("xla:cpu", 60), ("iree:llvm-cpu", 240)])
def test_every_value_for_the_cpu_compiles_and_computes_the_same(name: str, limit_s: float) -> None:
    """All in one process that may die."""
    program, target = convolution_and_dot(), target_named(name)
    configs = {
        f"{option.name}={value}": Config.of({option.name: value})
        for backend, option, value in CHOICES
        if backend == target.backend
    }
    with Worker(program, spread_inputs(program.inputs, program.arguments), target) as worker:
        worker.start()
        jobs = {name: target.prepare(program, config) for name, config in configs.items()}
        built = worker.build({BASELINE: target.prepare(program, Config(), probe=()), **jobs}, limit_s)
        assert not [answer["error"] for answer in built if "error" in answer]
        worker.ask("check", 20, name=BASELINE)
        excess = {name: worker.ask("check", 20, name=name)["excess"] for name in configs}
    assert max(excess.values()) <= 1, excess


def test_several_passes_are_left_out_together() -> None:
    chosen = {"fusion": "off", "gemv_rewriting": "off", "vector_width": "512"}
    assert compiler_options(chosen, "cpu") == {
        DISABLED_PASSES: "fusion,gemv-rewriter",
        "xla_cpu_prefer_vector_width": "512",
    }
    assert compiler_options({"fusion": "on", "vector_width": "256"}, "cpu") == {}


@pytest.mark.parametrize("backend", OPTIONS)
def test_only_passes_are_set_by_more_than_one_option(backend: str) -> None:
    """So that what is joined is a list of passes, whatever is chosen together."""
    flags = [flag for option in OPTIONS[backend] for flag in {flag for one in option.settings.values() for flag in one}]
    assert {flag for flag in flags if flags.count(flag) > 1} <= {DISABLED_PASSES}


@pytest.mark.parametrize("backend", OPTIONS)
def test_the_columns_are_unique(backend: str) -> None:
    columns = flag_columns(backend)
    assert len(set(columns)) == len(columns)
    assert len({option.name for option in OPTIONS[backend]}) == len(OPTIONS[backend])


@pytest.mark.parametrize(("backend", "option", "value"), CHOICES, ids=lambda part: getattr(part, "name", part))
def test_a_value_sets_one_column_of_its_own(backend: str, option: Option, value: str) -> None:
    assert flag_settings(option.name, value, backend) == {f"flag.{option.name}.{value}": 1.0}
    assert flag_settings(option.name, option.default, backend) == {}
    assert f"flag.{option.name}.{value}" in flag_columns(backend)


def test_a_space_keeps_to_the_options_and_values_asked_for() -> None:
    [knob] = flag_space("cpu", {"vector_width": ("512",)}).knobs
    assert (knob.name, knob.choices) == ("vector_width", ("256", "512"))
    assert len(flag_space("cpu").knobs) == len(OPTIONS["cpu"])


@pytest.mark.parametrize(
    ("only", "backend", "says"),
    [
        ({"nobody": ()}, "cpu", "nobody: no such option on cpu; expected fusion_library, "),
        ({"nobody": ("on",)}, "cpu", "nobody: no such option on cpu; expected fusion_library, "),
        ({"fusion": ("x",)}, "cpu", "fusion: expected one of on, off, without-emitters, found x"),
        ({"fusion": ("off",)}, "abacus", "abacus: no such backend; expected cpu, gpu, tpu"),
        ({"vector_width": ("512",)}, "tpu", "vector_width: no such option on tpu"),
    ],
)
def test_what_is_unknown_is_refused(only: dict[str, tuple[str, ...]], backend: str, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        flag_space(backend, only)
