"""Enclosures of layer, instance, group and root-mean-square norms (docs/adr/0003-normalization-enclosure.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quantizer.conformance.bounds.interval import TINY, UNIT, FloatArray, Interval, outward
from quantizer.conformance.bounds.softmax import sum_of_others

UNDERFLOW = 2.0**-500
"""An upper bound of the error when the square of a deviation underflows."""
SLOPE_PAIRS = 1 << 16
"""The largest number of (element, element) pairs for which slopes are bounded one by one."""


@np.errstate(all="ignore")
def normalization(
    x: FloatArray,
    dx: FloatArray,
    axes: int | Sequence[int],
    *,
    eps: float,
    centred: bool = True,
    gamma: Interval | None = None,
    beta: Interval | None = None,
) -> Interval:
    """Return the enclosure of `(x - mean)/sqrt(var + eps) * gamma + beta` over *axes*.

    *centred* False: x/sqrt(mean(x^2) + eps) instead, the root-mean-square norm. gamma and beta are enclosures that
    broadcast against x (groups: reshape x so that *axes* are one group, and the result back with `moved`). Elements
    whose value is 0/0 (eps = 0, no spread) are enclosed by the largest values that the norm can take.
    """
    places = (axes,) if isinstance(axes, int) else tuple(axes)
    last = tuple(range(-len(places), 0))
    front = np.moveaxis(np.asarray(x, np.float64), places, last)
    radius = np.moveaxis(np.broadcast_to(np.asarray(dx, np.float64), np.shape(x)), places, last)
    count = math.prod(front.shape[front.ndim - len(places) :])
    lines = front.reshape(-1, count), radius.reshape(-1, count)
    flat = _centred(*lines, eps) if centred else _root_mean_square(*lines, eps)
    y = flat.moved(lambda end: np.moveaxis(end.reshape(front.shape), last, places))
    y = y if gamma is None else y * gamma
    return y if beta is None else y + beta


def _root_mean_square(x: FloatArray, dx: FloatArray, eps: float) -> Interval:
    """Return the exact range: x_i/sqrt(x_i^2/n + q + eps) rises in x_i, its size falls in q = others' squares / n."""
    box = Interval.around(x, dx)
    count = x.shape[-1]
    ends = box.lo * box.lo, box.hi * box.hi
    error = 4 * UNIT * (count + 8)
    least = np.where((box.lo <= 0) & (box.hi >= 0), 0.0, np.minimum(*ends))
    least = sum_of_others(least) / count * (1 - error)
    most = (sum_of_others(np.maximum(*ends)) / count + 2 * TINY * count) * (1 + error)
    return _range(box.lo, box.hi, (np.sqrt(least), np.sqrt(most)), 1 / math.sqrt(count), eps)


@dataclass(frozen=True)
class _Moments:
    """Bounds of a line of n elements: its deviations, its spread, and the error of both."""

    deviation: FloatArray
    spread: FloatArray
    """Standard deviation without eps, (lines, 1)."""
    shift: FloatArray
    """Radius of each deviation."""
    stretch: FloatArray
    """Radius of the spread."""
    error: FloatArray
    """Radius that the rounding of the bound itself adds to a deviation (already part of shift and stretch)."""


def _moments(x: FloatArray, dx: FloatArray) -> _Moments:
    """Return the moments: |dev'_i - dev_i| <= (1-1/n) dx_i + sum_{j != i} dx_j / n, |spread' - spread| <= rms(dx).

    The second bound holds because subtracting the mean is a projection, which makes no vector longer.
    """
    n = x.shape[-1]
    deviation = x - np.mean(x, axis=-1, keepdims=True)
    error = 4 * (n + 8) * UNIT * np.max(np.abs(x) + dx, axis=-1, keepdims=True) + UNDERFLOW
    grow = 1 + 4 * (n + 8) * UNIT
    shift = (dx * (1 - 1 / n) + sum_of_others(dx) / n) * grow + error
    stretch = np.sqrt(np.mean(dx * dx, axis=-1, keepdims=True)) * grow + error
    spread = np.sqrt(np.mean(deviation * deviation, axis=-1, keepdims=True))
    return _Moments(deviation, spread, shift, stretch, error)


def _centred(x: FloatArray, dx: FloatArray, eps: float) -> Interval:
    """Return the intersection of three sound enclosures and +-sqrt(n - 1) (Samuelson: no deviation is larger)."""
    n = x.shape[-1]
    # one element is its own mean
    if n == 1:
        return Interval.exactly(np.zeros_like(x))
    m = _moments(x, dx)
    y = _quotient(m, eps).intersect(_apart(m, dx, eps))
    limit = math.sqrt(n - 1) * (1 + 4 * UNIT)
    y = y.saturated(-limit, limit)
    return y.intersect(_slopes(m, y, dx, eps)) if x.size * n <= SLOPE_PAIRS else y


def _quotient(m: _Moments, eps: float) -> Interval:
    """Return [dev - shift, dev + shift] / sqrt([spread - stretch, spread + stretch]^2 + eps).

    Never wider than y +- (2d(1 - 1/n) + |y| d)/(sigma - d), and finite for eps > 0 however large d is.
    """
    rest = np.maximum(m.spread - m.stretch, 0), m.spread + m.stretch
    return _range(m.deviation - m.shift, m.deviation + m.shift, rest, 0.0, eps)


def _apart(m: _Moments, dx: FloatArray, eps: float) -> Interval:
    """Return the range of (1-1/n) z / sqrt((1-1/n)^2 z^2/(n-1) + s^2 + eps), where z and s are independent.

    z = x_i minus the mean of the others, s^2 = their sum of squares about that mean, over n: var = s^2 + (n-1)/n^2 z^2.
    The value rises with z, and its magnitude falls with s.
    """
    n = m.deviation.shape[-1]
    squares = m.deviation * m.deviation
    others, mean = sum_of_others(squares), sum_of_others(m.deviation)
    error = 16 * (n + 8) * UNIT * np.sum(squares, axis=-1, keepdims=True)
    inside = others - mean * mean / (n - 1)
    # one other element has no spread to change
    radius = (n > 2) * np.sqrt(sum_of_others(dx * dx) / n) * (1 + 4 * (n + 8) * UNIT) + m.error
    narrow = np.maximum(np.sqrt(np.maximum(inside - error, 0) / n) - radius, 0)
    wide = np.sqrt((np.maximum(inside, 0) + error) / n) + radius
    return _range(m.deviation - m.shift, m.deviation + m.shift, (narrow, wide), 1 / math.sqrt(n - 1), eps)


def _slopes(m: _Moments, y: Interval, dx: FloatArray, eps: float) -> Interval:
    """Return y +- sum_j |J_ij| dx_j by the mean value theorem, J_ij = (delta_ij - 1/n - y_i y_j/n)/sigma over the box.

    *y* encloses the values of the whole box, so that J is enclosed too; exact to first order in dx.
    """
    n = m.deviation.shape[-1]
    centre, spare = y.lo / 2 + y.hi / 2, (y.hi - y.lo) * (0.5 + 4 * UNIT)
    size = np.abs(centre)
    slope = np.abs(np.eye(n) - (1 + centre[:, :, None] * centre[:, None, :]) / n)
    moved = np.sum(slope * dx[:, None, :], axis=-1)
    total = [np.sum(part * dx, axis=-1, keepdims=True) for part in (size, spare)]
    moved += ((size + spare) * total[1] + spare * total[0]) / n + 8 * UNIT * np.sum(dx, axis=-1, keepdims=True)
    least = np.hypot(np.maximum(m.spread - m.stretch, 0), math.sqrt(eps))
    sigma = np.hypot(m.spread, math.sqrt(eps))
    value = m.deviation / sigma
    radius = moved / least * (1 + 4 * (n + 8) * UNIT)
    slack = m.error * (1 + np.abs(value)) / sigma * 2 + 16 * (n + 8) * UNIT * np.abs(value)
    return outward(value - radius, value + radius, slack)


def _range(
    low: FloatArray, high: FloatArray, rest: tuple[FloatArray, FloatArray], weight: float, eps: float
) -> Interval:
    """Return part/sqrt((weight*part)^2 + r^2 + eps) for part in [low, high] and r between the two of *rest*.

    It rises with part, and its magnitude falls with r; it is 0 where part is 0. The result is widened by the
    roundings of this code.
    """
    narrow, wide = rest

    def share(part: FloatArray, other: FloatArray) -> FloatArray:
        size = np.hypot(np.hypot(weight * part, other), math.sqrt(eps))
        return np.where(part == 0, 0.0, part / size)

    least, most = share(low, np.where(low >= 0, wide, narrow)), share(high, np.where(high >= 0, narrow, wide))
    return outward(least - 16 * UNIT * np.abs(least), most + 16 * UNIT * np.abs(most))
