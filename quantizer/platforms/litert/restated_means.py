"""A second implementation of means and sums of raw codes: integer quotients, lanes of 16 channels, float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from quantizer.conformance.oracle import Array, Asked, fixed, high_multiplied
from quantizer.core.variants import Variant

F32 = np.float32
SIXTEEN = 16


def means(asked: Asked) -> Array | None:
    """Return the codes of a mean or a sum under the requantizations of this system; None under generic ones."""
    stated = _STATED.get(asked.variant)
    if stated is None:
        return None
    # sums of raw codes: every term has the zero point back
    return stated(asked, asked.sums + asked.terms * int(asked.grids["x"].zero_point))


def _quotient(asked: Asked, raw: Array) -> Array:
    """Return integer quotients of raw sums and numbers of terms, ties away from zero."""
    terms = asked.terms
    # round(raw / terms) without fractions: (2 * raw + terms) / (2 * terms)
    return np.asarray(np.where(raw > 0, (2 * raw + terms) // (2 * terms), -((terms - 2 * raw) // (2 * terms))))


def _in_16_lanes(asked: Asked, raw: Array) -> Array:
    """Return codes of means of raw codes: both zero points form one constant, rounded to a whole code first."""
    grid, output, count = asked.grids["x"], asked.output, int(asked.terms.max(initial=1))
    # each step in float32, as in the kernel
    x, y = F32(float(grid.scale)), F32(float(output.scale))
    multiplier, shift = fixed(float(x / (F32(count) * y)))
    moved = F32(int(grid.zero_point)) * x / y
    # + 0.5 and truncation round half away from zero
    constant = int(output.zero_point) - int(F32(moved + (F32(0.5) if moved > 0 else F32(-0.5))))
    axis = raw.ndim - 1 if asked.channels is None else asked.channels
    # channels that fill no group of 16 run in scalar code, which rounds ties away from zero
    behind = np.arange(raw.shape[axis]) >= raw.shape[axis] // SIXTEEN * SIXTEEN
    away = behind.reshape([-1 if place == axis else 1 for place in range(raw.ndim)])
    return high_multiplied(raw, multiplier, shift, away=away) + constant


def _in_float32(asked: Asked, raw: Array) -> Array:
    """Return codes of a float32 product of raw sums plus a float32 constant, ties away from zero."""
    assert asked.rescale is not None
    factor, count = F32(next(iter(asked.rescale.factors.values()))), int(asked.terms.max(initial=1))
    # two float32 roundings: of each product, then of the sum
    value = (raw.astype(F32) * factor + F32(-int(asked.grids["x"].zero_point)) * factor * F32(count)).astype(np.float64)
    return np.asarray(np.sign(value) * np.floor(np.abs(value) + 0.5) + int(asked.output.zero_point))


_STATED: Mapping[Variant, Callable[[Asked, Array], Array]] = {
    "mean_of_codes_half_away": _quotient,
    "q31_mean_in_16_lanes": _in_16_lanes,
    "f32_mean_of_codes_half_away": _in_float32,
}
