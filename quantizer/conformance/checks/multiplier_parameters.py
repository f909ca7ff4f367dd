"""Multipliers and shifts of products compared with the platform's rule, for the check `parameters`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.bounds import pairs
from quantizer.conformance.checks import blocks, one_period
from quantizer.conformance.checks.blocks import weight_in_blocks
from quantizer.conformance.checks.fixed_point import number_findings_of_shifts
from quantizer.conformance.checks.multiplier_rules import (
    DIVIDES,
    FLOAT32_CODES,
    equal,
    fixed_point_bits,
    has_whole_multipliers,
    is_replaced,
    multiplier_bits,
    shifts_of,
    unifies_shifts,
)
from quantizer.conformance.checks.room_oracles import numbers_of_room
from quantizer.conformance.checks.sum_factors import integer_ratios, sum_multiplier
from quantizer.conformance.expected import multipliers as expected_multipliers
from quantizer.conformance.expected.parameters import Expected
from quantizer.conformance.kinds import OF_ONE_INPUT, has
from quantizer.conformance.trials.finding import Finding
from quantizer.conformance.trials.trial import Trial
from quantizer.numerics.qparams import Rescale

Array = NDArray[Any]


SHARED_LEAST = expected_multipliers.FACTOR_LIMIT // 2
"""The largest of several multipliers under one shift is at least this if the shift is the finest that fits 15 bits."""


def multiplier_findings(trial: Trial, factors: list[Expected], output: Expected) -> Iterator[Finding]:
    """Yield findings on the provided multiplier of a sum of products; *factors* are the parameters of its operands."""
    rescale = trial.parameters.rescale
    if rescale is None:
        return
    if unheld := _unheld(rescale):  # an exact ratio can be given only as a number
        yield unheld
        return
    if weight_in_blocks(trial) is None:
        yield from _one_ratio(trial, rescale, factors, output)
    else:
        yield from blocks.multiplier_findings(trial, factors)


def _unheld(rescale: Rescale) -> Finding | None:
    """Return the finding on a multiplier that no integer register holds, if the variant has integer multipliers."""
    mantissa = np.atleast_1d(rescale.mantissa.numpy()).reshape(-1)
    wrong = mantissa[~np.isfinite(mantissa) | (mantissa != np.rint(mantissa))]
    if not (wrong.size and has_whole_multipliers(rescale.variant)):
        return None
    rule = f"{rescale.variant}: a multiplier is a whole number"
    return Finding("multiplier", math.inf, f"{np.rint(wrong[0])}", f"{wrong[0]}", rule)


def _one_ratio(trial: Trial, rescale: Rescale, factors: list[Expected], output: Expected) -> Iterator[Finding]:
    """Yield the findings about a multiplier that requantizes the whole sum, or the sum of a channel."""
    declared = trial.variant
    if declared == "area_multiplier" and rescale.variant == "multiplier_shift" and is_replaced(trial):
        yield from integer_ratios(trial, rescale)
        return
    yield equal("variant", declared, rescale.variant, "the platform's variant for the operator's family")
    if trial.target.platform.multiplier.shifts is not None:
        yield from number_findings_of_shifts(trial, rescale)
        return
    if rescale.variant in DIVIDES:
        yield equal("divisor", float(trial.output.scale), rescale.divisor, "the output's scale")
    elif rescale.variant != "exact":
        yield equal("divisor", 1.0, rescale.divisor, "only scales are divided by")
    yield from _of_kind(trial, rescale, factors, output)


def _of_kind(trial: Trial, rescale: Rescale, factors: list[Expected], output: Expected) -> Iterator[Finding]:
    """Yield the findings about the multiplier that this kind of operator has."""
    kind, shifted = trial.spec.error_model.kind, rescale.variant == "multiplier_shift"
    if kind in ("linear", "mean", "selection"):
        yield from sum_multiplier(trial, rescale)
    elif kind == "poles":
        yield _inverse_multiplier(trial, rescale, factors, output)
    elif kind in OF_ONE_INPUT and shifted:
        yield from integer_ratios(trial, rescale)
    elif kind == "normalization" and shifted:
        yield from _norm_multiplier(trial, rescale, factors, output)
    elif kind == "bilinear":
        # a built-in rule must give the restated numbers; a plugin may instead come near the exact ratio
        restated_ones = [*_restated_multiplier(trial, rescale, factors, output)] if shifted else []
        if restated_ones and (not is_replaced(trial) or all(finding.ratio == 0.0 for finding in restated_ones)):
            yield from restated_ones
        else:
            yield from _product_multiplier(trial, rescale)


def number_findings(trial: Trial) -> Iterator[Finding]:
    """Yield findings on the other integers that a quantize rule provides.

    The multiplier of an operator with normalised values (softmax, norms) stands for 1 / s_y.
    """
    yield from _attribute_findings(trial)
    stated = numbers_of_room(trial)
    yield from stated.values()
    yield from one_period.number_findings(trial)
    numbers, output = trial.parameters.numbers, trial.output
    shares = trial.spec.error_model.kind in ("softmax", "normalization")
    if not shares or ("multiplier", "shift") in stated or not has(trial.parameters, "scaled_result"):
        return
    mantissa, shift = numbers["multiplier"], numbers["shift"]
    if is_replaced(trial) or output.steps is None:
        yield _integer_multiplier(trial, "multiplier", mantissa, shift, 1 / Fraction(float(output.scale)))
        return
    bits = min(15, trial.target.scheme.activation.bits)
    wanted = expected_multipliers.float32_multiplier(np.float32(output.steps.numpy()), bits)
    yield equal("multiplier, shift", (int(wanted[0]), wanted[1]), (mantissa, shift), "the rule's multiplier of 1 / s_y")


def _attribute_findings(trial: Trial) -> Iterator[Finding]:
    """Judge an attribute in fixed point: the nearest integer, in a unit no coarser than the rule's."""
    numbers, bits = trial.parameters.numbers, trial.target.scheme.activation.bits
    steps = 1 / float(trial.output.scale) if trial.output.steps is None else float(trial.output.steps)
    relay = expected_multipliers.RELAY_BITS if bits <= expected_multipliers.RELAY_BITS else 0
    for name, places, least, unit in (
        ("slope", "slope_shift", bits, 1.0),
        ("low", "relay_bits", relay, steps),
        ("high", "relay_bits", relay, steps),
    ):
        if name not in trial.case.attrs or not {name, places} <= numbers.keys():
            continue
        yield Finding(
            places,
            0.0 if numbers[places] >= least else math.inf,
            f"at least {least}",
            f"{numbers[places]}",
            f"the binary places of {name}",
        )
        wanted = float(trial.bound[name]) * unit * 2.0 ** numbers[places]
        # the fixed-point attribute is stored in 32 bits
        wanted = min(max(wanted, -(2.0**31)), 2.0**31 - 1)
        away = abs(numbers[name] - wanted) / (0.5 + FLOAT32_CODES * abs(wanted))
        yield Finding(name, away, f"{wanted:.9g}", f"{numbers[name]}", f"the nearest integer to {name} in its unit")


def _inverse_multiplier(trial: Trial, rescale: Rescale, factors: list[Expected], output: Expected) -> Finding:
    """Judge the multiplier of `a * inverse`: it equals s_a / (s_b * s_y) in float32, in units of the table."""
    a, b, y = (np.float32(part.steps) for part in (*factors, output))
    units = np.float32(1 / trial.parameters.tables["inverse"].unit)
    wanted = expected_multipliers.float32_multiplier(
        (y * b) / (a * units), min(15, trial.target.scheme.activation.bits)
    )
    got = (float(rescale.mantissa), int(rescale.shift))
    return equal("multiplier, shift", wanted, got, "the rule's multiplier of a quotient")


def _restated_multiplier(
    trial: Trial, rescale: Rescale, factors: list[Expected], output: Expected
) -> Iterator[Finding]:
    """Judge multipliers and shifts of a built-in rule: equal to the second implementation's, for every channel."""
    mantissas, shifts = np.atleast_1d(rescale.mantissa.numpy()), np.atleast_1d(rescale.shift.numpy())
    channels = max((part.scale.size for part in factors), default=1)
    if mantissas.size < channels:
        yield equal("multiplier", channels, mantissas.size, "the rule's multiplier of every channel")
        return
    ratios = expected_multipliers.product_ratios(factors, output, mantissas.size)
    bits = multiplier_bits(trial)
    if rescale.mantissa.dim() and unifies_shifts(trial):
        wanted = expected_multipliers.unified(ratios, bits, shifts_of(trial))
    else:
        wanted = expected_multipliers.separate(ratios, bits, shifts_of(trial))
    for channel, (expected, mantissa, shift) in enumerate(zip(wanted, mantissas, shifts, strict=True)):
        same = expected == (float(mantissa), int(shift))
        yield Finding(
            f"multiplier[{channel}]",
            0.0 if same else math.inf,
            f"{int(expected[0])} * 2**-{expected[1]}",
            f"{int(mantissa)} * 2**-{int(shift)}",
            f"the rule's multiplier of {bits} bits",
        )


def _norm_multiplier(trial: Trial, rescale: Rescale, factors: list[Expected], output: Expected) -> Iterator[Finding]:
    """Judge the multiplier of a norm's output: a built-in rule's is equal; a plugin's is near the same ratio."""
    restated = [*_restated_multiplier(trial, rescale, factors, output)]
    if not is_replaced(trial) or all(finding.ratio == 0.0 for finding in restated):
        yield from restated
        return
    mantissas, shifts = np.atleast_1d(rescale.mantissa.numpy()), np.atleast_1d(rescale.shift.numpy())
    shared = unifies_shifts(trial) and len(set(shifts.tolist())) == 1 < mantissas.size
    ratios = expected_multipliers.product_ratios(factors, output, mantissas.size)
    for channel, (ratio, mantissa, shift) in enumerate(zip(ratios, mantissas, shifts, strict=True)):
        name = f"multiplier[{channel}]"
        yield _integer_multiplier(trial, name, float(mantissa), int(shift), Fraction(float(ratio)), shared=shared)


def _product_multiplier(trial: Trial, rescale: Rescale) -> Iterator[Finding]:
    """Judge one multiplier per channel for the ratio of scales: exact, a float32 bit for bit, or integer and shift."""
    params = [trial.qparams(name) for name in trial.tensors if trial.spec.inputs[name].role != "bias"]
    mantissas = np.atleast_1d(rescale.mantissa.numpy())
    shifts = np.broadcast_to(np.atleast_1d(rescale.shift.numpy()), mantissas.shape)
    # repeats a scale of the tensor, or the list of a group, for all channels
    columns = [np.resize(p.step.numpy(), mantissas.shape) for p in params]
    output = float(trial.output.scale)
    # under one shift, small multipliers keep few bits: only the largest must fill its 15
    shared = unifies_shifts(trial) and len(set(shifts.tolist())) == 1 < mantissas.size
    full = shared and float(mantissas.max()) >= SHARED_LEAST
    if rescale.variant == "f32_stages_bias":
        yield from _stage_numbers(trial, rescale)
    right = mantissas.size > 1 and _all_right(trial, rescale, mantissas, shifts, columns)
    for channel, (mantissa, shift) in enumerate(zip(mantissas, shifts, strict=True)):
        scales = [float(column[channel]) for column in columns]
        one = _Provided(f"multiplier[{channel}]", float(mantissa), int(shift), scales, output)
        found = _one_multiplier(trial, rescale, one, shared=full)
        if right:
            yield replace(found, numbers=mantissas.size)
            return
        yield found


def _all_right(trial: Trial, rescale: Rescale, mantissas: Array, shifts: Array, columns: list[Array]) -> bool:
    """Return whether every multiplier is exactly the rule's, in a short way; False also where that cannot tell."""
    output = float(trial.output.scale)
    if rescale.variant in FLOAT_PRODUCTS:
        wanted = FLOAT_PRODUCTS[rescale.variant]([column.astype(np.float32) for column in columns], np.float32(output))
        return np.array_equal(mantissas, wanted)
    if rescale.variant in expected_multipliers.FIXED_POINT:
        rule = _fixed_point_rule(trial, rescale)
        given = zip(mantissas.tolist(), shifts.tolist(), *(column.tolist() for column in columns), strict=True)
        return all(rule(scales, output) == (mantissa, shift) for mantissa, shift, *scales in given)
    if rescale.variant != "exact" or rescale.divisor != output or shifts.any() or len(columns) != 2:
        return False
    # the ratio of the scales, with the output's scale as the divisor: their product must be the multiplier
    ratio = pairs.product(columns[0], columns[1], 0, lambda index: Fraction(float(mantissas[index])))
    return bool(((ratio.nearest == mantissas) & (ratio.left == 0)).all())


def _stage_numbers(trial: Trial, rescale: Rescale) -> Iterator[Finding]:
    """Judge the input's factor in float32 stages: it is 1 / (1 / s_x), each division rounded."""
    scale = np.float32(float(next(iter(trial.parameters.inputs.values())).scale))
    wanted = [float(np.float32(1) / (np.float32(1) / scale))]
    yield equal("factors", wanted, list(rescale.factors.values()), "1 / (1 / s_x) in float32")


FLOAT_PRODUCTS: Mapping[str, Callable[[list[Any], Any], Any]] = {
    "f32_even": lambda scales, output: math.prod(scales[1:], start=scales[0]) / output,
    "f32_even_zpin": lambda scales, output: math.prod(scales[1:], start=scales[0]) / output,
    "f32_even_bias": lambda scales, output: math.prod(scales[1:], start=scales[0]) / output,
    "f32_even_inverse": lambda scales, output: math.prod(scales[1:], start=scales[0]) * (np.float32(1) / output),
    "f32_stages_bias": lambda scales, _: scales[1],
}
"""Variant -> the float32 number that it multiplies by, from the operands' scales and the output's scale.

The scales are single numbers, or arrays with one number for each channel.
"""


@dataclass(frozen=True)
class _Provided:
    """A provided multiplier, with the scales whose ratio it stands for."""

    name: str
    mantissa: float
    shift: int
    scales: list[float]
    output: float

    @property
    def ratio(self) -> Fraction:
        """The product of the scales over that of the output, exactly."""
        return math.prod(map(Fraction, self.scales), start=Fraction(1)) / Fraction(self.output)

    def is_number(self, wanted: float, rule: str) -> Finding:
        """Return a finding that passes if the mantissa is *wanted*, bit for bit."""
        same = self.mantissa == wanted
        return Finding(self.name, 0.0 if same else math.inf, f"{wanted!r}", f"{self.mantissa!r}", rule)


def _one_multiplier(trial: Trial, rescale: Rescale, one: _Provided, *, shared: bool = False) -> Finding:
    """Return the finding on one multiplier, by the rule of its variant."""
    variant = rescale.variant
    if variant == "exact":
        got = _exact_number(one.mantissa, one.shift, rescale.divisor)
        ratio = one.ratio
        away = 0.0 if got == ratio else math.inf
        return Finding(one.name, away, f"{float(ratio)!r}", f"{float(got)!r}", "the exact ratio of scales")
    if variant in FLOAT_PRODUCTS:
        wanted = FLOAT_PRODUCTS[variant]([np.float32(scale) for scale in one.scales], np.float32(one.output))
        return one.is_number(float(wanted), f"the float32 number of {variant}")
    if variant in expected_multipliers.FIXED_POINT:
        return _fixed_point_multiplier(trial, rescale, one)
    if variant in ("f32_products", "f32_scaling"):
        return one.is_number(one.scales[0] / one.output, "s_x / s_y")
    return _integer_multiplier(trial, one.name, one.mantissa, one.shift, one.ratio, shared=shared)


def _fixed_point_multiplier(trial: Trial, rescale: Rescale, one: _Provided) -> Finding:
    """Judge a fixed-point multiplier: it is the rule's; where the variant rounds once, an equal value suffices."""
    numbers = _fixed_point_rule(trial, rescale)(one.scales, one.output)
    # a variant that rounds once gives equal codes for equal numbers; one that rounds twice depends on the shift as well
    right = numbers == (one.mantissa, one.shift) or (
        rescale.variant in expected_multipliers.ROUND_ONCE
        and _exact_number(one.mantissa, one.shift, rescale.divisor) == _exact_number(*numbers)
    )
    shown = (f"{float(numbers[0])!r} * 2**-{numbers[1]}", f"{one.mantissa!r} * 2**-{one.shift}")
    rule = f"the rule's multiplier ({_ratio_format(trial)} ratio)"
    return Finding(one.name, 0.0 if right else math.inf, *shown, rule)


def _fixed_point_rule(trial: Trial, rescale: Rescale) -> Callable[[list[float], float], tuple[float, int]]:
    """Return the rule that makes a multiplier and a shift of the operands' scales and the output's scale."""
    own = any(trial.qparams(n).scale.numel() > 1 for n in trial.tensors if trial.spec.inputs[n].role == "weight")
    return functools.partial(
        expected_multipliers.fixed_point,
        variant=rescale.variant,
        arithmetic=_ratio_format(trial),
        per_channel=own,
        clamped=trial.target.platform.multiplier.overflow == "exact",
        bits=fixed_point_bits(trial),
    )


def _ratio_format(trial: Trial) -> str:
    return trial.target.platform.multiplier.ratio.get(trial.spec.quantization.family, "float64")


def _exact_number(mantissa: float, shift: int, divisor: float = 1.0) -> Fraction:
    """Return mantissa * 2**-shift / divisor, exactly."""
    return Fraction(mantissa) / Fraction(2) ** shift / Fraction(divisor)


def _integer_multiplier(
    trial: Trial,
    name: str,
    mantissa: float,
    shift: int,
    ratio: Fraction,
    *,
    shared: bool = False,
) -> Finding:
    """Judge a multiplier that must be an unsigned integer near the ratio.

    It is within half a unit under the rule's own shift, or within `bits` bits under another shift.

    The rule forms the ratio in float32, and the multiplier may instead be that of the exact one. *shared*: all channels
    have the finest shift that all of them fit, which may drop low bits of a multiplier: one more unit is allowed below
    the ratio.
    """
    rule, bits = trial.target.platform.multiplier, multiplier_bits(trial)
    got = Fraction(mantissa) / Fraction(2) ** shift
    shown, wanted = f"{int(mantissa)} * 2**-{shift} = {float(got):.9g}", f"{float(ratio):.9g}"
    if mantissa != int(mantissa) or not 0 <= mantissa < 2 ** max(bits, 16):
        return Finding(name, math.inf, wanted, shown, f"an unsigned integer of at most {max(bits, 16)} bits")
    own = shift in expected_multipliers.shift_choices(ratio, bits, rule.max_shift)
    allowed = Fraction(1, 2) / Fraction(2) ** shift if own else ratio / 2**bits
    allowed += ratio * Fraction(FLOAT32_CODES)
    text = "half a unit of the rule's shift" if own else f"{bits} bits of the ratio under another shift"
    if shared and got < ratio:
        allowed, text = allowed + Fraction(1, 2) ** shift, f"{text}, and a unit of the shared one"
    return Finding(name, float(abs(got - ratio) / allowed), wanted, shown, text)
