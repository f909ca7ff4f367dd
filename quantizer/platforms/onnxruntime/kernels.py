"""Integer forwards of ONNX Runtime that differ from the generic arithmetic."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from quantizer.numerics.qparams import Parameters, Staged
from quantizer.ops import operator


@operator("softmax", kind="quantized", platform="ort")
def softmax(x: Tensor, *, parameters: Parameters, axis: int) -> Staged:
    """Look up, add one by one in float32, then in float64 multiply by 1 / scale and divide; round half to even.

    Up to ONNX Runtime 1.31 the quotient was float32, and overflowed for an axis of one element.
    """
    output = parameters.outputs["y"]
    exponentials = parameters.tables["exp"].entries[x.amax(dim=axis, keepdim=True) - x].float()
    # in the kernel's order: float32 sums in another order give other numbers
    total = torch.zeros_like(exponentials.select(axis, 0))
    for part in exponentials.unbind(axis):
        total = total + part
    quotient = exponentials.double() * math.floor(1.0 / float(output.scale)) / total.double().unsqueeze(axis)
    codes = torch.round(quotient).to(torch.int64) + output.zero_point
    return Staged(codes.clamp(output.qmin, output.qmax), {})
