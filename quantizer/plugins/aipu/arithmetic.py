"""Quantization modes, parameters and conversions under Compass's names and in its convention.

`code = round(scale * value - zerop)` and `value = (code + zerop) / scale`, with ties to even everywhere.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from quantizer.core.errors import GraphError, PluginError
from quantizer.core.wording import suggestion
from quantizer.numerics.qparams import Table
from quantizer.numerics.ratio_to_multiplier import FLOAT32_EPSILON, float32_multiplier
from quantizer.numerics.tables import lookup
from quantizer.plugins.aipu.dtypes import Dtype, bits2dtype, bits2range, range2dtype
from quantizer.plugins.aipu.tensor import PyTensor

_RANGES = ("symmetric_restricted_range", "symmetric_full_range", "asymmetric")


class QuantMode:
    """Properties of quantization modes, by name, such as `per_channel_symmetric_restricted_range`."""

    names = tuple(f"{grain}_{span}" for grain in ("per_tensor", "per_channel", "per_block") for span in _RANGES)

    @classmethod
    def mode_names(cls) -> list[str]:
        """Return the names of all modes."""
        return list(cls.names)

    @classmethod
    def is_valid(cls, mode_name: str) -> bool:
        """Return whether there is such a mode."""
        return mode_name.lower() in cls.names

    @classmethod
    def is_per_channel(cls, mode_name: str) -> bool:
        """Return whether each channel has its own scale."""
        return cls._known(mode_name).startswith("per_channel")

    @classmethod
    def is_per_block(cls, mode_name: str) -> bool:
        """Return whether each block has its own scale."""
        return cls._known(mode_name).startswith("per_block")

    @classmethod
    def is_per_tensor(cls, mode_name: str) -> bool:
        """Return whether there is one scale."""
        return cls._known(mode_name).startswith("per_tensor")

    @classmethod
    def is_asymmetric(cls, mode_name: str) -> bool:
        """Return whether the zero point is free."""
        return cls._known(mode_name).endswith("_asymmetric")

    @classmethod
    def is_symmetric(cls, mode_name: str) -> bool:
        """Return whether the zero point is 0."""
        return not cls.is_asymmetric(mode_name)

    @classmethod
    def is_full_range(cls, mode_name: str) -> bool:
        """Return whether the most negative code is used; asymmetric modes use it."""
        return not cls._known(mode_name).endswith("restricted_range")

    @classmethod
    def to_per_channel(cls, mode_name: str) -> str:
        """Return the mode with a scale for each channel."""
        return cls._regrained(mode_name, "per_channel")

    @classmethod
    def to_per_tensor(cls, mode_name: str) -> str:
        """Return the mode with one scale."""
        return cls._regrained(mode_name, "per_tensor")

    @classmethod
    def to_symmetric(cls, mode_name: str) -> str:
        """Return the symmetric mode: always the restricted range, as in Compass."""
        return cls._grain(mode_name) + "_symmetric_restricted_range"

    @classmethod
    def to_asymmetric(cls, mode_name: str) -> str:
        """Return the asymmetric mode."""
        return cls._grain(mode_name) + "_asymmetric"

    @classmethod
    def _grain(cls, mode_name: str) -> str:
        return "_".join(cls._known(mode_name).split("_")[:2])

    @classmethod
    def _regrained(cls, mode_name: str, grain: str) -> str:
        return "_".join([grain, *cls._known(mode_name).split("_")[2:]])

    @classmethod
    def _known(cls, mode_name: str) -> str:
        if not cls.is_valid(mode_name):
            raise PluginError(f"{mode_name!r}: no such quantization mode.{suggestion(mode_name, cls.names, 'Modes')}")
        return mode_name.lower()


def get_linear_quant_params_from_tensor(
    x: PyTensor,
    quant_mode: str,
    bits: int,
    is_signed: bool,
) -> tuple[Tensor, Tensor, int, int, Dtype]:
    """Return (scale, zerop, qmin, qmax, dtype) for the calibrated range of *x*, in float32.

    *scale* and *zerop* are 0-d per tensor, and have an entry for each slice along the key axis per channel. A range
    below 2**-23 gives scale 1.
    """
    if QuantMode.is_per_block(quant_mode):
        raise PluginError(f"{x.name}: {quant_mode}: a scale per block has no parameters here. Use per channel.")
    bits = int(bits)
    qmin, qmax = bits2range(bits, is_signed)
    if is_signed and not QuantMode.is_full_range(quant_mode):
        qmin += 1
    low, high = _range_of(x, QuantMode.is_per_channel(quant_mode))
    symmetric = QuantMode.is_symmetric(quant_mode)
    if symmetric:
        largest = torch.maximum(low.abs(), high.abs())
        low, high = (-largest if is_signed else torch.zeros_like(largest)), largest
    width = (high - low).float()
    codes = torch.full_like(width, float(qmax - qmin))
    # divided by `codes` itself where the range is empty: scale 1
    scale = codes / torch.where((width < FLOAT32_EPSILON) | width.isnan(), codes, width)
    # Compass clamps zerop to the signed range of these bits, for unsigned codes too
    limit = (1 << (bits - 1)) - 1
    zerop = torch.zeros_like(scale) if symmetric else ((scale * low.float()).round() - qmin).clamp(-limit, limit)
    return scale, zerop, qmin, qmax, bits2dtype(bits, is_signed)


def _range_of(x: PyTensor, per_channel: bool) -> tuple[Tensor, Tensor]:
    """Return the smallest and largest values as float64: 0-d, or an entry for each slice along the key axis."""
    low, high = (x.min_key_axis, x.max_key_axis) if per_channel else (x.min, x.max)
    if low is None or high is None:
        raise PluginError(
            f"{x.name}: has no calibrated range{' per channel' if per_channel else ''}. Use a per_tensor mode."
        )
    shape = (-1,) if per_channel else ()
    return torch.as_tensor(low).double().reshape(shape), torch.as_tensor(high).double().reshape(shape)


def linear_quantize_clip(
    x: Any, scale: Any, zero_point: Any, clamp_min: Any, clamp_max: Any, key_axis: int | None = None
) -> Tensor:
    """Return `clamp(round(scale * x - zero_point))` in the type of *x*; NaN gives 0."""
    values = torch.as_tensor(x)
    scale, zero_point = (_along(n, values, key_axis) for n in (scale, zero_point))
    codes = torch.round(values.double() * scale - zero_point)
    return _clamped(codes, clamp_min, clamp_max, values)


def linear_dequantize(x: Any, scale: Any, zero_point: Any, key_axis: int | None = None) -> Tensor:
    """Return `(x + zero_point) / scale`."""
    values = torch.as_tensor(x)
    scale, zero_point = (_along(n, values, key_axis) for n in (scale, zero_point))
    result: Tensor = (values.double() + zero_point) / scale
    return result.to(values.dtype) if values.is_floating_point() else result.float()


def linear_requantize(
    x: Any,
    multiplier: Any,
    shift_bits: Any,
    zero_point: Any,
    clamp_min: Any,
    clamp_max: Any,
    key_axis: int | None = None,
) -> Tensor:
    """Return `clamp(round(x * multiplier * 2**-shift_bits) - zero_point)` in the type of *x*; float64 in between."""
    values = torch.as_tensor(x)
    multiplier, shift, zero_point = (_along(n, values, key_axis) for n in (multiplier, shift_bits, zero_point))
    codes = torch.round(values.double() * multiplier * torch.exp2(-shift)) - zero_point
    return _clamped(codes, clamp_min, clamp_max, values)


def get_scale_approximation_params(
    fp32_scale_value: Any,
    mult_bits: int,
    limit: bool = False,
    mult_bits_ceil: int = 15,
    shift_bits_ceil: int = 31,
    force_shift_positive: bool = False,
) -> tuple[Any, Dtype, Any, Dtype]:
    """Return (multiplier, its format, shift, its format) with `scale ~ multiplier * 2**-shift`; ints for a 0-d number.

    *limit*: the shift is at most mult_bits. *force_shift_positive*: a negative shift becomes 0, with the largest
    multiplier.
    """
    ratio = torch.as_tensor(fp32_scale_value, dtype=torch.float32)
    bits = int(mult_bits)
    ceiling = min(shift_bits_ceil, bits, mult_bits_ceil) if limit else shift_bits_ceil
    multiplier, shift = float32_multiplier(ratio, bits, mult_bits_ceil, ceiling)
    if force_shift_positive:
        multiplier = torch.where(shift < 0, (1 << min(bits, mult_bits_ceil)) - 1, multiplier)
        shift = shift.clamp_min(0)
    kind = bits2dtype(8 if bits <= 8 else 16, is_signed=False)
    _, shift_kind = range2dtype(int(shift.min()), int(shift.max()), force_int=True)
    if ratio.dim() == 0:
        return int(multiplier), kind, int(shift), shift_kind
    return multiplier.float(), kind, shift.float(), shift_kind


def lookup_lut_powerof2(
    inputs: Tensor,
    lut: Tensor,
    lut_in_bits: int,
    in_is_signed: bool,
    lut_out_bits: int,
    out_is_signed: bool,
    is_float: bool = False,
    align_mode: str | None = None,
) -> Tensor:
    """Return the entries of a table of 2**n at codes of *lut_in_bits*, the low bits interpolated down; int64.

    The last entry is also used as the one after it. *is_float*: entries and interpolation are real numbers.
    """
    bits = lut.numel().bit_length() - 1
    if lut.numel() != 1 << bits:
        raise GraphError(f"lut of {lut.numel()} entries: must be a power of two.")
    if align_mode is not None:
        raise PluginError(f"align_mode={align_mode!r}: tables are read only by the high bits. Leave it out.")
    first, step = bits2range(lut_in_bits, in_is_signed)[0], 1 << max(0, int(lut_in_bits) - bits)
    if is_float:
        place = (inputs.double() - first).clamp(0, lut.numel() * step - 1) / step
        entries = torch.cat([lut.flatten(), lut.flatten()[-1:]]).double()
        low = entries[place.long()]
        return (low + (entries[place.long() + 1] - low) * place.frac()).float()
    table = Table(lut.flatten().long(), first, step, 1.0, int(lut_out_bits))
    return lookup(inputs.long(), table).clamp(*bits2range(lut_out_bits, out_is_signed))


def nhwc2nchw(x: Tensor) -> Tensor:
    """Return a view with the channel second."""
    return x.permute(0, 3, 1, 2)


def nchw2nhwc(x: Tensor) -> Tensor:
    """Return a view with the channel last."""
    return x.permute(0, 2, 3, 1)


def _along(numbers: Any, values: Tensor, axis: int | None) -> Tensor:
    """Return *numbers* in float64; with *axis*, shaped along that axis of *values*."""
    wide = torch.as_tensor(numbers).double()
    if wide.dim() and wide.numel() == 1:
        return wide.reshape(())
    if axis is None:
        return wide
    return wide.reshape([-1 if i == axis % values.dim() else 1 for i in range(values.dim())])


def _clamped(codes: Tensor, low: Any, high: Any, like: Tensor) -> Tensor:
    # NaN has no code; a float kept in an integer type would be undefined
    held = codes.nan_to_num(nan=0.0).clamp(float(low), float(high))
    if like.is_floating_point():
        return held.to(like.dtype)
    least, most = torch.iinfo(like.dtype).min, torch.iinfo(like.dtype).max
    # bounds outside the operand's integer type: its values would wrap, so float32 is returned
    fits = least <= float(low) and float(high) <= most and not math.isinf(float(high))
    return held.to(like.dtype) if fits else held.float()
