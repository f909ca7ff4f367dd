"""accuracy: end to end, inside the enclosure of the reference over the intervals of its inputs (VERDICTS, "accuracy")."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance import bounds
from quantizer.conformance.bounds import Interval
from quantizer.conformance.checks.arithmetic import (
    DECLARED,
    FLOAT32_CODES,
    FLOAT32_UNIT,
    candidates,
    contributions,
    mean_ratios,
    runs_plugin,
)
from quantizer.conformance.checks.elements import judge_reals
from quantizer.conformance.checks.multipliers import AREA_BITS, declared_loss, multiplier_bits
from quantizer.conformance.checks.norm_interval import norm_enclosure, norm_stage_error
from quantizer.conformance.checks.normalised import softmax_stage_error
from quantizer.conformance.checks.piecewise import multiplied
from quantizer.conformance.checks.tables import FLOAT32_ENTRIES, cancelled
from quantizer.conformance.checks.window_sums import mean_sums
from quantizer.conformance.trial import Trial, as_torch
from quantizer.core.verdict import Verdict, Worst, hole
from quantizer.numerics.activations import LIMITS
from quantizer.numerics.qparams import Rescale, Table

Array = NDArray[Any]
CHECK = "accuracy"


def accuracy(trial: Trial) -> Verdict:
    """Judge dequantized outputs against what exact arithmetic could give for inputs known to half a step."""
    kind = trial.spec.error_model.kind
    if kind == "index":
        return _regret(trial)
    enclose = _ENCLOSURES.get(kind)
    if enclose is None:
        return hole(CHECK, f"error model {kind} has no enclosure")
    if _leaves_accumulator(trial):
        return Verdict(CHECK, "overflow", elements=trial.got.size, reason="a sum may leave the accumulator")
    output = trial.output
    scale, zero = float(output.scale), int(output.zero_point)
    low, high = scale * (output.qmin - zero), scale * (output.qmax - zero)
    inner = enclose(trial).saturated(*LIMITS[trial.case.activation])
    stages = scale * _stage_error(trial)
    allowed = inner.widened(scale / 2 + stages).saturated(low, high)
    vacuous = bounds.vacuous(allowed, low, high)
    got = scale * (trial.got - zero).astype(np.float64)
    centre = np.clip(trial.y, low, high)
    return judge_reals(
        CHECK, got, _outward(allowed.lo, -1), _outward(allowed.hi, 1), centre, vacuous=vacuous,
        made_of=f"enclosure of the inputs + half a step {scale / 2:.4g} + stages {float(np.max(stages, initial=0.0)):.4g}",
    )  # fmt: skip


def _leaves_accumulator(trial: Trial) -> bool:
    """True where a wrapping or saturating accumulator is too narrow for the sum of |terms|: arithmetic judges that."""
    rule = trial.target.platform.accumulator
    if rule.overflow not in ("wrap", "saturate") or trial.spec.error_model.kind != "bilinear":
        return False
    bits = trial.target.scheme.activation.accumulator_bits if rule.bits == "scheme" else rule.bits
    return bool(trial.sum_magnitudes.max(initial=0.0) >= 2.0 ** (bits - 1))


def _outward(values: Array, direction: int) -> Array:
    """Return *values* moved by the rounding of one float64 product: what `scale * code` may lose."""
    return np.asarray(values + direction * 4 * np.spacing(np.abs(values)))


def radius(trial: Trial, name: str) -> Array:
    """Return dx: how far the value of a code may be from the float it stands for."""
    params = trial.qparams(name)
    quantizer = trial.target.platform.quantizer
    return bounds.input_radius(
        trial.doubles[name].numpy(), trial.broadcast(name, params.scale), trial.broadcast(name, params.zero_point),
        params.qmin, params.qmax, float32=quantizer.operation != "exact", rounding=quantizer.rounding,
    )  # fmt: skip


def _f(trial: Trial, **operands: Array) -> Array:
    return trial.reference({name: as_torch(values) for name, values in operands.items()})


def _operands(trial: Trial) -> dict[str, tuple[Array, Array]]:
    return {name: (values.numpy(), radius(trial, name)) for name, values in trial.doubles.items()}


def _movement(trial: Trial) -> Interval:
    return bounds.movement_of(lambda **ends: _f(trial, **ends), _operands(trial))


def _linear(trial: Trial) -> Interval:
    def absolute(**values: Array) -> Array:
        return trial.magnitude({name: as_torch(part) for name, part in values.items()})

    return bounds.linear(lambda **v: _f(trial, **v), absolute, _operands(trial))


def _bilinear(trial: Trial) -> Interval:
    operands = _operands(trial)
    x, w = [name for name in trial.tensors if trial.spec.inputs[name].role != "bias"]
    b = next((name for name in trial.tensors if trial.spec.inputs[name].role == "bias"), None)

    def f(value: Array, weight: Array, bias: Array | None = None) -> Array:
        named = {x: value, w: weight} | ({b: bias} if b is not None and bias is not None else {})
        return _f(trial, **named)

    bias = None
    if b is not None:
        bias = (operands[b][0], np.broadcast_to(trial.per_channel(as_torch(operands[b][1])), trial.output_shape))
    return bounds.bilinear(f, f, operands[x], operands[w], bias)


def _softmax(trial: Trial) -> Interval:
    x, dx = _operands(trial)["x"]
    return bounds.softmax(x, np.broadcast_to(dx, x.shape), trial.axis)


def _magnitude(x: Array, dx: Array) -> Array:
    """Return the largest number that the reference of a one-input function may cancel."""
    return np.asarray(np.maximum(np.abs(x) + dx, 1.0))


def _monotone(trial: Trial) -> Interval:
    name = trial.spec.activations[0]
    x, dx = _operands(trial)[name]
    return bounds.monotone(lambda v: _f(trial, **{name: v}), x, dx, magnitude=_magnitude(x, dx))


def _piecewise(trial: Trial) -> Interval:
    name = trial.spec.activations[0]
    x, dx = _operands(trial)[name]
    points = trial.spec.error_model.critical_points
    return bounds.piecewise_monotone(lambda v: _f(trial, **{name: v}), x, dx, points, magnitude=_magnitude(x, dx))


_ENCLOSURES: Mapping[str, Callable[[Trial], Interval]] = {
    "movement": _movement,
    "selection": _movement,
    "linear": _linear,
    "mean": _linear,
    "bilinear": _bilinear,
    "softmax": _softmax,
    "normalization": lambda trial: norm_enclosure(trial, _operands(trial)),
    "monotone": _monotone,
    "piecewise_monotone": _piecewise,
}


def _regret(trial: Trial) -> Verdict:
    """The chosen element is one that could be the largest for inputs known to half a step."""
    x, dx = _operands(trial)[trial.spec.activations[0]]
    axis = trial.axis
    chosen = trial.got
    if chosen.ndim < x.ndim:
        chosen = np.expand_dims(chosen, axis)
    if chosen.shape != tuple(1 if i == axis % x.ndim else n for i, n in enumerate(x.shape)):
        worst = Worst("y", (), "the shape of the spec", f"shape {list(trial.got.shape)}", "")
        return Verdict(CHECK, "fail", ratio=float("inf"), elements=1, failed=1, worst=worst)
    if chosen.size and not ((chosen >= 0) & (chosen < x.shape[axis])).all():
        worst = Worst("y", (), f"an index in [0, {x.shape[axis]})", f"{int(chosen.min())}..{int(chosen.max())}", "")
        return Verdict(CHECK, "fail", ratio=float("inf"), elements=chosen.size, failed=1, worst=worst)
    allowed, actual = bounds.regret(x, np.broadcast_to(dx, x.shape), chosen, axis)
    best = x.max(axis=axis, keepdims=True)
    return judge_reals(
        CHECK,
        actual,
        allowed,
        np.maximum(best, actual),
        np.broadcast_to(best, actual.shape),
        made_of="best - 2 max|dx|",
    )


def _stage_error(trial: Trial) -> Array:
    """Return e in output codes: further rounding stages, and what the handed parameters lost."""
    rescale = trial.parameters.rescale
    kind = trial.spec.error_model.kind
    if kind == "softmax":
        return _softmax_error(trial)
    if kind == "normalization":
        return norm_stage_error(trial)
    if kind == "movement" and trial.target.platform.quantizer.operation != "exact":
        return np.abs(trial.y_hat) / float(trial.output.scale) * FLOAT32_CODES
    if kind in ("monotone", "piecewise_monotone"):
        return _function_error(trial, rescale)
    if kind == "mean":
        return _mean_error(trial)
    if rescale is None:
        return np.zeros(trial.output_shape)
    if kind == "bilinear":
        return _product_error(trial, rescale)
    if kind in ("linear", "selection"):
        return _sum_error(trial, rescale)
    return np.zeros(trial.output_shape)


def _product_error(trial: Trial, rescale: Rescale) -> Array:
    acc = np.abs(trial.sums)
    mantissa, shift = trial.per_channel(rescale.mantissa), trial.per_channel(rescale.shift)
    declared = DECLARED[rescale.variant]
    if rescale.variant == "exact":
        return np.zeros(trial.output_shape)
    if declared.float32:
        return acc * mantissa * FLOAT32_UNIT * 4 + abs(int(trial.output.zero_point)) * FLOAT32_UNIT
    unit = np.exp2(-shift.astype(np.float64))
    lost = unit * 0.5
    if trial.target.platform.multiplier.unify_shifts and rescale.mantissa.dim():
        lost = unit + mantissa * unit * 2.0 ** -multiplier_bits(trial)
    extra = 0.5 * np.exp2(31.0 - shift) if declared.high_multiply else 0.0
    one = (mantissa == 1) & (shift == 0)
    bits = trial.target.scheme.activation.bits
    return np.asarray(acc * np.where(one, 2.0**-bits, lost) + acc * mantissa * unit * 2.0**-22 + extra)


def _sum_error(trial: Trial, rescale: Rescale) -> Array:
    """Return what the factors lost, |factor * gain - s_i / s_y| of each operand's part, up to what their formats allow."""
    scale = float(trial.output.scale)
    gain = float(rescale.mantissa) * 2.0 ** -int(rescale.shift) / rescale.divisor
    total = np.zeros(trial.output_shape)
    parts = contributions(trial) if trial.spec.error_model.kind == "linear" else candidates(trial)
    for name, part in parts.items():
        if name not in trial.parameters.inputs:
            continue
        factor = rescale.factors.get(name, 1.0) * gain
        lost = abs(factor - float(trial.parameters.inputs[name].scale) / scale)
        if rescale.variant == "multiplier_shift":
            lost = min(lost, declared_loss(trial, rescale, name))
        total = total + np.abs(part) * lost
        if DECLARED[rescale.variant].float32:
            offset = abs(int(trial.parameters.inputs[name].zero_point))
            total = total + 4 * FLOAT32_UNIT * factor * (np.abs(part) + 2 * offset)
    if DECLARED[rescale.variant].float32:
        total = total + 4 * FLOAT32_UNIT * abs(int(trial.output.zero_point))
    return total


def _mean_error(trial: Trial) -> Array:
    """Return what a multiplier loses of the ratio of scales over the number of terms, and float32 of the terms."""
    rescale, scale, known = trial.parameters.rescale, float(trial.output.scale), mean_sums(trial)
    if rescale is None or rescale.variant == "exact" or known is None:
        return np.zeros(trial.output_shape)
    (sums, terms), zero = known, abs(int(trial.output.zero_point))
    params = next(iter(trial.parameters.inputs.values()))
    wanted = float(params.scale) / scale / terms
    if DECLARED[rescale.variant].float32:
        largest = float(terms.max(initial=1.0)) + 6
        return np.asarray(largest * FLOAT32_UNIT * (trial.magnitude(trial.values) / scale + zero))
    if rescale.variant == "area_multiplier" and runs_plugin(trial):
        return np.asarray(np.abs(sums) * wanted * (2.0**-AREA_BITS + 2.0**-22))
    ratios = mean_ratios(rescale, [int(n) for n in np.unique(terms)])
    got = np.array([float(ratios[int(n)]) for n in terms.ravel()]).reshape(terms.shape)
    return np.asarray(np.abs(sums) * np.abs(got - wanted))


def _function_error(trial: Trial, rescale: Rescale | None) -> Array:
    """Return what a table of fewer entries than codes leaves open, or the integer steps of a function without a table.

    Between two entries f lies between their values, as the chord does; after the last the table is flat.
    """
    params = next(iter(trial.parameters.inputs.values()))
    tables = list(trial.parameters.tables.values())
    budget = 0.0 if trial.target.platform.quantizer.operation == "exact" else FLOAT32_ENTRIES
    real = trial.y_hat / float(trial.output.scale)
    if tables and tables[0].step == 1:
        return np.asarray(budget * np.abs(real) + cancelled(trial))
    if tables:
        return np.asarray(budget * np.abs(real) + 1.5 + _between(trial, tables[0]))
    if rescale is None:
        return np.zeros(trial.output_shape)
    c = np.abs(next(iter(trial.centred.values())).numpy())
    factor = next(iter(rescale.factors.values()), 1.0)
    gain = float(rescale.mantissa) * 2.0 ** -int(rescale.shift) * factor
    lost = np.abs(c) * abs(gain - float(params.scale) / float(trial.output.scale))
    numbers = trial.parameters.numbers
    if "slope" in numbers:
        return np.asarray(lost + gain * (0.5 + c * 2.0 ** -numbers["slope_shift"] / 2))
    if "relay_bits" in numbers:
        return np.asarray(lost + 2.0 ** -numbers["relay_bits"])
    return np.asarray(lost + multiplied(trial)[1])


def _between(trial: Trial, table: Table) -> Array:
    """Return how far f moves, in output codes, over the segment of the table that each code lies in."""
    ((name, codes),) = trial.codes.items()
    params = trial.parameters.inputs[name]
    low = table.first + np.floor_divide(codes.numpy() - table.first, table.step) * table.step
    ends = [(as_torch(place).double() - params.zero_point) * params.scale for place in (low, low + table.step)]
    first, last = (trial.reference({name: end}) for end in ends)
    if trial.spec.error_model.kind == "monotone":
        return np.asarray(np.abs(last - first) / float(trial.output.scale))
    middle, half = ((ends[0] + ends[1]) / 2).numpy(), ((ends[1] - ends[0]) / 2).numpy()
    points = trial.spec.error_model.critical_points
    hull = bounds.piecewise_monotone(lambda v: _f(trial, **{name: v}), middle, half, points)
    return np.asarray((hull.hi - hull.lo) / float(trial.output.scale))


def _softmax_error(trial: Trial) -> Array:
    table = trial.parameters.tables.get("exp")
    if table is None:
        return np.zeros(trial.output_shape)
    axis, scale = trial.axis, float(trial.output.scale)
    x, input_scale = trial.values["x"].numpy(), float(trial.parameters.inputs["x"].scale)
    share, terms = trial.y_hat, trial.case.shapes["x"][axis]
    total = np.exp(x - x.max(axis=axis, keepdims=True)).sum(axis=axis, keepdims=True)
    if table.entries.dtype.is_floating_point:
        return share / scale * (terms + 4) * FLOAT32_UNIT
    error = (1 + terms * share) * (table.unit / 2) / total / scale
    error = error + softmax_stage_error(trial, share, total / table.unit)
    step = abs(table.step)
    if step > 1:
        width = step * input_scale
        chord = width**2 / 8 * np.exp(width)
        flat = np.expm1(width)
        error = error + (share * (chord + flat) * (1 + terms * share)) / scale
    return np.asarray(error)
