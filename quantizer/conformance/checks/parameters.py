"""parameters: what the quantize rule chose, before anything runs (VERDICTS, "parameters")."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quantizer.conformance import restated
from quantizer.conformance.bounds.rounding import rational_codes
from quantizer.conformance.restated import Expected
from quantizer.conformance.trial import Trial
from quantizer.core.verdict import Verdict, Worst
from quantizer.numerics.qparams import QParams, Rescale, Table
from quantizer.ops import BUILT_IN, REGISTRY

Array = NDArray[Any]
CHECK = "parameters"
FLOAT32_CODES = 2.0**-22
FLOAT32_ENTRIES = 2.0**-21
FLOAT32_TINY = 2.0**-149


@dataclass(frozen=True)
class Finding:
    """One number that was judged: `ratio` above 1 is a fault."""

    tensor: str
    ratio: float
    expected: str
    got: str
    rule: str
    index: tuple[int, ...] = ()


def parameters(trial: Trial) -> Verdict:
    """Judge scales, zero points, codes of constants, multipliers and tables against the platform's rule."""
    findings = [*_findings(trial)]
    if not findings:
        return Verdict(CHECK, "pass")
    worst = max(findings, key=lambda finding: finding.ratio)
    failed = [finding for finding in findings if not finding.ratio <= 1.0]
    return Verdict(
        CHECK,
        "fail" if failed else "pass",
        ratio=worst.ratio,
        elements=len(findings),
        failed=len(failed),
        worst=Worst(worst.tensor, worst.index, worst.expected, worst.got, worst.rule),
    )


def _findings(trial: Trial) -> Iterator[Finding]:
    target, case = trial.target, trial.case
    rule, scheme = target.platform.parameters, target.scheme
    inputs: dict[str, Expected] = {}
    for name in trial.spec.activations:
        if name not in case.shapes:
            continue
        signed = restated.input_sign(case.ranges[name], rule)
        inputs[name] = restated.activation(case.ranges[name], scheme.activation, rule, signed=signed)
        yield from _same(name, trial.parameters.inputs.get(name), inputs[name])
    outputs = {
        name: restated.output(trial.spec, name, scheme, target.platform, case.ranges, inputs)
        for name in trial.spec.outputs
    }
    for name, wanted in outputs.items():
        yield from _same(name, trial.parameters.outputs.get(name), wanted)
    weights = _weights(trial, inputs, outputs["y"])
    yield from _constants(trial, inputs, weights)
    yield from _multiplier(trial, [*inputs.values(), *weights.values()], outputs["y"])
    for name, table in trial.parameters.tables.items():
        yield from _table(trial, name, table)


def _same(name: str, chosen: QParams | None, wanted: Expected) -> Iterator[Finding]:
    """Scale, zero point, codes and format equal the rule's to the last bit."""
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
    if wanted.steps is not None and chosen.steps is not None:
        pairs.append(("steps", chosen.steps.numpy(), wanted.steps))
    for what, got, expected in pairs:
        if np.shape(got) != np.shape(expected):
            yield Finding(
                name, math.inf, f"{what} of shape {np.shape(expected)}", f"{np.shape(got)}", "the rule's granularity"
            )
            continue
        wrong = np.argwhere(np.atleast_1d(got != expected))
        if wrong.size:
            index = tuple(int(i) for i in wrong[0])
            shown = np.atleast_1d(expected)[index], np.atleast_1d(got)[index]
            yield Finding(
                name, math.inf, f"{what} {shown[0]!r}", f"{shown[1]!r}", f"the platform's rule for {what}", index
            )
        else:
            yield Finding(name, 0.0, what, what, f"the platform's rule for {what}")
    if chosen.dtype.kind != wanted.dtype.kind or chosen.dtype.bits != wanted.dtype.bits:
        yield Finding(name, math.inf, f"format {wanted.dtype}", f"{chosen.dtype}", "the platform's rule for formats")


def _weights(trial: Trial, inputs: Mapping[str, Expected], output: Expected) -> dict[str, Expected]:
    """Return what the rule chooses for every weight; the first grouping under which no shared multiplier is 0.

    A plugin with shifts of its own has no shared multiplier: it may keep the finest grouping.
    """
    part, platform = trial.target.scheme.weight, trial.target.platform
    names = [n for n, item in trial.spec.inputs.items() if item.role == "weight" and n in trial.tensors]
    if part is None or not names:
        return {}
    axis = trial.spec.inputs[names[0]].channel_axis
    channels = trial.case.shapes[names[0]][axis or 0]
    groups = int(trial.bound.get(platform.parameters.weight_groups or "", 1))
    found: dict[str, Expected] = {}
    sizes = restated.weight_groups(part, platform, channels, groups) if axis is not None else [None]
    for place, size in enumerate(sizes):
        found = {
            name: restated.weight(
                trial.tensors[name].double().numpy(), part, platform.parameters,
                trial.spec.inputs[name].channel_axis, size,
            )
            for name in names
        }  # fmt: skip
        if size is None or not platform.multiplier.unify_shifts:
            break
        if place == 0 and _replaced(trial) and _hands(trial, names[0], found[names[0]]):
            break
        ratios = restated.product_ratios([*inputs.values(), *found.values()], output, channels)
        if min(mantissa for mantissa, _ in restated.unified(ratios, _multiplier_bits(trial))) > 0:
            break
    if not platform.parameters.weights_hold_bias:
        return found
    for bias in (n for n, item in trial.spec.inputs.items() if item.role == "bias" and n in trial.tensors):
        factor, values = float(next(iter(inputs.values())).scale), trial.tensors[bias].numpy()
        found = {n: restated.holding_bias(wanted, values, factor, part.bias_bits) for n, wanted in found.items()}
    return found


def _hands(trial: Trial, name: str, wanted: Expected) -> bool:
    constant = trial.parameters.constants.get(name)
    return constant is not None and np.array_equal(constant.params.scale.numpy(), wanted.scale)


def _constants(trial: Trial, inputs: Mapping[str, Expected], weights: Mapping[str, Expected]) -> Iterator[Finding]:
    part = trial.target.scheme.weight
    if part is None:
        return
    for name, wanted in weights.items():
        constant = trial.parameters.constants.get(name)
        yield from _same(name, constant.params if constant else None, wanted)
        if constant is not None:
            yield from _codes(trial, name, constant.codes.numpy(), wanted, trial.spec.inputs[name].channel_axis)
    for name, item in trial.spec.inputs.items():
        if item.role != "bias" or name not in trial.tensors:
            continue
        constant = trial.parameters.constants.get(name)
        if constant is None:
            yield Finding(name, math.inf, "codes", "nothing", "every constant is decided")
            continue
        wanted = _bias(trial, [*inputs.values(), *weights.values()], part.bias_bits)
        yield from _codes(trial, name, constant.codes.numpy(), wanted, 0)


def _bias(trial: Trial, factors: list[Expected], bits: int) -> Expected:
    """Return the parameters of a bias: the product of the scales that it is added under."""
    scale: Array = np.array(1.0)
    steps: Array | None = np.array(1.0, dtype=np.float32)
    for factor in factors:
        scale = scale * factor.scale
        steps = steps * factor.steps if steps is not None and factor.steps is not None else None
    if trial.target.platform.quantizer.operation == "divide_float32":
        scale = scale.astype(np.float32).astype(np.float64)
    kind = factors[0].dtype
    return Expected(kind, scale, np.zeros_like(scale, dtype=np.int64), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1, steps)


def _codes(trial: Trial, name: str, got: Array, wanted: Expected, axis: int | None) -> Iterator[Finding]:
    """Codes are the nearest grid value of the clamped float; exact ties by the declared mode."""
    values = trial.tensors[name].double().numpy()
    if got.shape != values.shape:
        yield Finding(name, math.inf, f"codes of shape {values.shape}", f"{got.shape}", "one code per value")
        return
    if not values.size:
        return
    scale, zero = (_along(part, values.ndim, axis) for part in (wanted.scale, wanted.zero_point))
    quantizer = trial.target.platform.quantizer
    exact = values / scale
    slack = 0.0 if quantizer.operation == "exact" else FLOAT32_CODES * np.abs(exact)
    slack = slack + 2.0**-45 * np.abs(exact)
    real = np.clip(exact, wanted.qmin - zero - 0.49, wanted.qmax - zero + 0.49)
    away = np.abs(got - zero - real)
    ratio = np.where(
        (got == wanted.qmin) & (exact <= wanted.qmin - zero) | (got == wanted.qmax) & (exact >= wanted.qmax - zero),
        0.0,
        away / (0.5 + slack),
    )
    ratio = np.where((got < wanted.qmin) | (got > wanted.qmax), math.inf, ratio)
    ratio = np.maximum(ratio, _tie_faults(exact, got, np.broadcast_to(zero, values.shape), trial, wanted))
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(ratio)), ratio.shape))
    yield Finding(
        name, float(ratio[index]), f"{exact[index]:.9g} + {int(np.broadcast_to(zero, values.shape)[index])}",
        f"code {int(got[index])}", "the nearest code, ties by the declared mode", index,
    )  # fmt: skip


def _tie_faults(exact: Array, got: Array, zero: Array, trial: Trial, wanted: Expected) -> Array:
    """Return inf where a value lies exactly between two codes and the code is not the declared mode's.

    Judged only where the platform's own division is exact: powers of two, or exact arithmetic.
    """
    quantizer = trial.target.platform.quantizer
    faults = np.zeros(exact.shape)
    if not _is_exact(wanted, quantizer.operation):
        return faults
    twice = exact * 2
    for place in map(tuple, np.argwhere((twice == np.rint(twice)) & (np.rint(twice) % 2 != 0))):
        inner = int(zero[place]) if quantizer.zero_point == "before" else 0
        code = rational_codes(Fraction(float(exact[place])) + inner, quantizer.rounding)[0] + int(zero[place]) - inner
        if min(wanted.qmax, max(wanted.qmin, code)) != got[place]:
            faults[place] = math.inf
    return faults


def _is_exact(wanted: Expected, operation: str) -> bool:
    """True where dividing by every scale is exact in the platform's float type: all are powers of two."""
    if operation == "exact":
        return True
    mantissa, _ = np.frexp(np.atleast_1d(wanted.scale))
    return bool((mantissa == 0.5).all())


def _along(values: Array, rank: int, axis: int | None) -> Array:
    if values.ndim == 0 or axis is None:
        return values
    return values.reshape([-1 if i == axis else 1 for i in range(rank)])


def _multiplier(trial: Trial, factors: list[Expected], output: Expected) -> Iterator[Finding]:
    rescale = trial.parameters.rescale
    if rescale is None:
        return
    if trial.spec.error_model.kind == "linear":
        yield from _sum_multiplier(trial, rescale)
    elif trial.spec.error_model.kind == "bilinear":
        if rescale.variant == "multiplier_shift" and not _replaced(trial):
            yield from _restated_multiplier(trial, rescale, factors, output)
        else:
            yield from _product_multiplier(trial, rescale)


def _multiplier_bits(trial: Trial) -> int:
    rule = trial.target.platform.multiplier
    bits = trial.target.scheme.activation.bits if rule.bits == "activation" else rule.bits
    return min(bits, rule.bits_ceiling)


def _restated_multiplier(
    trial: Trial, rescale: Rescale, factors: list[Expected], output: Expected
) -> Iterator[Finding]:
    """Multipliers and shifts of a built-in rule equal the rule's, restated, for every channel."""
    mantissas, shifts = np.atleast_1d(rescale.mantissa.numpy()), np.atleast_1d(rescale.shift.numpy())
    ratios = restated.product_ratios(factors, output, mantissas.size)
    bits = _multiplier_bits(trial)
    if rescale.mantissa.dim() and trial.target.platform.multiplier.unify_shifts:
        wanted = restated.unified(ratios, bits)
    else:
        wanted = [restated.compass_multiplier(ratio, bits) for ratio in ratios]
    for channel, (expected, mantissa, shift) in enumerate(zip(wanted, mantissas, shifts, strict=True)):
        same = expected == (float(mantissa), int(shift))
        yield Finding(
            f"multiplier[{channel}]", 0.0 if same else math.inf, f"{int(expected[0])} * 2**-{expected[1]}",
            f"{int(mantissa)} * 2**-{int(shift)}", f"the rule's multiplier of {bits} bits",
        )  # fmt: skip


def _replaced(trial: Trial) -> bool:
    entry = REGISTRY.find(trial.spec.op, "quantize", trial.target.platform.platform)
    return entry is not None and entry.origin not in (BUILT_IN, "override")


def _product_multiplier(trial: Trial, rescale: Rescale) -> Iterator[Finding]:
    """One multiplier per channel for the ratio of scales: exact, float32 to the last bit, or an integer and a shift."""
    params = [trial.qparams(name) for name in trial.tensors if trial.spec.inputs[name].role != "bias"]
    mantissas = np.atleast_1d(rescale.mantissa.numpy())
    shifts = np.broadcast_to(np.atleast_1d(rescale.shift.numpy()), mantissas.shape)
    columns = [np.broadcast_to(p.scale.numpy(), mantissas.shape) for p in params]
    output = float(trial.output.scale)
    for channel, (mantissa, shift) in enumerate(zip(mantissas, shifts, strict=True)):
        scales = [float(column[channel]) for column in columns]
        yield _one_multiplier(trial, rescale, float(mantissa), int(shift), scales, output, channel)


def _one_multiplier(
    trial: Trial, rescale: Rescale, mantissa: float, shift: int, scales: list[float], output: float, channel: int
) -> Finding:
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
    return _integer_multiplier(trial, name, mantissa, shift, ratio)


def _integer_multiplier(trial: Trial, name: str, mantissa: float, shift: int, ratio: Fraction) -> Finding:
    """An unsigned integer near the ratio: half a unit under the rule's own shift, or `bits` of it under another one."""
    rule, bits = trial.target.platform.multiplier, _multiplier_bits(trial)
    got = Fraction(mantissa) / Fraction(2) ** shift
    shown, wanted = f"{int(mantissa)} * 2**-{shift} = {float(got):.9g}", f"{float(ratio):.9g}"
    if mantissa != int(mantissa) or not 0 <= mantissa < 2 ** max(bits, 16):
        return Finding(name, math.inf, wanted, shown, f"an unsigned integer of at most {max(bits, 16)} bits")
    own = shift in restated.shift_choices(ratio, bits, rule.shift_ceiling)
    allowed = Fraction(1, 2) / Fraction(2) ** shift if own else ratio / 2**bits
    allowed += ratio * Fraction(FLOAT32_CODES)
    text = "half a unit of the rule's shift" if own else f"{bits} bits of the ratio under another shift"
    return Finding(name, float(abs(got - ratio) / allowed), wanted, shown, text)


def _sum_multiplier(trial: Trial, rescale: Rescale) -> Iterator[Finding]:
    """Factors of a sum: the exact scales, float32 ratios to the last bit, or the rule's integers."""
    output = trial.output
    params = trial.parameters.inputs
    if rescale.variant == "multiplier_shift":
        yield from _integer_factors(trial, rescale)
        return
    for name, factor in rescale.factors.items():
        got = (
            Fraction(factor)
            * Fraction(float(rescale.mantissa))
            / Fraction(2) ** int(rescale.shift)
            / Fraction(rescale.divisor)
        )
        if rescale.variant == "exact":
            wanted = Fraction(float(params[name].scale)) / Fraction(float(output.scale))
        else:
            wanted = Fraction(float(np.float32(float(params[name].scale)) / np.float32(float(output.scale))))
        yield Finding(
            f"factor[{name}]", 0.0 if got == wanted else math.inf, f"{float(wanted)!r}", f"{float(got)!r}", "s_x / s_y",
        )  # fmt: skip


def _integer_factors(trial: Trial, rescale: Rescale) -> Iterator[Finding]:
    names = list(trial.parameters.inputs)
    bits = trial.target.scheme.activation.bits
    output = trial.output
    got = (float(rescale.mantissa), int(rescale.shift), *(rescale.factors.get(name, 1.0) for name in names))
    if not _replaced(trial):
        first, second = (trial.parameters.inputs[name] for name in names)
        steps = [p.steps if p.steps is not None else (1.0 / p.scale).float() for p in (first, second, output)]
        equal_zero = int(first.zero_point) == int(second.zero_point)
        step_a, step_b, step_y = (s.numpy() for s in steps)
        wanted = restated.compass_sum(step_a, step_b, step_y, bits, equal_zero=equal_zero)
        for what, expected, chosen in zip(
            ("multiplier", "shift", *(f"factor[{n}]" for n in names)), wanted, got, strict=True
        ):
            yield Finding(
                what, 0.0 if expected == chosen else math.inf, f"{expected}", f"{chosen}", "Compass's rule for sums"
            )
        return
    one = got[0] * 2.0 ** -got[1]
    rounded = 0.5 * one if any(factor != 1.0 for factor in got[2:]) else 0.0
    unit = 2.0 ** -got[1] if got[1] >= trial.target.platform.multiplier.shift_ceiling else 0.0
    for name, factor in zip(names, got[2:], strict=True):
        ratio = float(trial.parameters.inputs[name].scale) / float(output.scale)
        allowed = ratio * (2.0**-bits + 2.0**-15 + 2.0**-20) + rounded + 0.5 * unit * factor
        gain = factor * one
        yield Finding(
            f"factor[{name}]",
            abs(gain - ratio) / allowed,
            f"{ratio:.9g}",
            f"{gain:.9g}",
            f"within {bits} bits of s_x / s_y",
        )


def _table(trial: Trial, name: str, table: Table) -> Iterator[Finding]:
    """Each entry is within half a unit (and the declared float32 budget) of f at the code that indexes it."""
    entries = table.entries.numpy().astype(np.float64)
    places = table.first + table.step * np.arange(entries.size)
    found = _exponentials(trial, table, places) if name == "exp" else _function_codes(trial, places)
    if found is None:
        return
    wanted, budget = found
    half = FLOAT32_TINY if table.entries.dtype.is_floating_point else 0.5
    ratio = np.abs(entries - wanted) / (half + budget)
    index = int(np.argmax(ratio))
    yield Finding(
        f"table {name}", float(ratio[index]), f"{wanted[index]:.9g}", f"{entries[index]:.9g}",
        "half a unit of f at the code that indexes the entry", (index,),
    )  # fmt: skip


def _exponentials(trial: Trial, table: Table, places: Array) -> tuple[Array, Array]:
    """Return exp at each distance from the largest code, in units of the table, and what float32 may lose of it."""
    params = trial.parameters.inputs[trial.spec.activations[0]]
    scale, zero = float(params.scale), abs(int(params.zero_point))
    wanted = np.exp(np.minimum(places, 0) * scale) / table.unit
    if trial.target.platform.quantizer.operation == "exact":
        return wanted, 2.0**-45 * wanted
    summed = (np.abs(places) + 2 * zero) * scale + abs(math.log(table.unit))
    return wanted, np.maximum(FLOAT32_ENTRIES, 4 * 2.0**-24 * summed) * wanted


def _function_codes(trial: Trial, places: Array) -> tuple[Array, Array] | None:
    """Return sat(f) in output codes at each input code, and its budget; None where f has not one input and one scale."""
    operands = list(trial.case.shapes)
    if len(operands) != 1 or trial.spec.outputs["y"].kind != "value":
        return None
    params, output = trial.parameters.inputs[operands[0]], trial.output
    values = (torch.from_numpy(places) - params.zero_point).double() * params.scale
    real = trial.reference({operands[0]: values}) / float(output.scale) + int(output.zero_point)
    if real.shape != places.shape:
        return None
    slack = 2.0**-45 if trial.target.platform.quantizer.operation == "exact" else FLOAT32_ENTRIES
    budget = slack * np.minimum(np.abs(real), output.qmax - output.qmin + 1.0)
    return np.clip(real, output.qmin, output.qmax), budget
