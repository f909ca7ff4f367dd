"""Matrix product of two activations."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics import aten, kernels
from quantizer.numerics.pinned import pinned
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.ops import operator


@operator("matmul")
def reference(a: Tensor, b: Tensor) -> Tensor:
    """Multiply [..., m, k] with [..., k, n]; leading axes broadcast."""
    return torch.matmul(a, b)


@operator("matmul")
def accumulate(a: Tensor, b: Tensor, *, parameters: Parameters) -> Tensor:
    """Sum integer products of centred codes exactly."""
    return kernels.matmul(centred(a, parameters.inputs["a"]), centred(b, parameters.inputs["b"]))


@operator("matmul", platform=aten.PLATFORMS)
def quantized_torch(a: Tensor, b: Tensor, *, parameters: Parameters) -> Tensor:
    """Multiply dequantized matrices in float32, in the order of torch's own product, then quantize."""
    left, right = (
        centred(codes, parameters.inputs[name]).float() * parameters.inputs[name].scale.float()
        for name, codes in (("a", a), ("b", b))
    )
    with pinned():
        product = torch.matmul(left, right)
    return aten.to_codes(product, parameters.outputs["y"])
