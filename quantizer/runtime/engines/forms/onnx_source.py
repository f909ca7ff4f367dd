"""An ONNX model as the lines of `onnx.helper` that build it."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import helper, numpy_helper

from quantizer.runtime.engines.frames import Array, Job
from quantizer.runtime.engines.scripts import assigned, expression

IMPORTS = ("import onnx", "from onnx import TensorProto, helper, numpy_helper")


def model_lines(job: Job, known: Mapping[str, Array]) -> list[str]:
    """Return the lines that set `model` to the bytes of the model of *job*."""
    model = onnx.load_from_string(job.model)
    graph = model.graph
    constants = [(value.name, expression(numpy_helper.to_array(value), known)) for value in graph.initializer]
    lines = ["nodes = ["]
    lines += [f"    helper.make_node({', '.join(_node(node))})," for node in graph.node]
    lines += ["]", "constants = {"]
    for name, text in constants:
        first, *rest = assigned("_", text)
        lines += [f'    "{name}": {first.removeprefix("_ = ")}', *(f"    {line}" for line in rest)]
        lines[-1] += ","
    opsets = ", ".join(f'helper.make_opsetid("{o.domain}", {o.version})' for o in model.opset_import)
    return [
        *lines,
        "}",
        f"inputs = [{', '.join(_value(value) for value in graph.input)}]",
        f"outputs = [{', '.join(_value(value) for value in graph.output)}]",
        "kept = [numpy_helper.from_array(np.array(values, order='C'), name) for name, values in constants.items()]",
        'graph = helper.make_graph(nodes, "one", inputs, outputs, kept)',
        f"made = helper.make_model(graph, opset_imports=[{opsets}], ir_version={model.ir_version})",
        "model = made.SerializeToString()",
    ]


def _node(node: onnx.NodeProto) -> list[str]:
    words = [f'"{node.op_type}"', _names(node.input), _names(node.output)]
    if node.domain:
        words.append(f'domain="{node.domain}"')
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        words.append(
            f"{attribute.name}={value.decode()!r}" if isinstance(value, bytes) else f"{attribute.name}={value}"
        )
    return words


def _names(names: object) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"  # type: ignore[attr-defined]


def _value(value: onnx.ValueInfoProto) -> str:
    kind = value.type.tensor_type
    if not kind.elem_type:
        return f'onnx.ValueInfoProto(name="{value.name}")'
    shape = [size.dim_value for size in kind.shape.dim]
    name = onnx.TensorProto.DataType.Name(kind.elem_type)
    return f'helper.make_tensor_value_info("{value.name}", TensorProto.{name}, {shape})'
