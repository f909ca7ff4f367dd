"""Nodes of quantized graphs that no operator of ours says run as ONNX has them, between their quantizations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from test_onnx_integer import runtime

from quantizer.conformance.models.graph_nodes import enclosure_ratios
from quantizer.core.errors import GraphError, UnsupportedError
from quantizer.ir.formats.onnx import from_model
from quantizer.runtime.integer import integer_graph
from quantizer.runtime.integer_executor import IntegerExecutor
from quantizer.runtime.onnx_backend import QuantizerBackend

STEP, ZERO = np.float32(0.037), np.uint8(113)
X = np.array([[-2.31, 0.57, 1.94, -0.48, 3.12, 0.02], [0.86, -1.27, -0.33, 2.45, -3.6, 1.18]], np.float32)


def node(op, inputs, outputs, **attrs):
    return helper.make_node(op, inputs.split(), outputs.split(), **attrs)


def qdq(source, target, scale="s", zero="z"):
    return [
        node("QuantizeLinear", f"{source} {scale} {zero}", f"{target}_q"),
        node("DequantizeLinear", f"{target}_q {scale} {zero}", target),
    ]


def model(nodes, constants=(), outputs="y", types=(TensorProto.FLOAT,)):
    values = {"s": STEP, "z": ZERO, "s2": np.float32(0.05), "z2": np.uint8(90), **dict(constants)}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(X.shape))],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(outputs.split(), types, strict=True)],
        [
            value if hasattr(value, "dims") else numpy_helper.from_array(np.asarray(value), name)
            for name, value in values.items()
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def agrees(made, ops, outputs="y"):
    """Assert that the integer graph gives ONNX Runtime's values, and which operators it keeps; return the executor."""
    executor = IntegerExecutor(integer_graph(from_model(made)))
    names = outputs.split()
    for own, expected in zip(executor.forward(torch.from_numpy(X), names), runtime(made, {"x": X}, names), strict=True):
        np.testing.assert_array_equal(own.numpy(), expected)
    kept = [n.op for n in executor.graph.order if n.op[0].isupper()]
    assert kept == ops
    assert set(executor.reasons) == set(executor.floats)
    return executor


def test_an_operator_without_a_spec_keeps_others_on_integers():
    nodes = [
        *qdq("x", "a"),
        node("Shrink", "a", "f", bias=0.25, lambd=0.5),
        *qdq("f", "b"),
        node("DequantizeLinear", "wc s", "w"),
    ]
    nodes += [node("MatMul", "b w", "p"), *qdq("p", "y", "s2", "z2")]
    weight = np.arange(-9, 9, dtype=np.int8).reshape(6, 3)
    executor = agrees(model(nodes, {"wc": weight}), ["Shrink"])
    assert [n.op for n in executor.graph.order if n.parameters is not None] == ["fully_connected"]
    assert "no operator here expresses it" in executor.reasons["Shrink_0"]


def test_a_graph_without_any_integer_function_runs_in_float():
    made = model([*qdq("x", "a"), node("Shrink", "a", "f", bias=0.25, lambd=0.5), *qdq("f", "y")])
    executor = agrees(made, ["Shrink"])
    assert len(executor.floats) == len(executor.graph.nodes)
    with pytest.raises(GraphError, match="no integer function for any of its operators: node 'Shrink_0'"):
        enclosure_ratios(executor.graph, [{"x": torch.from_numpy(X)}])


@pytest.mark.parametrize("form", [TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2])
def test_float8_activations_are_separate_nodes(form):
    zero = helper.make_tensor("zf", form, [], [0.0])
    nodes = [*qdq("x", "a", "s2", "zf"), node("Relu", "a", "r"), *qdq("r", "y")]
    agrees(model(nodes, {"zf": zero}), ["QuantizeLinear", "DequantizeLinear"])


def test_codes_that_other_nodes_read_are_computed():
    """By other parameters, as integers, and as an output."""
    nodes = [*qdq("x", "a"), node("DequantizeLinear", "a_q s2 z2", "b"), node("Add", "a b", "f"), *qdq("f", "y")]
    nodes += [node("Cast", "a_q", "i", to=TensorProto.INT32), node("MatMulInteger", "a_q wc z", "p")]
    nodes += [node("Slice", "y_q start end", "part")]
    weight = np.arange(-9, 9, dtype=np.int8).reshape(6, 3)
    constants = {"wc": weight, "start": np.array([0, 1]), "end": np.array([2, 4])}
    kept = ["QuantizeLinear", "DequantizeLinear", "Cast", "MatMulInteger", "QuantizeLinear", "Slice"]
    types = (TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT32, TensorProto.UINT8, TensorProto.UINT8)
    agrees(model(nodes, constants, "y i p part a_q", types), kept, "y i p part a_q")


def test_scales_that_the_graph_computes_stay_in_it():
    nodes = [node("DynamicQuantizeLinear", "x", "q ds dz"), node("DequantizeLinear", "q ds dz", "a")]
    agrees(model([*nodes, node("Relu", "a", "r"), *qdq("r", "y")]), ["DynamicQuantizeLinear", "DequantizeLinear"])


def branch(name, nodes):
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(nodes[-1].output[0], 1, None)])


@pytest.mark.parametrize("positive", [True, False])
def test_bodies_of_control_flow_read_quantized_values_around_them(positive):
    """One reads values behind a DequantizeLinear that the form takes out, the other the codes themselves."""
    test = [node("ReduceMax", "a", "top", keepdims=0), node("Greater" if positive else "Less", "top c", "t")]
    then = branch("then", [node("Relu", "a", "u")])
    other = branch("other", [node("DequantizeLinear", "a_q s2 z2", "v")])
    nodes = [*qdq("x", "a"), *test, node("If", "t", "f", then_branch=then, else_branch=other), *qdq("f", "y")]
    agrees(model(nodes, {"c": np.float32(0)}), ["QuantizeLinear", "If"])


def test_two_control_flow_nodes_have_separate_bodies():
    """Each was run with the bodies of both, although only one of them has the tensors that a body reads."""
    body = {
        "then_branch": branch("then", [node("Relu", "a", "u")]),
        "else_branch": branch("other", [node("Neg", "a", "v")]),
    }
    second = {
        "then_branch": branch("then2", [node("Relu", "f", "u2")]),
        "else_branch": branch("other2", [node("Neg", "f", "v2")]),
    }
    nodes = [*qdq("x", "a"), node("If", "t", "f", **body), node("If", "t", "g", **second), *qdq("g", "y")]
    agrees(model(nodes, {"t": np.array(True)}), ["If", "If"])


def test_codes_in_blocks_of_computed_values_are_kept():
    scales = np.full((2, 3), 0.04, np.float32)
    zeros = np.full((2, 3), 100, np.uint8)
    nodes = [
        node("QuantizeLinear", "x sb zb", "q", axis=1, block_size=2),
        node("DequantizeLinear", "q sb zb", "a", axis=1, block_size=2),
        node("Relu", "a", "r"),
        *qdq("r", "y"),
    ]
    agrees(model(nodes, {"sb": scales, "zb": zeros}), ["QuantizeLinear", "DequantizeLinear"])


def test_a_node_without_any_kernel_is_refused_by_name():
    nodes = [*qdq("x", "a"), node("Nothing", "a", "f"), *qdq("f", "y")]
    made = model(nodes)
    made.graph.node[2].domain = "their.own"
    made.opset_import.append(helper.make_opsetid("their.own", 1))
    made.graph.node[2].name = "odd"
    with pytest.raises(UnsupportedError, match="Nothing"):
        integer_graph(from_model(made))


def test_default_outputs_are_those_of_the_model():
    """Codes are codes, and an output that stands twice is given twice, though both are one tensor on integers."""
    nodes = [*qdq("x", "a"), node("Relu", "a", "r"), *qdq("r", "y")]
    made = model(nodes, outputs="y_q y a_q", types=(TensorProto.UINT8, TensorProto.FLOAT, TensorProto.UINT8))
    executor = IntegerExecutor(integer_graph(from_model(made)))
    names = ["y_q", "y", "a_q"]
    for own, expected in zip(executor.forward(torch.from_numpy(X)), runtime(made, {"x": X}, names), strict=True):
        assert own.numpy().dtype == expected.dtype
        np.testing.assert_array_equal(own.numpy(), expected)


def test_a_graph_may_take_codes_as_inputs():
    """Codes given as `inputs` were taken for real numbers, and the graph was refused."""
    given = helper.make_tensor_value_info("x", TensorProto.UINT8, [2, None])
    made = model([node("DequantizeLinear", "x s z", "a"), node("Relu", "a", "r"), *qdq("r", "y")])
    made.graph.input[0].CopyFrom(given)
    codes = np.arange(12, dtype=np.uint8).reshape(2, 6) * 20
    feeds = {"x": torch.from_numpy(codes)}
    executor = IntegerExecutor(integer_graph(from_model(made), inputs=feeds))
    np.testing.assert_array_equal(executor.forward(feeds)[0].numpy(), runtime(made, {"x": codes}, ["y"])[0])


def product_of_codes(shape, scale, zero, columns):
    """Return a QLinearMatMul whose left operand has *scale* and *zero*, and its right one scales of *columns*."""
    weight = np.array([[1, -2, 3], [4, 5, -6], [-7, 8, 9]], np.int8)
    right = np.array([1, 0.5, 0.25], np.float32) if columns else np.float32(0.5)
    constants = {"as": scale, "az": zero, "b": weight, "bs": right, "bz": np.zeros_like(right, np.int8)}
    made = model(
        [node("QLinearMatMul", "x as az b bs bz s z", "y")],
        {**constants, "s": np.float32(2)},
        types=(TensorProto.UINT8,),
    )
    made.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.UINT8, shape))
    return made


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (1, 3, 3), (2, 4, 3)])
def test_each_row_of_a_product_has_its_own_parameters(shape, columns):
    """ONNX Runtime takes one scale for the left operand only: each row alone, with its own scale, gives its codes.

    With as many rows as columns of the left operand, its scales would fit the wrong axis, too.
    """
    codes = (np.arange(np.prod(shape), dtype=np.uint8) * 9 % 91).reshape(shape)
    scales = np.array([0.5, 0.25, 0.125, 0.0625], np.float32)[: shape[-2]]
    zeros = np.array([1, 20, 3, 40], np.uint8)[: shape[-2]]
    expected = np.empty_like(codes)
    for i, (scale, zero) in enumerate(zip(scales, zeros, strict=True)):
        row = codes[..., i : i + 1, :]
        (expected[..., i : i + 1, :],) = runtime(product_of_codes(row.shape, scale, zero, columns), {"x": row}, ["y"])
    made = product_of_codes(shape, scales, zeros, columns)
    (plain,) = QuantizerBackend.prepare(made).run([codes])
    np.testing.assert_array_equal(plain, expected)
    graph = from_model(made)
    assert graph.tensor("x").qparams.axis == len(shape) - 2
    feeds = {"x": torch.from_numpy(codes)}
    (found,) = IntegerExecutor(integer_graph(graph, inputs=feeds)).forward(feeds)
    np.testing.assert_array_equal(found.numpy(), expected)


SCALES, OFFSETS = np.array([0.0625, 0.125, 0.5], np.float32), np.array([10, 20, 30], np.uint8)


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("op", ["Sub", "MatMul", "Transpose"])
def test_a_result_with_several_scales_stays_float(op, axis):
    """A product raised a ValueError; a transposed result took its scales along the axis that they had before."""
    square = (np.arange(9, dtype=np.float32).reshape(3, 3) - 4) * np.float32(0.25)
    first = [node(op, "d d", "f")] if op != "Transpose" else [node("Abs", "d", "a"), node(op, "a", "f", perm=[1, 0])]
    last = [
        node("QuantizeLinear", "f t o", "q", axis=axis),
        node("DequantizeLinear", "q t o", "y", axis=axis),
    ]
    constants = {"t": SCALES, "o": OFFSETS, "s": np.float32(0.03125), "z": np.uint8(128)}
    made = model(qdq("x", "d") + first + last, constants)
    made.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 3]))
    executor = IntegerExecutor(integer_graph(from_model(made)))
    (expected,) = runtime(made, {"x": square}, ["y"])
    np.testing.assert_array_equal(executor.forward(torch.from_numpy(square))[0].numpy(), expected)


def rows_of_a_batch(scale, zero):
    """Return the codes of a batch of QLinearMatMul by the standard: each row of the left operand has its parameters."""
    codes = (np.arange(24, dtype=np.uint8) * 9 % 91).reshape(2, 4, 3)
    constants = {"b": np.array([[1, -2], [4, 5], [-7, 8]], np.int8), "bs": np.float32(0.5), "bz": np.int8(0)}
    sums = (codes.astype(np.int64) - zero) @ constants["b"] * (scale * 0.5 / 2)
    return codes, constants, np.clip(np.rint(sums) + int(ZERO), 0, 255).astype(np.uint8)


def test_each_row_of_each_batch_of_a_product_has_its_own_parameters():
    """The standard allows scales [D, M, 1]; they were refused under the name of a node that the file does not have."""
    scale = 2.0 ** -(np.arange(8, dtype=np.float32).reshape(2, 4, 1) % 5)
    zero = (np.arange(8, dtype=np.uint8) * 7).reshape(2, 4, 1)
    codes, constants, expected = rows_of_a_batch(scale, zero)
    made = model(
        [node("QLinearMatMul", "x as az b bs bz s z", "y")],
        {**constants, "as": scale, "az": zero, "s": np.float32(2)},
        types=(TensorProto.UINT8,),
    )
    made.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.UINT8, codes.shape))
    executor = IntegerExecutor(integer_graph(from_model(made)))
    np.testing.assert_array_equal(executor.forward(torch.from_numpy(codes), ["y"])[0].numpy(), expected)
    assert list(executor.reasons) == executor.floats == [made.graph.node[0].name or "QLinearMatMul_0"]


@pytest.mark.parametrize("move", ["Transpose", "Unsqueeze", "Flatten"])
@pytest.mark.parametrize("axis", [0, 1])
def test_moved_per_channel_codes_use_the_scales_of_their_reader(move, axis):
    """The scales moved along with transposed codes, although their reader has them along the axis of its own operand."""
    first = node("QuantizeLinear", "x t o", "q", axis=axis)
    last = node("DequantizeLinear", "m t o", "y", axis=axis + (move == "Unsqueeze"))
    constants = {"t": SCALES, "o": OFFSETS, "e": np.array([0])}
    made = model([first, node(move, "q e" if move == "Unsqueeze" else "q", "m"), last], constants)
    made.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 3]))
    square = (np.arange(9, dtype=np.float32).reshape(3, 3) - 4) * np.float32(0.25)
    executor = IntegerExecutor(integer_graph(from_model(made)))
    (expected,) = runtime(made, {"x": square}, ["y"])
    np.testing.assert_array_equal(executor.forward(torch.from_numpy(square))[0].numpy(), expected)
