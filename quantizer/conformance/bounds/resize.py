"""Enclosures of resizing: separable weights (linear, cubic, area), or the exact index rule (nearest)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from quantizer.conformance.bounds.interval import UNIT, FloatArray, Interval, gamma, outward

IndexArray = npt.NDArray[np.integer]


@np.errstate(all="ignore")
def resize_linear(x: FloatArray, dx: FloatArray, weights: Mapping[int, FloatArray]) -> Interval:
    """Return sum(c_i * x_i) +- sum(|c_i| * dx_i), c the product of the weights (out, in) of each named axis.

    A weight is the fraction of a position. In float64 its error is a few rounding units of the largest position. The
    slack covers this error times the largest element.
    """
    centre, radius, magnitude = x, dx, np.abs(x)
    largest = float(np.max(magnitude + dx, initial=0.0))
    sizes = 0
    for axis, matrix in weights.items():
        absolute = np.abs(matrix)
        centre = _along(centre, matrix, axis)
        radius, magnitude = _along(radius, absolute, axis), _along(magnitude, absolute, axis)
        # an axis enlarges the largest element by at most the sum of its weights
        largest *= max(1.0, float(np.max(absolute.sum(axis=1), initial=0.0)))
        sizes += sum(matrix.shape)
    if not (radius >= 0).all():
        raise ValueError("radius: must be >= 0 in every element, and not NaN.")
    slack = gamma(sizes + 16) * (2 * magnitude + radius) + 32 * UNIT * sizes * largest
    return outward(centre - radius, centre + radius, slack)


def resize_nearest(x: FloatArray, dx: FloatArray, indices: Mapping[int, IndexArray]) -> Interval:
    """Return exactly the enclosure of the elements that *indices* name along each axis."""

    def pick(end: FloatArray) -> FloatArray:
        for axis, index in indices.items():
            end = np.take(end, index, axis=axis)
        return end

    return Interval.around(x, dx).moved(pick)


def _along(values: FloatArray, matrix: FloatArray, axis: int) -> FloatArray:
    return np.moveaxis(np.tensordot(matrix, values, axes=(1, axis)), 0, axis)
