"""float: the engine's float forward against the float64 reference (docs/reference/checks.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.checks.float32 import UNIT, lost
from quantizer.conformance.checks.norm_interval import norm_float_radius
from quantizer.conformance.checks.window_sums import mean_counts
from quantizer.conformance.trials.elements import judge_reals
from quantizer.conformance.trials.provided import copies
from quantizer.conformance.trials.trial import Trial
from quantizer.core.verdict import Verdict, failure
from quantizer.numerics.bitwise import bitwise_equal

Array = NDArray[Any]
CHECK = "float"
TRANSCENDENTAL_ULPS = 4
"""Largest error of a good library's float32 exp or log, in units in the last place (torch: below 2)."""


def float_forward(trial: Trial, *, off_by: Array | float = 0.0) -> Verdict:
    """Judge the float32 forward by the error analysis of its sum: gamma_n * f(|x|) + ulp(y) / 2.

    off_by: what a declared defect adds to the error of each element; where that is infinity, NaN is allowed, too.
    """
    operands = copies(trial.tensors)
    # an engine may have been asked ahead for several trials; what it raised for this one belongs to this check
    known = trial.float_result
    if isinstance(known, Exception):
        raise known
    got = (trial.engine.run_float(trial.call, operands) if known is None else known).double().numpy()
    for name, values in operands.items():
        if not bitwise_equal(values, trial.tensors[name]):
            return failure(CHECK, f"the float forward wrote into operand {name}")
    if got.shape != trial.y.shape:
        return judge_reals(CHECK, got, trial.y, trial.y, trial.y, made_of="the shape of the spec")
    radius = float_radius(trial)
    # a stack has several data sets
    small = {trial.case.data.set, *trial.case.data.sets} == {"small_integers"}
    exact = small and trial.spec.error_model.kind in _EXACT_KINDS
    radius = (np.zeros_like(radius) if exact else radius) + off_by
    got = left_open(got, trial.y, off_by)
    made_of = "exact data" if exact else "gamma_n * f(|x|) + ulp/2"
    return judge_reals(CHECK, got, trial.y - radius, trial.y + radius, trial.y, made_of=made_of)


def left_open(got: Array, y: Array, off_by: Array | float) -> Array:
    """Return *got* with the right result *y* in place of the elements that may be off by infinity."""
    return np.where(np.isinf(off_by), y, got)


_EXACT_KINDS = ("bilinear", "index", "comparison")
"""Operators without coefficients: on small integers every step is exact (a mean is not)."""


def float_radius(trial: Trial) -> Array:
    """Return the largest error of a float32 forward, per element of y; computed once per trial."""
    if CHECK not in trial.shared:
        trial.shared[CHECK] = _BOUNDS.get(trial.spec.error_model.kind, _by_ulps)(trial)
    return trial.shared[CHECK]


def _half_ulp(y: Array) -> Array:
    """Return half the distance between float32 numbers at y, the result's rounding; infinite past the largest one."""
    with np.errstate(over="ignore"):
        size = np.abs(y).astype(np.float32)
    return np.where(np.isinf(size) & np.isfinite(y), np.inf, np.spacing(size).astype(np.float64) / 2)


def _by_terms(trial: Trial) -> Array:
    return lost(trial.terms) * trial.magnitude(trial.doubles) + _half_ulp(trial.y)


def _mean(trial: Trial) -> Array:
    """Bound a mean: a sum of the window's terms and one division; all elements count if the spec names no count."""
    known = mean_counts(trial)
    terms = sum(map(trial.most_read, trial.doubles)) if known is None else int(known.max(initial=1))
    return np.asarray(lost(terms + 1) * trial.magnitude(trial.doubles) + _half_ulp(trial.y))


def _by_ulps(trial: Trial) -> Array:
    """Bound a library function: a few ulps of its value, plus as many ulps of the largest terms that it subtracts."""
    terms = np.abs(trial.magnitude(trial.doubles)) + np.where(trial.y < 0, _cancelled(trial), 0.0)
    return np.asarray(lost(2 * TRANSCENDENTAL_ULPS) * terms + 2 * TRANSCENDENTAL_ULPS * _half_ulp(trial.y))


def _cancelled(trial: Trial) -> float:
    """Return the size of the terms whose difference gives a negative result; 0 if the function subtracts nothing."""
    terms = trial.spec.error_model.cancels_below_zero
    return 0.0 if terms is None else abs(float(terms(trial.bound)))


def _resized(trial: Trial) -> Array:
    """Bound an interpolation: sums of four products, and positions with three roundings each."""
    x = trial.doubles["x"].numpy()
    # a position is off by three roundings, and neighbours differ by at most 2 max|x|
    moved = 3 * UNIT * (sum(x.shape[2:]) + 2) * 2 * float(np.abs(x).max(initial=0.0))
    return np.asarray(lost(12) * trial.magnitude(trial.doubles) + moved + _half_ulp(trial.y))


def _exactly(trial: Trial) -> Array:
    return np.zeros(trial.output_shape)


def _moved(trial: Trial) -> Array:
    """Bound an operator that moves elements: only an attribute's constant is rounded, once, to float32."""
    return _half_ulp(trial.y)


def _softmax(trial: Trial) -> Array:
    """Bound a softmax: u * |x - max| relative for the difference, some ulps for exp, n additions, one division."""
    x = trial.doubles["x"].numpy()
    axis = trial.axis
    distance = np.abs(x - x.max(axis=axis, keepdims=True))
    spread = distance.max(axis=axis, keepdims=True)
    if trial.spec.error_model.logarithm:
        sums = (2 * distance + spread + 4 * TRANSCENDENTAL_ULPS + trial.terms) * UNIT
        return np.asarray(sums + 4 * TRANSCENDENTAL_ULPS * _half_ulp(trial.y))
    relative = (distance + spread + 2 * TRANSCENDENTAL_ULPS * 2 + trial.terms + 2) * UNIT
    flushed = trial.terms * np.finfo(np.float32).smallest_normal
    return np.asarray(relative * trial.y + flushed + _half_ulp(trial.y))


def _product(trial: Trial) -> Array:
    """Bound a product: each factor rounds; an underflow has an absolute error, multiplied by all later factors."""
    # the product with all factors raised to at least 1 bounds every partial product that multiplies an underflow
    (x,) = trial.doubles
    grown = trial.reference({x: trial.doubles[x].abs().clamp(min=1.0)})
    flushed = trial.terms * np.finfo(np.float32).smallest_normal * grown
    return np.asarray(lost(trial.terms) * np.abs(trial.y) + flushed + _half_ulp(trial.y))


def _euclidean(trial: Trial) -> Array:
    """Bound squares, their sum and its root: n + 1 roundings; squares that underflow have an absolute error."""
    # the root of a sum is at most the sum of the roots, so underflows add at most the root of what they lose
    flushed = math.sqrt(trial.terms * float(np.finfo(np.float32).smallest_normal))
    return np.asarray(lost(trial.terms + 1) * trial.y + flushed + _half_ulp(trial.y))


_BOUNDS: Mapping[str, Callable[[Trial], Array]] = {
    "linear": _by_terms,
    "mean": _mean,
    "bilinear": _by_terms,
    "movement": _moved,
    "selection": _moved,
    "index": _exactly,
    "comparison": _exactly,
    "softmax": _softmax,
    "resize": _resized,
    "normalization": norm_float_radius,
    "product": _product,
    "euclidean": _euclidean,
}
