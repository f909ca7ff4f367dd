"""Element-wise sum."""

from __future__ import annotations

from torch import Tensor

from quantizer.numerics.finish import finish_sum
from quantizer.numerics.litert import narrowed_sum
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import centred
from quantizer.ops import operator


@operator("add")
def reference(a: Tensor, b: Tensor) -> Tensor:
    """Add; shapes broadcast."""
    return a + b


@operator("add")
def quantized(a: Tensor, b: Tensor, *, parameters: Parameters) -> Tensor:
    """Bring both operands to one scale, add, round once."""
    terms = {"a": centred(a, parameters.inputs["a"]), "b": centred(b, parameters.inputs["b"])}
    return finish_sum(terms, parameters)


@operator("add", platform="tflite_builtin")
def quantized_tflite_builtin(a: Tensor, b: Tensor, *, parameters: Parameters) -> Tensor:
    """Add as everywhere; 8-bit sums go through lanes of 16 bits."""
    terms = {"a": centred(a, parameters.inputs["a"]), "b": centred(b, parameters.inputs["b"])}
    return narrowed_sum(terms, parameters, [tuple(a.shape), tuple(b.shape)])


@operator("add", platform="xnnpack")
def quantized_xnnpack(a: Tensor, b: Tensor, *, parameters: Parameters) -> Tensor:
    """Add as XNNPACK does, or as LiteRT's own kernel where the ratios of scales are not XNNPACK's."""
    own = parameters.rescale is not None and parameters.rescale.variant == "q21_half_up"
    return (quantized if own else quantized_tflite_builtin)(a, b, parameters=parameters)
