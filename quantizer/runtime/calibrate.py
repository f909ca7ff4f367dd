"""Calibrates the scales of a graph's tensor configurations from batches."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from quantizer.calibration.observers import Codes, Observer, observer
from quantizer.core.errors import GraphError
from quantizer.ir.graph import Graph
from quantizer.numerics.pinned import pinned
from quantizer.runtime.tensor_config import QuantizationProperty, QuantizationStates, TensorQuantizationConfig
from quantizer.runtime.torch_executor import TorchExecutor

P = QuantizationProperty
CONSTANT, FLOATING = "constant", "floating"
SCALES = tuple(2.0**power for power in (-7, -5, -3, 0, 2, 4, 6))
"""The scales that `floating` tries. Source: PPQ's DirectMSEObserver."""


class InfiniteTensorWarning(UserWarning):
    """A tensor has infinite values and therefore stays float."""


@pinned()
def calibrate(graph: Graph, configs: Mapping[str, TensorQuantizationConfig], batches: Iterable[Any]) -> None:
    """Give each tensor's configuration the scale that its observer finds on the values of the float graph.

    Observers see a constant once. Every batch is run as often as the observers need: twice if one of them needs a
    histogram. A tensor with infinities, such as a mask of attention, gets no scale: it stays float, and an
    InfiniteTensorWarning names it. GraphError if there is no batch or a tensor has NaN, ValueError for an observer that
    does not fit its policy.
    """
    data = list(batches)
    if not data:
        raise GraphError(f"graph {graph.name!r}: calibration needs at least one batch.")
    executor = TorchExecutor(graph)
    seen = {name: _observer(config) for name, config in configs.items()}
    constants = {name: values for name in configs if (values := graph.tensor(name).data) is not None}
    # an ordered set: the warning names tensors in the order in which they were seen
    infinite: dict[str, None] = {}
    for name, values in constants.items():
        for number in range(seen[name].passes):
            _see(name, seen[name], values, number, infinite)
    _run(executor, data, {name: found for name, found in seen.items() if name not in constants}, infinite)
    if infinite:
        warnings.warn(
            f"graph {graph.name!r}: {', '.join(map(repr, infinite))} has infinities, which no scale has: stays float.",
            InfiniteTensorWarning,
            stacklevel=3,
        )
    for name, config in configs.items():
        found = seen[name]
        if name in infinite:
            config.state = QuantizationStates.FP32
            continue
        if isinstance(found, _Scales):
            config.scale, config.offset = found.scale(), torch.zeros((), dtype=torch.int64)
        else:
            config.calibrate(*found.ends())


def _run(
    executor: TorchExecutor, data: list[Any], seen: Mapping[str, Observer | _Scales], infinite: dict[str, None]
) -> None:
    """Run the graph on every batch and show the results to the observers, as often as they need."""
    passes = max((found.passes for found in seen.values()), default=0)
    with tqdm(total=passes * len(data), unit="batch", desc="calibrate", disable=None, file=sys.stderr) as bar:
        for number in range(passes):
            names = [name for name, found in seen.items() if number < found.passes]
            for batch in data:
                for name, value in zip(names, executor.forward(batch, names), strict=True):
                    _see(name, seen[name], value, number, infinite)
                bar.update()


def _see(name: str, found: Observer | _Scales, values: Tensor, number: int, infinite: dict[str, None]) -> None:
    """Show an observer the values of a tensor. Errors name the tensor, and a tensor with infinities is recorded."""
    if name in infinite or bool(torch.isinf(values).any()):
        infinite[name] = None
        return
    try:
        found.observe(values, number)
    except GraphError as err:
        raise GraphError(f"tensor {name!r}: {err}") from None


class _Scales:
    """The observer of floating policies: it sees batches and chooses a scale, not a range."""

    def __init__(self, config: TensorQuantizationConfig) -> None:
        self.config, self.passes = config, 1
        self.errors = torch.zeros(len(SCALES), dtype=torch.float64)

    def observe(self, batch: Tensor, number: int = 0) -> None:  # noqa: ARG002 - this estimator needs one pass
        """Add up the error of every scale."""
        if self.config.observer_algorithm == CONSTANT:
            return
        # torch casts numbers beyond the format to NaN or infinity: the quantizer clamps first, as here
        largest = torch.finfo(self.config.float8).max
        for i, scale in enumerate(SCALES):
            made = (batch / scale).clamp(-largest, largest).to(self.config.float8).to(batch.dtype) * scale
            # float64, because batches are added
            self.errors[i] += float(((made - batch).double() ** 2).sum())

    def scale(self) -> Tensor:
        """Return the scale with the least squared error; 1 for the constant observer."""
        return torch.tensor(1.0 if self.config.observer_algorithm == CONSTANT else SCALES[int(self.errors.argmin())])


def _observer(config: TensorQuantizationConfig) -> Observer | _Scales:
    name = config.observer_algorithm
    if name in (CONSTANT, FLOATING):
        if P.FLOATING not in config.policy or config.channel_axis is not None:
            raise ValueError(f"observer {name!r}: must have a floating policy per tensor.")
        return _Scales(config)
    symmetric = bool(config.policy & (P.SYMMETRICAL | P.FLOATING))
    return observer(name, Codes(config.quant_min, config.quant_max, symmetric, config.channel_axis))
