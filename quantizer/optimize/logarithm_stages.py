"""Intermediate results of a LogSoftmax with two tables, which calibration observes as it observes outputs."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.numerics.lanes import softmax
from quantizer.numerics.pinned import pinned
from quantizer.numerics.ratio_to_multiplier import FLOAT32_EPSILON

SHARES, LOGARITHMS = "shares", "logarithms"
"""Names of the ranges that a request has besides the output's."""


@pinned()
def staged(x: Tensor, axis: int) -> dict[str, Tensor]:
    """Return the calibrated real values: softmax outputs of at least float32's epsilon, and their logarithms."""
    shares = softmax(x.float(), axis).clamp(FLOAT32_EPSILON, 1.0)
    return {SHARES: shares, LOGARITHMS: torch.log(shares)}
