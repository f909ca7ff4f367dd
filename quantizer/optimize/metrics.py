"""Built-in metrics: they compare a batch of predictions with its labels."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from quantizer.core.errors import FormatError
from quantizer.plugins.aipu.registration import OptBaseMetric


class TopKMetric(OptBaseMetric):
    """Share of labels among the k largest values of the first output."""

    def __init__(self, k: str = "1") -> None:
        if not k.isdigit() or not 1 <= int(k) <= 1 << 20:
            raise FormatError(f"TopKMetric({k}): k must be a whole number of at least 1.")
        self.k = int(k)
        self.reset()

    def reset(self) -> None:
        """Forget all batches."""
        self.correct = self.total = 0

    def __call__(self, pred: list[Tensor], target: Any) -> None:
        """Count the labels that are among the best predictions."""
        rows = pred[0].reshape(pred[0].shape[0], -1)
        if self.k > rows.shape[1]:
            raise FormatError(f"TopKMetric({self.k}): the output has {rows.shape[1]} classes.")
        # a list holds the labels of each output, and this metric reads the first
        labels = torch.as_tensor(target if not isinstance(target, list) else target[0]).reshape(-1)
        best = rows.topk(self.k, dim=-1).indices
        self.correct += int((best == labels.long().unsqueeze(1)).any(dim=1).sum())
        self.total += labels.numel()

    def compute(self) -> float:
        """Return the share, -inf without labels."""
        return self.correct / self.total if self.total else float("-inf")

    def report(self) -> str:
        """Return the score as a sentence."""
        return f"top-{self.k} accuracy is {self.compute():f}"


class _PerSample(OptBaseMetric, abc.ABC):
    """Mean over samples of a number that is computed from one sample's joined outputs."""

    title = ""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all batches."""
        self.scores: list[float] = []

    def __call__(self, pred: list[Tensor], target: Any) -> None:
        """Add the number of each sample."""
        for got, wanted in zip(_joined(pred), _joined(target), strict=True):
            if got.shape != wanted.shape:
                text = f"{type(self).__name__}: {got.numel()} predicted numbers, {wanted.numel()} in the label"
                raise FormatError(f"{text}: the numbers must be equal.")
            self.scores.append(self.score(got, wanted))

    @abc.abstractmethod
    def score(self, got: Tensor, wanted: Tensor) -> float:
        """Return the number of one sample, float64 vectors."""

    def compute(self) -> float:
        """Return the mean, NaN without samples."""
        return math.fsum(self.scores) / len(self.scores) if self.scores else float("nan")

    def report(self) -> str:
        """Return the score as a sentence."""
        return f"{self.title} is {self.compute():f}"


class CosDistanceMetric(_PerSample):
    """Cosine of the angle between prediction and label."""

    title = "cosine similarity"

    def score(self, got: Tensor, wanted: Tensor) -> float:
        """Return the cosine, with norms of at least 1e-8."""
        # torch's default eps is 1e-8
        return float(torch.nn.functional.cosine_similarity(got, wanted, dim=-1))


class MaxAbsErrorMetric(_PerSample):
    """Largest absolute error."""

    title = "maximum absolute error"

    def score(self, got: Tensor, wanted: Tensor) -> float:
        """Return max |got - wanted|."""
        return float((got - wanted).abs().max())


class MSEMetric(_PerSample):
    """Mean squared error."""

    title = "mean squared error"

    def score(self, got: Tensor, wanted: Tensor) -> float:
        """Return mean (got - wanted)**2."""
        return float(((got - wanted) ** 2).mean())


class RMSEMetric(_PerSample):
    """Root of the mean squared error."""

    title = "root mean squared error"

    def score(self, got: Tensor, wanted: Tensor) -> float:
        """Return sqrt(mean (got - wanted)**2)."""
        return math.sqrt(float(((got - wanted) ** 2).mean()))


class PSNRMetric(_PerSample):
    """Peak signal to noise ratio in dB, the peak being the label's largest absolute value."""

    title = "peak signal to noise ratio"

    def score(self, got: Tensor, wanted: Tensor) -> float:
        """Return 20 log10(peak / root mean squared error)."""
        return decibels(float(wanted.abs().max()) ** 2, float(((got - wanted) ** 2).mean()))


class SQNRMetric(_PerSample):
    """Signal to quantization noise ratio in dB."""

    title = "signal to quantization noise ratio"

    def score(self, got: Tensor, wanted: Tensor) -> float:
        """Return 10 log10(sum wanted**2 / sum (got - wanted)**2)."""
        return decibels(float((wanted**2).sum()), float(((got - wanted) ** 2).sum()))


BUILT_IN: tuple[Callable[..., OptBaseMetric], ...] = (
    TopKMetric,
    CosDistanceMetric,
    MaxAbsErrorMetric,
    MSEMetric,
    RMSEMetric,
    PSNRMetric,
    SQNRMetric,
)


def decibels(signal: float, noise: float) -> float:
    """Return 10 log10(signal / noise); infinite without noise, -infinite without signal."""
    if noise == 0.0:
        return math.inf
    return 10.0 * math.log10(signal / noise) if signal > 0.0 else -math.inf


def _joined(parts: Any) -> Iterator[Tensor]:
    """Yield for each sample the numbers of all its parts as one float64 vector."""
    listed = parts.values() if isinstance(parts, dict) else parts if isinstance(parts, list | tuple) else [parts]
    tensors = [torch.as_tensor(part) for part in listed]
    for index in range(tensors[0].shape[0]):
        yield torch.cat([tensor[index].reshape(-1).double() for tensor in tensors])
