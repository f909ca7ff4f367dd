"""Resizing against torch and ONNX Runtime, and Compass's float32 positions against rational ones."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper

from quantizer.conformance.checks.resize import exact_weights
from quantizer.core.library import load_library
from quantizer.numerics.request import Request
from quantizer.numerics.resize import float32_index, float32_places, places
from quantizer.ops import REGISTRY, load_built_ins

LIBRARY = load_library()
load_built_ins()
MODES = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple")
SIZES = [((3, 5), (7, 9)), ((6, 4), (3, 2)), ((5, 8), (4, 1)), ((2, 3), (9, 8))]
IMAGE = {size: torch.sin(torch.arange(6 * size[0] * size[1]) * 0.9).reshape(2, 3, *size) for size, _ in SIZES}


def onnx_resize(x: torch.Tensor, size: tuple[int, int], **attrs: Any) -> torch.Tensor:
    sizes = numpy_helper.from_array(np.array([*x.shape[:2], *size], dtype=np.int64), "sizes")
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], **attrs)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, tuple(x.shape))
    graph = helper.make_graph(
        [node], "g", [given], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [sizes]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": x.numpy()})
    return torch.from_numpy(found)


@pytest.mark.parametrize(("size", "wanted"), SIZES)
def test_nearest_is_that_of_onnx_runtime(size: tuple[int, int], wanted: tuple[int, int]) -> None:
    reference, x = REGISTRY.get("resize_nearest", "reference"), IMAGE[size]
    for mode, rounding in itertools.product(MODES[:4], ROUNDINGS[:4]):
        attrs = {"coordinate_transformation_mode": mode, "nearest_mode": rounding, "mode": "nearest"}
        got = reference(x, size=wanted, mode=mode, rounding=rounding)
        assert torch.equal(got, onnx_resize(x, wanted, **attrs)), (mode, rounding)


@pytest.mark.parametrize(("size", "wanted"), SIZES)
def test_bilinear_is_that_of_onnx_runtime_and_of_torch(size: tuple[int, int], wanted: tuple[int, int]) -> None:
    reference, x = REGISTRY.get("resize_bilinear", "reference"), IMAGE[size]
    # A position on each axis, rounded as large as it is, moves a value by as much of the image's span; eight operations follow.
    room = float((8 + 4 * max(*size, *wanted)) * x.abs().max())
    for mode in MODES[:4]:
        got = reference(x.double(), size=wanted, mode=mode)
        other = onnx_resize(x, wanted, coordinate_transformation_mode=mode, mode="linear")
        assert (got - other).abs().max() <= room * 2.0**-24, mode
        rows, columns = (exact_weights(have, count, mode) for have, count in zip(size, wanted, strict=True))
        lines = [
            torch.tensor([[float(item) for item in row] for row in weights], dtype=torch.float64)
            for weights in (rows, columns)
        ]
        assert torch.allclose(got, torch.einsum("ih,jw,nchw->ncij", *lines, x.double()), rtol=0, atol=room * 2.0**-53)
    corners, middles = (
        F.interpolate(x.double(), size=wanted, mode="bilinear", align_corners=flag) for flag in (True, False)
    )
    assert torch.allclose(
        reference(x.double(), size=wanted, mode="align_corners"), corners, rtol=0, atol=room * 2.0**-53
    )
    assert torch.allclose(reference(x.double(), size=wanted, mode="half_pixel"), middles, rtol=0, atol=room * 2.0**-53)


def test_float32_positions_name_the_element_that_exact_ones_name() -> None:
    """For all sizes to 12: where Compass would name another, a defect would have to be declared."""
    for size, count, mode, rounding in itertools.product(range(1, 13), range(1, 13), MODES, ROUNDINGS):
        exact = places(size, count, mode).index(rounding)
        found = float32_index(float32_places(size, count, mode), rounding, size)
        assert torch.equal(exact, found), (size, count, mode, rounding)


def test_compass_adds_raw_codes_in_weights_of_13_bits() -> None:
    """Twice as wide between two codes: a quarter and three quarters; thirds of raw codes lose what weights lose."""
    spec, platform = LIBRARY.spec("resize_bilinear"), LIBRARY.platform("compass")
    x = torch.tensor([[[[100, 50]]]])
    attrs = {"size": (1, 4), "mode": "half_pixel"}
    request = Request(spec, LIBRARY.scheme("a8"), platform, {"x": (1, 1, 1, 2)}, attrs, {"x": (-1.0, 2.0)})
    parameters = REGISTRY.get("resize_bilinear", "quantize", "compass")(request)
    assert parameters.numbers == {"weight_bits": 13}
    forward = REGISTRY.get("resize_bilinear", "quantized", "compass")
    staged = forward(x, parameters=parameters, **attrs)
    assert staged.codes.flatten().tolist() == [100, 88, 62, 50]
    assert staged.stages["weights"][:, 0, 1].tolist() == [6144, 2048, 0, 0]
    thirds = forward(x, parameters=parameters, size=(1, 3), mode="align_corners").stages["weights"]
    assert thirds.sum(0).flatten().tolist() == [8192, 8192, 8192]


@pytest.mark.parametrize(("size", "wanted"), SIZES)
def test_compass_adds_floats_in_the_order_of_its_four_products(size: tuple[int, int], wanted: tuple[int, int]) -> None:
    """Bit for bit: f00 Q00 + f01 Q01 + f10 Q10 + f11 Q11, all float32, elements one by one."""
    x, f32 = IMAGE[size], np.float32
    got = REGISTRY.get("resize_bilinear", "reference", "compass")(x, size=wanted, mode="half_pixel")
    for row, column in itertools.product(range(wanted[0]), range(wanted[1])):
        pairs = []
        for place, have, count in ((row, size[0], wanted[0]), (column, size[1], wanted[1])):
            at = f32(f32(f32(place) + f32(0.5)) * f32(1.0 / (count / have))) - f32(0.5)
            low, high = max(int(np.floor(at)), 0), min(int(np.ceil(at)), have - 1)
            second = f32(at - f32(low))
            pairs.append(((low, f32(1) - second), (high, second)))
        total = f32(0)
        for (i, first), (j, second) in itertools.product(*pairs):
            total = f32(total + f32(f32(x[1, 2, i, j]) * f32(first * second)))
        assert f32(got[1, 2, row, column]) == total
