"""Models of one node and what ONNX Runtime makes of them, beside the engine: for what the engine does not run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from quantizer.platforms.onnxruntime.engine import MICROSOFT, STANDARD

Array = NDArray[Any]


def one_node(
    op: str,
    feeds: Mapping[str, Array],
    constants: Mapping[str, Array],
    order: list[str],
    opset: int = 13,
    **attrs: object,
) -> onnx.ModelProto:
    """Return the model of one node; *order* names its inputs ("" is absent), *constants* are initializers."""
    helper = onnx.helper
    domain = MICROSOFT if op.startswith("Q") and op not in (*STANDARD, "QuantizeLinear") else ""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values.dtype), values.shape)
        for name, values in feeds.items()
    ]
    graph = helper.make_graph(
        [helper.make_node(op, order, ["out"], domain=domain, **attrs)],
        "g",
        inputs,
        [onnx.ValueInfoProto(name="out")],
        [onnx.numpy_helper.from_array(np.array(values, order="C"), name) for name, values in constants.items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def run_node(
    op: str,
    feeds: Mapping[str, Array],
    constants: Mapping[str, Array],
    order: list[str],
    opset: int = 13,
    **attrs: object,
) -> Array:
    """Return what one node computes, on one thread that does not spin."""
    serialized = one_node(op, feeds, constants, order, opset, **attrs).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(serialized, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, dict(feeds))[0])
