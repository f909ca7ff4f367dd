"""Caffe networks: every layer against torch (and OpenCV's reader, where it is installed), and what is refused."""

from __future__ import annotations

import math
import random
import re

import pytest
import torch
import torch.nn.functional as F

from quantizer.core.errors import FormatError, GraphError, QuantizerError, UnsupportedError
from quantizer.ir.formats.caffe_proto import OLD_TYPES, net_parameter
from quantizer.ir.formats.caffe_writer import LAYERS
from quantizer.runtime.onnx.kernels import specs
from quantizer.runtime.onnx.registry_form import registry_form
from quantizer.runtime.onnx_model import load_caffe_graph
from quantizer.runtime.torch_executor import TorchExecutor

INPUT = 'input: "x" input_shape { dim: 2 dim: 4 dim: 7 dim: 6 }'


def whole(*shape, seed=0):
    """Return whole numbers, whose sums are exact in any order."""
    source = random.Random(seed)
    return torch.tensor([float(source.randint(-4, 4)) for _ in range(math.prod(shape))]).reshape(shape)


LABELS = {today: label for label, (_, today) in OLD_TYPES.items()}
"""Type of a layer -> its name in Caffe's format V1."""


def files(folder, text, blobs=None, *, old_shapes=False, v1=False):
    """Write a prototxt and a caffemodel with the blobs of each layer; return their paths."""
    net = net_parameter()()
    for name, values in (blobs or {}).items():
        layer = (net.layers if v1 else net.layer).add(name=name)
        for value in values:
            blob = layer.blobs.add(data=value.reshape(-1).tolist())
            if old_shapes:
                blob.num, blob.channels, blob.height, blob.width = (1,) * (4 - value.dim()) + tuple(value.shape)
            else:
                blob.shape.dim.extend(value.shape)
    (folder / "net.prototxt").write_text(text)
    (folder / "net.caffemodel").write_bytes(net.SerializeToString())
    return folder / "net.prototxt", folder / "net.caffemodel"


def run(folder, text, blobs=None, x=None, **named):
    graph = load_caffe_graph(*files(folder, text, blobs, **named))
    return TorchExecutor(graph, platform="fp32").forward(whole(2, 4, 7, 6) if x is None else x)


def layer(kind, param="", bottom="x", top="y", name="l"):
    tops = "".join(f'top: "{t}" ' for t in top.split())
    bottoms = "".join(f'bottom: "{b}" ' for b in bottom.split())
    return f'layer {{ name: "{name}" type: "{kind}" {bottoms} {tops} {param} }}\n'


X = whole(2, 4, 7, 6)
W, B = whole(6, 2, 3, 2, seed=1), whole(6, seed=2)
ROWS = whole(5, 168, seed=3)
FOUR = [whole(4, seed=s) for s in range(4, 8)]
POWERS = 2.0 ** whole(4, seed=8)
"""Variances whose roots and factors are exact."""


def padded(x, k, s, p, fill):
    """Return x with as much after it as Caffe's last windows need."""
    sizes = []
    for size, a, b, c in zip(x.shape[2:], k, s, p, strict=True):
        count = -(-(size + 2 * c - a) // b) + 1
        count -= int(bool(c) and (count - 1) * b >= size + c)
        sizes.append((count - 1) * b + a - size - c)
    return F.pad(x, [p[1], max(0, sizes[1]), p[0], max(0, sizes[0])], value=fill)


def caffe_mean(x, k, s, p):
    """Return the mean over windows as in Caffe's source: elements are counted up to the end of the padding."""
    sums = F.avg_pool2d(padded(x, k, s, p, 0.0), k, s) * (k[0] * k[1])
    counts = F.avg_pool2d(
        padded(F.pad(torch.ones_like(x), [p[1], p[1], p[0], p[0]], value=1.0), k, s, (0, 0), 0.0), k, s
    )
    counts = counts[..., : sums.shape[2], : sums.shape[3]] * (k[0] * k[1])
    return sums / counts


CASES = {
    "convolution": (
        layer("Convolution", "convolution_param { num_output: 6 group: 2 kernel_h: 3 kernel_w: 2 stride: 2 pad: 1 pad: 2 dilation: 2 }"),
        {"l": [W, B]}, lambda: F.conv2d(X, W, B, 2, (1, 2), 2, 2),
    ),
    "convolution without bias": (
        layer("Convolution", "convolution_param { num_output: 6 group: 2 kernel_size: 3 kernel_size: 2 bias_term: false }"),
        {"l": [W]}, lambda: F.conv2d(X, W, None, groups=2),
    ),
    "rows": (layer("InnerProduct", "inner_product_param { num_output: 5 }"), {"l": [ROWS, whole(5, seed=9)]},
             lambda: F.linear(X.flatten(1), ROWS, whole(5, seed=9))),
    "transposed rows": (
        layer("InnerProduct", "inner_product_param { num_output: 5 transpose: true bias_term: false }"), {"l": [ROWS.T]},
        lambda: F.linear(X.flatten(1), ROWS),
    ),
    "maxima": (layer("Pooling", "pooling_param { pool: MAX kernel_size: 3 stride: 2 }"), {},
               lambda: F.max_pool2d(X, 3, 2, ceil_mode=True)),
    "padded maxima": (layer("Pooling", "pooling_param { kernel_h: 3 kernel_w: 2 stride: 2 pad: 1 }"), {},
                      lambda: F.max_pool2d(padded(X, (3, 2), (2, 2), (1, 1), -math.inf), (3, 2), 2)),
    "rounded down": (layer("Pooling", "pooling_param { kernel_size: 3 stride: 2 round_mode: FLOOR }"), {},
                     lambda: F.max_pool2d(X, 3, 2)),
    "means": (layer("Pooling", "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }"), {},
              lambda: caffe_mean(X, (3, 3), (2, 2), (1, 1))),
    "overhanging means": (layer("Pooling", "pooling_param { pool: AVE kernel_size: 4 stride: 3 }"), {},
                          lambda: caffe_mean(X, (4, 4), (3, 3), (0, 0))),
    "global": (layer("Pooling", "pooling_param { pool: AVE global_pooling: true }"), {}, lambda: X.mean((2, 3), keepdim=True)),
    "relu": (layer("ReLU"), {}, X.relu),
    "slope": (layer("ReLU", "relu_param { negative_slope: 0.25 }"), {}, lambda: F.leaky_relu(X, 0.25)),
    "batch norm": (
        layer("BatchNorm", "batch_norm_param { eps: 0 }"), {"l": [FOUR[0] * 2, POWERS**2 * 2, torch.tensor([2.0])]},
        lambda: (X - FOUR[0].reshape(-1, 1, 1)) / POWERS.reshape(-1, 1, 1),
    ),
    "scale": (layer("Scale", "scale_param { bias_term: true }"), {"l": FOUR[:2]},
              lambda: X * FOUR[0].reshape(-1, 1, 1) + FOUR[1].reshape(-1, 1, 1)),
    "scale of columns": (layer("Scale", "scale_param { axis: -1 }"), {"l": [whole(6, seed=3)]}, lambda: X * whole(6, seed=3)),
    "weighted sum": (
        layer("ReLU", top="r", name="r") + layer("Eltwise", "eltwise_param { operation: SUM coeff: 2 coeff: -1 }", "x r"), {},
        lambda: 2 * X - X.relu(),
    ),
    "product": (layer("Eltwise", "eltwise_param { operation: PROD }", "x x x"), {}, lambda: X**3),
    "larger": (layer("ReLU", top="r", name="r") + layer("Eltwise", "eltwise_param { operation: MAX }", "x r"), {},
               X.relu),
    "concat": (layer("Concat", "", "x x"), {}, lambda: torch.cat([X, X], 1)),
    "concat of rows": (layer("Concat", "concat_param { axis: 2 }", "x x"), {}, lambda: torch.cat([X, X], 2)),
    "concat_dim": (layer("Concat", "concat_param { concat_dim: 3 }", "x x"), {}, lambda: torch.cat([X, X], 3)),
    "in place": (layer("ReLU", top="x", name="a") + layer("Eltwise", "", "x x"), {}, lambda: 2 * X.relu()),
    "dropout": (layer("Dropout", "dropout_param { dropout_ratio: 0.3 }", top="x", name="d") + layer("ReLU"), {}, X.relu),
    "training is left out": (
        layer("Softmax", "include { phase: TRAIN }", top="q", name="t") + layer("ReLU", "exclude { phase: TRAIN }"), {},
        X.relu,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_layer_equals_its_caffe_definition(tmp_path, name):
    text, blobs, expected = CASES[name]
    (y,) = run(tmp_path, INPUT + "\n" + text, blobs)
    assert torch.equal(y, expected())


@pytest.mark.parametrize("axis", [1, 2])
def test_softmax_along_its_axis(tmp_path, axis):
    (y,) = run(tmp_path, INPUT + layer("Softmax", f"softmax_param {{ axis: {axis} }}"))
    torch.testing.assert_close(y, X.softmax(axis))


NETWORK = f"""name: "small"
{layer("Input", "input_param { shape { dim: 2 dim: 4 dim: 7 dim: 6 } }", "", "x", "data")}
{layer("Convolution", "convolution_param { num_output: 6 group: 2 kernel_h: 3 kernel_w: 2 weight_filler { type: 'xavier' } }", top="c", name="conv")}
{layer("ReLU", "", "c", "c", "relu")}
{layer("Pooling", "pooling_param { pool: AVE kernel_size: 2 stride: 2 }", "c", "p", "pool")}
{layer("InnerProduct", "inner_product_param { num_output: 3 }", "p", "f", "rows")}
{layer("Softmax", "", "f", "prob", "prob")}
"""
CONSTANTS = {"conv": [W, B], "rows": [whole(3, 54, seed=5), whole(3, seed=6)]}


def by_hand(x):
    c = F.avg_pool2d(F.conv2d(x, W, B, groups=2).relu(), 2, 2, ceil_mode=True)
    return F.linear(c.flatten(1), *CONSTANTS["rows"]).softmax(1)


def test_a_network_runs_and_has_a_registry_form(tmp_path):
    graph = load_caffe_graph(*files(tmp_path, NETWORK, CONSTANTS))
    assert graph.inputs == ("x",)
    assert graph.outputs == ("prob",)
    assert graph.tensor("x").shape == (2, 4, 7, 6)
    torch.testing.assert_close(TorchExecutor(graph, platform="fp32").forward(X)[0], by_hand(X))
    assert {node.op for node in registry_form(graph).nodes} <= specs().keys()


def test_opencv_reads_the_same_network(tmp_path):
    cv2 = pytest.importorskip("cv2", reason="another reader of Caffe's files: pip install 'opencv-python-headless<5'")
    graph_files = files(tmp_path, NETWORK, CONSTANTS)
    net = cv2.dnn.readNetFromCaffe(*map(str, graph_files))
    net.setInput(X.numpy())
    expected = torch.from_numpy(net.forward())
    torch.testing.assert_close(TorchExecutor(load_caffe_graph(*graph_files), platform="fp32").forward(X)[0], expected)


def test_blobs_of_the_old_shape_are_read(tmp_path):
    (y,) = run(tmp_path, INPUT + CASES["rows"][0], CASES["rows"][1], old_shapes=True)
    assert torch.equal(y, CASES["rows"][2]())


IN_V1 = [name for name, (text, *_) in CASES.items() if set(re.findall(r'type: "(\w+)"', text)) <= set(LABELS)]


def as_v1(text):
    """Return a prototxt in the format V1: `layers`, whose types are an enumeration."""
    return re.sub(r'type: "(\w+)"', lambda found: f"type: {LABELS[found[1]]}", text.replace("layer {", "layers {"))


@pytest.mark.parametrize("name", IN_V1)
def test_v1_layers_equal_current_layers(tmp_path, name):
    text, blobs, expected = CASES[name]
    (y,) = run(tmp_path, INPUT + as_v1(text), blobs, v1=True)
    torch.testing.assert_close(y, expected())


def test_most_layers_are_tested_in_the_format_v1():
    assert len(IN_V1) >= 15


def test_phase_rules_apply_to_v1_layers(tmp_path):
    text = as_v1(layer("ReLU", top="r", name="r") + layer("TanH", "include { phase: TRAIN }", "r", "r", "t"))
    (y,) = run(tmp_path, INPUT + text)
    assert torch.equal(y, X.relu())


@pytest.mark.parametrize(
    ("param", "blobs", "expected"),
    [
        ("bias_term: true", FOUR[:2], lambda: X * FOUR[0].reshape(1, 4, 1, 1) + FOUR[1].reshape(1, 4, 1, 1)),
        ("", FOUR[:1], lambda: X * FOUR[0].reshape(1, 4, 1, 1)),
        ("axis: -1", [whole(6, seed=3)], lambda: X * whole(6, seed=3)),
        ("axis: 1 num_axes: 2", [whole(4, 7, seed=4)], lambda: X * whole(4, 7, seed=4).reshape(1, 4, 7, 1)),
        ("axis: 1 num_axes: -1", [whole(4, 7, 6, seed=5)], lambda: X * whole(4, 7, 6, seed=5)),
        ("axis: 0 num_axes: -1", [whole(2, 4, 7, 6, seed=6)], lambda: X * whole(2, 4, 7, 6, seed=6)),
        ("num_axes: 0", [torch.tensor(3.0)], lambda: X * 3),
        ("", [whole(1, 4, 1, 1, seed=7)], lambda: X * whole(1, 4, 1, 1, seed=7)),
    ],
)
def test_legacy_scale_blobs_take_the_axes_of_their_layer(tmp_path, param, blobs, expected):
    (y,) = run(tmp_path, INPUT + layer("Scale", f"scale_param {{ {param} }}"), {"l": blobs}, old_shapes=True)
    assert torch.equal(y, expected())


def test_a_legacy_blob_of_another_shape_is_refused(tmp_path):
    with pytest.raises(UnsupportedError, match=r"factors of shape \[1, 2, 2, 1\]"):
        run(tmp_path, INPUT + layer("Scale"), {"l": [whole(2, 2, 1, seed=1)]}, old_shapes=True)


def pooled(x, k, s, p, *, mean):
    """Return Caffe's pool, window by window, and whether each of its windows begins in x or its padding.

    Source: the shapes and the sums of Caffe's pooling layer.
    """
    sizes = x.shape[2:]
    counts = [math.ceil((n + 2 * p[i] - k[i]) / s[i]) + 1 for i, n in enumerate(sizes)]
    if any(p):
        counts = [c - 1 if (c - 1) * s[i] >= sizes[i] + p[i] else c for i, c in enumerate(counts)]
    y = torch.empty(*x.shape[:2], *counts)
    for row in range(counts[0]):
        for column in range(counts[1]):
            begin = [place * s[i] - p[i] for i, place in enumerate((row, column))]
            end = [min(b + k[i], sizes[i] + p[i]) for i, b in enumerate(begin)]
            cut = [slice(max(b, 0), max(0, min(e, n))) for b, e, n in zip(begin, end, sizes, strict=True)]
            part = x[:, :, cut[0], cut[1]].flatten(2)
            count = math.prod(e - b for b, e in zip(begin, end, strict=True))
            if mean:
                y[:, :, row, column] = part.sum(2) / count
            else:
                y[:, :, row, column] = part.amax(2) if part.numel() else torch.finfo(torch.float32).min
    inside = all((c - 1) * s[i] < sizes[i] + p[i] for i, c in enumerate(counts))
    return y, inside


@pytest.mark.parametrize("seed", range(40))
def test_pool_windows_follow_caffe_for_any_stride(tmp_path, seed):
    source = random.Random(seed)
    x = whole(1, 2, source.randint(3, 9), source.randint(3, 9), seed=seed)
    k, s = ([source.randint(1, 3), source.randint(1, 3)] for _ in range(2))
    k = [1, 1] if seed % 4 == 0 else k
    s = [max(2, n) for n in s] if seed % 4 == 0 else s
    p = [source.randint(0, n - 1) if seed % 2 else 0 for n in k]
    mean = seed % 3 == 0
    expected, inside = pooled(x.relu(), k, s, p, mean=mean)
    sizes = " ".join(f"{key}_h: {v[0]} {key}_w: {v[1]}" for key, v in (("kernel", k), ("stride", s), ("pad", p)))
    text = f'input: "x" input_shape {{ {" ".join(f"dim: {n}" for n in x.shape)} }}' + layer("ReLU", top="r", name="r")
    text += layer("Pooling", f"pooling_param {{ pool: {'AVE' if mean else 'MAX'} {sizes} }}", bottom="r")
    if mean and not inside:
        with pytest.raises(UnsupportedError, match="begins beyond the image"):
            run(tmp_path, text, x=x)
        return
    (y,) = run(tmp_path, text, x=x)
    assert y.shape == expected.shape
    assert torch.equal(y, expected) if not mean else torch.allclose(y, expected, rtol=1e-6)


def test_a_pool_may_follow_one_with_a_caffe_only_shape(tmp_path):
    x = whole(1, 2, 7, 6)
    first = layer("Pooling", "pooling_param { kernel_size: 2 stride: 2 pad: 1 }", top="p", name="p")
    second = layer("Pooling", "pooling_param { kernel_size: 1 stride: 2 }", bottom="p")
    (y,) = run(tmp_path, 'input: "x" input_shape { dim: 1 dim: 2 dim: 7 dim: 6 }' + first + second, x=x)
    middle, _ = pooled(x, (2, 2), (2, 2), (1, 1), mean=False)
    assert torch.equal(y, pooled(middle, (1, 1), (2, 2), (0, 0), mean=False)[0])


def test_every_required_caffe_layer_is_supported():
    named = {"Input", "Convolution", "InnerProduct", "Pooling", "ReLU", "BatchNorm", "Scale", "Eltwise", "Concat", "Softmax",
             "Dropout", "Sigmoid", "TanH", "PReLU", "Deconvolution", "Flatten", "LRN", "Power", "Exp", "Log", "AbsVal", "ELU",
             "BNLL", "Slice", "Split", "Crop", "ArgMax", "Reduction", "Tile", "Permute", "Normalize", "Reshape", "Embed",
             "Threshold", "Bias", "MVN"}  # fmt: skip
    assert set(LAYERS) == named


REFUSED = {
    "unsupported": (INPUT + layer("SPP", top="a", name="a") + layer("PriorBox"), {}, UnsupportedError,
                    "layers of type PriorBox, SPP: supported are AbsVal"),
    "unknown field": (INPUT + layer("ReLU", "relu_param { slop: 1 }"), {}, FormatError, "slop"),
    "no text": (INPUT + "layer {", {}, FormatError, "net.prototxt: "),
    "no layer": (INPUT, {}, FormatError, "no layer that computes"),
    "no bottom": (INPUT + layer("ReLU", bottom="z"), {}, GraphError, r"layer 'l' \(ReLU\): bottom 'z'"),
    "made twice": (INPUT + layer("ReLU") + layer("ReLU", name="m"), {}, GraphError, "'y': two outputs or inputs have this name"),
    "no blobs": (INPUT + CASES["convolution"][0], {}, FormatError, "has 0 blobs for it: must have 2"),
    "other weights": (INPUT + CASES["convolution"][0], {"l": [W[:5], B]}, FormatError, "weights of shape"),
    "other constants": (INPUT + CASES["scale"][0], {"l": [FOUR[0], FOUR[1][:1]]}, UnsupportedError, "they must fit"),
    "no stride": (INPUT + layer("Pooling", "pooling_param { kernel_size: 3 stride: 0 }"), {}, FormatError, r"strides=\[0, 0\]"),
    "two bottoms": (INPUT + layer("ReLU", bottom="x x"), {}, GraphError, "2 bottoms: must be 1"),
    "two tops": (INPUT + layer("ReLU", top="y z"), {}, UnsupportedError, "2 tops"),
    "shape": ('input: "x"' + layer("ReLU"), {}, FormatError, "1 inputs with 0 shapes"),
    "giant": ('input: "x" input_shape { dim: 999999999999 }' + layer("ReLU"), {}, FormatError, "every size must lie in"),
    "stochastic": (INPUT + layer("Pooling", "pooling_param { pool: STOCHASTIC kernel_size: 2 }"), {}, UnsupportedError, "MAX or AVE"),
    "no elements": (INPUT + layer("Pooling", "pooling_param { pool: AVE kernel_size: 1 stride: 2 }"), {}, UnsupportedError,
                    "begins beyond the image"),
    "oldest": ('layers { layer { name: "l" type: "conv" num_output: 3 } }', {}, UnsupportedError, "'l' has Caffe's format V0"),
    "no type": (INPUT + 'layers { name: "l" bottom: "x" top: "y" }', {}, UnsupportedError, r"layers of type \(no type\)"),
    "data": (INPUT + "layers { type: DATA data_param { source: 'd' } }", {}, UnsupportedError, "layers of type Data"),
    "both": (INPUT + layer("ReLU") + as_v1(layer("ReLU")), {}, FormatError, "both 'layer' and 'layers'"),
    "nested": (INPUT + "layer { blobs { " + "shape { " * 2000, {}, FormatError, "net.prototxt: "),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_an_invalid_network_is_refused_with_its_place(tmp_path, name):
    text, blobs, error, said = REFUSED[name]
    with pytest.raises(error, match=said):
        load_caffe_graph(*files(tmp_path, text, blobs))


def test_a_blob_larger_than_its_data_is_refused_before_allocation(tmp_path):
    text, model = files(tmp_path, INPUT + CASES["rows"][0])
    net = net_parameter()()
    blob = net.layer.add(name="l").blobs.add(data=[1.0])
    blob.shape.dim.extend([1 << 40, 1 << 40])
    model.write_bytes(net.SerializeToString())
    with pytest.raises(FormatError, match=r"layer 'l': blob 0: shape \[1099511627776"):
        load_caffe_graph(text, model)


@pytest.mark.parametrize("seed", range(30))
def test_damaged_bytes_are_named_errors(tmp_path, seed):
    source = random.Random(seed)
    text, model = files(tmp_path, NETWORK, CONSTANTS)
    for path in (text, model):
        data = bytearray(path.read_bytes())
        for _ in range(source.randint(1, 4)):
            data[source.randrange(len(data))] = source.randrange(256)
        damaged = path.with_name(f"damaged{path.suffix}")
        damaged.write_bytes(data[: source.randint(len(data) // 2, len(data))])
        try:
            load_caffe_graph(damaged if path is text else text, damaged if path is model else model)
        except QuantizerError as err:
            assert str(err)


def test_files_that_are_missing_are_named(tmp_path):
    text, model = files(tmp_path, NETWORK, CONSTANTS)
    with pytest.raises(FormatError, match=r"missing\.prototxt: cannot be read"):
        load_caffe_graph(tmp_path / "missing.prototxt", model)
    with pytest.raises(FormatError, match=r"missing\.caffemodel: cannot be read"):
        load_caffe_graph(text, tmp_path / "missing.caffemodel")
