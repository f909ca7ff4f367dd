"""Questions about an accumulator that saturates at each addition: biases whose exact sums are what it would hold.

Each item of `filters` is one product, repeated, and a bias. So the order only matters between products and bias.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from quantizer.conformance.probe.question import Question


def saturated(question: Question, bits: int, first: str) -> Question:
    """Return the question whose exact sums are those of a saturating accumulator that adds bias or products *first*."""
    x = question.shown["x"].astype(np.int64) - int(question.params("x").zero_point)
    products = (x * question.shown["weight"]).sum(axis=1)
    bias, half = question.shown["bias"].astype(np.int64), 1 << (bits - 1)
    begin, rest = (bias, products) if first == "bias" else (products, bias)
    held = np.clip(np.clip(begin, -half, half - 1) + rest, -half, half - 1)
    codes = torch.from_numpy(held - products)
    constants = {**question.constants, "bias": replace(question.constants["bias"], codes=codes)}
    shown = {**question.shown, "bias": codes.numpy()}
    return replace(question, codes={**question.codes, "bias": codes}, constants=constants, shown=shown)
