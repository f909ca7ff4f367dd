"""Operators that only PPQ has, against torch and against their definitions."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper

from quantizer.core.dtypes import DTYPES
from quantizer.ir.formats.onnx import from_model
from quantizer.ir.graph import Graph, Node, Tensor
from quantizer.runtime.executor import execute
from quantizer.runtime.onnx.kernels import specs
from quantizer.runtime.onnx.ppq_only import PPQ_KERNELS
from quantizer.runtime.onnx.registry_form import registry_form
from quantizer.runtime.onnx_node_tests import PPQ_ONLY
from quantizer.runtime.torch_executor import OperationError, TorchExecutor


def numbers(*shape, seed=0):
    source = random.Random(seed)
    count = torch.Size(shape).numel()
    return torch.tensor([source.gauss(0, 1) for _ in range(count)]).reshape(shape)


def run(op, *operands, made=1, **attrs):
    """Run one node on operands, as a graph made in Python."""
    names = [f"x{i}" for i in range(len(operands))]
    outputs = tuple(f"y{i}" for i in range(made))
    given = [
        Tensor(n, tuple(v.shape), DTYPES[str(v.dtype).removeprefix("torch.")])
        for n, v in zip(names, operands, strict=True)
    ]
    tensors = {t.name: t for t in (*given, *(Tensor(n, (), DTYPES["float32"], ranked=False) for n in outputs))}
    graph = Graph("g", (Node("n", op, tuple(names), outputs, attrs),), tensors, tuple(names), outputs, dynamic=True)
    return TorchExecutor(graph, platform="fp32").forward(list(operands))


X = numbers(2, 6, 5, 7)


def test_every_name_of_the_frozen_list_has_a_kernel():
    assert set(PPQ_KERNELS) == set(PPQ_ONLY)


def test_pools_to_a_size():
    expected = F.adaptive_avg_pool2d(X, (3, 2))
    assert torch.equal(run("AdaptiveAvgPool2d", X, output_size=(3, 2))[0], expected)
    assert torch.equal(run("AdaptiveAvgPool2d", X, torch.tensor([3, 2]))[0], expected)


def test_arg_max_in_both_forms():
    """Of [3, 1, 2] the two largest are 3 at 0 and 2 at 2."""
    x = torch.tensor([[3.0, 1.0, 2.0]])
    assert run("CaffeArgMax", x, axis=1, top_k=2)[0].tolist() == [[0, 2]]
    assert run("CaffeArgMax", x, axis=1, top_k=2, out_max_val=1)[0].tolist() == [[3, 2]]
    assert run("CaffeArgMax", x, top_k=2, out_max_val=1)[0].tolist() == [[[0, 2], [3, 2]]]
    assert run("CaffeArgMax", x, top_k=1)[0].tolist() == [[[0]]]
    values, places = run("CaffeArgMax", x, axis=-1, top_k=2, made=2)
    assert (values.tolist(), places.tolist()) == ([[3, 2]], [[0, 2]])


def test_shuffled_channels():
    assert torch.equal(run("ChannelShuffle", X, groups=3)[0], torch.nn.ChannelShuffle(3)(X))
    for shape in ((2, 6, 5), (2, 6, 2, 3, 2)):
        x = numbers(*shape)
        assert torch.equal(run("ChannelShuffle", x, groups=2)[0], torch.nn.ChannelShuffle(2)(x))


def test_shuffled_image_channels_equal_the_registry_operator():
    tensors = {n: Tensor(n, tuple(X.shape), DTYPES["float32"]) for n in "xy"}
    graph = Graph("g", (Node("n", "ChannelShuffle", ("x",), ("y",), {"groups": 3}),), tensors, ("x",), ("y",))
    made = registry_form(graph)
    assert [(node.op, node.attrs) for node in made.nodes] == [("channel_shuffle", {"groups": 3})]
    assert torch.equal(execute(made, {"x": X}, specs()).values["y"], torch.nn.ChannelShuffle(3)(X))


@pytest.mark.parametrize(
    ("attrs", "size"),
    [
        ({"height": 9, "width": 4}, (9, 4)),
        ({"zoom_factor": 3}, (13, 19)),
        ({"shrink_factor": 2}, (3, 4)),
        ({"zoom_factor": 2, "shrink_factor": 3}, (3, 5)),
        ({"pad_beg": -1, "pad_end": -2, "height": 4, "width": 4}, (4, 4)),
    ],
)
def test_interpolation_at_the_sizes_of_caffe(attrs, size):
    part = X[:, :, 1:-2, 1:-2] if "pad_beg" in attrs else X
    (y,) = run("Interp", X, **attrs)
    assert torch.equal(y, F.interpolate(part, size=size, mode="bilinear", align_corners=True))


def test_normalised_sums():
    x, skip, weight, bias = numbers(2, 3, 8), numbers(2, 3, 8, seed=1), numbers(8, seed=2), numbers(8, seed=3)
    assert torch.equal(run("LayerNorm", x, weight, bias, epsilon=1e-3)[0], F.layer_norm(x, (8,), weight, bias, 1e-3))
    expected = F.layer_norm(x + skip, (8,), weight, bias, 1e-5)
    assert torch.equal(run("skipLayerNormPlugin", x, skip, weight, bias)[0], expected)


def test_mmcv_regions_equal_onnx():
    """With pixels at their middles, a bin from one pixel's middle to the next has its sample between four of them."""
    x = numbers(2, 3, 6, 6)
    rois = torch.tensor([[1.0, 0.5, 1.5, 3.5, 4.5]])
    (y,) = run("MMCVRoiAlign", x, rois, output_height=3, output_width=3, sampling_ratio=1, aligned=1)
    torch.testing.assert_close(
        y[0], (x[1][:, 1:4, 0:3] + x[1][:, 1:4, 1:4] + x[1][:, 2:5, 0:3] + x[1][:, 2:5, 1:4]) / 4
    )


def test_attention_equals_torch():
    size, heads = 8, 2
    theirs = torch.nn.MultiheadAttention(size, heads, batch_first=True).eval()
    q, k, v = numbers(2, 3, size), numbers(2, 5, size, seed=1), numbers(2, 5, size, seed=2)
    with torch.no_grad():
        theirs.in_proj_bias.copy_(numbers(3 * size, seed=3))
        expected = theirs(q, k, v, need_weights=False)[0]
        weights, biases = theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3)
        pairs = [t for pair in zip(weights, biases, strict=True) for t in pair]
        (y,) = run("MultiHeadAttention", q, k, v, *pairs, theirs.out_proj.weight, theirs.out_proj.bias, num_heads=heads)
    torch.testing.assert_close(y, expected)


def test_movement_and_scaling_operators():
    a, b, c = numbers(2, 3, 4), numbers(4, 5, seed=1), numbers(5, seed=2)
    assert torch.equal(run("PPQBiasFusedMatMul", a, b, c)[0], a @ b + c)
    assert torch.equal(run("PPQDeviceSwitch", a)[0], a)
    assert torch.equal(run("Parameter", a, m=4)[0], a.reshape(4, 6))
    factor, bias = numbers(6, seed=3), numbers(6, seed=4)
    expected = X * factor.reshape(6, 1, 1) + bias.reshape(6, 1, 1)
    assert torch.equal(run("Scale", X, factor, bias, bias_term=1)[0], expected)
    grid = numbers(2, 4, 4, 2, seed=5).clamp(-1, 1)
    assert torch.equal(run("grid_sampler", X, grid)[0], F.grid_sample(X, grid, align_corners=False))
    expected = F.grid_sample(X, grid, "nearest", "border", align_corners=True)
    assert torch.equal(run("grid_sampler", X, grid, interpolation_mode=1, padding_mode=1, align_corners=1)[0], expected)


@pytest.mark.parametrize(
    ("op", "operands", "attrs", "text"),
    [
        ("ChannelShuffle", (X,), {"groups": 4}, "must divide"),
        ("Parameter", (X,), {"m": 11}, "divides"),
        ("AdaptiveAvgPool2d", (X,), {"output_size": (0, 1)}, "at least 1"),
        ("Interp", (X,), {"pad_beg": 1}, "pads 0 or less"),
        ("AdaptiveAvgPool2d", (X,), {"output_size": (1 << 20, 1 << 20)}, "more than"),
        ("MMCVRoiAlign", (X, numbers(1, 4)), {"output_height": 1, "output_width": 1}, r"\[n, 5\]"),
        ("Scale", (X, numbers(5, 7)), {"axis": 3}, "must fit"),
        ("grid_sampler", (X, X), {"padding_mode": 3}, "padding_mode=3"),
    ],
)
def test_invalid_ppq_operators_are_refused(op, operands, attrs, text):
    with pytest.raises(OperationError, match=text):
        run(op, *operands, **attrs)


def test_ppq_operators_are_stored_under_their_own_domain():
    node = helper.make_node("ChannelShuffle", ["x"], ["y"], domain="ppl", groups=2)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 2]) for name in "xy"]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ppl", 1)]
    loaded = from_model(helper.make_model(graph, opset_imports=imports, ir_version=8))
    x = numbers(1, 4, 2)
    (y,) = TorchExecutor(loaded, platform="fp32").forward(x)
    assert torch.equal(y, torch.nn.ChannelShuffle(2)(x))
