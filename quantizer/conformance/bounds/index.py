"""Bound for index operators (argmax, top-k): how far below the best value a chosen element may lie."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quantizer.conformance.bounds.interval import FloatArray, Interval, add_down


def regret(
    x: FloatArray,
    dx: FloatArray,
    chosen: npt.NDArray[np.integer],
    axis: int,
    k: int = 1,
    *,
    ordered: bool = False,
) -> tuple[FloatArray, FloatArray]:
    """Return (allowed, actual): actual >= allowed if the choice is among the k largest of some x' within dx of x.

    *chosen* has the shape of x, except along *axis*, where it holds indices into x. An element with k others surely
    above it (x_j - dx_j > x_i + dx_i) cannot be chosen: allowed = k-th largest of (x - dx), minus dx of the chosen; it
    is never below `k-th largest - 2 max dx`. *ordered*: the j-th chosen is judged against the j-th largest. Negate x
    for the smallest.
    """
    box = Interval.around(x, np.broadcast_to(dx, np.shape(x)))
    falling = -np.sort(-box.lo, axis=axis)
    places = np.arange(chosen.shape[axis]) if ordered else np.array([k - 1])
    allowed = np.take(falling, places, axis=axis)
    radius = np.take_along_axis(np.broadcast_to(np.asarray(dx, np.float64), x.shape), chosen, axis=axis)
    return add_down(allowed, -radius), np.take_along_axis(np.asarray(x, np.float64), chosen, axis=axis)
