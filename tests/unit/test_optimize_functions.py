"""Layers of one input that no recorded run holds, restated in numpy from the formulas of the Compass Optimizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from quantizer.core.errors import GraphError
from quantizer.core.library import load_library
from quantizer.ir.formats import compass
from quantizer.numerics import mkl
from quantizer.ops import load_built_ins
from quantizer.optimize import steps
from quantizer.optimize.cfg import read_cfg
from quantizer.optimize.comparing import read_back
from quantizer.optimize.work import Work

load_built_ins()
LIBRARY = load_library()
Array = np.ndarray[Any, Any]
F32 = np.float32
LAYER = """model_name=one
layer_number=2
input_tensors=[x]
output_tensors=[y]

layer_id=0
layer_name=x
layer_type=Input
layer_bottom=[]
layer_bottom_shape=[]
layer_bottom_type=[]
layer_top=[x]
layer_top_shape=[{shape}]
layer_top_type=[float32]

layer_id=1
layer_name=one
layer_type={kind}
layer_bottom=[x]
layer_bottom_shape=[{shape}]
layer_bottom_type=[float32]
layer_top=[y]
layer_top_shape=[{shape}]
layer_top_type=[float32]
"""


def optimized(folder: Path, kind: str, values: Array, params: str = "", **cfg: object) -> Work:
    """Return the work of a graph of one layer, calibrated on *values* (one sample)."""
    shape = f"[{','.join(map(str, values.shape))}]"
    (folder / "float.txt").write_text(LAYER.format(shape=shape, kind=kind) + params)
    (folder / "float.bin").write_bytes(b"")
    np.save(folder / "calib.npy", values)
    given = {
        "graph": folder / "float.txt",
        "bin": folder / "float.bin",
        "dataset": "NumpyDataset",
        "calibration_data": folder / "calib.npy",
        "calibration_strategy_for_activation": "extrema",
        **cfg,
    }
    (folder / "opt.cfg").write_text("[Common]\n" + "".join(f"{key} = {value}\n" for key, value in given.items()))
    return steps.quantized(read_cfg(folder / "opt.cfg"), LIBRARY)


def codes_of(work: Work, values: Array) -> tuple[Array, Array]:
    """Return the codes that the layer reads and gives; the graph in memory and the one read back agree."""
    written = compass.to_bytes(compass.foreign(work.quantized_graph, LIBRARY.specs))
    runs = [
        {name: made.numpy() for name, _, made in work.runs.forward(graph, {"x": torch.from_numpy(values)})}
        for graph in (work.quantized_graph, read_back(*written, LIBRARY))
    ]
    assert all(np.array_equal(runs[0][name], runs[1][name]) for name in "xy")
    return runs[0]["x"], runs[0]["y"]


def layer_of(work: Work) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return parameters of the written layer, and constants as (type, values)."""
    graph = compass.from_bytes(*compass.to_bytes(compass.foreign(work.quantized_graph, LIBRARY.specs)))
    node = next(node for node in graph.nodes if node.op != "Input")
    constants = {
        str(name).rpartition(":")[2]: (graph.tensor(str(name)).dtype.name, graph.tensor(str(name)).data)
        for name in node.inputs[1:]
    }
    return dict(node.attrs), constants


def params_of(work: Work, name: str) -> tuple[Any, int, int, int]:
    """Return Compass's scale (codes per unit) and zero point of a tensor, and its codes."""
    params = work.quantized_graph.tensor(name).qparams
    assert params is not None
    assert params.steps is not None
    return params.steps.numpy(), -int(params.zero_point), params.qmin, params.qmax


def even_points(first: float, last: float, count: int) -> Array:
    """Return float32 points as torch.linspace gives them where the processor fuses."""
    step = float(F32(last - first) / F32(count - 1))
    place = np.arange(count)
    return np.where(place < count // 2, first + step * place, last - step * (count - 1 - place)).astype(F32)


def read(table: Array, place: Array, bits: int) -> Array:
    """Return entries of a table of a power of two of entries at *place*, on the chord in float32 between two."""
    rest = bits - int(np.log2(len(table)))
    padded = np.append(table, table[-1])
    index = place >> rest
    return padded[index] + (padded[index + 1] - padded[index]) * (place - (index << rest)).astype(F32) / F32(2**rest)


def random(*shape: int) -> Array:
    """Return numbers around 0 without a period."""
    return (6 * np.sin(np.arange(np.prod(shape)) * 12.9898) ** 3).astype(F32).reshape(shape)


@pytest.mark.parametrize(
    ("method", "bits", "lut"),
    [
        ("per_tensor_symmetric_full_range", 8, 8),
        ("per_tensor_symmetric_restricted_range", 8, 8),
        ("per_tensor_asymmetric", 8, 8),
        ("per_tensor_symmetric_full_range", 16, 10),
        ("per_tensor_asymmetric", 12, 8),
    ],
)
def test_log_softmax_computes_from_a_table_in_float32(tmp_path: Path, method: str, bits: int, lut: int) -> None:
    """On X2: float32 exponentials by a table, their sum and logarithm in float32; the output reaches from -16 to 0."""
    values = random(1, 6, 10)
    cfg = {"quantize_method_for_activation": method, "activation_bits": bits, "lut_items_in_bits": lut}
    work = optimized(tmp_path, "LogSoftmax", values, "axis=2\n", **cfg)
    (s_x, _, _, _), (s_y, zero, low, high) = params_of(work, "x"), params_of(work, "y")
    half = 2 ** (bits - 1)
    width = F32(16.0 if method.endswith("asymmetric") else 32.0)
    assert s_y == F32(2 * half - 1 - method.endswith("restricted_range")) / width
    assert (low, high, zero) == (-half, half - 1, -(half - 1) if method.endswith("asymmetric") else 0)
    params, constants = layer_of(work)
    kind, table = constants["lut_exp"]
    points = even_points(0, 2**bits - 1, 2 ** min(bits, lut))
    wanted = np.exp((points * (F32(1) / -s_x)).astype(np.float64)).astype(F32)[::-1]
    assert kind == "float32"
    assert int(np.abs(table.numpy().view(np.int32) - wanted.view(np.int32)).max()) <= mkl.is_pinned(), (
        "MKL's, within a unit"
    )
    wanted = table.numpy()
    assert (params["scale_value"], params["shift_value"]) == (1, 0)
    assert params["quantize_scale"] == (float(s_y / s_x), float(s_y))
    codes, got = codes_of(work, values)
    largest = codes.max(-1, keepdims=True)
    total = read(wanted, 2**bits - 1 - largest + codes, bits).astype(F32).sum(-1, keepdims=True, dtype=F32)
    value = (codes - largest).astype(F32) * (s_y / s_x) - np.log(total.astype(np.float64)).astype(F32) * s_y
    near = np.abs(value - np.floor(value) - F32(0.5)) > np.abs(value) * F32(2.0**-20)
    assert near.mean() > 0.9
    assert np.array_equal(got[near], np.clip(np.rint(value) - zero, low, high).astype(np.int64)[near])


def steps_between(low: Array, high: Array, method: str, bits: int, *, signed: bool) -> tuple[Any, int, int, int]:
    """Return Compass's scale and zero point of a range with 0 in it, and its codes."""
    largest = 2 ** (bits - signed) - 1
    smallest = 0 if not signed else -largest - (not method.endswith("restricted_range"))
    low, high = min(F32(0), F32(low)), max(F32(0), F32(high))
    if method.endswith("asymmetric"):
        scale = F32(largest - smallest) / (high - low) if high > low else F32(1)
        zero = int(np.clip(np.rint(scale * low) - smallest, -(2 ** (bits - 1)) + 1, 2 ** (bits - 1) - 1))
        return scale, zero, smallest, largest
    width = max(-low, high) * F32(2 if signed else 1)
    return F32(largest - smallest) / width if width else F32(1), 0, smallest, largest


def down(table: Array, place: Array, bits: int) -> Array:
    """Return entries of a table of integers at *place*, rounded down between two."""
    rest = bits - int(np.log2(len(table)))
    padded = np.append(table, table[-1])
    index = place >> rest
    return padded[index] + ((padded[index + 1] - padded[index]) * (place - (index << rest)) >> rest)


@pytest.mark.parametrize("shape", [(1, 6, 10), (128, 5), (1, 4, 1)])
@pytest.mark.parametrize(
    ("method", "bits", "lut"),
    [
        ("per_tensor_symmetric_full_range", 8, 8),
        ("per_tensor_symmetric_restricted_range", 9, 8),
        ("per_tensor_asymmetric", 8, 8),
        ("per_tensor_symmetric_full_range", 16, 10),
        ("per_tensor_asymmetric", 12, 8),
    ],
)
def test_log_softmax_of_older_targets(tmp_path: Path, method: str, bits: int, lut: int, shape: tuple[int, ...]) -> None:
    """Exponentials of 20 bits, shares of their sum in the steps of calibrated shares, and logarithms of these by a table."""
    values = random(*shape)
    cfg: dict[str, Any] = {"quantize_method_for_activation": method, "activation_bits": bits, "lut_items_in_bits": lut}
    cfg["min_compatible_zhouyi_target"] = "Z1"
    work = optimized(tmp_path, "LogSoftmax", values, f"axis={len(shape) - 1}\n", **cfg)
    if bits == 16:
        method = method.replace("asymmetric", "symmetric_restricted_range")
    powers = np.exp((values - values.max(-1, keepdims=True)).astype(np.float64))
    real = np.maximum((powers / powers.sum(-1, keepdims=True)).astype(F32), np.finfo(F32).eps)
    s_share, _, _, _ = steps_between(real.min(), real.max(), method, bits, signed=False)
    logs = np.log(real.astype(np.float64)).astype(F32)
    wanted_y = steps_between(logs.min(), logs.max(), method, bits, signed=True)
    s_y, zero, low, high = params_of(work, "y")
    assert (zero, low, high) == wanted_y[1:]
    assert abs(s_y / wanted_y[0] - 1) < 1e-6
    params, constants = layer_of(work)
    assert "quantize_scale" not in params
    ratio = params["scale_value"] * 2.0 ** -params["shift_value"]
    assert abs(ratio / s_share - 1) < 2.0 ** (1 - min(bits, 15))
    assert [(key, constants[key][0]) for key in constants][0] == ("lut_exp", "uint32")
    assert constants["lut_log"][0] == f"int{next(size for size in (8, 12, 16) if size >= bits)}"
    s_x, zero_x, _, _ = params_of(work, "x")
    top = np.rint(s_x * F32(np.log(2.0**20)) - F32(zero_x))
    points = even_points(0, 2**bits - 1, 2 ** min(bits, lut))
    places = (points + top - F32(2**bits) + F32(zero_x)) * (F32(1) / s_x)
    exponentials = np.clip(np.rint(np.exp(places.astype(np.float64)).astype(F32)), 0, 2**20).astype(np.int64)
    assert np.array_equal(constants["lut_exp"][1].numpy().astype(np.int64), exponentials)
    with np.errstate(divide="ignore"):
        logarithms = np.log(even_points(0, 1, 2 ** min(bits, lut)).astype(np.float64)).astype(F32)
    table = np.clip(np.rint(logarithms * s_y - F32(zero)), low, high).astype(np.int64)
    table[0] = table[1]
    assert np.array_equal(constants["lut_log"][1].numpy().astype(np.int64), table)
    codes, got = codes_of(work, values)
    y = down(exponentials, codes - codes.max(-1, keepdims=True) + 2**bits - 1, bits)
    total = np.maximum(y.sum(-1, keepdims=True), 1)
    scale, shift = params["scale_value"], params["shift_value"]
    if shape[-1] < 8 and values.size // shape[-1] % 128 == 0:
        share = np.rint(((y << 11) + (total >> 1)) // total * scale * 2.0 ** -(shift + 11))
    else:
        more = (30 if exponentials.max() == 1 else 31) - int(np.ceil(np.log2(scale)))
        share = np.rint(y * ((scale << more) // total) * 2.0 ** -(shift + more))
    share = np.clip(share, 0, high - low).astype(np.int64)
    assert np.array_equal(got, down(table, share, bits))


def test_log_softmax_of_older_targets_needs_a_table_of_its_bits(tmp_path: Path) -> None:
    cfg = {"min_compatible_zhouyi_target": "X1", "lut_items_in_bits": 8}
    wide = {"activation_bits": "8 & <[LogSoftmax]:12>"}
    with pytest.raises(GraphError, match="'one': log_softmax: shares of 12 bits leave the table"):
        optimized(tmp_path, "LogSoftmax", random(1, 4, 5), "axis=2\n", **cfg, **wide)
    narrow = {"activation_bits": "12 & <[LogSoftmax]:8>"}
    work = optimized(tmp_path, "LogSoftmax", random(1, 4, 5), "axis=2\n", **cfg, **narrow)
    assert params_of(work, "y")[2:] == (-128, 127)


@pytest.mark.parametrize(("kind", "f"), [("Sine", np.sin), ("Cosine", np.cos)])
@pytest.mark.parametrize(
    ("method", "bits", "lut"),
    [
        ("per_tensor_symmetric_full_range", 16, 10),
        ("per_tensor_symmetric_restricted_range", 16, 12),
        ("per_tensor_asymmetric", 12, 8),
        ("per_tensor_asymmetric", 9, 16),
    ],
)
def test_a_period_of_more_than_8_bits(tmp_path: Path, kind: str, f: Any, method: str, bits: int, lut: int) -> None:
    """A table over [0, 2 pi], both ends in it, read at round(code * m * 2**-n) modulo its size; 1 is the largest code."""
    values = random(1, 6, 10)
    cfg = {"quantize_method_for_activation": method, "activation_bits": bits, "lut_items_in_bits": lut}
    work = optimized(tmp_path, kind, values, **cfg)
    (s_x, z_x, _, _), (s_y, z_y, low, high) = params_of(work, "x"), params_of(work, "y")
    largest = 2 ** (bits - 1) - 1
    assert (s_y, z_y, low, high) == (largest, 0, -largest, largest)
    params, constants = layer_of(work)
    size = 2 ** min(bits, lut)
    points = even_points(0, float(F32(2 * np.pi)), size).astype(np.float64)
    table = np.rint(f(points).astype(F32) * F32(largest)).astype(np.int64)
    got_kind, entries = constants["lut"]
    assert got_kind == "int16"
    assert np.abs(entries.numpy().astype(np.int64) - table).max() <= 1
    ratio = F32(size / 2 / np.pi) / s_x
    shift = min(31, int(np.floor(np.log2(F32(2.0 ** min(15, bits) - 1) / ratio))))
    assert (params["scale_value"], params["shift_value"]) == (int(np.floor(ratio * F32(2.0**shift) + F32(0.5))), shift)
    assert (str(params["scale_type"]), str(params["shift_type"])) == ("uint16", "int8")
    codes, got = codes_of(work, values)
    place = np.rint((codes + z_x) * float(params["scale_value"]) * 2.0**-shift).astype(np.int64) % size
    assert np.array_equal(got, entries.numpy().astype(np.int64)[place])


@pytest.mark.parametrize(("kind", "f"), [("Sine", np.sin), ("Cosine", np.cos)])
def test_a_period_of_8_bits_is_a_table_over_the_codes(tmp_path: Path, kind: str, f: Any) -> None:
    values = random(1, 6, 10)
    work = optimized(tmp_path, kind, values, quantize_method_for_activation="per_tensor_asymmetric")
    (s_x, z_x, first, last), (s_y, z_y, low, high) = params_of(work, "x"), params_of(work, "y")
    params, constants = layer_of(work)
    assert "scale_value" not in params
    real = (np.arange(first, last + 1).astype(F32) + z_x) * (F32(1) / s_x)
    wanted = np.clip(np.rint(f(real.astype(np.float64)).astype(F32) * s_y - z_y), low, high).astype(np.int64)
    table = constants["lut"][1].numpy().astype(np.int64)
    assert np.abs(table - wanted).max() <= 1
    assert (table == wanted).mean() > 0.98
    codes, got = codes_of(work, values)
    assert np.array_equal(got, table[codes - first])


@pytest.mark.parametrize(
    ("method", "bits"),
    [
        ("per_tensor_asymmetric", 8),
        ("per_tensor_asymmetric", 12),
        ("per_tensor_asymmetric", 15),
        ("per_tensor_symmetric_full_range", 16),
    ],
)
def test_bounds_of_a_clip(tmp_path: Path, method: str, bits: int) -> None:
    """Up to 8 bits, bounds are centred codes of 8 bits more; above, they are codes, but clamp centred ones all the same."""
    values = random(1, 6, 10)
    cfg = {"quantize_method_for_activation": method, "activation_bits": bits}
    work = optimized(tmp_path, "Activation", values, "method=CLIP\nclip_min=-1.5\nclip_max=2.0\n", **cfg)
    (_, z_x, _, _), (s_y, z_y, low, high) = params_of(work, "x"), params_of(work, "y")
    params, _ = layer_of(work)
    relay = 8 if bits <= 8 else 0
    zero = 0 if relay else z_y
    ends = [int(np.rint(F32(end) * (s_y * F32(2**relay)) - F32(zero))) for end in (-1.5, 2.0)]
    assert [params["clip_min"], params["clip_max"]] == ends
    codes, got = codes_of(work, values)
    gain = params["scale_value"] * 2.0 ** (relay - params["shift_value"])
    held = np.clip(np.rint((codes + z_x) * gain), *ends)
    assert np.array_equal(got, np.clip(np.rint(held * 2.0**-relay) - z_y, low, high).astype(np.int64))


@pytest.mark.parametrize(
    ("kind", "method", "params"),
    [
        ("Sigmoid", "SIGMOID", ""),
        ("Tanh", "TANH", ""),
        ("RELU", "RELU", ""),
        ("RELU6", "RELU6", ""),
        ("Silu", "SILU", ""),
        ("LeakyRELU", "LEAKYRELU", "negative_slope_value=0.1\n"),
        ("Clip", "CLIP", "clip_min=-1.0\nclip_max=2.0\n"),
        ("ELU", "ELU", "alpha=1.0\n"),
        ("GELU", "GELU", "approximate=NONE\n"),
        ("Hardswish", "HARDSWISH", ""),
        ("HardSigmoid", "HARDSIGMOID", "alpha=0.2\nbeta=0.5\nclip_min=0.0\nclip_max=1.0\n"),
        ("Softplus", "SOFTPLUS", ""),
        ("CELU", "CELU", "alpha=1.0\n"),
        ("SELU", "SELU", "alpha=1.67\ngamma=1.05\n"),
        ("MISH", "MISH", ""),
        ("Softsign", "SOFTSIGN", ""),
        ("THRESHOLDEDRELU", "THRESHOLDEDRELU", "alpha=0.5\n"),
        ("Swish", "SWISH", "alpha=1.0\n"),
        ("SHRINK", "SHRINK", "lambd=0.5\nbias=0.0\n"),
    ],
)
def test_an_activation_may_be_a_separate_layer_type(tmp_path: Path, kind: str, method: str, params: str) -> None:
    """Its numbers and codes are those of the method; the file keeps the type, and has no method."""
    values, found = random(1, 6, 10), []
    for name, lines in ((kind, params), ("Activation", f"method={method}\n{params}")):
        work = optimized(tmp_path, name, values, lines)
        own, constants = layer_of(work)
        codes = codes_of(work, values)[1]
        tables = {key: (dtype, held.tolist()) for key, (dtype, held) in constants.items()}
        text, _ = compass.to_bytes(compass.foreign(work.quantized_graph, LIBRARY.specs))
        assert f"layer_type={name}\n" in text
        said = own.pop("method", None)
        assert (said is None) == (name == kind)
        found.append((own, tables, codes.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("kind", "lines", "cfg", "wanted"),
    [
        (
            "LeakyRELU",
            "negative_slope_value=0.1\n",
            {},
            "negative_slope_type scale_value shift_value shift_type scale_type",
        ),
        ("Clip", "clip_min=-1.0\nclip_max=2.0\n", {}, "scale_value shift_value scale_type shift_type"),
        ("Abs", "", {}, "shift_value shift_type scale_value scale_type"),
        ("LogSoftmax", "axis=2\n", {}, "quantize_scale shift_value shift_type scale_value scale_type"),
        ("Sine", "", {"activation_bits": 16, "lut_items_in_bits": 10}, "shift_value shift_type scale_value scale_type"),
        (
            "LayerNorm",
            "axis=[2]\nepsilon=0.001\n",
            {},
            "var_shift_value var_shift_type norm_scale_value norm_scale_type norm_shift_value norm_shift_type"
            " scale_value scale_type shift_value shift_type",
        ),
        (
            "Softmax",
            "axis=2\n",
            {"enable_pass_tune_op_softmax": "[1,1][0]"},
            "input_scale_value input_shift_value input_scale_type input_shift_type pow2_out_q adjust_q quantize_method",
        ),
    ],
)
def test_lines_have_the_order_of_the_original(
    tmp_path: Path, kind: str, lines: str, cfg: dict[str, object], wanted: str
) -> None:
    """Quantization keys follow the layer's own lines in the order of the original."""
    own, _ = layer_of(optimized(tmp_path, kind, random(1, 6, 10), lines, **cfg))
    said = [line.partition("=")[0] for line in lines.splitlines()]
    assert list(own) == [
        *said,
        "is_perf_mode",
        "unquantifiable",
        *wanted.split(),
        "activation_quantization_axis",
    ]
