"""Top MLIR: what is written is read back the same, MLIR's own parser takes it, and what is wrong is refused with a place."""

from __future__ import annotations

import io
import random
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from top_graphs import NUMBERS, OPERATORS, constant, convolution, graph_of, steps, tensor

from quantizer.core.errors import FormatError, QuantizerError, UnsupportedError
from quantizer.ir.formats import mlir_text, npz
from quantizer.ir.formats.top_mlir import from_bytes, header, read, to_bytes, write
from quantizer.ir.formats.top_ops import STRUCTURE, TOP_OPS
from quantizer.ir.graph import FREE, Graph, Node, Tensor, same

SEEDS = 5
CONV = """module @Conv attributes {module.chip = "ALL", module.platform = "TPULANG", module.state = "TOP_F32", module.top_run_mode = "STATIC", module.weight_file = "conv_top_f32_all_origin_weight.npz"} {
  func.func @main(%arg0: tensor<1x3x28x28xf32> loc(unknown)) -> tensor<1x8x26x26xf32> {
    %0 = "top.Input"(%arg0) {do_preprocess = false} : (tensor<1x3x28x28xf32>) -> tensor<1x3x28x28xf32> loc("x")
    %1 = "top.Weight"() : () -> tensor<8x3x3x3xf32> loc("w")
    %2 = "top.Weight"() : () -> tensor<8xf32> loc("b")
    %3 = "top.Conv"(%0, %1, %2) {dilations = [1, 1], do_relu = false, group = 1 : i64, kernel_shape = [3, 3], pads = [0, 0, 0, 0], strides = [1, 1]} : (tensor<1x3x28x28xf32>, tensor<8x3x3x3xf32>, tensor<8xf32>) -> tensor<1x8x26x26xf32> loc("conv0")
    %4 = "top.Relu"(%3) : (tensor<1x8x26x26xf32>) -> tensor<1x8x26x26xf32> loc("y")
    return %4 : tensor<1x8x26x26xf32> loc(unknown)
  } loc(unknown)
} loc(unknown)
"""


def arrays(weights: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(weights), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def back(graph: Graph, name: str = "one") -> Graph:
    text, weights = to_bytes(graph, name, "TOP_QUANTIZED")
    return from_bytes(text, arrays(weights))


def test_the_text_of_a_convolution_is_known():
    assert to_bytes(convolution(), "Conv", "TOP_F32")[0] == CONV


@pytest.mark.parametrize("op", OPERATORS)
def test_every_operator_is_read_back_the_same(op):
    for seed in range(SEEDS):
        graph = graph_of(op, seed)
        assert same(graph, back(graph)) is None, to_bytes(graph, "one", "TOP_F32")[0]


def test_the_drawn_graphs_use_every_attribute_and_every_presence():
    drawn = [node for op in OPERATORS for seed in range(SEEDS) for node in graph_of(op, seed).nodes]
    used = {(node.op, key) for node in drawn for key in node.attrs}
    declared = {(op, key) for op in OPERATORS for key in TOP_OPS[op].attributes}
    assert len(declared - used) < len(declared) // 20, declared - used
    assert any(None in node.inputs for node in drawn)
    assert any("#" in name for node in drawn for name in node.outputs)


@pytest.mark.parametrize("op", OPERATORS)
def test_the_mlir_parser_accepts_every_operator(op):
    pytest.importorskip("xdsl", reason="a second parser of MLIR: install the extra [mlir]")
    from xdsl.context import Context
    from xdsl.dialects.builtin import Builtin
    from xdsl.dialects.func import Func
    from xdsl.parser import Parser

    context = Context(allow_unregistered=True)
    context.load_dialect(Builtin)
    context.load_dialect(Func)
    for seed in range(SEEDS):
        graph = graph_of(op, seed)
        module = Parser(context, to_bytes(graph, "one", "TOP_F32")[0]).parse_module()
        module.verify()
        found = [item.op_name.data for item in module.walk() if item.name == "builtin.unregistered"]
        assert [name for name in found if name not in STRUCTURE] == [op]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_every_number_format_survives_the_archive_bit_for_bit(dtype):
    rng = random.Random(dtype)
    held = constant(rng, "w", (3, 2), dtype)
    graph = Graph("one", (Node("y", "top.Abs", ("w",), ("y",)),), {"w": held, "y": tensor("y", (3, 2))}, (), ("y",))
    assert same(graph, back(graph)) is None


def test_float16_is_stored_as_bits_and_also_read_as_numbers():
    held = Tensor("w", (2,), tensor("", (), "float16").dtype, torch.tensor([1.5, -2.0], dtype=torch.float16))
    graph = Graph("one", (Node("y", "top.Abs", ("w",), ("y",)),), {"w": held, "y": tensor("y", (2,))}, (), ("y",))
    text, weights = to_bytes(graph, "one", "TOP_F32")
    kept = arrays(weights)["w"]
    assert kept.dtype == np.uint16
    assert kept.view(np.float16).tolist() == [1.5, -2.0]
    assert same(graph, from_bytes(text, {"w": kept.view(np.float16)})) is None


@pytest.mark.parametrize(
    ("qparams", "text"),
    [
        (steps("int8", 0.5, 0), "!quant.uniform<i8:f32, 0.5>"),
        (steps("int8", 1e-05, -128), "!quant.uniform<i8:f32, 1.0e-05:-128>"),
        (steps("uint8", 3.0, 255), "!quant.uniform<u8:f32, 3.0:255>"),
        (steps("int8", 0.1, 0, codes=(-127, 127)), "!quant.uniform<i8<-127:127>:f32, 0.1>"),
        (steps("int16", [0.5, 1.0, 2.0], [0, -1, 2], 0), "!quant.uniform<i16:f32:0, {0.5, 1.0:-1, 2.0:2}>"),
        (steps("uint16", [0.5, 1e20], [1, 0], 1), "!quant.uniform<u16:f32:1, {0.5:1, 1.0e+20}>"),
    ],
)
def test_a_quantized_type_is_written_and_read_again(qparams, text):
    name = qparams.dtype.name
    graph = Graph(
        "one",
        (Node("y", "top.Abs", ("x",), ("y",)),),
        {"x": tensor("x", (3, 2), name, qparams), "y": tensor("y", (3, 2), name, qparams)},
        ("x",),
        ("y",),
    )
    assert f"tensor<3x2x{text}>" in to_bytes(graph, "one", "TOP_QUANTIZED")[0]
    assert same(graph, back(graph)) is None


def test_tpulang_scales_on_axis_1_mean_output_channels():
    graph = convolution(quantized=True)
    text, weights = to_bytes(graph, "Conv", "TOP_QUANTIZED")
    theirs = text.replace("i8:f32:0, {", "i8:f32:1, {")
    assert theirs != text
    assert same(graph, from_bytes(theirs, arrays(weights))) is None


def test_weights_are_written_before_their_first_reader():
    rng = random.Random(1)
    held = {name: constant(rng, name, (2,)) for name in ("c", "a", "b", "unused")}
    made = {name: tensor(name, (2,)) for name in ("u", "v")}
    nodes = (Node("u", "top.Add", ("a", "a"), ("u",)), Node("v", "top.Add", ("u", "c"), ("v",)))
    graph = Graph("one", nodes, held | made, (), ("v", "b"))
    text, weights = to_bytes(graph, "one", "TOP_F32")
    assert list(arrays(weights)) == ["a", "c", "b"]
    left = replace(graph, tensors={name: item for name, item in graph.tensors.items() if name != "unused"})
    assert same(left, from_bytes(text, arrays(weights))) is None


def test_sizes_known_only_when_the_graph_runs():
    free = Tensor("x", (1, FREE), tensor("", ()).dtype)
    rankless = Tensor("y", (), tensor("", ()).dtype, ranked=False)
    nodes = (Node("y", "top.Abs", ("x",), ("y",)),)
    graph = Graph("one", nodes, {"x": free, "y": rankless}, ("x",), ("y",), dynamic=True)
    text = to_bytes(graph, "one", "TOP_F32")[0]
    assert "tensor<1x?xf32>" in text
    assert "tensor<*xf32>" in text
    assert same(graph, back(graph)) is None


def test_an_input_that_is_preprocessed_is_a_node():
    attrs = {"do_preprocess": True, "mean": (0.5, 0.25), "scale": (1.0, 0.1), "pixel_format": "bgr", "pad_value": 0}
    nodes = (Node("x", "top.Input", (), ("x",), attrs), Node("y", "top.Abs", ("x",), ("y",)))
    graph = Graph("one", nodes, {name: tensor(name, (1, 3)) for name in "xy"}, ("x",), ("y",))
    assert same(graph, back(graph)) is None


def test_written_files_are_deterministic(tmp_path: Path):
    graph = convolution(quantized=True)
    first, second = (write(graph, tmp_path / str(i), "Conv", "TOP_QUANTIZED") for i in range(2))
    assert first.text.name == "Conv_origin.mlir"
    assert header(first.text)["weight_file"] == first.weights.name == "conv_top_quantized_all_origin_weight.npz"
    assert header(first.text)["state"] == "TOP_QUANTIZED"
    assert [first.text.read_bytes(), first.weights.read_bytes()] == [
        second.text.read_bytes(),
        second.weights.read_bytes(),
    ]
    assert {entry.date_time for entry in zipfile.ZipFile(first.weights).infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert same(graph, read(first.text)) is None


def test_an_unwritable_graph_leaves_files_unchanged(tmp_path: Path):
    files = write(convolution(), tmp_path, "Conv", "TOP_F32")
    before = files.text.read_bytes()
    bad = convolution().with_node(Node("y", "top.Relu", ("conv0",), ("y",), {"relu_limit": 6}))
    with pytest.raises(
        UnsupportedError, match=r"node 'y' \(top.Relu\): attribute 'relu_limit': 6 cannot be written: must be a float"
    ):
        write(bad, tmp_path, "Conv", "TOP_F32")
    assert files.text.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 2


def _changed(**changes: object) -> Graph:
    return convolution().with_node(replace(convolution().node("y"), **changes))


UNWRITABLE = {
    "no operator 'top.Rel' of Top. Did you mean 'top.Relu'": lambda: _changed(op="top.Rel"),
    "no attribute 'limit'": lambda: _changed(attrs={"limit": 6.0}),
    "attribute 'axis' is missing": lambda: _changed(op="top.Softmax"),
    "carries more than Top's attributes": lambda: _changed(activation="relu"),
    "must be called as its first output: 'y'": lambda: replace(
        convolution(), nodes=(convolution().nodes[0], Node("relu", "top.Relu", ("conv0",), ("y",)))
    ),
    "2 inputs: must be 1: input": lambda: _changed(inputs=("conv0", "x")),
    "input must be a tensor, not none": lambda: _changed(inputs=(None,)),
    "must be one of HalfAwayFromZero": lambda: _changed(op="top.Tanh", attrs={"round_mode": "half_up"}),
    "9223372036854775808 cannot be written: must be an integer of type i64": lambda: _changed(
        op="top.Reshape", inputs=("conv0",), attrs={"flatten_start_dim": 1 << 63}
    ),
    "nan cannot be written": lambda: _changed(attrs={"relu_limit": float("nan")}),
    "True cannot be written: must be an integer": lambda: _changed(op="top.Flatten", attrs={"start_dim": True}),
    "Top has no int4": lambda: convolution().with_tensors(tensor("y", (1, 8, 26, 26), "int4")),
    "int32 with quantization parameters": lambda: convolution().with_tensors(
        tensor("y", (1, 8, 26, 26), "int32", steps("int32", 0.5, 0))
    ),
    "a name must not be empty or hold control": lambda: Graph(
        "one", (), {"a\n": tensor("a\n", (1,))}, ("a\n",), ("a\n",)
    ),
    "a name must be Unicode text": lambda: Graph(
        "one", (), {"\ud800": tensor("\ud800", (1,))}, ("\ud800",), ("\ud800",)
    ),
    "has 'opset' in its header": lambda: replace(convolution(), extra={"opset": 17}),
    "makes no input of the graph": lambda: replace(
        convolution(),
        nodes=(*convolution().nodes, Node("z", "top.Input", (), ("z",))),
        tensors={**convolution().tensors, "z": tensor("z", (1,))},
    ),
}


@pytest.mark.parametrize("message", UNWRITABLE)
def test_graphs_that_the_text_cannot_express_are_refused(message):
    with pytest.raises(QuantizerError) as caught:
        to_bytes(UNWRITABLE[message](), "one", "TOP_F32")
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["", "a/b", "..", "a\\b", "a\nb", "x" * 201])
def test_an_invalid_file_name_is_refused(name):
    with pytest.raises(UnsupportedError, match="must be a file's name"):
        to_bytes(convolution(), name, "TOP_F32")
    with pytest.raises(UnsupportedError, match="must be one of TOP_F32, TOP_QUANTIZED"):
        to_bytes(convolution(), "Conv", "F32")


UNREADABLE = {
    "no operator 'top.Convo' of Top. Did you mean 'top.Conv'?": ('"top.Conv"', '^"top.Convo"'),
    "top.Conv: attribute 'pads': must be an array of i64 such as [1, 1], got a string": ("pads = [0, 0, 0, 0]", 'pads = ^"x"'),
    "top.Conv: attribute 'kernel_shape' is missing": ('"top.Conv"(%0, %1, %2) {dilations = [1, 1], do_relu = false, group = 1 : i64, kernel_shape = [3, 3], ',
                                                     '^"top.Conv"(%0, %1, %2) {'),
    "top.Conv: attribute 'group': must be an integer of type i64 such as 1 : i64, got 1 : si32": ("1 : i64", "^1 : si32"),
    "top.Conv: attribute 'do_relu': must be true or false, got 0 : i64": ("do_relu = false", "do_relu = ^0"),
    "top.Conv: no attribute 'dilation'. Did you mean 'dilations'?": ("dilations = [1, 1]", "dilation = ^[1, 1]"),
    "top.Conv: attribute 'strides': must be an array of i64 such as [1, 1], got an array.": ("strides = [1, 1]", "strides = ^[1.0, 1]"),
    "attribute 'pads' occurs twice": ("strides = [1, 1]", "^pads = [1, 1]"),
    "value %9 is not defined before this": ("(%0, %1, %2)", "(^%9, %1, %2)"),
    "value %3 is not defined before this": ("(%0, %1, %2)", "(^%3, %1, %2)"),
    "value %2 is defined twice": ("%3 = ", "^%2 = "),
    "top.Conv: value %1 is tensor<8x3x3x3xf32>, its type here tensor<8x3x3xf32>": (
        "(tensor<1x3x28x28xf32>, tensor<8x3x3x3xf32>, ", "^(tensor<1x3x28x28xf32>, tensor<8x3x3xf32>, "),
    "top.Conv: 2 values, 3 types": ("strides = [1, 1]} : (", "strides = [1, 1]} : ^("),
    "return: value %4 is tensor<1x8x26x26xf32>, its type here tensor<1xf32>": (
        "return %4 : tensor<1x8x26x26xf32>", "^return %4 : tensor<1xf32>"),
    "return, held against the function: value %4 is tensor<1x8x26x26xf32>": ("return %4", "^return %4"),
    "must be ':', got '->'": ('top.Weight"() :', 'top.Weight"() ^->'),
    "no element type 'f33'": ("%arg0: tensor<1x3x28x28xf32>", "%arg0: ^tensor<1x3x28x28xf33>"),
    "top.Input: must read the function's next argument and give its type": ('"top.Relu"(%3)', '^"top.Input"(%3)'),
    "top.Relu: an argument is read by its top.Input alone": (
        '"top.Input"(%arg0) {do_preprocess = false}', '^"top.Relu"(%arg0)'),
    "top.Conv: there is a tensor 'x' already": ('"top.Conv"', '^"top.Conv"'),
    "top.Relu: its location names 0 tensors, it makes 1": ('"top.Relu"', '^"top.Relu"'),
    "location #loc7 is not defined": ('loc("y")', "loc(^#loc7)"),
    "'}' after the end of the module": ("  } loc(unknown)\n}", "  } loc(unknown) }\n^}"),
    "weight 'w2': the archive has no array of that name.": ('"top.Weight"() : () -> tensor<8x3x3x3xf32> loc("w")',
                                                           '^"top.Weight"() : () -> tensor<8x3x3x3xf32> loc("w2")'),
    "module.weight_file '../w.npz': must be the name of a file beside this one": (
        '"conv_top_f32_all_origin_weight.npz"', '^"../w.npz"'),
    "top.Weight 'w': has scale: only numbers of the archive are read": (
        '"top.Weight"() : () -> tensor<8x3', '^"top.Weight"() {scale = [1.0]} : () -> tensor<8x3'),
    "must be a name, got '['": ("attributes {", "attributes {^["),
    "'\\x01do_preprocess = fal' is not a token of MLIR": ("{do_preprocess", "{^\x01do_preprocess"),
    "the '>' of this '<' is missing": ("tensor<8xf32> loc", "tensor^<8xf32 loc"),
    "a number of 500 characters: at most 400": ("group = 1", f"group = ^{'1' * 500}"),
    "values are nested deeper than 16": ("[0, 0, 0, 0]", f"{'[' * 17}^["),
    "17 axes: at most 16": ("%arg0: tensor<1x3x28x28xf32>", f"%arg0: ^tensor<{'1x' * 17}f32>"),
    "more than 2147483648 bytes, which no tensor may have": (
        "%arg0: tensor<1x3x28x28xf32>", "%arg0: ^tensor<999999999999x999999999999xf32>"),
}  # fmt: skip
FIRST = {
    "top.Conv: 2 values, 3 types": ("(%0, %1, %2)", "(%0, %1)"),
    "return, held against the function: value %4 is tensor<1x8x26x26xf32>": (
        "-> tensor<1x8x26x26xf32> {",
        "-> tensor<1xf32> {",
    ),
    "top.Conv: there is a tensor 'x' already": ('loc("conv0")', 'loc("x")'),
    "top.Relu: its location names 0 tensors, it makes 1": ('loc("y")', "loc(unknown)"),
}
"""What else must be changed, before."""


@pytest.mark.parametrize("message", UNREADABLE)
def test_a_wrong_text_is_refused_with_line_and_column(message, tmp_path: Path):
    files = write(convolution(), tmp_path, "Conv", "TOP_F32")
    text = CONV
    for old, new in (FIRST.get(message, ("", "")), UNREADABLE[message]):
        assert old in text
        text = text.replace(old, new, 1)
    at = text.index("^")
    text = text.replace("^", "")
    files.text.write_text(text)
    with pytest.raises(FormatError) as caught:
        read(files.text)
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    assert str(caught.value).startswith(f"{files.text}:{line}:{column}: ")
    assert message in str(caught.value)
    assert str(caught.value).count("\n") == 0


QUANTIZED = {
    "zero point -500: must be one of the codes [-128, 127]": "i8:f32, 0.1:-500",
    "scale 0.0: must be positive and finite": "i8:f32, 0.0:-3",
    "scale 1e999: must be positive and finite": "i8:f32, 1e999:-3",
    "'-0.1:-3': must be scale:zero_point": "i8:f32, -0.1:-3",
    "'i32' cannot hold quantized numbers": "i32:f32, 0.1:-3",
    "codes -200:127: must lie in int8 [-128, 127]": "i8<-200:127>:f32, 0.1:-3",
    "2 scales along axis 1 of shape [1, 3, 28, 28]": "i8:f32:1, {0.1, 0.2}",
    "several scales without an axis": "i8:f32, 0.1, 0.2",
    "quantized per axis is written": "i8:f32:1, 0.1",
}


@pytest.mark.parametrize("message", QUANTIZED)
def test_a_wrong_quantized_type_is_refused(message):
    text, weights = to_bytes(convolution(quantized=True), "Conv", "TOP_QUANTIZED")
    assert "i8:f32, 0.1:-3" in text
    with pytest.raises(FormatError, match="^module:2:26: ") as caught:
        from_bytes(text.replace("i8:f32, 0.1:-3", QUANTIZED[message]), arrays(weights))
    assert message in str(caught.value)


def test_location_aliases_may_come_before_or_after():
    graph = convolution()
    weights = arrays(to_bytes(graph, "Conv", "TOP_F32")[1])
    names = ("x", "w", "b", "conv0", "y")
    text = CONV
    for i, name in enumerate(names):
        text = text.replace(f'loc("{name}")', f"loc(#loc{i + 1})")
    text = text.replace("loc(unknown)", "loc(#loc)")
    aliases = "".join(f'#loc{i + 1} = loc("{name}")\n' for i, name in enumerate(names))
    for whole in (f"#loc = loc(unknown)\n{text}{aliases}", f"#loc = loc(unknown)\n{aliases}{text}"):
        assert same(graph, from_bytes(whole, weights)) is None
    with pytest.raises(FormatError, match="location #loc1 is defined twice"):
        from_bytes(f"#loc = loc(unknown)\n{aliases}{text}{aliases}", weights)


@pytest.mark.parametrize("length", range(0, len(CONV) - 1, 37))
def test_a_truncated_text_is_refused(length):
    with pytest.raises(FormatError, match=r"^module:\d+:\d+: "):
        from_bytes(CONV[:length], arrays(to_bytes(convolution(), "Conv", "TOP_F32")[1]))


def test_a_too_long_or_binary_text_is_refused(tmp_path: Path, monkeypatch):
    files = write(convolution(), tmp_path, "Conv", "TOP_F32")
    monkeypatch.setattr(mlir_text, "MAX_TEXT", 100)
    with pytest.raises(FormatError, match="more than 100 bytes"):
        read(files.text)
    monkeypatch.undo()
    files.text.write_bytes(CONV.encode().replace(b"conv0", b"conv\xff"))
    with pytest.raises(FormatError, match=r"mlir:6:\d+: byte 0xff is not UTF-8"):
        read(files.text)
    files.text.unlink()
    with pytest.raises(FormatError, match="cannot be read: no such file"):
        read(files.text)


def _archive(**entries: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in entries.items():
            archive.writestr(name.replace("_", "."), data)
    return stream.getvalue()


def _npy(values: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values, allow_pickle=True)
    return stream.getvalue()


W, B = np.ones((8, 3, 3, 3), np.float32), np.ones(8, np.float32)
ARCHIVES = {
    "weight 'w': the archive has no array": npz.npz_bytes({"b": B}),
    "weight 'w': float64 in the archive: float32 is kept as float32": npz.npz_bytes({"w": W.astype(float), "b": B}),
    "weight 'w': shape [8, 27] in the archive": npz.npz_bytes({"w": W.reshape(8, 27), "b": B}),
    "is not a valid .npz archive": b"PK nothing",
    "pickled objects are refused": _archive(w_npy=_npy(np.array([None, 1], object)), b_npy=_npy(B)),
    "needs 864 bytes, the archive holds 863": _archive(w_npy=_npy(W)[:-1], b_npy=_npy(B)),
    "entry 'w.txt' is not a .npy array": _archive(w_txt=b"1"),
    "needs 4000000000000 bytes": _archive(w_npy=_npy(W).replace(b"(8, 3, 3, 3), }  ", b"(1000000000000,), }")),
}


@pytest.mark.parametrize("message", ARCHIVES)
def test_a_wrong_archive_is_refused(message, tmp_path: Path):
    files = write(convolution(), tmp_path, "Conv", "TOP_F32")
    files.weights.write_bytes(ARCHIVES[message])
    with pytest.raises(FormatError) as caught:
        read(files.text)
    assert message in str(caught.value)


def test_a_too_large_archive_is_refused_before_reading(tmp_path: Path, monkeypatch):
    files = write(convolution(), tmp_path, "Conv", "TOP_F32")
    monkeypatch.setattr(npz, "LARGEST", 500)
    with pytest.raises(FormatError, match="2 arrays of .* bytes: at most 65536, of 500 bytes together"):
        read(files.text)
    monkeypatch.undo()
    with zipfile.ZipFile(files.weights, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("w.npy", _npy(W))
    with pytest.raises(FormatError, match="array 'w' occurs twice"):
        read(files.text)
    files.weights.unlink()
    with pytest.raises(FormatError, match="cannot be read: no such file"):
        read(files.text)
