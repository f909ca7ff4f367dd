"""ONNX operators at the ends of what they take: empty axes, scalars of integers, factors of zero; judged by ONNX's reference."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from quantizer.ir.formats.onnx import from_model
from quantizer.runtime.torch_executor import OperationError, TorchExecutor

KINDS = {"f": TensorProto.FLOAT, "i": TensorProto.INT64}


def model(op, feeds, opset, attrs):
    inputs = [
        helper.make_tensor_value_info(name, KINDS[value.dtype.kind], value.shape) for name, value in feeds.items()
    ]
    y = helper.make_tensor_value_info("y", KINDS[feeds["a"].dtype.kind], None)
    graph = helper.make_graph([helper.make_node(op, list(feeds), ["y"], name="n", **attrs)], "g", inputs, [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def floats(*shape):
    return np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape) - 2


CASES = {
    "hardmax of nothing": ("Hardmax", {"a": floats(2, 0)}, 18, {"axis": 1}),
    "running sum of nothing": ("CumSum", {"a": floats(0, 3), "axis": np.array(0)}, 18, {"exclusive": 1}),
    "a factor of zero": (
        "Gemm",
        {"a": floats(2, 2), "b": floats(2, 2), "c": np.float32([[np.nan], [1]])},
        18,
        {"beta": 0.0},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_results_equal_the_onnx_reference(name):
    op, feeds, opset, attrs = CASES[name]
    file = model(op, feeds, opset, attrs)
    (wanted,) = ReferenceEvaluator(file).run(None, feeds)
    (found,) = TorchExecutor(from_model(file), platform="fp32").forward(feeds)
    assert found.numpy().dtype == feeds["a"].dtype
    assert np.array_equal(found.numpy(), wanted)


def test_log_of_integers_is_an_integer_if_the_opset_allows():
    """Of opset 18; the reference of onnx before 1.23 makes a float of it, later ones refuse it, as opset 28 does."""
    file = model("ReduceLogSum", {"a": np.array(7)}, 18, {"keepdims": 0})
    (found,) = TorchExecutor(from_model(file), platform="fp32").forward({"a": np.array(7)})
    assert (found.dtype, found.item()) == (torch.int64, 1)


def test_a_mean_of_no_integers_is_refused():
    file = model("ReduceMean", {"a": np.zeros((0, 2), np.int64)}, 17, {"axes": [0]})
    with pytest.raises(OperationError, match="a mean of no integers: must have elements"):
        TorchExecutor(from_model(file), platform="fp32").forward([np.zeros((0, 2), np.int64)])


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool"])
def test_windows_of_no_channels_have_no_channels(op):
    feeds = {"a": floats(2, 0, 3, 3)}
    file = model(op, feeds, 18, {"kernel_shape": [2, 2]})
    assert TorchExecutor(from_model(file), platform="fp32").forward(feeds)[0].shape == (2, 0, 2, 2)


def test_scales_along_a_missing_axis_are_refused():
    codes = helper.make_tensor_value_info("a", TensorProto.INT8, [])
    kept = [helper.make_tensor("s", TensorProto.FLOAT, [3], [0.5, 0.25, 1.0])]
    node = helper.make_node("DequantizeLinear", ["a", "s"], ["y"], name="n", axis=-4)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [codes], [y], kept)
    file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    with pytest.raises(OperationError, match="n.DequantizeLinear.: .*axis -4"):
        TorchExecutor(from_model(file), platform="fp32").forward([np.array(3, np.int8)])


def test_lrn_with_a_huge_window_stays_fast():
    feeds = {"a": floats(1, 3, 2, 2)}
    file = model("LRN", feeds, 13, {"size": 2**30, "alpha": 2.0**30})
    (found,) = TorchExecutor(from_model(file), platform="fp32").forward(feeds)
    x = torch.from_numpy(feeds["a"])
    assert torch.equal(found, x / (1.0 + (x * x).sum(1, keepdim=True)) ** 0.75)
