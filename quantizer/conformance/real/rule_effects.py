"""Effects of reported bugs that change the numbers of a quantize rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from quantizer.conformance.faults.fault import Wrap
from quantizer.numerics.qparams import Constant, Parameters
from quantizer.ops.registry import Function

INT32_LIMIT = (1 << 31) - 1


def _bias_sign(original: Function) -> Function:
    """Flip the sign of bias codes near the end of 32 bits, as wrapping does."""

    def faulty(request: Any) -> Parameters:
        provided: Parameters = original(request)
        constants: Mapping[str, Constant] = {
            # -(2**31 - 1) and 2**31 - 1 exchange, as a sum that leaves 32 bits changes its sign
            name: Constant(torch.where(held.codes.abs() >= INT32_LIMIT, -held.codes, held.codes), held.params)
            for name, held in provided.constants.items()
        }
        return replace(provided, constants=constants)

    return faulty


def _zero_point_truncated(original: Function) -> Function:
    """Compute the zero point of an output in float32 and truncate it."""

    def faulty(request: Any) -> Parameters:
        provided: Parameters = original(request)
        outputs = dict(provided.outputs)
        for name, y in outputs.items():
            low = torch.tensor(min(request.ranges[name][0], 0.0), dtype=torch.float32)
            # the right rule rounds to the nearest code
            zero = (y.qmin - low / y.scale.float()).trunc().long().clamp(y.qmin, y.qmax)
            outputs[name] = replace(y, zero_point=zero.reshape(y.zero_point.shape))
        return replace(provided, outputs=outputs)

    return faulty


def _held(change: Callable[[Constant], Tensor]) -> Wrap:
    """Double the scale of the weights' channels or blocks for which the condition holds."""

    def wrap(original: Function) -> Function:
        def faulty(request: Any) -> Parameters:
            provided: Parameters = original(request)
            found = dict(provided.constants)
            for name, held in found.items():
                if request.spec.inputs[name].role == "weight":
                    scale = torch.where(change(held), held.params.scale * 2, held.params.scale)
                    found[name] = replace(held, params=replace(held.params, scale=scale))
            return replace(provided, constants=found)

        return faulty

    return wrap


def _all_zero(held: Constant) -> Tensor:
    """Return for each scale whether all codes under it are the zero point."""
    at_zero, scale, blocks = held.codes == held.params.zero_point.reshape(-1)[0], held.params.scale, held.params.blocks
    if blocks is not None:
        along = at_zero.movedim(blocks.axis, -1)
        # one entry for each block along the last axis, then back to the order of the scales
        parts = [part.all(dim=-1) for part in along.split(blocks.size, dim=-1)]
        return torch.stack(parts, dim=-1).movedim(-1, blocks.axis).reshape(scale.shape)
    if held.params.axis is None:
        return at_zero.all().expand(scale.shape)
    return at_zero.movedim(held.params.axis, 0).flatten(1).all(dim=1).reshape(scale.shape)


RULES: Mapping[str, Callable[..., Wrap]] = {
    "zeros_without_scale": lambda: _held(_all_zero),
    "scale_below": lambda power: _held(lambda held: held.params.scale < 2.0**-power),
    "bias_sign": lambda: _bias_sign,
    "zero_point_truncated": lambda: _zero_point_truncated,
}
"""Effects on the quantize rule."""
