"""ONNX Runtime's operators on codes (domain com.microsoft) as a float operator between quantizations.

Files that its quantizer writes in the format QOperator are therefore read like those in the format QDQ. Source:
ContribOperators.md of ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from quantizer.core.errors import FormatError, QuantizerError, UnsupportedError
from quantizer.ir.graph import ON_CODES

DOMAIN = "com.microsoft"
UNARY = {
    "QLinearSigmoid": "Sigmoid",
    "QLinearLeakyRelu": "LeakyRelu",
    "QLinearSoftmax": "Softmax",
    "QLinearAveragePool": "AveragePool",
    "QLinearGlobalAveragePool": "GlobalAveragePool",
}
BINARY = {"QLinearAdd": "Add", "QLinearMul": "Mul"}
SAME = ("QuantizeLinear", "DequantizeLinear")
OLDEST, SOFTMAX_OF_ONE_AXIS = 13, 13
"""The first opset whose DequantizeLinear has an axis and whose Softmax runs along one axis."""
Nodes = list[onnx.NodeProto]


@dataclass
class _Work:
    """The rewritten nodes, and the constants that they need."""

    where: str
    model: onnx.ModelProto
    opset: int
    added: list[onnx.TensorProto] = field(default_factory=list)

    def dequantized(
        self, node: onnx.NodeProto, key: str, inputs: Sequence[str], axis: int = 0
    ) -> tuple[str, onnx.NodeProto]:
        """Return the name of the real values, and the node that computes them from (codes, scale, zero point)."""
        name = f"{_label(node)}#{key}"
        # an absent zero point is left out, and not written as an empty name at the end
        given = [*inputs] if inputs[-1] else list(inputs[:-1])
        return name, helper.make_node("DequantizeLinear", given, [name], name=name, axis=axis)

    def quantized(self, node: onnx.NodeProto, source: str, scale: str, zero: str) -> onnx.NodeProto:
        """Return the node that computes the result's codes."""
        given = [source, scale, zero] if zero else [source, scale]
        return helper.make_node("QuantizeLinear", given, node.output[:1], name=f"{_label(node)}#quantize", axis=0)

    def refuse(self, node: onnx.NodeProto, text: str) -> UnsupportedError:
        return UnsupportedError(f"{self.where}: node {_label(node)!r} ({node.op_type}): {text}")

    def constant(self, node: onnx.NodeProto, name: str) -> np.ndarray[Any, Any]:
        """Return the values of an initialiser."""
        found = next((item for item in self.model.graph.initializer if item.name == name), None)
        if found is None:
            raise self.refuse(node, f"{name!r} is computed: must be a constant.")
        values: np.ndarray[Any, Any] = numpy_helper.to_array(found)
        return values


Rule = Callable[[_Work, onnx.NodeProto], Nodes]


def without_contrib(model: onnx.ModelProto, where: str) -> onnx.ModelProto:
    """Replace operators of DOMAIN that compute on codes by standard operators; keep other operators.

    UnsupportedError for a form that the standard cannot express: channels last, computed bias scales, opsets before
    13.
    """
    if not any(node.domain == DOMAIN and _rule(node) for node in model.graph.node):
        return model
    opset = next((int(item.version) for item in model.opset_import if item.domain in ("", "ai.onnx")), 0)
    work = _Work(where, model, opset)
    nodes: Nodes = []
    for node in model.graph.node:
        rule = _rule(node) if node.domain == DOMAIN else None
        if rule is not None and opset < OLDEST:
            raise work.refuse(node, f"in a model of opset {opset}: must be {OLDEST} or later.")
        nodes += [node] if rule is None else _applied(rule, work, node)
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    made.graph.initializer.extend(work.added)
    return made


def _applied(rule: Rule, work: _Work, node: onnx.NodeProto) -> Nodes:
    """Return the replacement of a node; FormatError if it lacks operands or attributes of its operator."""
    try:
        return [_on_codes(made) for made in rule(work, node)]
    except QuantizerError:
        raise
    except Exception as err:  # noqa: BLE001 - the library raises what its conversions do
        line = next((text.strip() for text in str(err).splitlines() if text.strip()), type(err).__name__)
        raise FormatError(f"{work.where}: node {_label(node)!r} ({node.op_type}): {line}.") from None


def _on_codes(made: onnx.NodeProto) -> onnx.NodeProto:
    """Note that the file has one operator on codes, because its kernel may round in another way."""
    if made.op_type not in SAME:
        made.metadata_props.add(key=ON_CODES, value="1")
    return made


def _rule(node: onnx.NodeProto) -> Rule | None:
    if node.op_type in UNARY:
        return _unary
    if node.op_type in BINARY:
        return _binary
    return {"QLinearConcat": _concat, "QGemm": _gemm, **dict.fromkeys(SAME, _renamed)}.get(node.op_type)


def _label(node: onnx.NodeProto) -> str:
    return str(node.name or node.output[0])


def _attributes(work: _Work, node: onnx.NodeProto) -> dict[str, Any]:
    """Return attributes by name; channels_last must be off."""
    found = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    if found.pop("channels_last", 0):
        raise work.refuse(node, "channels_last=1: the standard has channels first.")
    return found


def _padded(node: onnx.NodeProto, count: int) -> list[str]:
    return [*node.input, *[""] * (count - len(node.input))]


def _renamed(work: _Work, node: onnx.NodeProto) -> Nodes:
    attrs = _attributes(work, node)
    return [
        helper.make_node(node.op_type, list(node.input), list(node.output), name=node.name, axis=attrs.get("axis", 1))
    ]


def _unary(work: _Work, node: onnx.NodeProto) -> Nodes:
    attrs, raw = _attributes(work, node), f"{_label(node)}#float"
    if node.op_type == "QLinearSoftmax" and attrs.pop("opset", SOFTMAX_OF_ONE_AXIS) < SOFTMAX_OF_ONE_AXIS:
        raise work.refuse(node, "softmax of rows, as opsets before 13 have it.")
    x, scale, zero, y_scale, y_zero = _padded(node, 5)
    name, before = work.dequantized(node, "x", (x, scale, zero))
    return [
        before,
        helper.make_node(UNARY[node.op_type], [name], [raw], name=_label(node), **attrs),
        work.quantized(node, raw, y_scale, y_zero),
    ]


def _binary(work: _Work, node: onnx.NodeProto) -> Nodes:
    _attributes(work, node)
    inputs, raw = _padded(node, 8), f"{_label(node)}#float"
    a, first = work.dequantized(node, "a", inputs[:3])
    b, second = work.dequantized(node, "b", inputs[3:6])
    return [
        first,
        second,
        helper.make_node(BINARY[node.op_type], [a, b], [raw], name=_label(node)),
        work.quantized(node, raw, *inputs[6:]),
    ]


def _concat(work: _Work, node: onnx.NodeProto) -> Nodes:
    attrs, raw = _attributes(work, node), f"{_label(node)}#float"
    y_scale, y_zero, *rest = node.input
    if not rest or len(rest) % 3:
        raise work.refuse(node, f"{len(rest)} operands after the result's: must be three for each tensor.")
    made = [work.dequantized(node, f"x{i // 3}", rest[i : i + 3]) for i in range(0, len(rest), 3)]
    join = helper.make_node("Concat", [name for name, _ in made], [raw], name=_label(node), **attrs)
    return [*(before for _, before in made), join, work.quantized(node, raw, y_scale, y_zero)]


def _gemm(work: _Work, node: onnx.NodeProto) -> Nodes:
    """Rewrite a matrix product, whose constant C has the scale of the sums; without output scale the result is real."""
    attrs, inputs = _attributes(work, node), _padded(node, 9)
    a, first = work.dequantized(node, "a", inputs[:3])
    b, second = work.dequantized(node, "b", inputs[3:6], axis=0 if attrs.get("transB") else 1)
    nodes, operands = [first, second], [a, b]
    if inputs[6]:
        scales = [work.constant(node, name).astype(np.float32) for name in (inputs[1], inputs[4])]
        scale = np.float32(attrs.get("alpha", 1.0)) * scales[0].reshape(()) * scales[1]
        name = f"{_label(node)}#bias_scale"
        work.added.append(numpy_helper.from_array(np.asarray(scale, np.float32), name))
        c, third = work.dequantized(node, "c", (inputs[6], name, ""))
        nodes.append(third)
        operands.append(c)
    raw = f"{_label(node)}#float" if inputs[7] else node.output[0]
    nodes.append(helper.make_node("Gemm", operands, [raw], name=_label(node), **attrs))
    return [*nodes, work.quantized(node, raw, inputs[7], inputs[8])] if inputs[7] else nodes
