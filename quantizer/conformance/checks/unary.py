"""arithmetic of functions of one input: a provided table, or integer steps that round twice."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from quantizer.conformance.bounds.pairs import Exact, of_floats, product
from quantizer.conformance.bounds.rounding import RESOLUTION, code_interval, rational_codes
from quantizer.conformance.checks import one_period, replayed_stages
from quantizer.conformance.checks.fixed_point import judge_clamped
from quantizer.conformance.checks.float32_stages import lane_tables
from quantizer.conformance.expected.multipliers import RELAY_BITS
from quantizer.conformance.kinds import has
from quantizer.conformance.trials.elements import Allowed, exact_value, judge_codes, judge_equal
from quantizer.conformance.trials.provided import as_torch
from quantizer.conformance.trials.trial import Trial
from quantizer.core.verdict import Verdict
from quantizer.numerics.qparams import Table

Array = NDArray[Any]
CHECK = "arithmetic"


def monotone_arithmetic(trial: Trial) -> Verdict:
    """Judge a function of one input by its provided table, by its stages, or by f on the dequantized codes."""
    parameters, tables = trial.parameters, trial.parameters.tables
    if has(parameters, "period"):
        wanted = one_period.codes(trial, tables["period"])
        return replayed_stages.judged(
            trial, wanted, "the entry of the provided table at the provided multiple, modulo its size"
        )
    if len(tables) == 1 and len(trial.codes) == 1 and not has(parameters, "logistic"):
        (table,) = tables.values()
        wanted = np.clip(looked_up(trial, table), trial.output.qmin, trial.output.qmax)
        return _read(trial, table, wanted)
    if has(parameters, "lanes"):
        return lane_tables(trial)
    stages, numbers, rescale = trial.outcome.stages, parameters.numbers, parameters.rescale
    if rescale is not None and has(parameters, "bounds"):
        return judge_clamped(trial, rescale)
    if rescale is not None and not stages and trial.target.reading == "undisclosed_stages":
        return _judge_multiple(trial)
    if rescale is not None and has(parameters, "slope"):
        return _leaky(trial, stages.get("negative"), numbers["slope"], numbers["slope_shift"])
    if rescale is not None and has(parameters, "finer_bounds"):
        return _clamped(trial, stages.get("relay"))
    return judge_by_reference(trial) if rescale is None else _judge_multiple(trial)


def _judge_multiple(trial: Trial) -> Verdict:
    """Judge a function with a multiplier and hidden stages: f on `c * m * 2**-n * s_y`, rounded once, plus errors."""
    value, extra = function_of_multiple(trial)
    output, mode = trial.output, trial.target.platform.rounding
    zero, half = int(output.zero_point), 0.5 if mode.startswith("half") else 1.0
    low, high = code_interval(
        value,
        e_over_s=extra,
        zero_point=zero,
        qmin=output.qmin,
        qmax=output.qmax,
        rounding=mode,
        exact=of_floats(value),
    )
    largest = float(np.max(extra, initial=0.0))
    allowed = Allowed(
        low,
        high,
        value=value,
        allowance=half + extra,
        zero=zero,
        made_of=f"{mode} of f on the provided multiple + {largest:.3g} for earlier roundings",
        detail=exact_value(value, zero),
    )
    return judge_codes(CHECK, trial, allowed)


def function_of_multiple(trial: Trial) -> tuple[Array, Array]:
    """Return f of the rescaled centred codes, and the error before the last rounding, both in output codes.

    leaky_rectifier: the slope is a whole number of declared places (provided, or of the activation's bits), and the
    product of the negative side is rounded to a centred code. clamping: a value is first rounded to 8 bits more than an
    output code; the bounds are the provided ones.
    """
    family, bits, numbers = (
        trial.spec.quantization.family,
        trial.target.scheme.activation.bits,
        trial.parameters.numbers,
    )
    c, ratio = next(iter(trial.centred.values())).numpy(), float(_ratio(trial))
    scale, below = float(trial.output.scale), c < 0
    if family == "leaky_rectifier":
        provided = has(trial.parameters, "slope")
        slope = numbers["slope"] * 2.0 ** -numbers["slope_shift"] if provided else float(trial.bound["slope"])
        # a slope that is not provided is rounded to as many places as the activation has bits
        lost = 0.0 if provided else np.abs(c) * 2.0 ** -(bits + 1)
        return np.where(below, slope * c, c) * ratio, ratio * below * (0.5 + lost)
    if family == "clamping":
        if has(trial.parameters, "finer_bounds"):
            low, high = (numbers[name] * 2.0 ** -numbers["relay_bits"] for name in ("low", "high"))
        else:
            low, high = (float(trial.bound[name]) / scale for name in ("low", "high"))
        return np.clip(c * ratio, low, high), np.full(c.shape, 2.0 ** -(RELAY_BITS + 1) * (bits <= RELAY_BITS))
    (name,) = trial.centred
    value = trial.reference({name: as_torch(c * ratio * scale)}) / scale
    return value, RESOLUTION * np.maximum(1.0, np.abs(value))


def _read(trial: Trial, table: Table, wanted: Array) -> Verdict:
    """Judge codes that were read from the provided table; the worst element names its entry."""
    codes = next(iter(trial.codes.values())).numpy()

    def detail(index: tuple[int, ...]) -> dict[str, str]:
        entry, rest = divmod(int(codes[index]) - table.first, table.step)
        between = f" + {rest}/{table.step}" if rest else ""
        return {"input code": str(int(codes[index])), "entry": f"{entry}{between} of {table.entries.numel()}"}

    made_of = "the provided table at the code" + (f", interpolated {table.interpolation}" if table.step > 1 else "")
    return judge_equal(CHECK, trial, trial.got, wanted, made_of, detail=detail)


def looked_up(trial: Trial, table: Table) -> Array:
    """Return the table's value at every input code."""
    return read_at(table, next(iter(trial.codes.values())).numpy())


def read_at(table: Table, codes: Array) -> Array:
    """Return T[i] + floor((T[i+1] - T[i]) * rest / step) at *codes*, or half up; the last entry repeats."""
    entries = table.entries.numpy().astype(np.int64)
    entries = np.append(entries, entries[-1])
    place = np.clip(codes - table.first, 0, table.entries.numel() * table.step - 1)
    index, rest = np.divmod(place, table.step)
    half = table.step // 2 if table.interpolation == "half_up" else 0
    moved = np.floor_divide((entries[index + 1] - entries[index]) * rest + half, table.step)
    return np.asarray(entries[index] + moved)


def _ratio(trial: Trial) -> Fraction:
    rescale = trial.parameters.rescale
    if rescale is None:
        return Fraction(0)
    factor = next(iter(rescale.factors.values()), 1.0)
    return Fraction(factor) * Fraction(float(rescale.mantissa)) / Fraction(2) ** int(rescale.shift)


def _leaky(trial: Trial, shown: Tensor | None, slope: int, shift: int) -> Verdict:
    """Judge the negative side first: slope * min(c, 0) * 2**-shift, rounded; then both sides times the multiplier.

    If the forward does not show the negative side, the codes that the platform declares are used.
    """
    c = next(iter(trial.centred.values())).numpy().astype(np.int64)
    below, ratio = np.minimum(c, 0) * slope, Fraction(1, 2**shift)
    if shown is None:
        negative = _rounded(trial, below, ratio)
    else:
        negative = shown.numpy()
        first = _stage(trial, below, ratio, negative, "negative", zero=0)
        if first.failing:
            return first
    return _stage(trial, np.maximum(c, 0) + negative, _ratio(trial), trial.got, "y", zero=int(trial.output.zero_point))


def _clamped(trial: Trial, shown: Tensor | None) -> Verdict:
    """Judge the clamped code, which has relay_bits more bits, then its rounding.

    If the forward does not show the code, the code that the platform declares is used.
    """
    numbers = trial.parameters.numbers
    bits = numbers["relay_bits"]
    c = next(iter(trial.centred.values())).numpy().astype(np.int64)
    ends, ratio = (numbers["low"], numbers["high"]), _ratio(trial) * 2**bits
    if shown is None:
        relay = np.clip(_rounded(trial, c, ratio), *ends)
    else:
        relay = shown.numpy()
        first = _stage(trial, c, ratio, relay, "relay", zero=0, ends=ends)
        if first.failing:
            return first
    return _stage(trial, relay, Fraction(1, 2**bits), trial.got, "y", zero=int(trial.output.zero_point))


def _exact_multiple(whole: Array, ratio: Fraction) -> Exact:
    """Return `whole * ratio`, exactly."""

    def rational(index: tuple[int, ...]) -> Fraction:
        return int(whole[index]) * ratio

    return product(whole, float(ratio), 0, rational) if Fraction(float(ratio)) == ratio else rational


def _rounded(trial: Trial, whole: Array, ratio: Fraction) -> Array:
    """Return `whole * ratio`, rounded as the platform rounds."""
    low, _ = code_interval(
        whole * float(ratio),
        qmin=-(1 << 62),
        qmax=1 << 62,
        rounding=trial.target.platform.rounding,
        exact=_exact_multiple(whole, ratio),
    )
    return low


def _stage(
    trial: Trial,
    whole: Array,
    ratio: Fraction,
    got: Array,
    tensor: str,
    *,
    zero: int,
    ends: tuple[int, int] | None = None,
) -> Verdict:
    """Judge codes that are `whole * ratio`, rounded once, plus *zero*; clamped to the output's codes, or to *ends*."""
    output, mode = trial.output, trial.target.platform.rounding
    # only the last stage is limited to the output's codes
    own = (output.qmin, output.qmax) if tensor == "y" else (-(1 << 62), 1 << 62)
    qmin, qmax = ends or own
    value = whole * float(ratio)
    low, high = code_interval(
        value, zero_point=zero, qmin=qmin, qmax=qmax, rounding=mode, exact=_exact_multiple(whole, ratio)
    )
    allowed = Allowed(
        low,
        high,
        value=value if tensor == "y" else None,
        zero=zero,
        made_of=f"{mode} of the provided stage before it",
        detail=exact_value(value, zero),
    )
    return judge_codes(CHECK, trial, allowed, got=got, tensor=tensor)


def judge_by_reference(trial: Trial) -> Verdict:
    """Judge a plugin without multipliers: f of the dequantized inputs, rounded once; float64 leaves 2**-40 open.

    A fused activation is cut where the platform cuts it. Only a value that lies exactly between two codes in float64 is
    held to the declared rounding mode; near a tie both codes pass.
    """
    output, scale = trial.output, Fraction(float(trial.output.scale))
    zero, mode = int(output.zero_point), trial.target.platform.rounding
    y = trial.y_hat if trial.case.activation == "none" else np.clip(trial.reference(trial.values), *trial.limits)
    value = y / float(scale)
    low, high = code_interval(value, zero_point=zero, qmin=output.qmin, qmax=output.qmax, rounding=mode)
    low, high = np.array(low), np.array(high)
    for index in map(tuple, np.argwhere(low != high).tolist()):
        exact = Fraction(float(y[index])) / scale
        if (2 * exact).denominator == 1:
            code = rational_codes(exact, mode)[0] + zero
            low[index] = high[index] = min(max(code, output.qmin), output.qmax)
    allowed = Allowed(
        low,
        high,
        value=value,
        allowance=0.5 if mode.startswith("half") else 1.0,
        zero=zero,
        made_of=f"{mode} of f on the values of the codes",
        detail=exact_value(value, zero),
    )
    return judge_codes(CHECK, trial, allowed)
