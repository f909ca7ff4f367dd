"""Enclosures of products of elements, and of roots of sums of squares, along some axes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from quantizer.conformance.bounds.interval import (
    FUNCTION_ULPS,
    TINY,
    ArrayFunction,
    FloatArray,
    Interval,
    gamma,
    outward,
)


def product(x: FloatArray, dx: FloatArray, axes: Sequence[int]) -> Interval:
    """Return the range of the product along *axes* over x +- dx, rounded outward; the result lacks *axes*.

    Each element occurs only once in a product, so the product of the intervals is tight.
    """
    box = Interval.around(x, np.broadcast_to(dx, x.shape))
    lows, highs = (
        np.moveaxis(end, axes, range(len(axes))).reshape(-1, *np.delete(x.shape, axes)) for end in (box.lo, box.hi)
    )
    return reduce(Interval.__mul__, (Interval(low, high) for low, high in zip(lows, highs, strict=True)))


@np.errstate(all="ignore")
def euclidean(f: ArrayFunction, x: FloatArray, dx: FloatArray, *, terms: int) -> Interval:
    """Return the range of f, the root of a sum of *terms* squares, over x +- dx; f increases with every |x_i|."""
    box = Interval.around(x, np.broadcast_to(dx, x.shape))
    # the smallest magnitude in each interval: 0 if the interval holds 0
    smallest = np.maximum(np.maximum(box.lo, -box.hi), 0.0)
    low, high = f(smallest), f(np.maximum(-box.lo, box.hi))
    lost = gamma(terms + FUNCTION_ULPS) * high + np.sqrt(terms * TINY)
    return outward(low, high, lost)
