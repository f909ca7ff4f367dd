"""Tiles: whatever is cut, on whatever grid and scheme, the codes are those of the layers in one piece."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from test_global_calibration import LIBRARY, Network, drawn

from quantizer.core.errors import FormatError
from quantizer.ir.formats import compass
from quantizer.optimize.comparing import read_back
from quantizer.optimize.steps import template_of
from quantizer.optimize.work import Work

SCHEMES = {
    "symmetric": (),
    "asymmetric": ("quantize_method_for_activation = per_tensor_asymmetric",),
    "per_channel": ("quantize_method_for_weight = per_channel_symmetric_restricted_range",),
    "wide": ("activation_bits = 16", "weight_bits = 16", "bias_bits = 48"),
}
WINDOW: dict[str, Any] = {"stride": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1)}
CONV = {**WINDOW, "groups": 1}
POOL = {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1, 1, 1), "ceil_mode": False}
LAYERS: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "conv": ("conv2d", (13, 11, 5), CONV),
    "conv_strided": ("conv2d", (7, 5, 5), {**CONV, "stride": (2, 2), "padding": (1, 0, 1, 0)}),
    "conv_dilated": ("conv2d", (13, 11, 5), {**CONV, "dilation": (2, 2), "padding": (2, 2, 2, 2)}),
    "depthwise": ("depthwise_conv2d", (13, 11, 4), WINDOW),
    "max_pool": ("max_pool2d", (7, 6, 4), POOL),
    "avg_pool": ("avg_pool2d", (7, 6, 4), {**POOL, "count_include_pad": True}),
    "avg_pool_inside": ("avg_pool2d", (7, 6, 4), {**POOL, "count_include_pad": False}),
    "avg_pool_overhanging": ("avg_pool2d", (7, 6, 4), {**POOL, "ceil_mode": True, "count_include_pad": False}),
}


def of_one(folder: Path, name: str) -> Network:
    op, shape, attrs = LAYERS[name]
    net = Network(folder, drawn(6, 13, 11, 4) + 0.5)
    weights = {"conv2d": (5, 3, 3, 4), "depthwise_conv2d": (4, 3, 3, 1)}.get(op)
    constants = (drawn(*weights, seed=2), drawn(shape[-1], seed=3)) if weights else ()
    return net.add(op, (1, *shape), *constants, attrs=attrs)


def codes(work: Work, data: torch.Tensor) -> torch.Tensor:
    (found,) = work.runs.outputs(work.quantized_graph, {"x": data})
    return found


def ops(work: Work) -> list[str]:
    return [node.op for node in work.quantized_graph.nodes]


@pytest.mark.parametrize(("name", "scheme"), [*itertools.product(LAYERS, SCHEMES)])
def test_a_layer_in_tiles_has_its_codes(tmp_path: Path, name: str, scheme: str) -> None:
    net = of_one(tmp_path, name)
    whole = net.quantized(*SCHEMES[scheme])
    wanted = codes(whole, net.data)
    assert len(wanted.unique()) > 20
    for x, y in ((2, 1), (1, 3), (3, 2)):
        lines = (f"featuremap_splits_item_x = {x}", f"featuremap_splits_item_y = {y}")
        work = net.quantized(*SCHEMES[scheme], *lines)
        assert ops(work).count("Crop") == x * y
        assert torch.equal(codes(work, net.data), wanted)


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
def test_a_chain_in_tiles_has_its_codes(tmp_path: Path, lines: tuple[str, ...], crops: int) -> None:
    net = chain(tmp_path)
    scheme = SCHEMES["asymmetric"]
    whole, work = net.quantized(*scheme), net.quantized(*scheme, *lines)
    assert ops(work).count("Crop") == crops
    assert torch.equal(codes(work, net.data), codes(whole, net.data))


def test_the_written_tiles_read_back_have_their_codes(tmp_path: Path) -> None:
    net = chain(tmp_path)
    work = net.quantized("featuremap_splits_item_x = 2", "featuremap_splits_item_y = 2")
    text, blob = compass.to_bytes(compass.foreign(work.quantized_graph, LIBRARY.specs))
    assert text.count("crops=[[0,1],") == 4
    (found,) = work.runs.outputs(read_back(text, blob, LIBRARY), {"x": net.data})
    assert torch.equal(found, codes(work, net.data))
    assert set(json.loads(template_of(work))) == {"x", "y0", "y1", "y2", "y3", "y4"}


def test_layers_that_are_no_chain_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"featuremap_tiling_param: layers 4 to 5 \(y3, y4\) are no chain"):
        chain(tmp_path).quantized("featuremap_tiling_param = [(4,5,2,2)]")
