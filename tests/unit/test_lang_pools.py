"""Pools whose last window begins in the padding: TpuLang's document has it, ONNX leaves it out; against windows one by one."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lang_calls import Draw

import quantizer.lang as tpul
from quantizer.ir.formats import top_mlir
from quantizer.lang import Graph, Tensor, run
from quantizer.lang.export import lowered

LOWEST = np.finfo(np.float32).min


def windows(
    x: np.ndarray, kernel: list[int], stride: list[int], pad: int
) -> list[tuple[tuple[int, ...], list[np.ndarray]]]:
    """Return for each place of the result the elements of x in its window, one array for each image and channel.

    Source: TpuLang's document: with rem = (in + 2 * pad - k) % s above 0 the padding at the end grows by s - rem.
    """
    counts = []
    for size, k, s in zip(x.shape[2:], kernel, stride, strict=True):
        span = size + 2 * pad - k
        counts.append((span + (s - span % s if span % s else 0)) // s + 1)
    found = []
    for place in itertools.product(*map(range, counts)):
        cut = [
            slice(max(0, i * s - pad), max(0, min(size, i * s - pad + k)))
            for i, s, k, size in zip(place, stride, kernel, x.shape[2:], strict=True)
        ]
        found.append((place, [plane[tuple(cut)] for image in x for plane in image]))
    return found


def expected(x: np.ndarray, kernel: list[int], stride: list[int], pad: int, *, mean: bool, counted: bool) -> np.ndarray:
    places = windows(x, kernel, stride, pad)
    shape = tuple(i + 1 for i in places[-1][0])
    y = np.zeros((*x.shape[:2], *shape), np.float64)
    for place, planes in places:
        for n, elements in enumerate(planes):
            if mean:
                count = np.prod(kernel) if counted else elements.size
                value = elements.sum(dtype=np.float64) / max(count, 1)
            else:
                value = elements.max() if elements.size else LOWEST
            y[(n // x.shape[1], n % x.shape[1], *place)] = value
    return y


CASES = [
    (7, [2, 2], [2, 2], 1),
    (7, [3, 3], [2, 2], 1),
    (5, [2, 3], [3, 2], 1),
    (4, [2, 2], [3, 3], 1),
    (6, [3, 2], [2, 3], 0),
    (7, [3, 3], [4, 5], 2),
]


@pytest.mark.parametrize(("size", "kernel", "stride", "pad"), CASES)
@pytest.mark.parametrize("kind", ["max", "mean", "counted"])
def test_ceil_mode_has_the_windows_of_the_document(
    size: int, kernel: list[int], stride: list[int], pad: int, kind: str, tmp_path: Path
) -> None:
    x = Draw("pools").array([1, 2, size, size])
    args: dict[str, Any] = {"kernel": kernel, "stride": stride, "pad": [pad] * 4, "ceil_mode": True, "out_name": "y"}
    with Graph("g") as graph:
        i = Tensor([1, 2, size, size], name="x")
        made = (
            tpul.maxpool2d(i, **args)
            if kind == "max"
            else tpul.avgpool2d(i, **args, count_include_pad=kind == "counted")
        )
    wanted = expected(x, kernel, stride, pad, mean=kind != "max", counted=kind == "counted")
    assert tuple(made.shape) == wanted.shape
    got = run(graph, {"x": x})["y"]
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)
    files = top_mlir.write(graph.to_ir(), tmp_path, "g", "TOP_F32")
    assert np.array_equal(run(top_mlir.read(files.text), {"x": x})["y"], got)


def test_the_result_of_the_issue_is_five_by_five() -> None:
    for function in (tpul.maxpool2d, tpul.avgpool2d):
        with Graph("g"):
            made = function(Tensor([1, 1, 7, 7], name="x"), [2, 2], [2, 2], [1, 1, 1, 1], True)
        assert list(made.shape) == [1, 1, 5, 5]


def test_max_pool_of_windows_in_padding_gives_codes_and_masks() -> None:
    x = Draw("codes").array([1, 1, 7, 7]).round().astype(np.int8)
    with Graph("g") as graph:
        tpul.maxpool2d(Tensor([1, 1, 7, 7], name="x", dtype="int8"), [2, 2], [2, 2], [1] * 4, True, out_name="y")
    y = run(graph, {"x": x})["y"]
    assert y.dtype == np.int8
    assert (y[..., -1] == -128).all()
    real = Draw("mask").array([1, 1, 7, 7])
    with Graph("g") as graph:
        tpul.maxpool2d_with_mask(
            Tensor([1, 1, 7, 7], name="x"), [2, 2], [2, 2], [1] * 4, True, out_name="y", mask_name="m"
        )
    found = run(graph, {"x": real})
    assert (found["m"][..., -1] == -1).all()
    assert np.array_equal(
        found["y"][..., :-1, :-1].reshape(-1), real.reshape(-1)[found["m"][..., :-1, :-1].reshape(-1)]
    )


def test_exported_pools_equal_onnx_runtime() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    from quantizer.ir.formats.onnx_write import to_model

    for size, kernel, stride, pad in CASES:
        with Graph("g") as graph:
            i = Tensor([1, 2, size, size], name="x")
            made = [
                tpul.maxpool2d(i, kernel, stride, [pad] * 4, True),
                tpul.avgpool2d(i, kernel, stride, [pad] * 4, True),
            ]
        feeds = {"x": Draw("runtime").array([1, 2, size, size])}
        data = to_model(lowered(graph, made)).SerializeToString()
        session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        found = run(graph, feeds, made)
        for tensor, other in zip(made, session.run([t.name for t in made], feeds), strict=True):
            np.testing.assert_allclose(found[str(tensor.name)], other, rtol=1e-6, atol=1e-6)
