"""Quantized graphs: dispatched, calibrated, run, and written as QDQ that ONNX Runtime runs to the same codes."""

from __future__ import annotations

import math
import random

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from quantizer.core.errors import GraphError, UnsupportedError
from quantizer.ir.formats.onnx import from_model, load
from quantizer.ir.formats.onnx_write import save, to_model
from quantizer.ir.graph import same
from quantizer.runtime.calibrate import InfiniteTensorWarning
from quantizer.runtime.hooks import QuantOPRuntimeHook, is_quantable
from quantizer.runtime.qdq import export_qdq
from quantizer.runtime.quantization import dispatch_graph, quantize_graph
from quantizer.runtime.setting import Setting
from quantizer.runtime.tensor_config import (
    POLICIES,
    QuantizationProperty,
    QuantizationStates,
    create_default_quant_config,
)
from quantizer.runtime.torch_executor import TorchExecutor

onnxruntime = pytest.importorskip("onnxruntime")
P = QuantizationProperty
POWERS = {
    "activations": P.PER_TENSOR | P.LINEAR | P.ASYMMETRICAL | P.POWER_OF_2,
    "weights": P.PER_CHANNEL | P.LINEAR | P.SYMMETRICAL | P.POWER_OF_2,
}


def numbers(*shape, seed=0):
    generator = random.Random(seed)
    return torch.tensor([generator.gauss(0, 1) for _ in range(math.prod(shape))]).reshape(shape)


def network(opset=13):
    """Conv, Relu, MaxPool, Add with a shortcut, Reshape, Gemm, Sigmoid; h and w are 8."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("Conv", ["r", "v"], ["d"], name="conv2", pads=[1, 1, 1, 1], group=2),
        helper.make_node("Add", ["d", "r"], ["s"], name="add"),
        helper.make_node("MaxPool", ["s"], ["m"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Reshape", ["m", "shape"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "g", "z"] if opset < 11 else ["f", "g"], ["y"], name="fc", transB=1),
    ]
    constants = {
        "w": numbers(4, 3, 3, 3, seed=1),
        "b": (numbers(4, seed=2) * 16).round() / 16,
        "v": numbers(4, 2, 3, 3, seed=3),
        "g": numbers(5, 64, seed=4),
        "shape": torch.tensor([0, -1]),
    } | ({"z": torch.zeros(5)} if opset < 11 else {})
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 5])
    kept = [numpy_helper.from_array(v.numpy(), name) for name, v in constants.items()]
    graph = helper.make_graph(nodes, "net", [value], [out], kept)
    return from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8))


def quantized(opset=13, **policies):
    batches = [[numbers(4, 3, 8, 8, seed=s)] for s in (10, 11)]
    return quantize_graph(dispatch_graph(network(opset)), batches, **policies)


def ort(path, feeds, names, *, optimized):
    model = onnx.load(path)
    kinds = {"codes": TensorProto.INT8}
    have = {item.name for item in model.graph.output}
    model.graph.output.extend(
        helper.make_tensor_value_info(n, kinds.get(n.rpartition("#")[2], TensorProto.FLOAT), None)
        for n in names
        if n not in have
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(
        names, feeds
    )


@pytest.mark.parametrize("optimized", [False, True])
def test_exported_qdq_gives_the_same_codes_in_onnx_runtime(tmp_path, optimized):
    """With scales of powers of two every sum is exact, so that no order of additions can move a code.

    Weights have 7 bits: on x86 without VNNI the runtime's optimized kernels add two products in int16, and saturate.

    Optimized, its fused kernels round a float bias to 32 bits, so that this one is a multiple of 1/16, and QLinearAdd adds
    the zero point before it rounds, which moves ties unless that is even: 0 here.
    """
    policies = POWERS | ({"activations": P.PER_TENSOR | P.LINEAR | P.SYMMETRICAL | P.POWER_OF_2} if optimized else {})
    graph = quantized(setting=Setting(reduce_range=optimized), **policies)
    export_qdq(graph, tmp_path / "m.onnx")
    x = numbers(16, 3, 8, 8, seed=20)
    names = ["c", "r", "d", "s", "m", "f", "y"]
    values = TorchExecutor(graph).forward(x, names)
    configs = {node.outputs[0]: node.parameters.output_quantization_config[0] for node in graph.nodes}
    theirs = ort(
        tmp_path / "m.onnx",
        {"x": x.numpy()},
        [f"{n}#codes" for n in names] if not optimized else ["y"],
        optimized=optimized,
    )
    for name, ours, codes in zip(
        names if not optimized else ["y"], values if not optimized else values[-1:], theirs, strict=True
    ):
        if optimized:
            np.testing.assert_array_equal(codes, ours.numpy())
            continue
        np.testing.assert_array_equal(codes, configs[name].codes(ours).numpy())
        assert len(np.unique(codes)) > 16, name


def test_default_int8_keeps_the_answer_and_reads_back_with_parameters(tmp_path):
    graph = quantized()
    x = numbers(8, 3, 8, 8, seed=21)
    plain, (got,) = TorchExecutor(network(), platform="fp32")(x)[0], TorchExecutor(graph)(x)
    ratio = 10 * torch.log10((plain**2).sum() / ((plain - got) ** 2).sum())
    assert 20 < ratio < 60
    export_qdq(graph, tmp_path / "m.onnx")
    again = load(tmp_path / "m.onnx")
    (read,) = TorchExecutor(again, platform="fp32")(x)
    assert torch.equal(read, got)
    config = graph.node("fc").parameters.output_quantization_config[0]
    held = again.tensor("y#codes").qparams
    assert (held.scale.item(), held.zero_point.item()) == (config.scale.item(), config.offset.item())
    weights = again.tensor("w#codes").qparams
    assert (weights.axis, weights.scale.shape) == (0, (4,))


def test_a_model_written_and_read_is_the_same(tmp_path):
    graph = network()
    save(graph, tmp_path / "m.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "m.onnx"))
    assert same(load(tmp_path / "m.onnx"), graph) is None


def test_quantized_nodes_are_not_written_as_plain_ones():
    with pytest.raises(UnsupportedError, match="quantized"):
        to_model(quantized())


def test_a_dispatcher_takes_exceptions_and_refuses_unknown_names():
    graph = network()
    every = dispatch_graph(graph, "ort", "allin", {"add": "fp32"})
    assert {n.name: n.extra["platform"] for n in every.nodes}["add"] == "fp32"
    assert sum(n.extra["platform"] == "ort" for n in every.nodes) == 6
    with pytest.raises(GraphError, match="'sub'"):
        dispatch_graph(graph, "ort", "allin", {"sub": "fp32"})
    with pytest.raises(ValueError, match="no such platform"):
        dispatch_graph(graph, "trt")
    with pytest.raises(ValueError, match="dispatcher"):
        dispatch_graph(graph, "ort", "pointwise")


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT16", "INT64"])
def test_a_part_of_another_format_is_not_changed(kind):
    """Configurations quantize float32: they do not apply to a sum in float64 next to it."""
    nodes = [
        helper.make_node("Cast", ["x"], ["d"], to=TensorProto.DataType.Value(kind)),
        helper.make_node("Add", ["d", "d"], ["s"], name="other"),
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
    ]
    outputs = [
        helper.make_tensor_value_info("s", TensorProto.DataType.Value(kind), [2]),
        helper.make_tensor_value_info("r", 1, [2]),
    ]
    proto = helper.make_graph(nodes, "mixed", [helper.make_tensor_value_info("x", 1, [2])], outputs)
    graph = from_model(helper.make_model(proto, opset_imports=[helper.make_opsetid("", 13)], ir_version=8))
    for dispatcher in ("allin", "conservative"):
        platforms = {node.name: node.extra["platform"] for node in dispatch_graph(graph, dispatcher=dispatcher).nodes}
        assert platforms["other"] == "fp32"
    x = torch.tensor([1.0, -2.0])
    made, _ = TorchExecutor(quantize_graph(dispatch_graph(graph), [x])).forward(x)
    assert made.tolist() == [2, -4]


def test_a_graph_that_would_stay_float_is_an_error():
    graph = dispatch_graph(network(), dispatching_table={n.name: "fp32" for n in network().nodes})
    with pytest.raises(GraphError, match="no operation is dispatched"):
        quantize_graph(graph, [[numbers(1, 3, 8, 8)]])
    with pytest.raises(GraphError, match="dispatch_graph first"):
        quantize_graph(network(), [[numbers(1, 3, 8, 8)]])
    with pytest.raises(GraphError, match="at least one batch"):
        quantize_graph(dispatch_graph(network()), [])
    with pytest.raises(GraphError, match="tensor 'x': batch of shape .* NaN"):
        quantize_graph(dispatch_graph(network()), [[numbers(1, 3, 8, 8) * torch.nan]])


def test_quantized_hooks_see_both_sides_and_delegates_replace():
    graph = quantized()
    executor, x = TorchExecutor(graph), numbers(2, 3, 8, 8, seed=22)
    kept = x.clone()
    seen = {}

    class Both(QuantOPRuntimeHook):
        def pre_forward_hook(self, inputs, quant_inputs, quant_configs):
            seen["in"] = inputs[0], quant_inputs[0], quant_configs[0]
            return quant_inputs

        def post_forward_hook(self, outputs, quant_outputs, quant_configs):
            seen["out"] = outputs[0], quant_outputs[0], quant_configs[0]
            return quant_outputs

    executor.forward(x, hooks={"conv": Both(graph.node("conv"))})
    assert torch.equal(x, kept)
    assert seen["in"][0] is x
    for raw, ready, config in seen.values():
        assert torch.equal(config.quantize(raw), ready)
        assert not torch.equal(raw, ready)
    with pytest.raises(TypeError, match="is not quantized"):
        Both(network().nodes[0])
    before = executor(x)[0]
    config = graph.node("conv").parameters.input_quantization_config[0]
    executor.register_quantize_delegate(config, lambda tensor, cfg: tensor * 0)
    assert not torch.equal(executor(x)[0], before)
    assert torch.equal(TorchExecutor(graph)(x)[0], before)
    executor.remove_quantize_delegate(config)
    assert torch.equal(executor(x)[0], before)


def test_quantization_states_of_a_fused_graph():
    graph = quantized()
    conv, relu, pool = (graph.node(name).parameters for name in ("conv", "relu", "pool"))
    states = [c.state for c in (*conv.input_quantization_config, *conv.output_quantization_config)]
    S = QuantizationStates
    assert states == [S.ACTIVATED, S.ACTIVATED, S.FP32, S.ACTIVATED]
    assert relu.input_quantization_config[0].state == S.OVERLAPPED
    assert pool.output_quantization_config[0].state == S.PASSIVE
    assert (
        pool.output_quantization_config[0].params.scale
        == graph.node("add").parameters.output_quantization_config[0].scale
    )
    assert all(is_quantable(node) for node in graph.nodes)


def test_contradictory_policies_are_refused():
    assert len(POLICIES) == 18
    for wrong in (P.LINEAR, P.PER_TENSOR | P.LINEAR, P.PER_TENSOR | P.PER_CHANNEL | P.LINEAR | P.SYMMETRICAL):
        with pytest.raises(ValueError, match="policy"):
            create_default_quant_config(policy=wrong)
    for named in ({"quant_max": 128}, {"quant_min": 5, "quant_max": 4}, {"channel_axis": 0}, {"num_of_bits": 33}):
        with pytest.raises(ValueError, match="codes|channel_axis"):
            create_default_quant_config(**named)
    floating = P.PER_TENSOR | P.FLOATING | P.SYMMETRICAL | P.POWER_OF_2
    with pytest.raises(ValueError, match="exponent_bits"):
        create_default_quant_config(policy=floating, exponent_bits=3)


def test_values_and_gradients_by_hand():
    config = create_default_quant_config(policy=P.PER_TENSOR | P.LINEAR | P.ASYMMETRICAL)
    config.calibrate(torch.tensor(0.5), torch.tensor(2.55))
    assert (config.scale.item(), config.offset.item()) == (pytest.approx(0.01), -128)
    x = torch.tensor([-1.0, 0.5, 1.234, 9.0], requires_grad=True)
    y = config.quantize(x)
    assert config.codes(x.detach()).tolist() == [-128, -78, -5, 127]
    y.sum().backward()
    assert x.grad.tolist() == [0, 1, 1, 0]
    power = create_default_quant_config(policy=P.PER_TENSOR | P.LINEAR | P.SYMMETRICAL | P.POWER_OF_2)
    power.calibrate(torch.tensor(-1.0), torch.tensor(3.0))
    assert power.scale.item() == 2.0**-5
    dynamic = create_default_quant_config(policy=P.PER_CHANNEL | P.LINEAR | P.SYMMETRICAL | P.DYNAMIC, channel_axis=0)
    assert dynamic.quantize(torch.tensor([[127.0, 0.4], [12.7, 0.04]])).tolist() == [[127, 0], [pytest.approx(12.7), 0]]
    eight = create_default_quant_config(
        policy=P.PER_TENSOR | P.FLOATING | P.SYMMETRICAL | P.POWER_OF_2, num_of_bits=8, exponent_bits=4
    )
    eight.calibrate(torch.tensor(-448.0), torch.tensor(448.0))
    assert eight.quantize(torch.tensor([0.3, 17.0, 1000.0])).tolist() == [0.3125, 16.0, 448.0]


@pytest.mark.parametrize("opset", [10, 12])
@pytest.mark.parametrize("bias", [False, True])
def test_one_scale_for_each_tensor_is_written_from_opset_10_on(tmp_path, opset, bias):
    weights = P.PER_TENSOR | P.LINEAR | P.SYMMETRICAL | P.POWER_OF_2
    graph = quantized(opset, setting=Setting(POWERS["activations"], weights, bias=bias))
    export_qdq(graph, tmp_path / "net.onnx")
    x = numbers(2, 3, 8, 8, seed=12)
    (wanted,) = TorchExecutor(graph).forward(x)
    (found,) = ort(tmp_path / "net.onnx", {"x": x.numpy()}, ["y#codes"], optimized=False)
    config = graph.node("fc").parameters.output_quantization_config[0]
    assert np.array_equal(found, config.codes(wanted).numpy())


@pytest.mark.parametrize(
    ("opset", "setting", "text"),
    [
        (12, Setting(), "'w': QDQ of scales per channel needs opset 13 or later, graph 'net' has 12"),
        (
            9,
            Setting(weights=P.PER_TENSOR | P.LINEAR | P.SYMMETRICAL),
            "'x': QDQ of 8 bits and one scale needs opset 10",
        ),
        (20, Setting(num_of_bits=16), "'x': QDQ of 16 bits needs opset 21 or later, graph 'net' has 20"),
    ],
)
def test_forms_missing_in_an_opset_are_refused(tmp_path, opset, setting, text):
    with pytest.raises(UnsupportedError, match=text):
        export_qdq(quantized(opset, setting=setting), tmp_path / "net.onnx")
    assert not (tmp_path / "net.onnx").exists()


def test_only_a_mask_of_infinities_stays_float(tmp_path):
    """Attention masks tokens with minus infinity; such a graph was refused as a whole."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["s"], name="scores"),
        helper.make_node("Add", ["s", "mask"], ["m"], name="add"),
        helper.make_node("Softmax", ["m"], ["p"], name="softmax", axis=-1),
        helper.make_node("MatMul", ["p", "w"], ["y"], name="read"),
    ]
    mask = np.triu(np.full((4, 4), -np.inf, np.float32), 1)
    masked = helper.make_graph(
        nodes,
        "masked",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 4])],
        [numpy_helper.from_array(numbers(4, 4, seed=3).numpy(), "w"), numpy_helper.from_array(mask, "mask")],
    )
    graph = from_model(helper.make_model(masked, opset_imports=[helper.make_opsetid("", 13)], ir_version=8))
    x = numbers(4, 4, seed=8)
    with pytest.warns(InfiniteTensorWarning, match="'mask', 'm' has infinities"):
        quantized = quantize_graph(dispatch_graph(graph), [x])
    made = {node.name: node.parameters.output_quantization_config[0].is_active for node in quantized.nodes}
    assert made == {"scores": True, "add": False, "softmax": True, "read": True}
    assert not any(config.is_active for config in quantized.node("softmax").parameters.input_quantization_config)
    path = tmp_path / "masked.onnx"
    export_qdq(quantized, path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x.numpy()})
    (found,) = TorchExecutor(quantized).forward(x)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)
