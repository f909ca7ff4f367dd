"""Bugs of two nodes, each a rewrite that changes codes: how fusions, folded scales and moved nodes go wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from quantizer.conformance.fusion.rewrites import Rewrite
from quantizer.ir.graph import Graph, Tensor

WIDE = 2.0**20
"""More than any value of a case."""


@dataclass(frozen=True)
class Plant:
    """A rewrite that is wrong, and the graph in which it is planted."""

    name: str
    graph: str
    rewrite: Rewrite


def _scale_of(node: str, other: str) -> Rewrite:
    """Read the codes of *node* by the scale of another tensor."""

    def rewrite(graph: Graph) -> Graph:
        old = graph.node(f"{node}#dequantize")
        return graph.with_node(replace(old, inputs=(old.inputs[0], f"{other}#scale", *old.inputs[2:])))

    return rewrite


def _reads(node: str, place: int, other: str) -> Rewrite:
    """Let *node* read another tensor."""

    def rewrite(graph: Graph) -> Graph:
        old = graph.node(node)
        inputs = tuple(other if i == place else name for i, name in enumerate(old.inputs))
        return graph.with_node(replace(old, inputs=inputs))

    return rewrite


def _clipped(node: str, low: Callable[[Graph], float], high: float) -> Rewrite:
    """Compute *node* as a clip."""

    def rewrite(graph: Graph) -> Graph:
        old, dtype = graph.node(node), graph.tensor(node).dtype
        ends = [
            Tensor(f"{node}@{end}", (), dtype, torch.tensor(value, dtype=torch.float32))
            for end, value in (("low", low(graph)), ("high", high))
        ]
        changed = replace(old, op="Clip", inputs=(old.inputs[0], *(end.name for end in ends)), attrs={}, extra={})
        return graph.with_node(changed).with_tensors(*ends)

    return rewrite


def _code_zero(name: str) -> Callable[[Graph], float]:
    """Return the value of the code 0 of a tensor."""

    def value(graph: Graph) -> float:
        scale, zero = (graph.tensor(f"{name}#{part}").data for part in ("scale", "zero"))
        assert scale is not None
        assert zero is not None
        return -float(zero) * float(scale)

    return value


def _padded_with_code_zero(graph: Graph) -> Graph:
    old = graph.node("pad")
    value = Tensor(
        "pad@value", (), graph.tensor("pad").dtype, torch.tensor(_code_zero("x")(graph), dtype=torch.float32)
    )
    return graph.with_node(replace(old, inputs=(*old.inputs[:2], value.name))).with_tensors(value)


def _bias_by(node: str, other: str) -> Rewrite:
    """Take the codes of a bias, at the scale of the sums, for codes at the scale of *other*."""

    def rewrite(graph: Graph) -> Graph:
        name = str(graph.node(node).inputs[2])
        bias, (right, wrong) = graph.tensor(name), (graph.tensor(f"{n}#scale").data for n in ("x", other))
        assert bias.data is not None
        assert right is not None
        assert wrong is not None
        return graph.with_tensors(replace(bias, data=bias.data * (wrong / right)))

    return rewrite


def _relu_before_sum(graph: Graph) -> Graph:
    """Apply the relu to the first operand of a sum, instead of to the sum."""
    relu, total = graph.node("relu"), graph.node("sum")
    first = replace(relu, name="relu@first", inputs=(total.inputs[0],), outputs=("relu@first",))
    made = replace(graph.tensor(str(total.inputs[0])), name="relu@first")
    after = replace(total, inputs=("relu@first", *total.inputs[1:]))
    identity = replace(relu, op="Identity", attrs={}, extra={"since": 13})
    nodes = tuple(
        item for node in graph.nodes for item in {"sum": (first, after), "relu": (identity,)}.get(node.name, (node,))
    )
    return graph.with_(nodes=nodes).with_tensors(made)


def _zero_of(node: str, other: str | None) -> Rewrite:
    """Read the codes of *node* with the zero point of another tensor, or with none."""

    def rewrite(graph: Graph) -> Graph:
        old = graph.node(f"{node}#dequantize")
        zero = () if other is None else (f"{other}#zero",)
        return graph.with_node(replace(old, inputs=(*old.inputs[:2], *zero)))

    return rewrite


def _own_scale(reader: str, node: str, other: str) -> Rewrite:
    """Give *reader* its own dequantization of *node*, with the numbers of another tensor."""

    def rewrite(graph: Graph) -> Graph:
        old, name = graph.node(f"{node}#dequantize"), f"{node}@{reader}"
        again = replace(
            old, name=name, inputs=(old.inputs[0], f"{other}#scale", f"{other}#zero"), outputs=(f"{name}@real",)
        )
        after = graph.node(reader)
        after = replace(after, inputs=tuple(f"{name}@real" if n == node else n for n in after.inputs))
        made = replace(graph.tensor(node), name=f"{name}@real")
        nodes = (item for each in graph.nodes for item in ((again, after) if each.name == reader else (each,)))
        return graph.with_(nodes=tuple(nodes)).with_tensors(made)

    return rewrite


def _without_bias(node: str) -> Rewrite:
    """Leave the third operand of *node* out."""

    def rewrite(graph: Graph) -> Graph:
        old = graph.node(node)
        return graph.with_node(replace(old, inputs=old.inputs[:2]))

    return rewrite


def _with_numbers(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Rewrite:
    """Change the numbers of a constant."""

    def rewrite(graph: Graph) -> Graph:
        old = graph.tensor(name)
        assert old.data is not None
        return graph.with_tensors(replace(old, data=change(old.data)))

    return rewrite


def _padded_in_front(graph: Graph) -> Graph:
    """Put the padding of both ends in front, as an engine that knows one number for an axis."""
    return _with_numbers("pads", lambda pads: torch.cat([pads[:4] + pads[4:], torch.zeros_like(pads[4:])]))(graph)


def _unrounded(node: str, reader: str) -> Rewrite:
    """Let *reader* read the real result of *node*: nothing rounds between them, as in a fused multiply-add."""

    def rewrite(graph: Graph) -> Graph:
        old, after, real = graph.node(node), graph.node(reader), f"{node}@real"
        inputs = tuple(real if name == node else name for name in after.inputs)
        changed = {node: replace(old, outputs=(real,)), reader: replace(after, inputs=inputs)}
        dropped = {f"{node}#quantize", f"{node}#dequantize"}
        nodes = tuple(changed.get(each.name, each) for each in graph.nodes if each.name not in dropped)
        return graph.with_(nodes=nodes).with_tensors(replace(graph.tensor(node), name=real))

    return rewrite


def _axis_moved(graph: Graph) -> Graph:
    """Leave the axis of scales per channel where a transposition of the weights moved the channels."""
    old = graph.node("w#dequantize")
    return graph.with_node(replace(old, attrs={**old.attrs, "axis": 1}))


PLANTS = (
    Plant("the relu clamps at the code 0", "conv_relu_add", _clipped("relu", _code_zero("relu"), WIDE)),
    Plant("a relu is taken for a relu6", "linear_relu_add", _clipped("relu", lambda _: 0.0, 6.0)),
    Plant("the scale of a product is folded into the wrong tensor", "mul_add", _scale_of("mul", "x")),
    Plant("the bias has the scale of the other operand", "conv_relu_add", _bias_by("conv", "z")),
    Plant("the bias has the scale of the result", "linear_relu_add", _bias_by("linear", "relu")),
    Plant("zeros around an image are the code 0", "pad_conv", _padded_with_code_zero),
    Plant("the relu stands before the sum", "add_relu", _relu_before_sum),
    Plant("the second reader sees the clamped sum", "conv_relu_shared", _reads("sum", 1, "relu")),
    Plant("operands of a concatenation have one scale", "concat_scales", _scale_of("z", "conv")),
    Plant("an average keeps its operand's scale", "pool_requantize", _scale_of("pool", "z")),
    Plant("softmax is read by the scale of its operand", "softmax_scales", _scale_of("weights", "scaled")),
    Plant("a transposition is taken for a reshape", "moves_through", _reads("view", 0, "act")),
    Plant("a fusion forgets the zero point between two nodes", "mul_add", _zero_of("mul", None)),
    Plant("operands of a concatenation have one zero point", "concat_scales", _zero_of("z", "conv")),
    Plant(
        "a second reader has a dequantization of other numbers", "conv_relu_shared", _own_scale("sum", "conv", "relu")
    ),
    Plant("a fused relu drops the bias before it", "conv_relu_add", _without_bias("conv")),
    Plant("the padding of both ends is in front", "pad_conv", _padded_in_front),
    Plant("the axis of scales per channel does not follow a transposition", "concat_scales", _axis_moved),
    Plant("a product and a sum are rounded once", "mul_add", _unrounded("mul", "sum")),
    Plant(
        "the factor before softmax is in its operand, too",
        "softmax_scales",
        _with_numbers("scale#scale", lambda s: s * 0.5),
    ),
)
