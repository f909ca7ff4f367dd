"""Real values to codes and back, in the arithmetic that a platform declares."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.core.platform_settings import Quantizer
from quantizer.numerics.float_codes import in_units, nearest
from quantizer.numerics.fused import multiply_add
from quantizer.numerics.qparams import QParams
from quantizer.numerics.rounding import round_tensor


def quantize(x: Tensor, params: QParams, quantizer: Quantizer, *, seed: int = 0) -> Tensor:
    """Return `clamp(round(x / scale) + zero_point)` as int64 codes.

    x: float32 or float64, any shape. Infinities saturate; NaN gives code 0 clamped to the range, or the smallest code.
    The operation and its float type are the platform's: see `core.platform_settings.Quantizer`.
    """
    if params.dtype.kind == "float":
        codes = nearest(x.double() / params.spread(params.scale, x.shape), params.dtype.name, quantizer.rounding)
        return torch.where(x.isnan(), params.qmin, codes) if quantizer.nan == "lowest" else codes
    zero = params.spread(params.zero_point, x.shape)
    nan = 0.0 if quantizer.nan == "zero" else float(params.qmin)
    # the kernel computes x * (1 / scale) + zero point as one fused float32 operation
    if quantizer.operation == "inverse_float32" and quantizer.zero_point == "before":
        inverse = 1.0 / params.spread(params.scale, x.shape).float()
        fused = multiply_add(x.float(), inverse, zero.float())
        rounded = round_tensor(fused.double(), quantizer.rounding, seed=seed)
        return rounded.nan_to_num(nan=nan).clamp(params.qmin, params.qmax).to(torch.int64)
    ratio = _ratio(x, params, quantizer)
    if quantizer.zero_point == "before":
        rounded = round_tensor((ratio + zero.to(ratio.dtype)).double(), quantizer.rounding, seed=seed)
    else:
        rounded = round_tensor(ratio.double(), quantizer.rounding, seed=seed) + zero
    return rounded.nan_to_num(nan=nan).clamp(params.qmin, params.qmax).to(torch.int64)


def _ratio(x: Tensor, params: QParams, quantizer: Quantizer) -> Tensor:
    scale = params.spread(params.scale, x.shape)
    match quantizer.operation:
        case "divide_float32":
            return x.float() / scale.float()
        case "multiply_float32" if params.steps is not None:
            return x.float() * params.along(params.steps, x.dim())
        case "multiply_float32" | "inverse_float32":
            return x.float() * (1.0 / scale.float())
        case _:
            return x.double() / scale


def dequantize(codes: Tensor, params: QParams) -> Tensor:
    """Return `scale * (code - zero_point)` in float64; for a float format, the scale times the value of the code."""
    return centred(codes, params).double() * params.spread(params.step, codes.shape)


def centred(codes: Tensor, params: QParams) -> Tensor:
    """Return `code - zero_point` as int64, or in the narrower type of *codes* if every zero point is 0.

    For a float format, return the values of the codes as multiples of its smallest value; `QParams.step` is the real
    value of 1.
    """
    if params.dtype.kind == "float":
        return in_units(codes, params.dtype.name)
    zero = params.spread(params.zero_point, codes.shape)
    if codes.dtype == torch.int64:
        return codes - zero
    # narrow codes stay narrow if there is nothing to subtract: kernels need not scan int8 for its extrema
    return codes.to(torch.int64) - zero if bool(zero.any()) else codes
