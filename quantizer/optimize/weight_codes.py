"""Methods that choose codes of weights for a smaller error of the layer's output, not the nearest codes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from quantizer.core.errors import GraphError
from quantizer.ir.formats.compass_params import scale_of
from quantizer.ir.graph import Graph, Node
from quantizer.numerics.qparams import Constant, Parameters, QParams
from quantizer.optimize.adaround import Schedule, adaround
from quantizer.optimize.global_methods import Method
from quantizer.optimize.gptq import gptq
from quantizer.optimize.layer_parameters import Decided
from quantizer.optimize.per_layer import LayerKey
from quantizer.optimize.products import WEIGHTED, groups_of, in_order, second_moments, weights_of
from quantizer.optimize.running import Runner, real

Batches = Callable[[], Iterable[Mapping[str, Tensor]]]
"""Returns the batches of the calibration set, from the first one on."""


@dataclass(frozen=True)
class Trained:
    """The material on which a method chooses codes: the float graph, its runner, and the parameters chosen for it."""

    graph: Graph
    keys: Mapping[str, LayerKey]
    runner: Runner
    batches: Batches
    decided: Decided
    coded: Callable[[], Graph]
    """Computes the graph of codes."""


def rounded(trained: Trained, methods: Iterable[Method]) -> dict[str, Tensor]:
    """Return layer -> weights in the operator's order, as values of the codes that the method chose."""
    found: dict[str, Tensor] = {}
    for method in methods:
        if method.name not in CHOOSE:
            continue
        nodes = [
            node for node in trained.graph.order if node.op in WEIGHTED and method.concerns(trained.keys[node.name])
        ]
        chosen = CHOOSE[method.name](trained, method, nodes)
        found |= {node.name: in_order(node, chosen[node.name]) for node in nodes}
    return found


def _by_gptq(trained: Trained, method: Method, nodes: Sequence[Node]) -> dict[str, Tensor]:
    """Return the weights of each layer by GPTQ.

    For a convolution without groups, the file's weights run place by place with all channels, but the moments run
    channel by channel. The original has this mismatch, too, and so the codes are equal.
    """
    graph, numbers = as_it_calibrates(trained), method.numbers
    moments = second_moments(graph, trained.runner, trained.batches(), int(numbers["batches"]), nodes)
    found = {}
    for node in nodes:
        weights, params = weights_of(trained.graph, node), _constant(trained.decided, node).params
        grouped = groups_of(node, weights) > 1
        rows = (in_order(node, weights) if grouped else weights).flatten(1)
        chosen = []
        # weights, scales and zero points with one entry for each row, so that all three can be cut into groups alike
        columns = [
            rows,
            *(
                values.expand(len(rows)) if values.dim() == 0 else values
                for values in (scale_of(params), params.zero_point)
            ),
        ]
        parts = zip(*(values.chunk(len(moments[node.name])) for values in columns), strict=True)
        # one part per group of a convolution: each has its own inputs and thus its own Hessian
        for (own, steps, zero), moment in zip(parts, moments[node.name], strict=True):
            grid = Grid(steps, zero, params.qmin, params.qmax)
            chosen.append(_spread(node, own, moment, grid, numbers))
        made = torch.cat(chosen)
        found[node.name] = (
            made.reshape(in_order(node, weights).shape).movedim(1, -1) if grouped else made.reshape(weights.shape)
        )
    return found


def _spread(node: Node, weights: Tensor, moments: Tensor, grid: Grid, numbers: Mapping[str, float]) -> Tensor:
    """Return rows of weights by GPTQ; GraphError if the layer's inputs give no invertible Hessian."""
    act_order, damping, block = bool(numbers["act_order"]), numbers["damping"], max(1, int(numbers["block"]))
    try:
        return gptq(weights, moments, grid.nearest, act_order=act_order, damping=damping, block=block)
    except LinAlgError:
        raise GraphError(
            f"layer {node.name!r}: gptq_zy: damping {damping:g}: the Hessian of {len(moments)} columns has no inverse."
            f" Write a larger damping, such as {max(0.01, 10 * damping):g}, into"
            " gptq_zy[batches,act_order,damping,block]."
        ) from None


def _by_adaround(trained: Trained, method: Method, nodes: Sequence[Node]) -> dict[str, Tensor]:
    """Return the weights of each layer by AdaRound; each layer reads the codes that earlier layers give.

    The original shuffles samples without a seed; here they keep their order.
    """
    numbers, runner = method.numbers, trained.runner
    schedule = Schedule(
        int(numbers["epochs"]),
        max(1, int(numbers["batch_size"])),
        numbers["learning_rate"],
        numbers["regularization"],
        (numbers["beta_first"], numbers["beta_last"]),
        numbers["warm_start"],
    )
    graph = as_it_calibrates(trained)
    feeds = samples_of(trained, int(numbers["batches"]), schedule.batch_size)
    count = len(next(iter(feeds.values())))
    wanted = {name: values for name, _, values in runner.forward_in_types(graph, feeds)}
    layers = {node.name: graph.producers[node.outputs[0]] for node in nodes}
    found: dict[str, Tensor] = {}

    # called before each layer of the graph of codes runs: the operands come from layers that are rounded already
    def learn(coded: Node, operands: Sequence[Tensor | None]) -> Node:
        node, provided = layers.get(coded.name), coded.parameters
        if node is None or not isinstance(provided, Parameters):
            return coded
        weights, constant = weights_of(trained.graph, node), provided.constants["weight"]
        grid = Grid.of(constant.params, weights.dim())
        assert operands[0] is not None
        read, made = real(operands[0], provided.inputs["x"]), wanted[node.outputs[0]]
        rest = [graph.tensor(name).data if name else None for name in node.inputs[2:]]

        def error(codes: Tensor, places: slice) -> Tensor:
            values = grid.real((codes + grid.zero).clamp(grid.low, grid.high))
            # the original takes weights of fully connected layers for codes: it dequantizes them twice (ADR 0015)
            values = grid.real(values) if node.op == "fully_connected" else values
            (got,) = runner.layer(graph, node, [part_of(read, places, count), values, *rest])
            got, gold = (activated(trained, graph, node, v) for v in (got, part_of(made, places, count)))
            return (got - gold).abs().pow(2.0).sum(-1).mean()

        steps = weights * grid.steps
        codes = (steps.floor() + adaround(steps, schedule, count, error) + grid.zero).clamp(grid.low, grid.high)
        found[node.name] = grid.real(codes)
        # the run goes on with the chosen codes, so that later layers see their error
        constants = {**provided.constants, "weight": replace(constant, codes=in_order(node, codes).long())}
        return replace(coded, parameters=replace(provided, constants=constants))

    # only learn's effects count: it fills `found`
    for _ in runner.forward_in_types(trained.coded(), feeds, learn):
        pass
    return found


CHOOSE: Mapping[str, Callable[[Trained, Method, Sequence[Node]], dict[str, Tensor]]] = {
    "gptq_zy": _by_gptq,
    "adaround": _by_adaround,
}
"""Method -> function that chooses the weights of layers on the grid of codes."""


@dataclass(frozen=True)
class Grid:
    """The real values that codes can take, as Compass computes them."""

    steps: Tensor
    """Codes per unit: one number, or one for each row."""
    zero: Tensor
    low: int
    high: int

    @classmethod
    def of(cls, params: QParams, rank: int) -> Grid:
        """Return the grid of a constant of *rank* axes."""
        steps, zero = (params.along(values, rank) for values in (scale_of(params), params.zero_point))
        return cls(steps, zero, params.qmin, params.qmax)

    def real(self, codes: Tensor) -> Tensor:
        """Return the real values of the codes."""
        return (codes - self.zero) * (1.0 / self.steps)

    def nearest(self, values: Tensor) -> Tensor:
        """Return the real value of the nearest code."""
        # steps are codes per unit, so a product where other grids divide
        return self.real((self.steps * values + self.zero).round().clamp(self.low, self.high))


def as_it_calibrates(trained: Trained) -> Graph:
    """Return the float graph that the original runs after it collects statistics and before it quantizes.

    At this point the original treats the weights of fully connected layers as codes and dequantizes them.
    """
    graph = trained.graph
    changed = []
    for node in graph.nodes:
        if node.op == "fully_connected" and node.name in trained.decided.provided:
            constant = _constant(trained.decided, node)
            tensor = graph.tensor(str(node.inputs[1]))
            if tensor.data is not None:
                changed.append(replace(tensor, data=Grid.of(constant.params, 2).real(tensor.data.float())))
    return graph.with_tensors(*changed)


def samples_of(trained: Trained, count: int, size: int) -> dict[str, Tensor]:
    """Return the samples of the first *count* batches, the first ones again where *size* does not divide them."""
    columns: dict[str, list[Tensor]] = {}
    for feeds in islice(trained.batches(), max(1, count)):
        for name, values in feeds.items():
            columns.setdefault(name, []).append(values)
    found = {}
    for name, parts in columns.items():
        values = torch.cat(parts)
        wanted = math.ceil(len(values) / size) * size
        found[name] = values.repeat(math.ceil(wanted / len(values)), *[1] * (values.dim() - 1))[:wanted]
    return found


def part_of(values: Tensor, places: slice, count: int) -> Tensor:
    """Return some samples of a tensor, or all of it if it has no axis of samples."""
    # a constant's first axis is not the samples, unless it happens to be as long
    return values[places] if values.dim() and len(values) == count else values


def activated(trained: Trained, graph: Graph, node: Node, values: Tensor, output: str | None = None) -> Tensor:
    """Return a layer's output after the first activation layer after it; the output itself if there is none."""
    for reader in graph.consumers.get(output or node.outputs[0], ()):
        if trained.keys[reader.name].type == "Activation":
            return trained.runner.layer(
                graph, reader, [values, *(graph.tensor(n).data for n in reader.inputs[1:] if n)]
            )[0]
    return values


def _constant(decided: Decided, node: Node) -> Constant:
    return decided.provided[node.name].constants["weight"]
