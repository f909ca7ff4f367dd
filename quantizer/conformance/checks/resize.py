"""Arithmetic and enclosure of interpolated images: exact weights, or the provided ones of the platform's format."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance import bounds
from quantizer.conformance.bounds import Interval
from quantizer.conformance.bounds.rounding import code_interval
from quantizer.conformance.checks.multiplier_rules import is_replaced
from quantizer.conformance.checks.requantized import FLOAT32_UNIT, Declared, Real, rounded_once
from quantizer.conformance.kinds import has
from quantizer.conformance.trials.elements import Allowed, judge_codes, judge_equal
from quantizer.conformance.trials.finding import Finding
from quantizer.conformance.trials.trial import Trial
from quantizer.core.verdict import Verdict

Array = NDArray[Any]
CHECK = "arithmetic"
WEIGHT_BITS = 13
"""The number of binary places of the weights."""
EXACT_FLOAT = 1 << 24  # float32 holds every integer up to here
F32 = np.float32


def positions(size: int, count: int, mode: str) -> list[Fraction]:
    """Return where *count* elements of the output lie among *size* of the input, from the definition of each mode."""
    if count == 1 and mode in ("align_corners", "pytorch_half_pixel"):
        return [Fraction(0)]
    if mode == "align_corners":
        return [Fraction(i * (size - 1), count - 1) for i in range(count)]
    # tf_half_pixel_for_nn adds the half pixel and does not take it off again
    half = Fraction(0) if mode == "asymmetric" else Fraction(1, 2)
    back = half if mode in ("half_pixel", "pytorch_half_pixel") else Fraction(0)
    return [(i + half) * Fraction(size, count) - back for i in range(count)]


def exact_weights(size: int, count: int, mode: str) -> list[list[Fraction]]:
    """Return the weights of the input elements for each output element: [count][size]."""
    found = []
    for place in positions(size, count, mode):
        inside = min(max(place, Fraction(0)), Fraction(size - 1))
        low = math.floor(inside)
        row = [Fraction(0)] * size
        row[low] = 1 - (inside - low)
        if inside > low:
            row[low + 1] = inside - low
        found.append(row)
    return found


def _lines(trial: Trial) -> tuple[list[list[Fraction]], list[list[Fraction]]]:
    shape, (rows, columns), mode = trial.case.shapes["x"], trial.bound["size"], trial.bound["mode"]
    return exact_weights(shape[2], rows, mode), exact_weights(shape[3], columns, mode)


def resize_arithmetic(trial: Trial) -> Verdict:
    """Judge weights from their definition, and codes from the shown weights or else from the defined ones.

    If the shown weights do not explain the codes or have no format, the exact mean is rounded once.
    """
    weights = trial.outcome.stages.get("weights")
    if weights is not None:
        return _weighted(trial, weights.numpy())
    if not has(trial.parameters, "fixed_weights"):
        return _exact_mean(trial)
    verdict = _weighted(trial, None)
    if not verdict.failing:
        return verdict
    other = _exact_mean(trial)
    return verdict if other.failing else other


def _exact_mean(trial: Trial) -> Verdict:
    rows, columns = _lines(trial)
    centred = trial.centred["x"].numpy()

    def mean(image: Array) -> Array:
        return np.asarray(np.einsum("ih,jw,nchw->ncij", _floats(rows), _floats(columns), image))

    def exact(index: tuple[int, ...]) -> Fraction:
        image = centred[index[:2]]
        return sum(
            (
                a * b * int(image[i, j])
                for i, a in enumerate(rows[index[2]])
                if a
                for j, b in enumerate(columns[index[3]])
                if b
            ),
            start=Fraction(0),
        )

    # neighbours of opposite signs may cancel; the float64 error grows with their magnitudes
    real = Real(mean(centred), exact, mean(np.abs(centred)))
    return rounded_once(trial, real, Declared(), what="the weighted mean of four neighbours")


def _floats(weights: list[list[Fraction]]) -> Array:
    return np.array([[float(item) for item in row] for row in weights])


def _line(size: int, count: int, mode: str) -> tuple[Array, Array, Array, Array]:
    """Return both neighbours and their weights, computed in float32."""
    # the ratio is inverted in float64 and rounded to float32 once
    i, step = np.arange(count), F32(1.0 / (count / size))
    if count == 1 and mode in ("align_corners", "pytorch_half_pixel"):
        place = np.zeros(1, F32)
    elif mode == "align_corners":
        place = (i * (size - 1)).astype(F32) / F32(count - 1)
    else:
        half = F32(0.0 if mode == "asymmetric" else 0.5)
        place = (i.astype(F32) + half) * step - (half if mode in ("half_pixel", "pytorch_half_pixel") else F32(0.0))
    low, high = np.maximum(np.floor(place), 0).astype(np.int64), np.minimum(np.ceil(place), size - 1).astype(np.int64)
    second = place - low.astype(F32)
    return low, high, F32(1.0) - second, second


def _weighted(trial: Trial, shown: Array | None) -> Verdict:
    """Judge the four weights, products rounded half up to their format, then the sum of raw codes, rounded once."""
    shape, (rows, columns), mode = trial.case.shapes["x"], trial.bound["size"], trial.bound["mode"]
    down, across = _line(shape[2], rows, mode), _line(shape[3], columns, mode)
    unit = 1 << trial.parameters.numbers.get("weight_bits", WEIGHT_BITS)
    pairs = [(row, column) for row in (0, 1) for column in (0, 1)]
    wanted = np.stack([np.floor(down[2 + r][:, None] * across[2 + c] * F32(unit) + F32(0.5)) for r, c in pairs])
    wanted = wanted.astype(np.int64)
    got = wanted if shown is None else shown
    verdict = judge_equal(CHECK, trial, got, wanted, "half up of the float32 weights", tensor="weights")
    if verdict.failing:
        return verdict
    codes = trial.codes["x"].numpy()
    terms = [codes[:, :, down[r][:, None], across[c]] * got[place] for place, (r, c) in enumerate(pairs)]
    total, magnitude = sum(terms), sum(np.abs(term) for term in terms)
    # sums below 2**24 are exact in float32
    extra = np.where(magnitude < EXACT_FLOAT, 0.0, 8 * FLOAT32_UNIT * magnitude / unit)
    low, high = code_interval(
        total / unit,
        e_over_s=extra,
        qmin=trial.output.qmin,
        qmax=trial.output.qmax,
        rounding=trial.target.platform.rounding,
        exact=lambda i: Fraction(int(total[i]), unit),
    )
    made_of = f"{trial.target.platform.rounding} of the sum of codes times weights / {unit}"
    return judge_codes(CHECK, trial, Allowed(low, high, value=total / unit, allowance=0.5 + extra, made_of=made_of))


def resize_findings(trial: Trial) -> Iterator[Finding]:
    """Yield the finding on the binary places of weights, by the platform's rule; a plugin need not provide any."""
    platform = trial.target.platform
    if not {"size", "mode"} <= trial.spec.attrs.keys():
        return
    if is_replaced(trial) and not has(trial.parameters, "fixed_weights"):
        return
    own = trial.built_in is None or "weight_bits" in trial.built_in.numbers
    if platform.requantize["default"] == "multiplier_shift" and own:
        wanted = WEIGHT_BITS if trial.spec.error_model.kind == "resize" else 0
        got = trial.parameters.numbers.get("weight_bits")
        ratio = 0.0 if got == wanted else math.inf
        yield Finding("weight_bits", ratio, f"{wanted}", f"{got}", "the platform's format of weights")


def _format_error(trial: Trial) -> float:
    """Return the error, in codes, of four weights in the provided format on raw codes."""
    largest = max(abs(trial.output.qmin), abs(trial.output.qmax))
    return 4 * largest * (2.0 ** -(trial.parameters.numbers["weight_bits"] + 1) + 16 * FLOAT32_UNIT)


def resize_enclosure(trial: Trial, x: Array, dx: Array) -> Interval:
    """Return the enclosure of the reference over the intervals of x."""
    rows, columns = _lines(trial)
    return bounds.resize_linear(x, np.broadcast_to(dx, x.shape), {2: _floats(rows), 3: _floats(columns)})


def resize_stage_error(trial: Trial) -> Array:
    """Return e in output codes: the rounding error of the weights; 0 if the weights are exact."""
    lost = _format_error(trial) if has(trial.parameters, "fixed_weights") else 0.0
    return np.full(trial.output_shape, lost)
