"""`weighted_scale_param[a,b,c,d]`: a scale between the fit of the positive end and the fit of the negative end."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from quantizer.calibration.statistics import Statistics
from quantizer.core.errors import UnsupportedError

EPSILON = torch.finfo(torch.float32).eps


def ranges(found: Statistics, bits: int, numbers: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Return (smallest, largest) of one tensor. Slices keep their averaged ends, as in Compass.

    numbers a, b, c, d: the weight of the positive end's scale is a if that end is the wider one, else b if the
    deviation is above d, else c. UnsupportedError for a > 1, which selects a search of Compass that carries its state
    from tensor to tensor.
    """
    if numbers[0] > 1:
        raise UnsupportedError(
            f"weighted_scale_param[{','.join(f'{n:g}' for n in numbers)}]: a > 1 asks for a search whose result "
            "depends on the tensors before. Write a <= 1."
        )
    if found.low.dim():
        return found.running_low, found.running_high
    assert found.deviation is not None
    signed = bool(found.low < 0.0)
    span = torch.tensor(float((1 << bits) - 1), dtype=torch.float32)
    positive = found.running_high.clamp(min=0.0).abs()
    negative = found.running_low.clamp(max=0.0).abs()
    weight = (
        numbers[0] if bool(positive > negative) else numbers[1] if bool(found.deviation > numbers[3]) else numbers[2]
    )
    # an end without values counts with one step per unit: span / span
    positive = torch.where(positive < EPSILON, span, positive)
    negative = torch.where(negative < EPSILON, span, negative)
    end = span / (weight * (span / positive) + (1 - weight) * (span / negative))
    return (-end, end) if signed else (torch.zeros_like(end), end)
