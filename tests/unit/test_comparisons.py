"""Comparisons: floats against ONNX Runtime, codes in rational numbers, both sides of an integer graph's Where."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from quantizer.core.library import load_library
from quantizer.ir.formats.onnx import from_model
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.request import Request
from quantizer.ops import REGISTRY, load_built_ins
from quantizer.runtime.integer import integer_graph
from quantizer.runtime.integer_executor import IntegerExecutor
from quantizer.runtime.onnx.kernels import KERNELS, run_ours
from quantizer.runtime.torch_executor import TorchExecutor

LIBRARY = load_library()
load_built_ins()
RELATIONS = {
    "greater": ("Greater", Fraction.__gt__),
    "less": ("Less", Fraction.__lt__),
    "equal": ("Equal", Fraction.__eq__),
}


def thirds(shape, factor):
    return (np.rint(6 * np.sin(np.arange(1, 1 + int(np.prod(shape))) * factor)) / 3).astype(np.float32).reshape(shape)


@pytest.mark.parametrize(("a", "b"), [((2, 3, 4), (2, 3, 4)), ((3, 4), (1,)), ((1, 4), (3, 1)), ((2,), (5, 2))])
@pytest.mark.parametrize("op", RELATIONS)
def test_float_results_equal_onnx_runtime(op, a, b):
    feeds = {"a": thirds(a, 0.7), "b": thirds(b, 1.1)}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, values.shape) for name, values in feeds.items()]
    y = helper.make_tensor_value_info("y", TensorProto.BOOL, None)
    graph = helper.make_graph([helper.make_node(RELATIONS[op][0], ["a", "b"], ["y"], name="n")], "g", inputs, [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, feeds)
    found = TorchExecutor(from_model(model), platform="fp32").forward(feeds)[0]
    assert found.dtype == torch.bool
    assert np.array_equal(found.numpy(), wanted)
    ours = KERNELS[RELATIONS[op][0]].mapped(*(torch.from_numpy(value) for value in feeds.values()))
    assert ours.op == op
    assert np.array_equal(run_ours(ours).numpy(), wanted)


@pytest.mark.parametrize("ranges", [((-2.0, 3.0), (-1.0, 0.7)), ((-2.0, 1.984375), (-4.0, 3.96875)), ((0, 1), (0, 1))])
@pytest.mark.parametrize("scheme", ["a4", "a8", "a16"])
@pytest.mark.parametrize("op", RELATIONS)
def test_codes_are_compared_by_their_real_values(op, scheme, ranges):
    request = Request(
        LIBRARY.spec(op),
        LIBRARY.schemes[scheme],
        LIBRARY.platforms["ideal"],
        {"a": (40, 1), "b": (40,)},
        {},
        dict(zip("ab", ranges, strict=True)),
    )
    provided = default_parameters(request)
    codes = {n: torch.linspace(p.qmin, p.qmax, 40).round().long() for n, p in provided.inputs.items()}
    worth = {
        name: [(int(code) - int(own.zero_point)) * Fraction(float(own.scale)) for code in codes[name]]
        for name, own in provided.inputs.items()
    }
    got = REGISTRY.get(op, "quantized", "ideal")(codes["a"].reshape(40, 1), codes["b"], parameters=provided)
    wanted = [[int(RELATIONS[op][1](left, right)) for right in worth["b"]] for left in worth["a"]]
    assert got.tolist() == wanted
    assert (provided.outputs["y"].qmin, provided.outputs["y"].qmax) == (0, 1)


def test_a_quantized_graph_with_where_runs_on_integers():
    pairs = [("x", "s"), ("k", "t"), ("w", "u")]
    nodes = []
    for name, scale in pairs[:2]:
        nodes.append(helper.make_node("QuantizeLinear", [name, scale, "z"], [f"{name}q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}q", scale, "z"], [f"{name}d"]))
    nodes.append(helper.make_node("Less", ["xd", "kd"], ["c"], name="less"))
    nodes.append(helper.make_node("Where", ["c", "kd", "xd"], ["w"], name="where"))
    nodes.append(helper.make_node("QuantizeLinear", ["w", "u", "z"], ["wq"]))
    nodes.append(helper.make_node("DequantizeLinear", ["wq", "u", "z"], ["y"]))
    values = {"s": np.float32(0.037), "t": np.float32(0.05), "u": np.float32(0.041), "z": np.uint8(113)}
    kept = [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [5, 7]) for name in ("x", "k")]
    graph = helper.make_graph(
        nodes, "larger", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], kept
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    feeds = {"x": 2 * thirds((5, 7), 0.9), "k": 2 * thirds((5, 7), 1.3)}
    given = {name: torch.from_numpy(value) for name, value in feeds.items()}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, feeds)
    for platform, floats in (("ideal", []), ("ort", ["less"])):
        executor = IntegerExecutor(integer_graph(from_model(model), platform, inputs=given))
        assert executor.floats == floats
        assert torch.equal(executor.forward(given, ["y"])[0], torch.from_numpy(wanted))
