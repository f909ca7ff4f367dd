"""AdaQuant: learns, layer by layer, scales of inputs and weights, and small changes of weights and biases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from quantizer.core.errors import UnsupportedError
from quantizer.core.spec import Spec
from quantizer.ir.formats.compass_params import scale_of
from quantizer.ir.graph import Graph, Node
from quantizer.numerics.qparams import Constant, Parameters, QParams
from quantizer.numerics.rules import Ends
from quantizer.optimize.global_methods import Method
from quantizer.optimize.layer_parameters import Own
from quantizer.optimize.products import WEIGHTED, in_order, weights_of
from quantizer.optimize.weight_codes import Grid, Trained, activated, as_it_calibrates, part_of, samples_of


@dataclass(frozen=True)
class Learned:
    """Learned values: a range for each activation that a layer reads, and constants with the ends of the weights."""

    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    layers: Mapping[str, Own] = field(default_factory=dict)


class LearnedGrid(Grid):
    """A grid of real values whose codes per unit are learned."""

    @classmethod
    def of(cls, params: QParams, rank: int) -> LearnedGrid:
        """Return the grid of a tensor of *rank* axes, in float32."""
        own = Grid.of(params, rank)
        return cls(own.steps.float().clone().requires_grad_(), own.zero.float(), own.low, own.high)

    def codes(self, values: Tensor) -> Tensor:
        """Return the nearest codes; their gradient is 0."""
        return (self.steps * values.float() + self.zero).round().clamp(self.low, self.high)

    def ends(self) -> tuple[Tensor, Tensor]:
        """Return the real values of the smallest and the largest code, for each scale."""
        with torch.no_grad():
            low, high = (self.real(torch.tensor(float(end))).reshape(-1) for end in (self.low, self.high))
        return low, high


def adaquant(trained: Trained, method: Method, specs: Mapping[str, Spec]) -> Learned:
    """Train each layer on its float inputs and outputs, and return the result.

    Source: Hubara et al. 2020, in Compass's form: Adam reduces the mean squared error of the layer's output, after the
    activation layer that follows; the learning rate of the inputs' scales falls along half a cosine. Codes are
    rounded without a gradient, so that a scale learns only from the dequantized values. Samples keep their order; the
    original shuffles them without a seed.
    """
    numbers, graph = method.numbers, as_it_calibrates(trained)
    size = max(1, int(numbers["batch_size"]))
    feeds = samples_of(trained, int(numbers["batches"]), size)
    count = len(next(iter(feeds.values())))
    values = {name: made for name, _, made in trained.runner.forward_in_types(graph, feeds)}
    ranges: dict[str, tuple[float, float]] = {}
    layers: dict[str, Own] = {}
    for node in graph.order:
        provided = trained.decided.provided.get(node.name)
        if provided is None or not method.concerns(trained.keys[node.name]):
            continue
        if node.op not in WEIGHTED and any(item.role == "weight" for item in specs[node.op].inputs.values()):
            raise UnsupportedError(
                f"layer {node.name!r}: adaquant_zy learns only weights of {', '.join(WEIGHTED)}."
                " Leave the layer out: adaquant_zy[...]<scope>."
            )
        keys = [key for key, name in zip(specs[node.op].inputs, node.inputs, strict=True) if name is not None]
        found = _Layer(
            trained, graph, node, provided, {k: n for k, n in zip(keys, node.inputs, strict=False) if n in values}
        )
        found.learn(values, count, size, numbers)
        # a tensor that several layers read keeps the range that the last of them learned
        for name, grid in found.reads.items():
            low, high = grid.ends()
            ranges[name] = float(low.min()), float(high.max())
        if found.weight is not None:
            layers[node.name] = found.own()
    return Learned(ranges, layers)


class _Layer:
    """One layer while it learns."""

    def __init__(
        self, trained: Trained, graph: Graph, node: Node, provided: Parameters, operands: Mapping[str, str | None]
    ) -> None:
        self.trained, self.graph, self.node = trained, graph, node
        self.reads = {
            str(name): LearnedGrid.of(provided.inputs[key], len(graph.tensor(str(name)).shape))
            for key, name in operands.items()
            if key in provided.inputs
        }
        self.weight: LearnedGrid | None = None
        self.bias: Constant | None = None
        if node.op in WEIGHTED:
            self.weights, self.fixed = weights_of(trained.graph, node), provided.constants["weight"].params
            self.weight = LearnedGrid.of(self.fixed, self.weights.dim())
            # rounding passes no gradient to the weights, so a change of the codes, in codes, is learned instead
            self.change = torch.zeros_like(self.weights, requires_grad=True)
            self.bias = provided.constants.get("bias")
            if self.bias is not None:
                data = trained.graph.tensor(str(node.inputs[2])).data
                assert data is not None
                self.biases = data.float()
                self.bias_change = torch.zeros_like(self.biases, requires_grad=True)

    def learn(self, values: Mapping[str, Tensor], count: int, size: int, numbers: Mapping[str, float]) -> None:
        """Learn from the values of all tensors, *size* samples of *count* at a time."""
        adam, inputs = torch.optim.Adam, [grid.steps for grid in self.reads.values()]
        optimizers = [adam(inputs, lr=numbers["input_rate"])] if inputs else []
        # only the learning rate of the inputs' scales falls, and only their optimizer exists yet
        falling = list(optimizers)
        if self.weight is not None:
            optimizers.append(adam([self.change], lr=numbers["weight_rate"]))
            optimizers.append(adam([self.weight.steps], lr=numbers["scale_rate"]))
        if self.bias is not None:
            optimizers.append(adam([self.bias_change], lr=numbers["bias_rate"]))
        # samples_of repeated samples until the size divides their number, so no part is left over
        places = [slice(first, first + size) for first in range(0, count - size + 1, size)]
        epochs = int(numbers["epochs"])
        schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(o, max(1, epochs * len(places))) for o in falling]
        for _ in range(epochs):
            for place in places:
                for optimizer in optimizers:
                    optimizer.zero_grad()
                loss = self._error(values, place, count)
                # a layer that reads no quantized activation and has no weights learns nothing
                if loss.requires_grad:
                    loss.backward()
                for optimizer in optimizers:
                    optimizer.step()
                for schedule in schedules:
                    schedule.step()

    def _error(self, values: Mapping[str, Tensor], place: slice, count: int) -> Tensor:
        runner, graph, node = self.trained.runner, self.graph, self.node
        operands: list[Tensor | None] = []
        for position, name in enumerate(node.inputs):
            grid = None if name is None else self.reads.get(name)
            if name is None:
                operands.append(None)
            elif position == 1 and self.weight is not None:
                given = self.real_weights()
                # the original takes weights of fully connected layers for codes: it dequantizes them twice (ADR 0015)
                again = (given - self.fixed.along(self.fixed.zero_point, given.dim())) * (
                    1.0 / self.fixed.along(scale_of(self.fixed), given.dim())
                )
                operands.append(again.float() if node.op == "fully_connected" else given)
            elif position == 2 and self.bias is not None:
                operands.append(self.real_biases())
            elif name in values:
                read = part_of(values[name], place, count)
                operands.append(read if grid is None else grid.real(grid.codes(read)))
            else:
                operands.append(graph.tensor(name).data)
        made = runner.layer(graph, node, operands)
        wanted = [part_of(values[name], place, count) for name in node.outputs]
        pairs = [
            [activated(self.trained, graph, node, value, name).double().reshape(-1) for value in pair]
            for pair, name in zip(zip(made, wanted, strict=True), node.outputs, strict=True)
        ]
        return torch.nn.functional.mse_loss(
            torch.cat([got for got, _ in pairs]), torch.cat([gold for _, gold in pairs])
        )

    def real_weights(self) -> Tensor:
        """Return the weights in the file's order: the nearest codes plus the learned changes."""
        assert self.weight is not None
        return self.weight.real(self.weight.codes(self.weights) + self.change)

    def real_biases(self) -> Tensor:
        """Return the biases in units of the products of both scales."""
        assert self.weight is not None
        assert self.bias is not None
        # codes per unit: an accumulator has the product of both
        unit = (next(iter(self.reads.values())).steps * self.weight.steps).squeeze()
        params = self.bias.params
        codes = (self.biases * unit).round().clamp(params.qmin, params.qmax)
        return (codes + self.bias_change) * (1.0 / unit)

    def own(self) -> Own:
        """Return the learned constants, and the ends of the weights."""
        assert self.weight is not None
        lows, highs = (end.expand(len(self.weights)) for end in self.weight.ends())
        with torch.no_grad():
            return Own(
                in_order(self.node, self.real_weights()),
                Ends(lows.min(), highs.max(), lows, highs),
                None if self.bias is None else self.real_biases(),
            )
