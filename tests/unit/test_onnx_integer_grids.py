"""Which scales the integer run of an ONNX model gives to tensors: of groups, of other axes, of pads; against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from test_onnx_integer import runtime
from test_onnx_registry_form import model_of

from quantizer.ir.formats.onnx import from_model, load
from quantizer.runtime.integer import integer_graph
from quantizer.runtime.integer_executor import IntegerExecutor
from quantizer.runtime.qdq import export_qdq
from quantizer.runtime.quantization import dispatch_graph, quantize_graph
from quantizer.runtime.setting import Setting
from quantizer.runtime.tensor_config import QuantizationProperty as P

POWERS = Setting(
    P.PER_TENSOR | P.LINEAR | P.ASYMMETRICAL | P.POWER_OF_2,
    P.PER_CHANNEL | P.LINEAR | P.SYMMETRICAL | P.POWER_OF_2,
    bias=True,
)
"""Scales under which float32 and integers compute the very same."""
BEFORE = [
    helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
    helper.make_node("DequantizeLinear", ["q", "xs", "xz"], ["d"]),
]
AFTER = [helper.make_node("QuantizeLinear", ["f", "ys", "yz"], ["y"])]
AROUND = {"xs": np.float32(0.125), "xz": np.uint8(0), "ys": np.float32(0.5), "yz": np.uint8(128)}
STEPS = np.array([2.0**-6, 2.0**-7, 2.0**-5, 2.0**-8], np.float32)


def drawn(*shape, seed=0, reach=60):
    return torch.randint(-reach, reach, shape, generator=torch.Generator().manual_seed(seed)).numpy()


def whole(*shape):
    return (drawn(*shape, seed=5, reach=40) / 4).astype(np.float32)


def qdq(nodes, constants, shape):
    """Return a model that quantizes x, runs *nodes* on its values d, and quantizes their result f as y."""
    kept = [numpy_helper.from_array(np.asarray(v), name) for name, v in (AROUND | constants).items()]
    graph = helper.make_graph(
        [*BEFORE, *nodes, *AFTER],
        "scales",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
        kept,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def product(op, weight, axis, group=1, *, biased=True):
    """Return a convolution with a scale for each index of *axis* of its weights, and for each element of its bias."""
    outputs = weight[0] if op == "Conv" else weight[1] * group
    steps = STEPS[: weight[axis]]
    constants = {"w": drawn(*weight).astype(np.int8), "ws": steps}
    constants |= {"b": drawn(outputs, reach=2000).astype(np.int32), "bs": np.resize(steps, outputs) * np.float32(0.125)}
    nodes = [helper.make_node("DequantizeLinear", ["w", "ws"], ["v"], axis=axis)]
    nodes += [helper.make_node("DequantizeLinear", ["b", "bs"], ["a"], axis=0)] if biased else []
    nodes += [helper.make_node(op, ["d", "v", "a"] if biased else ["d", "v"], ["f"], group=group)]
    return qdq(nodes, constants if biased else {name: constants[name] for name in ("w", "ws")}, [1, 4, 5, 5])


@pytest.mark.parametrize("group", [1, 2])
def test_groups_of_a_transposed_convolution_share_the_scales_of_their_weights(group):
    model, x = product("ConvTranspose", (4, 3, 3, 3), 1, group), whole(1, 4, 5, 5)
    executor = IntegerExecutor(integer_graph(from_model(model), "xnnpack"))
    assert executor.floats == []
    (expected,) = runtime(model, {"x": x})
    np.testing.assert_array_equal(executor.forward(torch.from_numpy(x), ["y"])[0].numpy(), expected)


def test_the_bias_of_a_grouped_transposed_convolution_is_quantized(tmp_path):
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], name="up", group=2, strides=[2, 2])
    constants = {"w": whole(4, 3, 3, 3), "b": (drawn(6, seed=2) / 16).astype(np.float32)}
    x = torch.from_numpy(whole(1, 4, 5, 5))
    graph = dispatch_graph(from_model(model_of([node], {"x": [1, 4, 5, 5]}, ["y"], constants)))
    quantized = quantize_graph(graph, [x], POWERS)
    operand, weight, bias = (config.scale for config in quantized.node("up").parameters.input_quantization_config)
    assert torch.equal(bias, operand * weight.repeat(2))
    path = tmp_path / "up.onnx"
    export_qdq(quantized, path)
    (expected,) = runtime(str(path), {"x": x.numpy()})
    for source in (quantized, load(path)):
        executor = IntegerExecutor(integer_graph(source, "xnnpack"))
        assert executor.floats == []
        assert torch.equal(executor.forward(x, ["y"])[0], torch.from_numpy(expected))


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", [(3, 4, 3, 3), (4, 4, 3, 3)])
def test_weights_with_a_scale_for_each_input_channel_stay_float(shape, biased):
    """Their sums have no one scale; with as many outputs as inputs they were taken for the scales of the outputs."""
    model, x = product("Conv", shape, 1, biased=biased), whole(1, 4, 5, 5)
    executor = IntegerExecutor(integer_graph(from_model(model)))
    assert [executor.graph.node(name).op for name in executor.floats] == ["conv2d"]
    (expected,) = runtime(model, {"x": x})
    np.testing.assert_array_equal(executor.forward(torch.from_numpy(x), ["y"])[0].numpy(), expected)


@pytest.mark.parametrize(
    ("value", "zero", "moved"), [(-1.0, 0, False), (-1.0, 8, True), (0.25, 0, True), (0.3, 0, False)]
)
def test_a_pad_runs_on_codes_only_if_its_value_has_one(value, zero, moved):
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "ws"], ["v"]),
        helper.make_node("Conv", ["d", "v"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "xs", "xz"], ["cq"]),
        helper.make_node("DequantizeLinear", ["cq", "xs", "xz"], ["cd"]),
        helper.make_node("Pad", ["cd", "pads", "value"], ["p"]),
        helper.make_node("Conv", ["p", "v"], ["f"]),
    ]
    constants = {
        "w": drawn(2, 2, 3, 3).astype(np.int8),
        "ws": np.float32(2.0**-6),
        "value": np.float32(value),
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        "xz": np.uint8(zero),
    }
    model, x = qdq(nodes, constants, [1, 2, 5, 5]), whole(1, 2, 5, 5)
    made = integer_graph(from_model(model))
    executor = IntegerExecutor(made)
    (pad,) = [node for node in made.nodes if node.op == "pad"]
    assert (pad.parameters is not None) is moved
    (expected,) = runtime(model, {"x": x})
    np.testing.assert_array_equal(executor.forward(torch.from_numpy(x), ["y"])[0].numpy(), expected)
