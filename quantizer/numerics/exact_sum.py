"""The exact sum of products, rounded once: in float64, or in exact arithmetic near a breakpoint of the rounding."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import torch
from torch import Tensor

from quantizer.core.rounding_modes import RoundingMode
from quantizer.numerics.float_codes import exact_nearest
from quantizer.numerics.qparams import QParams
from quantizer.numerics.rounding import divide, round_scalar, round_tensor

# relative; far above the error of a float64 sum of a few products, and few elements lie so near a breakpoint
_NEAR = 2.0**-40
_NARROW = (
    (torch.int8, -(1 << 7), (1 << 7) - 1),
    (torch.uint8, 0, (1 << 8) - 1),
    (torch.int16, -(1 << 15), (1 << 15) - 1),
    (torch.int32, -(1 << 31), (1 << 31) - 1),
)
_DIRECTED = ("up", "down", "toward_zero", "stochastic")


def exact_sum(
    terms: list[tuple[Tensor, Tensor]],
    divisor: float,
    zero: Tensor,
    codes: Tensor,
    out: QParams,
    rounding: RoundingMode,
    seed: int,
) -> None:
    """Write the correctly rounded real `sum(acc * factor) / divisor`, clamped, into contiguous *codes*.

    Values within 2**-40 (relative) of a breakpoint of *rounding* are decided in integers: over a common denominator of
    all factors where its products fit 62 bits, in rationals otherwise. For a float format, the codes are the nearest
    ones of that format.
    """
    if out.dtype.kind == "float":
        codes.copy_(exact_nearest(terms, divisor, codes.shape, out.dtype.name, rounding))
        return
    size = float(max(-out.qmin, out.qmax) + int(zero.abs().max()) + 1)
    parts = []
    for acc, factor in terms:
        parts.append(acc.to(torch.float64, copy=True).mul_(factor / divisor))
        # terms may cancel, so the error is relative to the largest term, not to the sum
        if len(terms) > 1 and acc.numel():
            size = max(size, len(terms) * float(acc.abs().max()) * float(factor.max()) / divisor)
    # float64 decides all elements but those next to a breakpoint of the rounding, which `_decide` takes in integers
    value = functools.reduce(torch.Tensor.add_, parts)
    # beyond the codes all numbers saturate, so one step beyond stands for any distance
    low, high = (out.qmin - 1 - zero).to(torch.float64), (out.qmax + 1 - zero).to(torch.float64)
    value = value.clamp_(low, high) if zero.dim() else value.clamp_(float(low), float(high))
    rounded = round_tensor(value, rounding, seed=seed)
    # directed modes break at whole numbers, modes to the nearest at halves
    if rounding in _DIRECTED:
        near = ((value - torch.round(value)).abs_() <= size * _NEAR) & (value > low) & (value < high)
    else:
        gap = value.sub_(rounded).abs_()
        close = 0.5 - size * _NEAR
        near = gap >= close if gap.numel() and float(gap.amax()) >= close else torch.zeros(0)
    index = near.flatten().nonzero().flatten()
    store_codes(codes, rounded, zero, out)
    if index.numel():
        flat = [tuple(t.expand(codes.shape).flatten()[index] for t in pair) for pair in terms]
        decided = _decide(flat, divisor, rounding, index, seed) + zero.expand(codes.shape).flatten()[index]
        codes.view(-1)[index] = decided.clamp_(out.qmin, out.qmax)


def _decide(
    terms: list[tuple[Tensor, ...]], divisor: float, rounding: RoundingMode, index: Tensor, seed: int
) -> Tensor:
    """Return the correctly rounded `sum(acc * factor) / divisor` of flat terms, element by element, without error."""
    ratios = [{f: Fraction(f) / Fraction(divisor) for f in sorted(set(factor.tolist()))} for _, factor in terms]
    # over one denominator the terms are integers, which int64 adds and divides without rationals
    denominator = math.lcm(*(r.denominator for by_factor in ratios for r in by_factor.values()))
    reach = sum(
        int(acc.abs().max()) * max(int(r * denominator) for r in by_factor.values())
        for (acc, _), by_factor in zip(terms, ratios, strict=True)
    )
    # stochastic rounding needs an element's index in the whole tensor, which `divide` would count in this short list
    if max(reach, denominator) < 1 << 61 and rounding != "stochastic":
        numerator = torch.zeros_like(index)
        for (acc, factor), by_factor in zip(terms, ratios, strict=True):
            whole = torch.tensor([int(r * denominator) for r in by_factor.values()], dtype=torch.int64)
            # the keys are sorted, so that the search finds the place of each factor
            which = torch.searchsorted(torch.tensor(list(by_factor), dtype=torch.float64), factor)
            numerator += acc.to(torch.int64) * whole[which]
        return divide(numerator, denominator, rounding)
    decided = []
    for place, position in enumerate(index.tolist()):
        value = Fraction(0)
        for (acc, factor), by_factor in zip(terms, ratios, strict=True):
            value += int(acc[place]) * by_factor[float(factor[place])]
        decided.append(round_scalar(value, rounding, seed=seed, index=position))
    return torch.tensor(decided, dtype=torch.int64)


def store_codes(codes: Tensor, rounded: Tensor, zero: Tensor | None, out: QParams) -> None:
    """Write the clamped codes of float *rounded*, which is overwritten; float32 only while it holds every code.

    A float becomes int64 by way of the narrowest integer that holds the codes: torch converts that twice as fast.
    """
    if max(-out.qmin, out.qmax) >= 1 << 23:  # code plus zero point may exceed the 24 bits of a float32 mantissa
        rounded = rounded.to(torch.float64)
    if zero is not None and bool(zero.any()):
        rounded.add_(zero)
    rounded.clamp_(out.qmin, out.qmax)
    for narrow, low, high in _NARROW:
        if low <= out.qmin and out.qmax <= high:
            rounded = rounded.to(narrow)
            break
    codes.copy_(rounded)
