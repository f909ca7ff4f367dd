"""Propagates quantization parameters through operators that keep their operand's grid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from quantizer.ir.graph import Node
from quantizer.lang.errors import LangError
from quantizer.lang.tensor import QUANTIZED, Quantization, Tensor

TRANSPARENT = frozenset(
    f"top.{name}"
    for name in [
        "Permute",
        "Reshape",
        "Tile",
        "Split",
        "Repeat",
        "Relu",
        "Unsqueeze",
        "Squeeze",
        "Expand",
        "Slice",
        "Copy",
        "LeakyRelu",
        "Abs",
        "Pad",
    ]
)
"""Operators with one operand (not counting Repeat's counts) whose results have its parameters."""


def propagated(nodes: Sequence[Node], tensors: Mapping[str, Tensor]) -> dict[str, Quantization]:
    """Return the parameters of every tensor that has some: first forward in the order of *nodes*, then backward.

    Raises LangError with both values if two that must be equal differ.
    """
    known = {name: tensor.parameters for name, tensor in tensors.items() if tensor.parameters}
    for node, source, target in _links(nodes):
        _pass(node, source, target, known, tensors)
    # in reverse order, so that parameters pass a whole chain in one sweep
    for node, source, target in reversed(list(_links(nodes))):
        _pass(node, target, source, known, tensors)
    return known


def _links(nodes: Iterable[Node]) -> Iterable[tuple[Node, str, str]]:
    for node in nodes:
        if node.op in TRANSPARENT and node.inputs[0] is not None:
            for output in node.outputs:
                yield node, node.inputs[0], output


def _pass(node: Node, source: str, target: str, known: dict[str, Quantization], tensors: Mapping[str, Tensor]) -> None:
    own = known.get(source)
    if own is None or target not in tensors or tensors[target].dtype not in QUANTIZED:
        return
    # a list belongs to the slices of one axis, which the operator may move or cut
    if tensors[source].axis != tensors[target].axis or _is_list(own):
        return
    other = known.get(target, Quantization())
    merged = other.merged(own)
    if merged is None:
        raise LangError(
            f"{node.op} {node.name!r} keeps its operand's grid: {source!r} has {own}, {target!r} has {other}: "
            "must be the same."
        )
    known[target] = merged


def _is_list(parameters: Quantization) -> bool:
    return isinstance(parameters.scale, tuple) or isinstance(parameters.zero_point, tuple)
