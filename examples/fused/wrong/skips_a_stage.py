"""Wrong: the stage before the output is shown as declared, but the output is computed from its real value, not its code."""

from __future__ import annotations

import torch

from quantizer.numerics.qparams import Staged
from quantizer.numerics.quantize import centred
from quantizer.numerics.rounding import round_tensor
from quantizer.ops import REGISTRY, operator

right_swiglu, right_norm = (REGISTRY.get(name, "quantized") for name in ("swiglu", "gated_rms_norm"))


def real(codes, params):
    return centred(codes, params).double() * params.scale


def output_codes(value, parameters):
    output = parameters.outputs["y"]
    codes = round_tensor(value / output.scale, parameters.platform.rounding).long() + output.zero_point
    return codes.clamp(output.qmin, output.qmax)


@operator("swiglu", version="2.0")
def quantized(gate, up, *, parameters):
    shown = right_swiglu(gate, up, parameters=parameters)
    act = torch.nn.functional.silu(real(gate, parameters.inputs["gate"]))
    return Staged(output_codes(act * real(up, parameters.inputs["up"]), parameters), shown.stages)


@operator("gated_rms_norm", version="2.0")
def quantized(x, gate, gamma, *, parameters, epsilon):  # noqa: F811
    shown = right_norm(x, gate, gamma, parameters=parameters, epsilon=epsilon)
    gated = shown.stages["gated"] * parameters.stages["gated"].scale
    normal = gated / torch.sqrt((gated**2).mean(-1, keepdim=True) + epsilon)
    value = normal * real(gamma, parameters.constants["gamma"].params)
    return Staged(output_codes(value, parameters), shown.stages)
