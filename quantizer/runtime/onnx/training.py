"""Nodes that remain in a model from training: losses, and dropout, which does nothing in inference."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.core.errors import UnsupportedError
from quantizer.runtime.onnx.activations import softmax_along
from quantizer.runtime.onnx.kernels import kernel, one_of, scalar

REDUCTIONS = ("none", "sum", "mean")


@kernel("Dropout")
def dropout(
    x: Tensor,
    chance: Tensor | None = None,
    training: Tensor | None = None,
    *,
    ratio: float | None = None,
    seed: int | None = None,
    made: int,
) -> Tensor | tuple[Tensor, ...]:
    """Return the operand unchanged and a mask of ones; refused for a model that asks for dropout at inference."""
    if scalar(training, 0) and scalar(chance, 0.5) != 0:
        raise UnsupportedError("Dropout: training_mode must be false: the standard does not define its random numbers.")
    return x if made == 1 else (x, torch.ones(x.shape, dtype=torch.bool))


def _loss(
    op: str, logs: Tensor, labels: Tensor, weight: Tensor | None, ignore_index: int | None, reduction: str
) -> Tensor:
    """Return minus the logarithm at each label, weighted, and its sum or weighted mean."""
    one_of(op, "reduction", reduction, REDUCTIONS)
    if logs.dim() < 2 or labels.shape != (logs.shape[0], *logs.shape[2:]):
        raise UnsupportedError(
            f"{op}: scores {list(logs.shape)}, labels {list(labels.shape)}: must be the scores' without axis 1."
        )
    known = torch.ones(labels.shape, dtype=torch.bool) if ignore_index is None else labels != ignore_index
    places = torch.where(known, labels, 0).long()
    if places.numel() and not (int(places.min()) >= 0 and int(places.max()) < logs.shape[1]):
        raise UnsupportedError(f"{op}: every label must lie in [0, {logs.shape[1] - 1}], or be {ignore_index=}.")
    share = (torch.ones(logs.shape[1], dtype=logs.dtype) if weight is None else weight)[places] * known
    losses = -torch.gather(logs, 1, places.unsqueeze(1)).squeeze(1)
    # where first: an ignored label may have an infinite logarithm
    losses = torch.where(known, losses, 0) * share
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / share.sum()


@kernel("NegativeLogLikelihoodLoss")
def nll_loss(
    logs: Tensor, labels: Tensor, weight: Tensor | None = None, *, ignore_index: int | None = None, reduction: str
) -> Tensor:
    """Return minus the score of each label's class, weighted by class; the mean is weighted, too."""
    return _loss("NegativeLogLikelihoodLoss", logs, labels, weight, ignore_index, reduction)


@kernel("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(
    scores: Tensor,
    labels: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str,
    made: int,
) -> tuple[Tensor, ...]:
    """Return the negative log-likelihood loss of the log-softmax over the classes, and this log-softmax."""
    if scores.dim() < 2:
        raise UnsupportedError(f"SoftmaxCrossEntropyLoss of shape {list(scores.shape)}: must have classes.")
    halves = scores.dtype in (torch.float16, torch.bfloat16)
    logs = softmax_along(scores, 1).log() if halves else torch.log_softmax(scores, dim=1)
    return (_loss("SoftmaxCrossEntropyLoss", logs, labels, weight, ignore_index, reduction), logs)[:made]
