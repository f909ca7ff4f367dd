"""Clamp to two bounds."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from quantizer.numerics.parameters import Request, default_parameters
from quantizer.numerics.qparams import Bounds, Parameters, Staged
from quantizer.numerics.quantize import centred
from quantizer.numerics.staged_activations import bounds_of, from_relay, relay
from quantizer.numerics.sums import rescale_alone
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
