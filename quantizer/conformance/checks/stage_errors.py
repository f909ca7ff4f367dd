"""Stage errors of the check `accuracy`, in output codes: inner roundings and inexact parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance import bounds
from quantizer.conformance.bounds import Interval
from quantizer.conformance.checks import log_softmax, one_period, poles
from quantizer.conformance.checks.enclosed import computed_error
from quantizer.conformance.checks.enclosures import computed, turning_points
from quantizer.conformance.checks.float32_stages import REPLAYS, product_error
from quantizer.conformance.checks.means import mean_ratios
from quantizer.conformance.checks.multiplier_rules import AREA_BITS, FLOAT32_CODES, multiplier_bits
from quantizer.conformance.checks.norm_interval import norm_stage_error
from quantizer.conformance.checks.requantized import DECLARED, FLOAT32_UNIT, first_rounding, first_unit
from quantizer.conformance.checks.resize import resize_stage_error
from quantizer.conformance.checks.room_oracles import lost_of_room
from quantizer.conformance.checks.softmax import softmax_stage_error
from quantizer.conformance.checks.sum_factors import declared_loss
from quantizer.conformance.checks.tables import FLOAT32_ENTRIES, cancelled, in_float32
from quantizer.conformance.checks.unary import function_of_multiple
from quantizer.conformance.checks.weighted_sums import candidates, contributions
from quantizer.conformance.checks.window_sums import mean_sums
from quantizer.conformance.kinds import has
from quantizer.conformance.trials.provided import as_torch
from quantizer.conformance.trials.trial import Trial
from quantizer.numerics.qparams import Rescale, Table

Array = NDArray[Any]
FIXED_POINT_SOFTMAX = 2.0**-18
"""Relative error of a quotient of 32-bit fixed-point exponentials."""


def stage_error(trial: Trial) -> Array:
    """Return the error of inner rounding stages and of the provided parameters, in output codes."""
    if trial.target.platform.enclosing is not None:
        return computed_error(trial)
    rescale = trial.parameters.rescale
    known = None if rescale is None else DECLARED.get(rescale.variant)
    first = None if known is None else first_rounding(trial, known)
    return _declared_error(trial) + (0.0 if first is None else first_unit(first))


def _declared_error(trial: Trial) -> Array:
    if (lost := lost_of_room(trial)) is not None:
        return lost
    rescale = trial.parameters.rescale
    kind = trial.spec.error_model.kind
    if kind == "softmax":
        return _softmax_error(trial)
    if kind == "normalization":
        return norm_stage_error(trial)
    if kind == "resize":
        return resize_stage_error(trial)
    if kind == "movement":
        return _quantizer_error(trial)
    if kind in ("monotone", "piecewise_monotone") or (kind == "poles" and len(trial.codes) == 1):
        return _function_error(trial, rescale)
    if kind == "mean":
        return _mean_error(trial)
    if kind == "poles":
        return _quotient_error(trial)
    if rescale is None:
        return np.zeros(trial.output_shape)
    if kind == "bilinear":
        return _product_error(trial, rescale)
    if kind in ("linear", "selection"):
        return _sum_error(trial, rescale)
    return np.zeros(trial.output_shape)


def _quantizer_error(trial: Trial) -> Array:
    """Return the float32 error of a number in steps, and of adding the zero point before rounding."""
    quantizer, output = trial.target.platform.runtime_quantizer, trial.output
    if quantizer.operation == "exact":
        return np.zeros(trial.output_shape)
    zero = abs(int(output.zero_point)) if quantizer.zero_point == "before" else 0
    return np.asarray((np.abs(trial.y_hat) / float(output.scale) + zero) * FLOAT32_CODES)


def _product_error(trial: Trial, rescale: Rescale) -> Array:
    acc = np.abs(trial.sums)
    mantissa, shift = trial.per_channel(rescale.mantissa), trial.per_channel(rescale.shift)
    declared = DECLARED[rescale.variant]
    if rescale.variant == "exact":
        return np.zeros(trial.output_shape)
    if rescale.variant in REPLAYS:
        return product_error(trial)
    if declared.float32:
        return acc * mantissa * FLOAT32_UNIT * 4 + abs(int(trial.output.zero_point)) * FLOAT32_UNIT
    unit = np.exp2(-shift.astype(np.float64))
    # half a unit of the multiplier
    lost = unit * 0.5
    if trial.target.platform.multiplier.unify_shifts and rescale.mantissa.dim():
        # under one shift multipliers are truncated: a unit of the shared shift, and the loss of their own bits before
        lost = unit + mantissa * unit * 2.0 ** -multiplier_bits(trial)
    # the high multiply rounds once more, at 2**31
    extra = 0.5 * np.exp2(31.0 - shift) if declared.high_multiply else 0.0
    # (1, 0) stands for all ratios that are 1 within the bits of a multiplier
    one = (mantissa == 1) & (shift == 0)
    bits = trial.target.scheme.activation.bits
    return np.asarray(acc * np.where(one, 2.0**-bits, lost) + acc * mantissa * unit * 2.0**-22 + extra)


def _sum_error(trial: Trial, rescale: Rescale) -> Array:
    """Return the error of each operand's factor, |factor * gain - s_i / s_y|, up to the error that formats allow."""
    scale = float(trial.output.scale)
    gain = float(rescale.mantissa) * 2.0 ** -int(rescale.shift) / rescale.divisor
    total = np.zeros(trial.output_shape)
    if rescale.variant == "q31_double":
        total = total + 0.5 * 2.0 ** (31 - int(rescale.shift))
        if len(rescale.factors) > 1:
            # each term is rounded in units that are 2**places finer than a code of its operand
            total = total + (len(rescale.factors) + 1) * gain
            gain *= 2.0 ** trial.target.platform.multiplier.places(trial.target.scheme.activation.bits)
    parts = contributions(trial) if trial.spec.error_model.kind == "linear" else candidates(trial)
    for name, part in parts.items():
        if name not in trial.parameters.inputs:
            continue
        factor = rescale.factors.get(name, 1.0) * gain
        lost = abs(factor - float(trial.parameters.inputs[name].step) / scale)
        if rescale.variant == "multiplier_shift":
            # a wrong factor must not widen the bound beyond what the format explains
            lost = min(lost, declared_loss(trial, rescale, name))
        total = total + np.abs(part) * lost + (0.0 if rescale.operands is None else gain / 2)
        if DECLARED[rescale.variant].float32:
            # float32 kernels work on the codes as stored
            offset = abs(int(trial.parameters.inputs[name].zero_point)) * _count(trial)
            total = total + 4 * FLOAT32_UNIT * factor * (np.abs(part) + 2 * offset)
    if DECLARED[rescale.variant].float32:
        total = total + 4 * FLOAT32_UNIT * abs(int(trial.output.zero_point))
    return total


def _count(trial: Trial) -> int:
    """Return how many raw codes are in a sum of one operand; 1 for sums of operands."""
    return trial.terms if len(trial.codes) == 1 else 1


def _mean_error(trial: Trial) -> Array:
    """Return the error of a mean's multiplier (ratio of scales over the number of terms), and of float32 terms."""
    rescale, scale, known = trial.parameters.rescale, float(trial.output.scale), mean_sums(trial)
    if rescale is None or rescale.variant == "exact" or known is None:
        return np.zeros(trial.output_shape)
    (sums, terms), zero = known, abs(int(trial.output.zero_point))
    params = next(iter(trial.parameters.inputs.values()))
    wanted = float(params.scale) / scale / terms
    if DECLARED[rescale.variant].float32:
        largest = float(terms.max(initial=1.0)) + 6
        return np.asarray(largest * FLOAT32_UNIT * (trial.magnitude(trial.values) / scale + zero))
    if rescale.variant == "q31_mean_in_16_lanes":
        return np.full(trial.output_shape, float(wanted.max(initial=0.0)))
    if trial.target.reading == "own_mean" and trial.variant == "area_multiplier":
        return np.asarray(np.abs(sums) * wanted * (2.0**-AREA_BITS + 2.0**-22))
    ratios = mean_ratios(rescale, [int(n) for n in np.unique(terms)])
    got = np.array([float(ratios[int(n)]) for n in terms.ravel()]).reshape(terms.shape)
    twice = 0.5 * 2.0 ** (31 - int(rescale.shift)) if rescale.variant == "q31_folded" else 0.0
    return np.asarray(np.abs(sums) * np.abs(got - wanted) + twice)


def _function_error(trial: Trial, rescale: Rescale | None) -> Array:
    """Return the error of a table with fewer entries than codes, or of integer steps without a table.

    Between two entries, both f and the interpolation lie between their values; after the last entry the table is
    constant.
    """
    params = next(iter(trial.parameters.inputs.values()))
    tables = list(trial.parameters.tables.values())
    budget = FLOAT32_ENTRIES if in_float32(trial) else 0.0
    real = np.nan_to_num(trial.y_hat / float(trial.output.scale))
    if has(trial.parameters, "scaled_input"):
        return _grid_error(trial)
    if has(trial.parameters, "period"):
        return np.asarray(budget * np.abs(real) + one_period.stage_error(trial))
    if tables and tables[0].step == 1:
        return np.asarray(budget * np.abs(real) + cancelled(trial, trial.values))
    if tables:
        # half a unit of an entry, and the floor of the interpolation
        return np.asarray(budget * np.abs(real) + 1.5 + _between(trial, tables[0]))
    if has(trial.parameters, "sides"):
        return _sides_error(trial)
    if rescale is None:
        return np.zeros(trial.output_shape)
    c = np.abs(next(iter(trial.centred.values())).numpy())
    factor = next(iter(rescale.factors.values()), 1.0)
    gain = float(rescale.mantissa) * 2.0 ** -int(rescale.shift) * factor
    lost = np.abs(c) * abs(gain - float(params.scale) / float(trial.output.scale))
    numbers = trial.parameters.numbers
    if has(trial.parameters, "slope"):
        return np.asarray(lost + gain * (0.5 + c * 2.0 ** -numbers["slope_shift"] / 2))
    if has(trial.parameters, "bounds"):
        return np.asarray(lost)
    if has(trial.parameters, "finer_bounds"):
        return np.asarray(lost + 2.0 ** -numbers["relay_bits"])
    return np.asarray(lost + function_of_multiple(trial)[1])


def _quotient_error(trial: Trial) -> Array:
    """Return the error of a quotient by a table of inverses: half a unit of the entry, and the multiplier's error."""
    table, rescale = trial.parameters.tables.get("inverse"), trial.parameters.rescale
    if table is None or rescale is None:
        return np.zeros(trial.output_shape)
    top, bottom = np.broadcast_arrays(*(np.abs(part.numpy()) for part in trial.centred.values()))
    a, b = (float(params.scale) for params in trial.parameters.inputs.values())
    gain, wanted = float(rescale.mantissa) * 2.0 ** -int(rescale.shift), a / b / float(trial.output.scale) * table.unit
    entry = np.where(bottom > 0, 1 / np.maximum(bottom, 1) / table.unit, 0.0)
    return np.asarray(top * (gain * (0.5 + FLOAT32_ENTRIES * entry) + abs(gain - wanted) * entry))


def _sides_error(trial: Trial) -> Array:
    """Return the error of a leaky rectifier's two multipliers relative to s_x / s_y, and of their second rounding."""
    numbers, (params,) = trial.parameters.numbers, trial.parameters.inputs.values()
    c = next(iter(trial.centred.values())).numpy()
    ratio = float(params.scale) / float(trial.output.scale)
    lost = [
        abs(numbers[side] * 2.0 ** -numbers[f"{side}_shift"] - ratio * factor)
        for side, factor in (("positive", 1.0), ("negative", float(trial.bound["slope"])))
    ]
    twice = 0.5 * 2.0 ** (31 - min(numbers["positive_shift"], numbers["negative_shift"]))
    return np.asarray(np.abs(c) * np.where(c < 0, lost[1], lost[0]) + (0.0 if trial.variant == "q8_half_up" else twice))


def _grid_error(trial: Trial) -> Array:
    """Return the error of reading f on the table's grid: position, an entry and a half, the last rounding.

    The function of 16-bit intermediates is good to 12 codes.
    """
    numbers, ((name, codes),) = trial.parameters.numbers, trial.codes.items()
    if numbers["input_multiplier"] == 0:
        place = codes.double() * 2.0 ** (numbers["input_shift"] - 12)
    else:
        place = codes.double() * numbers["input_multiplier"] * 2.0 ** -numbers["input_shift"] / 12288
    scale = float(trial.output.scale)
    moved = np.abs(trial.reference({name: place}) - trial.y_hat) / scale
    return np.asarray(moved + (12.0 if numbers["input_multiplier"] == 0 else 2.0))


def _between(trial: Trial, table: Table) -> Array:
    """Return the change of f, in output codes, over the table segment of each code."""
    ((name, codes),) = trial.codes.items()
    params = trial.parameters.inputs[name]
    low = table.first + np.floor_divide(codes.numpy() - table.first, table.step) * table.step
    ends = [(as_torch(place).double() - params.zero_point) * params.scale for place in (low, low + table.step)]
    first, last = (trial.reference({name: end}) for end in ends)
    if trial.spec.error_model.kind == "monotone":
        moved = np.abs(last - first) / float(trial.output.scale)
        return np.where(np.isfinite(moved), moved, np.inf)
    middle, half = ((ends[0] + ends[1]) / 2).numpy(), ((ends[1] - ends[0]) / 2).numpy()
    if trial.spec.error_model.kind == "poles":
        return np.asarray(poles.enclosure(trial, name, Interval.around(middle, half)).width / float(trial.output.scale))
    hull = bounds.piecewise_monotone(
        lambda v: computed(trial, **{name: v}), middle, half, turning_points(trial, middle - half, middle + half)
    )
    return np.asarray((hull.hi - hull.lo) / float(trial.output.scale))


def _softmax_error(trial: Trial) -> Array:
    table = trial.parameters.tables.get("exp")
    if table is None:
        return np.zeros(trial.output_shape)
    if trial.spec.error_model.logarithm:
        return log_softmax.stage_error(trial, table)
    axis, scale = trial.axis, float(trial.output.scale)
    x, input_scale = trial.values["x"].numpy(), float(trial.parameters.inputs["x"].scale)
    share, terms = trial.y_hat, trial.case.shapes["x"][axis]
    total = np.exp(x - x.max(axis=axis, keepdims=True)).sum(axis=axis, keepdims=True)
    if table.entries.dtype.is_floating_point:
        return share / scale * (terms + 4) * FLOAT32_UNIT
    if has(trial.parameters, "reciprocal"):
        return np.asarray((1 + terms * share) * 4 / total + 8 * share + 2)
    # half a unit of the numerator, and of each term of the sum that divides it
    error = (1 + terms * share) * (table.unit / 2) / total / scale
    if trial.target.platform.tables.exponential == "fixed_point":
        error = error + share / scale * FIXED_POINT_SOFTMAX
    error = error + softmax_stage_error(trial, share, total / table.unit)
    step = abs(table.step)
    if step > 1:
        width = step * input_scale
        # the chord between two entries, and the last segment, where the table repeats its last entry
        chord = width**2 / 8 * np.exp(width)
        flat = np.expm1(width)
        error = error + (share * (chord + flat) * (1 + terms * share)) / scale
    return np.asarray(error)
