"""Operators of a user's model with real numbers between them, as one graph of a few nodes that an engine may fuse.

An operator that reads or makes real numbers cannot be a case by itself. The graph from the codes before it to the
codes behind it is judged like a shipped graph: the engine's optimized run is compared with its plain run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from quantizer.conformance.failures.fewest import Budget, fewest
from quantizer.conformance.fusion.cases import Built
from quantizer.conformance.fusion.judging import judge_optimized
from quantizer.core.errors import QuantizerError
from quantizer.core.verdict import Verdict
from quantizer.ir.graph import Graph
from quantizer.runtime.dispatch import FP32
from quantizer.runtime.models.engines import OwnFloat, Session, Values
from quantizer.runtime.models.parts import DEQUANTIZE, QUANTIZE, Part, Parts, parts_of, shaped, with_constant_codes
from quantizer.runtime.torch_executor import TorchExecutor

MOST = 3
"""The most operators in such a graph."""
MAX_RUNS = 200
"""The most runs of a failing graph while its data are reduced."""


@dataclass(frozen=True)
class Joined:
    """Operators with real numbers between them, and the codes that the first of them read."""

    names: tuple[str, ...]
    ops: tuple[str, ...]
    built: Built


def joined_of(graph: Graph, feeds: Mapping[str, Tensor], without_case: Collection[str]) -> list[Joined]:
    """Return the graphs of the operators named in *without_case* whose real results only one other operator reads."""
    parts = parts_of(with_constant_codes(graph))
    edges: Values = {**feeds, **OwnFloat().whole(parts, dict(feeds))}
    groups = [group for group in _groups(parts, without_case) if 1 < len(group) <= MOST and _codes(group[-1])]
    return [_joined(parts, group, edges) for group in groups]


def judge_joined(joined: Joined, engines: tuple[Session, Session]) -> Verdict:
    """Judge an engine's optimized run of the graph by its plain run; *engines*: both sessions, the plain one first."""
    return judge_optimized(joined.built, *engines)


def smallest(joined: Joined, fails: Callable[[Joined], bool], *, runs: int = MAX_RUNS) -> Joined:
    """Return the failing graph with halved sizes, and as few operand values other than 0 as ddmin finds.

    At most *runs* runs.
    """
    budget = Budget(fails, runs)
    joined = _halved(joined, budget)
    for name, values in joined.built.feeds.items():
        zero = _code_of_zero(joined.built.graph, name)
        places = [tuple(int(i) for i in index) for index in (values != zero).nonzero().tolist()]
        keeping = partial(_keeping, joined, name, zero)
        joined = keeping(fewest(places, budget, keeping))
    return joined


def _halved(joined: Joined, fails: Budget[Joined]) -> Joined:
    """Return *joined* with each axis of its operands halved as often as the graph runs and fails."""
    # later axes first: they are the pixels of images, where most elements are
    for axis in reversed(range(max(values.dim() for values in joined.built.feeds.values()))):
        while (smaller := _half(joined, axis)) is not None and fails(smaller):
            joined = smaller
    return joined


def _half(joined: Joined, axis: int) -> Joined | None:
    """Return *joined* with the first half of each operand along *axis*; None if nothing is left to halve or to run."""
    graph, feeds = joined.built.graph, joined.built.feeds
    halves = {
        name: values.narrow(axis, 0, (values.shape[axis] + 1) // 2) if axis < values.dim() else values
        for name, values in feeds.items()
    }
    if all(halves[name].shape == values.shape for name, values in feeds.items()):
        return None
    fed = graph.with_(tensors={name: shaped(tensor, halves) for name, tensor in graph.tensors.items()})
    names = [name for node in graph.order for name in node.outputs]
    try:
        made = TorchExecutor(fed, platform=FP32).forward(dict(halves), names)
    except QuantizerError:
        # a weight or a constant shape does not fit this size
        return None
    known = {**halves, **dict(zip(names, made, strict=True))}
    tensors = {name: shaped(tensor, known) if tensor.data is None else tensor for name, tensor in fed.tensors.items()}
    return replace(joined, built=Built(graph.with_(tensors=tensors), halves))


def _keeping(joined: Joined, name: str, zero: Tensor, places: list[tuple[int, ...]]) -> Joined:
    """Return *joined* with the values of operand *name* at *places* only, and 0 elsewhere."""
    feeds = joined.built.feeds
    # expanded tensors share memory, so the values are written into a copy
    kept = zero.to(feeds[name].dtype).expand(feeds[name].shape).clone()
    for place in places:
        kept[place] = feeds[name][place]
    return replace(joined, built=replace(joined.built, feeds={**feeds, name: kept}))


def _code_of_zero(graph: Graph, name: str) -> Tensor:
    """Return the code that represents 0 in an operand: its zero point if it has exactly one, else 0."""
    readers = [
        node for node in graph.order if node.op == DEQUANTIZE and node.inputs[0] == name and len(node.inputs) > 2
    ]
    zero = graph.tensor(str(readers[0].inputs[2])).data if readers else None
    return torch.zeros(()) if zero is None or zero.numel() != 1 else zero.reshape(())


def _groups(parts: Parts, names: Collection[str]) -> Iterator[list[Part]]:
    """Yield groups of parts without a case: one that reads codes only, and the parts behind it up to the next codes."""
    behind = {part.name: reader for part in parts.parts if (reader := _reader(parts, part)) is not None}
    # a part inside a group begins no group of its own
    inner = {reader.name for reader in behind.values()}
    for part in parts.parts:
        if part.name in names and part.name not in inner:
            group = [part]
            while (reader := behind.get(group[-1].name)) is not None:
                group.append(reader)
            if all(one.name in names for one in group):
                yield group


def _reader(parts: Parts, part: Part) -> Part | None:
    """Return the only part that reads the only result of *part*, if that is real and no output of the graph."""
    if _codes(part) or len(part.results) != 1 or part.results[0] in parts.graph.outputs:
        return None
    readers = [other for other in parts.parts if part.results[0] in other.operands]
    return readers[0] if len(readers) == 1 else None


def _codes(part: Part) -> bool:
    """Return whether all results of a part are codes."""
    made = {name for node in part.nodes if node.op == QUANTIZE for name in node.outputs}
    return bool(part.results) and made.issuperset(part.results)


def _joined(parts: Parts, group: list[Part], edges: Values) -> Joined:
    made = {name for part in group[:-1] for name in part.results}
    operands = dict.fromkeys(name for part in group for name in part.operands if name not in made)
    nodes = dict.fromkeys(node for part in group for node in part.nodes)
    names, ops = tuple(part.name for part in group), tuple(part.op for part in group)
    # the graph is cut as if the group were a single part
    whole = Part(names[0], ops[0], tuple(nodes), tuple(operands), group[-1].results)
    graph = parts.cut(whole, edges).with_(name="+".join(names))
    return Joined(names, ops, Built(graph, {name: edges[name] for name in operands}))
