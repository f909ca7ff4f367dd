"""Wrong: the last rounding takes ties away from zero where the platform rounds them to even."""

from __future__ import annotations

from quantizer.numerics.qparams import Staged
from quantizer.numerics.quantize import centred
from quantizer.numerics.rounding import round_tensor
from quantizer.ops import REGISTRY, operator

right_swiglu = REGISTRY.get("swiglu", "quantized")


@operator("swiglu", version="2.0")
def quantized(gate, up, *, parameters):
    act = right_swiglu(gate, up, parameters=parameters).stages["act"]
    output = parameters.outputs["y"]
    ratio = parameters.stages["act"].scale * parameters.inputs["up"].scale / output.scale
    product = act * centred(up, parameters.inputs["up"]) * ratio
    codes = round_tensor(product, "half_away").long() + output.zero_point
    return Staged(codes.clamp(output.qmin, output.qmax), {"act": act})
