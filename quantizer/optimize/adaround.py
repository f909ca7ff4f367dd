"""AdaRound: round each weight up or down, whichever reduces the layer's output error; learned by gradient descent."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

STRETCH_LOW, STRETCH_HIGH = -0.1, 1.1
"""Ends of the stretched sigmoid, which reaches 0 and 1 (Louizos et al. 2018)."""


@dataclass(frozen=True)
class Schedule:
    """How long and how fast a layer learns."""

    epochs: int
    batch_size: int
    learning_rate: float
    regularization: float
    beta: tuple[float, float]
    """Power of the regularizer, at its start and at its end."""
    warm_start: float
    """The share of the steps without the regularizer, at the start."""

    def power(self, step: int, count: int) -> float | None:
        """Return the regularizer's power at a step of *count*, along half a cosine; None before it sets in."""
        first = self.warm_start * count
        if step < first:
            return None
        start, end = self.beta
        return end + 0.5 * (start - end) * (1 + math.cos((step - first) / (count - first) * math.pi))


def adaround(
    steps: Tensor,
    schedule: Schedule,
    samples: int,
    error: Callable[[Tensor, slice], Tensor],
) -> Tensor:
    """Return whether each weight is rounded up, 0 or 1 of float32.

    steps: weights times codes per unit. samples: the number of samples. error: (codes, real while they are learned;
    indices of samples) -> the error of the layer's output. Source: Nagel et al. 2020: a rectified sigmoid of the
    learned number lies between the floor (0) and the next code (1); a regularizer drives it to 0 or 1. It starts at
    each weight's own fraction.
    """
    floor = steps.floor()
    share = steps - floor
    # the inverse of the stretched sigmoid, so that learning starts at each weight's fraction
    learned = (-torch.log((STRETCH_HIGH - STRETCH_LOW) / (share - STRETCH_LOW) - 1.0)).requires_grad_()
    optimizer = torch.optim.Adam([learned], lr=schedule.learning_rate)
    size = schedule.batch_size
    # a last batch that is not full is left out, so that all batches weigh the same
    places = [slice(first, first + size) for first in range(0, samples - size + 1, size)]
    count = len(places) * schedule.epochs
    for step in range(count):
        optimizer.zero_grad()
        loss = error(floor + _up(learned), places[step % len(places)])
        power = schedule.power(step, count)
        if power is not None:
            # 0 where a weight is decided. A high power leaves the middle flat: early steps follow the layer's error
            loss = loss + (1.0 - (2 * _up(learned) - 1).abs().pow(power)).sum() * schedule.regularization
        loss.backward()
        optimizer.step()
    return (learned.detach() >= 0).float()


def _up(learned: Tensor) -> Tensor:
    return (learned.sigmoid() * (STRETCH_HIGH - STRETCH_LOW) + STRETCH_LOW).clamp(0.0, 1.0)
