"""Enclosures of operators that move elements or add up multiples of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from quantizer.conformance.bounds.interval import TINY, FloatArray, Interval, gamma, outward

Operand = tuple[FloatArray, FloatArray]
"""A value and the radius of the interval around it."""
EXTRA_OPERATIONS = 16
"""The number of roundings besides the additions: a product, a division, a bias, the radius itself."""


def movement_of(f: Callable[..., FloatArray], operands: Mapping[str, Operand]) -> Interval:
    """Return exactly f of [x - dx, x + dx] of each operand, for f that moves, selects, or takes maxima and minima."""
    ends = {name: Interval.around(value, radius) for name, (value, radius) in operands.items()}
    return Interval(
        f(**{name: end.lo for name, end in ends.items()}), f(**{name: end.hi for name, end in ends.items()})
    )


@np.errstate(all="ignore")
def linear(
    f: Callable[..., FloatArray],
    f_abs: Callable[..., FloatArray],
    operands: Mapping[str, Operand],
    *,
    terms: int | None = None,
    centre: FloatArray | None = None,
) -> Interval:
    """Return f(x) +- f_abs(dx) for f linear (or affine) in all operands together; the exact range.

    f and f_abs take float64 arrays by name; f_abs is f with absolute coefficients and without a constant, so that
    |f(x') - f(x)| <= f_abs(|x' - x|). *terms*: the largest number of summands of one output element, for the rounding
    of the bound itself; None: the elements of all operands (no operator reads an element twice for one output
    element). *centre*: f of the values, where it is known.
    """
    count = sum(np.size(value) for value, _ in operands.values()) if terms is None else terms
    centre = f(**{name: value for name, (value, _) in operands.items()}) if centre is None else centre
    magnitude = f_abs(**{name: np.abs(value) for name, (value, _) in operands.items()})
    radius = f_abs(**{name: np.asarray(by, np.float64) for name, (_, by) in operands.items()})
    return _around(centre, radius, magnitude, count)


@np.errstate(all="ignore")
def bilinear(
    f: Callable[[FloatArray, FloatArray, FloatArray | None], FloatArray],
    f_abs: Callable[[FloatArray, FloatArray], FloatArray],
    x: Operand,
    w: Operand,
    b: Operand | None = None,
    *,
    terms: int | None = None,
    centre: FloatArray | None = None,
) -> Interval:
    """Return f(x, w, b) +- (f_abs(|x|, dw) + f_abs(dx, |w|) + f_abs(dx, dw) + db), each operand with its radius.

    f_abs is f with absolute coefficients and without bias; the radius of the bias broadcasts to the output. *terms* and
    *centre* as in `linear`; no *terms*: the elements of the larger operand. The upper end is exact where all x and w
    are positive; elsewhere the radius exceeds the largest change by terms dx*dw only.
    """
    (value, dx), (weight, dw) = x, w
    count = max(np.size(value), np.size(weight)) if terms is None else terms
    centre = f(value, weight, None if b is None else b[0]) if centre is None else centre
    ax, aw = np.abs(value), np.abs(weight)
    radius = f_abs(ax + dx, dw) + f_abs(dx, aw)
    return _around(centre, radius if b is None else radius + b[1], f_abs(ax, aw), count)


@np.errstate(all="ignore")
def piecewise_bilinear(
    f: Callable[[FloatArray, FloatArray], FloatArray], x: Operand, w: Operand, points: Sequence[float]
) -> Interval:
    """Return the range of f over both boxes, f being element by element linear in x between *points*, and linear in w.

    Such a function takes its extremes in the corners of the box, or where x is one of the points. f may round twice.
    """
    first, second = (Interval.around(value, np.broadcast_to(radius, np.shape(value))) for value, radius in (x, w))
    ends = [first.lo, first.hi, *(np.clip(np.full(first.shape, point), first.lo, first.hi) for point in points)]
    corners = [f(end, weight) for end in ends for weight in (second.lo, second.hi)]
    low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
    return outward(low, high, gamma(2) * np.maximum(np.abs(low), np.abs(high)) + 2 * TINY)


def _around(centre: FloatArray, radius: FloatArray, magnitude: FloatArray, terms: int) -> Interval:
    """Return centre +- radius, wider by the rounding of sums of *terms* products and of the constant in centre."""
    if not (radius >= 0).all():
        raise ValueError("radius: must be >= 0 in every element, and not NaN.")
    slack = gamma(terms + EXTRA_OPERATIONS) * (2 * magnitude + np.abs(centre) + radius) + (terms + 1) * TINY
    return outward(centre - radius, centre + radius, slack)
