"""AdaRound: each weight is rounded up or down, whichever makes the layer's output less wrong, learned by gradient descent."""

from __future__ import annotations

import torch
from torch import Tensor

STEPS = 500
"""Steps of an epoch: each sees all samples at once, in their second moments."""
STRETCH_LOW, STRETCH_HIGH = -0.1, 1.1
"""Ends of the stretched sigmoid, which reaches 0 and 1 (Louizos et al. 2018)."""


def adaround(
    steps: Tensor, moments: Tensor, scale: Tensor, *, epochs: int, learning_rate: float, regularization: float,
    beta: tuple[float, float], warm_start: float,
) -> Tensor:  # fmt: skip
    """Return [rows, columns] of whole numbers, each the floor or the ceiling of *steps*.

    steps: [rows, columns], weights over their scale. moments: [columns, columns], sum of x x^T. scale: [rows, 1]. Source:
    Nagel et al. 2020: a rectified sigmoid of what is learned, between the floor and one more; a regularizer whose power
    falls from the first to the last *beta* drives it to 0 or 1, once *warm_start* of the steps are over. A row that learning
    leaves worse than its nearest codes keeps these.
    """
    floor = steps.floor()
    share = (steps - floor).clamp(0.001, 0.999)
    learned = torch.logit((share - STRETCH_LOW) / (STRETCH_HIGH - STRETCH_LOW)).requires_grad_()
    optimizer = torch.optim.Adam([learned], lr=learning_rate)
    nearest = steps.round()
    usual = _errors((nearest - steps) * scale, moments)
    total = epochs * STEPS
    for step in range(total):
        up = _up(learned)
        loss = _errors((floor + up - steps) * scale, moments).sum() / (float(usual.sum()) or 1.0)
        if step >= warm_start * total:
            done = (step / total - warm_start) / (1.0 - warm_start)
            power = beta[1] + (beta[0] - beta[1]) * max(0.0, 1.0 - done)
            loss = loss + regularization * (1.0 - (2.0 * up - 1.0).abs() ** power).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found = floor + (_up(learned.detach()) >= 0.5)
    worse = _errors((found - steps) * scale, moments) > usual
    return torch.where(worse[:, None], nearest, found)


def _up(learned: Tensor) -> Tensor:
    return (learned.sigmoid() * (STRETCH_HIGH - STRETCH_LOW) + STRETCH_LOW).clamp(0.0, 1.0)


def _errors(difference: Tensor, moments: Tensor) -> Tensor:
    """Return the squared error of each row's output."""
    return ((difference @ moments) * difference).sum(1)
