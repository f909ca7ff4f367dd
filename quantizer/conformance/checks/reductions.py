"""arithmetic of reduce_prod and reduce_l2: the exact product, or root of the sum of squares, rounded once."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.checks.accumulators import held_sums
from quantizer.conformance.checks.requantized import Declared, Real, rounded_once
from quantizer.conformance.trials.trial import Trial
from quantizer.core.verdict import Verdict

Array = NDArray[Any]
ROOT_PLACES = 64
"""The number of binary places to which an irrational root is computed if it decides near a tie."""


def product_arithmetic(trial: Trial) -> Verdict:
    """Judge a product of dequantized elements; exact integers decide where float64 is not precise enough."""
    rows, scale = _rows(trial), _scale(trial)
    ratio: Fraction = scale ** rows.shape[-1] / Fraction(float(trial.output.scale))

    def exact(index: tuple[int, ...]) -> Fraction:
        return math.prod(int(code) for code in rows[index]) * ratio

    return rounded_once(
        trial,
        Real(trial.y_hat / float(trial.output.scale), exact),
        Declared(),
        detail=lambda i: {"codes": ", ".join(str(int(code)) for code in rows[i])},
        what="the product of the values of the codes",
    )


def euclidean_arithmetic(trial: Trial) -> Verdict:
    """Judge the root of a sum of squares; its square decides where float64 cannot."""
    sums = sums_of_squares(trial)
    sums, most, refusal = held_sums(trial, sums, sums)
    assert np.array_equal(sums, most), "squares saturate equally in every order"
    if refusal is not None:
        return refusal
    ratio = _scale(trial) / Fraction(float(trial.output.scale))

    def exact(index: tuple[int, ...]) -> Fraction:
        square = max(int(sums[index]), 0) * ratio**2 * 4**ROOT_PLACES
        # an irrational root lies between two steps of 2**-64; their middle rounds as it does
        root = math.isqrt(math.floor(square))
        return Fraction(2 * root + (root * root != square), 2 ** (ROOT_PLACES + 1))

    return rounded_once(
        trial,
        Real(np.sqrt(np.maximum(sums, 0).astype(np.float64)) * float(ratio), exact),
        Declared(),
        detail=lambda i: {"sum of squares": str(int(sums[i]))},
        what="the root of the sum of squares",
    )


def sums_of_squares(trial: Trial) -> Array:
    """Return the exact sum of squares of centred codes of each element of the output."""
    return np.asarray((_rows(trial).astype(np.int64) ** 2).sum(axis=-1))


def _rows(trial: Trial) -> Array:
    """Return centred codes in the shape of the output. A last axis holds the codes of one element."""
    (codes,) = trial.centred.values()
    axes = trial.bound["axes"]
    moved = np.moveaxis(codes.numpy(), axes, range(codes.dim() - len(axes), codes.dim()))
    return np.asarray(moved.reshape(*trial.output_shape, -1))


def _scale(trial: Trial) -> Fraction:
    (name,) = trial.centred
    return Fraction(float(trial.qparams(name).scale))
