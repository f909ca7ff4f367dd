"""Requantization: from an exact accumulator to output codes, one function per variant that platform files name.

Every variant except `exact` restates a real engine bit for bit. The tests of this module name the engine and the
number of elements on which it was compared.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from quantizer.core.errors import GraphError, UnsupportedError
from quantizer.core.platform_settings import FirstRounding
from quantizer.core.rounding_modes import RoundingMode
from quantizer.core.variants import Variant
from quantizer.numerics.exact_sum import exact_sum, store_codes
from quantizer.numerics.integer_requantize import requantize_integers
from quantizer.numerics.qparams import QParams, Rescale
from quantizer.numerics.ratio_to_multiplier import LARGEST_SHIFT, fixed_point
from quantizer.numerics.rounding import round_tensor

_BLOCK = 1 << 18
"""Tensors of more elements are processed in blocks that fit the cache."""
EIGHT = 8
"""The number of channels of a vector."""
MANTISSA_BITS = 31
FURTHEST = 20
"""Left shift under which every sum but 0 saturates 16-bit codes, even after a 15-bit multiplier."""


def requantize(
    acc: Tensor,
    rescale: Rescale,
    out: QParams,
    *,
    channel_axis: int | None = None,
    rounding: RoundingMode = "half_even",
    first: FirstRounding | None = None,
    seed: int = 0,
) -> Tensor:
    """Return int64 codes of *acc* times the numbers of *rescale*, clamped to [out.qmin, out.qmax].

    *acc* holds integers in any dtype (int32 and float32 are the fastest). *rounding* is the mode of `exact`,
    `multiplier_shift` and integer variants. Every other variant has its own mode. *first*: the rounding of
    `multiplier_shift` before the final one.
    """
    if rescale.variant == "q31_half_up_in_8_lanes":
        return _in_8_lanes(acc, rescale, out, channel_axis)
    mantissa, shift = _along(rescale, acc, channel_axis)
    zero = out.along(out.zero_point, acc.dim())
    codes = torch.empty(acc.shape, dtype=torch.int64)
    axis = next((i for i, size in enumerate(acc.shape) if size > 1), 0)
    # stochastic rounding draws by the flat index in the whole tensor, which a block does not know
    if acc.numel() <= _BLOCK or rounding == "stochastic":
        _requantize_block(acc, mantissa, shift, zero, codes, rescale, out, rounding, first, seed)
        return codes
    step = max(1, acc.shape[axis] * _BLOCK // acc.numel())
    for start in range(0, acc.shape[axis], step):
        length = min(step, acc.shape[axis] - start)
        m, s, z = (_part(t, axis, start, length) for t in (mantissa, shift, zero))
        part, into = acc.narrow(axis, start, length), codes.narrow(axis, start, length)
        _requantize_block(part, m, s, z, into, rescale, out, rounding, first, seed)
    return codes


def requantize_sum(
    terms: Mapping[str, Tensor],
    rescale: Rescale,
    out: QParams,
    *,
    inputs: Mapping[str, QParams] | None = None,
    rounding: RoundingMode = "half_even",
    seed: int = 0,
    float32: bool = False,
    minus: Collection[str] = (),
    places: int = 0,
    first: FirstRounding | None = None,
) -> Tensor:
    """Return int64 codes of `sum(factor * term)`, terms being centred codes (int64) that broadcast.

    *minus*: operands that are subtracted. If operands are rounded, that differs from adding the negated operand.
    *float32*: multiplier_shift rounds the sum to float32 before it is multiplied. *places*: the left shift of terms
    under q31_double. *first*: as in `requantize`.

    Terms are taken in the order of `rescale.factors`. *inputs*: the inputs' parameters; `f32_even_zpin` folds the
    zero points into a constant and rounds it.
    """
    order = list(rescale.factors)
    # operands that are rescaled one by one get their sign after rounding, in `_fixed_point_sum`
    if rescale.operands is None:
        terms = {name: -term if name in minus else term for name, term in terms.items()}
    names = sorted(terms, key=lambda name: order.index(name) if name in order else len(order))
    parts = [(terms[name], float(rescale.factors.get(name, 1.0))) for name in names]
    zero = out.along(out.zero_point, len(np.broadcast_shapes(*(t.shape for t in terms.values()))))
    if rescale.variant == "multiplier_shift":
        acc = weighted_sum(terms, rescale)
        return requantize(acc.float() if float32 else acc, rescale, out, rounding=rounding, first=first, seed=seed)
    if rescale.variant in ("exact", "f32_even", "f32_even_zpin", "f32_dequantized"):
        zeros = [int(inputs[name].zero_point) if inputs else 0 for name in names]
        return _real_sum(parts, zeros, zero, rescale, out, rounding, seed)
    if rescale.operands is None and rescale.variant not in ("q31_single", "q21_half_up") and len(rescale.factors) == 1:
        return requantize(parts[0][0], rescale, out)
    signs = [-1 if name in minus else 1 for name in names]
    return _fixed_point_sum(parts, signs, rescale, places).add_(zero).clamp_(out.qmin, out.qmax)


def weighted_sum(terms: Mapping[str, Tensor], rescale: Rescale, minus: Collection[str] = ()) -> Tensor:
    """Return `sum(factor * term)` of centred codes (int64): int64 if all factors are whole; *minus* are subtracted."""
    order = list(rescale.factors)
    names = sorted(terms, key=lambda name: order.index(name) if name in order else len(order))
    signed = {name: -terms[name] if name in minus else terms[name] for name in names}
    return functools.reduce(torch.add, (_times(signed[name], float(rescale.factors.get(name, 1.0))) for name in names))


def _real_sum(
    parts: list[tuple[Tensor, float]],
    zeros: list[int],
    zero: Tensor,
    rescale: Rescale,
    out: QParams,
    rounding: RoundingMode,
    seed: int,
) -> Tensor:
    """Return codes of a sum of real numbers: exact, or in float32 in the order of a real kernel."""
    terms, factors = [term for term, _ in parts], [factor for _, factor in parts]
    shape = np.broadcast_shapes(*(term.shape for term in terms))
    codes = torch.empty(shape, dtype=torch.int64)
    if rescale.variant == "exact":
        numbers = rescale.mantissa * torch.exp2(-rescale.shift.to(torch.float64))
        pairs = [(term.expand(shape), numbers * factor) for term, factor in parts]
        exact_sum(pairs, rescale.divisor, zero, codes, out, rounding, seed)
    elif rescale.variant == "f32_even_zpin":
        store_codes(codes, _fused_sum(terms, factors, zeros, zero).round_(), None, out)
    elif rescale.variant == "f32_even":
        products = [term.to(torch.float32) * factor for term, factor in parts]
        store_codes(codes, functools.reduce(torch.add, products).round(), zero, out)
    else:
        values = [term.to(torch.float32) * torch.tensor(factor).float() for term, factor in parts]
        total = functools.reduce(torch.add, values)
        store_codes(codes, (total / torch.tensor(rescale.divisor).float()).round(), zero, out)
    return codes


def _fixed_point_sum(parts: list[tuple[Tensor, float]], signs: list[int], rescale: Rescale, places: int) -> Tensor:
    """Return output codes as int64, before the zero point is added.

    With `rescale.operands`, each factor is a 31-bit multiplier that rounds its term, and the sum is rounded once more.
    Without it, q31_single has one operand, whose factor leads directly to the output. q21_half_up: whole factors, one
    shift. q31_double: terms shifted left by *places*, each factor a 31-bit multiplier (`rescale_left_shifted`), rounded
    twice.
    """
    variant = rescale.variant
    if rescale.operands is not None:
        scaled = [sign * _fixed(term, f, rescale.operands) for sign, (term, f) in zip(signs, parts, strict=True)]
    elif variant == "q31_single":
        ((term, factor),) = parts
        return _fixed(term, factor, variant)
    elif variant == "q21_half_up":
        scaled, variant = [_times(term, factor) for term, factor in parts], "q31_single"
    else:
        scaled, variant = [_left_shifted(term, factor, places) for term, factor in parts], "q31_double"
    total = functools.reduce(torch.add, scaled)
    return round_fixed_point(total, rescale.mantissa.to(torch.int64), rescale.shift, variant)


def in_8_lanes(channels: int) -> int:
    """Return *channels* rounded down to a multiple of 8."""
    return channels // EIGHT * EIGHT


def _in_8_lanes(acc: Tensor, rescale: Rescale, out: QParams, channel_axis: int | None) -> Tensor:
    """Return codes: channels in full blocks of eight rounded as `q31_half_up`, the remaining ones as `q31_double`.

    The kernel computes vectors of eight channels, then a scalar tail.
    """
    if channel_axis is None:
        raise GraphError("q31_half_up_in_8_lanes: channel_axis must say which axis of the sum has the channels.")
    axis = channel_axis % acc.dim()
    whole = in_8_lanes(acc.shape[axis])  # the kernel's vectors round once where its scalar tail rounds twice
    spans: list[tuple[Variant, int, int]] = [("q31_half_up", 0, whole), ("q31_double", whole, acc.shape[axis])]
    parts = [
        requantize(
            acc.narrow(axis, start, stop - start),
            replace(rescale.sliced(start, stop), variant=variant),
            out,
            channel_axis=channel_axis,
        )
        for variant, start, stop in spans
        if stop > start
    ]
    return torch.cat(parts, axis) if parts else acc.long()


def _times(term: Tensor, factor: float) -> Tensor:
    """Return int64 *term* times a whole factor as int64, or times a multiplier with its own shift as exact float64."""
    return term * int(factor) if factor == int(factor) else term.double() * factor


def _fused_sum(terms: list[Tensor], factors: list[float], zeros: list[int], zero: Tensor) -> Tensor:
    """Return the float32 sum that f32_even_zpin rounds, on x86-64 with FMA.

    fma(a, r_a, fma(b, r_b, z_y - fma(r_a, z_a, r_b * z_b))) on raw codes, shown on 7 million elements of u8 and s8. A
    fused step is a float64 sum rounded to float32 (products of a float32 and a code are exact in float64).
    """
    folded = torch.zeros((), dtype=torch.float64)
    for factor, z in zip(reversed(factors), reversed(zeros), strict=True):
        folded = (folded + factor * z).to(torch.float32).to(torch.float64)
    total = (zero.to(torch.float64) - folded).to(torch.float32)
    for term, factor, z in zip(reversed(terms), reversed(factors), reversed(zeros), strict=True):
        total = ((term + z).to(torch.float64) * factor + total.to(torch.float64)).to(torch.float32)
    return total


def _left_shifted(term: Tensor, factor: float, places: int) -> Tensor:
    """Return `(term << places) * factor` rounded twice, the factor being a multiplier of 31 bits (below 1).

    A factor below 2**-32 becomes 0, so that its operand has no effect on the sum.
    """
    if factor == 0:
        return torch.zeros_like(term)
    mantissa, shift = fixed_point(factor)
    return round_fixed_point(term << places, mantissa, shift, "q31_double")


def _fixed(term: Tensor, factor: float, variant: Variant) -> Tensor:
    """Return *term* times a multiplier of at most 31 bits and its shift, rounded as *variant* does."""
    fraction, exponent = math.frexp(factor)
    # at most 62 places to the right: a small multiplier drops its low bits instead
    lost = max(0, MANTISSA_BITS - exponent - LARGEST_SHIFT)
    mantissa = torch.tensor(int(fraction * 2.0**MANTISSA_BITS) >> lost)
    return round_fixed_point(term, mantissa, torch.tensor(MANTISSA_BITS - exponent - lost), variant)


def _requantize_block(
    acc: Tensor,
    mantissa: Tensor,
    shift: Tensor,
    zero: Tensor,
    codes: Tensor,
    rescale: Rescale,
    out: QParams,
    rounding: RoundingMode,
    first: FirstRounding | None,
    seed: int,
) -> None:
    """Write the codes of one block that fits the cache into *codes*."""
    variant = rescale.variant
    if variant in ("f32_even", "f32_even_zpin"):
        # float32 as in the engines: the accumulator is rounded first, then the product
        scaled = acc.to(torch.float32, copy=True).mul_(mantissa.to(torch.float32))
        if variant == "f32_even_zpin":
            store_codes(codes, scaled.add_(zero).round_(), None, out)
        else:
            store_codes(codes, scaled.round_(), zero, out)
    elif variant in ("multiplier_shift", "half_away"):
        mode: RoundingMode = "half_away" if variant == "half_away" else rounding
        # a sum below 2**38 times 15 bits is exact in float64; scaling by a power of two always is
        scaled = acc.to(torch.float64, copy=True).mul_(mantissa * torch.exp2(-shift.to(torch.float64)))
        if first is not None and variant == "multiplier_shift":
            unit = 2.0**-first.fraction_bits
            scaled = round_tensor(scaled / unit, first.rounding).mul_(unit)
        rounded = scaled.round_() if mode == "half_even" else round_tensor(scaled, mode, seed=seed)
        store_codes(codes, rounded, zero, out)
    elif variant == "exact":
        exact_sum([(acc, mantissa)], rescale.divisor, zero, codes, out, rounding, seed)
    elif variant in ("q31_wrapping_left", "q31_wrapping", "integer_multiplier_shift"):
        places = -shift if variant == "integer_multiplier_shift" else 31 - shift
        whole = mantissa.to(torch.int64)
        codes.copy_(requantize_integers(acc, whole, places, zero, variant, rounding, out.qmin, out.qmax))
    else:
        round_fixed_point(acc, mantissa.to(torch.int64), shift, variant, into=codes)
        codes.add_(zero).clamp_(out.qmin, out.qmax)


def round_fixed_point(
    acc: Tensor, mantissa: Tensor, shift: Tensor, variant: str, *, into: Tensor | None = None
) -> Tensor:
    """Return int64 `acc * mantissa * 2**-shift` (shift >= 1), rounded as the integer *variant* does, in one shift.

    With s = shift: the first rounding of `q31_double` and `q31_half_up` adds 2**30 where s > 31, negated for a negative
    product in `q31_double`. Nested floors are one floor: the two steps are `floor((a*q + 2**(s-1) + sgn(a*q) * 2**30) /
    2**s)`. `q15_single` has shifts below 1 too, under which every sum but 0 and the smallest leave 16-bit codes.
    GraphError if a product leaves 62 bits.
    """
    if variant == "q15_single" and int(shift.min()) < 1:
        left = (1 - shift).clamp(0, FURTHEST)
        # clamped first, so that no product leaves 62 bits; a sum that is cut saturates in any case
        acc = torch.where(
            left > 0, acc.to(torch.int64).clamp(-1 << FURTHEST, 1 << FURTHEST) << left, acc.to(torch.int64)
        )
        shift = shift.clamp_min(1)
    _check_product(acc, mantissa, shift)
    product = torch.mul(acc.to(torch.int64), mantissa, out=into)
    base = torch.ones_like(shift) << (shift - 1)  # half of 2**shift, so that the floor of the last shift rounds half up
    first = (shift > 31).to(torch.int64) << 30
    if variant in ("q31_single", "q15_half_up", "q15_single"):
        product.add_(base)
    elif variant == "q31_half_up":
        product.add_(base + first)
    elif variant == "q31_double":
        # product >> 63 is -1 for negative products, else 0: base - first for the former, base + first for the latter
        negative = (product >> 63).bitwise_and_(first << 1)
        product.add_(base + first).sub_(negative)
    else:
        raise UnsupportedError(f"variant {variant!r}: not one of q31_single, q31_double, q31_half_up, q15_half_up.")
    return product.bitwise_right_shift_(shift)


def _part(numbers: Tensor, axis: int, start: int, length: int) -> Tensor:
    """Return the part of broadcast *numbers* that belongs to a block."""
    return numbers.narrow(axis, start, length) if numbers.dim() and numbers.shape[axis] > 1 else numbers


def _along(rescale: Rescale, acc: Tensor, channel_axis: int | None) -> tuple[Tensor, Tensor]:
    """Return mantissa and shift shaped to broadcast against *acc*."""
    mantissa, shift = rescale.mantissa, rescale.shift
    if mantissa.dim() == 0:
        return mantissa, shift
    if channel_axis is None:
        raise GraphError(f"{mantissa.numel()} multipliers: channel_axis must say which axis of the sum they belong to.")
    axis = channel_axis % acc.dim()
    if acc.shape[axis] != mantissa.numel():
        raise GraphError(
            f"{mantissa.numel()} multipliers: axis {axis} of a sum of shape {tuple(acc.shape)} has {acc.shape[axis]}."
        )
    shape = [-1 if i == axis else 1 for i in range(acc.dim())]
    return mantissa.reshape(shape), shift.reshape(shape)


def _check_product(acc: Tensor, mantissa: Tensor, shift: Tensor) -> None:
    if int(shift.min()) < 1:
        raise GraphError(f"shift {int(shift.min())}: this variant shifts right by 1 or more. The ratio is too large.")
    if acc.numel() == 0:
        return
    least, greatest = acc.aminmax()
    largest = max(-int(least), int(greatest)) * int(mantissa.max())
    if largest >= 1 << 62:
        raise GraphError(
            f"accumulator {max(-int(least), int(greatest))} times multiplier {int(mantissa.max())}: leaves 62 bits. "
            "Limit the accumulator to the platform's width first."
        )
