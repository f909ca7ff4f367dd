"""Judges integer results of a part of a network as the gate judges an operator: by the declarations of its platform.

The enclosure of a part knows float32 and one rounding. A platform may declare more: a multiplier of few bits, two
roundings, tables. The checks `arithmetic` and `accuracy` know all of these, so they judge the integer nodes of a part,
on the codes that the nodes read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from quantizer.conformance.judging.judge import judge
from quantizer.conformance.models.bounds import Judged
from quantizer.conformance.models.graph_nodes import NodeTrial
from quantizer.core.verdict import Verdict
from quantizer.ir.graph import Graph, Node
from quantizer.numerics.qparams import Parameters, Staged
from quantizer.numerics.quantize import dequantize
from quantizer.runtime.integer_executor import IntegerExecutor
from quantizer.runtime.onnx.kernels import specs

CHECKS = ("arithmetic", "accuracy")


class ReadTrial(NodeTrial):
    """A trial of a node whose operands are exactly the values of the codes that it read, without half a step around."""

    def __init__(self, node: Node, graph: Graph, codes: Mapping[str, Tensor], got: Tensor) -> None:
        """Take the node's operands, and *got*: the codes to judge, which are the engine's."""
        super().__init__(node, graph, codes)
        self.__dict__["doubles"] = {name: dequantize(held, self.qparams(name)) for name, held in codes.items()}
        self.radii = {name: np.zeros(tuple(held.shape)) for name, held in codes.items()}
        self.__dict__["outcome"] = Staged(got.to(torch.int64), self.run(self.call, codes, self.parameters).stages)


def judged_integers(executor: IntegerExecutor, operands: Mapping[str, Tensor], edge: str, got: Tensor) -> Judged | None:
    """Judge *got*, the codes of *edge*, by the platform of the integer graph of one part.

    *operands*: the inputs of the part. Every integer node is judged on the codes that it reads, and the node that
    produces *edge* by *got*. None if a node of the part computes in float, or if no check of the platform decides; the
    enclosure of the part then judges the result.
    """
    graph = executor.graph
    tensor, as_codes = executor.place(edge)
    if not as_codes or not all(isinstance(node.parameters, Parameters) for node in graph.order):
        return None
    values = {**executor.run(dict(operands)), tensor: got}
    found = [_judged(node, graph, values) for node in graph.order]
    if any(verdict is None for verdict in found):
        return None
    return max((verdict for verdict in found if verdict is not None), key=lambda one: (one.outside, one.ratio))


def _judged(node: Node, graph: Graph, values: Mapping[str, Tensor]) -> Judged | None:
    provided = node.parameters
    assert isinstance(provided, Parameters)
    named = {key: name for key, name in zip(specs()[node.op].inputs, node.inputs, strict=False) if name is not None}
    if any(key not in (*provided.inputs, *provided.constants) for key in named):
        return None
    codes = {key: values[name].to(torch.int64) for key, name in named.items()}
    verdicts = judge(ReadTrial(node, graph, codes, values[node.outputs[0]]), CHECKS)
    return _worst([verdict for verdict in verdicts if verdict.status in ("pass", "fail", "defect")])


def _worst(verdicts: Sequence[Verdict]) -> Judged | None:
    """Return the deciding verdict: a failure if there is one, else the one with the largest ratio."""
    if not verdicts:
        return None
    worst = max(verdicts, key=lambda verdict: (verdict.failing, verdict.ratio))
    place = () if worst.worst is None else worst.worst.index
    return Judged(
        worst.failed if worst.failing else 0, 0.0, worst.ratio if worst.failing else min(worst.ratio, 1.0), place
    )
