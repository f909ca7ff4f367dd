"""Mean along some axes."""

from __future__ import annotations

import math
from dataclasses import replace

from torch import Tensor

from quantizer.numerics import aten
from quantizer.numerics.finish import finish_mean
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.ops import operator


@operator("reduce_mean")
def reference(x: Tensor, *, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """Average along *axes*, which stay with size 1 if *keepdims*."""
    return x.mean(dim=axes, keepdim=keepdims)


@operator("reduce_mean")
def accumulate(x: Tensor, *, parameters: Parameters, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """Sum centred codes exactly, one axis after the other."""
    total = centred(x, parameters.inputs["x"])
    for axis in sorted(axes, reverse=True):
        total = total.sum(dim=axis, keepdim=keepdims)
    return total


@operator("reduce_mean")
def quantized(x: Tensor, *, parameters: Parameters, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """Divide the exact sum by the number of its terms, round once."""
    sums = accumulate(x, parameters=parameters, axes=axes, keepdims=keepdims)
    return finish_mean(sums, math.prod(x.shape[axis] for axis in axes), parameters)


@operator("reduce_mean", platform=aten.PLATFORMS)
def quantized_torch(x: Tensor, *, parameters: Parameters, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """Divide the integer sum of the last axes; other axes: the float32 mean of dequantized values, quantized.

    QNNPACK takes the last two axes of four, with a multiplier of its own.
    """
    params, last = parameters.inputs["x"], x.dim() - len(axes)
    if sorted(axes) != [*range(last, x.dim())]:
        values = (x - params.zero_point).float() * params.scale.float()
        return aten.to_codes(values.mean(dim=axes, keepdim=keepdims), parameters.outputs["y"])
    if parameters.platform.platform != "torch_qnnpack" or x.dim() != 4 or last != 2:
        assert parameters.rescale is not None
        parameters = replace(parameters, rescale=replace(parameters.rescale, variant="f32_mean_divided"))
    return quantized(x, parameters=parameters, axes=axes, keepdims=keepdims)
