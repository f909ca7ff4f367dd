"""Operators of a user's model without codes between them, as one graph of a few nodes that an engine may fuse.

An operator that reads or makes real numbers is no case of its own. The graph from the codes before it to the codes
behind it is judged like a shipped graph: the engine's optimized run by its run without.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from quantizer.conformance.fusion.cases import Built
from quantizer.conformance.fusion.judging import judge_optimized
from quantizer.core.verdict import Verdict
from quantizer.ir.graph import Graph
from quantizer.runtime.models.engines import OwnFloat, Session, Values
from quantizer.runtime.models.parts import QUANTIZE, Part, Parts, parts_of, with_constant_codes

MOST = 3
"""Operators of a graph."""


@dataclass(frozen=True)
class Joined:
    """Operators with real numbers between them, and the codes that the first ones read."""

    names: tuple[str, ...]
    ops: tuple[str, ...]
    built: Built


def joined_of(graph: Graph, feeds: Mapping[str, Tensor], without_case: Collection[str]) -> list[Joined]:
    """Return the graphs of the operators named in *without_case* whose real results only one other operator reads."""
    parts = parts_of(with_constant_codes(graph))
    edges: Values = {**feeds, **OwnFloat().whole(parts, dict(feeds))}
    groups = [group for group in _groups(parts, without_case) if 1 < len(group) <= MOST and _codes(group[-1])]
    return [_joined(parts, group, edges) for group in groups]


def judge_joined(joined: Joined, engine: Session, optimized: Session) -> Verdict:
    """Judge the engine's optimized run of the graph by its run without."""
    return judge_optimized(joined.built, engine, optimized)


def _groups(parts: Parts, names: Collection[str]) -> Iterator[list[Part]]:
    """Yield each part without a case that reads no real result, with the parts behind it up to the next codes."""
    behind = {part.name: reader for part in parts.parts if (reader := _reader(parts, part)) is not None}
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
    whole = Part(names[0], ops[0], tuple(nodes), tuple(operands), group[-1].results)
    graph = parts.cut(whole, edges).with_(name="+".join(names))
    return Joined(names, ops, Built(graph, {name: edges[name] for name in operands}))
