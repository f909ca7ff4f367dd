"""The state of a run of the flow, and the batches that its steps read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from quantizer.core.dtypes import DType
from quantizer.core.library import Library
from quantizer.ir.graph import Graph, check_size
from quantizer.optimize.cfg import Options
from quantizer.optimize.gathering import Gathered
from quantizer.optimize.layer_parameters import Calibrated, Decided, Layers
from quantizer.optimize.loader import Batches
from quantizer.optimize.measuring import Score, Similarity
from quantizer.optimize.per_layer import LayerKey
from quantizer.optimize.running import Runner
from quantizer.optimize.settings import Settings

PLATFORM = "compass"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Work:
    """The state of a run."""

    options: Options
    library: Library
    say: Say = lambda text: None  # noqa: ARG005 - quiet
    graph: Graph | None = None
    """The float graph, in our operators."""
    keys: Mapping[str, LayerKey] = field(default_factory=dict)
    """Layer -> its number, name and type in the float IR."""
    settings: Mapping[str, Settings] = field(default_factory=dict)
    runner: Runner | None = None
    calibration: Batches | None = None
    validation: Batches | None = None
    gathered: Gathered = field(default_factory=Gathered)
    ranges: Mapping[str, Calibrated] = field(default_factory=dict)
    decided: Decided | None = None
    floats: Mapping[str, DType] = field(default_factory=dict)
    quantized: Graph | None = None
    layered: Graph | None = None
    """The quantized graph before its layers are cut into tiles."""
    scored: Graph | None = None
    """The graph that metrics score instead of the quantized one, when layers run in floating point for debugging."""
    similarity: Mapping[str, Similarity] = field(default_factory=dict)
    scores: tuple[Score, ...] = ()

    @property
    def float_graph(self) -> Graph:
        """The float graph, once it is read."""
        assert self.graph is not None
        return self.graph

    @property
    def quantized_graph(self) -> Graph:
        """The graph of codes, once there is one."""
        assert self.quantized is not None
        return self.quantized

    @property
    def runs(self) -> Runner:
        """The runner of the graphs; available after the IR is read."""
        assert self.runner is not None
        return self.runner

    @property
    def layers(self) -> Layers:
        """The data from which parameters are chosen."""
        chosen = self.options["set_qinvariant_for_start_nodes"]
        numbers = chosen if isinstance(chosen, tuple) else ()
        invariant = frozenset(name for name, key in self.keys.items() if key.number in numbers)
        platform = self.library.platform(PLATFORM)
        return Layers(self.library.specs, platform, self.settings, self.ranges, invariant)


def ir_batches(work: Work, loader: Batches) -> Iterator[dict[str, Tensor]]:
    """Yield batches of the IR's batch size."""
    for feeds, _ in loader.sized(work.runs.batch).batches():
        yield feeds


def calibration_batches(work: Work) -> Iterator[dict[str, Tensor]]:
    """Yield the calibration set, or batches of zeros if there is none."""
    if work.calibration is None:
        yield zeros(work, work.float_graph)
        return
    for feeds, _ in work.calibration.batches():
        yield feeds


def zeros(work: Work, graph: Graph) -> dict[str, Tensor]:
    """Return zeros for every input of a graph; GraphError for an input that is too large."""
    shapes = {name: graph.tensor(name).shape for name in work.float_graph.inputs}
    for name, shape in shapes.items():
        check_size(f"input {name!r}", shape, torch.float32.itemsize)
    return {name: torch.zeros(shape, dtype=torch.float32) for name, shape in shapes.items()}
