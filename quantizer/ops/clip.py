"""Clamp to two bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from quantizer.numerics import aten
from quantizer.numerics.finish import finish_sum
from quantizer.numerics.parameters import Request, default_parameters
from quantizer.numerics.qparams import Bounds, Parameters, Staged, Table
from quantizer.numerics.quantize import centred
from quantizer.numerics.rounding import round_scalar
from quantizer.numerics.staged_activations import bounds_of, from_relay, relay
from quantizer.numerics.sums import rescale_alone, rescale_sum
from quantizer.numerics.tables import lookup, tabulated
from quantizer.ops import operator


@operator("clip")
def reference(x: Tensor, *, low: float, high: float) -> Tensor:
    """Return x clamped to [low, high]."""
    return x.clamp(low, high)


@operator("clip")
def quantize(request: Request) -> Parameters:
    """Hand a table of the function, as the platform builds it."""
    low = float(request.attrs["low"])  # type: ignore[arg-type]
    high = float(request.attrs["high"])  # type: ignore[arg-type]
    return tabulated(
        request, lambda v: torch.minimum(torch.maximum(v, torch.full_like(v, low)), torch.full_like(v, high))
    )


@operator("clip")
def quantized(x: Tensor, *, parameters: Parameters, low: float, high: float) -> Tensor:
    """Look the code up."""
    return lookup(x, parameters.tables["lut"])


@operator("clip", platform="compass")
def quantize_compass(request: Request) -> Parameters:
    """Hand the multiplier, and both bounds as codes of eight bits more (none more for outputs of over eight bits)."""
    parameters, bits = default_parameters(request), request.scheme.activation.bits
    (x,), y = parameters.inputs.values(), parameters.outputs["y"]
    low, high = (float(request.attrs[name]) for name in ("low", "high"))  # type: ignore[arg-type]
    bounds = bounds_of(low, high, y, bits)
    return replace(
        parameters, rescale=rescale_alone(request.platform, x, y, bits),
        numbers={"low": bounds.low, "high": bounds.high, "relay_bits": bounds.relay_bits},
    )  # fmt: skip


@operator("clip", platform="compass")
def quantized_compass(x: Tensor, *, parameters: Parameters, low: float, high: float) -> Staged:
    """Bring the code to eight bits more than the output has, round, clamp, drop those bits and round again.

    Source: the Compass Optimizer's Clip.
    """
    numbers, output, mode = parameters.numbers, parameters.outputs["y"], parameters.platform.rounding
    assert parameters.rescale is not None
    bounds = Bounds(numbers["low"], numbers["high"], numbers["relay_bits"])
    relayed = relay(centred(x, parameters.inputs["x"]), bounds, parameters.rescale, mode, None)
    return Staged(from_relay(relayed, bounds, output, mode), {"relay": relayed})


@operator("clip", platform="tosa")
def quantize_tosa(request: Request) -> Parameters:
    """Hand the multiplier, and both bounds as centred codes of the output: rounded, then within its codes."""
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
    numbers = {name: min(max(code, output.qmin - zero), output.qmax - zero) for name, code in nearest.items()}
    return replace(parameters, rescale=ratio, numbers=numbers)


@operator("clip", platform="tosa")
def quantized_tosa(x: Tensor, *, parameters: Parameters, low: float, high: float) -> Tensor:
    """Bring the code to the output's scale, then clamp it: RESCALE, CLAMP."""
    numbers, zero = parameters.numbers, int(parameters.outputs["y"].zero_point)
    codes = finish_sum({"x": centred(x, parameters.inputs["x"])}, parameters)
    return codes.clamp(numbers["least"] + zero, numbers["most"] + zero)


@operator("clip", platform=aten.PLATFORMS)
def quantize_torch(request: Request) -> Parameters:
    """Hand the table of codes cut at the codes of both bounds; the output has the input's parameters."""
    parameters = default_parameters(request)
    x = parameters.inputs["x"]
    low, high = (aten.code_of_bound(float(request.attrs[name]), x) for name in ("low", "high"))  # type: ignore[arg-type]
    entries = torch.arange(x.qmin, x.qmax + 1).clamp(low, high)
    return replace(parameters, tables={"lut": Table(entries, x.qmin, 1, float(x.scale), x.dtype.bits)})
