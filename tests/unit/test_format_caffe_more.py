"""Caffe's layers of one bottom, and those of older and detection networks, against the formulas of their documentation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_format_caffe import INPUT, files, layer, run, whole

from quantizer.core.errors import FormatError, GraphError, UnsupportedError
from quantizer.runtime.onnx_model import load_caffe_graph
from quantizer.runtime.torch_executor import TorchExecutor

X = whole(2, 4, 7, 6)
N = X.double().numpy()
SLOPES = whole(4, seed=3)
W, B = whole(4, 3, 3, 2, seed=1), whole(6, seed=2)


def transposed(x, w, b, stride, pad, dilation, group):
    """Return what each input adds to the places of its window, cut by the padding."""
    n, c, h, width = x.shape
    per, kh, kw = w.shape[1:]
    size = [(s - 1) * stride + dilation * (k - 1) + 1 for s, k in ((h, kh), (width, kw))]
    y = np.zeros((n, per * group, *size))
    for i, j, a, d in np.ndindex(h, width, kh, kw):
        for o in range(per * group):
            part = slice(o // per * (c // group), (o // per + 1) * (c // group))
            place = (i * stride + a * dilation, j * stride + d * dilation)
            y[:, o, place[0], place[1]] += (x[:, part, i, j] * w[part, o % per, a, d]).sum(1)
    return y[:, :, pad : size[0] - pad, pad : size[1] - pad] + b.reshape(-1, 1, 1)


def across(x, size, alpha, beta, k):
    y = np.empty_like(x)
    for c in range(x.shape[1]):
        near = x[:, max(0, c - size // 2) : c + size // 2 + 1]
        y[:, c] = x[:, c] / (k + alpha / size * (near**2).sum(1)) ** beta
    return y


def within(x, size, alpha, beta):
    around = np.pad(x**2, [(0, 0), (0, 0), (size // 2, size // 2), (size // 2, size // 2)])
    windows = np.lib.stride_tricks.sliding_window_view(around, (size, size), (2, 3))
    return x * (1 + alpha * windows.mean((-1, -2))) ** -beta


def moments(axes, *, scaled=True, eps=1e-9):
    away = N - N.mean(axes, keepdims=True)
    return away / (np.sqrt((away**2).mean(axes, keepdims=True)) + eps) if scaled else away


def last(x, axis):
    """Return the position of the maximum, the last one among equals."""
    return x.shape[axis] - 1 - np.flip(x, axis).argmax(axis)


ROWS = N.reshape(2, -1)
CASES = {
    "sigmoid": (layer("Sigmoid"), {}, lambda: 1 / (1 + np.exp(-N))),
    "tanh": (layer("TanH"), {}, lambda: np.tanh(N)),
    "absolute": (layer("AbsVal"), {}, lambda: np.abs(N)),
    "bnll": (layer("BNLL"), {}, lambda: np.log(1 + np.exp(N))),
    "elu": (layer("ELU", "elu_param { alpha: 0.5 }"), {}, lambda: np.where(N > 0, N, 0.5 * (np.exp(N) - 1))),
    "prelu": (layer("PReLU"), {"l": [SLOPES]}, lambda: np.where(N > 0, N, N * SLOPES.numpy().reshape(-1, 1, 1))),
    "prelu shared": (layer("PReLU", "prelu_param { channel_shared: true }"), {"l": [torch.tensor([-0.5])]},
                     lambda: np.where(N > 0, N, -0.5 * N)),
    "power": (layer("Power", "power_param { power: 2 scale: 0.5 shift: 3 }"), {}, lambda: (3 + 0.5 * N) ** 2),
    "power of 1": (layer("Power", "power_param { scale: -2 }"), {}, lambda: -2 * N),
    "power of nothing": (layer("Power"), {}, lambda: N),
    "exp": (layer("Exp", "exp_param { scale: 0.5 shift: 1 }"), {}, lambda: np.exp(1 + 0.5 * N)),
    "exp of base 2": (layer("Exp", "exp_param { base: 2 shift: 1 }"), {}, lambda: 2 ** (1 + N)),
    "log": (layer("Log", "log_param { shift: 5 }"), {}, lambda: np.log(5 + N)),
    "log of base 10": (layer("Log", "log_param { base: 10 scale: 2 shift: 9 }"), {}, lambda: np.log10(9 + 2 * N)),
    "threshold": (layer("Threshold", "threshold_param { threshold: 1 }"), {}, lambda: (N > 1).astype(float)),
    "bias": (layer("Bias", "bias_param { axis: -1 }"), {"l": [B]}, lambda: N + B.numpy()),
    "across": (layer("LRN", "lrn_param { local_size: 3 alpha: 0.5 beta: 0.5 k: 2 }"), {}, lambda: across(N, 3, 0.5, 0.5, 2)),
    "across by default": (layer("LRN"), {}, lambda: across(N, 5, 1, 0.75, 1)),
    "within": (layer("LRN", "lrn_param { local_size: 3 alpha: 0.5 norm_region: WITHIN_CHANNEL }"), {}, lambda: within(N, 3, 0.5, 0.75)),
    "moments": (layer("MVN"), {}, lambda: moments((2, 3))),
    "moments across": (layer("MVN", "mvn_param { across_channels: true eps: 0.5 }"), {}, lambda: moments((1, 2, 3), eps=0.5)),
    "mean alone": (layer("MVN", "mvn_param { normalize_variance: false }"), {}, lambda: moments((2, 3), scaled=False)),
    "normalize": (layer("Normalize", "norm_param { across_spatial: false channel_shared: false }"), {"l": [SLOPES]},
                  lambda: N / np.sqrt((N**2).sum(1, keepdims=True) + 1e-10) * SLOPES.numpy().reshape(-1, 1, 1)),
    "normalize all": (layer("Normalize"), {"l": [torch.tensor([20.0])]},
                      lambda: 20 * N / np.sqrt((N**2).sum((1, 2, 3), keepdims=True) + 1e-10)),
    "deconvolution": (
        layer("Deconvolution", "convolution_param { num_output: 6 group: 2 kernel_h: 3 kernel_w: 2 stride: 2 pad: 1 }"),
        {"l": [W, B]}, lambda: transposed(N, W.numpy(), B.numpy(), 2, 1, 1, 2),
    ),
    "flatten": (layer("Flatten"), {}, lambda: ROWS),
    "flatten the middle": (layer("Flatten", "flatten_param { axis: 1 end_axis: 2 }"), {}, lambda: N.reshape(2, 28, 6)),
    "flatten the end": (layer("Flatten", "flatten_param { axis: -2 }"), {}, lambda: N.reshape(2, 4, 42)),
    "reshape": (layer("Reshape", "reshape_param { shape { dim: 0 dim: 2 dim: -1 } }"), {}, lambda: N.reshape(2, 2, 84)),
    "reshape from an axis": (layer("Reshape", "reshape_param { shape { dim: 6 dim: -1 } axis: 2 }"), {}, lambda: N.reshape(2, 4, 6, 7)),
    "reshape to more": (layer("Reshape", "reshape_param { shape { dim: 1 } axis: -1 num_axes: 0 }"), {}, lambda: N[..., None]),
    "permute": (layer("Permute", "permute_param { order: 0 order: 2 order: 3 }"), {}, lambda: N.transpose(0, 2, 3, 1)),
    "tile": (layer("Tile", "tile_param { axis: -2 tiles: 3 }"), {}, lambda: np.tile(N, (1, 1, 3, 1))),
    "slice": (layer("Slice", "slice_param { axis: 2 slice_point: 1 slice_point: 3 }", top="a b c", name="s") + layer("ReLU", bottom="b"),
              {}, lambda: np.maximum(N[:, :, 1:3], 0)),
    "crop": (layer("Pooling", "pooling_param { kernel_size: 3 stride: 2 }", top="p", name="p") + layer("Crop", "crop_param { offset: 2 }", "x p"),
             {}, lambda: N[:, :, 2:5, 2:5]),
    "crop of channels": (layer("Crop", "crop_param { axis: 1 offset: 0 }", "x x"), {}, lambda: N),
    "sum": (layer("Reduction", "reduction_param { axis: 1 coeff: 0.5 }"), {}, lambda: 0.5 * N.sum((1, 2, 3))),
    "sum of all": (layer("Reduction"), {}, N.sum),
    "magnitudes": (layer("Reduction", "reduction_param { operation: ASUM axis: -1 }"), {}, lambda: np.abs(N).sum(-1)),
    "squares": (layer("Reduction", "reduction_param { operation: SUMSQ axis: 2 }"), {}, lambda: (N**2).sum((2, 3))),
    "mean": (layer("Reduction", "reduction_param { operation: MEAN axis: 2 }"), {}, lambda: N.mean((2, 3))),
    "argmax": (layer("ArgMax"), {}, lambda: last(ROWS, 1).reshape(2, 1, 1, 1)),
    "argmax and value": (layer("ArgMax", "argmax_param { out_max_val: true }"), {},
                         lambda: np.stack([last(ROWS, 1), ROWS.max(1)], 1).reshape(2, 2, 1, 1)),
    "argmax of channels": (layer("ArgMax", "argmax_param { axis: 1 }"), {}, lambda: last(N, 1)[:, None]),
    "maximum of channels": (layer("ArgMax", "argmax_param { axis: 1 out_max_val: true }"), {}, lambda: N.max(1, keepdims=True)),
    "rows of several axes": (
        layer("InnerProduct", "inner_product_param { num_output: 5 axis: 2 }"), {"l": [whole(5, 42, seed=3), whole(5, seed=4)]},
        lambda: N.reshape(2, 4, 42) @ whole(5, 42, seed=3).numpy().T + whole(5, seed=4).numpy(),
    ),
    "transposed rows of the last axis": (
        layer("InnerProduct", "inner_product_param { num_output: 5 axis: -1 transpose: true bias_term: false }"),
        {"l": [whole(6, 5, seed=3)]}, lambda: N @ whole(6, 5, seed=3).numpy(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_layer_computes_its_formula(tmp_path, name):
    text, blobs, expected = CASES[name]
    graph = load_caffe_graph(*files(tmp_path, INPUT + "\n" + text, blobs))
    y = TorchExecutor(graph, platform="fp32").forward(X)[-1]
    assert tuple(y.shape) == np.shape(expected())
    assert np.allclose(y.numpy(), expected(), rtol=2e-6, atol=2e-6)


def test_a_slice_without_points_gives_equal_parts(tmp_path):
    text = layer("Slice", top="a b", name="s") + layer("Concat", "", "b a")
    (y,) = run(tmp_path, INPUT + text)
    assert torch.equal(y, torch.cat([X[:, 2:], X[:, :2]], 1))


def test_a_caffe_split_copies_its_tensor(tmp_path):
    text = layer("Split", top="a b", name="s") + layer("Eltwise", "eltwise_param { operation: PROD }", "a b")
    (y,) = run(tmp_path, INPUT + text)
    assert torch.equal(y, X * X)


@pytest.mark.parametrize("old_shapes", [False, True])
def test_an_embedding_selects_rows_by_index(tmp_path, old_shapes):
    rows, constants, places = whole(9, 3, seed=1), whole(3, seed=2), torch.tensor([[0.0, 8.0], [3.0, 3.0]])
    text = 'input: "x" input_shape { dim: 2 dim: 2 }' + layer("Embed", "embed_param { num_output: 3 input_dim: 9 }")
    (y,) = run(tmp_path, text, {"l": [rows, constants]}, places, old_shapes=old_shapes)
    assert torch.equal(y, rows[places.long()] + constants)


REFUSED = {
    "even": (layer("LRN", "lrn_param { local_size: 4 }"), {}, FormatError, "local_size=4"),
    "base": (layer("Log", "log_param { base: 1 }"), {}, FormatError, "has no logarithm"),
    "negative base": (layer("Exp", "exp_param { base: -2 }"), {}, FormatError, "base=-2"),
    "several": (layer("ArgMax", "argmax_param { top_k: 3 }"), {}, UnsupportedError, "top_k=3"),
    "axis": (layer("Reduction", "reduction_param { axis: 4 }"), {}, FormatError, r"axis=4: must lie in \[-4, 3\]"),
    "order": (layer("Permute", "permute_param { order: 0 order: 0 }"), {}, FormatError, "each once"),
    "points": (layer("Slice", "slice_param { slice_point: 3 slice_point: 1 }", top="a b c"), {}, FormatError, "rising"),
    "behind": (layer("Reshape", "reshape_param { shape { dim: 2 dim: 2 } axis: 1 num_axes: 4 }"), {}, FormatError, "must name some"),
    "offsets": (layer("Crop", "crop_param { offset: 1 offset: 2 offset: 3 }", "x x"), {}, FormatError, "3 offsets for 2 axes"),
    "bottoms": (layer("Crop"), {}, GraphError, "1 bottoms: must be 2"),
    "slopes": (layer("PReLU", "prelu_param { channel_shared: true }"), {"l": [SLOPES]}, FormatError, "must be one slope"),
    "rows": (layer("Embed", "embed_param { num_output: 3 input_dim: 9 bias_term: false }"), {"l": [W]}, FormatError, "weights of shape"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_an_invalid_layer_is_refused_with_its_place(tmp_path, name):
    text, blobs, error, said = REFUSED[name]
    with pytest.raises(error, match=said):
        load_caffe_graph(*files(tmp_path, INPUT + text, blobs))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (layer("Slice", "slice_param { slice_point: 1 }", top="a b"), ["a", "b"]),
        (layer("Split", top="a b", name="s") + layer("ReLU", bottom="a", top="c", name="r"), ["b", "c"]),
        (layer("ReLU", top="a", name="r") + layer("Dropout", bottom="a", top="b"), ["b"]),
        (
            layer("Slice", "slice_param { slice_point: 1 }", top="ab a", name="s")
            + layer("Dropout", bottom="ab", top="d"),
            ["a", "d"],
        ),
    ],
    ids=["parts", "a copy that is read elsewhere", "a dropout", "names that begin alike"],
)
def test_outputs_are_the_unread_tops_by_name(tmp_path, text, names):
    """Parts had names that are in no prototxt, and an unread copy was not an output."""
    assert list(load_caffe_graph(*files(tmp_path, f"{INPUT}\n{text}")).outputs) == names


def test_last_windows_are_dropped_or_clipped_per_axis(tmp_path):
    """ONNX's shape inference keeps the first, so that a layer after it was refused."""
    sizes = "pool: AVE kernel_h: 3 kernel_w: 4 stride: 3 pad_h: 2 pad_w: 1"
    text = 'input: "x" input_shape { dim: 1 dim: 1 dim: 4 dim: 3 }\n' + layer(
        "Pooling", f"pooling_param {{ {sizes} }}", top="p", name="p"
    )
    text += layer("Scale", "scale_param { axis: 1 num_axes: -1 }", bottom="p")
    x = torch.arange(12.0).reshape(1, 1, 4, 3)
    (found,) = run(tmp_path, text, {"l": [torch.ones(1, 2, 2)]}, x)
    sums, places = torch.tensor([[3.0, 3.0], [63.0, 36.0]]), torch.tensor([[12.0, 9.0], [12.0, 9.0]])
    torch.testing.assert_close(found, (sums / places).reshape(1, 1, 2, 2))


def test_a_reshape_of_some_axes_moves_the_others(tmp_path):
    """Axes after those that are reshaped move; such layers were refused."""
    x = whole(2, 4, 7, 6)
    for says, shape in (
        ("axis: 1 num_axes: 1 shape { dim: 2 dim: 2 }", (2, 2, 2, 7, 6)),
        ("axis: 1 num_axes: 2 shape { dim: -1 }", (2, 28, 6)),
    ):
        (found,) = run(tmp_path, f"{INPUT}\n" + layer("Reshape", f"reshape_param {{ {says} }}"), None, x)
        assert torch.equal(found, x.reshape(shape))


@pytest.mark.parametrize("kind", ["Scale", "Bias"])
@pytest.mark.parametrize("axis", [0, -4, 1])
def test_factors_and_constants_may_be_a_second_bottom(tmp_path, kind, axis):
    """The gate of a squeeze-and-excitation block, [n, c] from axis 0 on; it was refused."""
    pool = layer("Pooling", "pooling_param { pool: AVE global_pooling: true }", name="p", top="p")
    flat = layer("Flatten", f"flatten_param {{ axis: {1 if axis % 4 == 0 else 0} }}", name="f", bottom="p", top="f")
    x = X if axis % 4 == 0 else X[:1]
    head = INPUT if axis % 4 == 0 else INPUT.replace("dim: 2", "dim: 1", 1)
    both = kind == "Scale"
    says = "scale_param { axis: %d bias_term: true num_axes: 3 }" if both else "bias_param { axis: %d }"
    gate = layer(kind, says % axis, name="g", bottom="x f", top="g")
    shift = whole(*((2, 4) if axis % 4 == 0 else (4,)), seed=6)
    (found,) = run(tmp_path, "\n".join([head, pool, flat, gate]), {"g": [shift]} if both else None, x)
    factor, shift = (v.reshape(x.shape[0], 4, 1, 1) for v in (x.mean((2, 3)), shift))
    torch.testing.assert_close(found, x * factor + shift if both else x + factor)


def test_a_second_bottom_must_fit(tmp_path):
    text = layer("Scale", "scale_param { axis: 1 }", bottom="x x")
    with pytest.raises(FormatError, match="a second bottom of 4 axes from axis 1 of 4 on"):
        run(tmp_path, f"{INPUT}\n{text}", None, X)


@pytest.mark.parametrize("pool", ["MAX", "AVE"])
def test_the_only_window_of_an_axis_may_be_larger_than_the_image(tmp_path, pool):
    """Caffe rounds up to one window, and cuts it; it was refused when the network ran."""
    says = f"pooling_param {{ pool: {pool} kernel_h: 5 kernel_w: 3 stride: 2 pad_h: 1 }}"
    head = 'input: "x" input_shape { dim: 1 dim: 1 dim: 2 dim: 2 }\n'
    x = torch.tensor([[[[-1.0, -2], [-3, -6]]]])
    (found,) = run(tmp_path, head + layer("Pooling", says), None, x)
    assert found.tolist() == [[[[-1.0 if pool == "MAX" else -12 / 8]]]]
