"""Leaky rectified linear unit."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from quantizer.numerics.finish import finish_sum
from quantizer.numerics.parameters import Request, default_parameters
from quantizer.numerics.qparams import Parameters, Slope, Staged
from quantizer.numerics.quantize import centred
from quantizer.numerics.staged_activations import below_zero, slope_of
from quantizer.numerics.sums import rescale_alone
from quantizer.numerics.tables import lookup, tabulated
from quantizer.ops import operator


@operator("leaky_relu")
def reference(x: Tensor, *, slope: float) -> Tensor:
    """Return x where it is not negative, else x * slope."""
    return torch.where(x < 0, x * slope, x)


@operator("leaky_relu")
def quantize(request: Request) -> Parameters:
    """Hand a table of the function, as the platform builds it."""
    slope = float(request.attrs["slope"])  # type: ignore[arg-type]
    return tabulated(request, lambda v: torch.maximum(v, v * 0) + slope * torch.minimum(v, v * 0))


@operator("leaky_relu")
def quantized(x: Tensor, *, parameters: Parameters, slope: float) -> Tensor:
    """Look the code up."""
    return lookup(x, parameters.tables["lut"])


@operator("leaky_relu", platform="compass")
def quantize_compass(request: Request) -> Parameters:
    """Hand the slope as an integer of as many bits as the activation has, and the multiplier of both sides."""
    parameters, bits = default_parameters(request), request.scheme.activation.bits
    slope = slope_of(float(request.attrs["slope"]), bits)  # type: ignore[arg-type]
    (x,) = parameters.inputs.values()
    ratio = rescale_alone(request.platform, x, parameters.outputs["y"], bits)
    return replace(parameters, rescale=ratio, numbers={"slope": int(slope.codes), "slope_shift": slope.shift})


@operator("leaky_relu", platform="compass")
def quantized_compass(x: Tensor, *, parameters: Parameters, slope: float) -> Staged:
    """Multiply the negative side and round, then bring both sides to the output's scale and round.

    Source: the Compass Optimizer's LeakyRELU.
    """
    c = centred(x, parameters.inputs["x"])
    held = Slope(torch.tensor(parameters.numbers["slope"]), parameters.numbers["slope_shift"])
    below = below_zero(c, held, parameters.platform.rounding)
    return Staged(finish_sum({"x": c.clamp(min=0) + below}, parameters), {"negative": below})
