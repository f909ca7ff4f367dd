"""A tensor padded with a constant."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import quantize as to_codes
from quantizer.ops import operator


@operator("pad")
def reference(x: Tensor, *, padding: tuple[int, ...], value: float) -> Tensor:
    """Add padding[i] elements before and padding[i + rank] after axis i."""
    pairs = zip(padding[: x.dim()], padding[x.dim() :], strict=True)
    # F.pad counts from the last axis
    return F.pad(x, [size for pair in reversed(list(pairs)) for size in pair], value=value)


@operator("pad")
def quantized(x: Tensor, *, parameters: Parameters, padding: tuple[int, ...], value: float) -> Tensor:
    """Move codes into a tensor filled with the output's code for *value*; scale and zero point are the input's."""
    code = to_codes(torch.tensor(value), parameters.outputs["y"], parameters.platform.quantizer)
    rank = x.dim()
    sizes = [size + padding[i] + padding[i + rank] for i, size in enumerate(x.shape)]
    codes = torch.full(sizes, int(code), dtype=torch.int64)
    codes[tuple(slice(padding[i], padding[i] + size) for i, size in enumerate(x.shape))] = x
    return codes
