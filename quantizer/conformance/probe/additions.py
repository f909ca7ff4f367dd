"""Questions about an accumulator that saturates at each addition, restated with biases so that exact sums are equal.

Each item of `filters` is one product, which may be repeated, and a bias, so only the order of products and bias
matters.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from quantizer.conformance.probe.question import Question


def saturated(question: Question, bits: int, first: str) -> Question:
    """Return the question whose exact sums are what *bits* hold if the bias, or the products, are added *first*."""
    x = question.shown["x"].astype(np.int64) - int(question.params("x").zero_point)
    products = (x * question.shown["weight"]).sum(axis=1)
    bias, half = question.shown["bias"].astype(np.int64), 1 << (bits - 1)
    begin, rest = (bias, products) if first == "bias" else (products, bias)
    # all products of an item have one sign, so saturating at each of them is saturating their sum
    held = np.clip(np.clip(begin, -half, half - 1) + rest, -half, half - 1)
    codes = torch.from_numpy(held - products)
    constants = {**question.constants, "bias": replace(question.constants["bias"], codes=codes)}
    shown = {**question.shown, "bias": codes.numpy()}
    return replace(question, codes={**question.codes, "bias": codes}, constants=constants, shown=shown)
