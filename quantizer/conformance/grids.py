"""Converts real numbers to positions between codes, and codes to values, on any grid.

The judge's own implementation of the formats.

On an integer grid, the place of a number is the number in steps of the scale. On the grid of a narrow float, the
place of a value is its code. A number between two values lies in proportion between their codes. So the middle
between two codes is a tie on every grid, and an interval of positions is an interval of codes.
"""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.core.formats import Format, format_of
from quantizer.numerics.qparams import QParams

Array = NDArray[Any]


def listed(params: QParams) -> Format | None:
    """Return the format of codes whose values are not a uniform grid; None for integers."""
    return format_of(params.dtype.name) if params.dtype.kind == "float" else None


@functools.cache
def _table(name: str) -> tuple[Array, Array]:
    form = format_of(name)
    return np.array(form.values), np.arange(form.first, form.last + 1, dtype=np.float64)


def decoded(codes: Array, params: QParams, zero: Array | int = 0) -> Array:
    """Return *codes* in steps of the scale: the code less *zero*, or its format's value; NaN for an unknown code."""
    form = listed(params)
    if form is None:
        return np.asarray(codes - zero, np.float64)
    values, _ = _table(form.name)
    place = codes.astype(np.int64) - form.first
    known = (place >= 0) & (place < values.size)
    return np.where(known, values[np.where(known, place, 0)], np.nan)


def positions(numbers: Array, params: QParams) -> Array:
    """Return where *numbers*, in steps of the scale, lie between the codes; beyond the ends they lie at the end."""
    form = listed(params)
    return numbers if form is None else np.interp(numbers, *_table(form.name))


def values_at(places: Array, params: QParams) -> Array:
    """Return the numbers in steps of the scale that lie at *places* between the codes."""
    form = listed(params)
    return places if form is None else np.interp(places, *_table(form.name)[::-1])


def exact_position(number: Fraction, params: QParams) -> Fraction:
    """Return where *number* lies, without error."""
    form = listed(params)
    return number if form is None else form.position(number)


def ends(params: QParams) -> tuple[float, float]:
    """Return the smallest and the largest value of a code, in steps of the scale."""
    low, high = decoded(np.array([params.qmin, params.qmax]), params, int(params.zero_point))
    return float(low), float(high)


def radius(x: Array, scale: Array, params: QParams, *, nearest: bool) -> Array:
    """Return the largest distance of *x* from its code's value on a float grid: half a gap if codes are *nearest*."""
    places = positions(x / scale, params)
    below, above = (values_at(end(places), params) * scale for end in (np.floor, np.ceil))
    half = (above - below) / (2 if nearest else 1)
    beyond = np.maximum(np.abs(x) - scale * max(map(abs, ends(params))), 0.0)
    unit = np.finfo(np.float64).eps
    return np.asarray(half + beyond + 8 * unit * (np.abs(x) + half))
