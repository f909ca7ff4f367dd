"""The float32 variants against the engines that they restate: ONNX Runtime and ONNX's reference evaluator."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from quantizer.core.dtypes import dtype
from quantizer.core.platforms import Platform
from quantizer.core.variants import Variant
from quantizer.numerics.qparams import QParams, Rescale
from quantizer.numerics.ratio_to_multiplier import rescale
from quantizer.numerics.requantize import requantize, requantize_sum
from quantizer.numerics.rounding import splitmix64

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

DTYPES = {"uint8": onnx.TensorProto.UINT8, "int8": onnx.TensorProto.INT8}


def model(
    op: str, domain: str, feeds: dict[str, np.ndarray[Any, Any]], scalars: list[tuple[str, Any, int]], order: str
) -> bytes:
    helper = onnx.helper
    node = helper.make_node(op, order.split(), ["out"], domain=domain)
    kind = DTYPES[next(iter(feeds.values())).dtype.name]
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(name, DTYPES[v.dtype.name], v.shape) for name, v in feeds.items()],
        [helper.make_tensor_value_info("out", kind, None)],
        [helper.make_tensor(name, code, np.shape(v), np.atleast_1d(v).ravel().tolist()) for name, v, code in scalars],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())


def run(serialized: bytes, feeds: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(serialized, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds)[0]).astype(np.int64)


def params(name: str, scale: float, zero: int) -> QParams:
    kind = dtype(name)
    return QParams(kind, torch.tensor(scale, dtype=torch.float64), torch.tensor(zero), kind.min, kind.max)


class Draws:
    """Numbers hashed from a seed and a counter."""

    def __init__(self, *seed: int) -> None:
        self.counter = sum(part * 1009**i for i, part in enumerate(seed)) << 32

    def integers(self, low: int, high: int, shape: tuple[int, ...] = (1,)) -> np.ndarray[Any, Any]:
        """Return integers in [low, high)."""
        count = math.prod(shape)
        hashed = splitmix64(torch.arange(count) + self.counter)
        self.counter += count
        return (torch.remainder(hashed, high - low) + low).reshape(shape).numpy()

    def uniform(self, low: float, high: float, shape: tuple[int, ...] = (1,)) -> np.ndarray[Any, Any]:
        """Return float64 numbers in [low, high)."""
        return low + (high - low) * self.integers(0, 1 << 40, shape) / (1 << 40)


def draw_scales(draws: Draws, kind: str) -> list[float]:
    if kind == "random":
        return [float(v) for v in np.exp(draws.uniform(-5, 2, (3,))).astype(np.float32)]
    if kind == "pow2":
        return [float(2.0 ** float(v)) for v in draws.integers(-4, 4, (3,))]
    return [float(v) / 8 for v in draws.integers(1, 40, (3,))]


@pytest.mark.parametrize("name", ["uint8", "int8"])
@pytest.mark.parametrize("population", ["random", "pow2", "eighths"])
def test_qlinear_add_follows_the_fused_order_of_operations(name: str, population: str) -> None:
    """Bodies and tails of every length, raw zero points anywhere: the fused order of operations, bit for bit."""
    draws = Draws(7, len(name), len(population))
    kind = dtype(name)
    compared = 0
    for length in [*range(1, 40), 1001, 4003, *[4096] * 8]:
        s = draw_scales(draws, population)
        z = [int(v) for v in draws.integers(kind.min, kind.max + 1, (3,))]
        a, b = (draws.integers(kind.min, kind.max + 1, (length,)).astype(name) for _ in range(2))
        code = DTYPES[name]
        scalars: list[tuple[str, Any, int]] = [(f"s{i}", np.float32(s[i]), onnx.TensorProto.FLOAT) for i in range(3)]
        scalars += [(f"z{i}", z[i], code) for i in range(3)]
        serialized = model("QLinearAdd", "com.microsoft", {"a": a, "b": b}, scalars, "a s0 z0 b s1 z1 s2 z2")
        factors = {n: float(np.float32(s[i]) / np.float32(s[2])) for i, n in enumerate("ab")}
        made = Rescale("f32_even_zpin", torch.tensor(1.0, dtype=torch.float64), torch.tensor(0), factors=factors)
        terms = {"a": torch.from_numpy(a.astype(np.int64)) - z[0], "b": torch.from_numpy(b.astype(np.int64)) - z[1]}
        inputs = {"a": params(name, s[0], z[0]), "b": params(name, s[1], z[1])}
        found = requantize_sum(terms, made, params(name, s[2], z[2]), inputs=inputs)
        assert found.tolist() == run(serialized, {"a": a, "b": b}).tolist(), (length, s, z)
        compared += length
    assert compared > 38_000


def conv_case(
    draws: Draws, population: str, size: int
) -> tuple[bytes, np.ndarray[Any, Any], torch.Tensor, QParams, list[Any]]:
    s = draw_scales(draws, population)
    w_scale = np.asarray(draw_scales(draws, population), np.float32)
    x = draws.integers(0, 256, (1, 4, size, size)).astype(np.uint8)
    w = draws.integers(-128, 128, (3, 4, 1, 1)).astype(np.int8)
    s_y = float(np.float32(s[0] * w_scale.max() * (64 if population == "pow2" else float(draws.uniform(50, 400)[0]))))
    zx, zy = (int(v) for v in draws.integers(0, 256, (2,)))
    real = onnx.TensorProto.FLOAT
    scalars = [
        ("sx", np.float32(s[0]), real),
        ("zx", zx, DTYPES["uint8"]),
        ("w", w, DTYPES["int8"]),
        ("sw", w_scale, real),
        ("zw", np.zeros(3, np.int64), DTYPES["int8"]),
        ("sy", np.float32(s_y), real),
        ("zy", zy, DTYPES["uint8"]),
    ]
    serialized = model("QLinearConv", "", {"x": x}, scalars, "x sx zx w sw zw sy zy")
    acc = np.einsum("nchw,oc->nohw", x.astype(np.int64) - zx, w[:, :, 0, 0].astype(np.int64))
    scales = [torch.tensor(s[0], dtype=torch.float64), torch.from_numpy(w_scale.astype(np.float64))]
    return serialized, x, torch.from_numpy(acc), params("uint8", s_y, zy), scales


def made_by(variant: Variant, scales: list[Any], out: QParams) -> Rescale:
    platform = Platform(platform="ort", summary="", schemes=["w8a8"], requantize={"default": variant})
    return rescale(platform, "conv", scales, float(out.scale), 8)


@pytest.mark.parametrize("population", ["random", "pow2", "eighths"])
def test_qlinear_conv_in_onnx_runtime_adds_the_zero_point_after_rounding(population: str) -> None:
    draws = Draws(11, len(population))
    for _ in range(30):
        serialized, x, acc, out, scales = conv_case(draws, population, 64)
        found = requantize(acc, made_by("f32_even", scales, out), out, channel_axis=1)
        assert np.array_equal(found.numpy(), run(serialized, {"x": x}))


@pytest.mark.parametrize("population", ["random", "pow2", "eighths"])
def test_qlinear_conv_in_the_reference_rounds_after_the_zero_point(population: str) -> None:
    reference = pytest.importorskip("onnx.reference")
    draws = Draws(13, len(population))
    differing = 0
    for _ in range(20):
        serialized, x, acc, out, scales = conv_case(draws, population, 12)
        expected = reference.ReferenceEvaluator(serialized).run(None, {"x": x})[0].astype(np.int64)
        found = requantize(acc, made_by("f32_even_zpin", scales, out), out, channel_axis=1)
        assert np.array_equal(found.numpy(), expected)
        differing += int((requantize(acc, made_by("f32_even", scales, out), out, channel_axis=1) != found).sum())
    assert differing > 0 or population != "pow2"
