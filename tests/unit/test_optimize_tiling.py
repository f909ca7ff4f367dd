"""Tiles: whatever is cut, on whatever grid and scheme, the codes are those of the layers in one piece."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from test_global_calibration import F32, LIBRARY, Network, drawn

from quantizer.core.errors import FormatError
from quantizer.ir.formats import compass
from quantizer.ir.formats.compass_mapping import SLOPES
from quantizer.ir.graph import Node, Tensor
from quantizer.optimize.comparing import read_back
from quantizer.optimize.steps import template_of
from quantizer.optimize.work import Work

SCHEMES = {
    "symmetric": (),
    "asymmetric": ("quantize_method_for_activation = per_tensor_asymmetric",),
    "per_channel": ("quantize_method_for_weight = per_channel_symmetric_restricted_range",),
    "wide": ("activation_bits = 16", "weight_bits = 16", "bias_bits = 48"),
}
GRIDS = ((2, 1), (1, 2), (2, 2), (3, 2))
WINDOW: dict[str, Any] = {"stride": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1)}
CONV = {**WINDOW, "groups": 1}
SPREAD = {**CONV, "output_padding": (0, 0)}
POOL = {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1, 1, 1), "ceil_mode": False}
LAYERS: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "conv": ("conv2d", (13, 11, 5), CONV),
    "conv_strided": ("conv2d", (7, 5, 5), {**CONV, "stride": (2, 2), "padding": (1, 0, 1, 0)}),
    "conv_dilated": ("conv2d", (13, 11, 5), {**CONV, "dilation": (2, 2), "padding": (2, 2, 2, 2)}),
    "depthwise": ("depthwise_conv2d", (13, 11, 4), WINDOW),
    "conv_transpose": ("conv_transpose2d", (13, 11, 5), SPREAD),
    "conv_transpose_strided": (
        "conv_transpose2d",
        (26, 33, 5),
        {**SPREAD, "stride": (2, 3), "padding": (1, 0, 0, 1), "output_padding": (0, 1)},
    ),
    "conv_transpose_apart": ("conv_transpose2d", (51, 41, 5), {**SPREAD, "stride": (4, 4), "padding": (0, 1, 0, 1)}),
    "max_pool": ("max_pool2d", (7, 6, 4), POOL),
    "avg_pool": ("avg_pool2d", (7, 6, 4), {**POOL, "count_include_pad": True}),
    "avg_pool_inside": ("avg_pool2d", (7, 6, 4), {**POOL, "count_include_pad": False}),
    "avg_pool_overhanging": ("avg_pool2d", (7, 6, 4), {**POOL, "ceil_mode": True, "count_include_pad": False}),
}


def of_one(folder: Path, name: str) -> Network:
    op, shape, attrs = LAYERS[name]
    net = Network(folder, drawn(6, 13, 11, 4) + 0.5)
    weights = {"conv2d": (5, 3, 3, 4), "conv_transpose2d": (5, 3, 3, 4), "depthwise_conv2d": (4, 3, 3, 1)}.get(op)
    constants = (drawn(*weights, seed=2), drawn(shape[-1], seed=3)) if weights else ()
    return net.add(op, (1, *shape), *constants, attrs=attrs)


def codes(work: Work, data: torch.Tensor) -> torch.Tensor:
    (found,) = work.runs.outputs(work.quantized_graph, {"x": data})
    return found


def ops(work: Work) -> list[str]:
    return [node.op for node in work.quantized_graph.nodes]


@pytest.mark.parametrize(("name", "scheme"), [*itertools.product(LAYERS, SCHEMES)])
def test_a_tiled_layer_has_the_same_codes(tmp_path: Path, name: str, scheme: str) -> None:
    net = of_one(tmp_path, name)
    whole = net.quantized(*SCHEMES[scheme])
    wanted = codes(whole, net.data)
    assert len(wanted.unique()) > 20
    for x, y in GRIDS:
        lines = (f"featuremap_splits_item_x = {x}", f"featuremap_splits_item_y = {y}")
        work = net.quantized(*SCHEMES[scheme], *lines)
        assert ops(work).count("Crop") == x * y
        assert torch.equal(codes(work, net.data), wanted)


def product(folder: Path, name: str) -> Network:
    if name.startswith("fully_connected"):
        net = Network(folder, drawn(16, 20) + 0.5)
        net.tensors["x"] = replace(net.tensors["x"], shape=(8, 20))
        slopes = Tensor("slopes", (5,), F32, drawn(5, seed=8).abs())
        fused: dict[str, Any] = {"activation": "prelu", "extra": {SLOPES: slopes}} if "prelu" in name else {}
        return net.add("fully_connected", (8, 5), drawn(5, 20, seed=2), drawn(5, seed=3), **fused)
    net = Network(folder, drawn(4, 2, 9, 6) + 0.5)
    if name == "matmul_constant":
        return net.add("matmul", (1, 2, 9, 7), drawn(1, 2, 6, 7, seed=2))
    net.add("sigmoid", (1, 2, 9, 6))
    ways = {"matmul_b_transposed": (("b",), 9), "matmul_a_transposed": (("a",), 6)}
    transposed, size = ways[name]
    net.tensors["y1"] = replace(net.tensors["x"], name="y1", shape=(1, 2, size, size))
    net.nodes.append(Node("y1", "matmul", ("x", "y0"), ("y1",), order="channels_last", transposed=transposed))
    return net


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    "name",
    ["fully_connected", "fully_connected_prelu", "matmul_constant", "matmul_a_transposed", "matmul_b_transposed"],
)
def test_a_tiled_product_has_the_same_codes(tmp_path: Path, name: str, scheme: str) -> None:
    net, pieces = product(tmp_path, name), "Crop" if name.startswith("fully") else "Slice"
    whole = net.quantized(*SCHEMES[scheme])
    wanted, number = codes(whole, net.data), whole.keys[net.nodes[-1].name].number
    for x, y in (*GRIDS, (4, 1)):
        work = net.quantized(*SCHEMES[scheme], f"featuremap_tiling_param = [({number},{number},{y},{x})]")
        cut = (y if y > 1 else 0) + (x if x > 1 and pieces == "Slice" else 0)
        assert ops(work).count(pieces) == cut
        assert ops(work).count(net.nodes[-1].op) == x * y
        assert torch.equal(codes(work, net.data), wanted)
        assert torch.equal(codes(work, net.data[:3]), wanted[:3])
        text, blob = compass.to_bytes(compass.foreign(work.quantized_graph, LIBRARY.specs))
        feeds = {"x": net.data[: work.runs.batch]}
        assert torch.equal(work.runs.outputs(read_back(text, blob, LIBRARY), feeds)[0], wanted[: work.runs.batch])


@pytest.mark.parametrize(
    ("name", "lines", "tiles"),
    [
        ("fully_connected", ("featuremap_splits_item_x = 2",), 1),
        ("fully_connected", ("featuremap_splits_item_y = 2",), 2),
        ("fully_connected", ("featuremap_splits_item_y = 8",), 1),
        ("fully_connected", ("featuremap_splits_item_x = 5", "featuremap_splits_item_y = 2"), 1),
        ("fully_connected", ("featuremap_splits_sram_size = 1",), 1),
        ("matmul_constant", ("featuremap_splits_item_x = 2",), 2),
        ("matmul_constant", ("featuremap_splits_item_x = 3", "featuremap_splits_item_y = 2"), 6),
        ("matmul_constant", ("featuremap_splits_item_y = 9",), 1),
        ("matmul_constant", ("featuremap_splits_sram_size = 1",), 1),
    ],
)
def test_large_products_are_tiled_unless_a_memory_is_named(
    tmp_path: Path, name: str, lines: tuple[str, ...], tiles: int
) -> None:
    net = product(tmp_path, name)
    whole, work = net.quantized(), net.quantized(*lines)
    assert ops(work).count(net.nodes[-1].op) == tiles
    assert torch.equal(codes(work, net.data), codes(whole, net.data))


def test_products_of_real_values_are_not_tiled(tmp_path: Path) -> None:
    net = product(tmp_path, "matmul_constant")
    work = net.quantized("trigger_float_op = float16_preferred!", "featuremap_splits_item_y = 2")
    assert ops(work).count("matmul") == 1


def test_a_transposed_convolution_of_few_rows_is_not_tiled(tmp_path: Path) -> None:
    few = Network(tmp_path, drawn(2, 3, 11, 4)).add(
        "conv_transpose2d", (1, 3, 11, 5), drawn(5, 3, 3, 4, seed=2), drawn(5, seed=3), attrs=SPREAD
    )
    assert "Crop" not in ops(few.quantized("featuremap_splits_item_x = 2"))
    behind = Network(tmp_path, drawn(2, 3, 11, 4)).add(
        "conv2d", (1, 3, 11, 4), drawn(4, 3, 3, 4, seed=2), drawn(4, seed=3), attrs=CONV
    )
    behind.add("conv_transpose2d", (1, 3, 11, 5), drawn(5, 3, 3, 4, seed=4), drawn(5, seed=5), attrs=SPREAD)
    work = behind.quantized("featuremap_splits_item_x = 2")
    assert ops(work)[-2:] == ["Concat", "conv_transpose2d"]


def test_a_tiled_chain_with_a_transposed_convolution_has_the_same_codes(tmp_path: Path) -> None:
    net = Network(tmp_path, drawn(4, 12, 10, 4))
    net.add("conv2d", (1, 12, 10, 4), drawn(4, 3, 3, 4, seed=2), drawn(4, seed=3), attrs=CONV, activation="relu")
    strided = {**SPREAD, "stride": (2, 2), "output_padding": (1, 1)}
    net.add("conv_transpose2d", (1, 24, 20, 5), drawn(5, 3, 3, 4, seed=4), drawn(5, seed=5), attrs=strided)
    net.add("conv2d", (1, 24, 20, 3), drawn(3, 3, 3, 5, seed=6), drawn(3, seed=7), attrs=CONV)
    scheme = SCHEMES["asymmetric"]
    whole, work = net.quantized(*scheme), net.quantized(*scheme, "featuremap_tiling_param = [(1,3,3,2)]")
    assert ops(work).count("Crop") == 6
    assert torch.equal(codes(work, net.data), codes(whole, net.data))


def chain(folder: Path) -> Network:
    net = Network(folder, drawn(4, 24, 16, 3))
    net.add("conv2d", (1, 24, 16, 6), drawn(6, 3, 3, 3, seed=2), drawn(6, seed=3), attrs=CONV, activation="relu")
    net.add("sigmoid", (1, 24, 16, 6))
    net.add("conv2d", (1, 24, 16, 6), drawn(6, 3, 3, 6, seed=4), drawn(6, seed=5), attrs=CONV)
    net.add(
        "avg_pool2d",
        (1, 12, 8, 6),
        attrs={**POOL, "kernel": (2, 2), "padding": (0, 0, 0, 0), "count_include_pad": True},
    )
    return net.add("reshape", (1, 576), attrs={"shape": (1, 576)})


@pytest.mark.parametrize(
    ("lines", "crops"),
    [
        (("featuremap_splits_item_x = 2", "featuremap_splits_item_y = 2"), 4),
        (("featuremap_splits_item_y = 4", "featuremap_splits_overlap_rate = 0"), 12),
        (("featuremap_tiling_param = [(1,2,3,1),(3,3,2,2)]",), 7),
        (("featuremap_splits_sram_size = 4",), 2),
        (("featuremap_splits_sram_size = 1", "featuremap_splits_concat_blk = 2"), 8),
        (("featuremap_splits_sram_size = 8000",), 0),
    ],
)
def test_a_tiled_chain_has_the_same_codes(tmp_path: Path, lines: tuple[str, ...], crops: int) -> None:
    net = chain(tmp_path)
    scheme = SCHEMES["asymmetric"]
    whole, work = net.quantized(*scheme), net.quantized(*scheme, *lines)
    assert ops(work).count("Crop") == crops
    assert torch.equal(codes(work, net.data), codes(whole, net.data))


def test_written_tiles_read_back_with_the_same_codes(tmp_path: Path) -> None:
    net = chain(tmp_path)
    work = net.quantized("featuremap_splits_item_x = 2", "featuremap_splits_item_y = 2")
    text, blob = compass.to_bytes(compass.foreign(work.quantized_graph, LIBRARY.specs))
    assert text.count("crops=[[0,1],") == 4
    (found,) = work.runs.outputs(read_back(text, blob, LIBRARY), {"x": net.data})
    assert torch.equal(found, codes(work, net.data))
    assert set(json.loads(template_of(work))) == {"x", "y0", "y1", "y2", "y3", "y4"}


def test_layers_that_are_not_a_chain_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"featuremap_tiling_param: layers 4 to 5 \(y3, y4\) are neither a chain"):
        chain(tmp_path).quantized("featuremap_tiling_param = [(4,5,2,2)]")
