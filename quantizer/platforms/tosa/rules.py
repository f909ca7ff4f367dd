"""Quantize rules of TOSA that differ from the generic rule: the bounds of CLAMP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.request import Request
from quantizer.numerics.rounding import round_scalar
from quantizer.numerics.sums import rescale_sum
from quantizer.ops import operator


@operator("clip", kind="quantize", platform="tosa")
def clip(request: Request) -> Parameters:
    """Provide the multiplier, and both bounds as centred codes of the output: rounded, then within its codes."""
    parameters, family = default_parameters(request), request.spec.quantization.family
    output, mode = parameters.outputs["y"], request.platform.rounding
    bits, zero, scale = request.scheme.activation.bits, int(output.zero_point), Fraction(float(output.scale))
    ratio = rescale_sum(
        request.platform, family, parameters.inputs, output, bits, shapes=request.shapes, variant=request.variant
    )
    attrs: Mapping[str, Any] = request.attrs
    nearest = {
        name: round_scalar(Fraction(float(attrs[end])) / scale, mode)
        for name, end in (("least", "low"), ("most", "high"))
    }
    # CLAMP takes its bounds in the type of the codes, so that they must lie in its range
    numbers = {name: min(max(code, output.qmin - zero), output.qmax - zero) for name, code in nearest.items()}
    return replace(parameters, rescale=ratio, numbers=numbers)
