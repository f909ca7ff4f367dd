"""Multipliers, shifts and factors against the platform's rule (VERDICTS, "parameters")."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance import restated
from quantizer.conformance.checks.finding import Finding
from quantizer.conformance.checks.window_sums import SUMS, counts
from quantizer.conformance.restated import Expected
from quantizer.conformance.trial import Trial
from quantizer.numerics.qparams import QParams, Rescale
from quantizer.ops import BUILT_IN, REGISTRY

Array = NDArray[Any]
FLOAT32_CODES = 2.0**-22
SHARED_LEAST = restated.FACTOR_LIMIT // 2
"""The largest of several multipliers under one shift is above this: a finer shift would not fit 15 bits."""
AREA_BITS = 8
"""Bits of Compass's multiplier for 1 / area."""
RELAY_BITS = 8
"""Bits that Compass's Clip adds to outputs of no more bits."""


def multiplier_findings(trial: Trial, factors: list[Expected], output: Expected) -> Iterator[Finding]:
    """Yield what is found of the handed multiplier of a sum or of products; *factors* are its operands' parameters."""
    rescale, platform = trial.parameters.rescale, trial.target.platform
    if rescale is None:
        return
    declared = platform.requantize.get(trial.spec.quantization.family, platform.requantize["default"])
    if declared == "area_multiplier" and rescale.variant == "multiplier_shift" and is_replaced(trial):
        yield from _integer_ratios(trial, rescale)
        return
    yield _equal("variant", declared, rescale.variant, "the platform's variant for the operator's family")
    if rescale.variant == "f32_dequantized":
        yield _equal("divisor", float(trial.output.scale), rescale.divisor, "the output's scale")
    elif rescale.variant != "exact":
        yield _equal("divisor", 1.0, rescale.divisor, "only scales are divided by")
    if trial.spec.error_model.kind in ("linear", "mean", "selection"):
        yield from _sum_multiplier(trial, rescale)
    elif trial.spec.error_model.kind == "normalization":
        if rescale.variant == "multiplier_shift" and not is_replaced(trial):
            yield from _restated_multiplier(trial, rescale, factors, output)
    elif trial.spec.error_model.kind == "bilinear":
        restated_ones = (
            [*_restated_multiplier(trial, rescale, factors, output)] if rescale.variant == "multiplier_shift" else []
        )
        if restated_ones and (not is_replaced(trial) or all(finding.ratio == 0.0 for finding in restated_ones)):
            yield from restated_ones
        else:
            yield from _product_multiplier(trial, rescale)


def number_findings(trial: Trial) -> Iterator[Finding]:
    """Yield what is found of the further integers of a rule.

    A normalised operator's multiplier brings shares of 1 to output codes, as 1 / s_y does.
    """
    yield from _attribute_findings(trial)
    numbers, output = trial.parameters.numbers, trial.output
    if trial.spec.error_model.kind not in ("softmax", "normalization") or not {"multiplier", "shift"} <= numbers.keys():
        return
    mantissa, shift = numbers["multiplier"], numbers["shift"]
    if is_replaced(trial) or output.steps is None:
        yield _integer_multiplier(trial, "multiplier", mantissa, shift, 1 / Fraction(float(output.scale)))
        return
    bits = trial.target.scheme.activation.bits
    wanted = restated.compass_multiplier(np.float32(output.steps.numpy()), bits)
    yield _equal(
        "multiplier, shift", (int(wanted[0]), wanted[1]), (mantissa, shift), "the rule's multiplier of 1 / s_y"
    )


def _attribute_findings(trial: Trial) -> Iterator[Finding]:
    """An attribute that is handed in fixed point is the nearest integer, in no coarser a unit than the rule's (Compass)."""
    numbers, bits = trial.parameters.numbers, trial.target.scheme.activation.bits
    steps = 1 / float(trial.output.scale) if trial.output.steps is None else float(trial.output.steps)
    relay = RELAY_BITS if bits <= RELAY_BITS else 0
    for name, places, least, unit in (
        ("slope", "slope_shift", bits, 1.0), ("low", "relay_bits", relay, steps), ("high", "relay_bits", relay, steps),
    ):  # fmt: skip
        if name not in trial.case.attrs or not {name, places} <= numbers.keys():
            continue
        yield Finding(
            places, 0.0 if numbers[places] >= least else math.inf, f"at least {least}", f"{numbers[places]}",
            f"the binary places of {name}",
        )  # fmt: skip
        wanted = float(trial.bound[name]) * unit * 2.0 ** numbers[places]
        wanted = min(max(wanted, -(2.0**31)), 2.0**31 - 1)
        away = abs(numbers[name] - wanted) / (0.5 + FLOAT32_CODES * abs(wanted))
        yield Finding(name, away, f"{wanted:.9g}", f"{numbers[name]}", f"the nearest integer to {name} in its unit")


def _equal(what: str, wanted: object, got: object, rule: str) -> Finding:
    return Finding(what, 0.0 if wanted == got else math.inf, f"{wanted}", f"{got}", rule)


def multiplier_bits(trial: Trial) -> int:
    """Return the bits of a multiplier that the platform declares."""
    rule = trial.target.platform.multiplier
    bits = trial.target.scheme.activation.bits if rule.bits == "activation" else rule.bits
    return min(bits, rule.bits_ceiling)


def unifies_shifts(trial: Trial) -> bool:
    """Return whether all channels share one shift on the platform."""
    rule = trial.target.platform.multiplier
    return rule.unify_shifts and trial.spec.quantization.family not in rule.own_shifts


def _restated_multiplier(
    trial: Trial, rescale: Rescale, factors: list[Expected], output: Expected
) -> Iterator[Finding]:
    """Multipliers and shifts of a built-in rule equal the rule's, restated, for every channel."""
    mantissas, shifts = np.atleast_1d(rescale.mantissa.numpy()), np.atleast_1d(rescale.shift.numpy())
    ratios = restated.product_ratios(factors, output, mantissas.size)
    bits = multiplier_bits(trial)
    if rescale.mantissa.dim() and unifies_shifts(trial):
        wanted = restated.unified(ratios, bits)
    else:
        wanted = restated.separate(ratios, bits)
    for channel, (expected, mantissa, shift) in enumerate(zip(wanted, mantissas, shifts, strict=True)):
        same = expected == (float(mantissa), int(shift))
        yield Finding(
            f"multiplier[{channel}]", 0.0 if same else math.inf, f"{int(expected[0])} * 2**-{expected[1]}",
            f"{int(mantissa)} * 2**-{int(shift)}", f"the rule's multiplier of {bits} bits",
        )  # fmt: skip


def is_replaced(trial: Trial) -> bool:
    """Return whether a plugin's quantize rule runs in place of a built-in one."""
    entry = REGISTRY.find(trial.spec.op, "quantize", trial.target.platform.platform)
    return entry is not None and entry.origin not in (BUILT_IN, "override")


def _product_multiplier(trial: Trial, rescale: Rescale) -> Iterator[Finding]:
    """One multiplier per channel for the ratio of scales: exact, float32 to the last bit, or an integer and a shift."""
    params = [trial.qparams(name) for name in trial.tensors if trial.spec.inputs[name].role != "bias"]
    mantissas = np.atleast_1d(rescale.mantissa.numpy())
    shifts = np.broadcast_to(np.atleast_1d(rescale.shift.numpy()), mantissas.shape)
    columns = [np.resize(p.scale.numpy(), mantissas.shape) for p in params]
    output = float(trial.output.scale)
    shared = unifies_shifts(trial) and len(set(shifts.tolist())) == 1 < mantissas.size
    full = shared and float(mantissas.max()) >= SHARED_LEAST
    for channel, (mantissa, shift) in enumerate(zip(mantissas, shifts, strict=True)):
        scales = [float(column[channel]) for column in columns]
        yield _one_multiplier(trial, rescale, float(mantissa), int(shift), scales, output, channel, shared=full)


def _one_multiplier(
    trial: Trial, rescale: Rescale, mantissa: float, shift: int, scales: list[float], output: float, channel: int,
    *, shared: bool = False,
) -> Finding:  # fmt: skip
    name = f"multiplier[{channel}]"
    ratio = Fraction(1)
    for scale in scales:
        ratio *= Fraction(scale)
    ratio /= Fraction(output)
    got = Fraction(mantissa) / Fraction(2) ** shift / Fraction(rescale.divisor)
    if rescale.variant == "exact":
        same = got == ratio
        return Finding(
            name, 0.0 if same else math.inf, f"{float(ratio)!r}", f"{float(got)!r}", "the exact ratio of scales"
        )
    if rescale.variant in ("f32_even", "f32_even_zpin"):
        product = np.float32(scales[0])
        for scale in scales[1:]:
            product = product * np.float32(scale)
        wanted = float(product / np.float32(output))
        return Finding(
            name,
            0.0 if mantissa == wanted else math.inf,
            f"{wanted!r}",
            f"{mantissa!r}",
            "float32(s_x * s_w) / float32(s_y)",
        )
    return _integer_multiplier(trial, name, mantissa, shift, ratio, shared=shared)


def _integer_multiplier(
    trial: Trial, name: str, mantissa: float, shift: int, ratio: Fraction, *, shared: bool = False
) -> Finding:
    """An unsigned integer near the ratio: half a unit under the rule's own shift, or `bits` of it under another one.

    *shared*: under the finest shift that all channels fit, where the platform has one for all, the bits below fall off.
    """
    rule, bits = trial.target.platform.multiplier, multiplier_bits(trial)
    got = Fraction(mantissa) / Fraction(2) ** shift
    shown, wanted = f"{int(mantissa)} * 2**-{shift} = {float(got):.9g}", f"{float(ratio):.9g}"
    if mantissa != int(mantissa) or not 0 <= mantissa < 2 ** max(bits, 16):
        return Finding(name, math.inf, wanted, shown, f"an unsigned integer of at most {max(bits, 16)} bits")
    own = shift in restated.shift_choices(ratio, bits, rule.shift_ceiling)
    allowed = Fraction(1, 2) / Fraction(2) ** shift if own else ratio / 2**bits
    allowed += ratio * Fraction(FLOAT32_CODES)
    text = "half a unit of the rule's shift" if own else f"{bits} bits of the ratio under another shift"
    if shared and got < ratio:
        allowed, text = allowed + Fraction(1, 2) ** shift, f"{text}, and a unit of the shared one"
    return Finding(name, float(abs(got - ratio) / allowed), wanted, shown, text)


def _sum_multiplier(trial: Trial, rescale: Rescale) -> Iterator[Finding]:
    """Factors of a sum: the exact scales, float32 ratios to the last bit, or the rule's integers."""
    output = trial.output
    params = trial.parameters.inputs
    if rescale.variant == "area_multiplier":
        return
    if rescale.variant == "multiplier_shift":
        meet = len(params) > 1 and trial.spec.quantization.family != "concatenation"
        yield from (_integer_factors if meet else _integer_ratios)(trial, rescale)
        return
    yield _equal("factors", sorted(params), sorted(rescale.factors), "one factor for each operand")
    for name, factor in rescale.factors.items():
        if name not in params:
            continue
        got = (
            Fraction(factor)
            * Fraction(float(rescale.mantissa))
            / Fraction(2) ** int(rescale.shift)
            / Fraction(rescale.divisor)
        )
        if rescale.variant in ("exact", "f32_dequantized"):
            wanted = Fraction(float(params[name].scale)) / Fraction(float(output.scale))
        else:
            divisor = np.float32(float(output.scale)) * np.float32(_terms(trial))
            wanted = Fraction(float(np.float32(float(params[name].scale)) / divisor))
        yield Finding(
            f"factor[{name}]", 0.0 if got == wanted else math.inf, f"{float(wanted)!r}", f"{float(got)!r}", "s_x / s_y",
        )  # fmt: skip


def _terms(trial: Trial) -> int:
    """Return what a mean divides by, where its multiplier holds that (of several areas the smallest); 1 for other operators."""
    model = trial.spec.error_model
    if model.kind != "mean":
        return 1
    if model.terms is not None:
        return int(model.terms(trial.bound))
    return int(counts(trial).min(initial=1 << 62)) if trial.spec.quantization.family in SUMS else 1


def _integer_ratios(trial: Trial, rescale: Rescale) -> Iterator[Finding]:
    """One multiplier and shift for each operand that goes to the output alone: the rule's; a plugin's near the ratio."""
    bits, output, common = multiplier_bits(trial), trial.output, Fraction(2) ** -int(rescale.shift)
    if trial.target.platform.requantize.get(trial.spec.quantization.family) == "area_multiplier":
        bits = AREA_BITS
    common *= Fraction(float(rescale.mantissa))
    for name, params in _present(trial).items():
        got = Fraction(rescale.factors.get(name, 1.0)) * common
        if params.steps is not None and output.steps is not None:
            steps = np.float32(output.steps.numpy()) / np.float32(params.steps.numpy())
            share = np.float32(1.0 / _terms(trial)) * steps
            mantissa, shift = (1.0, 0) if _copied(trial) else restated.compass_multiplier(share, bits)
            same = got == Fraction(mantissa) / Fraction(2) ** shift
            if same or not is_replaced(trial):
                yield Finding(
                    f"multiplier[{name}]", 0.0 if same else math.inf, f"{int(mantissa)} * 2**-{shift}",
                    f"{float(got):.9g}", f"the rule's multiplier of {bits} bits",
                )  # fmt: skip
                continue
        ratio = Fraction(float(params.scale)) / Fraction(float(output.scale)) / _terms(trial)
        yield _near(trial, f"multiplier[{name}]", got, ratio, bits)


def _near(trial: Trial, name: str, got: Fraction, ratio: Fraction, bits: int) -> Finding:
    """Judge a plugin's multiplier: within *bits* of the ratio, or half a unit of the largest shift."""
    floor = Fraction(1, 2 << trial.target.platform.multiplier.shift_ceiling)
    allowed = max(ratio / 2**bits, floor) + ratio * Fraction(FLOAT32_CODES)
    text = f"{bits} bits of the ratio"
    return Finding(name, float(abs(got - ratio) / allowed), f"{float(ratio):.9g}", f"{float(got):.9g}", text)


def _present(trial: Trial) -> dict[str, QParams]:
    """Return the parameters of the activations that the case has; ranges of others may linger."""
    return {name: params for name, params in trial.parameters.inputs.items() if name in trial.case.shapes}


def declared_loss(trial: Trial, rescale: Rescale, name: str) -> float:
    """Return how far an operand's factor times the multiplier may be from s_x / s_y in the declared formats.

    Half a unit of the multiplier's bits and of a factor's 15 bits, half a factor times the multiplier, and half a unit at
    the largest shift.
    """
    ratio = float(trial.parameters.inputs[name].scale) / float(trial.output.scale)
    one, shift = float(rescale.mantissa) * 2.0 ** -int(rescale.shift), int(rescale.shift)
    rounded = 0.5 * one if any(factor != 1.0 for factor in rescale.factors.values()) else 0.0
    unit = 2.0**-shift if shift >= trial.target.platform.multiplier.shift_ceiling else 0.0
    bits = multiplier_bits(trial)
    return ratio * (2.0**-bits + 2.0**-15 + 2.0**-20) + rounded + 0.5 * unit * rescale.factors.get(name, 1.0)


def _copied(trial: Trial) -> bool:
    """Return whether the platform copies codes: all scales within its factor, all zero points equal."""
    reach = trial.target.platform.aligned_within.get(trial.spec.quantization.family)
    everything = [*trial.parameters.inputs.values(), trial.output]
    steps = [float(1.0 / params.scale if params.steps is None else params.steps) for params in everything]
    zeros = {int(params.zero_point) for params in everything}
    return reach is not None and len(zeros) == 1 and max(steps) <= reach * (min(steps) + 2.0**-23)


def _restated_factors(trial: Trial, names: list[str], got: tuple[float, ...], bits: int) -> Iterator[Finding]:
    """Multiplier, shift and factors of two operands equal those of Compass's rule."""
    first, second = (trial.parameters.inputs[name] for name in names)
    steps = [p.steps if p.steps is not None else (1.0 / p.scale).float() for p in (first, second, trial.output)]
    equal_zero = int(first.zero_point) == int(second.zero_point)
    step_a, step_b, step_y = (s.numpy() for s in steps)
    adds = trial.spec.quantization.family not in ("subtraction", "comparison")
    wanted = restated.compass_sum(step_a, step_b, step_y, bits, equal_zero=equal_zero, adds=adds)
    for what, expected, chosen in zip(
        ("multiplier", "shift", *(f"factor[{n}]" for n in names)), wanted, got, strict=True
    ):
        yield Finding(
            what, 0.0 if expected == chosen else math.inf, f"{expected}", f"{chosen}", "Compass's rule for sums"
        )


def _integer_factors(trial: Trial, rescale: Rescale) -> Iterator[Finding]:
    """Factors that bring operands to one scale, and their common multiplier: the rule's; a plugin's near the ratios."""
    names = list(_present(trial))
    bits = multiplier_bits(trial)
    output = trial.output
    got = (float(rescale.mantissa), int(rescale.shift), *(rescale.factors.get(name, 1.0) for name in names))
    rule = [*_restated_factors(trial, names, got, bits)] if len(names) == 2 else []
    if rule and (not is_replaced(trial) or all(finding.ratio == 0.0 for finding in rule)):
        yield from rule
        return
    for name, factor in zip(names, got[2:], strict=True):
        ratio = float(trial.parameters.inputs[name].scale) / float(output.scale)
        allowed = declared_loss(trial, rescale, name)
        gain = factor * got[0] * 2.0 ** -got[1]
        yield Finding(
            f"factor[{name}]",
            abs(gain - ratio) / allowed,
            f"{ratio:.9g}",
            f"{gain:.9g}",
            f"within {bits} bits of s_x / s_y",
        )
