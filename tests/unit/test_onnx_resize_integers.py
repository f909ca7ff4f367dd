"""Linear resize of integers equals ONNX Runtime's, code by code; so are lengths by scales."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from ort_oracle import Array, one_node, run_node

from quantizer.core.errors import UnsupportedError
from quantizer.runtime.onnx.resize import resize_any

MODES = (
    "half_pixel",
    "half_pixel_symmetric",
    "asymmetric",
    "align_corners",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
)
RESIZED = {
    "image": ([2, 3, 4, 5], [2, 3, 7, 9]),
    "matrix": ([4, 5], [3, 11]),
    "channels last": ([2, 4, 5, 3], [2, 7, 9, 3]),
    "columns before channels": ([2, 4, 5, 3], [2, 4, 9, 3]),
    "volume": ([1, 2, 3, 4, 5], [1, 2, 4, 6, 1]),
    "three axes": ([2, 4, 5], [3, 4, 7]),
}
UNEVEN = np.array([1, 1, 1.3, 2.6], np.float32)
SAME = np.array([1, 1, 1.01, 1.01], np.float32)


def codes(dtype: str, shape: list[int]) -> Array:
    """Return codes over the whole type, in int32 those that float32 holds; from the places, so that failures replay."""
    info = np.iinfo(dtype)
    first, last = max(info.min, -(2**24)), min(info.max, 2**24)
    return (first + (np.arange(np.prod(shape)) * 7919 * 104729) % (last - first + 1)).reshape(shape).astype(dtype)


def both(x: Array, order: list[str], given: Array, opset: int = 13, **attrs: Any) -> tuple[Array, Array]:
    given = np.asarray(given)
    theirs = run_node("Resize", {"x": x}, {"given": given}, order, opset, mode="linear", **attrs)
    operands = [torch.from_numpy(given) if name == "given" else None for name in order[1:]]
    return resize_any(torch.from_numpy(x), *operands, mode="linear", since=13, **attrs).numpy(), theirs


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
@pytest.mark.parametrize("kind", RESIZED)
def test_resized_integers_equal_onnx_runtime(kind: str, dtype: str) -> None:
    shape, wanted = RESIZED[kind]
    for mode in MODES:
        ours, theirs = both(
            codes(dtype, shape), ["x", "", "", "given"], np.array(wanted), coordinate_transformation_mode=mode
        )
        np.testing.assert_array_equal(ours, theirs, mode)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
@pytest.mark.parametrize("kind", ["image", "matrix", "channels last", "volume"])
def test_a_crop_of_integers_equals_onnx_runtime(kind: str, dtype: str) -> None:
    """Places outside have the value for extrapolation, without its fraction. It was refused."""
    shape, wanted = RESIZED[kind]
    x, resized = codes(dtype, shape), [a != b for a, b in zip(shape, wanted, strict=True)]
    roi = np.array([0.2 * r for r in resized] + [1.25 if r else 1 for r in resized], np.float32)
    names = {"roi": roi, "given": np.array(wanted)}
    attrs: dict[str, Any] = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": -3.7}
    if dtype == "uint8":
        attrs["extrapolation_value"] = 7.9
    theirs = run_node("Resize", {"x": x}, names, ["x", "roi", "", "given"], 13, mode="linear", **attrs)
    operands = [torch.from_numpy(roi), None, torch.tensor(wanted)]
    ours = resize_any(torch.from_numpy(x), *operands, mode="linear", since=13, **attrs)
    np.testing.assert_array_equal(ours.numpy(), theirs)


def test_an_empty_crop_gives_an_empty_result() -> None:
    """A length floored to 0 was refused without a reason."""
    operands = [torch.tensor([0.0, 0.2, 1.0, 0.9]), torch.tensor([1.0, 0.6])]
    attrs: dict[str, Any] = {"mode": "nearest", "since": 13, "coordinate_transformation_mode": "tf_crop_and_resize"}
    assert resize_any(torch.ones(2, 1, dtype=torch.int32), *operands, **attrs).shape == (2, 0)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32"])
@pytest.mark.parametrize("scales", [UNEVEN, SAME], ids=["uneven", "same"])
def test_lengths_by_scales_are_products_in_float32(scales: Array, dtype: str) -> None:
    x = codes("int8", [1, 2, 4, 5]).astype(dtype)
    ours, theirs = both(x, ["x", "", "given"], scales, coordinate_transformation_mode="asymmetric")
    assert ours.shape == theirs.shape
    if dtype != "float32":
        np.testing.assert_array_equal(ours, theirs)
    model = one_node("Resize", {"x": x}, {"given": scales}, ["x", "", "given"], mode="linear")
    inferred = onnx.shape_inference.infer_shapes(model).graph.output[0].type.tensor_type.shape
    # onnx 1.21 infers from products in float32 as the kernel does, 1.23 from exact ones.
    exact = tuple(math.floor(length * float(scale)) for length, scale in zip(x.shape, scales, strict=True))
    assert tuple(axis.dim_value for axis in inferred.dim) in (ours.shape, exact)


@pytest.mark.parametrize("scale", [0.6, 1.5, 2.6])
def test_a_symmetric_resize_by_scales_keeps_the_middle_in_the_middle(scale: float) -> None:
    """A length that is cut moves all places by half of what was cut; torch's scalar / tensor was an ulp off."""
    x = (np.arange(5, dtype=np.int32) * 1_000_000).reshape(1, 5)
    scales = np.array([1, scale], np.float32)
    ours, theirs = both(x, ["x", "", "given"], scales, coordinate_transformation_mode="half_pixel_symmetric")
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("exclude", [0, 1])
@pytest.mark.parametrize("dtype", ["uint8", "int32"])
@pytest.mark.parametrize("kind", ["image", "matrix", "three axes"])
def test_an_antialiased_resize_of_integers_equals_onnx_runtime(kind: str, dtype: str, exclude: int) -> None:
    shape, wanted = RESIZED[kind]
    attrs = {"antialias": 1, "exclude_outside": exclude}
    for target in (wanted, [max(1, size // 2) if i >= len(shape) - 2 else size for i, size in enumerate(shape)]):
        for mode in ("half_pixel", "half_pixel_symmetric", "asymmetric", "align_corners", "pytorch_half_pixel"):
            given = np.array(target)
            ours, theirs = both(
                codes(dtype, shape),
                ["x", "", "", "given"],
                given,
                coordinate_transformation_mode=mode,
                opset=19,
                **attrs,
            )
            np.testing.assert_array_equal(ours, theirs, mode)


def test_an_antialiased_resize_of_int8_is_refused() -> None:
    """ONNX Runtime returns 0 for every result below 0."""
    with pytest.raises(UnsupportedError, match="must be uint8 or int32"):
        x = torch.from_numpy(codes("int8", [4, 5]))
        resize_any(x, None, None, torch.tensor([3, 4]), mode="linear", since=19, antialias=1)


@pytest.mark.parametrize(
    ("shape", "wanted", "attrs"),
    [
        ([2, 3, 4, 5], [4, 3, 4, 5], {}),
        ([4], [7], {}),
        ([1, 1, 4, 5], [1, 1, 7, 5], {"exclude_outside": 1}),
        ([1, 1, 4, 5], [1, 1, 7, 5], {"coordinate_transformation_mode": "tf_crop_and_resize"}),
    ],
)
def test_unsupported_integer_resizes_are_refused(shape: list[int], wanted: list[int], attrs: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match="Resize"):
        resize_any(
            torch.from_numpy(codes("uint8", shape)), None, None, torch.tensor(wanted), mode="linear", since=19, **attrs
        )
