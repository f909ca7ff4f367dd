"""Integer forwards of LiteRT that differ from the generic arithmetic."""

from __future__ import annotations

from torch import Tensor

from quantizer.numerics.qparams import Parameters, Staged
from quantizer.numerics.quantize import centred
from quantizer.numerics.requantize_accumulator import requantize_accumulator, requantize_terms
from quantizer.ops import operator
from quantizer.ops.add import quantized as added
from quantizer.ops.mul import accumulate as multiplied
from quantizer.platforms.litert import softmax_tables
from quantizer.platforms.litert.leaky import two_sided
from quantizer.platforms.litert.logistic_tables import (
    read,
)
from quantizer.platforms.litert.rules import PLATFORMS
from quantizer.platforms.litert.vectors import narrowed_product, narrowed_sum


@operator("add", kind="quantized", platform="tflite_builtin")
def add_in_vectors(a: Tensor, b: Tensor, *, parameters: Parameters) -> Tensor:
    """Add as on other platforms, but 8-bit sums pass through lanes of 16 bits."""
    terms = {"a": centred(a, parameters.inputs["a"]), "b": centred(b, parameters.inputs["b"])}
    return narrowed_sum(terms, parameters, [tuple(a.shape), tuple(b.shape)])


@operator("add", kind="quantized", platform="xnnpack")
def add_of_xnnpack(a: Tensor, b: Tensor, *, parameters: Parameters) -> Tensor:
    """Add by XNNPACK's rule, or by LiteRT's own kernel's rule if XNNPACK does not support the ratios of scales."""
    own = parameters.rescale is not None and parameters.rescale.variant == "q21_half_up"
    # an unsupported ratio is left to LiteRT's own kernel by the delegate
    return (added if own else add_in_vectors)(a, b, parameters=parameters)


@operator("leaky_relu", kind="quantized", platform=PLATFORMS)
def leaky_relu(x: Tensor, *, parameters: Parameters, slope: float) -> Tensor:
    """Multiply nonnegative and negative codes by their own multipliers and round."""
    return two_sided(x, parameters)


@operator("mul", kind="quantized", platform="tflite_builtin")
def mul_in_vectors(a: Tensor, b: Tensor, *, parameters: Parameters) -> Tensor:
    """Multiply as on other platforms, but 8-bit products pass through lanes of 16 bits."""
    products = multiplied(a, b, parameters=parameters)
    return narrowed_product(products, parameters, [tuple(a.shape), tuple(b.shape)])


@operator("mul", kind="quantized", platform="xnnpack")
def mul_of_xnnpack(a: Tensor, b: Tensor, *, parameters: Parameters) -> Tensor:
    """Multiply by XNNPACK's rule, or by LiteRT's own kernel's rule if XNNPACK does not support the ratio of scales."""
    # XNNPACK's qs8 product: float32 multiplier, ties to even
    if parameters.rescale is not None and parameters.rescale.variant == "f32_even":
        return requantize_accumulator(multiplied(a, b, parameters=parameters), parameters)
    return mul_in_vectors(a, b, parameters=parameters)


@operator("relu", kind="quantized", platform=PLATFORMS)
def relu(x: Tensor, *, parameters: Parameters) -> Tensor:
    """Rescale, round, clamp at the output's zero point; a shift that wraps also affects negative codes."""
    codes = requantize_terms({"x": centred(x, parameters.inputs["x"])}, parameters)
    # the zero point stands for 0
    return codes.clamp(min=int(parameters.outputs["y"].zero_point))


@operator("sigmoid", kind="quantized", platform=PLATFORMS)
def sigmoid(x: Tensor, *, parameters: Parameters) -> Tensor:
    """Look the code up, or interpolate on the grid."""
    return read(x, parameters, tanh=False)


@operator("softmax", kind="quantized", platform=PLATFORMS)
def softmax(x: Tensor, *, parameters: Parameters, axis: int) -> Staged:
    """Look up exponentials, add them, divide: in fixed point, in float32, or by a table of reciprocals."""
    if "reciprocal" in parameters.tables:
        return softmax_tables.of_wide(x, parameters, axis)
    fixed = parameters.platform.tables.exponential == "fixed_point"
    return (softmax_tables.of_gemmlowp if fixed else softmax_tables.of_float32)(x, parameters, axis)


@operator("tanh", kind="quantized", platform=PLATFORMS)
def tanh(x: Tensor, *, parameters: Parameters) -> Tensor:
    """Look the code up, or interpolate on the grid."""
    return read(x, parameters, tanh=True)
