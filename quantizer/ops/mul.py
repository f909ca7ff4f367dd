"""Element-wise product."""

from __future__ import annotations

from torch import Tensor

from quantizer.numerics.finish import finish
from quantizer.numerics.litert import narrowed_product
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.ops import operator


@operator("mul")
def reference(a: Tensor, b: Tensor) -> Tensor:
    """Multiply; shapes broadcast."""
    return a * b


@operator("mul")
def accumulate(a: Tensor, b: Tensor, *, parameters: Parameters) -> Tensor:
    """Multiply integers exactly."""
    return centred(a, parameters.inputs["a"]) * centred(b, parameters.inputs["b"])


@operator("mul", platform="tflite_builtin")
def quantized_tflite_builtin(a: Tensor, b: Tensor, *, parameters: Parameters) -> Tensor:
    """Multiply as everywhere; 8-bit products go through lanes of 16 bits."""
    products = accumulate(a, b, parameters=parameters)
    return narrowed_product(products, parameters, [tuple(a.shape), tuple(b.shape)])


@operator("mul", platform="xnnpack")
def quantized_xnnpack(a: Tensor, b: Tensor, *, parameters: Parameters) -> Tensor:
    """Multiply as XNNPACK does, or as LiteRT's own kernel where the ratio of scales is not XNNPACK's."""
    if parameters.rescale is not None and parameters.rescale.variant == "f32_even":
        return finish(accumulate(a, b, parameters=parameters), parameters)
    return quantized_tflite_builtin(a, b, parameters=parameters)
