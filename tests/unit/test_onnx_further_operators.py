"""Operators beyond the frozen list, against ONNX Runtime where it runs them and against plain formulas elsewhere."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, shape_inference

from quantizer.core.dtypes import DTYPES
from quantizer.core.errors import QuantizerError
from quantizer.ir.graph import Graph, Node
from quantizer.ir.graph import Tensor as GraphTensor
from quantizer.runtime.onnx import FAMILIES
from quantizer.runtime.onnx.kernels import KERNELS, Context
from quantizer.runtime.onnx_backend import QuantizerBackend

assert FAMILIES
X = (3 * np.sin(np.arange(24, dtype=np.float32) ** 2)).reshape(2, 3, 4)
UNIT = (X / 3).astype(np.float32)
IMAGE = np.cos(np.arange(50, dtype=np.float32) ** 2).reshape(1, 2, 5, 5)
GRID = (1.2 * np.sin(np.arange(24, dtype=np.float32))).reshape(1, 4, 3, 2)
STEP, ONE = np.array(0.5, np.float32), np.array(1, np.int8)
ODD = np.array([np.nan, np.inf, -np.inf, 0, 1.5], np.float32)
BYTES = np.arange(0, 250, 10, dtype=np.uint8)
SHIFTS = np.array([0, 1, 7, 3, 5] * 5, dtype=np.uint8)
HALF = np.linspace(-3, 3, 8, dtype=np.float32).reshape(1, 2, 4)
LENGTHS = np.array([3, 1, 2, 1], np.int64)
INTS = np.array([3, 1, 3, -2, 1], np.int64)

QKV = (2 * np.sin(np.arange(96, dtype=np.float32) ** 2)).reshape(3, 1, 2, 4, 4)
LSTM = np.sin(np.arange(32, dtype=np.float32) ** 2).reshape(1, 8, 4)
MOVED = np.sin(np.arange(96, dtype=np.float32)).reshape(1, 8, 3, 4)
MOVED2 = 2 * np.sin(np.arange(192, dtype=np.float32)).reshape(1, 16, 3, 4)
BELOW = np.where(np.tril(np.ones((4, 4))) > 0, 0.5, -np.inf).astype(np.float32)

CASES = [
    ("Acosh", 22, (1 + abs(X),), {}, 1), ("Asin", 22, (UNIT,), {}, 1), ("Asinh", 22, (X,), {}, 1), ("Atan", 22, (X,), {}, 1),
    ("IsNaN", 20, (ODD,), {}, 1), ("IsInf", 20, (ODD,), {}, 1), ("IsInf", 20, (ODD,), {"detect_negative": 0}, 1),
    ("BitShift", 11, (BYTES, SHIFTS), {"direction": "LEFT"}, 1), ("BitShift", 11, (BYTES, SHIFTS), {"direction": "RIGHT"}, 1),
    ("BitwiseAnd", 18, (BYTES, SHIFTS), {}, 1), ("BitwiseNot", 18, (INTS,), {}, 1), ("BitwiseXor", 18, (INTS, INTS[::-1].copy()), {}, 1),
    ("Dropout", 13, (X,), {}, 2), ("Dropout", 7, (X,), {"ratio": 0.3}, 1),
    ("EyeLike", 22, (X[0],), {"k": 1}, 1), ("EyeLike", 22, (X[0],), {"k": -2, "dtype": TensorProto.INT64}, 1),
    ("GridSample", 22, (IMAGE, GRID), {"mode": "linear", "padding_mode": "zeros"}, 1),
    ("GridSample", 22, (IMAGE, GRID), {"mode": "cubic", "padding_mode": "border", "align_corners": 1}, 1),
    ("GridSample", 16, (IMAGE, GRID), {"mode": "nearest", "padding_mode": "reflection"}, 1),
    ("LpPool", 22, (IMAGE,), {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [0, 1, 1, 1], "p": 3}, 1),
    ("Mod", 13, (X[0] + 0.25, abs(X[1]) + 1), {"fmod": 1}, 1),
    ("ReverseSequence", 10, (np.arange(12.0, dtype=np.float32).reshape(3, 4), LENGTHS), {"batch_axis": 1, "time_axis": 0}, 1),
    ("Unique", 11, (INTS.astype(np.float32),), {}, 4), ("Unique", 11, (INTS,), {"sorted": 0}, 4),
    ("Unique", 11, (np.array([[1, 2], [0, 1], [1, 2]], np.float32),), {"axis": 0}, 4),
    ("CenterCropPad", 18, (X, np.array([3, 1, 7], np.int64)), {}, 1),
    ("Det", 22, (X[:, :, :3].copy(),), {}, 1),
    ("DFT", 20, (X[..., None].copy(),), {"onesided": 1}, 1), ("DFT", 17, (X[..., :2].copy(),), {"inverse": 1}, 1),
    ("Col2Im", 18, (np.arange(24.0, dtype=np.float32).reshape(1, 4, 6), np.array([3, 4], np.int64), np.array([2, 2], np.int64)), {}, 1),
    ("RotaryEmbedding", 23, (HALF.reshape(1, 1, 2, 4), np.cos(HALF[..., :2]), np.sin(HALF[..., :2])), {}, 1),
    ("Attention", 23, (QKV[0], QKV[1], QKV[2], BELOW), {"softcap": 1.0}, 1),
    ("Attention", 23, (QKV[0], QKV[1], QKV[2], np.full((4, 4), 0.25, np.float32)), {"is_causal": 1}, 1),
    ("RNN", 22, (X[:, :1], X[:1], X[1:, :, :3].copy()), {"hidden_size": 3}, 2),
    *(("RNN", 22, (X[:, :1], X[:1], X[1:, :, :3].copy()), {"hidden_size": 3, "activations": [name]}, 2)
      for name in ("LeakyRelu", "Elu", "HardSigmoid")),
    ("RNN", 22, (X[:, :1], X[:1], X[1:, :, :3].copy()), {"hidden_size": 3, "activations": ["ThresholdedRelu"], "activation_alpha": [0.5]}, 2),
    ("LSTM", 22, (X[:, :1], LSTM, LSTM[..., :2].copy()), {"hidden_size": 2, "input_forget": 1}, 3),
    ("AffineGrid", 20, (X[:, :2, :3].copy(), np.array([2, 3, 4, 5], np.int64)), {}, 1),
    ("AffineGrid", 20, (X[:, :2, :3].copy(), np.array([2, 3, 2, 5], np.int64)), {"align_corners": 1}, 1),
    ("AffineGrid", 20, (X, np.array([2, 3, 4, 1, 2], np.int64)), {}, 1),
    ("HannWindow", 17, (np.array(9),), {"periodic": 0}, 1), ("HammingWindow", 17, (np.array(8, np.int32),), {}, 1),
    ("BlackmanWindow", 17, (np.array(7),), {"output_datatype": TensorProto.DOUBLE}, 1),
    ("DeformConv", 22, (IMAGE, np.cos(np.arange(24, dtype=np.float32)).reshape(3, 2, 2, 2), MOVED, X[0, 0, :3].copy()), {"strides": [2, 1], "pads": [1, 0, 1, 0]}, 1),
    ("DeformConv", 22, (IMAGE, np.cos(np.arange(8, dtype=np.float32)).reshape(2, 1, 2, 2), MOVED2, np.zeros(2, np.float32), abs(MOVED)[:, :8]), {"group": 2, "offset_group": 2, "strides": [2, 1], "pads": [1, 0, 1, 0]}, 1),
    ("GlobalLpPool", 18, (IMAGE,), {"p": 3}, 1),
    ("MaxUnpool", 22, (IMAGE[:, :1, :2, :2].copy(), np.array([[[[1, 3], [9, 11]]]], np.int64)), {"kernel_shape": [2, 2], "strides": [2, 2]}, 1),
    ("MaxUnpool", 22, (IMAGE[:, :1, :2, :2].copy(), np.array([[[[1, 3], [9, 15]]]], np.int64), np.array([1, 1, 4, 4], np.int64)), {"kernel_shape": [2, 2], "strides": [2, 2]}, 1),
    ("MaxRoiPool", 16, (IMAGE, np.array([[0, 0, 0, 3, 4], [0, 2.4, 1, 2, 9]], np.float32)), {"pooled_shape": [2, 3]}, 1),
    ("GridSample", 22, (IMAGE, np.array([[[[-1.5, -1.0], [1.6, 1.0]]]], np.float32)), {"mode": "nearest", "padding_mode": "reflection"}, 1),
    ("GridSample", 22, (IMAGE, GRID * 2), {"mode": "nearest", "padding_mode": "reflection", "align_corners": 1}, 1),
    ("Cosh", 22, (np.array([-89, 89, 0.25, 90], np.float32),), {}, 1), ("Sinh", 22, (np.array([-89, 89, 1e-30, 0.25], np.float32),), {}, 1),
    ("DynamicQuantizeLinear", 11, (np.zeros((2, 2), np.float32),), {}, 3), ("DynamicQuantizeLinear", 11, (np.zeros((2, 0), np.float32),), {}, 3),
    ("Shrink", 9, (np.array([-3, -1, 0, 2, 9], np.int32),), {"lambd": 1.0, "bias": 0.5}, 1),
    ("Resize", 19, (IMAGE, np.zeros(0, np.float32), np.array([1, 1, 2, 0.1], np.float32)), {"mode": "linear"}, 1),
    ("MeanVarianceNormalization", 13, (IMAGE,), {}, 1),
    ("BatchNormalization", 15, (IMAGE, *[np.array([0.7, -1.3], np.float16)] * 4), {"training_mode": 1, "momentum": 1.0}, 3),
    ("Clip", 6, (np.array([-2, 0.75, np.inf], np.float16),), {"max": 0.5}, 1), ("Clip", 6, (np.array([-2, np.inf], np.float16),), {"min": 0.5}, 1),
    ("Det", 22, (np.array([[3, 2], [4, 0.5]], np.float16),), {}, 1),
    ("QLinearMatMul", 21, (np.array([[-128, 127]], np.int8), STEP, ONE, np.array([[99, -99, 3], [-99, 99, 2]], np.int8), STEP, ONE, STEP, ONE), {}, 1),
]  # fmt: skip


def model_of(op, opset, operands, attrs, made):
    names = [f"i{i}" for i in range(len(operands))]
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype), np.shape(value))
        for name, value in zip(names, operands, strict=True)
    ]
    outputs = [helper.make_empty_tensor_value_info(f"o{i}") for i in range(made)]
    node = helper.make_node(op, names, [o.name for o in outputs], **attrs)
    graph = helper.make_graph([node], "g", given, outputs)
    return shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    )


@pytest.mark.parametrize(("op", "opset", "operands", "attrs", "made"), CASES)
def test_results_equal_onnx_runtime(op, opset, operands, attrs, made):
    ort = pytest.importorskip("onnxruntime")
    model = model_of(op, opset, operands, attrs, made)
    ours = QuantizerBackend.prepare(model).run(list(operands))
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    theirs = session.run(None, {f"i{i}": value for i, value in enumerate(operands)})
    for a, b in zip(ours, theirs, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def run(op, *operands, made=1, since=28, **attrs):
    node = Node(
        "n", op, tuple("abcdefg"[: len(operands)]), tuple(f"o{i}" for i in range(made)), attrs, extra={"since": since}
    )
    found = KERNELS[op](node, list(operands), Context(Graph("g", (node,), {}, (), ()), torch.device("cpu")))
    return found if isinstance(found, Tensor) or made > 1 else found[0]


Tensor = torch.Tensor


def test_a_shift_beyond_the_width_leaves_zeros_or_the_sign():
    x = torch.tensor([-5, 5, -5, 5], dtype=torch.int8)
    y = torch.tensor([9, 9, -1, 8], dtype=torch.int8)
    assert run("BitShift", x, y, direction="RIGHT").tolist() == [-1, 0, -1, 0]
    assert run("BitShift", x, y, direction="LEFT").tolist() == [0, 0, 0, 0]
    big = torch.tensor([255, 128], dtype=torch.uint8)
    assert run("BitShift", big, torch.tensor([8, 7], dtype=torch.uint8), direction="RIGHT").tolist() == [0, 1]


def test_losses_are_the_formula_with_weights_and_an_ignored_label():
    scores = torch.from_numpy(X[0, :, :].T.copy())
    labels = torch.tensor([0, 2, 1, 0])
    weight = torch.tensor([0.5, 1.0, 2.0])
    logs = (scores.double() - scores.double().logsumexp(1, keepdim=True)).tolist()
    kept = [(0, 0), (1, 2), (3, 0)]
    total = -sum(weight[c].item() * logs[n][c] for n, c in kept)
    share = sum(weight[c].item() for _, c in kept)
    loss, said = run("SoftmaxCrossEntropyLoss", scores, labels, weight, ignore_index=1, reduction="mean", made=2)
    assert math.isclose(loss.item(), total / share, rel_tol=1e-6)
    assert torch.allclose(said.double(), torch.tensor(logs, dtype=torch.float64), rtol=1e-5)
    again = run("NegativeLogLikelihoodLoss", said, labels, weight, ignore_index=1, reduction="sum")
    assert math.isclose(again.item(), total, rel_tol=1e-6)
    with pytest.raises(QuantizerError, match=r"every label must lie in \[0, 2\]"):
        run("NegativeLogLikelihoodLoss", said, labels + 2, reduction="sum")


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention_is_its_recurrence(rule):
    q, k, v = (torch.from_numpy(np.sin(np.arange(12, dtype=np.float32) * n).reshape(1, 3, 4)) for n in (1, 2, 3))
    decay, beta = -torch.ones(1, 3, 2) / 2, torch.ones(1, 3, 2) / 4
    operands = [q, k, v, None, decay if "gated" in rule else None, beta if "delta" in rule else None]
    y, state = run("LinearAttention", *operands, q_num_heads=2, kv_num_heads=2, update_rule=rule, scale=0.0, made=2)
    for head in range(2):
        part = slice(2 * head, 2 * head + 2)
        now = np.zeros((2, 2))
        for t in range(3):
            a, b, c = (x[0, t, part].double().numpy() for x in (q, k, v))
            now = now * math.exp(-0.5) if "gated" in rule else now
            now = now + np.outer(b, (c - b @ now) / 4 if "delta" in rule else c)
            np.testing.assert_allclose(y[0, t, part], a @ now / math.sqrt(2), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(state[0, head], now, rtol=1e-4, atol=1e-6)


def test_a_circular_cache_wraps_to_its_start():
    found = run(
        "TensorScatter", torch.zeros(1, 4, 1), torch.tensor([[[1.0], [2.0]]]), torch.tensor([3]), mode="circular"
    )
    assert found.flatten().tolist() == [2, 0, 0, 1]
    with pytest.raises(QuantizerError, match=r"2 elements from \[3\] on do not fit"):
        run("TensorScatter", torch.zeros(1, 4, 1), torch.ones(1, 2, 1), torch.tensor([3]), mode="linear")


def test_bitcast_keeps_bits_and_needs_equal_sizes():
    x = torch.tensor([1.0, -2.0])
    assert run("BitCast", x, to=DTYPES["int32"]).tolist() == x.view(torch.int32).tolist()
    with pytest.raises(QuantizerError, match="must have the same size"):
        run("BitCast", x, to=DTYPES["int16"])


def test_reversing_a_sequence_of_length_0_keeps_it():
    """ONNX Runtime 1.27 leaves memory that it did not write there."""
    x = torch.arange(6.0).reshape(2, 3)
    assert run("ReverseSequence", x, torch.tensor([0, 2]), batch_axis=0, time_axis=1).tolist() == [[0, 1, 2], [4, 3, 5]]


def test_running_products_and_gates():
    x = torch.tensor([2.0, 3.0, 4.0])
    axis = torch.tensor(0)
    assert run("CumProd", x, axis, exclusive=0, reverse=0).tolist() == [2, 6, 24]
    assert run("CumProd", x, axis, exclusive=1, reverse=1).tolist() == [12, 4, 1]
    gate = run("SwiGLU", x, x, alpha=2.0)
    np.testing.assert_allclose(gate, [a * a / (1 + math.exp(-2 * a)) for a in (2, 3, 4)], rtol=1e-6)


def test_dropout_that_trains_is_refused():
    with pytest.raises(QuantizerError, match="training_mode"):
        run("Dropout", torch.ones(2), torch.tensor(0.5), torch.tensor(True))


@pytest.mark.parametrize("op", ["Max", "Min", "Sum", "Prod", "Mean", "L1", "SumSquare"])
@pytest.mark.parametrize("kind", [torch.uint16, torch.uint32, torch.uint64])
def test_reductions_of_unsigned_integers_equal_whole_numbers(op, kind):
    values = torch.tensor([[3, 60000], [4, 2]])
    found = run_typed(f"Reduce{op}", values.to(kind), DTYPES[str(kind).split(".")[1]], axes=[0], keepdims=0)
    plain = {
        "Max": [4, 60000], "Min": [3, 2], "Sum": [7, 60002], "Prod": [12, 120000], "Mean": [3, 30001], "L1": [7, 60002],
        "SumSquare": [25, 3600000004],
    }[op]  # fmt: skip
    assert found.dtype == kind
    assert found.tolist() == [value % 2 ** (8 * kind.itemsize) for value in plain]


def run_typed(op, x, dtype, **attrs):
    node = Node("n", op, ("a",), ("y",), attrs, extra={"since": 13})
    graph = Graph("g", (node,), {name: GraphTensor(name, (), dtype) for name in "ay"}, ("a",), ("y",))
    return KERNELS[op](node, [x], Context(graph, torch.device("cpu")))


def test_a_grid_of_another_type_is_sampled_in_the_wider_one():
    x, grid = torch.from_numpy(IMAGE), torch.from_numpy(GRID)
    attrs = {"align_corners": 0, "mode": "linear", "padding_mode": "zeros"}
    wide = run("GridSample", x.double(), grid.double(), **attrs)
    assert torch.equal(run("GridSample", x, grid.double(), **attrs), wide.float())


def test_products_with_parameters_for_each_row_of_each_matrix():
    """As [D1, M, 1] and [D1, 1, N]: the standard's words for operands of more than two axes."""
    a, b = (
        torch.tensor([[[1, 2]], [[3, 4]]], dtype=torch.uint8),
        torch.tensor([[[1], [2]], [[3], [4]]], dtype=torch.uint8),
    )
    a_scale, b_scale = torch.tensor([1.0, 2.0]).reshape(2, 1, 1), torch.tensor([0.5, 0.25]).reshape(2, 1, 1)
    a_zero, b_zero = (torch.tensor(zeros, dtype=torch.uint8).reshape(2, 1, 1) for zeros in ([0, 2], [1, 0]))
    found = run(
        "QLinearMatMul", a, a_scale, a_zero, b, b_scale, b_zero, torch.tensor(0.5), torch.tensor(7, dtype=torch.uint8)
    )
    assert found.tolist() == [[[2 + 7]], [[11 + 7]]]


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2fnuz", "float8_e8m0fnu"])
def test_bits_of_8_bit_floats(name):
    codes = torch.arange(256).to(torch.uint8)
    floats = run("BitCast", codes, to=DTYPES[name])
    assert floats.dtype == getattr(torch, name)
    assert torch.equal(run("BitCast", floats, to=DTYPES["uint8"]), codes)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("op", "operands", "attrs"),
    [
        ("GridSample", (IMAGE, GRID), {"align_corners": 0, "mode": "linear", "padding_mode": "border"}),
        ("DeformConv", (IMAGE, np.ones((1, 2, 1, 1), np.float32), np.full((1, 2, 5, 5), 0.1, np.float32)), {"group": 1, "offset_group": 1}),
        ("Sum", (X, X / 3, X / 7, X / 11), {}),
        ("Mean", (X, X / 3, X / 7), {}),
        ("Det", (IMAGE[0],), {}),
        ("BatchNormalization", (X + 30, *[np.array([0.7, 1.3, 1], np.float32)] * 2, *[np.array([30, 31, 29], np.float32)] * 2), {"epsilon": 1e-5, "momentum": 0.9}),
    ],
)  # fmt: skip
def test_indices_and_sums_of_16_bits_are_computed_in_32(kind, op, operands, attrs):
    """In float16 a place of a large image falls on its neighbour, and a difference of large numbers loses its digits."""
    narrow = [torch.from_numpy(value).to(kind) for value in operands]
    wide = run(op, *(value.float() for value in narrow), **attrs)
    assert torch.equal(run(op, *narrow, **attrs), wide.to(kind))
