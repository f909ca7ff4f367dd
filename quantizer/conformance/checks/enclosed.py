"""Enclosing platforms: the interval of codes of float32 arithmetic in any order of operations.

With u = 2**-24: a dequantized operand is off by 2u of itself (a scale brought to float32, a product); the operator's
result by the bound of its float forward (checks.float_forward), for these operands; the quotient by the output's scale
by 2u (the scale, the division or the product with its inverse). Then one rounding as the platform declares. Source of
the sums: Higham 2002, 3.1.

Where all scales are powers of two, a sum or a sum of products can have no error (`exact_in_any_order`), and a tie then
has one code.
"""

from __future__ import annotations

import copy
import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.checks.enclosures import ENCLOSURES
from quantizer.conformance.checks.float32 import UNIT, lost
from quantizer.conformance.checks.float_forward import float_radius
from quantizer.conformance.checks.requantized import CHECK, Declared, Real, rounded_once
from quantizer.conformance.grids import listed
from quantizer.conformance.trials.trial import Trial
from quantizer.core.verdict import Verdict, inconclusive

Array = NDArray[Any]
OPERAND = 2.0 * UNIT
"""Relative error of a dequantized operand in float32."""
WHOLE = 2.0**24
"""Whole numbers up to here are float32 numbers."""
LEAST = 2.0**-40
"""Scales and their products from here on keep quotients and products of float32 numbers in its normal range."""
_WITHOUT_COEFFICIENTS = ("bilinear", "linear", "movement", "selection")
"""Operators that compute with nothing but their operands."""
_LIMITS = ("none", "relu", "relu6")
"""Fused activations whose results are operands, 0 or 6."""
FOLDED = 6
"""The number of roundings: three for `b` (quotient, product, difference), a product, a sum, and `a * z_x`."""


def enclosed(trial: Trial, *, zero_point_first: bool = False, off_by: Array | float = 0.0) -> Verdict:
    """Judge codes by an interval that holds for every order of the float32 operations on the dequantized operands.

    zero_point_first: the output's zero point is added in float32, and the sum is rounded. Dequantizing may be folded
    into it: `a * x + b` with `a = s_x / s_y`, `b = z_y - a * z_x`. That is six operations on numbers that are no larger
    than `|y / s_y| + a * |z_x| + |z_y|`. off_by: what a declared defect adds to the error of each real result.
    """
    kind = trial.spec.error_model.kind
    if kind not in ENCLOSURES:
        return inconclusive(CHECK, f"error model {kind} has no enclosure")
    scale = float(trial.output.scale)
    y = np.where(np.isinf(off_by), 0.0, trial.y_hat)  # such an element may have every code
    return rounded_once(
        trial,
        Real(y / scale, lambda i: Fraction(float(y[i])) / Fraction(scale)),
        Declared(zero_point_first=True) if zero_point_first else _rounding(trial),
        extra=computed_error(trial) + (_folding_error(trial) if zero_point_first else 0.0) + off_by / scale,
        what="the values of the codes",
    )


def _rounding(trial: Trial) -> Declared:
    """Return the last rounding: the platform's, or its quantizer's for an operator that quantizes reals or fills."""
    if trial.spec.error_model.kind != "movement":
        return Declared()
    platform, first = trial.target.platform, trial.spec.inputs[trial.spec.activations[0]]
    quantizer = platform.runtime_quantizer if first.kind == "real" else platform.quantizer
    return Declared(quantizer.rounding, quantizer.zero_point == "before")


def _folding_error(trial: Trial) -> Array:
    scale, zeros = float(trial.output.scale), abs(int(trial.output.zero_point))
    moved = sum(
        abs(float(params.zero_point.abs().max())) * float(params.scale.max()) / scale
        for params in trial.parameters.inputs.values()
    )
    return np.asarray(lost(FOLDED) * (np.abs(trial.y_hat) / scale + moved + zeros))


def computed_error(trial: Trial) -> Array:
    """Return, in output codes, the largest float32 error of the result on dequantized operands."""
    if (name := "float32 in codes") not in trial.shared:
        near = _on_codes(trial)
        inner, radius, scale = (
            ENCLOSURES[trial.spec.error_model.kind](near),
            float_radius(near),
            float(trial.output.scale),
        )
        with np.errstate(invalid="ignore"):  # infinity minus infinity is NaN
            # the float32 result on dequantized operands: their own error, then that of the operator's float forward
            away = np.maximum(np.maximum(inner.hi - near.y, near.y - inner.lo), 0.0) + radius
            # two roundings for the quotient by the output's scale
            moved = away * (1 + lost(2)) + lost(2) * np.abs(near.y)
        moved = np.where(exact_in_any_order(trial), 0.0, moved)
        trial.shared[name] = np.where(np.isnan(moved), np.inf, moved) / scale
    return trial.shared[name]


def exact_in_any_order(trial: Trial) -> Array:
    """Return for each element whether no order of float32 operations on the dequantized codes rounds.

    With scales that are powers of two, a dequantized code of at most 24 bits is a float32 number, and the quotient by
    the output's scale is exact. An operator that selects or moves gives one of these numbers; its result is
    exact if it is a float32 number itself (a constant that fills may not be). Each term of a sum is a multiple of the
    smallest product g of scales. So is each partial sum, whatever its order, and it is at most the sum of the
    magnitudes: where that is at most 2**24 * g, every partial sum is a float32 number. LEAST keeps all of them normal.
    """
    kind, nowhere = trial.spec.error_model.kind, np.zeros(trial.output_shape, dtype=bool)
    coded = {name: trial.qparams(name) for name in trial.codes if trial.spec.inputs[name].kind == "value"}
    formats = [*coded.values(), trial.output]
    if kind not in _WITHOUT_COEFFICIENTS or trial.case.activation not in _LIMITS:
        return nowhere
    if not all(listed(params) is None and _powers_of_two(params.scale.numpy()) for params in formats):
        return nowhere
    if kind in ("movement", "selection"):
        # a constant that fills need not be a float32 number
        with np.errstate(over="ignore"):
            return np.asarray(trial.y_hat.astype(np.float32) == trial.y_hat)
    bias = {name for name in coded if trial.spec.inputs[name].role == "bias"}
    smallest = {name: float(params.scale.min()) for name, params in coded.items()}
    terms = [scale for name, scale in smallest.items() if name not in bias]
    least = min([math.prod(terms) if kind == "bilinear" else min(terms), *(smallest[name] for name in bias)])
    return np.asarray(trial.magnitude(trial.values) <= WHOLE * least) & (least >= LEAST)


def _powers_of_two(scales: Array) -> bool:
    """Return whether all *scales* are powers of two that dequantize codes, and divide, without leaving float32."""
    return bool(((np.frexp(scales)[0] == 0.5) & (scales >= LEAST) & (scales <= 1 / LEAST)).all())


def _on_codes(trial: Trial) -> Trial:
    """Return *trial* with dequantized codes as its operands; their radius is the float32 error of dequantizing."""
    # shallow: everything else is shared; cached results are not, because they belong to the operands
    other = copy.copy(trial)
    other.doubles = trial.values
    other.centre = other.y = trial.reference(trial.values)
    other.shared = {}
    other.radii = {
        name: OPERAND * np.abs(values.numpy())
        for name, values in trial.values.items()
        if trial.spec.inputs[name].kind == "value"
    }
    return other
