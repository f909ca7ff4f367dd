"""Specs as Compass layers: required keys, defaults of absent ones, and differing conventions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from quantizer.conformance.checks.round_trip import float_graph
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.dtypes import DTYPES
from quantizer.core.errors import UnsupportedError
from quantizer.core.library import load_library
from quantizer.ir.formats import compass
from quantizer.ir.formats.compass_mapping import FORMAT
from quantizer.ir.graph import Graph, Node, Tensor, same
from quantizer.numerics.qparams import QParams
from quantizer.ops import load_built_ins
from quantizer.plugins.aipu.optypes import OpTypeValue
from quantizer.plugins.layer import Layer
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.executor import execute

LIBRARY = load_library()
PLATFORM = LIBRARY.platform("compass")
SPECS = {name: spec for name, spec in LIBRARY.specs.items() if FORMAT in spec.formats}
REFERENCE = Path(__file__).parents[2] / "cases" / "reference" / "compass"
WINDOW = {"stride_y", "stride_x", "pad_top", "pad_bottom", "pad_left", "pad_right", "dilation_y", "dilation_x"}
KERNEL = {"kernel_y", "kernel_x"}
REQUIRED = {
    "Activation": {"method"},
    "ArgMinMax": {"axis", "method", "select_last_index"},
    "BatchNorm": {"axis"},
    "ChannelShuffle": {"group", "splits"},
    "Concat": {"axis"},
    "ConvTranspose": {*WINDOW, *KERNEL, "group", "num_output"},
    "Convolution": {*WINDOW, *KERNEL, "group", "num_output"},
    "Convolution3D": {
        "group", *(f"{key}_{axis}" for key in ("stride", "dilation", "kernel") for axis in "xyz"),
        *(f"pad_{axis}_{side}" for axis in "xyz" for side in ("begin", "end")),
    },
    "DepthToSpace": {"block_size_x", "block_size_y"},
    "DepthwiseConv": {*WINDOW, *KERNEL, "group", "multiplier", "num_output"},
    "Eltwise": {"method", "with_activation"},
    "FullyConnected": {"num_output"},
    "GlobalPool": {*WINDOW, "method"},
    "GroupNorm": {"axis", "group"},
    "InstanceNorm": {"epsilon"},
    "LayerNorm": {"axis"},
    "LogSoftmax": {"axis"},
    "MatMul": {"trans_a", "trans_b"},
    "Pad": {"pads", "mode", "constant_value"},
    "Pooling": {*WINDOW, *KERNEL, "method", "ceil_mode"},
    "RMSNorm": {"axis"},
    "Reduce": {"axis", "method"},
    "Reshape": {"shape"},
    "Gather": {"axis", "batch_dims"},
    "Resize": {"method", "mode"},
    "Slice": {"begin", "end", "strides"},
    "Sine": set(), "Cosine": set(),
    "Softmax": {"axis"},
    "SpaceToDepth": {"block_size_x", "block_size_y"},
    "Split": {"axis", "splits"},
    "Squeeze": {"axis"},
    "Tile": {"repeats"},
    "Transpose": {"perm"},
    **dict.fromkeys(
        ("Abs", "Atan", "Ceil", "Div", "Erf", "Exp", "Floor", "Log", "Negative", "Reciprocal", "Round", "Rsqrt", "Sqrt", "Square", "Tan"), set()
    ),
}  # fmt: skip
"""Layer type -> keys that the Compass Optimizer reads without a default of its own, and some that it has one for."""
BIASED = {"BatchNorm", "ConvTranspose", "Convolution", "Convolution3D", "DepthwiseConv", "FullyConnected"}
load_built_ins()


def drawn(op: str, seed: int) -> Trial:
    target = Target(LIBRARY.spec(op), LIBRARY.scheme("w8a8" if op_has_weights(op) else "a8"), PLATFORM)
    return Trial(target, build_case(target, HashChoices(seed, {})), BuiltinEngine())


def op_has_weights(op: str) -> bool:
    return any(item.role == "weight" for item in LIBRARY.spec(op).inputs.values())


def the_layer(graph: Graph) -> Node:
    (found,) = (node for node in graph.nodes if node.op not in ("Input", "Constant"))
    return found


@pytest.mark.parametrize("op", SPECS)
def test_a_written_layer_has_required_keys_and_round_trips(op: str) -> None:
    for seed in range(8):
        trial = drawn(op, seed)
        try:
            written = compass.foreign(float_graph(trial, "channels_last"), SPECS)
        except UnsupportedError:
            assert trial.case.attrs["keepdims"] is False
            continue
        layer = the_layer(written)
        assert REQUIRED[layer.op] <= layer.attrs.keys()
        stored = layer.extra["compass.constants"]
        assert stored == (("weights", "biases") if layer.op in BIASED else ()) or layer.op.endswith("Norm")
        text, blob = compass.to_bytes(written)
        read = compass.native(compass.from_bytes(text, blob), SPECS)
        (node,) = read.nodes
        assert (node.op, node.activation) == (op, trial.case.activation)
        assert compass.to_bytes(compass.foreign(read, SPECS)) == (text, blob)
        feeds = {
            name: torch.full(
                read.tensor(name).shape, 0.0 if LIBRARY.spec(op).inputs[key].kind == "index" else 1.0
            ).double()
            for key, name in zip(LIBRARY.spec(op).inputs, node.inputs, strict=True)
            if name in read.inputs
        }
        own = float_graph(trial, "channels_last")
        made, again = execute(own, feeds, SPECS).values, execute(read, feeds, SPECS).values
        assert all(torch.equal(made[a], again[b]) for a, b in zip(own.outputs, node.outputs, strict=True))


@pytest.mark.parametrize("path", sorted(REFERENCE.glob("*/*/*.txt")), ids=lambda p: "-".join(p.parts[-3:]))
def test_reference_files_survive_the_specs_of_the_library(path: Path) -> None:
    graph = compass.read(path, path.with_suffix(".bin"))
    ours = compass.native(graph, SPECS)
    assert same(graph, compass.foreign(ours, SPECS)) is None
    assert compass.to_bytes(compass.foreign(ours, SPECS))[0] == path.read_text()


def changed(op: str, seed: int, **attrs: Any) -> Graph:
    """Return a drawn layer with other parameters; ... takes one away."""
    graph = compass.foreign(float_graph(drawn(op, seed), "channels_last"), SPECS)
    node = the_layer(graph)
    kept = {key: value for key, value in {**node.attrs, **attrs}.items() if value is not ...}
    return graph.with_node(replace(node, attrs=kept))


@pytest.mark.parametrize(
    ("op", "absent", "wanted"),
    [
        ("conv_transpose2d", {"output_padding_x": 0}, {"output_padding": (0, 0)}),
        ("avg_pool2d", {"stride_y": 1, "pad_top": 0, "dilation_y": 1}, {}),
        ("max_pool2d", {"kernel_y": 1, "stride_y": 1, "pad_top": 0, "pad_bottom": 0, "dilation_y": 1}, {}),
        ("global_avg_pool2d", {"stride_y": 1, "pad_top": 0, "pad_bottom": 0, "dilation_y": 1}, {}),
    ],
)
def test_absent_keys_take_the_defaults_of_the_original(op: str, absent: dict[str, int], wanted: dict[str, Any]) -> None:
    """A layer without the keys is the operator that a layer with them is, and stays without them."""
    said = compass.native(changed(op, 1, **absent), SPECS).nodes[0]
    without = changed(op, 1, **dict.fromkeys(absent, ...))
    unsaid = compass.native(without, SPECS)
    assert (unsaid.nodes[0].op, dict(unsaid.nodes[0].attrs)) == (op, dict(said.attrs))
    assert wanted.items() <= unsaid.nodes[0].attrs.items()
    assert same(without, compass.foreign(unsaid, SPECS)) is None


@pytest.mark.parametrize("activation", ["NONE", "RELU", "RELU6", "relu6", ..., "CLIP", "LEAKYRELU", "TANH"])
@pytest.mark.parametrize("op", [*(op for op, spec in SPECS.items() if spec.fuses), "batch_norm"])
def test_an_activation_that_cannot_be_fused_stays_a_layer(op: str, activation: Any) -> None:
    """What a layer does not fuse stays a layer of Compass; every file is written back as it was."""
    taken: dict[str, Any] = {
        "CLIP": {"clip_min": -1.0, "clip_max": 2.0},
        "LEAKYRELU": {"negative_slope_value": 0.125},
    }.get(activation if isinstance(activation, str) else "", {})
    graph = changed(op, 1, with_activation=activation, **taken)
    ours = compass.native(graph, SPECS)
    name = "none" if activation is ... else activation.casefold()
    if name != "tanh":
        assert (ours.nodes[0].op, ours.nodes[0].activation) == (op, name)
        assert list(ours.nodes[0].activation_attrs.values()) == list(taken.values())
    else:
        assert ours.nodes[0].op == the_layer(graph).op
    assert same(graph, compass.foreign(ours, SPECS)) is None


def test_axes_of_a_batch_norm_count_from_the_front() -> None:
    """The original's permutation of an axis of -1 has one axis too many; a file that says so stays as it is."""
    shapes = {"x": (2, 3, 4), "weight": (4,), "bias": (4,)}
    tensors = [Tensor(n, s, DTYPES["float32"], None if n == "x" else torch.ones(s)) for n, s in shapes.items()]
    tensors.append(Tensor("y", shapes["x"], DTYPES["float32"]))
    node = Node("bn", "batch_norm", ("x", "weight", "bias"), ("y",), {"axis": -1}, "channels_last")
    written = compass.foreign(Graph("g", (node,), {t.name: t for t in tensors}, ("x",), ("y",)), SPECS)
    layer = the_layer(written)
    assert layer.attrs["axis"] == 2
    given = written.with_node(replace(layer, attrs={**layer.attrs, "axis": -1}))
    ours = compass.native(given, SPECS)
    assert ours.nodes[0].attrs["axis"] == -1
    assert same(given, compass.foreign(ours, SPECS)) is None


def test_conv3d_weights_have_depth_after_width() -> None:
    """Compass permutes [O, ky, kx, kz, I / group] by (0, 4, 3, 1, 2) before it convolves."""
    weight = torch.arange(2 * 2 * 3 * 4 * 5, dtype=torch.float32).reshape(2, 2, 3, 4, 5)
    scales = QParams(
        DTYPES["float32"], torch.tensor([1.0, 2.0]).double(), torch.zeros(2, dtype=torch.int64), 0, 0, axis=0
    )
    attrs = {"stride": (1, 1, 1), "padding": (0,) * 6, "dilation": (1, 1, 1), "groups": 1}
    last = weight.movedim(1, -1).contiguous()
    tensors = [
        Tensor("x", (1, 3, 4, 5, 2), DTYPES["float32"]),
        Tensor("w", tuple(last.shape), DTYPES["float32"], last, scales),
        Tensor("b", (2,), DTYPES["float32"], torch.zeros(2)),
        Tensor("y", (1, 1, 1, 1, 2), DTYPES["float32"]),
    ]
    node = Node("c", "conv3d", ("x", "w", "b"), ("y",), attrs, "channels_last")
    written = compass.foreign(Graph("g", (node,), {t.name: t for t in tensors}, ("x",), ("y",)), SPECS)
    layer = the_layer(written)
    stored = written.tensor(str(layer.inputs[1]))
    assert stored.data is not None and stored.qparams is not None
    assert (stored.shape, stored.qparams.axis) == ((2, 4, 5, 3, 2), 0)
    assert torch.equal(stored.data.permute(0, 4, 3, 1, 2), weight)
    conv = Layer(SPECS["conv3d"], OpTypeValue("Convolution3D"))
    plugin = conv.node({"x": torch.zeros(1, 2, 3, 4, 5), "weight": weight}, attrs, {}).constants["weights"]
    assert torch.equal(plugin.betensor, stored.data)
    assert torch.equal(conv.restored("weight", plugin.betensor), weight)


def test_a_quantized_layer_without_biases_is_refused() -> None:
    """Its biases hold the input's zero point: zeros would be wrong."""
    params = QParams(DTYPES["int8"], torch.tensor(1.0).double(), torch.tensor(3), -128, 127)
    tensors = [
        Tensor("x", (1, 2), DTYPES["int8"], None, params),
        Tensor("w", (1, 2), DTYPES["int8"], torch.ones(1, 2, dtype=torch.int8)),
        Tensor("y", (1, 1), DTYPES["int8"], None, params),
    ]
    node = Node("f", "fully_connected", ("x", "w", None), ("y",), {}, "channels_last")
    with pytest.raises(UnsupportedError, match="quantized and without 'bias'"):
        compass.foreign(Graph("g", (node,), {t.name: t for t in tensors}, ("x",), ("y",)), SPECS)


@pytest.mark.parametrize("op", ["squeeze", "reduce_max", "reduce_mean"])
def test_one_axis_may_be_written_without_a_list(op: str) -> None:
    """The original provides the number to torch, which takes both; the file stays as it is."""
    seed = next(seed for seed in range(40) if len(drawn_axes(op, seed)) == 1)
    graph = changed(op, seed, axis=drawn_axes(op, seed)[0])
    ours = compass.native(graph, SPECS)
    assert (ours.nodes[0].op, ours.nodes[0].attrs["axes"]) == (op, drawn_axes(op, seed))
    assert same(graph, compass.foreign(ours, SPECS)) is None


def drawn_axes(op: str, seed: int) -> Any:
    case = drawn(op, seed).case
    return case.attrs["axes"] if case.attrs.get("keepdims", True) else ()
