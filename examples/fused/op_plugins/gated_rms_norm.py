"""Root-mean-square normalisation of gated elements: four roundings, three of them in 16 bits."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics.qparams import Parameters, Staged
from quantizer.numerics.quantize import centred
from quantizer.numerics.rounding import round_tensor
from quantizer.ops import operator


@operator("gated_rms_norm", version="1.0")
def reference(x: Tensor, gate: Tensor, gamma: Tensor, *, epsilon: float) -> Tensor:
    """Return x * silu(gate), divided by the root of its mean square over the last axis plus epsilon, times gamma."""
    gated = x * torch.nn.functional.silu(gate)
    return gated / torch.sqrt((gated**2).mean(-1, keepdim=True) + epsilon) * gamma


@operator("gated_rms_norm", version="1.0")
def quantized(x: Tensor, gate: Tensor, gamma: Tensor, *, parameters: Parameters, epsilon: float) -> Staged:
    """Round the SiLU, the gated element, the normalised element and the output, each in the platform's mode."""
    inputs, stages = parameters.inputs, parameters.stages
    act = rounded(torch.nn.functional.silu(real(gate, inputs["gate"])), "act", parameters)
    gated = rounded(real(x, inputs["x"]) * act * stages["act"].scale, "gated", parameters)
    # int64 codes of 16 bits: the sum of squares is exact, and the division is the first rounding
    squares = (gated**2).sum(-1, keepdim=True).double() / x.shape[-1]
    root = torch.sqrt(squares * stages["gated"].scale ** 2 + epsilon)
    normal = rounded(gated * stages["gated"].scale / root, "normal", parameters)
    weight, output = parameters.constants["gamma"].params, parameters.outputs["y"]
    ratio = stages["normal"].scale * weight.scale / output.scale
    codes = round_tensor(normal * centred(gamma, weight) * ratio, parameters.platform.rounding).long()
    codes = (codes + output.zero_point).clamp(output.qmin, output.qmax)
    return Staged(codes, {"act": act, "gated": gated, "normal": normal})


def real(codes: Tensor, params) -> Tensor:
    """Return the real values of codes, float64."""
    return centred(codes, params).double() * params.scale


def rounded(value: Tensor, name: str, parameters: Parameters) -> Tensor:
    """Return the codes of stage *name* for real numbers."""
    stage = parameters.stages[name]
    return round_tensor(value / stage.scale, parameters.platform.rounding).long().clamp(stage.qmin, stage.qmax)
