"""Fused activations, applied to real numbers or to rounded codes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

import torch
from torch import Tensor

from quantizer.numerics.float_codes import nearest
from quantizer.numerics.fused_activations import STAGED, activate_staged
from quantizer.numerics.qparams import Parameters, QParams
from quantizer.numerics.quantize import quantize
from quantizer.numerics.rounding import round_scalar

SIX = 6
LIMITS = {"none": (-math.inf, math.inf), "relu": (0.0, math.inf), "relu6": (0.0, float(SIX))}
"""Activation -> smallest and largest real value that it lets through."""


def activate(values: Tensor, name: str, attrs: Mapping[str, object] | None = None, axis: int = -1) -> Tensor:
    """Return real *values* after activation *name*, in their type.

    attrs: its attributes, as in `ir.graph.Node`. If there are several slopes, each belongs to one slice along *axis*.
    """
    if name in STAGED:
        return activate_staged(values, name, attrs or {}, axis)
    return values if name == "none" else values.clamp(*LIMITS[name])


def activate_codes(codes: Tensor, output: QParams, name: str, parameters: Parameters) -> Tensor:
    """Return int64 codes after activation *name*, from the codes before it.

    Rounding is monotone and takes 0 to the zero point, so clamping codes equals clamping the numbers before rounding,
    unless the platform converts the limit to a code by another rule. An activation that works on the sum has already
    been applied.
    """
    if name == "none" or parameters.fused is not None:
        return codes
    zero = int(output.zero_point)
    if name == "relu":
        return codes.clamp(min=max(zero, output.qmin))
    if output.dtype.kind == "float":
        top = int(
            nearest(
                torch.tensor(SIX / float(output.scale), dtype=torch.float64),
                output.dtype.name,
                parameters.platform.rounding,
            )
        )
        return codes.clamp(zero, top)
    platform, rescale = parameters.platform, parameters.rescale
    variant = parameters.variant or (None if rescale is None else rescale.variant)
    if (limit := platform.limit(variant)) is not None:
        top = int(quantize(torch.tensor(float(SIX)), output, limit))
    else:
        # in rationals, as float64 may put 6 / scale on the wrong side of a tie
        top = round_scalar(Fraction(SIX) / Fraction(float(output.scale)), platform.rounding) + zero
    return codes.clamp(max(zero, output.qmin), min(top, output.qmax))
