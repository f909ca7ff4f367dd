"""rope, yuv2rgb, nms and custom: as tpu-mlir's simulator computes them, restated element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lang_calls import Draw

import quantizer.lang as tpul
from quantizer.lang import Graph, LangError, Tensor
from quantizer.lang.export import run

Array = np.ndarray[Any, Any]
SHIFTS = {
    "half_up": lambda q, r, h: q + (r >= h),
    "half_to_even": lambda q, r, h: q + (r > h or (r == h and q % 2)),
    "towards_zero": lambda q, r, h: q + (r > 0 and q < 0),
    "up": lambda q, r, h: q + (r > 0),
    "down": lambda q, r, h: q,
}
WEIGHTS = {
    "_601_limited": (16, [(1.16438, 0, 1.59603), (1.16438, -0.39176, -0.81297), (1.16438, 2.01723, 0)]),
    "_601_full": (0, [(1, 0, 1.40189), (1, -0.34581, -0.71490), (1, 1.77098, 0)]),
}


def shifted(value: int, shift: int, mode: str, low: int, high: int) -> int:
    if shift >= 0:
        return min(max(value << shift, low), high)
    quotient, rest = divmod(value, 1 << -shift)
    return min(max(int(SHIFTS[mode](quotient, rest, 1 << (-shift - 1))), low), high)


@pytest.mark.parametrize("mode", SHIFTS)
@pytest.mark.parametrize("shape", [(3, 4, 6), (2, 3, 4, 6), (1, 2, 3, 4, 6)])
def test_rope_of_codes_equals_its_loop(shape: tuple[int, ...], mode: str) -> None:
    d = Draw(f"{shape}{mode}")
    x, sines, cosines = d.array(shape, "int8"), d.array(shape[-2:], "int8"), d.array(shape[-2:], "int8")
    with Graph("g") as graph:
        weights = [Tensor(data=data, ttype="coeff", dtype="int8") for data in (sines, cosines)]
        tpul.rope(Tensor(shape, "x", dtype="int8"), *weights, False, mode, mode, mode, -6, -7, -1, out_name="y")
    assert weights[0].shape == (*[1] * (len(shape) - 2), *shape[-2:])
    found = run(graph, {"x": x})["y"]
    for place in np.ndindex(shape):
        other = (*place[:-1], place[-1] ^ 1)
        turned = int(x[other]) * (-1 if place[-1] % 2 == 0 else 1)
        first = shifted(turned * int(sines[place[-2:]]), -6, mode, -(1 << 15), (1 << 15) - 1)
        second = shifted(int(x[place]) * int(cosines[place[-2:]]), -7, mode, -(1 << 15), (1 << 15) - 1)
        assert found[place] == shifted(first + second, -1, mode, -128, 127), place


def test_rope_of_floats_with_leading_positions() -> None:
    d = Draw("floats")
    x, sines, cosines = d.array([2, 5, 3, 4]), d.array([5, 4]), d.array([5, 4])
    with Graph("g") as graph:
        weights = [Tensor(data=data, ttype="coeff") for data in (sines, cosines)]
        tpul.rope(Tensor([2, 5, 3, 4], "x"), *weights, is_permute_optimize=True, out_name="y")
    turned = np.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)
    assert np.array_equal(run(graph, {"x": x})["y"], turned * sines[None, :, None] + x * cosines[None, :, None])


@pytest.mark.parametrize("formula", WEIGHTS)
@pytest.mark.parametrize("source", range(4))
@pytest.mark.parametrize(("target", "mode"), [(4, "HalfAwayFromZero"), (5, "HalfToEven"), (4, "HalfUp")])
def test_yuv2rgb_equals_its_formula(source: int, target: int, formula: str, mode: str) -> None:
    height, width = 4, 6
    x = Draw(f"{source}{target}{formula}").array([2, height * 3 // 2, width], "uint8")
    with Graph("g") as graph:
        tpul.yuv2rgb(Tensor(x.shape, "x", dtype="uint8"), source, target, "UINT8", formula, mode, out_name="y")
    found = run(graph, {"x": x})["y"]
    black, rows = WEIGHTS[formula]
    count = height * width // 4
    for n in range(2):
        flat = x[n].reshape(-1)
        rest = flat[height * width :]
        parts = (rest[:count], rest[count:]) if source < 2 else (rest[::2], rest[1::2])
        us, vs = parts if source in (0, 2) else parts[::-1]
        for h, w in np.ndindex(height, width):
            place = w // 2 + h // 2 * width // 2
            y, u, v = int(x[n, h, w]) - black, int(us[place]) - 128, int(vs[place]) - 128
            for channel, (a, b, c) in enumerate(rows):
                value = float(np.clip(np.float32(a * y + b * u + c * v), np.float32(0), np.float32(255)))
                wanted = round(value) if mode == "HalfToEven" else int(np.floor(value + 0.5))
                assert found[n, channel if target == 4 else 2 - channel, h, w] == wanted


def test_nms_keeps_the_best_of_boxes_that_share_area() -> None:
    boxes = np.array([[[0, 0, 2, 2], [1, 1, 3, 3], [2, 2, 4, 4], [8, 8, 9, 9]]], dtype=np.float32)
    scores = np.array([[[0.1, 0.9, 0.5, 0.3], [0.4, 0.0, 0.2, 0.1]]], dtype=np.float32)
    with Graph("g") as graph:
        tpul.nms(Tensor(boxes.shape, "b"), Tensor(scores.shape, "s"), "TENSORFLOW", 2, out_name="y")
    assert run(graph, {"b": boxes, "s": scores})["y"].tolist() == [[0, 0, 1], [0, 0, 3], [0, 1, 0], [0, 1, 2]]


def test_a_custom_operator_is_written_by_name_and_run_by_its_definition() -> None:
    @tpul.define_custom("test.scaled")
    def scaled(x: Tensor, *, factor: float) -> Tensor:
        return tpul.relu(tpul.mul(x, factor))

    with Graph("g") as graph:
        x = Tensor([2, 3], "x")
        first = tpul.custom([x], "test.scaled", ["float32"], params={"factor": 2.0})
        tpul.custom(first, "test.scaled", ["float32"], ["y"], {"factor": -0.5})
    assert [node.op for node in graph.nodes] == ["top.Custom"] * 2
    assert graph.nodes[0].attrs == {"name": "test.scaled", "params": (("factor", 2.0),)}
    assert run(graph, {"x": np.full((2, 3), -1, np.float32)})["y"].tolist() == [[0.0] * 3] * 2


def test_invalid_calls_are_refused_by_name() -> None:
    with Graph("g") as graph:
        x, w = Tensor([2, 3, 4], "x"), Tensor(data=np.ones((3, 4), np.float32), ttype="coeff")
        with pytest.raises(LangError, match=r"custom operator 'none': nothing defines it: write a function"):
            tpul.custom([x], "none", ["float32"])
        with pytest.raises(LangError, match=r"weight1 has shape \[4, 3\]: must be \[3, 4\]"):
            tpul.rope(x, w, Tensor(data=np.ones((4, 3), np.float32), ttype="coeff"))
        with pytest.raises(LangError, match="the last axis must hold pairs"):
            tpul.rope(Tensor([2, 3, 5], "odd"), w, w)
        with pytest.raises(LangError, match="must end in 3 h / 2 rows of w, h and w even"):
            tpul.yuv2rgb(Tensor([4, 4], "y", dtype="uint8"), 0, 4, "UINT8", "_601_full", "HalfUp")
        with pytest.raises(LangError, match=r"must be \[n, boxes, 4\] and \[n, classes, boxes\]"):
            tpul.nms(Tensor([1, 5, 4], "b"), Tensor([1, 2, 6], "s"))

        @tpul.define_custom("test.two")
        def two(x: Tensor) -> list[Tensor]:
            return [tpul.relu(x), tpul.abs(x)]

        with pytest.raises(LangError, match="custom operator 'test.two' makes 2 results: must be 1"):
            tpul.custom([x], "test.two", ["float32"])
    assert not graph.nodes
    assert w.shape == (3, 4)


def test_swish_is_computed_in_double_and_rounded_once() -> None:
    """As top::SwishOp::inference has it, where beta is a double; cut down, the last bit decides a code."""
    parted = 0
    codes = np.arange(-128, 128).astype(np.int8)
    for i in range(200):
        beta, scales = (1 + i % 8) / 4, [0.01 + 0.0007 * i, 0.004 + 0.0003 * i]
        with Graph("g") as graph:
            tpul.swish(Tensor([256], "x", dtype="int8"), beta, scales, [0, 0], round_mode="down", out_name="y")
        found = run(graph, {"x": codes})["y"]
        x, step = codes.astype(np.float32) * np.float32(scales[0]), np.float32(1 / scales[1])
        exact = (x.astype(np.float64) / (1 + np.exp(-x.astype(np.float64) * beta))).astype(np.float32)
        narrow = x * (1 / (1 + np.exp(-x * np.float32(beta))))
        wanted, other = (np.clip(np.floor(y * step), -128, 127) for y in (exact, narrow))
        assert np.array_equal(found, wanted)
        parted += int((wanted != other).sum())
    assert parted


def test_a_product_of_codes_has_the_multiplier_of_exact_scales() -> None:
    """The scales of both operands multiply in float64: in float32 their product here is 0.75, and 2 * 0.75 is a tie."""
    scales = [0.75 * (1 - 2.0**-13), 1 + 2.0**-13, 1.0]
    with Graph("g") as graph:
        operands = Tensor([3], "a", dtype="int8"), Tensor([3], "b", dtype="int8")
        tpul.mul(*operands, scale=scales, zero_point=[0, 0, 0], out_dtype="int8", out_name="y")
    found = run(graph, {"a": np.array([2, 6, 10], np.int8), "b": np.array([1, 1, 1], np.int8)})["y"]
    assert found.tolist() == [1, 4, 7]
