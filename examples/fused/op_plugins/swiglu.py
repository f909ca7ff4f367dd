"""SwiGLU of two operands: a table of SiLU in 16 bits, times a code, rounded once more."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics.qparams import Parameters, Staged
from quantizer.numerics.quantize import centred
from quantizer.numerics.rounding import round_tensor
from quantizer.ops import operator


@operator("swiglu", version="1.0")
def reference(gate: Tensor, up: Tensor) -> Tensor:
    """Return silu(gate) * up."""
    return torch.nn.functional.silu(gate) * up


@operator("swiglu", version="1.0")
def quantized(gate: Tensor, up: Tensor, *, parameters: Parameters) -> Staged:
    """Look the SiLU up, multiply, round: both roundings in the platform's mode."""
    act = looked_up(gate, parameters)
    return Staged(product(act, centred(up, parameters.inputs["up"]), parameters), {"act": act})


def looked_up(gate: Tensor, parameters: Parameters) -> Tensor:
    """Return the 16-bit codes of the SiLU: one table entry for each code of the gate."""
    params, stage = parameters.inputs["gate"], parameters.stages["act"]
    every = torch.arange(params.qmin, params.qmax + 1)
    real = torch.nn.functional.silu(centred(every, params).double() * params.scale)
    table = round_tensor(real / stage.scale, parameters.platform.rounding).clamp(stage.qmin, stage.qmax)
    # the first entry belongs to the smallest code
    return table.long()[gate - params.qmin]


def product(act: Tensor, up: Tensor, parameters: Parameters) -> Tensor:
    """Return the output's codes of act * up, both centred codes."""
    output = parameters.outputs["y"]
    ratio = parameters.stages["act"].scale * parameters.inputs["up"].scale / output.scale
    codes = round_tensor(act * up * ratio, parameters.platform.rounding).long() + output.zero_point
    return codes.clamp(output.qmin, output.qmax)
