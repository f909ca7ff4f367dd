"""What a platform does not declare stays float with a reason: smallest cases, against ONNX Runtime."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from test_onnx_integer import runtime

from quantizer.core.dtypes import DTYPES
from quantizer.core.errors import UnsupportedError
from quantizer.core.library import load_library
from quantizer.ir.formats.onnx import from_model
from quantizer.numerics.qparams import Parameters
from quantizer.runtime.integer import check_declared, integer_graph
from quantizer.runtime.integer_executor import IntegerExecutor
from quantizer.runtime.torch_executor import TorchExecutor

FORMATS = {
    "uint4": TensorProto.UINT4,
    "uint8": TensorProto.UINT8,
    "int8": TensorProto.INT8,
    "int16": TensorProto.INT16,
    "uint16": TensorProto.UINT16,
    "int32": TensorProto.INT32,
}


def numbers(name, scale, zero=0, dtype="uint8"):
    """Return scale and zero point as initializers `<name>_s` and `<name>_z`."""
    many = np.size(scale) > 1
    shape, zeros = ([np.size(scale)], [zero] * np.size(scale)) if many else ([], [zero])
    held = np.asarray(scale, np.float32)
    return [numpy_helper.from_array(held, f"{name}_s"), helper.make_tensor(f"{name}_z", FORMATS[dtype], shape, zeros)]


def coded(name, codes, dtype):
    """Return codes as the initializer `<name>_c`."""
    return helper.make_tensor(f"{name}_c", FORMATS[dtype], np.shape(codes), np.ravel(codes).tolist())


def quantized(name, source, target):
    return [
        helper.make_node("QuantizeLinear", [source, f"{name}_s", f"{name}_z"], [f"{name}_q"]),
        helper.make_node("DequantizeLinear", [f"{name}_q", f"{name}_s", f"{name}_z"], [target]),
    ]


def read(name, target, **attrs):
    return helper.make_node("DequantizeLinear", [f"{name}_c", f"{name}_s", f"{name}_z"], [target], **attrs)


def model(nodes, constants, shape):
    """Return a model with the input x of *shape* and the output y."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def with_weight(op, weight, x, w, y, extra=(), **attrs):
    """Return a model of one operator on the quantized x and a constant: (scale, zero, format) of x, w and y."""
    nodes = [
        *quantized("x", "x", "d"),
        read("w", "v"),
        helper.make_node(op, ["d", "v"], ["f"], **attrs),
        *quantized("y", "f", "y"),
    ]
    constants = [*numbers("x", *x), *numbers("w", *w), *numbers("y", *y), coded("w", weight, w[2]), *extra]
    return nodes, constants


WIDE_PRODUCT = (
    with_weight("MatMul", [[30000]] * 3, (1.0, 0, "int16"), (1.0, 0, "int16"), (3.75, 0, "int16")),
    np.ones((1, 3), np.float32),
    24000,
)
WIDE_FACTORS = (
    with_weight("Mul", [65535], (1.0, 0, "uint16"), (1.0, 0, "uint16"), (112500.0, 0, "uint16")),
    np.full((1,), 60000, np.float32),
    34952,
)


@pytest.mark.parametrize(
    ("parts", "x", "code", "text"),
    [
        (*WIDE_PRODUCT, "'x' has codes of int16: platform 'ort' declares w8a8, w8pta8, w8asyma8 for fully_connected"),
        (*WIDE_FACTORS, "'x' has codes of uint16: platform 'ort' declares a8 for mul"),
    ],
    ids=["matmul", "mul"],
)
def test_sixteen_bit_nodes_stay_float_on_8_bit_platforms(parts, x, code, text):
    """Their sums wrapped in 32 bits (-14177 and 0); in float they equal ONNX Runtime."""
    made = model(*parts, x.shape)
    (why,) = agrees(made, x, ["fully_connected" if "MatMul" in str(made) else "mul"]).reasons.values()
    assert text in why
    (found,) = TorchExecutor(from_model(made), platform="fp32").forward(torch.from_numpy(x))
    scale = numpy_helper.to_array(next(t for t in made.graph.initializer if t.name == "y_s"))
    assert round(float(found.reshape(-1)[0]) / float(scale)) == code


def test_a_reason_names_the_platforms_that_declare_it():
    graph = from_model(
        model(*with_weight("MatMul", [[3]], (1.0, 0, "int16"), (1.0, 0, "int16"), (2.0, 0, "int16")), [1, 1])
    )
    (why,) = IntegerExecutor(integer_graph(graph)).reasons.values()
    assert re.search(r"name a platform that has it \(.*ideal.*\)", why)
    assert IntegerExecutor(integer_graph(graph, "ideal")).floats == []


def agrees(made, x, floats, platform="ort"):
    """Assert that the integer graph gives ONNX Runtime's values, and that *floats* alone compute in float; return the executor."""
    executor = IntegerExecutor(integer_graph(from_model(made), platform))
    (expected,) = runtime(made, {"x": x})
    np.testing.assert_array_equal(executor.forward(torch.from_numpy(x), ["y"])[0].numpy(), expected)
    assert [executor.graph.node(name).op for name in executor.floats] == floats
    assert set(executor.reasons) == set(executor.floats)
    return executor


def test_a_weight_that_is_transposed_keeps_its_own_scale_beside_a_bias():
    """It had the bias's, whose steps every value of the weight is a whole number of: [-5, -5, -5, -6] for [59, 59, 59, 58]."""
    nodes, constants = with_weight(
        "Gemm", [[7, 5], [-3, 2], [1, 9]], (0.25, 10, "uint8"), (0.125, 0, "int8"), (0.5, 7, "uint8")
    )
    bias = [*numbers("b", 2.0**-5, 0, "int32"), coded("b", [33, -80], "int32")]
    nodes = [*nodes[:3], read("b", "c"), helper.make_node("Gemm", ["d", "v", "c"], ["f"]), *nodes[4:]]
    x = np.array([[1.0, -2.0, 3.5], [0.25, 4.0, -1.0]], np.float32)
    executor = agrees(model(nodes, [*constants, *bias], [2, 3]), x, [])
    (node,) = executor.graph.nodes
    assert isinstance(node.parameters, Parameters)
    assert float(node.parameters.constants["weight"].params.scale) == 0.125


def test_codes_of_a_transposed_weight_are_not_shown():
    """Their name led to a constant that is gone: a KeyError."""
    nodes = [
        *quantized("x", "x", "d"),
        *quantized("w", "w", "v"),
        helper.make_node("Gemm", ["d", "v"], ["f"]),
        *quantized("y", "f", "y"),
    ]
    weight = numpy_helper.from_array(np.array([[0.5, -0.25]], np.float32), "w")
    constants = [weight, *numbers("x", 0.25, 4), *numbers("w", 0.125, 0, "int8"), *numbers("y", 0.5, 7)]
    x = np.array([[3.0]], np.float32)
    executor = agrees(model(nodes, constants, [1, 1]), x, [])
    names = [name for node in nodes for name in node.output if executor.shows(name)]
    assert len(executor.forward(torch.from_numpy(x), names)) == len(names) > 2


@pytest.mark.parametrize("op", ["Identity", "Dropout"])
def test_a_second_quantization_after_identity_or_dropout_is_kept(op):
    """Consumers read the first one's codes, and their own scale was lost."""
    between = [helper.make_node(op, ["d"], ["i"]), *quantized("i", "i", "e")]
    nodes = [*quantized("x", "x", "d"), *between, read("w", "v"), helper.make_node("MatMul", ["e", "v"], ["f"])]
    constants = [
        *numbers("x", 2.0**-6, -128, "int8"),
        *numbers("i", 2.0**-4, -18, "int8"),
        *numbers("w", 0.5, 0, "int8"),
    ]
    constants += [*numbers("y", 0.25, 3, "int8"), coded("w", [[5, -7], [2, 90]], "int8")]
    agrees(
        model([*nodes, *quantized("y", "f", "y")], constants, [1, 2]), np.array([[0.3, 3.1]], np.float32), ["reshape"]
    )


def test_a_constant_quantized_twice_is_rounded_twice():
    nodes = [
        *quantized("x", "x", "d"),
        read("w", "v"),
        helper.make_node("Transpose", ["v"], ["t"]),
        *quantized("t", "t", "u"),
    ]
    nodes += [
        helper.make_node("Reshape", ["u", "shape"], ["r"]),
        helper.make_node("MatMul", ["d", "r"], ["f"]),
        *quantized("y", "f", "y"),
    ]
    constants = [
        *numbers("x", 0.25, 4),
        *numbers("w", 0.125, 0, "int8"),
        *numbers("t", 0.5, 0, "int8"),
        *numbers("y", 0.25, 100),
    ]
    constants += [coded("w", [[5, -7], [2, 90]], "int8"), numpy_helper.from_array(np.array([2, 2]), "shape")]
    made, x = model(nodes, constants, [1, 2]), np.array([[1.0, 2.75]], np.float32)
    (why,) = agrees(made, x, ["fully_connected"]).reasons.values()
    assert "is not quantized" in why


def biased(scale, codes):
    nodes, constants = with_weight(
        "Conv", [[[[20]]], [[[-31]]]], (0.5, 3, "uint8"), (0.5, 0, "int8"), (2.0**-4, 120, "uint8")
    )
    nodes = [*nodes[:3], read("b", "c"), helper.make_node("Conv", ["d", "v", "c"], ["f"]), *nodes[4:]]
    more = [helper.make_node("Sigmoid", ["y0"], ["g"]), *quantized("z", "g", "y")]
    nodes = [*nodes[:-1], helper.make_node("DequantizeLinear", ["y_q", "y_s", "y_z"], ["y0"]), *more]
    constants += [*numbers("b", scale, 0, "int32"), coded("b", codes, "int32"), *numbers("z", 2.0**-8, 0)]
    return model(nodes, constants, [1, 1, 2, 2])


X = np.array([[[[1.0, 2.5], [-1.0, 0.0]]]], np.float32)


@pytest.mark.parametrize(
    ("scale", "codes", "floats", "why"),
    [
        (0.25, [3, -5], [], ""),
        (0.5, [3, -5], [], ""),
        (2.0**-4, [3, -5], ["conv2d"], "is a bias at scale 0.0625: its values must be multiples of 0.25"),
        (0.25, [2**31 - 1, -5], ["conv2d"], "declares an accumulator of 32 bits"),
    ],
)
def test_a_bias_beyond_the_accumulator_keeps_its_node_float(scale, codes, floats, why):
    executor = agrees(biased(scale, codes), X, floats)
    assert all(why in text for text in executor.reasons.values())


@pytest.mark.parametrize(
    ("x", "w", "y", "why"),
    [
        ((0.5, 3, "uint8"), (0.5, 0, "int16"), (1.0, 9, "uint8"), "'w' has weights of int16|'v' has weights of int16"),
        ((0.5, 3, "uint4"), (0.5, 0, "int8"), (1.0, 9, "uint8"), "'x' has codes of uint4"),
        (
            (0.5, 3, "uint8"),
            (0.5, 0, "int8"),
            (1.0, 9, "int8"),
            "'x' of uint8, 'f' of int8: platform 'ort' has one format",
        ),
    ],
    ids=["weights", "activations", "signs"],
)
def test_weights_of_undeclared_bits_or_sign_stay_float(x, w, y, why):
    made = model(*with_weight("Conv", [[[[3]]], [[[-2]]]], x, w, y), [1, 1, 2, 2])
    (found,) = agrees(made, X, ["conv2d"]).reasons.values()
    assert re.search(why, found)


def test_asymmetric_weights_are_a_scheme_that_graphs_may_bring():
    made = model(*with_weight("Conv", [[[[30]]], [[[200]]]], (0.5, 3), (0.5, 128, "uint8"), (1.0, 9)), [1, 1, 2, 2])
    agrees(made, X, [])
    (why,) = agrees(made, X, ["conv2d"], "xnnpack").reasons.values()
    assert "'v' has weights of uint8" in why


def test_nan_is_quantized_to_the_smallest_code():
    """As ONNX Runtime has it, whatever the format."""
    nodes, constants = with_weight("Div", [0, 5, 0], (1.0, 0, "int8"), (1.0, 0, "int8"), (1.0, 7, "int8"))
    made, x = model(nodes, constants, [3]), np.array([0, 10, 5], np.float32)
    (expected,) = runtime(made, {"x": x})
    assert expected.tolist() == [-135.0, 2.0, 120.0]
    (found,) = TorchExecutor(from_model(made), platform="fp32").forward(torch.from_numpy(x))
    np.testing.assert_array_equal(found.numpy(), expected)


def test_the_executor_refuses_undeclared_parameters():
    """Parameters that were changed by hand are refused also without `integer_graph`."""
    graph = integer_graph(from_model(biased(0.25, [3, -5])))
    assert IntegerExecutor(graph).floats == []
    node = next(node for node in graph.nodes if node.op == "conv2d")
    provided = node.parameters
    assert isinstance(provided, Parameters)
    wide = {key: replace(p, dtype=DTYPES["uint16"], qmax=65535) for key, p in provided.inputs.items()}
    spoilt = replace(node, parameters=replace(provided, inputs=wide))
    with pytest.raises(
        UnsupportedError, match=r"\(conv2d\): 'x' has codes of uint16: platform 'ort' declares w8a8, w8pta8"
    ):
        IntegerExecutor(graph.with_(nodes=tuple(spoilt if n is node else n for n in graph.nodes)))


def test_a_node_has_the_accumulator_and_the_tables_of_the_declared_scheme():
    """They were those of a scheme made up of the file's bits: 32 bits for sums of 16 by 16."""
    parts = with_weight("Conv", [[[[30000]]]], (1.0, 0, "int16"), (1.0, 0, "int16"), (2.0**16, 0, "int16"))
    graph = integer_graph(from_model(model(*parts, [1, 1, 2, 2])), "compass")
    (node,) = [node for node in graph.nodes if isinstance(node.parameters, Parameters)]
    assert check_declared(node, graph) == load_library().scheme("w16a16")
    assert node.parameters.accumulator_bits == 48
    x = torch.full((1, 1, 2, 2), 32000.0)
    assert torch.equal(IntegerExecutor(graph).codes(x, ["y"])[0], torch.full((1, 1, 2, 2), 14648))
