"""Rounding to integers."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from quantizer.numerics.parameters import Request, default_parameters
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.tables import interpolated_table
from quantizer.ops import operator


@operator("round")
def reference(x: Tensor) -> Tensor:
    """Return the nearest integer, of two the even one."""
    return torch.round(x)


@operator("round")
def function(x: Tensor) -> Tensor:
    """Return what tables hold, by one call."""
    return x.round()


@operator("round", platform="compass")
def quantize_compass(request: Request) -> Parameters:
    """Hand a table that is built from the smallest code on, and read from the smallest of the format.

    Where codes are restricted these differ, and every code reads the entry of another. Source: the Compass Optimizer's Round.
    """
    parameters, rule = default_parameters(request), request.platform.tables
    x, bits = parameters.inputs["x"], request.scheme.activation.lut_bits
    table = interpolated_table(
        torch.round,
        x,
        parameters.outputs["y"],
        bits,
        request.platform.rounding,
        alignment=rule.alignment,
        repeated=False,
    )
    return replace(parameters, tables={"lut": replace(table, first=x.first)})
