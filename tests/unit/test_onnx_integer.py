"""ONNX graphs on integers against ONNX Runtime: QLinear and QDQ models give its codes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx_graphs import Builder
from test_onnx_compass import network, whole
from test_onnx_registry_form import model_of

from quantizer.conformance.models.graph_nodes import enclosure_ratios
from quantizer.core.errors import GraphError
from quantizer.ir.formats.onnx import from_model, load
from quantizer.runtime.integer import integer_graph
from quantizer.runtime.integer_executor import IntegerExecutor
from quantizer.runtime.onnx.unfolded import unfolded
from quantizer.runtime.qdq import export_qdq
from quantizer.runtime.quantization import dispatch_graph, quantize_graph
from quantizer.runtime.setting import Setting
from quantizer.runtime.tensor_config import QuantizationProperty as P

onnxruntime = pytest.importorskip("onnxruntime")
EXACT = P.PER_TENSOR | P.LINEAR | P.SYMMETRICAL | P.POWER_OF_2
"""Scales under which whole numbers stay exact in float32 and in integers."""
SEVEN_BITS = 64
"""Weights up to which the runtime's kernels for processors without VNNI do not saturate sums of two products in int16."""
WITHOUT_SPEC = {"Where", "Greater"}


def runtime(model, feeds, names=None):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    data = model if isinstance(model, str) else model.SerializeToString()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return session.run(names, feeds)


class Chain:
    """A chain of QLinearConv and QLinearMatMul on codes, with parameters drawn from a seed."""

    def __init__(self, seed, size):
        self.source = torch.Generator().manual_seed(seed)
        self.nodes, self.constants = [], {}
        self.shape = (1, self.draw(1, 5), self.draw(3, 9), self.draw(3, 9))
        self.first = self.shape
        self.name, self.params = "x", self.scales()
        for i in range(size):
            self.convolution(i) if self.draw(0, 3) else self.product(i)

    def draw(self, low, high):
        return int(torch.randint(low, high, (), generator=self.source))

    def codes(self, low, high, shape, dtype):
        return torch.randint(low, high, shape, generator=self.source).numpy().astype(dtype)

    def constant(self, value):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def scale(self, count=()):
        return (0.003 + 0.05 * torch.rand(count, generator=self.source)).numpy().astype(np.float32)

    def scales(self):
        return self.constant(self.scale()), self.constant(np.uint8(self.draw(0, 256)))

    def convolution(self, i):
        n, c, h, w = self.shape
        k, filters = (self.draw(1, min(4, h + 1)), self.draw(1, min(4, w + 1))), self.draw(1, 6)
        per_channel = bool(self.draw(0, 2))
        weight = self.constant(self.codes(-SEVEN_BITS, SEVEN_BITS + 1, (filters, c, *k), np.int8))
        own = self.constant(self.scale(filters if per_channel else ()))
        zero = self.constant(np.zeros(filters if per_channel else (), np.int8))
        bias = self.constant(self.codes(-(2**12), 2**12, (filters,), np.int32))
        made = self.scales()
        self.nodes.append(
            helper.make_node(
                "QLinearConv", [self.name, *self.params, weight, own, zero, *made, bias], [f"t{i}"], kernel_shape=k
            )
        )
        self.name, self.params, self.shape = f"t{i}", made, (n, filters, h - k[0] + 1, w - k[1] + 1)

    def product(self, i):
        *front, inner = self.shape
        columns, made = self.draw(1, 6), self.scales()
        weight = self.constant(self.codes(-SEVEN_BITS, SEVEN_BITS + 1, (inner, columns), np.int8))
        own = (self.constant(self.scale()), self.constant(np.int8(0)))
        self.nodes.append(helper.make_node("QLinearMatMul", [self.name, *self.params, weight, *own, *made], [f"t{i}"]))
        self.name, self.params, self.shape = f"t{i}", made, (*front, columns)

    def model(self):
        values = [numpy_helper.from_array(v, name) for name, v in self.constants.items()]
        graph = helper.make_graph(
            self.nodes,
            "chain",
            [helper.make_tensor_value_info("x", TensorProto.UINT8, self.first)],
            [helper.make_tensor_value_info(self.name, TensorProto.UINT8, None)],
            values,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@settings(max_examples=25, deadline=None, database=None, derandomize=True)
@given(seed=st.integers(0, 10**6), size=st.integers(5, 12))
def test_a_qlinear_model_equals_the_runtime_integer_kernels(seed, size):
    chain = Chain(seed, size)
    model = chain.model()
    x = chain.codes(0, 256, chain.first, np.uint8)
    executor = IntegerExecutor(integer_graph(from_model(model)))
    (expected,) = runtime(model, {"x": x})
    (found,) = executor.forward({"x": torch.from_numpy(x)}, [chain.name])
    np.testing.assert_array_equal(found.numpy(), expected)
    assert executor.floats == []


def drawn_model(seed, nodes):
    """Return a generated model of operators that have specs."""
    builder = Builder(seed, 13)
    while len(builder.nodes) < nodes:
        before = len(builder.nodes), dict(builder.shapes)
        builder.step()
        if {node.op_type for node in builder.nodes[before[0] :]} & WITHOUT_SPEC:
            del builder.nodes[before[0] :]
            builder.shapes = before[1]
    return builder, builder.model(nodes)


@settings(max_examples=20, deadline=None, database=None, derandomize=True)
@given(seed=st.integers(0, 10**6), nodes=st.integers(5, 30))
def test_a_qdq_model_equals_the_runtime(tmp_path_factory, seed, nodes):
    builder, model = drawn_model(seed, nodes)
    x = torch.from_numpy(builder.whole(*builder.shape))
    graph = from_model(model)
    quantized = quantize_graph(dispatch_graph(graph), [x], activations=EXACT, weights=EXACT)
    path = tmp_path_factory.mktemp("qdq") / "model.onnx"
    export_qdq(quantized, path)
    executors = [IntegerExecutor(integer_graph(g, inputs={"x": x})) for g in (quantized, load(path))]
    expected = runtime(str(path), {"x": x.numpy()})
    for executor in executors:
        for want, name, got in zip(expected, graph.outputs, executor.forward(x, list(graph.outputs)), strict=True):
            assert torch.equal(got, torch.from_numpy(want)), name


def test_nodes_with_an_integer_function_run_on_integers():
    quantized = quantize_graph(dispatch_graph(from_model(network())), [torch.from_numpy(whole((2, 3, 8, 8), 5))])
    made = integer_graph(quantized)
    executor = IntegerExecutor(made)
    assert executor.floats == ["Relu_0"]
    assert {t.dtype.name for t in made.tensors.values()} == {"int8", "int32"}


def test_transposed_weights_keep_the_codes_of_the_file():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Gemm", ["m", "v", "b"], ["y"])]
    normal = (
        torch.randn(4, 5, generator=torch.Generator().manual_seed(1)),
        torch.randn(5, 3, generator=torch.Generator()),
    )
    constants = {"w": normal[0].numpy(), "v": normal[1].numpy(), "b": np.ones(3, np.float32)}
    graph = from_model(model_of(nodes, {"x": [2, 4]}, ["y"], constants))
    quantized = quantize_graph(dispatch_graph(graph), [torch.randn(2, 4, generator=torch.Generator())])
    made = integer_graph(quantized)
    assert IntegerExecutor(made).floats == []
    for name, data in zip(("m#float", "y#float"), normal, strict=True):
        node = made.producers[name]
        config = quantized.node(node.name).parameters.input_quantization_config[1]
        assert torch.equal(node.parameters.constants["weight"].codes, config.codes(data).mT)


@pytest.mark.parametrize("platform", ["ort", "compass", "xnnpack", "tpulang"])
def test_every_integer_node_of_generated_graphs_stays_inside_its_enclosure(platform):
    for seed in range(4):
        builder, model = drawn_model(7 * seed + 1, 8 + 4 * seed)
        x = torch.randn(builder.shape, generator=torch.Generator().manual_seed(seed))
        quantized = quantize_graph(dispatch_graph(from_model(model)), [x], Setting(bias=bool(seed % 2)))
        rows = enclosure_ratios(integer_graph(quantized, platform, {"x": x}), [{"x": x}])
        assert rows
        assert [row for row in rows if row.status != "pass"] == []


def test_a_relu_implied_by_unsigned_codes_is_removed():
    """Unsigned codes with zero point 0 hold nothing below zero: the convolution saturates there."""
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "zero"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "s"], ["b"]),
        helper.make_node("Conv", ["a", "b"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "s", "zero"], ["y"]),
    ]
    constants = {"s": np.float32(0.25), "zero": np.uint8(0), "w": np.array([[[[3]]], [[[-3]]]], np.int8)}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 1, 2, 2])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    made = integer_graph(from_model(model))
    assert [node.op for node in made.nodes] == ["conv2d"]
    x = np.arange(4, dtype=np.uint8).reshape(1, 1, 2, 2)
    (expected,) = runtime(model, {"x": x})
    np.testing.assert_array_equal(IntegerExecutor(made).forward([torch.from_numpy(x)], ["y"])[0].numpy(), expected)


def test_parameters_of_qlinear_operators_are_on_the_tensors():
    chain = Chain(3, 5)
    graph = from_model(chain.model())
    for node in chain.nodes:
        params = graph.tensor(node.output[0]).qparams
        assert params is not None
        assert float(params.scale) == float(chain.constants[node.input[6]])
        assert graph.tensor(node.input[3]).qparams is not None
    found = unfolded(graph)
    assert {node.op for node in found.graph.nodes} <= {"Conv", "MatMul"}
    node = chain.nodes[0]
    made = found.params[found.codes[node.output[0]]]
    assert float(made.scale) == float(chain.constants[node.input[6]])
    assert int(made.zero_point) == int(chain.constants[node.input[7]])


def test_a_tensor_also_read_unquantized_keeps_both_forms():
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "s"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s"], ["d"]),
        helper.make_node("Sub", ["r", "d"], ["y"]),
    ]
    made = unfolded(from_model(model_of(nodes, {"x": [3]}, ["y"], {"s": np.float32(1)})))
    assert list(made.params) == ["q#values"]
    assert [node.op for node in made.graph.nodes] == ["Relu", "Reshape", "Sub"]


def test_a_graph_that_would_stay_float_is_refused():
    graph = from_model(network())
    with pytest.raises(GraphError, match="no tensor is quantized"):
        integer_graph(graph)
    with pytest.raises(ValueError, match="no such platform"):
        integer_graph(graph, "orth")


def test_computed_scales_run_in_float():
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s"], ["y"]),
    ]
    model = model_of(nodes, {"x": [3], "s": []}, ["y"])
    feeds = {"x": np.array([0.1, 0.26, -0.3], np.float32), "s": np.array(0.1, np.float32)}
    given = {name: torch.from_numpy(value) for name, value in feeds.items()}
    executor = IntegerExecutor(integer_graph(from_model(model), inputs=given))
    (expected,) = runtime(model, feeds)
    np.testing.assert_array_equal(executor.forward(given, ["y"])[0].numpy(), expected)
    assert list(executor.reasons) == [node.name for node in executor.graph.order]


def test_names_and_shapes_of_feeds_are_checked():
    x = torch.from_numpy(whole((2, 3, 8, 8), 5))
    executor = IntegerExecutor(integer_graph(quantize_graph(dispatch_graph(from_model(network())), [x])))
    with pytest.raises(GraphError, match="no tensor 'z'"):
        executor.forward(x, ["z"])
    with pytest.raises(GraphError, match="was fed shape"):
        executor.forward(x[:1])
    with pytest.raises(GraphError, match="its inputs are x"):
        executor.forward({"y": x})


@pytest.mark.parametrize("live", [True, False])
def test_a_gather_picks_codes_by_constant_and_by_fed_indices(live):
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Gather", ["d", "i"], ["g"], axis=1),
        helper.make_node("QuantizeLinear", ["g", "s", "z"], ["qy"]),
        helper.make_node("DequantizeLinear", ["qy", "s", "z"], ["y"]),
    ]
    indices = np.array([[3, -1], [0, 0]], np.int64)
    values = {"s": np.float32(0.037), "z": np.uint8(113)} | ({} if live else {"i": indices})
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 5, 2])]
    inputs += [helper.make_tensor_value_info("i", TensorProto.INT64, [2, 2])] if live else []
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    kept = [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()]
    graph = helper.make_graph(nodes, "picks", inputs, outputs, kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    x = torch.randn(3, 5, 2, generator=torch.Generator().manual_seed(3)) * 2
    feeds = {"x": x} | ({"i": torch.from_numpy(indices)} if live else {})
    executor = IntegerExecutor(integer_graph(from_model(model), inputs=feeds))
    assert executor.floats == []
    (expected,) = runtime(model, {name: value.numpy() for name, value in feeds.items()})
    assert torch.equal(executor.forward(feeds, ["y"])[0], torch.from_numpy(expected))


def tied(op, kind, operands, **attrs):
    """Return a model of one operator between quantizations whose exact results are often ties, at an odd zero point."""
    constants = {"s": np.float32(0.25), "z": kind(3), "t": np.float32(0.5), "o": kind(67)}
    nodes = [helper.make_node("DequantizeLinear", [n, "s", "z"], [f"{n}_d"]) for n in operands]
    nodes.append(helper.make_node(op, [f"{n}_d" for n in operands], ["f"], **attrs))
    nodes.append(helper.make_node("QuantizeLinear", ["f", "t", "o"], ["y"]))
    number = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    graph = helper.make_graph(
        nodes,
        "ties",
        [helper.make_tensor_value_info(n, number, [1, 2, 4, 6]) for n in operands],
        [helper.make_tensor_value_info("y", number, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize(
    ("op", "operands", "attrs"),
    [
        ("Add", "ab", {}),
        ("Mul", "ab", {}),
        ("Concat", "ab", {"axis": 1}),
        ("AveragePool", "a", {"kernel_shape": [1, 2]}),
        ("AveragePool", "a", {"kernel_shape": [4, 6]}),
        ("GlobalAveragePool", "a", {}),
    ],
)
def test_ties_are_rounded_before_the_zero_point_is_added(op, operands, attrs, kind):
    """A fused kernel rounds after it: half of a sum's codes were one off, in graphs that the runtime does not fuse."""
    made = tied(op, kind, operands, **attrs)
    codes = (np.arange(96).reshape(2, 1, 2, 4, 6) * 29 % 41).astype(kind)
    feeds = dict(zip(operands, codes, strict=False))
    executor = IntegerExecutor(integer_graph(from_model(made)))
    assert executor.floats == []
    (found,) = executor.forward({name: torch.from_numpy(value) for name, value in feeds.items()}, ["y"])
    np.testing.assert_array_equal(found.numpy(), runtime(made, feeds)[0])
