"""arithmetic: the integer forward, on what was handed, rounded once (VERDICTS, "arithmetic")."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance import restated
from quantizer.conformance.bounds.rounding import RESOLUTION, code_interval
from quantizer.conformance.checks.elements import judge_codes, judge_equal
from quantizer.conformance.checks.hidden_factor import hidden_factor
from quantizer.conformance.checks.layer_norm import layer_norm_arithmetic
from quantizer.conformance.checks.multipliers import AREA_BITS
from quantizer.conformance.checks.normalised import softmax_arithmetic
from quantizer.conformance.checks.piecewise import monotone_arithmetic, stand_in
from quantizer.conformance.checks.window_sums import SUMS, mean_sums
from quantizer.conformance.trial import Trial
from quantizer.core.platforms import RoundingMode, Variant
from quantizer.core.verdict import Verdict, Worst, failure, hole
from quantizer.numerics.qparams import Rescale
from quantizer.ops import BUILT_IN, REGISTRY
from quantizer.plugins.handed import LAYER_ATTRS

Array = NDArray[Any]
CHECK = "arithmetic"
FLOAT32_UNIT = 2.0**-24
EXACT_LIMIT = 2.0**53
FLOAT32_CODES = 2.0**-22
"""What a float32 quantizer may be off by, relative: of a constant that an operator fills in."""
LAYER_NUMBERS = frozenset({"scale_value", "scale"})
"""Where a layer writes its multipliers."""


@dataclass(frozen=True)
class Declared:
    """How a requantization variant rounds."""

    rounding: RoundingMode | None = None
    """The mode; None: the platform's."""
    zero_point_first: bool = False
    """The zero point is added before rounding."""
    float32: bool = False
    """The stage is float32 arithmetic and is replayed."""
    high_multiply: bool = False
    """A high multiply rounds at 2**31 before the shift."""


DECLARED: Mapping[Variant, Declared] = {
    "exact": Declared(),
    "multiplier_shift": Declared(),
    "f32_even": Declared("half_even", float32=True),
    "f32_even_zpin": Declared("half_even", zero_point_first=True, float32=True),
    "q31_single": Declared("half_up"),
    "q15_half_up": Declared("half_up"),
    "half_away": Declared("half_away"),
    "q31_double": Declared("half_away", high_multiply=True),
    "ruy": Declared("half_up", high_multiply=True),
    "area_multiplier": Declared(),
    "f32_dequantized": Declared("half_even", float32=True),
    "tpulang_multiplier_shift": Declared(),
}


def arithmetic(trial: Trial) -> Verdict:
    """Judge output codes against the exact real number that the handed parameters prescribe."""
    judge = _JUDGES.get(trial.spec.error_model.kind, stand_in)
    verdict = judge(trial)
    if verdict.failing and runs_plugin(trial):
        found = (other(trial) for other in (_exactly, _in_float32, _unhanded, _one_factor))
        return next((own for own in found if own is not None and not own.failing), verdict)
    return verdict


def runs_plugin(trial: Trial) -> bool:
    """Return whether a plugin's integer forward runs."""
    entry = REGISTRY.find(trial.spec.op, "quantized", trial.target.platform.platform)
    return entry is not None and entry.origin not in (BUILT_IN, "override")


def _exactly(trial: Trial) -> Verdict | None:
    """Judge a plugin that keeps sums exact where the platform's own functions lose bits, and that cuts at 6 for RELU6."""
    platform = trial.target.platform
    sums = platform.accumulator.model_copy(update={"float32": [], "float32_before": []})
    update = {"accumulator": sums, "activations": {name: name for name in platform.activations}}
    exact = platform.model_copy(update=update)
    return None if exact == platform else _JUDGES.get(trial.spec.error_model.kind, stand_in)(trial.on(exact))


def _in_float32(trial: Trial) -> Verdict | None:
    """Judge a plugin that adds in float32 in an order of its own, where the platform declares float32 sums.

    2**-24 of the summed magnitudes of raw codes for each term, each product, and what the constant has absorbed.
    """
    rescale, family, declared = (
        trial.parameters.rescale, trial.spec.quantization.family, trial.target.platform.accumulator
    )  # fmt: skip
    if (family not in declared.float32 and trial.spec.op not in declared.float32_sums) or rescale is None:
        return None
    terms = trial.spec.error_model.terms
    operations = 3 + (int(terms(trial.bound)) if terms is not None else 1)
    mantissa, shift = trial.per_channel(rescale.mantissa), trial.per_channel(rescale.shift)
    gain = mantissa * np.exp2(-shift.astype(np.float64))
    raw = {name: codes.double().abs() for name, codes in trial.codes.items()}
    first = next(iter(trial.spec.activations))
    raw[first] = raw[first] + abs(int(trial.qparams(first).zero_point))
    extra = operations * FLOAT32_UNIT * trial.reference(raw) * gain
    value = trial.sums * gain
    return _rounded(trial, value, Declared(), extra, lambda i: Fraction(float(value[i])), lambda _: {})


def _unhanded(trial: Trial) -> Verdict | None:
    """Judge a plugin that wrote no numbers by f on the values of the codes, whatever the platform derives."""
    extra = trial.parameters.extra
    return stand_in(trial) if LAYER_ATTRS in extra and LAYER_NUMBERS.isdisjoint(extra) else None


def _one_factor(trial: Trial) -> Verdict | None:
    """Judge a mean whose multipliers nobody shows: one number for each number of terms, in the platform's format."""
    rescale, known = trial.parameters.rescale, mean_sums(trial)
    if rescale is None or rescale.variant != "area_multiplier" or known is None:
        return None
    return hidden_factor(trial, *known, AREA_BITS)


def _bilinear(trial: Trial) -> Verdict:
    rescale = trial.parameters.rescale
    if rescale is None:
        return stand_in(trial)
    platform, family = trial.target.platform, trial.spec.quantization.family
    acc = SUMS[family](trial) if family in platform.accumulator.float32 else trial.sums
    magnitude = trial.sum_magnitudes
    if magnitude.size and float(magnitude.max()) >= EXACT_LIMIT:
        return hole(CHECK, "the accumulator leaves the integers that float64 holds")
    held, refusal = _accumulator(trial, acc, magnitude)
    if refusal is not None:
        return refusal
    declared = DECLARED.get(rescale.variant)
    if declared is None:
        return hole(CHECK, f"variant {rescale.variant} declares no rounding stages")
    held = _before_activation(trial, held)
    mantissa, shift = trial.per_channel(rescale.mantissa), trial.per_channel(rescale.shift)
    if declared.float32:
        return _replayed(trial, held, mantissa, declared)
    factor = mantissa * np.exp2(-shift.astype(np.float64))
    value = held * factor / rescale.divisor
    extra = np.where(shift > 31, 0.5 * np.exp2(31.0 - shift), 0.0) if declared.high_multiply else 0.0
    exact = _exact_product(held, mantissa, shift, rescale)
    return _rounded(trial, value, declared, extra, exact, lambda index: {"accumulator": str(int(held[index]))})


def _before_activation(trial: Trial, held: Array) -> Array:
    """Return sums in the format that the platform declares for the fused activation."""
    if trial.case.activation not in trial.target.platform.accumulator.float32_before:
        return held
    return np.asarray(held.astype(np.float32).astype(np.float64))


def _accumulator(trial: Trial, acc: Array, magnitude: Array) -> tuple[Array, Verdict | None]:
    rule = trial.target.platform.accumulator
    bits = trial.target.scheme.activation.accumulator_bits if rule.bits == "scheme" else rule.bits
    limit = 2.0 ** (bits - 1)
    if rule.overflow == "unbounded" or not acc.size or float(magnitude.max()) < limit:
        return acc, None
    outside = (acc >= limit) | (acc < -limit)
    if rule.overflow == "wrap":
        return (acc + limit) % (2 * limit) - limit, None
    if rule.overflow == "saturate":
        return acc, Verdict(CHECK, "overflow", elements=acc.size, reason="a saturating sum leaves its range")
    if outside.any():
        index = tuple(int(i) for i in np.argwhere(outside)[0])
        worst = Worst("accumulator", index, f"at most {int(limit) - 1}", str(int(acc[index])), f"{bits} bits")
        return acc, failure(CHECK, "the accumulator leaves the range that the platform declares", worst)
    return acc, None


def _exact_product(
    held: Array, mantissa: Array, shift: Array, rescale: Rescale
) -> Callable[[tuple[int, ...]], Fraction]:
    wide_mantissa, wide_shift = np.broadcast_to(mantissa, held.shape), np.broadcast_to(shift, held.shape)

    def exact(index: tuple[int, ...]) -> Fraction:
        product = Fraction(int(held[index])) * Fraction(float(wide_mantissa[index]))
        return product / Fraction(2) ** int(wide_shift[index]) / Fraction(rescale.divisor)

    return exact


def _replayed(trial: Trial, held: Array, mantissa: Array, declared: Declared) -> Verdict:
    """Replay a float32 stage whose order the platform declares; its float32 result is rounded half to even."""
    zero = int(trial.output.zero_point)
    scaled = held.astype(np.float32) * mantissa.astype(np.float32)
    if declared.zero_point_first:
        value = (scaled + np.float32(zero)).astype(np.float64) - zero
    else:
        value = scaled.astype(np.float64)
    return _rounded(
        trial, value, declared, 0.0, lambda index: Fraction(float(value[index])),
        lambda index: {"accumulator": str(int(held[index]))},
    )  # fmt: skip


def _rounded(
    trial: Trial, value: Array, declared: Declared, extra: Array | float,
    exact: Callable[[tuple[int, ...]], Fraction], detail: Callable[[tuple[int, ...]], Mapping[str, str]],
    what: str = "the handed sum",
) -> Verdict:  # fmt: skip
    zero = int(trial.output.zero_point)
    mode = declared.rounding or trial.target.platform.rounding
    least, most = (limit / float(trial.output.scale) for limit in trial.limits)
    value = np.clip(value, least, most)
    exact = _limited(trial, exact)
    low, high = code_interval(
        value, e_over_s=extra, zero_point=zero, qmin=trial.output.qmin, qmax=trial.output.qmax, rounding=mode,
        zero_point_first=declared.zero_point_first, exact=exact,
    )  # fmt: skip
    spread = (0.5 if mode.startswith("half") else 1.0) + np.broadcast_to(np.asarray(extra), value.shape)
    further = f" + {float(np.max(extra)):.3g} of an earlier stage" if np.any(extra) else ""
    if trial.case.activation != "none":
        further += f", then {trial.target.platform.activations[trial.case.activation]}"  # type: ignore[index]
    return judge_codes(
        CHECK, trial, low, high, value=value, allowance=spread, zero=zero,
        made_of=f"{mode} of {what}{further}", detail=lambda i: {**detail(i), "exact": f"{value[i]:.9g} + {zero}"},
    )  # fmt: skip


def _limited(trial: Trial, exact: Callable[[tuple[int, ...]], Fraction]) -> Callable[[tuple[int, ...]], Fraction]:
    """Return *exact* clamped as the fused activation clamps real values."""
    if trial.case.activation == "none":
        return exact
    scale = Fraction(float(trial.output.scale))
    low, high = (None if math.isinf(limit) else Fraction(limit) / scale for limit in trial.limits)

    def clamped(index: tuple[int, ...]) -> Fraction:
        value = exact(index)
        value = value if low is None else max(value, low)
        return value if high is None else min(value, high)

    return clamped


def _linear(trial: Trial) -> Verdict:
    """Judge a sum of operands, or one of several values: each operand's part is exact, its factor is handed."""
    rescale = trial.parameters.rescale
    if rescale is None:
        return stand_in(trial)
    declared = DECLARED.get(rescale.variant)
    if declared is None:
        return hole(CHECK, f"variant {rescale.variant} declares no rounding stages")
    whole = {name: Fraction(rescale.factors.get(name, 1.0)) for name in trial.centred}
    gain = Fraction(float(rescale.mantissa)) / Fraction(2) ** int(rescale.shift) / Fraction(rescale.divisor)
    parts = (contributions if trial.spec.error_model.kind == "linear" else candidates)(trial)
    value, exact = _combined(trial, parts, whole, gain)
    if rescale.variant == "f32_dequantized":
        return _dequantized(trial, parts, rescale)
    extra = _float32_sum(trial, rescale) if declared.float32 else np.zeros(trial.output_shape)
    if trial.case.activation in trial.target.platform.accumulator.float32_before:
        sums, _ = _combined(trial, parts, whole, Fraction(1))
        held = _before_activation(trial, sums)
        value = held * float(gain)
        return _rounded(trial, value, declared, extra, lambda i: Fraction(float(held[i])) * gain, lambda _: {})
    return _rounded(
        trial, value, declared, extra, exact, lambda i: {f"from {n}": str(int(p[i])) for n, p in parts.items()}
    )


def _combined(
    trial: Trial, parts: Mapping[str, Array], factors: Mapping[str, Fraction], gain: Fraction
) -> tuple[Array, Callable[[tuple[int, ...]], Fraction]]:
    """Return v/s as float64 and, element by element, in rationals: the sum of the parts, or the one that is selected."""
    scaled = {name: part * float(factors.get(name, Fraction(1)) * gain) for name, part in parts.items()}
    if trial.spec.error_model.kind == "linear":
        value = sum(scaled.values(), np.zeros(trial.output_shape))
        return value, lambda i: sum((factors[n] * int(p[i]) for n, p in parts.items()), Fraction(0)) * gain
    operands = {name: values * float(factors[name] * gain) for name, values in trial.centred.items()}
    value = trial.reference(operands)

    def selected(index: tuple[int, ...]) -> Fraction:
        near = [factors.get(name, Fraction(1)) * int(part[index]) * gain for name, part in parts.items()]
        return min(near, key=lambda number: abs(number - Fraction(float(value[index]))))

    return value, selected


def candidates(trial: Trial) -> dict[str, Array]:
    """Return every value that a selecting operator may give, centred codes in the shape of the output; 0 is one."""
    found = {name: values.numpy() for name, values in trial.centred.items()}
    shaped = {name: np.broadcast_to(values, trial.output_shape) for name, values in found.items()}
    return {**shaped, "0": np.zeros(trial.output_shape)}


def _dequantized(trial: Trial, parts: Mapping[str, Array], rescale: Rescale) -> Verdict:
    """Replay a float32 stage: each code dequantized, added, divided by the output's scale, rounded half to even."""
    total = np.zeros(trial.output_shape, dtype=np.float32)
    for name, part in parts.items():
        total = total + part.astype(np.float32) * np.float32(rescale.factors.get(name, 1.0))
    value = (total / np.float32(rescale.divisor)).astype(np.float64)
    return _rounded(
        trial, value, DECLARED["f32_dequantized"], 0.0, lambda i: Fraction(float(value[i])),
        lambda i: {f"from {n}": str(int(p[i])) for n, p in parts.items()},
    )  # fmt: skip


def _mean(trial: Trial) -> Verdict:
    """Judge a sum divided by the number of its terms: both are exact, the multiplier is handed or follows from the number."""
    rescale, known = trial.parameters.rescale, mean_sums(trial)
    if rescale is None or known is None:
        return stand_in(trial)
    sums, terms = known
    declared = DECLARED.get(rescale.variant)
    if declared is None:
        return hole(CHECK, f"variant {rescale.variant} declares no rounding stages")
    if rescale.variant == "f32_dequantized" and not _is_global(trial):
        return _dequantized_mean(trial, terms, rescale)
    if rescale.variant == "f32_dequantized":
        ratio = np.float32(next(iter(rescale.factors.values())))
        mantissa = ratio / (np.float32(rescale.divisor) * terms.astype(np.float32))
        return _replayed(trial, sums, mantissa, DECLARED["f32_even"])
    factor = next(iter(rescale.factors.values()), 1.0)
    if declared.float32:
        return _replayed(trial, sums, np.asarray(factor, dtype=np.float32), declared)
    ratios = mean_ratios(rescale, [int(n) for n in np.unique(terms)])
    value = sums * np.array([float(ratios[int(n)]) for n in terms.ravel()]).reshape(terms.shape)
    return _rounded(
        trial, value, declared, 0.0, lambda i: int(sums[i]) * ratios[int(terms[i])],
        lambda i: {"accumulator": str(int(sums[i])), "divided by": str(int(terms[i]))},
    )  # fmt: skip


def mean_ratios(rescale: Rescale, numbers: list[int]) -> dict[int, Fraction]:
    """Return for each number of terms what a sum is multiplied by, output codes per accumulator unit."""
    whole = Fraction(next(iter(rescale.factors.values()), 1.0)) * Fraction(float(rescale.mantissa))
    whole /= Fraction(2) ** int(rescale.shift) * Fraction(rescale.divisor)
    if rescale.variant == "exact":
        return {n: whole / n for n in numbers}
    if rescale.variant != "area_multiplier":
        return dict.fromkeys(numbers, whole)
    found = {n: restated.compass_multiplier(np.float32(1.0 / n), AREA_BITS) for n in numbers}
    if numbers != [1] and 1 in found:
        found[1] = restated.area_of_one(AREA_BITS)
    return {n: Fraction(mantissa) / Fraction(2) ** shift for n, (mantissa, shift) in found.items()}


def _is_global(trial: Trial) -> bool:
    """Return whether one window without padding covers the whole image: ONNX Runtime then takes its global kernel."""
    attrs: Mapping[str, Any] = trial.case.attrs
    return tuple(attrs["kernel"]) == trial.case.shapes["x"][2:] and not any(attrs["padding"])


def _dequantized_mean(trial: Trial, terms: Array, rescale: Rescale) -> Verdict:
    """Replay ONNX Runtime's average: dequantized, added row by row, / count, / scale, + zero point, rounded half to even."""
    attrs: Mapping[str, Any] = trial.case.attrs
    x = trial.centred["x"].numpy().astype(np.float32) * np.float32(next(iter(rescale.factors.values())))
    zero = int(trial.output.zero_point)
    total = np.zeros(trial.output_shape, dtype=np.float32)
    for place in np.ndindex(*trial.output_shape[2:]):
        rows, columns = (
            range(max(0, i * s - p), min(size, i * s - p + k))
            for i, s, p, k, size in zip(
                place, attrs["stride"], attrs["padding"][:2], attrs["kernel"], x.shape[2:], strict=True
            )
        )
        for row in rows:
            for column in columns:
                total[(slice(None), slice(None), *place)] += x[:, :, row, column]
    value = total / terms.astype(np.float32) / np.float32(rescale.divisor) + np.float32(zero)
    real = value.astype(np.float64) - zero
    return _rounded(
        trial, real, Declared("half_even", zero_point_first=True, float32=True), 0.0,
        lambda i: Fraction(float(real[i])), lambda i: {"divided by": str(int(terms[i]))},
    )  # fmt: skip


def contributions(trial: Trial) -> dict[str, Array]:
    """Return what each centred operand alone contributes to a linear operator's output, as exact integers."""
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
        offset = abs(int(trial.qparams(name).zero_point))
        total = total + ratio * trial.reference({**zeros, name: values + offset})
        exact &= math.frexp(ratio)[0] == 0.5
    smallest = min((ratio for ratio in rescale.factors.values()), default=1.0)
    operations = 4 * len(raw)
    short = exact and bool((total.max(initial=0.0) / min(smallest, 1.0)) < 2.0**24)
    return np.zeros(trial.output_shape) if short else operations * FLOAT32_UNIT * total


def _movement(trial: Trial) -> Verdict:
    """Codes move as they are; where the output has other parameters than the input, they are rescaled exactly."""
    name = trial.spec.activations[0]
    params, output = trial.qparams(name), trial.output
    if float(params.scale) != float(output.scale) or int(params.zero_point) != int(output.zero_point):
        return stand_in(trial)
    real = trial.y_hat / float(output.scale)
    quantizer = trial.target.platform.quantizer
    exact = quantizer.operation == "exact" or np.abs(real - np.rint(real)) < RESOLUTION * np.abs(real)
    if math.frexp(float(output.scale))[0] == 0.5:
        exact = exact | (np.abs(real - np.trunc(real)) == 0.5)
    return _rounded(
        trial, real, Declared(quantizer.rounding, quantizer.zero_point == "before"),
        np.where(exact, 0.0, FLOAT32_CODES * np.abs(real)),
        lambda i: Fraction(float(trial.y_hat[i])) / Fraction(float(output.scale)), lambda _: {},
        "the value that is moved or filled in",
    )  # fmt: skip


def _index(trial: Trial) -> Verdict:
    """Indices equal the reference operator's on the codes."""
    wanted = trial.reference({name: values.double() for name, values in trial.codes.items()}).astype(np.int64)
    return judge_equal(CHECK, trial, trial.got, wanted, "the reference's index on the codes, ties by the declared rule")


_JUDGES: Mapping[str, Callable[[Trial], Verdict]] = {
    "bilinear": _bilinear,
    "linear": _linear,
    "selection": _linear,
    "mean": _mean,
    "monotone": monotone_arithmetic,
    "piecewise_monotone": monotone_arithmetic,
    "set_valued": monotone_arithmetic,
    "poles": monotone_arithmetic,
    "movement": _movement,
    "index": _index,
    "softmax": softmax_arithmetic,
    "normalization": layer_norm_arithmetic,
}
