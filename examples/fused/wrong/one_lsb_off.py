"""Wrong: the SiLU is one code too high wherever the gate is above 0, and everything after it follows from that."""

from __future__ import annotations

import torch

from quantizer.numerics.qparams import Staged
from quantizer.numerics.quantize import centred
from quantizer.ops import REGISTRY, operator


def one_more(name):
    """Return the right function of operator *name*, whose shown stage `act` is one code higher where the gate is above 0."""
    right = REGISTRY.get(name, "quantized")

    def wrong(gate, *, parameters, **others):
        shown = right(gate=gate, parameters=parameters, **others)
        above = centred(gate, parameters.inputs["gate"]) > 0
        act = torch.where(above, shown.stages["act"] + 1, shown.stages["act"])
        return Staged(shown.codes, {**shown.stages, "act": act})

    return wrong


right_swiglu, right_norm = one_more("swiglu"), one_more("gated_rms_norm")


@operator("swiglu", version="2.0")
def quantized(gate, up, *, parameters):
    return right_swiglu(gate, up=up, parameters=parameters)


@operator("gated_rms_norm", version="2.0")
def quantized(x, gate, gamma, *, parameters, epsilon):  # noqa: F811
    return right_norm(gate, x=x, gamma=gamma, parameters=parameters, epsilon=epsilon)
