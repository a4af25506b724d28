"""What there is to vary in a program, and about how long measuring it will take."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tests.kit.studies import JOINT, selected, wanted
from tpugraphs.measure.planning import FIXED, estimate, plan
from tpugraphs.program import capture_callable, xla
from tpugraphs.program.selection import Selected


def twice_reshaped(x: jax.Array) -> jax.Array:
    return jnp.tanh(jax.lax.reshape(jax.lax.reshape(x, (2, 12)), (3, 8)))


def test_reshapes_that_lowering_folds_away_do_not_vary() -> None:
    program = capture_callable(twice_reshaped, np.ones((4, 6), np.float32), name="twice")
    hlo = xla.hlo_of_stablehlo(program.text)
    planned = plan(Selected("twice", "twice", lambda: (program, hlo)), wanted(spaces=("layout",)), {})
    assert planned is not None
    assert len(program.nodes) == 2
    assert {knob.place for knob in planned.study.space.knobs} < {node.tag for node in program.nodes}
    assert len(planned.study.encoding.node_ids) == 1


def test_transposes_vary_where_asked() -> None:
    program = capture_callable(lambda x: jnp.tanh(x.T) @ x, np.ones((4, 6), np.float32), name="transposed")
    one = Selected("transposed", "t", lambda: (program, xla.hlo_of_stablehlo(program.text)))
    tags = {node.tag for node in program.nodes if node.operation == "transpose"}
    places = {}
    for transposes in (False, True):
        planned = plan(one, wanted(spaces=("layout",), transposes=transposes), {})
        assert planned is not None
        places[transposes] = {knob.place for knob in planned.study.space.knobs}
    assert places[True] - places[False] == tags


def test_an_estimate_counts_what_there_is() -> None:
    found = estimate(selected(), wanted(spaces=JOINT, configs=24))
    assert (found.configs, found.message) == (24, "")
    assert set(found.knobs) == {"layout", "form", "flag"}
    assert 0 < found.seconds < 60
    longer = estimate(selected(), wanted(spaces=JOINT, configs=2400))
    assert longer.seconds > found.seconds
    few = estimate(selected(), wanted(spaces=("form",), configs=10**6))
    assert few.configs == few.size - 1 < 10**6, "no more than there are"


def test_an_estimate_says_why_there_is_none() -> None:
    program = capture_callable(lambda x: x + 1, np.ones(3, np.float32), name="fixed")
    one = Selected("fixed", "fixed", lambda: (program, xla.hlo_of_stablehlo(program.text)))
    assert estimate(one, wanted(spaces=("layout",))).message == FIXED
