"""Functions of one input: their float values against ONNX Runtime's kernels, their tables against Compass's rule, step by step."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
import torch
from onnx import TensorProto, helper

from quantizer.cli import main
from quantizer.core.errors import GraphError, PluginError
from quantizer.core.library import load_library
from quantizer.ir.formats import compass
from quantizer.ir.formats.compass_read_back import with_parameters
from quantizer.ops import REGISTRY, Registration, load_built_ins
from quantizer.plugins.signatures import check_signature
from quantizer.runtime.executor import execute

load_built_ins()
LIBRARY = load_library()
ALL = np.linspace(-8.0, 8.0, 2048, dtype=np.float32)
ABOVE = np.linspace(0.0, 8.0, 2048, dtype=np.float32)
FUNCTIONS = {
    "exp": ("Exp", ALL, {}),
    "log": ("Log", ABOVE, {}),
    "sqrt": ("Sqrt", ABOVE, {}),
    "reciprocal": ("Reciprocal", ALL, {}),
    "erf": ("Erf", ALL, {}),
    "gelu": ("Gelu", ALL, {"approximate": "none"}),
    "gelu by tanh": ("Gelu", ALL, {"approximate": "tanh"}),
    "elu": ("Elu", ALL, {"alpha": 0.75}),
    "hard_swish": ("HardSwish", ALL, {}),
    "softplus": ("Softplus", ALL, {}),
    "floor": ("Floor", ALL, {}),
    "ceil": ("Ceil", ALL, {}),
    "round": ("Round", ALL, {}),
    "sign": ("Sign", ALL, {}),
    "tan": ("Tan", np.linspace(-1.5, 1.5, 2048, dtype=np.float32), {}),
    "atan": ("Atan", ALL, {}),
    "mish": ("Mish", ALL, {}),
    "softsign": ("Softsign", ALL, {}),
    "celu": ("Celu", ALL, {"alpha": 0.75}),
    "selu": ("Selu", ALL, {"alpha": 1.5, "gamma": 1.25}),
    "thresholded_relu": ("ThresholdedRelu", ALL, {"alpha": 0.75}),
}
"""Our name -> ONNX's, inputs, attributes."""


def onnxruntime(kind: str, values: np.ndarray, attrs: dict[str, object]) -> np.ndarray:
    node = helper.make_node(kind, ["x"], ["y"], **attrs)
    pair = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None]) for name in "xy"]
    graph = helper.make_graph([node], "one", pair[:1], pair[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": values})[
        0
    ]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("kind", ["reference", "function"])
def test_float_values_equal_onnxruntime(name: str, kind: str) -> None:
    """Four units in the last place of the value, and of the operand where a product cancels."""
    onnx_name, values, attrs = FUNCTIONS[name]
    wanted = onnxruntime(onnx_name, values, attrs).astype(np.float64)
    for dtype in (torch.float32, torch.float64):
        got = REGISTRY.get(name.partition(" ")[0], kind)(torch.from_numpy(values).to(dtype), **attrs).double().numpy()
        infinite = ~np.isfinite(wanted)
        assert np.array_equal(got[infinite], wanted[infinite])
        size = np.maximum(np.abs(wanted), np.minimum(np.abs(values), 8.0) * (name[:4] in ("gelu", "hard")))
        room = 4 * np.spacing(size[~infinite].astype(np.float32)) + 2.0**-24
        assert (np.abs(got[~infinite] - wanted[~infinite]) <= room).all()


OPERATIONS = 8
"""Roundings of float64, and last places of its library functions, between a formula and another form of it."""


def test_functions_that_onnxruntime_lacks_equal_their_formula() -> None:
    x = torch.linspace(-8.0, 8.0, 999, dtype=torch.float64)
    wanted = x / (1 + torch.exp(-x))
    assert torch.allclose(REGISTRY.get("silu", "reference")(x), wanted, rtol=OPERATIONS * 2.0**-53, atol=0)
    assert torch.allclose(
        REGISTRY.get("rsqrt", "reference")(x.abs()), x.abs() ** -0.5, rtol=OPERATIONS * 2.0**-53, atol=0
    )
    attrs = {"alpha": 0.2, "beta": 0.5, "low": -0.25, "high": 1.25}
    line = np.minimum(np.maximum(0.2 * x.numpy() + 0.5, -0.25), 1.25)
    for kind in ("reference", "function"):
        assert np.allclose(
            REGISTRY.get("hard_sigmoid", kind)(x, **attrs).numpy(), line, rtol=OPERATIONS * 2.0**-53, atol=0
        )


@pytest.mark.parametrize("name", ["log", "sqrt", "rsqrt", "reciprocal"])
def test_at_and_below_zero(name: str) -> None:
    """A pole is infinite and a value outside the domain NaN."""
    values = torch.tensor([0.0, -1.0])
    pole, below = REGISTRY.get(name, "reference")(values).tolist()
    assert pole == {"log": -np.inf, "sqrt": 0.0}.get(name, np.inf)
    assert below == -1.0 if name == "reciprocal" else np.isnan(below)


LAYER = """\
layer_id={number}
layer_name={name}
layer_type={type}
layer_bottom=[{bottom}]
layer_bottom_shape=[{shape}]
layer_bottom_type=[{kind}]
layer_top=[{name}]
layer_top_shape=[[1,4,6]]
layer_top_type=[float32]
{more}"""


def optimized(
    folder: Path, kind: str, more: str, samples: np.ndarray, *lines: str
) -> tuple[list[dict[str, str]], bytes]:
    """Return the sections of the quantized IR of one layer, and its constants."""
    layers = [
        LAYER.format(number=0, name="x", type="Input", bottom="", shape="", kind="", more=""),
        LAYER.format(number=1, name="y", type=kind, bottom="x", shape="[1,4,6]", kind="float32", more=more),
    ]
    header = "model_name=m\nlayer_number=2\ninput_tensors=[x]\noutput_tensors=[y]\n"
    (folder / "m.txt").write_text("\n".join([header, *layers]))
    (folder / "m.bin").write_bytes(b"")
    np.save(folder / "calib.npy", samples)
    cfg = (
        "[Common]",
        f"graph={folder}/m.txt",
        f"bin={folder}/m.bin",
        "model_name=m",
        "dataset=NumpyDataset",
        f"calibration_data={folder}/calib.npy",
        "calibration_strategy_for_activation=extrema",
        f"output_dir={folder}",
        "out_ir_name=quant",
        *lines,
    )
    (folder / "opt.cfg").write_text("\n".join(cfg) + "\n")
    assert main(["optimize", "--cfg", str(folder / "opt.cfg")]) == 0
    text = (folder / "quant.txt").read_text().strip()
    sections = [dict(line.split("=") for line in part.splitlines()) for part in text.split("\n\n")]
    return sections, (folder / "quant.bin").read_bytes()


def quantize(values: np.ndarray, section: dict[str, str]) -> np.ndarray:
    """clamp(round(scale * x - zp)) in float32, NaN as 0 (facts of the original, section 3)."""
    scale, zero = np.float32(json.loads(section["layer_top_scale"])[0]), json.loads(section["layer_top_zp"])[0]
    low, high = json.loads(section["layer_top_range"])[0]
    rounded = np.rint(scale * values.astype(np.float32) - np.float32(zero))
    return np.nan_to_num(np.clip(rounded, low, high), nan=0.0).astype(np.int64)


SAMPLES = (2.5 * np.sin(1.7 * np.arange(48))).reshape(2, 4, 6).astype(np.float32)
RESTRICTED = "quantize_method_for_activation=per_tensor_symmetric_restricted_range"
ASYMMETRIC = "quantize_method_for_activation=per_tensor_asymmetric"
WIDE = ("activation_bits=16", "weight_bits=16", "bias_bits=48", "lut_items_in_bits=10")
LAYERS = {
    "exp": ("Exp", "", {}, "uint"),
    "log": ("Log", "", {}, "int"),
    "sqrt": ("Sqrt", "", {}, "uint"),
    "rsqrt": ("Rsqrt", "", {}, "uint"),
    "reciprocal": ("Reciprocal", "", {}, None),
    "erf": ("Erf", "", {}, "int"),
    "floor": ("Floor", "", {}, "int"),
    "ceil": ("Ceil", "", {}, "int"),
    "round": ("Round", "", {}, None),
    "tan": ("Tan", "", {}, "int"),
    "atan": ("Atan", "", {}, "int"),
    "square": ("Square", "", {}, "uint"),
    "mish": ("Activation", "method=MISH\n", {}, "int"),
    "softsign": ("Activation", "method=SOFTSIGN\n", {}, "int"),
    "celu": ("Activation", "method=CELU\nalpha=0.75\n", {"alpha": 0.75}, "int"),
    "selu": ("Activation", "method=SELU\nalpha=1.5\ngamma=1.25\n", {"alpha": 1.5, "gamma": 1.25}, "int"),
    "thresholded_relu": ("Activation", "method=THRESHOLDEDRELU\nalpha=0.75\n", {"alpha": 0.75}, "uint"),
    "gelu": ("Activation", "method=GELU\napproximate=NONE\n", {"approximate": "none"}, "int"),
    "silu": ("Activation", "method=SILU\n", {}, "int"),
    "elu": ("Activation", "method=ELU\nalpha=0.75\n", {"alpha": 0.75}, "int"),
    "hard_swish": ("Activation", "method=HARDSWISH\n", {}, "int"),
    "softplus": ("Activation", "method=SOFTPLUS\n", {}, "uint"),
    "hard_sigmoid": (
        "Activation",
        "method=HARDSIGMOID\nalpha=0.2\nbeta=0.5\n",
        {"alpha": 0.2, "beta": 0.5, "low": 0.0, "high": 1.0},
        "uint",
    ),
}
"""Operator -> layer type, its keys, our attributes, kind of its codes (None: of the input's)."""
CONSUMED = {"elu": {"alpha"}, "celu": {"alpha"}, "selu": {"alpha", "gamma"}}
"""Operator -> keys that its table makes superfluous."""


@pytest.mark.parametrize("lines", [(), (RESTRICTED, "force_dtype_int=true"), (ASYMMETRIC,), WIDE], ids=str)
@pytest.mark.parametrize("op", LAYERS)
def test_written_table_layers_equal_those_of_compass(op: str, lines: tuple[str, ...], tmp_path: Path) -> None:
    """The sign of the codes, the table entry by entry, and no key more or fewer.

    Tables lie over linspace(qmin, qmax); where codes are restricted, all but those of sqrt, rsqrt, reciprocal and round
    repeat the first entry. One code is left open where float32 functions differ between libraries.
    """
    kind, more, attrs, codes = LAYERS[op]
    samples = SAMPLES
    samples = np.abs(samples) + np.float32(0.125) if op in ("log", "sqrt", "rsqrt", "reciprocal") else samples
    (_, source, layer), blob = optimized(tmp_path, kind, more, samples, *lines)
    forced = "force_dtype_int=true" in lines and op != "thresholded_relu"
    signed = codes == "int" or forced or (codes is None and source["layer_top_type"][1] == "i")
    assert layer["layer_top_type"] == f"[{'' if signed else 'u'}int{16 if lines == WIDE else 8}]"
    added = {"lut_type", "lut_offset", "lut_size", "lut_shape", "layer_top_range", "layer_top_scale", "layer_top_zp"}
    added |= {"is_perf_mode", "unquantifiable", "activation_quantization_axis"}
    before = {line.split("=")[0] for line in LAYER.splitlines() if "=" in line}
    before |= {line.split("=")[0] for line in more.splitlines()} - CONSUMED.get(op, set())
    assert layer.keys() == before | added
    start, size = int(layer["lut_offset"]), int(layer["lut_size"])
    entries = np.frombuffer(blob[start : start + size], layer["lut_type"]).astype(np.int64)
    low, high = json.loads(source["layer_top_range"])[0]
    repeats = low == -high and op not in ("sqrt", "rsqrt", "reciprocal", "round")
    points = np.linspace(low, high, len(entries) - repeats)
    points = np.concatenate([points[:1], points]) if repeats else points
    scale, zero = np.float32(json.loads(source["layer_top_scale"])[0]), json.loads(source["layer_top_zp"])[0]
    real = torch.from_numpy((points + zero) / scale)
    wanted = quantize(REGISTRY.get(op, "reference")(real, **attrs).numpy(), layer)
    away = np.abs(entries - wanted)
    assert away.max() <= (lines == WIDE or op in ("floor", "reciprocal"))
    assert np.count_nonzero(away) <= len(away) // 100


@pytest.mark.parametrize(
    ("samples", "lines", "zero"),
    [
        (SAMPLES, (), 1),
        (SAMPLES, (RESTRICTED,), 1),
        (SAMPLES + np.float32(0.5), (ASYMMETRIC,), None),
        (np.abs(SAMPLES), (), -127),
    ],
)
def test_negative_moves_codes(samples: np.ndarray, lines: tuple[str, ...], zero: int | None, tmp_path: Path) -> None:
    """The input's steps, signed codes of the whole format, zp = 1 - zp of the input, or -zp - 127 of an unsigned one."""
    (_, source, layer), blob = optimized(tmp_path, "Negative", "", samples, *lines)
    assert not blob
    assert layer["layer_top_scale"] == source["layer_top_scale"]
    assert (layer["layer_top_type"], layer["layer_top_range"]) == ("[int8]", "[[-128,127]]")
    wanted = 1 - json.loads(source["layer_top_zp"])[0] if zero is None else zero
    assert json.loads(layer["layer_top_zp"]) == [wanted]
    assert "scale_value" not in layer


@pytest.mark.parametrize("multiplier_bits", ["", "4"])
def test_abs_is_unsigned_with_a_multiplier_of_its_activation(multiplier_bits: str, tmp_path: Path) -> None:
    """s = s_y / s_x = 2: 8 bits whatever is configured, so 128 / 2**6."""
    lines = (f"multiplier_bits={multiplier_bits}",) if multiplier_bits else ()
    (_, _, layer), _ = optimized(tmp_path, "Abs", "", SAMPLES, *lines)
    names = ("layer_top_type", "scale_value", "shift_value", "scale_type", "shift_type")
    assert [layer[name] for name in names] == ["[uint8]", "128", "6", "uint8", "int8"]


@pytest.mark.parametrize("op", ["elu", "exp", "reciprocal", "round", "rsqrt", "selu"])
def test_a_written_layer_gives_the_codes_of_its_table(op: str, tmp_path: Path) -> None:
    """Restricted codes: x is the entry x - qmin of reciprocal and rsqrt, x + 128 of the others; alpha is in the table alone.

    So Round, whose table does not repeat the entry of qmin, reads that of the next code.
    """
    kind, more, _, _ = LAYERS[op]
    samples = np.abs(SAMPLES) + np.float32(0.125)
    (_, _, layer), blob = optimized(tmp_path, kind, more, samples, RESTRICTED, "force_dtype_int=true")
    graph = compass.native(compass.read(tmp_path / "quant.txt", tmp_path / "quant.bin"), LIBRARY.specs)
    ready = with_parameters(graph, LIBRARY.specs, LIBRARY.platform("compass"))
    codes = torch.arange(-127, 128)
    start, size = int(layer["lut_offset"]), int(layer["lut_size"])
    entries = np.frombuffer(blob[start : start + size], layer["lut_type"]).astype(np.int64)
    first = -127 if op in ("reciprocal", "rsqrt") else -128
    for part in (codes[:24], codes[-24:]):
        got = execute(ready, {"x": part.reshape(1, 4, 6)}, LIBRARY.specs).values["y"]
        assert got.flatten().tolist() == entries[part.numpy() - first].tolist()
    text, again = compass.to_bytes(compass.foreign(graph, LIBRARY.specs))
    assert (text, again) == ((tmp_path / "quant.txt").read_text(), blob)


@pytest.mark.parametrize("word", ["NONE", "none", "Tanh", "sigmoid"])
def test_words_keep_their_capitals(word: str, tmp_path: Path) -> None:
    if word == "sigmoid":
        with pytest.raises(AssertionError):
            optimized(tmp_path, "Activation", f"method=GELU\napproximate={word}\n", SAMPLES)
        text = (tmp_path / "m.txt").read_text()
        with pytest.raises(GraphError, match="layer 'y': approximate: got 'sigmoid': must be one of none, tanh"):
            compass.native(compass.from_bytes(text, b""), LIBRARY.specs)
        return
    (_, _, layer), _ = optimized(tmp_path, "Activation", f"method=GELU\napproximate={word}\n", SAMPLES)
    assert layer["approximate"] == word


def test_a_registered_function_provides_rule_and_forward() -> None:
    """On platforms with an own function, that one runs."""
    for kind in ("quantize", "quantized"):
        found = REGISTRY.find("exp", kind, "ideal")
        assert found is not None
        assert (found.kind, found.origin) == (kind, "built-in")
    assert REGISTRY.get("sigmoid", "quantize", "ort").__module__ == "quantizer.platforms.onnxruntime.rules"
    wrong = Registration("elu", "function", lambda x: x, (1,), None, "here")
    with pytest.raises(PluginError, match="takes no argument alpha"):
        check_signature(LIBRARY.spec("elu"), wrong)
