"""Fused activations that round before requantization: a slope for negative sums (LEAKYRELU, PRELU), and bounds (CLIP).

On codes, these activations work on the sum, so that a number is rounded twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from quantizer.core.dtypes import DTYPES
from quantizer.core.errors import GraphError
from quantizer.core.rounding_modes import RoundingMode
from quantizer.numerics.qparams import Bounds, QParams, Rescale, Slope
from quantizer.numerics.requantize import requantize
from quantizer.numerics.rounding import round_tensor

STAGED = ("clip", "leakyrelu", "prelu")
"""The names of these activations."""
RELAY_BITS = 8
"""Fraction bits of the sum that CLIP clamps, between its two roundings; 0 for wider outputs."""
SLOPE_BITS, SLOPES = 12, DTYPES["int16"]
"""Binary places and format of slopes that a constant tensor gives."""
HELD = (1 << 47) - 1
"""The largest value of the sum between the two roundings."""
INT32 = DTYPES["int32"]


def along(values: Tensor, rank: int, axis: int) -> Tensor:
    """Return one number, or one for each slice along *axis*, so that it broadcasts over *rank* axes."""
    return values if values.numel() == 1 else values.reshape([-1 if i == axis % rank else 1 for i in range(rank)])


def activate_staged(values: Tensor, name: str, attrs: Mapping[str, object], axis: int) -> Tensor:
    """Return real *values* after activation *name*, whose attributes are `low` and `high`, or `slope`.

    An attribute is a scalar, or has one number for each slice along *axis*.
    """
    if name == "clip":
        return values.clamp(attrs["low"], attrs["high"])  # type: ignore[call-overload, no-any-return]
    slope = cast("float | Tensor", attrs["slope"])
    if not isinstance(slope, Tensor):
        return torch.where(values < 0, values * slope, values)
    return values.clamp(min=0) + along(slope.to(values.dtype), values.dim(), axis) * values.clamp(max=0)


def slope_of(given: float | Tensor, bits: int, *, axis: int = -1, float32: bool = False) -> Slope:
    """Return a slope in fixed point: *bits* fractional bits for a number; 12, stored in 16 bits, for a constant."""
    if isinstance(given, Tensor):
        codes = (given.float() * 2.0**SLOPE_BITS).round().clamp(SLOPES.min, SLOPES.max).long()
        return Slope(codes.reshape(-1), SLOPE_BITS, axis, float32=float32)
    return Slope(torch.tensor([round(given * 2**bits)]), bits, axis, float32=float32)


def bounds_of(low: float, high: float, output: QParams, bits: int) -> Bounds:
    """Return both bounds as output codes with eight more bits, or as plain codes if *output* has more than eight bits.

    The plain codes include the zero point, although centred codes are clamped to them.
    """
    relay = RELAY_BITS if bits <= RELAY_BITS else 0
    zero = 0 if relay else int(output.zero_point)
    steps = (output.steps if output.steps is not None else (1 / output.scale).float()) * 2**relay
    least, most = (max(INT32.min, min(INT32.max, int(torch.round(end * steps + zero)))) for end in (low, high))
    return Bounds(least, most, relay)


def below_zero(acc: Tensor, slope: Slope, rounding: RoundingMode) -> Tensor:
    """Return int64 `round(min(acc, 0) * slope)`."""
    codes = along(slope.codes, acc.dim(), slope.axis).double()
    return round_tensor(acc.clamp(max=0).double() * codes * 2.0**-slope.shift, rounding).long()


def requantize_activated(
    acc: Tensor,
    fused: Slope | Bounds,
    rescale: Rescale,
    output: QParams,
    rounding: RoundingMode,
    channel_axis: int | None,
) -> Tensor:
    """Return codes of an exact sum *acc* after the fused activation."""
    if isinstance(fused, Slope):
        held = (acc.clamp(min=0) + below_zero(acc, fused, rounding)).clamp(-HELD - 1, HELD)
        held = held.float().long() if fused.float32 else held
        return requantize(held, rescale, output, channel_axis=channel_axis, rounding=rounding)
    return from_relay(relay(acc, fused, rescale, rounding, channel_axis), fused, output, rounding)


def relay(acc: Tensor, bounds: Bounds, rescale: Rescale, rounding: RoundingMode, channel_axis: int | None) -> Tensor:
    """Return int64 codes of higher resolution, which a fused clip clamps between its two roundings."""
    if rescale.variant != "multiplier_shift":
        raise GraphError(f"a fused clip takes a multiplier with a shift, not {rescale.variant}.")
    # fewer places to the right: the codes keep these fraction bits
    shifted = replace(rescale, shift=rescale.shift - bounds.relay_bits)
    axis = -1 if channel_axis is None else channel_axis
    factor = along(shifted.mantissa * torch.exp2(-shifted.shift.double()), acc.dim(), axis)
    return round_tensor(acc.double() * factor, rounding).clamp(bounds.low, bounds.high).long()


def from_relay(relayed: Tensor, bounds: Bounds, output: QParams, rounding: RoundingMode) -> Tensor:
    """Return output codes from the clamped codes of higher resolution (the second rounding of a fused clip)."""
    codes = round_tensor(relayed.double() * 2.0**-bounds.relay_bits, rounding).long() + output.zero_point
    return codes.clamp(output.qmin, output.qmax)
