"""Compares the nodes of an integer graph with their enclosures, by the ratio of error to allowed error."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from tqdm import tqdm

from quantizer.conformance.checks.accuracy import accuracy
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import AttrValue, Case, DataRecipe, TilePlan
from quantizer.core.errors import GraphError
from quantizer.core.verdict import Verdict, inconclusive
from quantizer.ir.graph import Graph, Node
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import dequantize
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.integer import check_declared, with_integers
from quantizer.runtime.integer_executor import IntegerExecutor
from quantizer.runtime.onnx.kernels import specs


@dataclass(frozen=True)
class NodeRatio:
    """The largest ratio of a node over all batches: error / allowed error, which is 1 at the edge of the enclosure."""

    name: str
    op: str
    status: str
    """pass, fail, overflow, or inconclusive if the operator has no enclosure."""
    ratio: float
    reason: str = ""


class NodeTrial(Trial):
    """A trial of a node of an integer graph, on the codes that reached it, so that checks can judge it like a case."""

    def __init__(self, node: Node, graph: Graph, codes: Mapping[str, Tensor]) -> None:
        """Take the operands' codes by the spec's names, in the operator's axis order.

        UnsupportedError where the executor raises it, too.
        """
        provided = node.parameters
        assert isinstance(provided, Parameters)
        spec, scheme = specs()[node.op], check_declared(node, graph)
        case = Case(
            node.op,
            scheme.name,
            provided.platform.platform,
            {key: tuple(values.shape) for key, values in codes.items()},
            cast("Mapping[str, AttrValue]", node.attrs),
            {},
            node.order,
            TilePlan({}),
            DataRecipe("random", 0),
            node.activation,
        )
        super().__init__(Target(spec, scheme, provided.platform), case, BuiltinEngine())
        params = {**provided.inputs, **{key: constant.params for key, constant in provided.constants.items()}}
        # fills what a trial would compute itself: the graph already has parameters and codes
        self.__dict__["parameters"] = provided
        self.__dict__["codes"] = dict(codes)
        self.__dict__["tensors"] = {key: dequantize(values, params[key]).float() for key, values in codes.items()}


def enclosure_ratios(graph: Graph, batches: Iterable[Any]) -> list[NodeRatio]:
    """Return for each integer node, in order, how far its results use up their enclosures.

    *batches*: the graph's inputs. The enclosure is that of the check `accuracy`: the exact results for operands known
    to half a step, plus half a step of the result. GraphError if there is no batch.
    """
    executor = IntegerExecutor(with_integers(graph))
    nodes = [node for node in graph.order if isinstance(node.parameters, Parameters)]
    worst: dict[str, Verdict] = {}
    for batch in tqdm(list(batches), unit="batch", desc="enclosures", disable=None, file=sys.stderr):
        values = executor.run(batch)
        for node in nodes:
            named = zip(specs()[node.op].inputs, node.inputs, strict=False)
            codes = {key: values[name].to(torch.int64) for key, name in named if name is not None}
            found = _judged(node, graph, codes)
            if node.name not in worst or _order(found) > _order(worst[node.name]):
                worst[node.name] = found
    if not worst:
        raise GraphError("an analysis needs at least one batch.")
    return [NodeRatio(n.name, n.op, v.status, v.ratio, v.reason) for n in nodes for v in (worst[n.name],)]


def _judged(node: Node, graph: Graph, codes: Mapping[str, Tensor]) -> Verdict:
    provided = node.parameters
    assert isinstance(provided, Parameters)
    if any(key not in (*provided.inputs, *provided.constants) for key in codes):
        return inconclusive("accuracy", "an operand has no parameters")
    return accuracy(NodeTrial(node, graph, codes))


def _order(verdict: Verdict) -> tuple[bool, float]:
    return verdict.failing, verdict.ratio
