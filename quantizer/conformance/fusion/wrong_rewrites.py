"""Wrong rewrites of a graph, which change codes: fusions, folded scales and moved nodes as engines get them wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from quantizer.conformance.fusion.conditions import Condition, numbers
from quantizer.conformance.fusion.rewrites import Rewrite
from quantizer.core.dtypes import DTYPES
from quantizer.ir.graph import Graph, Node, Tensor

Names = tuple[str | None, ...]
ENDS = ("quantize", "dequantize")


def with_inputs(node: str, change: Callable[[Names], Names]) -> Rewrite:
    """Change what *node* reads."""

    def rewrite(graph: Graph) -> Graph:
        old = graph.node(node)
        return graph.with_node(replace(old, inputs=change(old.inputs)))

    return rewrite


def with_nodes(graph: Graph, changed: Mapping[str, Sequence[Node]]) -> Graph:
    """Return the graph with some nodes replaced by others; *changed*: name of a node -> the nodes in its place."""
    return graph.with_(nodes=tuple(item for node in graph.nodes for item in changed.get(node.name, (node,))))


def scale_of(node: str, other: str) -> Rewrite:
    """Read the codes of *node* by the scale of another tensor."""
    return with_inputs(f"{node}#dequantize", lambda names: (names[0], f"{other}#scale", *names[2:]))


def reads(node: str, place: int, other: str) -> Rewrite:
    """Let *node* read another tensor."""
    return with_inputs(node, lambda names: (*names[:place], other, *names[place + 1 :]))


def clipped(node: str, low: Callable[[Graph], float], high: float) -> Rewrite:
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


def clipped_between(low: Callable[[Graph], float], high: Callable[[Graph], float]) -> Rewrite:
    """Clip between two numbers of the graph."""
    return lambda graph: clipped("clip", low, high(graph))(graph)


def by_scale_of(node: str, value: float) -> Callable[[Graph], float]:
    """Return the bound that results if its code is computed with the scale of another tensor."""
    return lambda graph: value * float(numbers(graph, f"{node}#scale")) / float(numbers(graph, "clip#scale"))


def off_by_zero_point(value: float) -> Callable[[Graph], float]:
    """Return the bound that results if its code is counted from the code 0 instead of the zero point."""
    return lambda graph: value + code_zero("clip")(graph)


def code_zero(name: str) -> Callable[[Graph], float]:
    """Return the value of the code 0 of a tensor."""
    return lambda graph: -float(numbers(graph, f"{name}#zero")) * float(numbers(graph, f"{name}#scale"))


def padded_with_code_zero(graph: Graph) -> Graph:
    """Pad with the value of the code 0."""
    old = graph.node("pad")
    value = Tensor("pad@value", (), graph.tensor("pad").dtype, torch.tensor(code_zero("x")(graph), dtype=torch.float32))
    return graph.with_node(replace(old, inputs=(*old.inputs[:2], value.name))).with_tensors(value)


def bias_by(node: str, other: str) -> Rewrite:
    """Read the codes of a bias, whose scale is that of the sums, with the scale of *other* in place of the input's."""

    def rewrite(graph: Graph) -> Graph:
        right, wrong = (numbers(graph, f"{name}#scale") for name in ("x", other))
        # a bias scale is input scale * weight scale, so the ratio of the two scales is the whole error
        return with_numbers(str(graph.node(node).inputs[2]), lambda bias: bias * (wrong / right))(graph)

    return rewrite


def relu_before_sum(graph: Graph) -> Graph:
    """Apply the relu to the first operand of a sum, instead of to the sum."""
    relu, total = graph.node("relu"), graph.node("sum")
    first = replace(relu, name="relu@first", inputs=(total.inputs[0],), outputs=("relu@first",))
    made = replace(graph.tensor(str(total.inputs[0])), name="relu@first")
    after = replace(total, inputs=("relu@first", *total.inputs[1:]))
    return with_nodes(graph, {"sum": (first, after), "relu": (passed(relu),)}).with_tensors(made)


def passed(node: Node) -> Node:
    """Return a node in place of *node* that returns its first operand unchanged."""
    return replace(node, op="Identity", inputs=node.inputs[:1], attrs={}, extra={"since": 13})


def zero_of(node: str, other: str | None) -> Rewrite:
    """Read the codes of *node* with the zero point of another tensor, or without one."""
    zero = () if other is None else (f"{other}#zero",)
    return with_inputs(f"{node}#dequantize", lambda names: (*names[:2], *zero))


def own_scale(reader: str, node: str, other: str) -> Rewrite:
    """Give *reader* its own dequantization of *node*, with the numbers of another tensor."""

    def rewrite(graph: Graph) -> Graph:
        old, name = graph.node(f"{node}#dequantize"), f"{node}@{reader}"
        again = replace(
            old, name=name, inputs=(old.inputs[0], f"{other}#scale", f"{other}#zero"), outputs=(f"{name}@real",)
        )
        after = graph.node(reader)
        after = replace(after, inputs=tuple(f"{name}@real" if n == node else n for n in after.inputs))
        made = replace(graph.tensor(node), name=f"{name}@real")
        return with_nodes(graph, {reader: (again, after)}).with_tensors(made)

    return rewrite


def without_bias(node: str) -> Rewrite:
    """Leave the third operand of *node* out."""
    return with_inputs(node, lambda names: names[:2])


def with_numbers(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Rewrite:
    """Change the numbers of a constant."""
    return lambda graph: graph.with_tensors(replace(graph.tensor(name), data=change(numbers(graph, name))))


def padded_with_negative_zero(graph: Graph) -> Graph:
    """Pad with the code that is the zero point with the opposite sign."""
    old = graph.node("pad")
    filled = torch.tensor(2 * code_zero("x")(graph), dtype=torch.float32)
    value = Tensor("pad@value", (), graph.tensor("pad").dtype, filled)
    return graph.with_node(replace(old, inputs=(*old.inputs[:2], value.name))).with_tensors(value)


def padded_in_front(graph: Graph) -> Graph:
    """Put the padding of both ends in front, as an engine that knows one number for an axis."""
    # ONNX lists the amounts before the four axes, then those behind them
    return with_numbers("pads", lambda pads: torch.cat([pads[:4] + pads[4:], torch.zeros_like(pads[4:])]))(graph)


def unrounded(node: str, reader: str) -> Rewrite:
    """Let *reader* read the real result of *node* without rounding in between, as in a fused multiply-add."""

    def rewrite(graph: Graph) -> Graph:
        old, after, real = graph.node(node), graph.node(reader), f"{node}@real"
        inputs = tuple(real if name == node else name for name in after.inputs)
        changed = {node: (replace(old, outputs=(real,)),), reader: (replace(after, inputs=inputs),)}
        dropped: dict[str, tuple[Node, ...]] = {f"{node}#{part}": () for part in ENDS}
        return with_nodes(graph, {**changed, **dropped}).with_tensors(replace(graph.tensor(node), name=real))

    return rewrite


def axis_moved(graph: Graph) -> Graph:
    """Keep the axis of per-channel scales although a transposition of the weights moved the channels."""
    return with_attributes("w#dequantize", lambda _: {"axis": 1})(graph)


def both(*rewrites: Rewrite) -> Rewrite:
    """Return one rewrite after the other."""

    def rewrite(graph: Graph) -> Graph:
        for each in rewrites:
            graph = each(graph)
        return graph

    return rewrite


def quantized_by(node: str, other: str) -> Rewrite:
    """Quantize the result of *node* with the scale of another tensor, while its readers use the right scale."""
    return with_inputs(f"{node}#quantize", lambda names: (names[0], f"{other}#scale", *names[2:]))


def numbers_of(node: str, other: str) -> Rewrite:
    """Quantize the result of *node* with the numbers of another tensor, while its readers use the right ones."""
    return with_inputs(f"{node}#quantize", lambda names: (names[0], f"{other}#scale", f"{other}#zero"))


def quantized_first(node: str, other: str) -> Rewrite:
    """Quantize the result of *node* with the numbers of another tensor before its own."""

    def rewrite(graph: Graph) -> Graph:
        last, back = graph.node(f"{node}#quantize"), graph.node(f"{other}#dequantize")
        real, codes = f"{node}@real", f"{node}@codes"
        others = (f"{other}#scale", f"{other}#zero")
        first = replace(last, name=codes, inputs=(last.inputs[0], *others), outputs=(codes,))
        again = replace(back, name=real, inputs=(codes, *others), outputs=(real,))
        after = replace(last, inputs=(real, *last.inputs[1:]))
        made = (
            replace(graph.tensor(last.outputs[0]), name=codes),
            replace(graph.tensor(str(last.inputs[0])), name=real),
        )
        return with_nodes(graph, {last.name: (first, again, after)}).with_tensors(*made)

    return rewrite


def unsaturated(node: str) -> Rewrite:
    """Quantize the result of *node* to 16 bits with the numbers of its 8-bit codes: only the saturation is lost."""

    def rewrite(graph: Graph) -> Graph:
        old, zero = graph.node(f"{node}#quantize"), graph.tensor(f"{node}#zero")
        held = numbers(graph, zero.name).to(torch.int16)
        wide = replace(zero, name=f"{node}@zero", dtype=DTYPES["int16"], data=held)
        codes = replace(graph.tensor(old.outputs[0]), dtype=DTYPES["int16"])
        reads = [with_inputs(f"{node}#{part}", lambda names: (*names[:2], wide.name)) for part in ENDS]
        return both(*reads)(graph).with_tensors(wide, codes)

    return rewrite


def read_by(node: str, scale: float) -> Rewrite:
    """Read the codes of *node* with a fixed scale."""

    def rewrite(graph: Graph) -> Graph:
        right = graph.tensor(f"{node}#scale")
        wrong = replace(right, name=f"{node}@scale", data=torch.full_like(numbers(graph, right.name), scale))
        reading = with_inputs(f"{node}#dequantize", lambda names: (names[0], wrong.name, *names[2:]))
        return reading(graph).with_tensors(wrong)

    return rewrite


def padded_with_zero_of(node: str) -> Rewrite:
    """Fold a padding with the zero point of *node*, read as a code of the image."""

    def rewrite(graph: Graph) -> Graph:
        numbers = (graph.tensor(f"{name}#zero").data for name in (node, "x"))
        wrong, right = (float(zero) if zero is not None else 0.0 for zero in numbers)
        scale, old = graph.tensor("x#scale").data, graph.node("pad")
        assert scale is not None
        # the real value that the wrong zero point has as a code of the image
        filled = torch.tensor((wrong - right) * float(scale), dtype=torch.float32)
        value = Tensor("pad@value", (), graph.tensor("pad").dtype, filled)
        return graph.with_node(replace(old, inputs=(*old.inputs[:2], value.name))).with_tensors(value)

    return rewrite


def exchanged(node: str) -> Rewrite:
    """Exchange the first two operands of *node*."""
    return with_inputs(node, lambda names: (names[1], names[0], *names[2:]))


def pool_without_padding(graph: Graph) -> Graph:
    """Fold the padding into an average that divides by the places inside the image alone."""
    pads, old = numbers(graph, "pads"), graph.node("pool")
    axes = len(pads) // 2
    # only the spatial axes: batch and channels have no padding
    inside = tuple(int(pads[i]) for i in (*range(2, axes), *range(axes + 2, 2 * axes)))
    folded = replace(old, inputs=("x#quantized",), attrs={**old.attrs, "pads": inside, "count_include_pad": 0})
    return graph.with_node(folded)


def factor_after(graph: Graph) -> Graph:
    """Add the third tensor before the second factor instead of after it."""
    second, total = graph.node("second"), graph.node("sum")
    early = replace(total, name="sum@early", inputs=(second.inputs[0], total.inputs[1]), outputs=("sum@early",))
    after = replace(second, inputs=("sum@early", second.inputs[1]))
    moved = with_nodes(graph, {"second": (early, after), "sum": (passed(total),)})
    moved = moved.with_tensors(replace(graph.tensor("sum#float"), name="sum@early"))
    return moved.with_(nodes=moved.order)


def where(condition: Condition, rewrite: Rewrite) -> Rewrite:
    """Rewrite only graphs that meet a condition, as engines check narrow conditions before they rewrite."""
    return lambda graph: rewrite(graph) if condition(graph) else graph


def left_to_codes(node: str) -> Rewrite:
    """Remove a relu as if the saturation of its codes replaced it, whatever its zero point."""
    return lambda graph: graph.with_node(passed(graph.node(node)))


def with_attributes(node: str, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Rewrite:
    """Change attributes of *node*."""

    def rewrite(graph: Graph) -> Graph:
        old = graph.node(node)
        return graph.with_node(replace(old, attrs={**old.attrs, **change(old.attrs)}))

    return rewrite


def ends_exchanged(attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Exchange the padding in front with the padding behind."""
    pads = tuple(attrs["pads"])
    return {"pads": (*pads[len(pads) // 2 :], *pads[: len(pads) // 2])}


def inverse_order(attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Use the inverse permutation: where each axis goes to, instead of where it comes from."""
    return {"perm": tuple(sorted(range(len(attrs["perm"])), key=attrs["perm"].__getitem__))}


def without_padding_counted(_: Mapping[str, Any]) -> Mapping[str, Any]:
    """Leave padding out of the divisor."""
    return {"count_include_pad": 0}


def bias_of_first_group(graph: Graph) -> Graph:
    """Count the channels of a bias from the start of each group."""
    groups: Any = graph.node("conv").attrs["group"]
    return with_numbers("b", lambda bias: bias[: len(bias) // groups].repeat(groups))(graph)


def clip_after_sum(graph: Graph) -> Graph:
    """Clip the sum instead of its operand."""
    clip, total = graph.node("clip"), graph.node("sum")
    result = total.outputs[0]
    wide = replace(total, outputs=("sum@wide",))
    after = replace(clip, name="clip@after", inputs=("sum@wide", *clip.inputs[1:]), outputs=(result,))
    changed = with_nodes(graph, {"clip": (passed(clip),), "sum": (wide, after)})
    return changed.with_tensors(replace(graph.tensor(result), name="sum@wide"))


def padding_folded(merge: Callable[[Sequence[int], Sequence[int]], Sequence[int]]) -> Rewrite:
    """Fold zeros around an image into a convolution. merge: padding of the image and the convolution's own -> both."""

    def rewrite(graph: Graph) -> Graph:
        pads, conv = numbers(graph, "pads").tolist(), graph.node("conv")
        own: Any = conv.attrs["pads"]
        # height and width of the image's padding, before and behind
        merged: dict[str, Any] = {**conv.attrs, "pads": tuple(merge([*pads[2:4], *pads[6:8]], own))}
        return graph.with_node(replace(conv, inputs=("x#quantized", *conv.inputs[1:]), attrs=merged))

    return rewrite


def computed_as(node: str, op: str, **attrs: float) -> Rewrite:
    """Compute *node* by another operator of one operand."""
    return lambda graph: graph.with_node(replace(graph.node(node), op=op, attrs=attrs))


def without_rest(block: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that sets the rows after the last whole block to 0, as a loop over blocks leaves them out."""

    def change(numbers: torch.Tensor) -> torch.Tensor:
        kept = len(numbers) // block * block
        return torch.cat([numbers[:kept], torch.zeros_like(numbers[kept:])])

    return change


def gap_lost(graph: Graph) -> Graph:
    """Start the second part of a split where the first one ends."""
    middle = numbers(graph, "middle")
    # the gap between both parts is lost, and the second part keeps its size
    return both(with_numbers("second", lambda _: middle), with_numbers("end", lambda _: 2 * middle))(graph)


def exchanged_between(first: str, second: str) -> Rewrite:
    """Exchange the first operands of two nodes."""

    def rewrite(graph: Graph) -> Graph:
        a, b = graph.node(first), graph.node(second)
        one, other = (b.inputs[0], *a.inputs[1:]), (a.inputs[0], *b.inputs[1:])
        return graph.with_node(replace(a, inputs=one)).with_node(replace(b, inputs=other))

    return rewrite


def second_part_first(graph: Graph) -> Graph:
    """Take the weights of the second operand of a concatenation for those of the first."""
    count = graph.tensor("x").shape[1]
    return with_numbers("w#codes", lambda codes: torch.cat([codes[:, count:], codes[:, :count]], dim=1))(graph)
