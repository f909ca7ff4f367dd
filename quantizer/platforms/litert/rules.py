"""Quantize rules of LiteRT: tables, two multipliers of leaky_relu, exponentials.

Its platforms also select generic arithmetics in `numerics`: `q31_half_up_in_8_lanes`, verified on 1.2 million elements
of LiteRT 2.3, and `q31_folded`, which is TensorFlow Lite's MEAN. Multipliers are computed as in TensorFlow Lite.
"""

from __future__ import annotations

from quantizer.core.platform_settings import NARROW_BITS
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.request import Request
from quantizer.ops import operator
from quantizer.platforms.litert import float32_tanh, softmax_tables
from quantizer.platforms.litert.leaky import two_multipliers
from quantizer.platforms.litert.logistic_tables import (
    centred_logistic,
    float32_logistic,
    is_narrow,
    on_a_grid,
    tabulated_float32,
)

PLATFORMS = ("tflite_ref", "tflite_builtin", "xnnpack")
"""The platforms of LiteRT's three resolvers of kernels."""


@operator("leaky_relu", kind="quantize", platform=PLATFORMS)
def leaky_relu(request: Request) -> Parameters:
    """Provide a multiplier and a shift for each side."""
    return two_multipliers(request)


@operator("sigmoid", kind="quantize", platform=("tflite_ref", "tflite_builtin"))
def sigmoid(request: Request) -> Parameters:
    """Provide a float32 table whose ties go away from zero; for 16 bits a logistic function on a grid."""
    if is_narrow(request):
        return tabulated_float32(request, float32_logistic, "half_away")
    return on_a_grid(request, tanh=False)


@operator("sigmoid", kind="quantize", platform="xnnpack")
def sigmoid_of_xnnpack(request: Request) -> Parameters:
    """Provide a table of float64 values, rounded to float32 with the zero point added; for 16 bits LiteRT's."""
    if is_narrow(request):
        return tabulated_float32(request, centred_logistic, "half_even")
    return on_a_grid(request, tanh=False)


@operator("softmax", kind="quantize", platform=PLATFORMS)
def softmax(request: Request) -> Parameters:
    """Provide exponentials of every distance, gemmlowp's or float32; for 16 bits two tables on [-10, 0] and [0, 1]."""
    if request.scheme.activation.bits > NARROW_BITS:
        return softmax_tables.wide(request)
    fixed = request.platform.tables.exponential == "fixed_point"
    return softmax_tables.gemmlowp(request) if fixed else softmax_tables.float32(request)


@operator("tanh", kind="quantize", platform=("tflite_ref", "tflite_builtin"))
def tanh(request: Request) -> Parameters:
    """Provide a float32 table whose ties go away from zero; for 16 bits a logistic function on a grid."""
    if is_narrow(request):
        return tabulated_float32(request, float32_tanh.tanh, "half_away")
    return on_a_grid(request, tanh=True)


@operator("tanh", kind="quantize", platform="xnnpack")
def tanh_of_xnnpack(request: Request) -> Parameters:
    """Provide a float32 table whose ties go to even; for 16 bits LiteRT's own table."""
    if is_narrow(request):
        return tabulated_float32(request, float32_tanh.tanh, "half_even")
    return on_a_grid(request, tanh=True)
