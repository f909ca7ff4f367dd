"""Integer forwards of torch's quantized operators that differ from the generic arithmetic."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from quantizer.numerics import lanes
from quantizer.numerics.float32_stages import to_codes
from quantizer.numerics.fused import multiply_add
from quantizer.numerics.pinned import pinned
from quantizer.numerics.qparams import Parameters, Staged
from quantizer.numerics.quantize import centred
from quantizer.ops import operator
from quantizer.ops.reduce_mean import quantized as mean
from quantizer.platforms.torch import lane_tables
from quantizer.platforms.torch.rules import IN_VECTORS, PLATFORMS


@operator("batch_norm", kind="quantized", platform=PLATFORMS)
def batch_norm(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, parameters: Parameters, axis: int) -> Tensor:
    """Multiply by the channel's factor, add its constant (fused, in float32 steps), round, add the zero point."""
    assert parameters.rescale is not None
    along = [-1 if i == axis % x.dim() else 1 for i in range(x.dim())]
    known, output = parameters.constants, parameters.outputs["y"]
    # dequantized in float32, then divided by the output scale in float64 and rounded to float32, as in the kernel
    factor = (centred(weight, known["weight"].params).float() * known["weight"].params.scale.float()).double()
    factor = (factor * parameters.rescale.mantissa).float().reshape(along)
    constant = torch.zeros_like(factor)
    if bias is not None:
        values = bias.float() * known["bias"].params.scale.float()
        constant = (values.double() / output.scale).float().reshape(along)
    # a fused multiply-add rounds once
    scaled = multiply_add(centred(x, parameters.inputs["x"]).float(), factor, constant)
    return (scaled.round().long() + output.zero_point).clamp(output.qmin, output.qmax)


@operator("leaky_relu", kind="quantized", platform=PLATFORMS)
def leaky_relu(x: Tensor, *, parameters: Parameters, slope: float) -> Tensor:
    """Read the code from the table for its place."""
    return lane_tables.looked_up(x, parameters)


@operator("matmul", kind="quantized", platform=PLATFORMS)
def matmul(a: Tensor, b: Tensor, *, parameters: Parameters) -> Tensor:
    """Multiply dequantized matrices in float32, in the order of torch's own product, then quantize."""
    left, right = (
        centred(codes.contiguous(), parameters.inputs[name]).float() * parameters.inputs[name].scale.float()
        for name, codes in (("a", a), ("b", b))  # torch adds in another order if the memory has another order
    )
    with pinned():
        product = torch.matmul(left, right)
    return to_codes(product, parameters.outputs["y"], parameters.platform)


@operator("reduce_mean", kind="quantized", platform=PLATFORMS)
def reduce_mean(x: Tensor, *, parameters: Parameters, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """Divide the integer sum by the number of terms if the reduced axes are the last ones.

    For other axes, take the float32 mean of dequantized values and quantize it. QNNPACK has a kernel with its own
    multiplier for the last two of four axes.
    """
    params, last = parameters.inputs["x"], x.dim() - len(axes)
    if sorted(axes) != [*range(last, x.dim())]:
        values = (x.contiguous() - params.zero_point).float() * params.scale.float()  # for the same reason as in matmul
        return to_codes(values.mean(dim=axes, keepdim=keepdims), parameters.outputs["y"], parameters.platform)
    # torch's own mean divides the float32 value of the sum by the count, where QNNPACK multiplies
    if "torch_qnnpack" not in parameters.platform.places or x.dim() != 4 or last != 2:
        assert parameters.rescale is not None
        parameters = replace(parameters, rescale=replace(parameters.rescale, variant="f32_mean_divided"))
    return mean(x, parameters=parameters, axes=axes, keepdims=keepdims)


@operator("sigmoid", kind="quantized", platform=IN_VECTORS)
def sigmoid(x: Tensor, *, parameters: Parameters) -> Tensor:
    """Read the code from the table for its place."""
    return lane_tables.looked_up(x, parameters)


@operator("softmax", kind="quantized", platform=IN_VECTORS)
def softmax(x: Tensor, *, parameters: Parameters, axis: int) -> Staged:
    """Divide float32 exponentials of dequantized codes by their sum, as torch does on float32, then quantize."""
    params = parameters.inputs["x"]
    values = lanes.softmax((x - params.zero_point).float() * params.scale.float(), axis)
    return Staged(to_codes(values, parameters.outputs["y"], parameters.platform), {})


@operator("softmax", kind="quantized", platform="torch_qnnpack")
def softmax_of_integers(x: Tensor, *, parameters: Parameters, axis: int) -> Staged:
    """Look up integers and add them; each code is (256 * entry + sum / 2) / sum, floored."""
    output = parameters.outputs["y"]
    exponentials = parameters.tables["exp"].entries[x.amax(dim=axis, keepdim=True) - x]
    total = exponentials.sum(dim=axis, keepdim=True)
    # the output scale is 1/256: + total / 2 rounds half up
    codes = ((exponentials << 8) + (total >> 1)) // total
    return Staged(codes.clamp(output.qmin, output.qmax), {"exp": exponentials})


@operator("tanh", kind="quantized", platform=PLATFORMS)
def tanh(x: Tensor, *, parameters: Parameters) -> Tensor:
    """Read the code from the table for its place."""
    return lane_tables.looked_up(x, parameters)
