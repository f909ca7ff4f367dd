"""Fields and methods that concern some layers alone: Winograd's convolution, coarser resizing, calibration of norms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quantizer.core.errors import GraphError, UnsupportedError
from tests.unit.one_layer import Ran, noise, ran


def convolution(
    folder: Path,
    size: int = 12,
    channels: tuple[int, int] = (8, 8),
    kernel: int = 3,
    pad: int = 0,
    up: float = 0.0,
    **cfg: object,
) -> Ran:
    c_in, c_out = channels
    lines = f"kernel_x={kernel}\nkernel_y={kernel}\nstride_x=1\nstride_y=1\n"
    lines += f"pad_left={pad}\npad_right={pad}\npad_top={pad}\npad_bottom={pad}\n"
    lines += f"dilation_x=1\ndilation_y=1\ngroup=1\nnum_output={c_out}\nwith_activation=NONE\n"
    made = size + 2 * pad - kernel + 1
    constants = {"weights": noise(c_out, kernel, kernel, c_in) + np.float32(up), "biases": noise(c_out)}
    samples = [noise(1, size, size, c_in) + np.float32(up)]
    return ran(folder, "Convolution", [samples], [(1, made, made, c_out)], lines, constants, with_winograd=True, **cfg)


@pytest.mark.parametrize(("size", "channels"), [(12, (8, 8)), (9, (8, 8)), (10, (8, 600)), (20, (32, 16))])
def test_winograd_is_used_if_it_takes_fewer_cycles(tmp_path: Path, size: int, channels: tuple[int, int]) -> None:
    """By hand: 10 rows are 5 and 3 blocks of 2 and 4 instead of 10 and 5, of 110 cycles instead of 72 each."""
    made = convolution(tmp_path, size, channels)
    assert [made.params[key] for key in ("kernel_x", "kernel_y", "stride_x", "stride_y")] == [4, 3, 2, 1]
    assert made.params["with_winograd"] is True
    assert made.params["Fmnrs"] == (2, 3)
    assert list(made.params).index("scale_type") + 1 == list(made.params).index("with_winograd")
    assert made.constants["weights"][1].shape == (channels[1], 3, 4, channels[0])


@pytest.mark.parametrize("zeros", [(), ("activation",), ("weight",), ("activation", "weight")])
@pytest.mark.parametrize("pad", [0, 1])
def test_winograd_codes_follow_from_the_transformed_weights(tmp_path: Path, zeros: tuple[str, ...], pad: int) -> None:
    """Pieces of four places, turned, times the codes, added over channels and rows, give two outputs each.

    The file's bias holds what the input's zero point adds, which are the second places of the rows, twice; as everywhere in
    Compass it has forgotten the zero point of the weights.
    """
    methods = {f"quantize_method_for_{what}": "per_tensor_asymmetric" for what in zeros}
    made = convolution(tmp_path, 14, pad=pad, up=2.0, **methods)
    (kind, codes), (_, bias) = made.constants["weights"], made.constants["biases"]
    assert kind == "int8"
    zero_x, zero_w = made.zero("x0"), made.params["weights_zp"]
    assert (zero_x != 0) == ("activation" in zeros)
    assert (zero_w != 0) == ("weight" in zeros)
    codes = codes.astype(np.int64)
    x = np.pad(made.inputs[0].astype(np.int64), ((0, 0), (pad, pad), (pad, pad), (0, 0)), constant_values=-zero_x)
    pieces = np.lib.stride_tricks.sliding_window_view(x, (3, 4), (1, 2))[:, :, ::2]
    turned = pieces @ np.array([[1, 0, 0, 0], [0, 1, -1, 1], [-1, 1, 1, 0], [0, 0, 0, -1]])
    parts = np.einsum("nhwckt,oktc->nhwot", turned, codes + zero_w) @ np.array([[1, 0], [1, 1], [1, -1], [0, -1]])
    size = 12 + 2 * pad
    sums = parts.transpose(0, 1, 2, 4, 3).reshape(1, size, size, 8) + bias
    assert np.array_equal(made.outputs[0], (np.rint(sums * made.ratio()) - made.zero("y0")).clip(*made.ends("y0")))
    own = bias - zero_x * 2 * codes[:, :, 1].sum((1, 2))
    assert np.abs(own / made.params["biases_scale"] - noise(8)).max() <= 0.51 / made.params["biases_scale"]


@pytest.mark.parametrize(
    ("size", "channels", "kernel"),
    [(12, (4, 8), 3), (7, (8, 8), 3), (12, (8, 8), 1), (8, (5, 4), 3), (10, (64, 16), 3)],
)
def test_winograd_changes_no_other_layers(tmp_path: Path, size: int, channels: tuple[int, int], kernel: int) -> None:
    """Few channels, few rows, another kernel; 6 rows: 2 blocks of 110 against 3 of 72; 8 rows: 220 and 120 to fetch against 288."""
    assert "with_winograd" not in convolution(tmp_path, size, channels, kernel).params


def test_resizing_of_codes_falls_back_to_nearest(tmp_path: Path) -> None:
    """The layer says nearest in small letters and has no weights; real values were resized as they are."""
    samples = [noise(1, 3, 4, 2)]
    lines = "method=BILINEAR\nmode=half_pixel\nratio_x=2.0\nratio_y=2.0\n"
    made = ran(tmp_path, "Resize", [samples], [(1, 6, 8, 2)], lines, resize_degrade_to_nearest=True)
    assert made.params["method"] == "nearest"
    assert made.params["interp_shift_value"] == 0
    assert np.array_equal(made.outputs[0], made.inputs[0].repeat(2, 1).repeat(2, 2))


def fully_connected(folder: Path, activation: str = "NONE", **cfg: object) -> Ran:
    given = {"weights": noise(4, 5), "biases": noise(4, seed=2)}
    lines = f"num_output=4\nwith_activation={activation}\n"
    return ran(folder, "FullyConnected", [[noise(3, 5)]], [(3, 4)], lines, given, **cfg)


def test_a_method_for_norms_changes_nothing_without_norms(tmp_path: Path) -> None:
    plain, calibrated = (fully_connected(tmp_path, global_calibration=text) for text in ("none", "mvn_correction[0]"))
    assert calibrated.text == plain.text
    assert all(np.array_equal(calibrated.constants[key][1], plain.constants[key][1]) for key in plain.constants)


def test_svd_quant_is_accepted_only_without_a_search(tmp_path: Path) -> None:
    """Mode 0 looks at layers whose types it is given, and at no others."""
    plain, same = (fully_connected(tmp_path, global_calibration=text) for text in ("none", "svd_quant[0]{one}"))
    assert same.text == plain.text
    for text in ("svd_quant[1]", "svd_quant[2,0.5,2,10,0.09]{one}", "svd_quant[0][FullyConnected]"):
        with pytest.raises(UnsupportedError, match="svd_quant would change it.*last bits of libraries"):
            fully_connected(tmp_path, global_calibration=text)
    other = fully_connected(tmp_path, global_calibration="svd_quant[1]{two}")
    assert other.text == plain.text


@pytest.mark.parametrize("activation", ["NONE", "RELU"])
@pytest.mark.parametrize("weights", ["per_tensor", "per_channel"])
@pytest.mark.parametrize("method", ["awq_zy", "smooth_quant_zy & mvn_correction"])
def test_per_channel_methods_give_products_three_scales(
    tmp_path: Path, method: str, weights: str, activation: str
) -> None:
    """By hand: the sum of products of codes times two units, a real bias, and the output's steps of what is rectified."""
    changes = {"quantize_method_for_weight": f"{weights}_symmetric_restricted_range", "global_calibration": method}
    made = fully_connected(tmp_path, activation, **changes)
    assert "scale_value" not in made.params
    assert (made.params["biases_scale"], made.params["biases_zp"]) == (1.0, 0)
    units, weight_units, steps = (made.constants[f"scale{number}"][1] for number in (1, 2, 3))
    assert np.array_equal(units, np.float32(1) / made.scale("x0").reshape(1, 1))
    assert weight_units.shape == ((1, 1) if weights == "per_tensor" else (1, 4))
    assert np.array_equal(steps, made.scale("y0").reshape(1))
    kind, bias = made.constants["biases"]
    assert kind == "float32"
    assert np.array_equal(bias, noise(4, seed=2))
    products = made.inputs[0].astype(np.float64) @ made.constants["weights"][1].astype(np.float64).T
    real = products * units * weight_units + bias
    real = (real.clip(min=0) if activation == "RELU" else real).astype(np.float32)
    assert np.array_equal(made.outputs[0], np.rint(real * steps).clip(*made.ends("y0")))
    assert "activation_quantization_axis=[1]" in made.text.split("layer_name=one")[0]


IMAGE = [noise(1, 4, 6, 8)]
FORGETTING: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "Reduce": ("Reduce", "method=MAX\naxis=[3]\n", (1, 4, 6, 1)),
    "Resize": ("Resize", "method=BILINEAR\nmode=half_pixel\nratio_x=2.0\nratio_y=2.0\n", (1, 8, 12, 8)),
    "DepthToSpace": ("DepthToSpace", "block_size_x=2\nblock_size_y=2\nmode=DCR\n", (1, 8, 12, 2)),
    "SpaceToDepth": ("SpaceToDepth", "block_size_x=2\nblock_size_y=2\n", (1, 2, 3, 32)),
    "Crop": ("Crop", "crops=[[0,1],[1,3],[0,6],[0,8]]\n", (1, 2, 6, 8)),
}
KEEPING: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "Reshape": ("Reshape", "shape=[1,24,8]\n", (1, 24, 8)),
    "Transpose": ("Transpose", "perm=[0,3,1,2]\n", (1, 8, 4, 6)),
    "Slice": ("Slice", "begin=[0,1,0,0]\nend=[1,3,6,8]\nstrides=[1,1,1,1]\n", (1, 2, 6, 8)),
    "Tile": ("Tile", "repeats=[1,2,1,1]\n", (1, 8, 6, 8)),
    "Pad": ("Pad", "pads=[[0,0],[1,1],[1,1],[0,0]]\nmode=CONSTANT\nconstant_value=0\n", (1, 6, 8, 8)),
}


@pytest.mark.parametrize("name", [*FORGETTING, *KEEPING])
def test_some_layers_lose_the_restricted_range(tmp_path: Path, name: str) -> None:
    """They copy scale and zero point but no ends, which then are those of the format."""
    kind, lines, shape = (FORGETTING | KEEPING)[name]
    method = "per_tensor_symmetric_restricted_range"
    made = ran(tmp_path, kind, [IMAGE], [shape], lines, quantize_method_for_activation=method)
    assert made.ends("x0") == (-127, 127)
    assert made.ends("y0") == (-128 if name in FORGETTING else -127, 127)


@pytest.mark.parametrize(
    ("kind", "lines"), [("Reduce", "method=MEAN\naxis=[3]\n"), ("Reduce", "method=SUM\naxis=[3]\n"), ("Abs", "")]
)
def test_multipliers_that_have_as_many_bits_as_activations(tmp_path: Path, kind: str, lines: str) -> None:
    shape = (1, 4, 6, 1) if lines else (1, 4, 6, 8)
    plain, narrow = (ran(tmp_path, kind, [IMAGE], [shape], lines, **own).text for own in ({}, {"multiplier_bits": 5}))
    assert narrow == plain


def test_other_multipliers_have_the_bits_that_are_asked_for(tmp_path: Path) -> None:
    lines = "method=LEAKYRELU\nnegative_slope_value=0.1\n"
    made = ran(tmp_path, "Activation", [IMAGE], [IMAGE[0].shape], lines, multiplier_bits=5)
    assert 16 <= made.params["scale_value"] < 32 or made.params["scale_value"] == 1


@pytest.mark.parametrize(
    ("mode", "name"), [("REFLECT", "reflect"), ("symmetric", "symmetric"), ("EDGE", "edge"), ("WRAP", "wrap")]
)
def test_reflect_and_edge_padding_move_codes(tmp_path: Path, mode: str, name: Any) -> None:
    """Codes are moved; the value that no such mode reads is written as a code all the same."""
    pads = ((0, 0), (1, 2), (2, 1), (0, 0))
    lines = f"pads=[[0,0],[1,2],[2,1],[0,0]]\nmode={mode}\nconstant_value=0.5\n"
    made = ran(tmp_path, "Pad", [IMAGE], [(1, 7, 9, 8)], lines, quantize_method_for_activation="per_tensor_asymmetric")
    assert np.array_equal(made.outputs[0], np.pad(made.inputs[0], pads, mode=name))
    code = np.rint(np.float32(0.5) * made.scale("x0") - np.float32(made.zero("x0")))
    assert made.params["constant_value"] == float(code)
    assert made.params["mode"] == mode


def test_padding_of_an_unknown_mode(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="mode: got WRONG: must be CONSTANT, EDGE"):
        ran(tmp_path, "Pad", [IMAGE], [(1, 4, 6, 8)], "pads=[[0,0],[0,0],[0,0],[0,0]]\nmode=WRONG\n")


@pytest.mark.parametrize(
    ("kind", "known", "lines", "shape"),
    [
        ("Permute", "Transpose", "perm=[0,3,1,2]\n", (1, 8, 4, 6)),
        ("StridedSlice", "Slice", "begin=[0,1,0,0]\nend=[1,3,6,8]\nstrides=[1,1,1,1]\n", (1, 2, 6, 8)),
        ("Interp", "Resize", "method=NEAREST\nmode=asymmetric\nratio_x=2.0\nratio_y=2.0\n", (1, 8, 12, 8)),
    ],
)
def test_layers_under_two_names(tmp_path: Path, kind: str, known: str, lines: str, shape: tuple[int, ...]) -> None:
    """They say and compute the same; the file keeps the name."""
    own, other = (ran(tmp_path, name, [IMAGE], [shape], lines) for name in (kind, known))
    assert own.text == other.text.replace(f"layer_type={known}\n", f"layer_type={kind}\n")
    assert np.array_equal(own.outputs[0], other.outputs[0])


def test_log_softmax_has_the_bits_of_its_input(tmp_path: Path) -> None:
    """Its multiplier of 1 is written in a format of codes of the configured width."""
    bits = {"activation_bits": "8 & <[LogSoftmax]:12>"}
    made = ran(tmp_path, "LogSoftmax", [IMAGE], [IMAGE[0].shape], "axis=3\n", **bits)
    assert made.ends("y0") == (-128, 127)
    assert "scale_type=aligned_uint12\n" in made.text
    wide = ran(tmp_path, "LogSoftmax", [IMAGE], [IMAGE[0].shape], "axis=3\n", activation_bits=12)
    assert wide.ends("y0") == (-2048, 2047)


@pytest.mark.parametrize(
    ("method", "order"),
    [
        ("RELU", ["scale_value", "shift_value", "shift_type", "scale_type"]),
        ("RELU6", ["shift_value", "shift_type", "scale_value", "scale_type"]),
        ("CLIP\nclip_min=-1.0\nclip_max=2.0", ["scale_value", "shift_value", "scale_type", "shift_type"]),
    ],
)
def test_rectifiers_write_multiplier_keys_in_the_original_order(tmp_path: Path, method: str, order: list[str]) -> None:
    made = ran(tmp_path, "Activation", [[noise(1, 4, 4, 2)]], [(1, 4, 4, 2)], f"method={method}\n")
    assert [key for key in made.params if key in order] == order


@pytest.mark.parametrize(
    ("kind", "method", "found"),
    [
        ("Convolution", "per_tensor_symmetric_restricted_range", "uint8"),
        ("Convolution", "per_channel_symmetric_restricted_range", "uint16"),
        ("DepthwiseConv", "per_channel_symmetric_restricted_range", None),
    ],
)
def test_one_channel_has_the_multiplier_type_of_several(
    tmp_path: Path, kind: str, method: str, found: str | None
) -> None:
    """Unified multipliers have 16 bits; those of a depthwise convolution are constants in any case."""
    lines = "kernel_x=1\nkernel_y=1\nstride_x=1\nstride_y=1\n"
    lines += "pad_left=0\npad_right=0\npad_top=0\npad_bottom=0\n"
    lines += "dilation_x=1\ndilation_y=1\ngroup=1\nnum_output=1\nwith_activation=NONE\n"
    lines += "multiplier=1\n" if kind == "DepthwiseConv" else ""
    given = {"weights": noise(1, 1, 1, 1, seed=3), "biases": noise(1)}
    made = ran(tmp_path, kind, [[noise(1, 3, 3, 1)]], [(1, 3, 3, 1)], lines, given, quantize_method_for_weight=method)
    if found is None:
        assert made.constants["scale"][0] == "uint16"
        assert made.constants["scale"][1].shape == (1,)
    else:
        assert made.params["scale_type"].name == found


@pytest.mark.parametrize(
    ("kind", "found"),
    [("Sqrt", "uint16"), ("Reciprocal", "uint16"), ("Round", "uint16"), ("Sine", "int16"), ("Exp", "aligned_uint12")],
)
def test_tables_of_12_bits(tmp_path: Path, kind: str, found: str) -> None:
    """Functions with a table of their own keep the type that holds it, those of the general one take the output's."""
    made = ran(tmp_path, kind, [[np.abs(noise(1, 8)) + 1]], [(1, 8)], activation_bits=12)
    assert f"lut_type={found}\n" in made.text


def with_ranges(folder: Path, lines: str) -> Ran:
    given = {"weights": noise(3, 6), "biases": noise(3)}
    taken = dict.fromkeys(("calibration_strategy_for_weight", "calibration_strategy_for_activation"), "in_ir")
    return ran(folder, "FullyConnected", [[noise(2, 6)]], [(2, 3)], f"{lines}\nnum_output=3\n", given, **taken)


@pytest.mark.parametrize(
    "text",
    [
        "5",
        "abc",
        "[]",
        "[1,2,3]",
        "[a,b]",
        "[true,false]",
        "[1,-1]",
        "[-inf,inf]",
        "[-1e39,0]",
        "[[],[]]",
        "[[-1,-1],[1,1]]",
        "[[-1,-1,a],[1,1,1]]",
        "[[[-1]],[[1]]]",
    ],
)
def test_weight_ranges_are_two_numbers_or_two_lists(tmp_path: Path, text: str) -> None:
    with pytest.raises(GraphError, match="layer 'one': weights_range: got .*: must be a pair .* each of 3 slices"):
        with_ranges(tmp_path, f"weights_range={text}")


def test_weight_ranges_may_be_per_tensor_or_per_slice(tmp_path: Path) -> None:
    texts = [f"weights_range={text}" for text in ("[-2,2]", "[[-2],[2]]", "[[-1,-2,0],[1,2,1]]")]
    assert [with_ranges(tmp_path, text).params["weights_scale"] for text in texts] == [63.5] * 3


def test_a_real_range_is_not_written_for_codes(tmp_path: Path) -> None:
    """Its whole numbers were read as the ends of the codes, which saturate there."""
    made = with_ranges(tmp_path, "layer_top_range=[[-64,64]]")
    assert (made.scale("y0"), made.ends("y0")) == (np.float32(127.5 / 64), (-128, 127))
    assert "layer_top_range=[[-128,127]]" in made.text
    assert "64]]" not in made.text
