"""Enclosure of softmax: each element at one end with all others at the opposite end."""

from __future__ import annotations

import numpy as np

from quantizer.conformance.bounds.interval import LARGEST, TINY, UNIT, FloatArray, Interval, outward


@np.errstate(all="ignore")
def softmax(x: FloatArray, dx: FloatArray, axis: int = -1) -> Interval:
    """Return the exact range of softmax along *axis*.

    Element i rises in x_i and falls in every other: it ends at 1/(1 + odds), odds the sum of e^{x_j - x_i} over j != i
    with x_i at one end of its interval and all others at the opposite end, computed without cancellation. With one
    radius d for all elements that is `y/(y + (1-y)e^{2d}) <= y' <= y/(y + (1-y)e^{-2d})`; else it lies inside.
    """
    box = Interval.around(x, dx).moved(lambda end: np.moveaxis(end, axis, -1))
    smallest, largest = _odds(box.hi, box.lo)[0], _odds(box.lo, box.hi)[1]
    low, high = 1 / (1 + largest), 1 / (1 + smallest)
    found = outward(low - 2 * np.spacing(low), high + 2 * np.spacing(high)).saturated(0.0, 1.0)
    return found.moved(lambda end: np.moveaxis(end, -1, axis))


@np.errstate(all="ignore")
def log_softmax(x: FloatArray, dx: FloatArray, axis: int = -1) -> Interval:
    """Return the exact range of log softmax along *axis*: -log(1 + odds) at the ends that `softmax` has."""
    box = Interval.around(x, dx).moved(lambda end: np.moveaxis(end, axis, -1))
    smallest, largest = _odds(box.hi, box.lo)[0], _odds(box.lo, box.hi)[1]
    low, high = -np.log1p(largest), -np.log1p(smallest)
    found = outward(low - 2 * np.spacing(np.abs(low)), high + 2 * np.spacing(np.abs(high))).saturated(-np.inf, 0.0)
    return found.moved(lambda end: np.moveaxis(end, -1, axis))


def sum_of_others(terms: FloatArray) -> FloatArray:
    """Return for every element the sum of all others along the last axis, by partial sums from both sides."""
    # the total minus each term would cancel where one term dominates
    left, right = np.zeros_like(terms), np.zeros_like(terms)
    np.cumsum(terms[..., :-1], axis=-1, out=left[..., 1:])
    right[..., :-1] = np.cumsum(terms[..., :0:-1], axis=-1)[..., ::-1]
    return left + right


def _odds(own: FloatArray, others: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return bounds of sum(e^{others_j - own_i}) over j != i, along the last axis.

    Relative error: the rounded arguments of the exponentials, 8 units for the two exponentials, n for the sum.
    """
    count = others.shape[-1]
    peak = np.max(others, axis=-1, keepdims=True)  # taken out of the exponents, so that none overflows
    total, factor = sum_of_others(np.exp(others - peak)), np.exp(peak - own)
    reach = np.max(np.abs(others), axis=-1, keepdims=True)
    error = 2 * UNIT * (count + 24 + 3 * reach + np.abs(own))
    low = np.minimum(total * factor, LARGEST) * np.maximum(1 - error, 0)
    high = (total + 2 * count * TINY) * factor / np.maximum(1 - error, 0)
    if count == 1:
        high = np.zeros_like(high)
    return np.where(np.isnan(low), 0.0, low), np.where(np.isnan(high), np.inf, high)
