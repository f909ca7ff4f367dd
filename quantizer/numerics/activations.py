"""Activations that are fused into an operator: on real numbers, and on codes that are rounded already."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

import torch
from torch import Tensor

from quantizer.numerics.fused_activations import STAGED, activate_staged
from quantizer.numerics.qparams import Parameters, QParams
from quantizer.numerics.quantize import quantize
from quantizer.numerics.rounding import round_scalar

SIX = 6
LIMITS = {"none": (-math.inf, math.inf), "relu": (0.0, math.inf), "relu6": (0.0, float(SIX))}
"""Activation -> smallest and largest real value that it lets through."""


def activate(values: Tensor, name: str, attrs: Mapping[str, object] | None = None, axis: int = -1) -> Tensor:
    """Return real *values* after activation *name*, in their own type.

    attrs: what it takes, as in `ir.graph.Node`; of several slopes there is one for each slice along *axis*.
    """
    if name in STAGED:
        return activate_staged(values, name, attrs or {}, axis)
    return values if name == "none" else values.clamp(*LIMITS[name])


def activate_codes(codes: Tensor, output: QParams, name: str, parameters: Parameters) -> Tensor:
    """Return int64 codes of activated values, from the codes of the values before.

    Rounding rises and takes 0 to the zero point, so that clamping codes equals clamping the numbers that they round,
    unless the platform brings the limit to a code in a way of its own. One that works on the sum itself has been applied.
    """
    if name == "none" or parameters.fused is not None:
        return codes
    zero = int(output.zero_point)
    if name == "relu":
        return codes.clamp(min=max(zero, output.qmin))
    platform, rescale = parameters.platform, parameters.rescale
    if (limit := platform.limit(None if rescale is None else rescale.variant)) is not None:
        top = int(quantize(torch.tensor(float(SIX)), output, limit))
    else:
        top = round_scalar(Fraction(SIX) / Fraction(float(output.scale)), platform.rounding) + zero
    return codes.clamp(max(zero, output.qmin), min(top, output.qmax))
