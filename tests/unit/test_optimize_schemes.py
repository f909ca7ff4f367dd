"""Schemes beyond the recorded runs: what the flow writes, computed once more from what it wrote, as facts of Compass have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from quantizer.core.errors import UnsupportedError
from quantizer.core.library import load_library
from quantizer.ir.formats import compass
from quantizer.ir.graph import Graph
from quantizer.ops import load_built_ins
from quantizer.optimize import steps
from quantizer.optimize.cfg import read_cfg
from quantizer.optimize.comparing import read_back
from quantizer.optimize.fields import METHODS
from quantizer.optimize.work import Work

load_built_ins()
LIBRARY = load_library()
ROOT = Path(__file__).parents[2] / "cases" / "reference" / "compass"
PADDED = 1


def quantized(tmp_path: Path, name: str, *lines: str) -> tuple[Work, Graph, Graph]:
    """Return the work of a recorded operator with another cfg, the written graph, and the graph read back."""
    source = ROOT / name / "ext"
    given = dict(line.split(" = ") for line in (source / "opt.cfg").read_text().splitlines()[1:])
    given |= dict(line.split(" = ", 1) for line in lines)
    for key in ("graph", "bin", "calibration_data"):
        given[key] = str(source / given[key])
    (tmp_path / "opt.cfg").write_text("[Common]\n" + "".join(f"{key} = {value}\n" for key, value in given.items()))
    work = steps.quantized(read_cfg(tmp_path / "opt.cfg"), LIBRARY)
    text, blob = compass.to_bytes(compass.foreign(work.quantized_graph, LIBRARY.specs))
    return work, compass.from_bytes(text, blob), read_back(text, blob, LIBRARY)


def constant(graph: Graph, key: str) -> torch.Tensor:
    """Return a constant of the only layer with constants, by Compass's name."""
    (node,) = [node for node in graph.nodes if node.op != "Input"]
    keys = node.extra["compass.constants"]
    assert isinstance(keys, tuple)
    data = graph.tensor(str(node.inputs[len(node.inputs) - len(keys) + keys.index(key)])).data
    assert data is not None
    return data.double()


def param(graph: Graph, key: str) -> Any:
    (node,) = [node for node in graph.nodes if node.op != "Input"]
    return node.attrs[key]


def scale_and_zero(graph: Graph, key: str) -> tuple[torch.Tensor, torch.Tensor]:
    try:
        return constant(graph, f"{key}_scale"), constant(graph, f"{key}_zp")
    except ValueError:
        return torch.tensor([param(graph, f"{key}_scale")]).double(), torch.tensor([param(graph, f"{key}_zp")]).double()


def convolved(graph: Graph, codes: torch.Tensor) -> torch.Tensor:
    """Return the output codes of a 3x3 convolution: Compass's forward on the numbers of its file, float64."""
    x, y = (graph.tensor(name).qparams for name in ("in0", "conv3x3_out"))
    assert x is not None
    assert y is not None
    _, zero = scale_and_zero(graph, "weights")
    weights = constant(graph, "weights").permute(0, 3, 1, 2) + zero.reshape(-1, 1, 1, 1)
    padded = torch.nn.functional.pad(codes.double().permute(0, 3, 1, 2), (PADDED,) * 4, value=float(x.zero_point))
    acc = torch.nn.functional.conv2d(padded, weights, constant(graph, "biases"))
    try:
        scale, shift = constant(graph, "scale").reshape(-1, 1, 1), constant(graph, "shift").reshape(-1, 1, 1)
    except ValueError:
        scale, shift = (torch.tensor(float(param(graph, f"{key}_value"))) for key in ("scale", "shift"))
    found = torch.round(acc * scale * 2.0**-shift) + y.zero_point
    return found.clamp(y.qmin, y.qmax).permute(0, 2, 3, 1).long()


CONV_METHODS = [method for method in METHODS if not method.startswith("per_block")]


@pytest.mark.parametrize("weight", CONV_METHODS)
@pytest.mark.parametrize(
    "activation",
    [
        "per_tensor_symmetric_full_range",
        "per_tensor_symmetric_restricted_range",
        "per_tensor_asymmetric",
        "per_channel_symmetric_full_range",
    ],
)
@pytest.mark.parametrize("bits", [(8, 8), (4, 8), (8, 10), (16, 16)])
def test_convolutions_of_every_method(tmp_path: Path, weight: str, activation: str, bits: tuple[int, int]) -> None:
    """Parameters restated in numpy; codes by the file's numbers, asymmetric weights and activations (defect C) included."""
    work, graph, back = quantized(
        tmp_path,
        "conv3x3",
        f"quantize_method_for_weight = {weight}",
        f"quantize_method_for_activation = {activation}",
        f"weight_bits = {bits[0]}",
        f"activation_bits = {bits[1]}",
        "bias_bits = 40",
    )
    floats = work.float_graph.tensor("conv3x3:weights").data
    assert floats is not None
    rows = floats.numpy().reshape(6, -1) if weight.startswith("per_channel") else floats.numpy().reshape(1, -1)
    steps_, zeros = restated(rows.min(1), rows.max(1), bits[0], weight)
    scale, zero = scale_and_zero(graph, "weights")
    assert scale.float().numpy().tolist() == steps_.tolist()
    assert zero.numpy().tolist() == zeros.tolist()
    codes = np.rint(rows.astype(np.float32) * steps_[:, None] - zeros[:, None].astype(np.float32))
    low, high = code_range(bits[0], weight)
    assert constant(graph, "weights").reshape(codes.shape).numpy().tolist() == codes.clip(low, high).tolist()
    samples = torch.from_numpy(np.load(ROOT / "conv3x3" / "ext" / "calib.npy"))
    for sample in samples.split(1):
        params = back.tensor("in0").qparams
        assert params is not None
        inputs = work.runs.codes(sample, params)
        (got,) = work.runs.outputs(back, {"in0": sample})
        (direct,) = work.runs.outputs(work.quantized_graph, {"in0": sample})
        assert torch.equal(got, direct)
        assert torch.equal(got, convolved(graph, inputs))


def code_range(bits: int, method: str) -> tuple[int, int]:
    return -(1 << (bits - 1)) + ("restricted" in method), (1 << (bits - 1)) - 1


def restated(
    low: np.ndarray[Any, Any], high: np.ndarray[Any, Any], bits: int, method: str
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return Compass's scales and zero points of signed codes."""
    low, high = np.minimum(low, 0).astype(np.float32), np.maximum(high, 0).astype(np.float32)
    smallest, largest = code_range(bits, method)
    asymmetric = method.endswith("asymmetric")
    width = high - low if asymmetric else np.float32(2) * np.maximum(-low, high)
    scale = np.float32(largest - smallest) / width
    limit = (1 << (bits - 1)) - 1
    zero = np.clip(np.rint(scale * low) - smallest, -limit, limit) if asymmetric else np.zeros_like(scale)
    return scale, zero


@pytest.mark.parametrize("method", [m for m in METHODS if m.startswith("per_block")])
def test_blocks_are_for_weights_of_float_layers(tmp_path: Path, method: str) -> None:
    with pytest.raises(UnsupportedError, match="layer 'conv3x3': quantize_method_for_weight"):
        quantized(tmp_path, "conv3x3", f"quantize_method_for_weight = {method}")


@pytest.mark.parametrize("name", ["act_sigmoid", "softmax", "layernorm", "elt_add"])
def test_layers_with_one_activation_scale_refuse_per_channel(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsupportedError, match="has one scale for its activations"):
        quantized(tmp_path, name, "quantize_method_for_activation = per_channel_symmetric_full_range")


@pytest.mark.parametrize("bits", range(8, 17))
@pytest.mark.parametrize("lut", [8, 10, 16])
def test_tables_of_every_width(tmp_path: Path, bits: int, lut: int) -> None:
    """2**min(bits, lut) entries; the codes that are read back are those of the direct run."""
    work, graph, back = quantized(tmp_path, "act_sigmoid", f"activation_bits = {bits}", f"lut_items_in_bits = {lut}")
    assert constant(graph, "lut").numel() == 1 << min(bits, lut)
    params = graph.tensor("in0").qparams
    assert params is not None
    assert (params.qmin, params.qmax) == (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    feeds = {"in0": torch.from_numpy(np.load(ROOT / "act_sigmoid" / "ext" / "calib.npy")[:1])}
    (got,), (direct,) = (work.runs.outputs(item, feeds) for item in (back, work.quantized_graph))
    assert torch.equal(got, direct)
    output = back.tensor("act_sigmoid_out").qparams
    assert output is not None
    assert output.steps is not None
    error = (got.double() / float(output.steps) - torch.sigmoid(feeds["in0"].double())).abs().max()
    width = 2 * float(feeds["in0"].abs().max()) / (1 << min(bits, lut))
    assert float(error) <= 2 * (0.25 * width + 1.0 / (1 << bits))
    """Half a step of the input and a misaligned entry move sigmoid by a quarter of that, twice; an output step beside."""


@pytest.mark.parametrize(
    "line",
    [
        "multiplier_bits = 7",
        "force_dtype_int = true",
        "force_shift_positive = true",
        "unify_shifts_for_aiff = false",
        "min_compatible_zhouyi_target = Z1",
        "bias_bits = 16",
        "bias_effective_bits = 16",
    ],
)
@pytest.mark.parametrize(
    "name",
    [
        "conv3x3",
        "dwconv3x3",
        "fc",
        "elt_add",
        "concat",
        "act_relu",
        "reduce_mean",
        "matmul",
        "batchnorm",
        "layernorm",
        "softmax",
        "act_sigmoid",
        "avgpool2",
    ],
)
def test_settings_of_the_arithmetic_run_and_read_back(tmp_path: Path, name: str, line: str) -> None:
    work, graph, back = quantized(
        tmp_path, name, line, "quantize_method_for_weight = per_channel_symmetric_restricted_range"
    )
    assert work.calibration is not None
    feeds, _ = next(iter(work.calibration.batches()))
    (got,), (direct,) = (work.runs.outputs(item, feeds) for item in (back, work.quantized_graph))
    assert torch.equal(got, direct)
    tops = [graph.tensor(tensor) for node in graph.nodes for tensor in node.outputs]
    if line.startswith("force_dtype_int"):
        assert all(top.dtype.kind == "int" for top in tops)
    node = next(node for node in graph.nodes if node.op != "Input")
    if (
        line.startswith("multiplier_bits")
        and isinstance(node.attrs.get("scale_value"), int)
        and name not in ("softmax", "act_relu", "reduce_mean")
    ):
        assert node.attrs["scale_value"] < 1 << 7


def test_unified_shifts_can_be_switched_off(tmp_path: Path) -> None:
    lines = ("quantize_method_for_weight = per_channel_symmetric_restricted_range",)
    _, together, _ = quantized(tmp_path, "conv3x3", *lines)
    _, alone, _ = quantized(tmp_path, "conv3x3", *lines, "unify_shifts_for_aiff = false")
    assert len(set(constant(together, "shift").tolist())) == 1
    assert constant(alone, "scale").max() <= 255
    ratios = [constant(graph, "scale") * 2.0 ** -constant(graph, "shift") for graph in (together, alone)]
    assert bool(((ratios[0] / ratios[1] - 1).abs() <= 2.0**-7).all())


def test_input_layers_may_hold_int32_codes(tmp_path: Path) -> None:
    _, graph, _ = quantized(tmp_path, "reshape", "set_qinvariant_for_start_nodes = 0")
    params = graph.tensor("in0").qparams
    assert params is not None
    assert (float(params.scale), int(params.zero_point), graph.tensor("in0").dtype.name) == (1.0, 0, "int32")


def test_ranges_of_the_ir(tmp_path: Path) -> None:
    """in_ir takes layer_top_range and weights_range of the float IR instead of what is observed."""
    source = ROOT / "conv3x3" / "ext"
    text = (source / "float.txt").read_text()
    text = text.replace(
        "layer_top_type=[float32]\n\nlayer_id=1", "layer_top_type=[float32]\nlayer_top_range=[[-2.0,4.0]]\n\nlayer_id=1"
    )
    text = text.replace("weights_type=", "layer_top_range=[[-1.0,8.0]]\nweights_range=[-0.5,0.25]\nweights_type=")
    (tmp_path / "float.txt").write_text(text)
    (tmp_path / "opt.cfg").write_text(
        f"[Common]\ngraph = {tmp_path / 'float.txt'}\nbin = {source / 'float.bin'}\n"
        "calibration_strategy_for_activation = in_ir\ncalibration_strategy_for_weight = in_ir\n"
    )
    work = steps.quantized(read_cfg(tmp_path / "opt.cfg"), LIBRARY)
    graph = compass.from_bytes(*compass.to_bytes(compass.foreign(work.quantized_graph, LIBRARY.specs)))
    steps_ = [float(params.steps) for name in ("in0", "conv3x3_out") if (params := graph.tensor(name).qparams)]  # type: ignore[arg-type]
    assert steps_ == [float(np.float32(255) / np.float32(8)), float(np.float32(255) / np.float32(16))]
    assert param(graph, "weights_scale") == 254.0
