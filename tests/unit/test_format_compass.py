"""Compass IR: real files survive byte for byte, numbers take our convention, specs turn layers into our operators."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from quantizer.core.dtypes import DTYPES
from quantizer.core.errors import GraphError, UnsupportedError
from quantizer.core.spec import Spec
from quantizer.ir.formats.compass import foreign, native, read, write
from quantizer.ir.formats.compass_native import PARAMS, SOURCES
from quantizer.ir.formats.compass_text import parse_value
from quantizer.ir.graph import AttrValue, Graph, Node, Tensor, same
from quantizer.ir.verify import verify
from quantizer.numerics.qparams import QParams

REFERENCE = Path(__file__).parents[2] / "cases" / "reference"
FILES = sorted(str(path.relative_to(REFERENCE))[:-4] for path in REFERENCE.rglob("*.txt"))
F64 = torch.float64


def load(name: str) -> Graph:
    return read(REFERENCE / f"{name}.txt", REFERENCE / f"{name}.bin")


def rewrite(graph: Graph, folder: Path) -> tuple[str, bytes, Graph]:
    """Return the written text and bytes of *graph*, and the graph that is read back."""
    write(graph, folder / "net.txt", folder / "net.bin")
    assert sorted(path.name for path in folder.iterdir()) == ["net.bin", "net.txt"]
    again = read(folder / "net.txt", folder / "net.bin")
    return (folder / "net.txt").read_text(), (folder / "net.bin").read_bytes(), again


def parsed(folder: Path, text: str, blob: bytes = b"") -> Graph:
    (folder / "in.txt").write_text(text)
    (folder / "in.bin").write_bytes(blob)
    graph = read(folder / "in.txt", folder / "in.bin")
    for name in ("in.txt", "in.bin"):
        (folder / name).unlink()
    return graph


def layer(number: int, kind: str, bottom: str, top: str, shape: str, dtype: str = "float32", more: str = "") -> str:
    return (
        f"\nlayer_id={number}\nlayer_name=L{number}\nlayer_type={kind}\nlayer_bottom={bottom}\nlayer_top={top}\n"
        f"layer_top_shape={shape}\nlayer_top_type=[{dtype}]\n{more}"
    )


def test_all_reference_files_exist() -> None:
    assert len(FILES) == 133
    assert sum(name.startswith("compass/") for name in FILES) == 128


@pytest.mark.parametrize("name", FILES)
def test_reference_files_survive_byte_for_byte(name: str, tmp_path: Path) -> None:
    graph = load(name)
    text, blob, again = rewrite(graph, tmp_path)
    assert same(graph, again) is None
    assert text == (REFERENCE / f"{name}.txt").read_text()
    assert blob == (REFERENCE / f"{name}.bin").read_bytes()


def test_a_graph_in_compass_vocabulary() -> None:
    graph = load("compass/conv3x3/pc_asym/quant")
    conv = graph.node("conv3x3")
    assert (graph.name, graph.inputs, graph.outputs) == ("conv3x3", ("in0",), ("conv3x3_out",))
    assert (conv.op, conv.order, conv.outputs) == ("Convolution", "channels_last", ("conv3x3_out",))
    keys = ("weights", "biases", "scale", "shift", "weights_scale", "weights_zp", "biases_scale", "biases_zp")
    assert conv.inputs == ("in0", *(f"conv3x3:{key}" for key in keys))
    assert conv.extra["compass.constants"] == keys
    assert (conv.attrs["kernel_x"], conv.attrs["with_activation"], conv.attrs["is_perf_mode"]) == (3, "NONE", True)
    assert conv.attrs["activation_quantization_axis"] == ("None",)
    assert graph.tensor("in0").shape == (1, 8, 8, 4)


def test_constants_are_the_bytes_of_the_file() -> None:
    graph = load("compass/conv3x3/pc_asym/quant")
    raw = (REFERENCE / "compass/conv3x3/pc_asym/quant.bin").read_bytes()
    weights, biases = (graph.tensor(f"conv3x3:{key}").data for key in ("weights", "biases"))
    assert weights is not None and biases is not None
    assert weights.dtype == torch.int8
    assert weights.flatten().tolist() == list(struct.unpack("<216b", raw[:216]))
    assert biases.tolist() == [-238, 8288, 1293, 5257, 4093, 3084]
    assert graph.tensor("conv3x3:scale").dtype == DTYPES["uint16"]
    assert str(graph.tensor("conv3x3:scale").data.tolist()) == "[182, 402, 256, 344, 340, 318]"  # type: ignore[union-attr]


def test_compass_scales_are_converted_to_our_convention() -> None:
    """Compass: codes = steps * real - zp; ours: real = scale * (code - zero_point); the float32 steps are kept."""
    graph = load("compass/conv3x3/pc_asym/quant")
    found = graph.tensor("conv3x3_out").qparams
    assert found is not None and found.steps is not None
    steps = float(np.float32(4.068809986114502))
    assert (found.steps.dtype, float(found.steps)) == (torch.float32, steps)
    assert (found.scale.dtype, float(found.scale)) == (F64, 1.0 / steps)
    assert (found.zero_point.dtype, int(found.zero_point)) == (torch.int64, 28)
    assert (found.dtype, found.qmin, found.qmax, found.axis) == (DTYPES["int8"], -128, 127, None)


PAIRS = ("elt_add", "concat", "matmul")
"""Cases of two inputs: their samples are pickled."""


@pytest.mark.parametrize(
    "name",
    [
        name[:-6]
        for name in FILES
        if name.startswith("compass/") and name.endswith("/quant") and name.split("/")[1] not in PAIRS
    ],
)
def test_the_convention_reproduces_recorded_codes(name: str) -> None:
    """Quantizing the recorded samples with the parameters read gives the codes of the real optimizer, bit for bit."""
    graph = load(f"{name}/quant")
    found = graph.tensor(graph.inputs[0]).qparams
    assert found is not None and found.steps is not None
    samples = np.load(REFERENCE / name / "calib.npy", allow_pickle=False)
    recorded = np.load(REFERENCE / name / "ref.npz")["b0_q_in0"]
    real = torch.from_numpy(samples[:1]).reshape(recorded.shape)
    codes = (found.steps * real + found.zero_point).round().clamp(found.qmin, found.qmax)
    assert torch.equal(codes.to(torch.int32), torch.from_numpy(recorded))


def test_constants_have_parameters_by_channel() -> None:
    graph = load("compass/conv3x3/pc_asym/quant")
    weights, biases = (graph.tensor(f"conv3x3:{key}").qparams for key in ("weights", "biases"))
    assert weights is not None and biases is not None and weights.steps is not None
    assert (weights.axis, weights.scale.shape, weights.zero_point.tolist()) == (0, (6,), [0] * 6)
    raw = graph.tensor("conv3x3:weights_scale").data
    assert raw is not None and torch.equal(weights.steps, raw)
    assert (biases.dtype, biases.axis, biases.zero_point.shape) == (DTYPES["int32"], 0, (6,))
    per_tensor = load("compass/conv3x3/ext/quant").tensor("conv3x3:weights").qparams
    assert per_tensor is not None and per_tensor.axis is None
    assert float(per_tensor.scale) == 1.0 / 55.08425521850586
    assert load("compass_net/trigger_float/quant").tensor("fc:weights").qparams is None


def test_float_layers_of_a_mixed_graph() -> None:
    graph = load("compass_net/trigger_float/quant")
    assert graph.tensor("fc").qparams is None
    assert graph.node("fc").extra["layer_top_scale"] == (1.0,)
    assert graph.node("conv1").attrs["scale_type"] == DTYPES["uint8"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("-3", -3),
        ("1e-05", 1e-05),
        ("5.", 5.0),
        ("inf", float("inf")),
        ("-inf", float("-inf")),
        ("nan", "nan"),
        ("true", True),
        ("True", "True"),
        ("None", "None"),
        ("uint8", DTYPES["uint8"]),
        ("aligned_int4", DTYPES["int4"]),
        ("int4", "int4"),
        ("[]", ()),
        ("[[1,2],[3.5,x],[]]", ((1, 2), (3.5, "x"), ())),
        ("['a', \"b\"]", ("a", "b")),
        ("[uint8,int16]", (DTYPES["uint8"], DTYPES["int16"])),
        ("a b", "a b"),
        ("18446744073709551615", (1 << 64) - 1),
        ("-9223372036854775808", -(1 << 63)),
        ("\u0664\u0662", "\u0664\u0662"),
    ],
)
def test_values_are_typed_by_their_spelling(text: str, value: object) -> None:
    found = parse_value(text)
    assert (found, type(found)) == (value, type(value))


def test_unusual_spellings_read_as_the_same_graph(tmp_path: Path) -> None:
    """CRLF, a byte order mark, spaces, quotes, odd numbers, keys and offsets in another order: the same graph."""
    name = "compass/conv3x3/pc_asym/quant"
    raw = (REFERENCE / f"{name}.bin").read_bytes()
    text = (REFERENCE / f"{name}.txt").read_text().rstrip("\n")
    odd = text.replace("input_tensors=[in0]", "input_tensors = [ 'in0' ]").replace("group=1", "group=01")
    odd = odd.replace("layer_bottom_shape=[[1,8,8,4]]\n", "").replace("layer_number=2\n", "")
    lines = odd.replace("weights_offset=0", "weights_offset=338").split("\n")
    shape = lines.pop(lines.index("weights_shape=[6,3,3,4]"))
    lines.append(shape)
    graph = parsed(tmp_path, "\ufeff" + "\r\n".join(lines), raw + raw[:216])
    assert same(graph, load(name)) is None
    assert rewrite(graph, tmp_path)[:2] == ((REFERENCE / f"{name}.txt").read_text(), raw)


def test_unknown_keys_are_kept_in_place(tmp_path: Path) -> None:
    text = (REFERENCE / "compass/reshape/ext/float.txt").read_text()
    text = text.replace(
        "output_tensors=[reshape_out]", "output_tensors=[reshape_out]\ncompat_quantized_model=true\nzz=[1,q]"
    )
    text = text.replace("shape=[1,128]\n\n", "aa=\nshape=[1,128]\nsimilarity=0.5\n\n")
    graph = parsed(tmp_path, text)
    assert graph.extra == {"compat_quantized_model": True, "zz": (1, "q")}
    assert list(graph.node("reshape").attrs.items()) == [("aa", ""), ("shape", (1, 128)), ("similarity", 0.5)]
    assert rewrite(graph, tmp_path)[0] == text


def test_silent_headers_are_completed(tmp_path: Path) -> None:
    """Without lists in the header, tops of Input layers are the inputs, and unread tensors the outputs."""
    text = (
        "model_name=m\n"
        + layer(0, "Input", "[]", "[a]", "[[2]]")
        + layer(1, "Relu", "[a]", "[true,1]", "[[2],[]]", "int8,bool")
    )
    graph = parsed(tmp_path, text)
    assert (graph.inputs, graph.outputs) == (("a",), ("true", "1"))
    assert graph.tensor("1").shape == ()
    assert "input_tensors=[a]\noutput_tensors=[true,1]\n" in rewrite(graph, tmp_path)[0]


@pytest.mark.parametrize(
    ("name", "dtype", "raw", "values"),
    [
        ("aligned_int4", torch.int8, bytes([0xF8, 7]), [-8, 7]),
        ("aligned_uint12", torch.uint16, struct.pack("<2H", 4095, 1), [4095, 1]),
        ("bfloat16", torch.bfloat16, struct.pack("<2H", 0x3F80, 0xC000), [1.0, -2.0]),
        ("float16", torch.float16, struct.pack("<2e", 0.5, -1.25), [0.5, -1.25]),
        ("float8_e4m3fn", torch.float8_e4m3fn, bytes([0x38, 0xC0]), [1.0, -2.0]),
        ("float4_e2m1fn", torch.uint8, bytes([1, 15]), [1, 15]),
        ("uint64", torch.uint64, struct.pack("<2Q", 1 << 63, 3), [1 << 63, 3]),
        ("float64", torch.float64, struct.pack("<2d", 0.1, -0.0), [0.1, -0.0]),
        ("bool", torch.bool, bytes([1, 0]), [True, False]),
    ],
)
def test_number_formats_of_constants(
    tmp_path: Path, name: str, dtype: torch.dtype, raw: bytes, values: list[Any]
) -> None:
    more = f"c_type={name}\nc_offset=0\nc_size={len(raw)}\nc_shape=[1,2]\n"
    graph = parsed(tmp_path, "model_name=m\n" + layer(0, "Source", "[]", "[a]", "[[2]]", more=more), raw)
    data = graph.tensor("L0:c").data
    assert data is not None and (data.dtype, data.shape) == (dtype, (1, 2))
    assert data[0].tolist() == values
    text, blob, again = rewrite(graph, tmp_path)
    assert (blob, same(graph, again)) == (raw, None)
    assert f"c_type={name}\n" in text


def test_scales_per_channel_of_activations(tmp_path: Path) -> None:
    """Several outputs store their scales as lists of constants, before the layer's own constants."""
    raw = struct.pack("<3f", 2.0, 4.0, 8.0) + struct.pack("<3i", 1, -2, 0) + b"\x05"
    more = "layer_top_scale_type=[float32,float32]\nlayer_top_scale_offset=[0,8]\nlayer_top_scale_shape=[[2],[1]]\n"
    more += "layer_top_scale_size=[8,4]\nlayer_top_zp_type=[int32,int32]\nlayer_top_zp_offset=[12,20]\n"
    more += "layer_top_zp_shape=[[2],[1]]\nlayer_top_zp_size=[8,4]\n"
    more += "lut_type=uint8\nlut_offset=24\nlut_size=1\nlut_shape=[1]\nactivation_quantization_axis=[1,None]\n"
    text = "model_name=m\n" + layer(0, "Source", "[]", "[a,b]", "[[3,2],[4]]", "int8,int8", more)
    graph = parsed(tmp_path, text, raw)
    first, second = graph.tensor("a").qparams, graph.tensor("b").qparams
    assert first is not None and second is not None
    assert (first.axis, first.scale.tolist(), first.zero_point.tolist()) == (1, [0.5, 0.25], [-1, 2])
    assert (second.axis, float(second.scale), int(second.zero_point)) == (None, 0.125, 0)
    text, blob, again = rewrite(graph, tmp_path)
    assert (blob, same(graph, again)) == (raw, None)
    assert more in text.replace("layer_top_range=[[-128,127],[-128,127]]\n", "")


def test_restricted_ranges_are_the_codes(tmp_path: Path) -> None:
    more = "layer_top_range=[[-127,127]]\nlayer_top_scale=[2.0]\nlayer_top_zp=[0]\n"
    graph = parsed(tmp_path, "model_name=m\n" + layer(0, "Source", "[]", "[a]", "[[3]]", "int8", more))
    found = graph.tensor("a").qparams
    assert found is not None and (found.qmin, found.qmax) == (-127, 127)
    assert more in rewrite(graph, tmp_path)[0]


def test_calibrated_ranges_of_a_float_graph_are_kept(tmp_path: Path) -> None:
    more = "layer_top_range=[[-1.5,3]]\n"
    graph = parsed(tmp_path, "model_name=m\n" + layer(0, "Source", "[]", "[a]", "[[3]]", more=more))
    assert graph.node("L0").extra["layer_top_range"] == ((-1.5, 3),)
    assert more in rewrite(graph, tmp_path)[0]


def test_negative_axes_count_from_the_end(tmp_path: Path) -> None:
    more = "layer_top_scale=[[2.0,4.0]]\nlayer_top_zp=[0]\nactivation_quantization_axis=[-1]\n"
    graph = parsed(tmp_path, "model_name=m\n" + layer(0, "Source", "[]", "[a]", "[[3,2]]", "int8", more))
    found = graph.tensor("a").qparams
    assert found is not None and (found.axis, found.scale.tolist()) == (1, [0.5, 0.25])
    assert same(graph, rewrite(graph, tmp_path)[2]) is None


def test_constants_in_lists_are_read_and_written_again(tmp_path: Path) -> None:
    more = "k_type=[uint8,int16]\nk_offset=[2,0]\nk_size=[1,2]\nk_shape=[[1],[1]]\n"
    graph = parsed(tmp_path, "model_name=m\n" + layer(0, "Source", "[]", "[a]", "[[2]]", more=more), b"\x01\x02\x03")
    assert graph.node("L0").extra["compass.constants"] == ("k_0", "k_1")
    assert [graph.tensor(f"L0:k_{i}").data.tolist() for i in (0, 1)] == [[3], [513]]  # type: ignore[union-attr]
    text, blob, again = rewrite(graph, tmp_path)
    assert (blob, same(graph, again)) == (b"\x03\x01\x02", None)
    assert "k_offset=[0,1]\n" in text


def test_a_subgraph_may_read_tensors_around_it(tmp_path: Path) -> None:
    """A body is a graph of its own; it may read tensors of the graph around it."""
    text = "model_name=m\nlayer_number=2\ninput_tensors=[a]\noutput_tensors=[y]\n"
    text += layer(0, "Input", "[]", "[a]", "[[2]]") + layer(1, "If", "[a]", "[y]", "[[2]]", more="then_branch=body\n")
    text += "\nsubgraph_name=body\nlayer_number=2\ninput_tensors=[b]\noutput_tensors=[z]\nnote=1\n"
    text += layer(0, "Input", "[]", "[b]", "[[2]]")
    text += layer(1, "Eltwise", "[a,b]", "[z]", "[[2]]", more="method=ADD\n").replace("=L1", "=M1")
    graph = parsed(tmp_path, text)
    body = graph.subgraphs["body"]
    assert ([node.op for node in graph.nodes], [node.op for node in body.nodes]) == (
        ["Input", "If"],
        ["Input", "Eltwise"],
    )
    assert (body.inputs, body.outputs, body.extra, body.tensor("a")) == (("b",), ("z",), {"note": 1}, graph.tensor("a"))
    assert same(graph, rewrite(graph, tmp_path)[2]) is None
    own = parsed(tmp_path, text.replace("[b]", "[a]").replace("[a,b]", "[a,a]"))
    assert own.subgraphs["body"].tensor("a") is not own.tensor("a")
    ours = native(graph, SPECS)
    verify(ours)
    assert ours.subgraphs["body"].node("M1").op == "add"
    assert same(graph, foreign(ours, SPECS)) is None


def test_writing_is_deterministic_and_needs_no_file(tmp_path: Path) -> None:
    """A graph made here, with parameters that have no Compass steps, is written; 1 / scale becomes float32."""
    params = QParams(DTYPES["uint8"], torch.tensor(0.1, dtype=F64), torch.tensor(7), 0, 255)
    tensors = {"a": Tensor("a", (1, 4), DTYPES["uint8"], qparams=params), "b": Tensor("b", (1, 4), DTYPES["float32"])}
    nodes = (
        Node("in", "Input", (), ("a",), {"is_perf_mode": True}),
        Node("deq", "DeQuantize", ("a",), ("b",), {"quantize_scale": 10.0}),
    )
    graph = Graph("made", nodes, tensors, ("a",), ("b",))
    text, blob, again = rewrite(graph, tmp_path)
    assert blob == b""
    assert "layer_top_range=[[0,255]]\nlayer_top_scale=[10.0]\nlayer_top_zp=[-7]\n" in text
    assert rewrite(again, tmp_path)[0] == text
    found = again.tensor("a").qparams
    assert found is not None and (float(found.scale), int(found.zero_point)) == (0.1, 7)


# specs


def _spec(**changes: Any) -> Spec:
    plain = {
        "version": "1.0",
        "summary": "-",
        "error_model": {"kind": "linear"},
        "quantization": {"family": "f"},
        "tiling": {"none": "-"},
        "outputs": {"y": {}},
    }
    return Spec.model_validate({**plain, **changes})


def _eltwise(op: str, method: str) -> Spec:
    form = {"type": "Eltwise", "fixed": {"method": method, "with_activation": "NONE"}}
    return _spec(op=op, inputs={"a": {"axes": "s"}, "b": {"axes": "t"}}, shape={"y": "s"}, formats={"compass": form})


CONV = _spec(
    op="conv2d",
    inputs={
        "x": {"axes": ["n", "c_in", "h", "w_in"], "spatial": True},
        "w": {"axes": ["c_out", "c_in // groups", "kh", "kw"], "role": "weight", "spatial": True},
        "b": {"axes": ["c_out"], "role": "bias", "optional": True},
    },
    outputs={"y": {"axes": ["n", "c_out", "oh", "ow"], "spatial": True}},
    attrs={
        "stride": {"length": 2, "default": [1, 1]},
        "padding": {"length": 4, "default": [0, 0, 0, 0]},
        "dilation": {"length": 2, "default": [1, 1]},
        "groups": {"default": 1},
        "ceil": {"type": "bool", "default": False},
    },
    shape={"y": ["n", "c_out", "1", "1"]},
    formats={
        "compass": {
            "type": "Convolution",
            "inputs": {"w": "weights", "b": "biases"},
            "attrs": {
                "stride": ["stride_y", "stride_x"],
                "padding": ["pad_top", "pad_left", "pad_bottom", "pad_right"],
                "dilation": ["dilation_y", "dilation_x"],
                "groups": "group",
            },
            "derived": {"kernel_y": "kh", "kernel_x": "kw", "num_output": "c_out"},
            "fixed": {"with_activation": "NONE"},
        }
    },
)
RESHAPE = _spec(
    op="reshape",
    inputs={"x": {"axes": "s"}},
    attrs={"shape": {"type": "shape"}},
    shape={"y": "shape"},
    formats={"compass": {"type": "Reshape", "attrs": {"shape": "shape"}}},
)
SPECS = {spec.op: spec for spec in (CONV, RESHAPE, _eltwise("add", "ADD"), _eltwise("mul", "MUL"))}


@pytest.mark.parametrize("name", FILES)
def test_native_and_back_is_the_same_file(name: str, tmp_path: Path) -> None:
    graph = load(name)
    ours = native(graph, SPECS)
    verify(ours)
    back = foreign(ours, SPECS)
    assert same(graph, back) is None
    assert rewrite(back, tmp_path)[0] == (REFERENCE / f"{name}.txt").read_text()


def test_a_convolution_becomes_conv2d_with_its_attributes() -> None:
    ours = native(load("compass/conv3x3/pc_asym/quant"), SPECS)
    (conv,) = ours.nodes
    assert (conv.op, conv.order, conv.inputs) == (
        "conv2d",
        "channels_last",
        ("in0", "conv3x3:weights", "conv3x3:biases"),
    )
    assert dict(conv.attrs) == {
        "stride": (1, 1),
        "padding": (1, 1, 1, 1),
        "dilation": (1, 1),
        "groups": 1,
        "ceil": False,
    }
    assert (ours.inputs, "in0" in ours.producers) == (("in0",), False)
    scale = conv.extra["scale"]
    assert isinstance(scale, Tensor) and scale.data is not None
    assert str(scale.data.tolist()) == "[182, 402, 256, 344, 340, 318]"
    assert "conv3x3:scale" not in ours.tensors
    assert conv.extra["is_perf_mode"] is True
    assert not {"kernel_x", "with_activation", "group", "weights", "biases"} & conv.extra.keys()


def test_fixed_keys_tell_operators_apart() -> None:
    graph = load("compass/elt_add/ext/quant")
    assert [node.op for node in native(graph, SPECS).nodes] == ["add"]
    node = graph.node("elt_add")
    for attrs, op in (
        ({**node.attrs, "method": "MUL"}, "mul"),
        ({**node.attrs, "method": "add"}, "add"),
        ({**node.attrs, "method": "SUB"}, "Eltwise"),
        ({**node.attrs, "with_activation": "RELU"}, "Eltwise"),
        ({key: value for key, value in node.attrs.items() if key != "with_activation"}, "add"),
        ({key: value for key, value in node.attrs.items() if key != "method"}, "Eltwise"),
    ):
        changed = graph.with_node(replace(node, attrs=attrs))
        ours = native(changed, SPECS)
        assert ours.node("elt_add").op == op
        assert same(changed, foreign(ours, SPECS)) is None
    twice = {**SPECS, "plus": _eltwise("plus", "ADD")}
    with pytest.raises(GraphError, match="layer 'elt_add': Eltwise is both add and plus"):
        native(graph, twice)


def _conv(**attrs: Any) -> Graph:
    graph = load("compass/conv3x3/ext/quant")
    node = graph.node("conv3x3")
    kept = {key: value for key, value in {**node.attrs, **attrs}.items() if value is not ...}
    return graph.with_node(replace(node, attrs=kept))


def test_compass_pairs_are_reordered() -> None:
    graph = _conv(stride_y=2, stride_x=3, pad_top=1, pad_left=2, pad_bottom=3, pad_right=4, dilation_x=5)
    attrs = native(graph, SPECS).node("conv3x3").attrs
    assert (attrs["stride"], attrs["padding"], attrs["dilation"]) == ((2, 3), (1, 2, 3, 4), (1, 5))


def test_absent_attributes_take_the_default_all_or_none() -> None:
    graph = _conv(dilation_x=..., dilation_y=..., kernel_x=...)
    ours = native(graph, SPECS)
    assert ours.node("conv3x3").attrs["dilation"] == (1, 1)
    assert same(graph, foreign(ours, SPECS)) is None
    node = ours.node("conv3x3")
    changed = ours.with_node(replace(node, attrs={**node.attrs, "dilation": (2, 1)}))
    assert foreign(changed, SPECS).node("conv3x3").attrs["dilation_y"] == 2
    with pytest.raises(GraphError, match=r"Convolution without pad_left: write pad_left=\.\.\. for 'padding'"):
        native(_conv(pad_left=...), SPECS)


@pytest.mark.parametrize(
    ("attrs", "what"),
    [
        ({"kernel_x": 5}, "layer 'conv3x3': kernel_x=5, but its shapes give 3: write kernel_x=3"),
        ({"num_output": "6"}, "num_output=6, but its shapes give 6"),
        ({"stride_x": 1.5}, "stride_y/stride_x: got '1.5': 'stride' is of type int"),
        ({"stride_x": True}, "got 'true': 'stride' is of type int"),
        ({"group": (1,)}, r"group: got \[1\]: 'groups' is one value"),
    ],
)
def test_layers_that_contradict_their_operator(attrs: dict[str, Any], what: str) -> None:
    with pytest.raises(GraphError, match=what):
        native(_conv(**attrs), SPECS)


def test_layers_that_lack_or_exceed_operands() -> None:
    graph = load("compass/conv3x3/ext/float")
    node = graph.node("conv3x3")
    bias_free = replace(node, inputs=node.inputs[:2], extra={"compass.constants": ("weights",)})
    ours = native(graph.with_node(bias_free), SPECS)
    assert ours.node("conv3x3").inputs == ("in0", "conv3x3:weights", None)
    assert same(foreign(ours, SPECS), graph.with_node(bias_free).with_(tensors=foreign(ours, SPECS).tensors)) is None
    with pytest.raises(GraphError, match="Convolution without constant 'weights': conv2d needs it"):
        native(graph.with_node(replace(node, inputs=("in0",), extra={"compass.constants": ()})), SPECS)
    with pytest.raises(GraphError, match="Convolution without input 'x'"):
        native(graph.with_node(replace(node, inputs=node.inputs[1:])), SPECS)
    with pytest.raises(GraphError, match="Convolution has 2 inputs and 1 outputs: conv2d takes fewer"):
        native(graph.with_node(replace(node, inputs=("in0", *node.inputs))), SPECS)
    flat = replace(graph.tensor("in0"), shape=(1, 64, 4))
    with pytest.raises(GraphError, match=r"'x' has rank 3: conv2d takes \[n, c_in, h, w_in\]"):
        native(graph.with_tensors(flat), SPECS)
    with pytest.raises(GraphError, match="layer 'conv3x3': c_out is 6 and in 'b' 5"):
        bias = graph.tensor("conv3x3:biases")
        assert bias.data is not None
        native(graph.with_tensors(replace(bias, shape=(5,), data=bias.data[:5])), SPECS)


def test_writing_our_own_graph(tmp_path: Path) -> None:
    """A quantized graph that never was a file gets Input and Constant layers, derived keys, scales of constants."""
    int8, int32 = DTYPES["int8"], DTYPES["int32"]
    act = QParams(int8, torch.tensor(0.5, dtype=F64), torch.tensor(-3), -128, 127)
    scales = torch.tensor([0.25, 0.125], dtype=F64)
    weight = QParams(int8, scales, torch.zeros(2, dtype=torch.int64), -128, 127, axis=0)
    tensors = (
        Tensor("x", (1, 5, 5, 3), int8, qparams=act),
        Tensor("w", (2, 3, 3, 3), int8, torch.arange(54, dtype=torch.int8).reshape(2, 3, 3, 3), weight),
        Tensor("b", (2,), int32, torch.tensor([7, -9], dtype=torch.int32)),
        Tensor("h", (1, 3, 3, 2), int8, qparams=act),
        Tensor("k", (2,), int8, torch.tensor([1, 2], dtype=torch.int8), act),
        Tensor("y", (1, 3, 3, 2), int8, qparams=act),
    )
    attrs: dict[str, AttrValue] = {"stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}
    extra = {"scale_value": 5, "lut": Tensor("lut", (1,), int8, torch.tensor([4], dtype=torch.int8))}
    conv = Node("c", "conv2d", ("x", "w", "b"), ("h",), attrs, "channels_last", extra)
    nodes = (conv, Node("s", "add", ("h", "k"), ("y",)))
    graph = Graph("own", nodes, {item.name: item for item in tensors}, ("x",), ("y",))
    text, blob, again = rewrite(foreign(graph, SPECS), tmp_path)
    assert [node.op for node in again.nodes] == ["Input", "Constant", "Convolution", "Eltwise"]
    assert list(again.node("c").attrs.items()) == [
        *(("kernel_y", 3), ("kernel_x", 3), ("num_output", 2), ("stride_y", 1), ("stride_x", 1)),
        *(("pad_top", 0), ("pad_left", 0), ("pad_bottom", 0), ("pad_right", 0)),
        *(("dilation_y", 1), ("dilation_x", 1), ("group", 1), ("with_activation", "NONE"), ("scale_value", 5)),
    ]
    assert again.node("c").extra["compass.constants"] == ("weights", "biases", "lut", "weights_scale", "weights_zp")
    found = native(again, SPECS)
    verify(found)
    assert [node.op for node in found.nodes] == ["conv2d", "add"]
    assert found.node("s").inputs == ("h", "k")
    assert found.tensor("k").data is not None
    assert found.tensor("k").data.tolist() == [1, 2]  # type: ignore[union-attr]
    steps = found.tensor("c:weights").qparams
    assert steps is not None and steps.scale.tolist() == [0.25, 0.125]
    assert rewrite(foreign(found, SPECS), tmp_path)[:2] == (text, blob)


def test_new_constant_parameters_override_those_of_the_file(tmp_path: Path) -> None:
    for name in ("ext", "pc_asym"):
        ours = native(load(f"compass/conv3x3/{name}/quant"), SPECS)
        weights = ours.tensor("conv3x3:weights")
        params = QParams(DTYPES["int8"], torch.tensor(0.5, dtype=F64), torch.tensor(4), -128, 127)
        changed = ours.with_tensors(replace(weights, qparams=params))
        again = rewrite(foreign(changed, SPECS), tmp_path)[2]
        found = again.tensor("conv3x3:weights").qparams
        assert found is not None and (float(found.scale), int(found.zero_point)) == (0.5, 4)
        attrs = again.node("conv3x3").attrs
        assert (attrs["weights_scale"], attrs["weights_zp"]) == (2.0, -4)


def test_attributes_that_compass_lacks_are_refused() -> None:
    ours = native(load("compass/conv3x3/ext/float"), SPECS)
    node = ours.node("conv3x3")
    with pytest.raises(UnsupportedError, match="ceil=True: a Compass Convolution has False"):
        foreign(ours.with_node(replace(node, attrs={**node.attrs, "ceil": True})), SPECS)
    with pytest.raises(UnsupportedError, match="node 'conv3x3': Compass layers are channels_last"):
        foreign(ours.with_node(replace(node, order="channels_first")), SPECS)
    with pytest.raises(UnsupportedError, match="input 'w' is computed: Compass stores 'weights' as a constant"):
        foreign(ours.with_tensors(replace(ours.tensor("conv3x3:weights"), data=None)), SPECS)
    with pytest.raises(UnsupportedError, match=r"conv2d has no Compass layer: add formats\.compass to its spec"):
        foreign(ours, {"conv2d": CONV.model_copy(update={"formats": type(CONV.formats)()})})
    with pytest.raises(GraphError, match="conv2d without attribute 'stride'"):
        foreign(ours.with_node(replace(node, attrs={"padding": (0, 0, 0, 0)})), SPECS)


def test_layers_without_a_spec_stay() -> None:
    graph = load("compass_net/plain/quant")
    ours = native(graph, {})
    assert [node.op for node in ours.nodes] == [node.op for node in graph.nodes][1:]
    assert same(graph, foreign(ours, {})) is None
    mixed = native(graph, {"reshape": RESHAPE})
    assert [node.op for node in mixed.nodes].count("reshape") == 1
    assert PARAMS in mixed.node("flat").extra
    assert SOURCES in mixed.extra
    assert same(native(mixed, {"reshape": RESHAPE}).with_(extra=mixed.extra), mixed) is None
