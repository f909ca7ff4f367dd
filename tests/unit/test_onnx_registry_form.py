"""ONNX graphs as graphs of the registry's operators: the same numbers, or one error that names what has no spec."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.runner import Runner
from onnx_graphs import Builder

from quantizer.core.errors import GraphError, QuantizerError, UnsupportedError
from quantizer.ir.formats.onnx import from_model
from quantizer.ir.formats.onnx_values import to_numpy, to_torch
from quantizer.runtime.executor import execute
from quantizer.runtime.onnx.kernels import specs
from quantizer.runtime.onnx.registry_form import registry_form
from quantizer.runtime.onnx_node_tests import node_tests
from quantizer.runtime.torch_executor import TorchExecutor

FORMS = {
    "Abs", "Add", "ArgMin", "AveragePool", "BatchNormalization", "Ceil", "Celu", "Clip", "Concat", "Conv",
    "ConvTranspose", "Cos", "CumSum", "DepthToSpace", "Div", "Elu", "Erf", "Exp", "Expand", "Flatten", "Floor", "GatherElements", "Gelu",
    "Gemm", "GlobalAveragePool", "GlobalMaxPool", "Greater", "GroupNormalization", "HardSigmoid", "HardSwish",
    "InstanceNormalization", "LayerNormalization", "LeakyRelu", "Less", "Log", "LogSoftmax", "MatMul", "Max", "MaxPool", "Min",
    "Mish", "Mul", "Neg", "PRelu", "Pad", "Pow", "RMSNormalization", "Reciprocal", "ReduceL2", "ReduceMax",
    "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "Relu", "Reshape", "Resize", "Round", "Selu", "Sigmoid", "Sign", "Sin",
    "Slice", "Softmax", "Softplus", "Softsign", "SpaceToDepth", "Split", "Sqrt", "Squeeze", "Sub", "Swish", "Tan",
    "Tanh", "ThresholdedRelu", "Tile", "Transpose", "Unsqueeze", "Where",
}  # fmt: skip
"""Operators of which at least one form is written with the registry's."""


def model_of(nodes, inputs, outputs, constants=(), opset=18):
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    values = [numpy_helper.from_array(np.asarray(v), name) for name, v in dict(constants).items()]
    graph = helper.make_graph(nodes, "g", given, made, values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def forms(test):
    """Yield the test's model with all inputs computed, and with all but the first as constants, with its data."""
    graph = from_model(test.model)
    for inputs, expected in test.data_sets:
        feeds = {n: to_torch(np.asarray(v), graph.tensor(n).dtype) for n, v in zip(graph.inputs, inputs, strict=True)}
        yield graph, feeds, expected
        if len(feeds) > 1:
            first = graph.inputs[0]
            rest = [replace(graph.tensor(n), data=v, shape=tuple(v.shape)) for n, v in feeds.items() if n != first]
            yield graph.with_tensors(*rest).with_(inputs=(first,)), {first: feeds[first]}, expected


@pytest.mark.parametrize("operator", sorted(FORMS))
def test_registry_form_passes_the_onnx_node_tests(operator):
    passed = 0
    for test in (test for test in node_tests() if test.operator == operator):
        try:
            found = list(forms(test))
        except QuantizerError:
            continue
        for graph, feeds, expected in found:
            try:
                made = registry_form(graph, feeds)
            except UnsupportedError:
                continue
            assert {node.op for node in made.nodes} <= specs().keys()
            values = execute(made, feeds, specs()).values
            outputs = [to_numpy(values[name], made.tensor(name).dtype) for name in made.outputs]
            Runner.assert_similar_outputs(expected, outputs, test.rtol, test.atol)
            passed += 1
    assert passed


def without_choices(seed):
    """Return a generated model without Where and its mask, which have no specs."""
    builder = Builder(seed, 13)
    while len(builder.nodes) < 12:
        before = len(builder.nodes), dict(builder.shapes)
        builder.step()
        ops = {node.op_type for node in builder.nodes[before[0] :]}
        if ops & {"Where", "Greater"}:
            del builder.nodes[before[0] :]
            builder.shapes = before[1]
    return builder, builder.model(12)


@pytest.mark.parametrize("seed", range(20))
def test_generated_graph_has_the_same_numbers_in_both_forms(seed):
    builder, model = without_choices(seed)
    graph = from_model(model)
    feeds = {"x": torch.from_numpy(builder.whole(*builder.shape))}
    made = registry_form(graph, feeds)
    values = execute(made, feeds, specs()).values
    for name, expected in zip(graph.outputs, TorchExecutor(graph, platform="fp32").forward(feeds), strict=True):
        assert torch.equal(values[name], expected)


@pytest.mark.parametrize(
    ("low", "high", "ops"),
    [
        (-2, 2, ["clip"]),
        (0.25, 2, ["maximum", "minimum"]),
        (-2, -0.25, ["maximum", "minimum"]),
        (2, -1, ["maximum", "minimum"]),
        (0, None, ["relu"]),
        (None, 1, ["minimum"]),
    ],
)
def test_clip_has_bounds_of_any_sign_and_order(low, high, ops):
    """The registry's clip lies around 0, ONNX's need not; with low above high everything is high."""
    bounds = {name: np.float32(v) for name, v in (("low", low), ("high", high)) if v is not None}
    node = helper.make_node("Clip", ["x", *(name if name in bounds else "" for name in ("low", "high"))], ["y"])
    graph = from_model(model_of([node], {"x": [5]}, ["y"], bounds))
    x = torch.tensor([-3, -0.5, 0, 0.5, 3])
    expected = x.clamp(min=-9 if low is None else low).clamp(max=9 if high is None else high)
    made = registry_form(graph)
    assert [node.op for node in made.nodes] == ops
    assert torch.equal(execute(made, {"x": x}, specs()).values["y"], expected)
    assert torch.equal(TorchExecutor(graph, platform="fp32").forward(x)[0], expected)


@pytest.mark.parametrize("shape", [[], [1], [2, 3]])
def test_a_constant_of_a_composed_node_keeps_the_shape(shape):
    nodes = [helper.make_node("Clip", ["x", "low"], ["c"]), helper.make_node("Mean", ["c", "x"], ["y"])]
    graph = from_model(model_of(nodes, {"x": shape}, ["y"], {"low": np.float32(3)}))
    made = registry_form(graph)
    assert torch.equal(execute(made, {"x": torch.ones(shape)}, specs()).values["y"], torch.full(shape, 2.0))
    assert made.tensor("y").shape == tuple(shape)


def test_an_operand_passed_through_is_the_same_tensor():
    """A slice that takes all is its operand: a product of both reads one tensor twice."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Slice", ["r", "first", "last"], ["s"]),
        helper.make_node("Mul", ["r", "s"], ["y"]),
    ]
    constants = {"first": np.array([0], np.int64), "last": np.array([9], np.int64)}
    made = registry_form(from_model(model_of(nodes, {"x": [2, 3]}, ["y"], constants)))
    assert [(node.op, node.inputs) for node in made.nodes] == [("relu", ("x",)), ("mul", ("r", "r"))]


def test_every_node_without_a_spec_is_named_in_one_error():
    nodes = [
        helper.make_node("Acos", ["x"], ["s"], name="first"),
        helper.make_node("Relu", ["s"], ["r"], name="fine"),
        helper.make_node("Hardmax", ["r"], ["y"], name="second"),
    ]
    graph = from_model(model_of(nodes, {"x": [2, 3]}, ["y"]))
    with pytest.raises(UnsupportedError) as err:
        registry_form(graph)
    assert "'first' (Acos)" in str(err.value)
    assert "'second' (Hardmax)" in str(err.value)
    assert "fine" not in str(err.value)


def test_a_number_that_is_computed_does_not_become_an_attribute():
    """Missing inputs are fed zeros: a bound read from them would be wrong for other inputs."""
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
        helper.make_node("Clip", ["x", "", "m"], ["y"], name="cut"),
    ]
    with pytest.raises(UnsupportedError, match=r"'cut' \(Clip\): 'm' is computed, must be a constant"):
        registry_form(from_model(model_of(nodes, {"x": [2, 3]}, ["y"])))


def test_free_sizes_need_inputs_and_are_then_fixed():
    graph = from_model(model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": ["n", 3]}, ["y"]))
    with pytest.raises(GraphError, match="give inputs"):
        registry_form(graph)
    with pytest.raises(GraphError, match="fed shape"):
        registry_form(graph, {"x": torch.zeros(2, 4)})
    made = registry_form(graph, {"x": torch.zeros(2, 3)})
    assert made.tensor("y").shape == (2, 3)
    assert not made.dynamic


def test_shapes_are_folded_and_outputs_keep_their_names():
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "zero"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["x", "wanted"], ["flat"]),
        helper.make_node("Identity", ["flat"], ["y"]),
        helper.make_node("Identity", ["x"], ["same"]),
    ]
    constants = {"zero": np.array([0], np.int64), "rest": np.array([-1], np.int64)}
    made = registry_form(from_model(model_of(nodes, {"x": [2, 3, 4]}, ["y", "same"], constants)))
    assert made.outputs == ("y", "same")
    assert [node.op for node in made.nodes] == ["reshape"] * 3
    x = torch.arange(24.0).reshape(2, 3, 4)
    values = execute(made, {"x": x}, specs()).values
    assert torch.equal(values["y"], x.reshape(2, 12))
    assert torch.equal(values["same"], x)


def test_a_shared_constant_stays_one_tensor():
    nodes = [helper.make_node("Add", ["x", "c"], ["a"]), helper.make_node("Mul", ["a", "c"], ["y"])]
    made = registry_form(from_model(model_of(nodes, {"x": [2, 3]}, ["y"], {"c": np.ones(3, np.float32)})))
    assert [name for name, tensor in made.tensors.items() if tensor.is_constant] == ["c"]


def test_control_flow_is_refused_with_the_node():
    inner = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["r"])],
        "body",
        [],
        [helper.make_tensor_value_info("r", TensorProto.FLOAT, [2])],
    )
    node = helper.make_node("If", ["c"], ["y"], name="choice", then_branch=inner, else_branch=inner)
    graph = from_model(model_of([node], {"x": [2]}, ["y"], {"c": np.array(True)}))
    with pytest.raises(UnsupportedError, match=r"'choice' \(If\): control flow"):
        registry_form(graph)


@pytest.mark.parametrize("fed", [True, False], ids=["computed", "constant"])
@pytest.mark.parametrize("slope", [-0.5, 0.25])
def test_one_slope_of_prelu_may_be_negative_or_computed(fed, slope):
    x, one = torch.linspace(-2, 2, 12).reshape(1, 3, 4), np.array([slope], np.float32)
    node = helper.make_node("PRelu", ["x", "slope"], ["y"])
    model = model_of([node], {"x": [1, 3, 4]} | ({"slope": [1]} if fed else {}), ["y"], {} if fed else {"slope": one})
    feeds = {"x": x} | ({"slope": torch.from_numpy(one)} if fed else {})
    made = registry_form(from_model(model), feeds)
    others = feeds | ({"slope": torch.tensor([-3.0])} if fed else {})  # a number of the sample must not be kept
    for values in (feeds, others):
        found = execute(made, values, specs()).values["y"]
        assert torch.allclose(found, torch.where(x < 0, x * float(values.get("slope", slope)), x))
