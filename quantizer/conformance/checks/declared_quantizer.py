"""A platform's declared quantizer, replayed in its own float type: real numbers in steps, before they are rounded."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.bounds.pairs import Pair, of_floats, product, quotient
from quantizer.conformance.bounds.rounding import code_interval
from quantizer.conformance.checks.float32_codes import F32, fused
from quantizer.core.platform_settings import Quantizer

Array = NDArray[Any]
BEYOND_CODES = 2.0**60
"""A number of steps larger than the number of codes of any format, and still exact with a zero point added."""


@np.errstate(over="ignore")
def steps_in_float32(x: Array, scale: Array, steps: Array | None, zero: Array, quantizer: Quantizer) -> Array:
    """Return the float32 *x* in steps: the number that the quantizer rounds, without the zero point.

    The steps are computed in float32 and stored in float64. *scale*, *steps* and *zero* broadcast against *x*. *steps*
    are 1 / scale as the platform's rule rounds it; None: the float32 inverse of the scale. With `zero_point: before`
    the sum is rounded to float32 as well. If the inverse of a scale is used, product and sum are rounded together. The
    operations are those of `core.platform_settings.Quantizer`, except `exact`.
    """
    first, inverse = quantizer.zero_point == "before", np.asarray(F32(1) / scale.astype(F32))
    if quantizer.operation == "divide_float32":
        held = np.asarray(x / scale.astype(F32))
    elif quantizer.operation == "multiply_float32" and steps is not None:
        held = np.asarray(x * steps.astype(F32))
    elif first and quantizer.operation == "inverse_float32":
        # the zero point is subtracted again in float64, which only undoes the shift, not the rounding of the sum
        held = fused(x, inverse, zero.astype(F32)) - zero.astype(np.float64)
        # infinities become finite, so that later sums are numbers; such codes saturate
        return np.clip(held, -BEYOND_CODES, BEYOND_CODES)
    else:
        held = np.asarray(x * inverse)
    if first:
        held = held + zero.astype(F32)
    real = np.clip(held.astype(np.float64), -BEYOND_CODES, BEYOND_CODES)
    return real - zero if first else real


@np.errstate(over="ignore")
def declared_codes(
    x: Array,
    scale: Array,
    steps: Array | None,
    zero: Array,
    quantizer: Quantizer,
    ends: tuple[int, int],
    *,
    exact: bool,
) -> list[Array] | None:
    """Return the codes that the platform's float32 quantizer gives; *exact*: also those of exact arithmetic.

    Arguments as for steps_in_float32, but all of one shape; *ends*: the smallest and the largest code. None if the
    quantizer computes in rationals, or rounds by a random number. A number past float32 is infinity.
    """
    if quantizer.operation == "exact" or quantizer.rounding == "stochastic":
        return None
    real = steps_in_float32(x.astype(F32), scale, steps, zero, quantizer)

    def rounded(exact: Pair, real: Array) -> Array:
        return code_interval(
            real,
            zero_point=zero,
            qmin=ends[0],
            qmax=ends[1],
            rounding=quantizer.rounding,
            zero_point_first=quantizer.zero_point == "before",
            exact=exact,
        )[0]

    found = [rounded(of_floats(real), real)]
    # a plugin may multiply or divide the same numbers without rounding
    if exact and steps is not None and quantizer.operation == "multiply_float32":
        factors = steps.astype(np.float64)
        number = product(x, factors, 0, lambda i: Fraction(float(x[i])) * Fraction(float(steps[i])))
        found.append(rounded(number, x * factors))
    elif exact:
        number = quotient(x, scale, lambda i: Fraction(float(x[i])) / Fraction(float(scale[i])))
        found.append(rounded(number, x / scale))
    return found
