"""Matrix product of two activations."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics import kernels
from quantizer.numerics.blocks import sums_of_blocks
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.ops import operator


@operator("matmul")
def reference(a: Tensor, b: Tensor) -> Tensor:
    """Multiply [..., m, k] with [..., k, n]; leading axes broadcast."""
    return torch.matmul(a, b)


@operator("matmul")
def accumulate(a: Tensor, b: Tensor, *, parameters: Parameters) -> Tensor:
    """Sum integer products of centred codes exactly, block by block where b is a weight in blocks."""
    own = parameters.of("b")
    rows, columns = centred(a, parameters.inputs["a"]), centred(b, own)
    return kernels.matmul(rows, columns) if own.blocks is None else sums_of_blocks(kernels.matmul, rows, columns, own)
