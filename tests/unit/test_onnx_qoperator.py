"""Models of ONNX Runtime's own operators on codes: read as quantizations around float operators, run to its codes."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from test_onnx_integer import Chain, runtime

from quantizer.core.errors import QuantizerError, UnsupportedError
from quantizer.ir.formats.onnx import from_bytes, from_model
from quantizer.runtime.integer import integer_graph
from quantizer.runtime.integer_executor import IntegerExecutor
from quantizer.runtime.onnx.registry_form import registry_form
from quantizer.runtime.torch_executor import OperationError, TorchExecutor

DOMAIN = "com.microsoft"
IMPORTS = [helper.make_opsetid("", 13), helper.make_opsetid(DOMAIN, 1)]
PROBABILITIES = 0.00390625


class Graph(Chain):
    """A chain that also adds, multiplies, pools, joins and bends."""

    def __init__(self, seed, size):
        super().__init__(seed, 0)
        for i in range(size):
            steps = ["sum", "product", "curve", "join", "convolution"] + (["pool"] if len(self.shape) == 4 else [])
            kind = steps[self.draw(0, len(steps))]
            if kind == "convolution" and len(self.shape) == 4:
                self.convolution(i)
            elif kind != "convolution":
                getattr(self, f"_{kind}")(i)

    def node(self, op, inputs, i, shape, params, **attrs):
        self.nodes.append(helper.make_node(op, inputs, [f"t{i}"], domain=DOMAIN, **attrs))
        self.name, self.params, self.shape = f"t{i}", params, shape

    def _sum(self, i):
        other, made = self.constant(self.codes(0, 256, self.shape, np.uint8)), self.scales()
        self.node("QLinearAdd", [self.name, *self.params, other, *self.scales(), *made], i, self.shape, made)

    def _product(self, i):
        other, made = self.constant(self.codes(0, 256, self.shape[-1:], np.uint8)), self.scales()
        self.node("QLinearMul", [self.name, *self.params, other, *self.scales(), *made], i, self.shape, made)

    def _curve(self, i):
        made = self.scales()
        op, attrs = [("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": 0.25})][self.draw(0, 2)]
        self.node(op, [self.name, *self.params, *made], i, self.shape, made, **attrs)

    def _join(self, i):
        made = self.scales()
        shape = (*self.shape[:1], 2 * self.shape[1], *self.shape[2:])
        one = [self.name, *self.params]
        self.node("QLinearConcat", [*made, *one, *one], i, shape, made, axis=1)

    def _pool(self, i):
        made = self.scales()
        k = [min(2, size) for size in self.shape[2:]]
        shape = (*self.shape[:2], *(size - a + 1 for size, a in zip(self.shape[2:], k, strict=True)))
        if shape[2:] == (1, 1):
            return
        self.node("QLinearAveragePool", [self.name, *self.params, *made], i, shape, made, kernel_shape=k)

    def model(self):
        made = super().model()
        made.opset_import.append(IMPORTS[1])
        return made


@settings(max_examples=25, deadline=None, database=None, derandomize=True)
@given(seed=st.integers(0, 10**6), size=st.integers(5, 12))
def test_a_qoperator_model_equals_the_runtime(seed, size):
    graph = Graph(seed, size)
    if not graph.nodes:
        return
    x = graph.codes(0, 256, graph.first, np.uint8)
    model = graph.model()
    executor = IntegerExecutor(integer_graph(from_model(model)))
    (expected,) = runtime(model, {"x": x})
    (found,) = executor.forward({"x": torch.from_numpy(x)}, [graph.name])
    assert executor.floats == []
    np.testing.assert_array_equal(found.numpy(), expected)


def one(op, inputs, constants, shape, attrs, out=None):
    node = helper.make_node(op, inputs, ["y"], domain=DOMAIN, **attrs)
    values = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, shape)],
        [helper.make_tensor_value_info("y", out or TensorProto.UINT8, None)],
        values,
    )
    return helper.make_model(graph, opset_imports=IMPORTS, ir_version=8)


S, Z = np.float32(0.05), np.uint8(100)
TO = {"s": S, "z": Z, "t": np.float32(0.04), "u": np.uint8(7)}
GEMM = {
    "w": np.arange(-6, 6, dtype=np.int8).reshape(4, 3),
    "ws": np.float32([0.1, 0.2, 0.3]),
    "wz": np.zeros(3, np.int8),
    "b": np.array([10, -20, 30], np.int32),
}
CASES = {
    "softmax": (
        "QLinearSoftmax",
        ["x", "s", "z", "p", "q"],
        {**TO, "p": np.float32(PROBABILITIES), "q": np.uint8(0)},
        [2, 4],
        {"axis": -1, "opset": 13},
        None,
    ),
    "global": ("QLinearGlobalAveragePool", ["x", "s", "z", "t", "u"], TO, [2, 3, 4, 5], {}, None),
    "gemm": ("QGemm", ["x", "s", "z", "w", "ws", "wz", "b", "t", "u"], {**TO, **GEMM}, [2, 4], {}, None),
    "gemm without bias": ("QGemm", ["x", "s", "z", "w", "ws", "wz", "", "t", "u"], {**TO, **GEMM}, [2, 4], {}, None),
    "dequantize": ("DequantizeLinear", ["x", "s", "z"], TO, [2, 4], {}, TensorProto.FLOAT),
}


@pytest.mark.parametrize("name", CASES)
def test_an_operator_equals_the_runtime(name):
    op, inputs, constants, shape, attrs, out = CASES[name]
    model = one(op, inputs, constants, shape, attrs, out)
    x = torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(1)).to(torch.uint8)
    graph = from_model(model)
    (expected,) = runtime(model, {"x": x.numpy()})
    if out is None:
        executor = IntegerExecutor(integer_graph(graph))
        assert executor.floats == []
        np.testing.assert_array_equal(executor.forward({"x": x}, ["y"])[0].numpy(), expected)
    else:
        np.testing.assert_array_equal(TorchExecutor(graph, platform="fp32").forward(x)[0].numpy(), expected)


def test_parameters_of_every_operand_are_on_its_tensor():
    graph = from_model(one(*CASES["gemm"]))
    assert {name: t.qparams.axis for name, t in graph.tensors.items() if t.qparams is not None} == {
        "x": None,
        "w": 1,
        "b": 0,
        "y": None,
    }
    assert graph.tensor("b").qparams.scale.tolist() == pytest.approx([0.005, 0.01, 0.015])


def test_forms_outside_the_standard_are_refused():
    pool = one("QLinearGlobalAveragePool", ["x", "s", "z", "t", "u"], TO, [2, 4, 5, 3], {"channels_last": 1})
    with pytest.raises(UnsupportedError, match=r"\(QLinearGlobalAveragePool\): channels_last=1"):
        from_model(pool)
    rows = one("QLinearSoftmax", ["x", "s", "z", "t", "u"], TO, [2, 4], {"opset": 11})
    with pytest.raises(UnsupportedError, match="before 13"):
        from_model(rows)
    old = one(*CASES["global"])
    old.opset_import[0].version = 12
    with pytest.raises(UnsupportedError, match="must be 13 or later"):
        from_model(old)


@pytest.mark.parametrize("seed", range(40))
def test_damaged_bytes_are_named_errors_through_the_integer_graph(seed):
    source = random.Random(seed)
    data = bytearray(Graph(seed % 4, 7).model().SerializeToString())
    for _ in range(source.randint(1, 3)):
        place = source.randrange(len(data))
        if source.random() < 0.7:
            data[place] = source.randrange(256)
        else:
            del data[place : place + source.randint(1, 4)]
    try:
        integer_graph(from_bytes(bytes(data)))
    except QuantizerError as err:
        assert str(err)


def test_a_giant_tensor_is_refused_before_allocation():
    sizes = numpy_helper.from_array(np.array([0, 0, 0, 1 << 50], np.int64), "p")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, None]) for name in "xy"]
    node = helper.make_node("Pad", ["x", "p"], ["y"], name="far")
    proto = helper.make_graph([node], "g", values[:1], values[1:], [sizes])
    graph = from_model(helper.make_model(proto, opset_imports=IMPORTS, ir_version=8))
    with pytest.raises(UnsupportedError, match=r"'far' \(Pad\): pad: makes shape .*more than 2147483648 bytes"):
        registry_form(graph, {"x": torch.zeros(1, 4)})
    with pytest.raises(OperationError, match="more than 2147483648 bytes"):
        TorchExecutor(graph, platform="fp32").forward(torch.zeros(1, 4))


def test_a_convolution_with_a_computed_bias_keeps_its_integers():
    """The bias became float64 for a convolution of float32, which was refused."""
    x, bias = np.arange(-16, 16, dtype=np.int8).reshape(1, 2, 4, 4), np.array([2**24 + 1, -(2**25) - 3, 7], np.int32)
    held = {
        "xs": np.float32(0.5), "xz": np.int8(3), "w": np.arange(-3, 3, dtype=np.int8).reshape(3, 2, 1, 1),
        "ws": np.float32(0.25), "wz": np.int8(0), "ys": np.float32(2.0**17), "yz": np.int8(-5),
    }  # fmt: skip
    operands = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.INT8, x.shape),
        helper.make_tensor_value_info("b", TensorProto.INT32, bias.shape),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.INT8, [1, 3, 4, 4])]
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in held.items()]
    graph = helper.make_graph([helper.make_node("QLinearConv", operands, ["y"])], "g", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=IMPORTS[:1], ir_version=8)
    executor = IntegerExecutor(integer_graph(from_model(model)))
    (made,) = executor.forward({"x": torch.from_numpy(x), "b": torch.from_numpy(bias)}, ["y"])
    np.testing.assert_array_equal(made.numpy(), runtime(model, {"x": x, "b": bias}, ["y"])[0])
