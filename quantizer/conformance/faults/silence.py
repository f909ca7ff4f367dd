"""Reasons why a fault has no effect on a platform, because the number that it changes does not occur there."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from quantizer.conformance.checks.requantized import last_roundings
from quantizer.conformance.faults.fault import Fault
from quantizer.conformance.kinds import LIMITS, MULTIPLIERS, SLOPES, looked_up
from quantizer.conformance.trials.trial import Trial
from quantizer.core.rounding_modes import DETERMINISTIC, RoundingMode
from quantizer.core.variants import Variant
from quantizer.numerics.bitwise import bitwise_equal

Holds = Callable[[Trial], bool]


@dataclass(frozen=True)
class Rule:
    """A precondition of some faults. On a platform without a case that meets it, they have no effect."""

    faults: tuple[str, ...]
    """Identifiers of faults, or prefixes of them."""
    needed: Holds
    reason: str


def _multiplied(trial: Trial) -> bool:
    p = trial.parameters
    return p.rescale is not None or bool(p.numbers.keys() & MULTIPLIERS.keys())


def _shifted(trial: Trial) -> bool:
    ratio = trial.parameters.rescale
    return (
        bool(trial.parameters.numbers.keys() & MULTIPLIERS.keys()) if ratio is None else bool((ratio.shift != 0).any())
    )


def _of_more_than(bits: int) -> Holds:
    """Return a condition that holds where a multiplier or a factor has more than *bits* significant bits."""

    def holds(trial: Trial) -> bool:
        ratio = trial.parameters.rescale
        if ratio is None:
            return bool(trial.parameters.numbers)
        numbers = [*ratio.mantissa.flatten().tolist(), *ratio.factors.values()]
        # scaled to *bits* bits before the point: what is left behind it are further significant bits
        return any(number * 2.0 ** (bits - math.frexp(number)[1]) % 1 != 0 for number in numbers)

    return holds


def _per_channel(trial: Trial) -> bool:
    ratio = trial.parameters.rescale
    return ratio is not None and ratio.mantissa.numel() > 1


def _own_scale(trial: Trial) -> bool:
    return any(not bitwise_equal(q.scale, trial.output.scale) for q in trial.parameters.inputs.values())


def _computed(trial: Trial) -> bool:
    """Return whether the forward computes codes instead of looking them up."""
    return not looked_up(trial.parameters)


def _interpolated(trial: Trial) -> bool:
    return any(abs(table.step) > 1 for table in trial.parameters.tables.values())


def _fused(*names: str) -> Holds:
    return lambda trial: trial.case.activation in names


def _beyond(bits: int) -> Holds:
    """Return a condition that holds where a sum of |terms| does not fit *bits* bits, sign included."""

    def holds(trial: Trial) -> bool:
        return trial.spec.error_model.kind != "bilinear" or bool((trial.sum_magnitudes >= 2.0 ** (bits - 1)).any())

    return holds


def _other_variant(name: str) -> Holds:
    return lambda trial: trial.parameters.rescale is None or trial.parameters.rescale.variant != name


def _other_mode(mode: RoundingMode) -> Holds:
    return lambda trial: last_roundings(trial) != {mode}


def _zero_points(trial: Trial) -> bool:
    params = (*trial.parameters.inputs.values(), *trial.parameters.outputs.values())
    return any(bool((p.zero_point != 0).any()) for p in params)


def _integers(trial: Trial) -> bool:
    return trial.target.scheme.activation.format == "integer"


_MODES = tuple(mode for mode in DETERMINISTIC if mode != "half_even")
_VARIANTS: tuple[Variant, ...] = ("f32_even", "q31_single", "q31_double", "q31_half_up", "half_away", "q15_half_up")
_KERNEL = ("rounding_", "input_zero_point", "output_zero_point", "clip_range", "multiplier_", "shift_")
# the first rule of a fault that no case meets gives the reason
RULES = (
    Rule(
        ("power_of_two_",),
        lambda t: t.target.scheme.activation.rule == "power_of_two",
        "No scheme of the platform has powers of two.",
    ),
    Rule(("table",), lambda t: bool(t.parameters.tables), "The arithmetic has no table."),
    Rule(
        ("table_last_cell", "table_interpolation", "table_not_interpolated"),
        _interpolated,
        "No table is read between two entries.",
    ),
    Rule(
        ("slope_",),
        lambda t: bool(t.parameters.numbers.keys() & set(SLOPES)),
        "The slope is not a separate number in this arithmetic: it is part of a table.",
    ),
    Rule(
        ("bound_",),
        lambda t: bool(t.parameters.numbers.keys() & set(LIMITS)),
        "The limits are not separate numbers in this arithmetic: they are part of a table.",
    ),
    Rule(
        _KERNEL,
        _computed,
        "The integer forward looks codes up: the quantize rule has rounded, scaled and clipped them.",
    ),
    Rule(
        ("multiplier_", "requantized_as_", "channel_", "first_factor", "factors_", "rounding_twice", "shift_"),
        _multiplied,
        "The arithmetic has no multiplier.",
    ),
    Rule(("shift_",), _shifted, "The multiplier has no shift."),
    Rule(("multiplier_15_bits_provided",), _of_more_than(14), "No multiplier has more than 14 significant bits."),
    Rule(("multiplier_15_bits",), _of_more_than(15), "No multiplier has more than 15 significant bits."),
    Rule(
        ("multiplier_8_bits", "multiplier_truncated"),
        _of_more_than(8),
        "No multiplier has more than 8 significant bits.",
    ),
    Rule(("channel_",), _per_channel, "No multiplier has numbers per channel."),
    Rule(
        ("rounding_", "multiplier_", "shift_", "factors_", "first_factor"),
        _own_scale,
        "The output has the scale of the input: nothing is multiplied or rounded.",
    ),
    Rule(
        ("zero_point_unclamped",),
        lambda t: t.target.platform.parameters.zero_point == "negated",
        "A range that contains 0 has a zero point within the codes.",
    ),
    Rule(
        ("calibration_of_magnitude",),
        lambda t: t.target.scheme.activation.symmetry == "asymmetric" and t.target.scheme.activation.bits < 16,
        "Ranges are made symmetric by the platform's own rule.",
    ),
    *(Rule((f"rounding_{mode}",), _other_mode(mode), "It is the mode of the platform.") for mode in _MODES),
    *(
        Rule((f"requantized_as_{name}",), _other_variant(name), "It is the requantization of the platform.")
        for name in _VARIANTS
    ),
    *(
        Rule((f"accumulator_int{bits}",), _beyond(bits), f"No sum of the cases leaves {bits} bits.")
        for bits in (16, 24, 32)
    ),
    # 24 bits of mantissa and the sign
    Rule(("accumulator_float32",), _beyond(25), "No sum of the cases needs more bits than float32 holds."),
    Rule(
        ("input_zero_point_sign", "input_zero_point_dropped", "output_zero_point_sign", "first_zero_point_for_all"),
        _zero_points,
        "All zero points are 0.",
    ),
    Rule(
        (
            "input_zero_point",
            "output_zero_point",
            "last_zero_point",
            "clip_unsigned_as_signed",
            "clip_range",
            "input_sign",
        ),
        _integers,
        "Codes of a narrow float have a sign, no zero point, and no range but their format's.",
    ),
    Rule(
        ("block_", "constant_of_first_block"),
        lambda t: t.target.scheme.grid == "blocks",
        "No weights are stored in blocks.",
    ),
    Rule(("float_",), lambda t: not _integers(t), "No activation is a narrow float."),
    Rule(("relu6_", "activation_missing", "file_activation"), _fused("relu6", "relu"), "No activation is fused there."),
    Rule(("relu6_",), _fused("relu6"), "No relu6 is fused there."),
    Rule(("relu_as_relu6",), _fused("relu"), "No relu is fused there."),
    Rule(
        ("weight_nibbles_swapped",),
        lambda t: any(c.params.dtype.bits == 4 for c in t.parameters.constants.values()),
        "No weights of 4 bits.",
    ),
)


def silence(fault: Fault, trials: Sequence[Trial]) -> str:
    """Return why *fault* cannot change these cases of one platform and arithmetic; "" if no reason is known."""
    for rule in RULES:
        if fault.id.startswith(rule.faults) and not any(rule.needed(trial) for trial in trials):
            return rule.reason
    return ""
