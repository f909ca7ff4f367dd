"""Makes batches from a data set class, and checks that they have the graph's inputs and shapes and finite values."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from quantizer.core.errors import FormatError, QuantizerError
from quantizer.ir.graph import Graph


class Batches(Protocol):
    """Samples of a graph's inputs, in batches."""

    def batches(self) -> Iterator[tuple[dict[str, Tensor], Any]]:
        """Yield (input -> float32 values, labels) of each batch."""

    def sized(self, size: int) -> Batches:
        """Return the same samples in batches of another size."""


@dataclass(frozen=True)
class Loader:
    """Batches of a data set for a graph."""

    name: str
    data: Any
    graph: Graph
    size: int
    shuffled: bool = False
    source: str = ""
    """The origin of the data, for error messages."""

    def batches(self) -> Iterator[tuple[dict[str, Tensor], Any]]:
        """Yield (input -> float32 values, labels) of each batch, the last one smaller."""
        order = self._order()
        for start in range(0, len(order), self.size):
            indices = order[start : start + self.size]
            samples = [self._sample(index) for index in indices]
            yield self._collated(samples, indices)

    def sized(self, size: int) -> Loader:
        """Return the same samples in batches of *size*, or in one batch if there are fewer."""
        return replace(self, size=min(len(self.data), max(1, size)))

    def _order(self) -> list[int]:
        count = len(self.data)
        if count < 1:
            raise self._error("holds no samples")
        if not self.shuffled:
            return list(range(count))
        # an order by hashes is the same on every machine and with every version of a random generator
        return sorted(range(count), key=lambda index: hashlib.sha256(f"calibration {index}".encode()).digest())

    def _sample(self, index: int) -> Any:
        try:
            return self.data[index]
        except QuantizerError:
            raise
        except Exception as err:
            raise self._error(f"sample {index}: {type(err).__name__}: {err}") from err

    def _collated(self, samples: list[Any], indices: Sequence[int]) -> tuple[dict[str, Tensor], Any]:
        own = getattr(self.data, "collate_fn", None)
        try:
            inputs, labels = own(samples) if callable(own) else collate(samples)
        except QuantizerError:
            raise
        except Exception as err:
            raise self._error(
                f"samples {indices[0]} to {indices[-1]} make no batch: {type(err).__name__}: {err}"
            ) from err
        columns = list(inputs.values()) if isinstance(inputs, dict) else inputs
        columns = list(columns) if isinstance(columns, list | tuple) else [columns]
        if len(columns) != len(self.graph.inputs):
            raise self._error(f"samples have {len(columns)} inputs, the graph has {len(self.graph.inputs)}")
        return {
            name: self._checked(name, column, indices) for name, column in zip(self.graph.inputs, columns, strict=True)
        }, labels

    def _checked(self, name: str, values: Any, indices: Sequence[int]) -> Tensor:
        try:
            found = torch.as_tensor(values).float()
        except (TypeError, ValueError, RuntimeError) as err:
            raise self._error(f"samples of input {name!r} are not numbers: {err}") from None
        wanted = self.graph.tensor(name).shape
        if found.dim() != len(wanted) or tuple(found.shape[1:]) != wanted[1:]:
            got, shape = list(found.shape[1:]), list(wanted[1:])
            raise self._error(
                f"sample {indices[0]} of input {name!r} has shape {got}, the IR says {shape} after the batch"
            )
        if not bool(torch.isfinite(found).all()):
            place = torch.isfinite(found).logical_not().nonzero()[0].tolist()
            # a collate_fn may return more rows than samples
            sample = indices[place[0]] if place[0] < len(indices) else place[0]
            value = float(found[tuple(place)])
            raise self._error(f"sample {sample} of input {name!r} holds {value} at {place[1:]}: samples must be finite")
        return found

    def _error(self, text: str) -> FormatError:
        return FormatError(f"{self.name} {self.source}: {text}.")


def collate(samples: Sequence[Any]) -> Any:
    """Return samples joined along a new first axis.

    Lists and dicts are joined part by part; numbers and arrays become tensors.
    """
    first = samples[0]
    if isinstance(first, dict):
        return {key: collate([sample[key] for sample in samples]) for key in first}
    if isinstance(first, list | tuple):
        if any(len(sample) != len(first) for sample in samples):
            raise ValueError("samples have different numbers of parts")
        return [collate([sample[i] for sample in samples]) for i in range(len(first))]
    if isinstance(first, Tensor):
        return torch.stack(list(samples))
    # text has no tensor: metrics get the list
    if isinstance(first, str | bytes):
        return list(samples)
    return torch.from_numpy(np.stack([np.asarray(sample) for sample in samples]))
