"""Product along some axes."""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.numerics.rounding import round_scalar
from quantizer.ops import operator


@operator("reduce_prod")
def reference(x: Tensor, *, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """Multiply along *axes*, which stay with size 1 if *keepdims*."""
    # torch's prod takes one axis; the last first, so that earlier numbers stay valid
    for axis in sorted(axes, reverse=True):
        x = x.prod(dim=axis, keepdim=keepdims)
    return x


@operator("reduce_prod")
def quantized(x: Tensor, *, parameters: Parameters, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """Multiply centred codes in integers of any width, rescale the product to the output, and round once."""
    own, out, mode = parameters.inputs["x"], parameters.outputs["y"], parameters.platform.rounding
    kept = [axis for axis in range(x.dim()) if axis not in axes]
    # shape [kept axes, factors]
    rows = centred(x, own).permute(*kept, *axes).flatten(len(kept)) if axes else centred(x, own).unsqueeze(-1)
    # n factors have the scale s**n
    ratio = Fraction(float(own.scale)) ** rows.shape[-1] / Fraction(float(out.scale))
    # clamped as Python integers, because a product may leave int64
    least, most = (end - int(out.zero_point) for end in (out.qmin, out.qmax))
    products = [math.prod(row) for row in rows.reshape(-1, rows.shape[-1]).tolist()]
    # many elements of a large tensor have the same product
    known = {one: min(max(round_scalar(one * ratio, mode), least), most) for one in set(products)}
    steps = [known[one] for one in products]
    shape = [1 if axis in axes else size for axis, size in enumerate(x.shape) if keepdims or axis not in axes]
    return torch.tensor(steps, dtype=torch.int64).reshape(shape) + out.zero_point
