"""Passes of the flow: which softmax a graph gets, and what that by powers of two gives; factors beside a MatMul."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from quantizer.core.errors import UnsupportedError
from quantizer.core.library import load_library
from quantizer.ir.formats import compass
from quantizer.ops import load_built_ins
from quantizer.optimize import steps
from quantizer.optimize.cfg import read_cfg
from quantizer.optimize.comparing import read_back
from quantizer.optimize.work import Work

load_built_ins()
LIBRARY = load_library()
SOURCE = Path(__file__).parents[2] / "cases" / "reference" / "compass" / "softmax" / "ext"
FOLLOWED = """
layer_id=2
layer_name=flat
layer_type=Reshape
layer_bottom=[softmax_out]
layer_bottom_shape=[[1,4,10]]
layer_bottom_type=[float32]
layer_top=[flat_out]
layer_top_shape=[[1,40]]
layer_top_type=[float32]
shape=[1,40]
"""


def quantized(tmp_path: Path, *lines: str) -> Work:
    """Return the work of the recorded softmax with a layer after it."""
    text = (SOURCE / "float.txt").read_text().replace("layer_number=2", "layer_number=3")
    text = text.replace("output_tensors=[softmax_out]", "output_tensors=[flat_out]")
    (tmp_path / "float.txt").write_text(text.rstrip() + "\n" + FOLLOWED)
    given = {"graph": "float.txt", "bin": str(SOURCE / "float.bin"), "dataset": "NumpyDataset"}
    given |= {"calibration_data": str(SOURCE / "calib.npy"), "calibration_strategy_for_activation": "extrema"}
    given |= dict(line.split(" = ", 1) for line in lines)
    (tmp_path / "opt.cfg").write_text("[Common]\n" + "".join(f"{key} = {value}\n" for key, value in given.items()))
    return steps.quantized(read_cfg(tmp_path / "opt.cfg"), LIBRARY)


def restated(codes: np.ndarray[Any, Any], attrs: dict[str, Any], bits: int) -> np.ndarray[Any, Any]:
    """Return a softmax of powers of two along the last axis, in Python's integers."""
    point, halves = attrs["pow2_out_q"], attrs["adjust_q"]
    found = np.zeros(codes.shape, dtype=np.int64)
    for index in np.ndindex(codes.shape[:-1]):
        row = [int(code) for code in codes[index]]
        distances = [
            math.floor((code - max(row)) * attrs["input_scale_value"] / 2 ** attrs["input_shift_value"]) for code in row
        ]
        total = max(1, sum(2 ** (point + distance) for distance in distances if point + distance >= 0))
        whole = total.bit_length() - 1
        logarithm = whole - point + (0.5 if halves and total / 2**whole > 1518500250 / 2**30 else 0.0)
        for place, distance in enumerate(distances):
            exponent = math.floor(distance + bits - logarithm)
            found[(*index, place)] = min(2**exponent if exponent >= 0 else 0, 2**bits - 1)
    return found


@pytest.mark.parametrize(
    ("lines", "halves"),
    [
        ((), 1),
        (("enable_pass_tune_op_softmax = [1,1][0]",), 1),
        (("enable_pass_tune_op_softmax = [1,0][0]",), 0),
        (("quantize_method_for_activation = per_tensor_asymmetric",), 1),
        (("activation_bits = 16", "bias_bits = 48"), 1),
        (("force_dtype_int = true", "force_shift_positive = true"), 1),
        (("calibration_strategy_for_activation = mean",), 1),
    ],
)
def test_powers_of_two_inside_a_graph(tmp_path: Path, lines: tuple[str, ...], halves: int) -> None:
    work = quantized(tmp_path, *lines)
    text, blob = compass.to_bytes(compass.foreign(work.quantized_graph, LIBRARY.specs))
    graph = compass.from_bytes(text, blob)
    node = next(node for node in graph.nodes if node.op == "Softmax")
    bits = 16 if "activation_bits = 16" in lines else 8
    assert node.attrs["quantize_method"] == "FAST_EXP"
    assert (node.attrs["pow2_out_q"], node.attrs["adjust_q"]) == (28, halves)
    assert str(node.attrs["input_scale_type"]) == "uint16"
    assert not {"scale_value", "lut_type"} & node.attrs.keys()
    top = graph.tensor("softmax_out")
    assert top.qparams is not None
    assert (top.dtype.name, round(1 / float(top.qparams.scale))) == (f"uint{bits}", 2**bits - 1)
    scale = graph.tensor("in0").qparams
    assert scale is not None
    ratio = node.attrs["input_scale_value"] * 2.0 ** -node.attrs["input_shift_value"]  # type: ignore[operator]
    assert ratio == pytest.approx(float(scale.scale) / math.log(2), rel=2.0**-12)
    assert work.calibration is not None
    back = read_back(text, blob, LIBRARY)
    for feeds, _ in work.calibration.batches():
        (got,), (direct,) = (work.runs.outputs(item, feeds) for item in (back, work.quantized_graph))
        values = next(iter(feeds.values())) if isinstance(feeds, dict) else feeds[0]
        params = work.quantized_graph.tensor("in0").qparams
        assert params is not None
        codes = np.clip(
            np.round(np.asarray(values, np.float32) * np.float32(1 / float(params.scale))) + int(params.zero_point),
            params.qmin,
            params.qmax,
        )
        wanted = restated(codes.astype(np.int64), dict(node.attrs), bits)
        for found in (got, direct):
            stored = np.asarray(found).reshape(wanted.shape)
            assert np.array_equal(stored, wanted)


def test_softmax_uses_tables_if_its_output_is_ranked(tmp_path: Path) -> None:
    work = quantized(tmp_path, "enable_pass_tune_op_softmax = [2,20][0]")
    text, blob = compass.to_bytes(compass.foreign(work.quantized_graph, LIBRARY.specs))
    node = next(node for node in compass.from_bytes(text, blob).nodes if node.op == "Softmax")
    assert node.attrs["quantize_method"] == "LUT"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("enable_pass_tune_op_softmax = [1,5][0]", "adjust_q 5"),
        ("enable_pass_tune_op_softmax = [1,16][0]", "adjust_q 16"),
        ("enable_pass_tune_op_softmax = [2,40][0]", "40 bits"),
    ],
)
def test_unimplemented_softmaxes_are_refused(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(UnsupportedError, match=said):
        quantized(tmp_path, line)


def both(work: Work) -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Return for each calibration batch the codes that the softmax reads, and those it gives; file and memory agree."""
    text, blob = compass.to_bytes(compass.foreign(work.quantized_graph, LIBRARY.specs))
    back = read_back(text, blob, LIBRARY)
    assert work.calibration is not None
    found = []
    for feeds, _ in work.calibration.batches():
        given = feeds if isinstance(feeds, dict) else {"in0": feeds[0]}
        runs = [{n: v.numpy() for n, _, v in work.runs.forward(g, given)} for g in (work.quantized_graph, back)]
        assert all(np.array_equal(runs[0][name], runs[1][name]) for name in ("in0", "softmax_out"))
        found.append((runs[0]["in0"], runs[0]["softmax_out"]))
    return found


def layer(work: Work) -> tuple[Any, Any]:
    """Return the written softmax and its graph in Compass vocabulary."""
    graph = compass.from_bytes(*compass.to_bytes(compass.foreign(work.quantized_graph, LIBRARY.specs)))
    return next(node for node in graph.nodes if node.op == "Softmax"), graph


@pytest.mark.parametrize("fraction", [8, 12, 15])
@pytest.mark.parametrize("bits", [8, 16])
def test_powers_of_two_with_a_fraction(tmp_path: Path, fraction: int, bits: int) -> None:
    """Exponents of *fraction* bits; powers and logarithms by tables of 256 entries in units of 2**-15 (facts of Compass)."""
    lines = [f"enable_pass_tune_op_softmax = [1,{fraction}][0]", f"activation_bits = {bits}"]
    work = quantized(tmp_path, *lines)
    node, graph = layer(work)
    own = node.attrs
    assert (own["quantize_method"], own["adjust_q"], own["pow2_out_q"]) == ("FAST_EXP", fraction, 28)
    tables = {}
    for key, kind in (("log2_lut", "int16"), ("pow2_lut", "uint16")):
        tensor = graph.tensor(next(str(name) for name in node.inputs if str(name).endswith(key)))
        assert tensor.dtype.name == kind
        tables[key] = [int(code) for code in tensor.data.view(torch.uint16).long()]
    assert tables["log2_lut"] == [round(math.log2(1 + i / 256) * 2**15) for i in range(256)]
    assert tables["pow2_lut"] == [round(2 ** (i / 256) * 2**15) for i in range(256)]

    def power(exponent: int, point: int) -> int:
        whole, rest = exponent >> fraction, exponent % 2**fraction
        return int(tables["pow2_lut"][rest >> (fraction - 8)] * 2**15 // 2 ** (30 - point - whole))

    for codes, got in both(work):
        for index in np.ndindex(codes.shape[:-1]):
            row = [int(code) for code in codes[index]]
            scaled = [
                math.floor((code - max(row)) * own["input_scale_value"] * 2.0 ** (fraction - own["input_shift_value"]))
                for code in row
            ]
            total = sum(power(exponent, 28) for exponent in scaled)
            whole = total.bit_length() - 1
            entry = tables["log2_lut"][(total << (30 - whole) >> 22) % 256]
            logarithm = (entry << 15 >> (30 - fraction)) + ((whole - 28) << fraction)
            wanted = [min(power(exponent - logarithm, bits), 2**bits - 1) for exponent in scaled]
            assert got[index].tolist() == wanted


@pytest.mark.parametrize(
    ("line", "bits", "kind"), [("[2]", 28, "uint32"), ("[2,16]", 16, "uint16"), ("[2,8]", 8, "uint8")]
)
def test_tables_of_other_widths(tmp_path: Path, line: str, bits: int, kind: str) -> None:
    """Without a number, entries leave room for the sum over the axis of ten in 32 bits; the largest passes through float32."""
    work = quantized(tmp_path, f"enable_pass_tune_op_softmax = {line}[0]")
    node, graph = layer(work)
    table = graph.tensor(next(str(name) for name in node.inputs if str(name).endswith("lut")))
    assert (table.dtype.name, int(table.data.numpy()[-1])) == (kind, int(np.float32(2**bits - 1)))
    assert both(work)


def test_the_newest_unit_computes_in_24_bit_floats(tmp_path: Path) -> None:
    """Restated in numpy's float32: every result of the unit has its last eight bits cleared (facts of Compass)."""
    work = quantized(tmp_path, "min_compatible_zhouyi_target = X3P_1304")
    node, graph = layer(work)
    assert (node.attrs["quantize_method"], node.attrs["is_perf_mode"]) == ("LUT", True)
    table = graph.tensor(next(str(name) for name in node.inputs if str(name).endswith("float_lut"))).data.numpy()
    f32 = np.float32

    def cut(values: Any) -> Any:
        return (np.asarray(values, dtype=f32).view(np.uint32) & np.uint32(0xFFFFFF00)).view(f32)

    assert np.array_equal(table, cut(np.exp2(np.arange(513) / 512).astype(f32)))
    steps = {
        name: f32(1 / float(params.scale)) for name in ("in0", "softmax_out") if (params := graph.tensor(name).qparams)
    }
    for codes, got in both(work):
        x = codes.astype(f32)
        exponents = cut((x.max(-1, keepdims=True) - x) * cut(f32(-1) / (f32(0.6931471) * steps["in0"])))
        exponents = np.clip(exponents, f32(-126.9), f32(126.9))
        whole = np.floor(exponents)
        place = ((exponents - whole) * f32(65535)).astype(np.int64)
        chord = (table[(place >> 7) + 1] - table[place >> 7]) * (place & 127).astype(f32)
        powers = cut((table[place >> 7] + chord * f32(2.0**-7)) * np.exp2(whole).astype(f32))
        inverse = cut(f32(1) / cut(powers.sum(-1, keepdims=True, dtype=f32)))
        wanted = np.rint(cut(powers.astype(np.float16).astype(f32)) * steps["softmax_out"] * inverse)
        assert np.array_equal(got, np.clip(wanted, 0, 255).astype(np.int64))


def test_clamping_and_rectifying_keep_the_bits_of_the_activation(tmp_path: Path) -> None:
    source = SOURCE.parents[1] / "act_relu" / "ext"
    found = {}
    for lines in ((), ("multiplier_bits = 5",)):
        given = [f"{key} = {source / name}" for key, name in (("graph", "float.txt"), ("bin", "float.bin"))]
        given += ["dataset = NumpyDataset", f"calibration_data = {source / 'calib.npy'}", *lines]
        (tmp_path / "opt.cfg").write_text("[Common]\n" + "\n".join(given) + "\n")
        work = steps.quantized(read_cfg(tmp_path / "opt.cfg"), LIBRARY)
        text, blob = compass.to_bytes(compass.foreign(work.quantized_graph, LIBRARY.specs))
        node = next(node for node in compass.from_bytes(text, blob).nodes if node.op == "Activation")
        found[lines] = (node.attrs["scale_value"], node.attrs["shift_value"], str(node.attrs["scale_type"]))
    assert len(set(found.values())) == 1


CONSTANT = """
layer_id=3
layer_name=factor
layer_type=Constant
layer_bottom=[]
layer_bottom_shape=[]
layer_bottom_type=[]
layer_top=[factor_out]
layer_top_shape=[[1,5,6]]
layer_top_type=[float32]
weights_type=float32
weights_offset=0
weights_size=120
weights_shape=[1,5,6]

layer_id=4
layer_name=scaled
layer_type=Eltwise
layer_bottom=[matmul_out,factor_out]
layer_bottom_shape=[[1,5,6],[1,5,6]]
layer_bottom_type=[float32,float32]
layer_top=[scaled_out]
layer_top_shape=[[1,5,6]]
layer_top_type=[float32]
method=MUL
with_activation=NONE
"""


@pytest.mark.parametrize(
    ("factors", "merged", "refused"),
    [
        ([0.25] * 30, "true", True),
        ([0.25] * 30, "false", False),
        ([0.25] * 29 + [0.5], "true", False),
        ([-0.25] * 30, "true", False),
    ],
)
def test_one_factor_behind_a_matmul(tmp_path: Path, factors: list[float], merged: str, refused: bool) -> None:  # noqa: FBT001
    source = SOURCE.parents[1] / "matmul" / "ext"
    text = (source / "float.txt").read_text().replace("layer_number=3", "layer_number=5")
    text = text.replace("output_tensors=[matmul_out]", "output_tensors=[scaled_out]")
    (tmp_path / "float.txt").write_text(text.rstrip() + "\n" + CONSTANT)
    (tmp_path / "float.bin").write_bytes(np.array(factors, np.float32).tobytes())
    lines = (source / "opt.cfg").read_text().splitlines()
    kept = [line for line in lines if not line.startswith(("graph", "bin", "calibration_data"))]
    kept += ["graph = float.txt", "bin = float.bin", f"calibration_data = {source / 'calib.npy'}"]
    kept.append(f"enable_pass_merge_matmul_mul = {merged}")
    (tmp_path / "opt.cfg").write_text("\n".join(kept) + "\n")
    options = read_cfg(tmp_path / "opt.cfg")
    if refused:
        with pytest.raises(UnsupportedError, match="folds the factor of layer 'scaled'"):
            steps.quantized(options, LIBRARY)
    else:
        steps.quantized(options, LIBRARY)


SCALED = """
layer_id=3
layer_name=norm
layer_type=BatchNorm
layer_bottom=[in0]
layer_bottom_shape=[[1,5,7]]
layer_bottom_type=[float32]
layer_top=[norm_out]
layer_top_shape=[[1,5,7]]
layer_top_type=[float32]
weights_type=float32
weights_offset=0
weights_size=28
weights_shape=[7]
biases_type=float32
biases_offset=28
biases_size=28
biases_shape=[7]
axis=2
epsilon=0
"""


@pytest.mark.parametrize(
    ("weights", "biases", "merged", "refused"),
    [
        ([0.5] * 7, [0.0] * 7, "true", True),
        ([0.5] * 7, [0.0] * 7, "false", False),
        ([0.5] * 6 + [0.25], [0.0] * 7, "true", False),
        ([0.5] * 7, [0.0] * 6 + [1.0], "true", False),
    ],
)
def test_one_factor_before_a_matmul(
    tmp_path: Path,
    weights: list[float],
    biases: list[float],
    merged: str,
    refused: bool,  # noqa: FBT001
) -> None:
    source = SOURCE.parents[1] / "matmul" / "ext"
    text = (source / "float.txt").read_text().replace("layer_number=3", "layer_number=4")
    start = text.index("layer_id=2")
    product = text[start:].replace("layer_bottom=[in0,", "layer_bottom=[norm_out,").replace("layer_id=2", "layer_id=3")
    text = text[:start] + SCALED.strip().replace("layer_id=3", "layer_id=2") + "\n\n" + product.rstrip() + "\n"
    text = text.replace("layer_number=4", "layer_number=5").replace(
        "output_tensors=[matmul_out]", "output_tensors=[flat_out]"
    )
    text += (
        FOLLOWED.replace("layer_id=2", "layer_id=4")
        .replace("softmax_out", "matmul_out")
        .replace("1,4,10", "1,5,6")
        .replace("1,40", "1,30")
    )
    (tmp_path / "float.txt").write_text(text)
    (tmp_path / "float.bin").write_bytes(np.array(weights + biases, np.float32).tobytes())
    lines = (source / "opt.cfg").read_text().splitlines()
    kept = [line for line in lines if not line.startswith(("graph", "bin", "calibration_data"))]
    kept += ["graph = float.txt", "bin = float.bin", f"calibration_data = {source / 'calib.npy'}"]
    kept.append(f"enable_pass_merge_matmul_mul = {merged}")
    (tmp_path / "opt.cfg").write_text("\n".join(kept) + "\n")
    options = read_cfg(tmp_path / "opt.cfg")
    if refused:
        with pytest.raises(UnsupportedError, match="folds the factor of layer 'norm'"):
            steps.quantized(options, LIBRARY)
    else:
        steps.quantized(options, LIBRARY)
