"""The check `parameters`: it judges the scales, zero points, codes, multipliers and tables from the quantize rule."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.checks.blocks import weight_in_blocks
from quantizer.conformance.checks.constant_codes import code_findings, held_bias_findings
from quantizer.conformance.checks.held_biases import is_held
from quantizer.conformance.checks.multiplier_parameters import multiplier_findings, number_findings
from quantizer.conformance.checks.multiplier_rules import (
    FLOAT32_CODES,
    is_replaced,
    multiplier_bits,
    shifts_of,
    unifies_shifts,
)
from quantizer.conformance.checks.norm_parameters import norm_factors, norm_findings
from quantizer.conformance.checks.resize import resize_findings
from quantizer.conformance.checks.staged import stage_findings
from quantizer.conformance.checks.tables import table_findings
from quantizer.conformance.expected import multipliers as expected_multipliers
from quantizer.conformance.expected import parameters as expected_parameters
from quantizer.conformance.expected import weights as expected_weights
from quantizer.conformance.expected.parameters import Expected
from quantizer.conformance.trials.declared import kind_findings, with_declared_numbers
from quantizer.conformance.trials.finding import Finding
from quantizer.conformance.trials.trial import Trial
from quantizer.core.dtypes import integer
from quantizer.core.formats import format_of
from quantizer.core.platforms import Platform
from quantizer.core.schemes import WeightPart
from quantizer.core.shapes import channel_axis
from quantizer.core.verdict import Verdict, Worst
from quantizer.numerics.qparams import QParams

Array = NDArray[Any]
CHECK = "parameters"


def parameters(trial: Trial) -> Verdict:
    """Judge scales, zero points, codes of constants, multipliers and tables against the platform's rule."""
    found = trial.verdict_of_whole or _verdict([*_findings(trial)])
    trial.verdict_on_parameters = found
    return found


def _verdict(findings: Sequence[Finding]) -> Verdict:
    if not findings:
        return Verdict(CHECK, "pass")
    worst = max(findings, key=lambda finding: finding.ratio)
    # `not <=`, so that NaN fails
    failed = [finding for finding in findings if not finding.ratio <= 1.0]
    return Verdict(
        CHECK,
        "fail" if failed else "pass",
        ratio=worst.ratio,
        elements=sum(finding.numbers for finding in findings),
        failed=sum(finding.numbers for finding in failed),
        worst=Worst(worst.tensor, worst.index, worst.expected, worst.got, worst.rule),
    )


def failing(trial: Trial) -> list[Finding]:
    """Return the findings that the check fails on."""
    return [finding for finding in _findings(trial) if not finding.ratio <= 1.0]


def _findings(trial: Trial) -> Iterator[Finding]:
    """Yield findings on the provided numbers, or on the built-in rule's if their kind is not the platform's."""
    yield from kind_findings(trial)
    trial = with_declared_numbers(trial)
    target, case = trial.target, trial.case
    rule, scheme = target.platform.parameters, target.scheme
    inputs: dict[str, Expected] = {}
    for name in trial.spec.coded:
        if name not in case.shapes:
            continue
        span = expected_parameters.input_range(trial.spec, name, target.platform, case)
        signed = expected_parameters.input_sign(span, rule)
        index = trial.spec.inputs[name].kind == "index"
        inputs[name] = (
            expected_parameters.own_codes()
            if index
            else expected_parameters.activation(span, scheme.activation, rule, signed=signed)
        )
        yield from _parameter_findings(name, trial.parameters.inputs.get(name), inputs[name])
    platform = _own_sign(trial)
    outputs = {
        name: expected_parameters.output(trial.spec, name, scheme, platform, case, inputs)
        for name in trial.spec.outputs
    }
    for name, wanted in outputs.items():
        yield from _parameter_findings(name, trial.parameters.outputs.get(name), wanted)
    for name, wanted in {**inputs, **outputs}.items():
        yield from _held(name, wanted)
    # the bias of a normalisation has the scale of the normalised value times gamma, not of x
    factors = norm_factors(trial) or inputs
    weights = _weights(trial, factors, outputs["y"])
    yield from _constants(trial, factors, weights)
    spread = [expected_weights.repeated(wanted, _channels(trial)) for wanted in weights.values()]
    yield from multiplier_findings(trial, [*factors.values(), *spread], outputs["y"])
    yield from number_findings(trial)
    yield from norm_findings(trial)
    yield from resize_findings(trial)
    yield from stage_findings(trial)
    yield from _accumulator(trial)
    for name, table in trial.parameters.tables.items():
        yield from table_findings(trial, name, table)


def _own_sign(trial: Trial) -> Platform:
    """Return the platform with the sign that a plugin chose for outputs of a family which the platform does not know.

    Unsigned codes are a choice only if the calibrated range has no negative values.
    """
    platform, family, output = trial.target.platform, trial.spec.quantization.family, trial.parameters.outputs.get("y")
    by_operator = bool(platform.output_signs) and family not in platform.output_signs and is_replaced(trial)
    low, _ = trial.case.ranges.get("y", (0.0, 0.0))
    if not by_operator or output is None or output.dtype.kind == "int" or low < 0:
        return platform
    return platform.model_copy(update={"output_signs": {**platform.output_signs, family: "unsigned"}})


def _accumulator(trial: Trial) -> Iterator[Finding]:
    declared = trial.target.platform.accumulator.bits
    wanted = trial.target.scheme.activation.accumulator_bits if declared == "scheme" else declared
    got = trial.parameters.accumulator_bits
    yield Finding(
        "accumulator", 0.0 if got == wanted else math.inf, f"{wanted} bits", f"{got} bits", "the platform's accumulator"
    )


def _parameter_findings(name: str, chosen: QParams | None, wanted: Expected) -> Iterator[Finding]:
    """Judge that scale, zero point, codes and format equal the rule's to the last bit."""
    if chosen is None:
        yield Finding(
            name, math.inf, "scale, zero point and format", "nothing", "every tensor's parameters are decided"
        )
        return
    pairs: list[tuple[str, Any, Any]] = [
        ("scale", chosen.scale.numpy(), wanted.scale),
        ("zero point", chosen.zero_point.numpy(), wanted.zero_point),
        ("codes", np.array([chosen.qmin, chosen.qmax]), np.array([wanted.qmin, wanted.qmax])),
    ]
    # a plugin that divides by scales provides no steps
    if wanted.steps is not None and chosen.steps is not None:
        pairs.append(("steps", chosen.steps.numpy(), wanted.steps))
    for what, got, expected in pairs:
        if got.shape != expected.shape:
            yield Finding(name, math.inf, f"{what} of shape {expected.shape}", f"{got.shape}", "the rule's granularity")
            continue
        unequal = got != expected
        if unequal.any():
            wrong = np.argwhere(np.atleast_1d(unequal))
            index = tuple(int(i) for i in wrong[0])
            shown = np.atleast_1d(expected)[index], np.atleast_1d(got)[index]
            yield Finding(
                name, math.inf, f"{what} {shown[0]!r}", f"{shown[1]!r}", f"the platform's rule for {what}", index
            )
        else:
            yield Finding(name, 0.0, what, what, f"the platform's rule for {what}")
    got_blocks = None if chosen.blocks is None else (chosen.blocks.axis, chosen.blocks.size)
    if got_blocks != wanted.blocks:
        shown = f"blocks {wanted.blocks}", f"{got_blocks}"
        yield Finding(name, math.inf, *shown, "the axis and the elements of the scheme's blocks")
    if chosen.dtype.kind != wanted.dtype.kind or chosen.dtype.bits != wanted.dtype.bits:
        yield Finding(name, math.inf, f"format {wanted.dtype}", f"{chosen.dtype}", "the platform's rule for formats")


def _held(name: str, wanted: Expected) -> Iterator[Finding]:
    """Judge the scale of an input: every number of the calibrated range lies within half a step of a code."""
    if wanted.span is None:
        return
    scale, zero = float(wanted.scale), int(wanted.zero_point)
    if wanted.dtype.kind == "float":
        yield _held_by_float(name, wanted, max(abs(end) for end in wanted.span))
        return
    low, high = (end / scale + zero for end in wanted.span)
    beyond = max(wanted.qmin - low, high - wanted.qmax, 0.0)
    # half a step, and the float32 error of the end in codes
    room = 0.5 + FLOAT32_CODES * (wanted.qmax - wanted.qmin)
    yield Finding(
        f"range of {name}",
        beyond / room,
        f"codes {low:.6g} to {high:.6g}",
        f"codes {wanted.qmin} to {wanted.qmax}",
        "the calibrated range is held, to half a step",
    )


def _held_by_float(name: str, wanted: Expected, largest: float) -> Finding:
    """Judge that the largest magnitude of the calibrated range lies within half a step of the largest value."""
    form = format_of(wanted.dtype.name)
    place = float(form.position(Fraction(largest) / Fraction(float(wanted.scale))))
    return Finding(
        f"range of {name}",
        max(place - form.last, 0.0) / 0.5,
        f"place {place:.6g}",
        f"codes up to {form.last}",
        "the calibrated range is held, to half a step",
    )


def _weights(trial: Trial, inputs: Mapping[str, Expected], output: Expected) -> dict[str, Expected]:
    """Return the expected parameters of every weight."""
    scheme, platform = trial.target.scheme.weight, trial.target.platform
    names = [n for n, item in trial.spec.inputs.items() if item.role == "weight" and n in trial.tensors]
    if scheme is None or not names:
        return {}
    part = expected_weights.weight_part(scheme, platform, trial.spec.quantization.family)
    if (name := weight_in_blocks(trial)) is not None:
        item, values = trial.spec.inputs[name], trial.tensors[name].double().numpy()
        axes = item.channel_axis or 0, item.block_axis or 0
        return {name: expected_weights.weight_in_blocks(values, part, platform.parameters, *axes)}
    found = _grouped(trial, names, part, inputs, output)
    if not platform.parameters.weights_hold_bias or trial.spec.error_model.kind != "bilinear":
        return found
    factor = float(next(iter(inputs.values())).scale)
    for bias in (n for n, item in trial.spec.inputs.items() if item.role == "bias" and n in trial.tensors):
        values = trial.tensors[bias].numpy()
        found = {n: expected_weights.holding_bias(one, values, factor, part.bias_bits) for n, one in found.items()}
    return found


def _grouped(
    trial: Trial, names: Sequence[str], part: WeightPart, inputs: Mapping[str, Expected], output: Expected
) -> dict[str, Expected]:
    """Return the expected parameters of weights under the first grouping in which no multiplier is 0.

    A plugin with its own shifts has no shared multiplier. So it may keep the finest grouping.
    """
    rule, items, found = trial.target.platform.parameters, trial.spec.inputs, {}
    for place, size in enumerate(_group_sizes(trial, names[0], part)):
        found = {
            n: expected_weights.weight(trial.tensors[n].double().numpy(), part, rule, items[n].channel_axis, size)
            for n in names
        }
        if size is None or not unifies_shifts(trial):
            break
        # a plugin may keep the finest grouping although its smallest multiplier is 0
        if place == 0 and is_replaced(trial) and _provides(trial, names[0], found[names[0]]):
            break
        if _least_multiplier(trial, [*inputs.values()], [*found.values()], output) > 0:
            break
    return found


def _group_sizes(trial: Trial, name: str, part: WeightPart) -> Sequence[int | None]:
    """Return the sizes of groups of channels that a rule may try, the finest first; None: one scale per channel."""
    platform, axis = trial.target.platform, trial.spec.inputs[name].channel_axis
    if axis is None:
        return [None]
    channels = trial.case.shapes[name][axis]
    groups = int(trial.bound.get(platform.parameters.weight_groups or "", 1))
    return expected_weights.weight_groups(part, platform, channels, groups, shared=channels < _channels(trial))


def _least_multiplier(trial: Trial, inputs: list[Expected], weights: list[Expected], output: Expected) -> float:
    """Return the smallest multiplier of all channels under one shift."""
    outputs = _channels(trial)
    spread = [expected_weights.repeated(one, outputs) for one in weights]
    ratios = expected_multipliers.product_ratios(
        [*inputs, *spread], output, outputs or max(one.scale.size for one in spread)
    )
    common = expected_multipliers.unified(ratios, multiplier_bits(trial), shifts_of(trial))
    return min(mantissa for mantissa, _ in common)


def _channels(trial: Trial) -> int:
    """Return the size of the output along its channel axis; 0 if it has no such axis."""
    axis = channel_axis(trial.spec, trial.bound, len(trial.output_shape))
    return 0 if axis is None else trial.output_shape[axis]


def _provides(trial: Trial, name: str, wanted: Expected) -> bool:
    constant = trial.parameters.constants.get(name)
    return constant is not None and np.array_equal(constant.params.scale.numpy(), wanted.scale)


def _constants(trial: Trial, inputs: Mapping[str, Expected], weights: Mapping[str, Expected]) -> Iterator[Finding]:
    part = trial.target.scheme.weight
    if part is None:
        return
    for name, wanted in weights.items():
        constant = trial.parameters.constants.get(name)
        yield from _parameter_findings(name, constant.params if constant else None, wanted)
        if constant is not None:
            yield from code_findings(trial, name, constant.codes.numpy(), wanted, trial.spec.inputs[name].channel_axis)
    for name, item in trial.spec.inputs.items():
        if item.role != "bias" or name not in trial.tensors:
            continue
        constant = trial.parameters.constants.get(name)
        if constant is None:
            yield Finding(name, math.inf, "codes", "nothing", "every constant is decided")
            continue
        spread = [
            # the bias is added under the largest scale of a channel's blocks
            expected_weights.repeated(expected_weights.coarsest(wanted), _channels(trial))
            for wanted in weights.values()
        ]
        wanted = _bias(trial, [*inputs.values(), *spread], part.bias_bits)
        yield from _bias_params(trial, name, constant.params, wanted)
        if is_held(trial, name) and wanted.steps is not None:
            yield from held_bias_findings(trial, name, constant.codes.numpy(), wanted, next(iter(weights)))
        else:
            yield from code_findings(trial, name, constant.codes.numpy(), wanted, item.channel_axis or 0)


def _bias_params(trial: Trial, name: str, chosen: QParams, wanted: Expected) -> Iterator[Finding]:
    """Judge a bias's scale: equal for a built-in rule; a plugin may multiply scales in float32 in another order."""
    if not is_replaced(trial):
        yield from _parameter_findings(name, chosen, wanted)
        return
    rule, scale = np.broadcast_arrays(np.atleast_1d(wanted.scale), np.atleast_1d(chosen.scale.numpy()))
    away = np.abs(scale / rule - 1.0) / FLOAT32_CODES
    index = (int(np.argmax(away)),)
    shown = rule[index], scale[index]
    yield Finding(
        name,
        float(away[index]),
        f"scale {shown[0]!r}",
        f"{shown[1]!r}",
        "the product of the scales it is added under",
        index,
    )
    offset = bool((chosen.zero_point != 0).any())
    yield Finding(name, math.inf if offset else 0.0, "zero point 0", f"{chosen.zero_point.tolist()}", "a bias has none")


def _bias(trial: Trial, factors: list[Expected], bits: int) -> Expected:
    """Return the parameters of a bias: the product of the scales that it is added under."""
    scale: Array = np.array(1.0)
    steps: Array | None = np.array(1.0, dtype=np.float32)
    for factor in factors:
        scale = scale * factor.scale
        steps = steps * factor.steps if steps is not None and factor.steps is not None else None
    if trial.target.platform.quantizer.operation in ("divide_float32", "inverse_float32"):
        scale = scale.astype(np.float32).astype(np.float64)
    return Expected(
        integer(bits, signed=True),
        scale,
        np.zeros_like(scale, dtype=np.int64),
        -(2 ** (bits - 1)),
        2 ** (bits - 1) - 1,
        steps,
    )
