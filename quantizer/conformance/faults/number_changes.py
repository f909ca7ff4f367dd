"""Small changes to how sums become codes: rounding, multipliers, accumulators, biases, channels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from quantizer.conformance.faults.fault import Wrap
from quantizer.core.dtypes import integer
from quantizer.core.variants import Variant
from quantizer.numerics.kernels import Overflow
from quantizer.numerics.qparams import Parameters, QParams, Rescale, Staged
from quantizer.numerics.ratio_to_multiplier import fixed_point, q15
from quantizer.numerics.rounding import divide
from quantizer.ops.registry import Function

WIDE = integer(48, signed=True)
EXTRA_BITS = 2


def double_rounding(original: Function) -> Function:
    """Round to two binary places of a code first, then to the code."""

    def faulty(*operands: Tensor, parameters: Parameters, **named: Any) -> Tensor | Staged:
        if parameters.rescale is None:
            result: Tensor | Staged = original(*operands, parameters=parameters, **named)
            return result
        output = parameters.outputs["y"]
        outcome = original(*operands, parameters=finer(parameters, EXTRA_BITS), **named)
        codes = outcome.codes if isinstance(outcome, Staged) else outcome
        rounded = divide(codes, 1 << EXTRA_BITS, "half_even") + output.zero_point
        # `finer` takes the zero point and the clamp away, so they are applied after the second rounding
        codes = rounded.clamp(output.qmin, output.qmax)
        staged: Tensor | Staged = replace(outcome, codes=codes) if isinstance(outcome, Staged) else codes
        return staged

    return faulty


def finer(p: Parameters, bits: int) -> Parameters:
    """Return parameters for unclipped codes in units of 2**-bits of a step; whole steps without a multiplier."""
    zero = torch.zeros_like(p.outputs["y"].zero_point)
    wide = replace(p.outputs["y"], dtype=WIDE, qmin=WIDE.min, qmax=WIDE.max, zero_point=zero)
    if p.rescale is None:
        return replace(p, outputs={**p.outputs, "y": wide})
    # each requantization is made 2**bits larger where it stays exact: divisor, factors, multiplier or shift
    if p.rescale.variant in ("exact", "f32_dequantized"):
        ratio = replace(p.rescale, divisor=p.rescale.divisor / (1 << bits))
    elif p.rescale.factors and p.rescale.variant in ("f32_even", "f32_even_zpin"):
        ratio = replace(p.rescale, factors=times(p.rescale.factors, 1 << bits))
    elif p.rescale.variant in ("f32_even", "f32_even_zpin", "half_away", "multiplier_shift"):
        ratio = replace(p.rescale, mantissa=p.rescale.mantissa * (1 << bits))
    else:
        ratio = replace(p.rescale, shift=p.rescale.shift - bits)
    return replace(p, rescale=ratio, outputs={**p.outputs, "y": wide})


def times(factors: Mapping[str, float], by: float) -> dict[str, float]:
    """Return *factors* multiplied."""
    return {name: factor * by for name, factor in factors.items()}


def truncated_bits(count: int) -> Callable[[Tensor], Tensor]:
    """Cut a multiplier after *count* significant bits."""

    def change(mantissa: Tensor) -> Tensor:
        fraction, exponent = torch.frexp(mantissa)
        return torch.ldexp(torch.floor(fraction * 2.0**count) / 2.0**count, exponent)

    return change


def requantized_as(variant: Variant) -> Callable[[Parameters], Parameters]:
    """Bring a sum to codes by another system's requantization of the same real ratio."""

    def changed(p: Parameters) -> Parameters:
        known = p.rescale
        # these ratios are no plain multiplier of one sum
        if known is None or known.factors or known.variant in ("f32_dequantized", "area_multiplier"):
            return p
        real = known.mantissa * torch.exp2(-known.shift.double()) / known.divisor
        return replace(p, rescale=_as(variant, real, known))

    return changed


def _as(variant: Variant, real: Tensor, known: Rescale) -> Rescale:
    if variant in ("f32_even", "half_away"):
        mantissa = real.float().double() if variant == "f32_even" else real
        return replace(known, variant=variant, mantissa=mantissa, shift=torch.zeros_like(known.shift), divisor=1.0)
    mantissa, shift = q15(real) if variant == "q15_half_up" else fixed_point(real)
    return replace(known, variant=variant, mantissa=mantissa.double(), shift=shift, divisor=1.0)


def accumulator(bits: int, overflow: Overflow = "wrap") -> Callable[[Parameters], Parameters]:
    """Hold sums in fewer bits."""

    def changed(p: Parameters) -> Parameters:
        held = p.platform.accumulator.model_copy(update={"overflow": overflow})
        return replace(p, platform=p.platform.model_copy(update={"accumulator": held}), accumulator_bits=bits)

    return changed


def sums(change: Callable[..., Tensor]) -> Wrap:
    """Change exact sums before they become codes: change(sums, operands, parameters)."""

    def wrap(original: Function) -> Function:
        def faulty(*operands: Tensor, parameters: Parameters, **named: Any) -> Tensor:
            found: Tensor = original(*operands, parameters=parameters, **named)
            return change(found, {n: v for n, v in named.items() if isinstance(v, Tensor)}, parameters)

        return faulty

    return wrap


def without_product_of_zeros(original: Function) -> Function:
    """Leave out the contribution of both zero points to a sum of K products: z_a * z_b * K."""

    def faulty(*, parameters: Parameters, **named: Any) -> Tensor:
        found: Tensor = original(parameters=parameters, **named)
        # centred operands of 1: the forward then counts the products of each sum
        ones = {n: torch.ones_like(v) + _zero(v, n, parameters) for n, v in named.items() if _is_operand(n, v)}
        counts: Tensor = original(parameters=parameters, **{**named, **ones})
        first, second = (int(params.zero_point) for params in list(parameters.inputs.values())[:2])
        return found - first * second * counts

    return faulty


def bias_after_rounding(original: Function) -> Function:
    """Bring sums and bias to codes separately, then add the codes."""

    def faulty(*operands: Tensor, parameters: Parameters, **named: Any) -> Tensor | Staged:
        bias = named.get("bias")
        if bias is None:
            result: Tensor | Staged = original(*operands, parameters=parameters, **named)
            return result
        codes: Tensor = original(*operands, parameters=parameters, **{**named, "bias": None})
        # centred operands of 0: only the bias is left
        apart = {n: torch.zeros_like(v) + _zero(v, n, parameters) for n, v in named.items() if _is_operand(n, v)}
        alone: Tensor = original(*operands, parameters=parameters, **{**named, **apart, "bias": bias})
        output = parameters.outputs["y"]
        return (codes + alone - output.zero_point).clamp(output.qmin, output.qmax)

    return faulty


def _is_operand(name: str, value: object) -> bool:
    return isinstance(value, Tensor) and name not in ("bias", "weight")


def _zero(values: Tensor, name: str, p: Parameters) -> Tensor:
    params: QParams = p.inputs[name]
    return params.along(params.zero_point, values.dim())


def bias_of_first_channel(original: Function) -> Function:
    """Bring the bias of all channels to codes by the scale of the first channel."""

    def faulty(request: Any) -> Parameters:
        found: Parameters = original(request)
        constants = dict(found.constants)
        for name, held in found.constants.items():
            if request.spec.inputs[name].role == "bias" and held.params.scale.dim():
                # codes of every channel in the unit of the first one
                ratio = held.params.scale / held.params.scale[0]
                codes = torch.round(held.codes * ratio).long().clamp(held.params.qmin, held.params.qmax)
                constants[name] = replace(held, codes=codes)
        return replace(found, constants=constants)

    return faulty


def last_channel_stale(p: Parameters) -> Parameters:
    """Give the last channel the multiplier of the one before."""
    if p.rescale is None or p.rescale.mantissa.numel() < 2:
        return p
    mantissa, shift = p.rescale.mantissa.clone(), p.rescale.shift.clone()
    mantissa[-1], shift[-1] = mantissa[-2], shift[-2]
    return replace(p, rescale=replace(p.rescale, mantissa=mantissa, shift=shift))


def multiplied_along_last(original: Function) -> Function:
    """Apply the multipliers along the last axis if its size equals the number of channels."""

    def faulty(*operands: Tensor, parameters: Parameters, **named: Any) -> Tensor | Staged:
        result: Tensor | Staged = original(*operands, parameters=parameters, **named)
        shape, ratio = (result.codes if isinstance(result, Staged) else result).shape, parameters.rescale
        # where the sizes differ, a kernel with this mistake would fail instead of giving other codes
        if ratio is None or ratio.mantissa.dim() == 0 or ratio.mantissa.numel() != shape[-1]:
            return result
        turned = replace(parameters, rescale=replace(ratio, axis=len(shape) - 1))
        again: Tensor | Staged = original(*operands, parameters=turned, **named)
        return again

    return faulty


def multiplier_in_place(original: Function) -> Function:
    """Run, then double the provided multiplier where it lies."""

    def faulty(*operands: Tensor, parameters: Parameters, **named: Any) -> Tensor | Staged:
        result: Tensor | Staged = original(*operands, parameters=parameters, **named)
        if parameters.rescale is not None:
            parameters.rescale.mantissa.mul_(2)
        return result

    return faulty
