"""Bugs of two nodes, each a rewrite that changes codes: how fusions, folded scales and moved nodes go wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from quantizer.conformance.fusion.rewrites import Rewrite
from quantizer.ir.graph import Graph, Tensor

Condition = Callable[[Graph], bool]

WIDE = 2.0**20
"""A number larger than any value of a case."""


@dataclass(frozen=True)
class Plant:
    """A wrong rewrite, and the graph in which it is planted."""

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


def _clipped_between(low: Callable[[Graph], float], high: Callable[[Graph], float]) -> Rewrite:
    """Clip between two numbers of the graph."""
    return lambda graph: _clipped("clip", low, high(graph))(graph)


def _by_scale_of(node: str, value: float) -> Callable[[Graph], float]:
    """Return a bound whose code was computed with the scale of another tensor."""
    return lambda graph: value * float(_numbers(graph, f"{node}#scale")) / float(_numbers(graph, "clip#scale"))


def _off_by_zero_point(value: float) -> Callable[[Graph], float]:
    """Return a bound whose code was computed with the zero point 0."""
    return lambda graph: value + _code_zero("clip")(graph)


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
    """Read the codes of *node* with the zero point of another tensor, or without one."""

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
    """Let *reader* read the real result of *node* without rounding in between, as in a fused multiply-add."""

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


def _both(*rewrites: Rewrite) -> Rewrite:
    """Return one rewrite after the other."""

    def rewrite(graph: Graph) -> Graph:
        for each in rewrites:
            graph = each(graph)
        return graph

    return rewrite


def _quantized_by(node: str, other: str) -> Rewrite:
    """Quantize the result of *node* by the scale of another tensor; who reads it has the right one."""

    def rewrite(graph: Graph) -> Graph:
        old = graph.node(f"{node}#quantize")
        return graph.with_node(replace(old, inputs=(old.inputs[0], f"{other}#scale", *old.inputs[2:])))

    return rewrite


def _read_by(node: str, scale: float) -> Rewrite:
    """Read the codes of *node* with a fixed scale."""

    def rewrite(graph: Graph) -> Graph:
        old, right = graph.node(f"{node}#dequantize"), graph.tensor(f"{node}#scale")
        assert right.data is not None
        wrong = replace(right, name=f"{node}@scale", data=torch.full_like(right.data, scale))
        changed = replace(old, inputs=(old.inputs[0], wrong.name, *old.inputs[2:]))
        return graph.with_node(changed).with_tensors(wrong)

    return rewrite


def _padded_with_zero_of(node: str) -> Rewrite:
    """Fold a padding with the zero point of *node*, read as a code of the image."""

    def rewrite(graph: Graph) -> Graph:
        numbers = (graph.tensor(f"{name}#zero").data for name in (node, "x"))
        wrong, right = (float(zero) if zero is not None else 0.0 for zero in numbers)
        scale, old = graph.tensor("x#scale").data, graph.node("pad")
        assert scale is not None
        filled = torch.tensor((wrong - right) * float(scale), dtype=torch.float32)
        value = Tensor("pad@value", (), graph.tensor("pad").dtype, filled)
        return graph.with_node(replace(old, inputs=(*old.inputs[:2], value.name))).with_tensors(value)

    return rewrite


def _exchanged(node: str) -> Rewrite:
    """Exchange the first two operands of *node*."""

    def rewrite(graph: Graph) -> Graph:
        old = graph.node(node)
        return graph.with_node(replace(old, inputs=(old.inputs[1], old.inputs[0], *old.inputs[2:])))

    return rewrite


def _pool_without_padding(graph: Graph) -> Graph:
    """Fold the padding into an average that divides by the number of places inside the image."""
    pads, old = graph.tensor("pads").data, graph.node("pool")
    assert pads is not None
    axes = len(pads) // 2
    inside = tuple(int(pads[i]) for i in (*range(2, axes), *range(axes + 2, 2 * axes)))
    folded = replace(old, inputs=("x#quantized",), attrs={**old.attrs, "pads": inside, "count_include_pad": 0})
    return graph.with_node(folded)


def _factor_after(graph: Graph) -> Graph:
    """Add the third tensor before the second factor instead of after it."""
    second, total = graph.node("second"), graph.node("sum")
    early = replace(total, name="sum@early", inputs=(second.inputs[0], total.inputs[1]), outputs=("sum@early",))
    after = replace(second, inputs=("sum@early", second.inputs[1]))
    last = replace(total, op="Identity", inputs=(total.inputs[0],), attrs={}, extra={"since": 13})
    changed = {"second": (early, after), "sum": (last,)}
    nodes = tuple(item for node in graph.nodes for item in changed.get(node.name, (node,)))
    moved = graph.with_(nodes=nodes).with_tensors(replace(graph.tensor("sum#float"), name="sum@early"))
    return moved.with_(nodes=moved.order)


def _where(condition: Condition, rewrite: Rewrite) -> Rewrite:
    """Rewrite only graphs that meet a condition. Engines have conditions as narrow as these."""
    return lambda graph: rewrite(graph) if condition(graph) else graph


def _equal(part: str, *names: str) -> Condition:
    """Return whether tensors have one scale, or one zero point."""
    return lambda graph: len({float(_numbers(graph, f"{name}#{part}")) for name in names}) == 1


def _numbers(graph: Graph, name: str) -> torch.Tensor:
    found = graph.tensor(name).data
    assert found is not None
    return found


def _left_to_codes(node: str) -> Rewrite:
    """Leave a relu to the saturation of its codes, whatever its zero point."""

    def rewrite(graph: Graph) -> Graph:
        old = graph.node(node)
        return graph.with_node(replace(old, op="Identity", attrs={}, extra={"since": 13}))

    return rewrite


def _with_attributes(node: str, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Rewrite:
    """Change attributes of *node*."""

    def rewrite(graph: Graph) -> Graph:
        old = graph.node(node)
        return graph.with_node(replace(old, attrs={**old.attrs, **change(old.attrs)}))

    return rewrite


def _ends_exchanged(attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Exchange the padding in front with the padding behind."""
    pads = tuple(attrs["pads"])
    return {"pads": (*pads[len(pads) // 2 :], *pads[: len(pads) // 2])}


def _inverse_order(attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Apply the inverse of a permutation instead of the permutation."""
    return {"perm": tuple(sorted(range(len(attrs["perm"])), key=attrs["perm"].__getitem__))}


def _without_padding_counted(_: Mapping[str, Any]) -> Mapping[str, Any]:
    """Leave padding out of the divisor."""
    return {"count_include_pad": 0}


def _bias_of_first_group(graph: Graph) -> Graph:
    """Count the channels of a bias from the start of each group."""
    groups: Any = graph.node("conv").attrs["group"]
    return _with_numbers("b", lambda bias: bias[: len(bias) // groups].repeat(groups))(graph)


def _clip_after_sum(graph: Graph) -> Graph:
    """Clip the sum instead of its operand."""
    clip, total = graph.node("clip"), graph.node("sum")
    result = total.outputs[0]
    identity = replace(clip, op="Identity", inputs=clip.inputs[:1], attrs={}, extra={"since": 13})
    wide = replace(total, outputs=("sum@wide",))
    after = replace(clip, name="clip@after", inputs=("sum@wide", *clip.inputs[1:]), outputs=(result,))
    changed = {"clip": (identity,), "sum": (wide, after)}
    nodes = tuple(item for node in graph.nodes for item in changed.get(node.name, (node,)))
    return graph.with_(nodes=nodes).with_tensors(replace(graph.tensor(result), name="sum@wide"))


def _padding_folded(merge: Callable[[Sequence[int], Sequence[int]], Sequence[int]]) -> Rewrite:
    """Fold zeros around an image into a convolution. merge: padding of the image and the convolution's own -> both."""

    def rewrite(graph: Graph) -> Graph:
        pads, conv = _numbers(graph, "pads").tolist(), graph.node("conv")
        own: Any = conv.attrs["pads"]
        merged: dict[str, Any] = {**conv.attrs, "pads": tuple(merge([*pads[2:4], *pads[6:8]], own))}
        return graph.with_node(replace(conv, inputs=("x#quantized", *conv.inputs[1:]), attrs=merged))

    return rewrite


def _one_shape(*names: str) -> Condition:
    """Return whether tensors have one shape."""
    return lambda graph: len({graph.tensor(name).shape for name in names}) == 1


def _cubic(graph: Graph) -> bool:
    """Return whether the axes of the input but for the first have one size."""
    return len(set(graph.tensor("x").shape[1:])) == 1


def _square(graph: Graph) -> bool:
    """Return whether a layer has as many outputs as inputs."""
    return len(set(graph.tensor("w#codes").shape)) == 1


def _computed_as(node: str, op: str, **attrs: float) -> Rewrite:
    """Compute *node* by another operator of one operand."""
    return lambda graph: graph.with_node(replace(graph.node(node), op=op, attrs=attrs))


def _without_rest(block: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that drops the rows after the last whole block."""

    def change(numbers: torch.Tensor) -> torch.Tensor:
        kept = len(numbers) // block * block
        return torch.cat([numbers[:kept], torch.zeros_like(numbers[kept:])])

    return change


def _gap_lost(graph: Graph) -> Graph:
    """Start the second part of a split where the first one ends."""
    middle = _numbers(graph, "middle")
    return _both(_with_numbers("second", lambda _: middle), _with_numbers("end", lambda _: 2 * middle))(graph)


def _exchanged_between(first: str, second: str) -> Rewrite:
    """Exchange the first operands of two nodes."""

    def rewrite(graph: Graph) -> Graph:
        a, b = graph.node(first), graph.node(second)
        one, other = (b.inputs[0], *a.inputs[1:]), (a.inputs[0], *b.inputs[1:])
        return graph.with_node(replace(a, inputs=one)).with_node(replace(b, inputs=other))

    return rewrite


def _second_part_first(graph: Graph) -> Graph:
    """Exchange the weights of the two operands of a concatenation."""
    count = graph.tensor("x").shape[1]
    return _with_numbers("w#codes", lambda codes: torch.cat([codes[:, count:], codes[:, :count]], dim=1))(graph)


PLANTS = (
    Plant("the relu clamps at the code 0", "conv_relu_add", _clipped("relu", _code_zero("relu"), WIDE)),
    Plant("a relu is computed as a relu6", "linear_relu_add", _clipped("relu", lambda _: 0.0, 6.0)),
    Plant("the scale of a product is folded into the wrong tensor", "mul_add", _scale_of("mul", "x")),
    Plant("the bias has the scale of the other operand", "conv_relu_add", _bias_by("conv", "z")),
    Plant("the bias has the scale of the result", "linear_relu_add", _bias_by("linear", "relu")),
    Plant("zeros around an image are the code 0", "pad_conv", _padded_with_code_zero),
    Plant("the relu comes before the sum", "add_relu", _relu_before_sum),
    Plant("the second reader sees the clamped sum", "conv_relu_shared", _reads("sum", 1, "relu")),
    Plant("operands of a concatenation have one scale", "concat_scales", _scale_of("z", "conv")),
    Plant("an average keeps its operand's scale", "pool_requantize", _scale_of("pool", "z")),
    Plant("softmax is read by the scale of its operand", "softmax_scales", _scale_of("weights", "scaled")),
    Plant("a transposition is computed as a reshape", "moves_through", _reads("view", 0, "act")),
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
    Plant(
        "a sum has the scales of its operands exchanged",
        "conv_relu_add",
        _both(_scale_of("relu", "z"), _scale_of("z", "relu")),
    ),
    Plant(
        "a product and its factors before softmax are rounded once", "softmax_scales", _unrounded("product", "scaled")
    ),
    Plant("softmax is read by 1/256 though its codes have another scale", "softmax_scales", _read_by("weights", 2**-8)),
    Plant("a requantization is folded into the wrong scale", "linear_relu_add", _quantized_by("relu", "sum")),
    Plant("zeros around an image have the zero point of the result", "pad_conv", _padded_with_zero_of("conv")),
    Plant("codes between an average and a sum are dropped", "pool_requantize", _unrounded("pool", "sum")),
    Plant(
        "all channels are read by the scale of the first",
        "concat_scales",
        _with_numbers("w#scale", lambda s: s[:1].expand(s.shape).clone()),
    ),
    Plant("a reshape exchanges the scales of channels", "pad_conv", _with_numbers("w#scale", lambda s: s.flip(0))),
    Plant("operands of a concatenation are exchanged", "concat_scales", _exchanged("join")),
    Plant("a folded padding is not counted in an average", "pad_pool", _pool_without_padding),
    Plant("the padding of an average is all in front", "pad_pool", _padded_in_front),
    Plant("both parts of a split are the second", "split_sum", _reads("sum", 0, "tail")),
    Plant("a part of a split has the scale of the result", "split_sum", _scale_of("head", "sum")),
    Plant("a second part of a split reads the first", "split_sum", _reads("gate", 0, "head")),
    Plant("a clip narrower than the codes is left to them", "conv_clip", _clipped("clip", lambda _: -WIDE, WIDE)),
    Plant("a clip is fused as a relu", "conv_clip", _clipped("clip", lambda _: 0.0, WIDE)),
    Plant("the first of two constant factors is lost", "scaled_twice", _reads("second", 0, "x#quantized")),
    Plant("the shift of a batch normalization comes before its factor", "scaled_twice", _factor_after),
    Plant("two constant factors are folded into one without codes", "scaled_twice", _unrounded("first", "second")),
    Plant("a relu is left to codes below whose zero point there are others", "add_relu", _left_to_codes("relu")),
    Plant("a relu before a pool is left to its codes", "relu_pool", _left_to_codes("relu")),
    Plant("a relu after a matrix product is left to its codes", "matmul_add_relu", _left_to_codes("relu")),
    Plant(
        "two operands of equal scales have one zero point",
        "add_relu",
        _where(_equal("scale", "x", "z"), _zero_of("z", "x")),
    ),
    Plant(
        "two operands of equal zero points have one scale",
        "add_relu",
        _where(_equal("zero", "x", "z"), _scale_of("z", "x")),
    ),
    Plant(
        "a concatenation copies an operand whose zero point is its own",
        "concat_scales",
        _where(_equal("zero", "z", "join"), _scale_of("z", "join")),
    ),
    Plant(
        "merged convolutions of equal scales have one zero point",
        "convs_joined",
        _where(_equal("scale", "first", "second"), _zero_of("second", "first")),
    ),
    Plant(
        "a permutation of three axes is taken for its inverse",
        "moves_through",
        _with_attributes("turn", _inverse_order),
    ),
    Plant("the paddings of a pool at both ends are exchanged", "relu_pool", _with_attributes("pool", _ends_exchanged)),
    Plant(
        "an average divides by places inside the image",
        "pool_requantize",
        _with_attributes("pool", _without_padding_counted),
    ),
    Plant("a second part of a split starts where the first ends", "split_sum", _gap_lost),
    Plant(
        "one row for all is read as the sum's operand",
        "mul_add",
        _where(lambda graph: graph.tensor("y").shape != graph.tensor("x").shape, _reads("sum", 1, "y#quantized")),
    ),
    Plant("each group has the bias of the first", "conv_relu_add", _bias_of_first_group),
    Plant("channels past a multiple of 16 have no bias", "conv_relu_add", _with_numbers("b", _without_rest(16))),
    Plant(
        "terms past the first 64 are lost",
        "matmul_add_relu",
        _where(lambda graph: graph.tensor("x").shape[1] > 64, _with_numbers("w#codes", _without_rest(64))),
    ),
    Plant("the lower bound of a clip is 0", "conv_clip", _clipped("clip", lambda _: 0.0, 3.0)),
    Plant("the upper bound of a clip is lost", "conv_clip", _clipped("clip", lambda _: 0.5, WIDE)),
    Plant(
        "bounds of a clip are counted from the code 0",
        "conv_clip",
        _clipped_between(_off_by_zero_point(0.5), _off_by_zero_point(3.0)),
    ),
    Plant(
        "bounds of a clip have the scale of the sum after it",
        "conv_clip",
        _clipped_between(_by_scale_of("sum", 0.5), _by_scale_of("sum", 3.0)),
    ),
    Plant("a clip comes after the sum", "conv_clip", _clip_after_sum),
    Plant(
        "a concatenation copies an operand whose scale is its own",
        "concat_conv",
        _where(_equal("scale", "x", "z"), _zero_of("z", "x")),
    ),
    Plant(
        "operands of a concatenation exchange their scales",
        "concat_conv",
        _both(_scale_of("x", "z"), _scale_of("z", "x")),
    ),
    Plant(
        "merged convolutions of equal shapes are exchanged",
        "convs_joined",
        _where(_one_shape("first", "second"), _exchanged("join")),
    ),
    Plant("a relu is dropped for both readers of a convolution", "conv_relu_shared", _left_to_codes("relu")),
    Plant("factors of a product exchange their zero points", "mul_add", _both(_zero_of("x", "y"), _zero_of("y", "x"))),
    Plant(
        "a folded padding is the larger of two",
        "pad_conv",
        _padding_folded(lambda inside, own: [max(pair) for pair in zip(inside, own, strict=True)]),
    ),
    Plant("a folded padding replaces the convolution's own", "pad_conv", _padding_folded(lambda inside, _: inside)),
    Plant(
        "a folded padding exchanges height and width",
        "pad_conv",
        _padding_folded(lambda a, b: [a[i] + b[i] for i in (1, 0, 3, 2)]),
    ),
    Plant(
        "an average is given the numbers of its operand",
        "pool_requantize",
        _both(_quantized_by("pool", "x"), _scale_of("pool", "x")),
    ),
    Plant("a relu before a pool is a relu6", "relu_pool", _clipped("relu", lambda _: 0.0, 6.0)),
    Plant("the shift after two factors has the scale of one", "scaled_twice", _scale_of("b", "h")),
    Plant(
        "softmax is taken along the other axis", "softmax_scales", _with_attributes("weights", lambda _: {"axis": 0})
    ),
    Plant("softmax is read without its zero point", "softmax_scales", _zero_of("weights", None)),
    Plant("the factor before softmax is lost", "softmax_scales", _reads("weights", 0, "product")),
    Plant("a relu before a split reaches its first part alone", "split_sum", _reads("tail", 0, "x#quantized")),
    Plant("a sigmoid that is moved is read by 1/256", "moves_through", _read_by("act", 2**-8)),
    Plant("a transposition of axes of one size is dropped", "moves_through", _where(_cubic, _reads("view", 0, "act"))),
    Plant("an LSTM cell's state leaves tanh out", "lstm_cell", _reads("hidden", 1, "next")),
    Plant("an LSTM cell's candidate goes through a sigmoid", "lstm_cell", _computed_as("g", "Sigmoid")),
    Plant("an LSTM cell's old state has the scale of the new", "lstm_cell", _scale_of("state", "next")),
    Plant("an LSTM cell's kept state is not rounded", "lstm_cell", _unrounded("kept", "next")),
    Plant("SiLU is computed as hard swish", "conv_silu", _computed_as("gate", "HardSigmoid", alpha=1 / 6, beta=0.5)),
    Plant(
        "square weights are not transposed",
        "linear_relu_add",
        _where(_square, _with_attributes("linear", lambda _: {"transB": 0})),
    ),
    Plant("the mean is subtracted the other way round", "mean_centred", _exchanged("centred")),
    Plant("the mean is read without its zero point", "mean_centred", _zero_of("mean", None)),
    Plant("a difference and its factor are rounded once", "mean_centred", _unrounded("centred", "scaled")),
    Plant("the mean is not rounded", "mean_centred", _unrounded("mean", "centred")),
    Plant(
        "a concatenation copies an operand of equal scale but another zero point",
        "concat_scales",
        _where(_equal("scale", "z", "join"), _zero_of("z", "join")),
    ),
    Plant(
        "a convolution writes codes of its own into a concatenation of equal scale",
        "concat_scales",
        _where(_equal("scale", "conv", "join"), _zero_of("conv", "join")),
    ),
    Plant(
        "operands of a concatenation with equal scales have one zero point",
        "concat_scales",
        _where(_equal("scale", "z", "conv"), _zero_of("z", "conv")),
    ),
    Plant("a convolution before a concatenation is not rounded", "concat_scales", _unrounded("conv", "join")),
    Plant("weights of the second operand of a concatenation come first", "concat_conv", _second_part_first),
    Plant("a sum reads one operand twice", "add_relu", _reads("sum", 1, "x#quantized")),
    Plant("a convolution and its clip are rounded once", "conv_clip", _unrounded("conv", "clip")),
    Plant(
        "a clip is given the numbers of the convolution",
        "conv_clip",
        _both(_quantized_by("clip", "conv"), _scale_of("clip", "conv")),
    ),
    Plant("a relu and the sum after it are rounded once", "conv_relu_add", _unrounded("relu", "sum")),
    Plant("paddings of both ends are exchanged", "conv_relu_add", _with_attributes("conv", _ends_exchanged)),
    Plant("the first reader of a convolution sees it without its relu", "conv_relu_shared", _reads("sum", 0, "conv")),
    Plant("the gate of SiLU is not rounded", "conv_silu", _unrounded("gate", "product")),
    Plant("SiLU reads its gate twice", "conv_silu", _reads("product", 0, "gate")),
    Plant("merged convolutions have the scale of the first", "convs_joined", _scale_of("second", "first")),
    Plant("the second of merged convolutions has the result's scale", "convs_joined", _quantized_by("second", "join")),
    Plant("a layer and its relu are rounded once", "linear_relu_add", _unrounded("linear", "relu")),
    Plant("an LSTM cell exchanges two gates", "lstm_cell", _exchanged_between("kept", "added")),
    Plant("an LSTM cell's tanh is not rounded", "lstm_cell", _unrounded("held", "hidden")),
    Plant("a matrix product and a sum are rounded once", "matmul_add_relu", _unrounded("product", "sum")),
    Plant("a sum and its relu are rounded once", "matmul_add_relu", _unrounded("sum", "relu")),
    Plant(
        "square factors are read transposed",
        "matmul_add_relu",
        _where(_square, _with_numbers("w#codes", lambda codes: codes.t().contiguous())),
    ),
    Plant("a difference has the scale of its operand", "mean_centred", _scale_of("centred", "x")),
    Plant("axes move the other way", "moves_through", _with_attributes("turn", lambda _: {"perm": (0, 3, 1, 2)})),
    Plant("a sum is quantized by the product's scale", "mul_add", _quantized_by("sum", "mul")),
    Plant("a product reads one factor twice", "mul_add", _reads("mul", 1, "x#quantized")),
    Plant(
        "padding of its own is lost after one in front",
        "pad_conv",
        _with_attributes("conv", lambda _: {"pads": (0,) * 4}),
    ),
    Plant("an average is quantized by its operand's scale", "pad_pool", _quantized_by("pool", "x")),
    Plant("the paddings of an average are exchanged", "pool_requantize", _with_attributes("pool", _ends_exchanged)),
    Plant("a pool reads what was before the relu", "relu_pool", _reads("pool", 0, "x#quantized")),
    Plant("a pool is read without its zero point", "relu_pool", _zero_of("pool", None)),
    Plant("two factors exchange their scales", "scaled_twice", _both(_scale_of("g", "h"), _scale_of("h", "g"))),
    Plant("the second product is not rounded", "scaled_twice", _unrounded("second", "sum")),
    Plant("softmax is not rounded before the product", "softmax_scales", _unrounded("weights", "mixed")),
    Plant("a factor is folded into softmax without codes", "softmax_scales", _unrounded("scaled", "weights")),
    Plant("the gate of a split is not rounded", "split_sum", _unrounded("gate", "sum")),
    Plant("a relu before a split reaches its second part alone", "split_sum", _reads("head", 0, "x#quantized")),
)
