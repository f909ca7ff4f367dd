"""Calibrated ranges of a case: drawn for inputs, calibrated from the reference for outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.generation.choice_sources import ChoiceSource
from quantizer.conformance.target import Target
from quantizer.core.case import Case, Range
from quantizer.core.formats import format_of
from quantizer.core.shapes import limits
from quantizer.numerics.qparams import QParams
from quantizer.numerics.rules import activation_params

REACH = 2.0**16
"""The end of a range of ties whose limits are infinite."""
SPREAD_BITS = 18
WIDE_STEP = 17
"""Binary places from an accumulator unit to an output code, so that ties lie beyond the 24 bits of float32."""
NEAR_PLACES = (11, 13)
"""Binary places from an accumulator unit to an output code: many sums lie near a tie and fit float32."""
TINY = 2.0**-126  # the smallest normal float32
EMPTY: Range = (0.0, 0.0)
Change = Callable[[str, Range], Range]
"""Changes the range that was drawn for an operand."""
AT_POLES = (1.0, 2.0**-4, 2.0**-6)
"""Shares of the results' range that the output range covers. Near a pole results are huge, and in their full range
most of them would round to a few codes."""
APART = (0.0, 0.25)
"""Distance from 0 of a range on one side of 0, as a share of its width. Unless it is 0, a rule has to widen the range
to 0."""


def range_of(target: Target, scale: float, zero_point: int) -> Range:
    """Return the range whose parameters are exactly *scale* (a power of two) and *zero_point*, if the range is free."""
    part = target.scheme.activation
    rule = target.platform.parameters
    if part.format != "integer":
        largest = scale * format_of(part.format).values[-1]
        return (-largest, largest)
    span = (1 << part.bits) - 1
    if part.symmetry == "symmetric" or part.bits > rule.symmetric_above_bits:
        restricted = part.range == "restricted" or (part.symmetry != "symmetric")
        if rule.activation_sign == "unsigned":
            return (0.0, scale * span)
        half = scale * (span - int(restricted)) / 2
        return (-half, half)
    low, high = _codes(target)
    return (scale * (low - zero_point), scale * (high - zero_point))


def _codes(target: Target) -> tuple[int, int]:
    bits = target.scheme.activation.bits
    if target.platform.parameters.activation_sign == "unsigned":
        return 0, (1 << bits) - 1
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def input_range(target: Target, name: str, data: str, chooser: ChoiceSource, bound: Mapping[str, Any]) -> Range:
    """Return a range for activation *name* that suits the data set; for an index, all that the operator allows."""
    item = target.spec.inputs[name]
    if item.kind == "index":
        return limits(item, bound)
    low_code, high_code = _codes(target)
    exponent = chooser.integer(f"{name}.exponent", -3, 3)
    match data:
        case "ties":
            # the zero point stays this far from both ends, so that small codes on either side of it do not saturate
            room = 2 * 8
            zero = (
                chooser.integer(f"{name}.zero", low_code + room, high_code - room)
                if high_code - low_code > 2 * room
                else 0
            )
            return range_of(target, 2.0**exponent * _odd_share(target), zero)
        case "small_integers":
            return (-4.0, 4.0)
        case "zero_point_extremes":
            width = 2.0**exponent * (1 + chooser.integer(f"{name}.width", 0, 255) / 256)
            near = width * chooser.option(f"{name}.near", APART)
            return (near, width) if chooser.integer(f"{name}.side", 0, 1) else (-width, -near)
        case "scale_spread" if name != target.spec.activations[0]:
            exponent += chooser.option(f"{name}.spread", [-SPREAD_BITS, SPREAD_BITS])
    width = 2.0**exponent * (1 + chooser.integer(f"{name}.width", 0, 4095) / 4096)
    share = chooser.integer(f"{name}.low", 0, 64) / 64
    # `0.0 - x` instead of `-x`, because -0.0 would be stored where x is 0
    low, high = float(np.float32(0.0 - width * share)), float(np.float32(width * (1 - share)))
    least, most = limits(item, bound)
    low, high = max(low, least), min(high, most)
    return (low, high) if low < high else (low, low + width)


def _odd_share(target: Target) -> float:
    """Return 1.5 if a single float operand is copied, else 1.

    A power of two changes only the exponent and leaves every mantissa as it is; a factor of 3/2 adds one bit to it.
    """
    alone = len(target.spec.activations) == 1 and target.scheme.weight is None
    return 1.5 if alone and target.scheme.activation.format != "integer" else 1.0


def _places_of_first_rounding(target: Target) -> tuple[int, ...]:
    """Return how many binary places an accumulator unit lies below a code if the first of two roundings has ties."""
    first = target.platform.first_rounding
    return () if first is None else (first.fraction_bits, first.fraction_bits, first.fraction_bits + 1)


def ranges_within(target: Target, name: str, limits: Range, chooser: ChoiceSource) -> dict[str, Range]:
    """Return ranges of activation *name* and output for ties, clamped to *limits*: powers of two inside.

    The input's step is a half to an eighth of the output's; nothing if the limits leave no room.
    """
    (low, high), (low_code, high_code) = limits, _codes(target)
    part = target.scheme.activation
    symmetric = part.symmetry == "symmetric" or part.bits > target.platform.parameters.symmetric_above_bits
    low, high = max(low, -REACH), min(high, REACH)
    room = 2 * max(-low, high) if symmetric else (high - low) / 2
    if room <= 0:
        return {}
    # the largest power of two with which all codes fit into this room
    scale = 2.0 ** math.floor(math.log2(room / (high_code - low_code)))
    least, most = math.ceil(high_code - high / scale), math.floor(low_code - low / scale)
    zero = 0 if symmetric else min(max(0, least), most)
    own = chooser.integer(f"{name}.zero", low_code // 2, high_code // 2)
    finer = range_of(target, scale / 2.0 ** chooser.integer(f"{name}.finer", 1, 3), own)
    return {name: finer, "y": range_of(target, scale, zero)}


def constant_range(target: Target, name: str, data: str, chooser: ChoiceSource) -> Range:
    """Return the range that a weight or a bias is filled from."""
    item = target.spec.inputs[name]
    if data == "ties" and item.role == "weight" and target.weight is not None:
        part = target.weight
        span = (1 << (part.bits - 1)) - 1 if part.range == "restricted" else ((1 << part.bits) - 1) / 2
        largest = span * 2.0 ** chooser.integer(f"{name}.exponent", -10, -4)
        return (-largest, largest)
    # no power of two in general: multipliers then use all their bits
    width = 2.0 ** chooser.integer(f"{name}.exponent", -4, 1) * (1 + chooser.integer(f"{name}.width", 0, 1023) / 1024)
    return (-width, width)


def changed_range(
    target: Target, name: str, data: str, chooser: ChoiceSource, bound: Mapping[str, Any], change: Change
) -> Range:
    """Return *change* of the drawn range of operand *name*, within its domain; an index keeps the drawn one."""
    item = target.spec.inputs[name]
    if item.role != "activation":
        return change(name, constant_range(target, name, data, chooser))
    drawn = input_range(target, name, data, chooser, bound)
    if item.kind == "index":
        return drawn
    (low, high), (least, most) = change(name, drawn), limits(item, bound)
    return max(low, least), min(high, most)


def output_range(
    target: Target,
    data: str,
    y: NDArray[np.float64],
    chooser: ChoiceSource,
    hints: dict[str, float],
    limits: Range = (-math.inf, math.inf),
) -> Range:
    """Return an output's range from its finite reference values *y*, as the data set needs it, within *limits*.

    *hints*: the numbers of `builder.output_hints`.
    """
    y = y[np.isfinite(y)]
    seen = (float(y.min()), float(y.max())) if y.size else EMPTY
    low, high = min(seen[0], 0.0), max(seen[1], 0.0)
    largest = max(-low, high)
    low_code, high_code = _codes(target)
    match data:
        case "ties":
            if target.spec.error_model.kind == "softmax":
                # equal elements give 1 / terms, half of this step
                return range_of(target, 2.0 / hints.get("terms", 2.0), low_code)
            if "mean_step" in hints:
                return range_of(target, hints["mean_step"], _near_middle(target, chooser))
            step = hints.get("step", 2.0**-7)
            # the smallest exponent under which the largest value does not saturate
            wanted = math.ceil(math.log2(max(largest, step) / max(high_code - 1, 1)))
            wide = WIDE_STEP if target.scheme.weight is not None else 2
            if target.scheme.activation.format != "integer":
                return range_of(target, _float_step(target, step, largest, chooser), 0)
            steps = [0, 1, 2, wide if target.scheme.activation.bits <= 8 else min(wide, 10)]
            places = chooser.option("y.step", [*steps, *_places_of_first_rounding(target)])
            # at least two accumulator units per code, so that half a code is a whole number of units
            exponent = max(wanted, round(math.log2(step)) + 1 + places)
            return range_of(target, 2.0**exponent, _near_middle(target, chooser))
        case "near_ties" if "weight" in (item.role for item in target.spec.inputs.values()):
            # not a power of two, so that the multiplier has all its bits and every rounding of it matters
            exact_places = chooser.integer("y.places", *NEAR_PLACES) + chooser.integer("y.width", 0, 4095) / 4096
            width = hints["step"] * 2.0**exact_places * (high_code - low_code)
            share = chooser.integer("y.low", 4, 60) / 64
            return (_float(-width * share), _float(width * (1 - share)))
        case "saturation" if target.scheme.activation.rule == "power_of_two" and largest > 0:
            code = max(1, high_code + chooser.option("y.offset", [0, 1, -1]))
            return range_of(target, 2.0 ** math.floor(math.log2(largest / code)), (low_code + high_code + 1) // 2)
        case "saturation":
            offset = chooser.option("y.offset", [0.0, 1.0, -1.0, 0.5])
            # codes from 0 to the largest value, which then lies `offset + 0.5` codes beyond the last code
            reach = (high_code - low_code) * largest / max(high - low, TINY)
            shrink = 1 - (offset + 0.5) / max(2.0, reach)
            return (_float(low * shrink), _float(high * shrink))
        case "zero_point_extremes":
            return (_float(seen[0]), _float(seen[1]))
        case "small_integers" | "zeros" | "one_hot":
            return (_float(low), _float(high))
        case "every_code" if target.spec.error_model.kind == "poles":
            share = chooser.option("y.coverage", AT_POLES)
            return (_float(low * share), _float(high * share))
    grow = chooser.option("y.coverage", [1.0, 1.0, 0.9, 1.5])
    return (_float(max(low * grow, limits[0])), _float(min(high * grow, limits[1])))


def _float_step(target: Target, step: float, largest: float, chooser: ChoiceSource) -> float:
    """Return a power of two as scale of an output with ties: the step of the sums, or half of its smallest value."""
    form = format_of(target.scheme.activation.format)
    held = math.ceil(math.log2(max(largest, step) / form.values[-1]))
    # the format's smallest value times the scale is then one to four units of the sums
    coarse = round(math.log2(step / form.unit)) + chooser.option("y.step", [0, 1, 2])
    return 2.0 ** (held if chooser.integer("y.side", 0, 1) else max(held, coarse))


def _near_middle(target: Target, chooser: ChoiceSource) -> int:
    """Return a zero point of either parity, in the middle half of the codes."""
    low, high = _codes(target)
    spread = max(0, (high - low) // 2 - 8)
    return chooser.integer("y.zero", -min(8, spread), min(8, spread)) + (low + high + 1) // 2


def _float(value: float) -> float:
    """Return *value* as the float32 number that a calibration run would report; infinity if it exceeds float32."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def activation_of(target: Target, case: Case, name: str) -> QParams:
    """Return the rule's parameters of activation or output *name*; rules for the signs of outputs are ignored."""
    low, high = case.ranges[name]
    sign = target.platform.parameters.activation_sign
    signed = low < 0.0 if sign == "by_range" else sign == "signed"
    return activation_params(low, high, target.scheme.activation, target.platform.parameters, signed=signed)


def unit_of(target: Target, case: Case) -> float:
    """Return the product of one step of each activation and weight. Of a weight's channels the coarsest step counts."""
    unit = 1.0
    for name in case.shapes:
        item = target.spec.inputs[name]
        if item.role == "activation":
            unit *= float(activation_of(target, case, name).scale)
        elif item.role == "weight" and target.weight is not None:
            unit *= max(map(abs, case.ranges[name])) / (2 ** (target.weight.bits - 1) - 1)
    return unit
