"""Powers with a constant exponent, as products of roots."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir.dialects import stablehlo

from tpugraphs.program import mlir
from tpugraphs.space.forms import ops
from tpugraphs.space.forms.form import Form
from tpugraphs.space.forms.ops import Value

_MOST_FACTORS = 8


def _factors(op: Any) -> int | None:
    """Twice the exponent, where that is a small whole number: so many square roots are multiplied."""
    if op.name != "stablehlo.power" or not ops.is_float(op.operands[0]) or 0 in mlir.shape_of(op.operands[0]):
        return None
    exponent = ops.number_behind(op.operands[1])
    if exponent is None or not (2 * exponent).is_integer() or not 0 < abs(2 * exponent) <= _MOST_FACTORS:
        return None
    return int(2 * exponent)


def roots(op: Any) -> Value:
    """x^(n/2) is √x or 1/√x, multiplied n times; of whole exponents x or 1/x."""
    factors = ops.known(_factors(op))
    value = ops.widened(op.operands[0])
    shape, element = ops.shape_of(value), ops.element_of(value)
    if factors % 2:  # a power takes -0 and -infinity for their positives, a root does not
        for number in (0.0, float("-inf")):
            here = ops.compared(value, "EQ", ops.filled(number, shape, element))
            value = stablehlo.select(here, ops.filled(abs(number), shape, element), value)
        base = stablehlo.sqrt(value) if factors > 0 else stablehlo.rsqrt(value)
        count = abs(factors)
    else:
        base = value if factors > 0 else stablehlo.divide(ops.filled(1.0, shape, element), value)
        count = abs(factors) // 2
    return ops.converted(_multiplied(base, count), ops.element_of(op.operands[0]))


def _multiplied(base: Value, count: int) -> Value:
    """By squaring."""
    result = None
    while True:
        if count % 2:
            result = base if result is None else stablehlo.multiply(result, base)
        count //= 2
        if not count:
            return result
        base = stablehlo.multiply(base, base)


FORMS = (
    Form(
        "roots",
        "a product of square roots",
        "a root and a few products in place of a logarithm and an exponential; for constant exponents n/2",
        applies=lambda op: _factors(op) is not None,
        rewrite=roots,
    ),
)
