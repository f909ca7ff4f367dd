"""arithmetic of sums of operands (add, concat) and of selections (maximum): exact operands times provided factors."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from quantizer.conformance.bounds.pairs import Exact, of_floats, total
from quantizer.conformance.checks import replayed_stages
from quantizer.conformance.checks.fixed_point import judge_widened
from quantizer.conformance.checks.requantized import (
    CHECK,
    DECLARED,
    FLOAT32_UNIT,
    Array,
    Real,
    before_activation,
    rounded_once,
)
from quantizer.conformance.checks.unary import judge_by_reference
from quantizer.conformance.grids import listed
from quantizer.conformance.trials.provided import as_torch
from quantizer.conformance.trials.trial import Trial
from quantizer.core.verdict import Verdict, inconclusive
from quantizer.numerics.qparams import Rescale


def linear(trial: Trial) -> Verdict:
    """Judge a sum of operands, or a selection of one: exact centred codes times the provided factors, rounded once."""
    rescale = trial.parameters.rescale
    if rescale is None:
        return judge_by_reference(trial)
    declared = DECLARED.get(rescale.variant)
    if declared is None:
        return inconclusive(CHECK, f"variant {rescale.variant} declares no rounding stages")
    if rescale.variant in replayed_stages.REPLAYED:
        return replayed_stages.judged(trial, replayed_stages.reduced_codes(trial, rescale), "the declared stages")
    if rescale.operands is not None:
        return judge_widened(trial, rescale, contributions(trial))
    if rescale.variant == "q31_double":
        return replayed_stages.judged(
            trial, _widened_sum(trial, rescale), "the declared stages: scaled terms, their sum"
        )
    whole = {name: Fraction(rescale.factors.get(name, 1.0)) for name in trial.centred}
    gain = Fraction(float(rescale.mantissa)) / Fraction(2) ** int(rescale.shift) / Fraction(rescale.divisor)
    parts = (contributions if trial.spec.error_model.kind == "linear" else candidates)(trial)
    value, exact = _combined(trial, parts, whole, gain)
    if rescale.variant == "f32_dequantized":
        return _dequantized(trial, parts, rescale)
    extra = _float32_sum(trial, rescale) if declared.float32 else np.zeros(trial.output_shape)
    if trial.case.activation in trial.target.platform.accumulator.float32_before:
        sums, _ = _combined(trial, parts, whole, Fraction(1))
        held = before_activation(trial, sums)
        value = held * float(gain)
        return rounded_once(trial, Real(value, lambda i: Fraction(float(held[i])) * gain), declared, extra=extra)
    return rounded_once(
        trial,
        Real(value, exact, _magnitude(trial, parts, whole, gain)),
        declared,
        extra=extra,
        detail=lambda i: {f"from {n}": str(int(p[i])) for n, p in parts.items()},
    )


def _magnitude(
    trial: Trial, parts: Mapping[str, Array], factors: Mapping[str, Fraction], gain: Fraction
) -> Array | float:
    """Return the sum of |terms| in output steps if the grid is not uniform, and finer near 0 than the terms; else 0."""
    if listed(trial.output) is None:
        return 0.0
    return sum(
        (np.abs(part) * float(factors.get(n.removeprefix("-"), Fraction(1)) * gain) for n, part in parts.items()),
        np.zeros(trial.output_shape),
    )


def _widened_sum(trial: Trial, rescale: Rescale) -> Array:
    """Return codes of a sum of operands that are widened before they are added.

    A rectifier of one operand clips the codes of the output; an operator that changes the sign of negative numbers
    selects first.
    """
    if trial.spec.error_model.kind == "linear":
        return replayed_stages.sum_codes(trial, contributions(trial), rescale)
    ((name, values),) = trial.centred.items()
    if (trial.reference({name: -values.double().abs()}) > 0).any():
        selected = trial.reference({name: values.double()}).astype(np.int64)
        return replayed_stages.sum_codes(trial, {name: selected}, rescale)
    scaled = replayed_stages.sum_codes(trial, {name: values.numpy()}, rescale).astype(np.float64)
    zero = int(trial.output.zero_point)
    # the kernel clips rescaled codes, so the reference sees them without their zero point
    return trial.reference({name: as_torch(scaled - zero)}) + zero


def _combined(
    trial: Trial, parts: Mapping[str, Array], factors: Mapping[str, Fraction], gain: Fraction
) -> tuple[Array, Exact]:
    """Return v/s as float64 and, per element, in rationals: the sum of the parts, or the selected one."""
    scaled = {name: part * float(factors.get(name, Fraction(1)) * gain) for name, part in parts.items()}
    if trial.spec.error_model.kind == "linear":
        value = sum(scaled.values(), np.zeros(trial.output_shape))
        return value, _exact_sum(parts, factors, gain)
    operands = {name: values * float(factors[name] * gain) for name, values in trial.centred.items()}
    value = trial.reference(operands)

    own = [factors.get(name.removeprefix("-"), Fraction(1)) * gain for name in parts]

    # elements of equal operands are many in a large tensor
    @functools.cache
    def nearest(number: float, steps: tuple[int, ...]) -> Fraction:
        # float64 has selected one of these numbers; the nearest is that one
        near = [factor * step for factor, step in zip(own, steps, strict=True)]
        return min(near, key=lambda one: abs(one - Fraction(number)))

    def selected(index: tuple[int, ...]) -> Fraction:
        return nearest(float(value[index]), tuple(int(part[index]) for part in parts.values()))

    return value, selected


def _exact_sum(parts: Mapping[str, Array], factors: Mapping[str, Fraction], gain: Fraction) -> Exact:
    """Return the sum of the parts times their factors, times *gain*, exactly."""

    def rational(index: tuple[int, ...]) -> Fraction:
        return sum((factors[n] * int(part[index]) for n, part in parts.items()), Fraction(0)) * gain

    numbers = {name: float(factors[name] * gain) for name in parts}
    # pairs need factors that float64 holds exactly
    if not parts or any(factors[name] * gain != number for name, number in numbers.items()):
        return rational
    return total([(np.asarray(part, np.float64), numbers[name]) for name, part in parts.items()], rational)


def candidates(trial: Trial) -> dict[str, Array]:
    """Return every value that a selecting operator may return: centred codes in the shape of the output, and 0.

    A factor that turns a comparison around may select the element with the opposite sign.
    """
    pointing = {name for name, item in trial.spec.inputs.items() if item.kind == "index"}
    found = {name: values.numpy() for name, values in trial.centred.items() if name not in pointing}
    shaped = {name: np.broadcast_to(values, trial.output_shape) for name, values in found.items()}
    if trial.spec.error_model.critical_points:
        shaped |= {f"-{name}": -values for name, values in shaped.items()}
    return {**shaped, "0": np.zeros(trial.output_shape)}


def _dequantized(trial: Trial, parts: Mapping[str, Array], rescale: Rescale) -> Verdict:
    """Replay a float32 stage: dequantize, add or select, divide by the output's scale, round half to even."""
    total = np.zeros(trial.output_shape, dtype=np.float32)
    if trial.spec.error_model.kind == "selection":
        real = {n: c.float() * float(np.float32(rescale.factors.get(n, 1.0))) for n, c in trial.centred.items()}
        total = trial.reference({name: values.double() for name, values in real.items()}).astype(np.float32)
        parts = {name: part for name, part in parts.items() if name in trial.centred}
    else:
        for name, part in parts.items():
            total = total + part.astype(np.float32) * np.float32(rescale.factors.get(name, 1.0))
    value = (total / np.float32(rescale.divisor)).astype(np.float64)
    return rounded_once(
        trial,
        Real(value, of_floats(value)),
        DECLARED["f32_dequantized"],
        detail=lambda i: {f"from {n}": str(int(p[i])) for n, p in parts.items()},
    )


def contributions(trial: Trial) -> dict[str, Array]:
    """Return each centred operand's contribution to a linear operator's output, as exact integers."""
    zeros = {name: values * 0 for name, values in trial.centred.items()}
    return {name: trial.reference({**zeros, name: values}) for name, values in trial.centred.items()}


def _float32_sum(trial: Trial, rescale: Rescale) -> Array:
    """Return the float32 term of a sum whose order is not declared: 2**-24 of the summed magnitudes per operation.

    Zero where every product and sum is exact in float32: all ratios powers of two and the terms short enough.
    """
    zero = abs(int(trial.output.zero_point))
    raw = {name: values.double().abs() for name, values in trial.codes.items()}
    zeros = {name: values * 0 for name, values in raw.items()}
    total = np.full(trial.output_shape, float(zero))
    exact = True
    for name, values in raw.items():
        ratio = rescale.factors.get(name, 1.0)
        # kernels may add codes as stored, so zero points count as terms
        offset = abs(int(trial.qparams(name).zero_point))
        total = total + ratio * np.abs(trial.reference({**zeros, name: values + offset}))
        # a power of two scales without rounding
        exact &= math.frexp(ratio)[0] == 0.5
    smallest = min((ratio for ratio in rescale.factors.values()), default=1.0)
    operations = 4 * len(raw)
    short = exact and bool((total.max(initial=0.0) / min(smallest, 1.0)) < 2.0**24)
    return np.zeros(trial.output_shape) if short else operations * FLOAT32_UNIT * total
