"""Random graphs that are quantized to floats of 8 bits, or have weights in blocks: right in float and by the integer executor.

Every number is chosen so that float32 computes exactly; then ONNX Runtime, the reference and the executor give the same bits.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from qdq_graphs import session

from quantizer.ir.formats.onnx import from_model
from quantizer.runtime.integer import integer_graph
from quantizer.runtime.integer_executor import IntegerExecutor
from quantizer.runtime.onnx_backend import prepare

LARGEST = {
    TensorProto.FLOAT8E4M3FN: 448.0,
    TensorProto.FLOAT8E5M2: 57344.0,
    TensorProto.FLOAT8E4M3FNUZ: 240.0,
    TensorProto.FLOAT8E5M2FNUZ: 57344.0,
}
GRAPHS, NIGHTLY = 60, 40


class Graph:
    """A graph under construction."""

    def __init__(self, seed: int) -> None:
        """Start it."""
        self.r = random.Random(seed)
        self.element = self.r.choice(list(LARGEST))
        self.opset = self.r.choice((19, 21, 23))
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []

    def tensor(self, name: str, element: int, shape: tuple[int, ...], values: list[float]) -> str:
        """Keep a constant."""
        self.tensors.append(helper.make_tensor(name, element, shape, values))
        return name

    def pair(self, source: str, target: str, scale: np.ndarray, **attrs: int) -> None:
        """Add QuantizeLinear and DequantizeLinear."""
        self.tensors.append(numpy_helper.from_array(np.asarray(scale, np.float32), f"{target}_s"))
        zero = self.tensor(f"{target}_z", self.element, scale.shape, [0.0] * scale.size)
        saturate = {} if self.r.random() < 0.7 else {"saturate": 0}
        numbers = [f"{target}_s", zero]
        self.nodes.append(helper.make_node("QuantizeLinear", [source, *numbers], [f"{target}_q"], **attrs, **saturate))
        self.nodes.append(helper.make_node("DequantizeLinear", [f"{target}_q", *numbers], [target], **attrs))

    def spread(self, shape: tuple[int, ...], scale: float) -> np.ndarray:
        """Return values of all sizes: ties, ends, values beyond the ends, subnormal numbers, and NaN."""
        top = LARGEST[self.element]
        ends = (
            0.0,
            -0.0,
            np.inf,
            -np.inf,
            np.nan,
            top,
            top * 1.03,
            top * 1.07,
            -top * 1.08,
            2**-9,
            2**-10,
            3 * 2**-11,
            17,
            19,
            21,
        )
        drawn = [
            self.r.choice(ends) * scale
            if self.r.random() < 0.5
            else self.r.gauss(0, 1) * scale * self.r.choice((1, 100, top))
            for _ in range(int(np.prod(shape)))
        ]
        return np.array(drawn, np.float32).reshape(shape)

    def weight(self, shape: tuple[int, int] | tuple[int, ...]) -> str:
        """Add a weight: floats of 8 bits, or int4, or int4 in blocks."""
        form = self.r.choice(("float8", "int4", "blocks")) if self.opset >= 21 else "float8"
        count = int(np.prod(shape))
        if form == "float8":
            names = [
                self.tensor(
                    "w", self.element, shape, [self.r.choice((-2, -1.5, -1, 0.5, 0.25, 0, 3)) for _ in range(count)]
                )
            ]
            sizes: tuple[int, ...] = ()
        else:
            names = [self.tensor("w", TensorProto.INT4, shape, [self.r.randint(-8, 7) for _ in range(count)])]
            sizes = () if form == "int4" else (-(-shape[0] // 2), *shape[1:])
        scales = np.array([self.r.choice((0.5, 1, 0.25)) for _ in range(int(np.prod(sizes)))], np.float32).reshape(
            sizes
        )
        self.tensors.append(numpy_helper.from_array(scales, "ws"))
        if form != "float8":
            names += [
                "ws",
                self.tensor("wz", TensorProto.INT4, sizes, [self.r.randint(-3, 3) for _ in range(scales.size)]),
            ]
        attrs = {"axis": 0, "block_size": 2} if form == "blocks" else {}
        self.nodes.append(
            helper.make_node("DequantizeLinear", names if form != "float8" else [*names, "ws"], ["wv"], **attrs)
        )
        return "wv"

    def model(self, shape: tuple[int, ...], result: str) -> onnx.ModelProto:
        """Return the model."""
        values = [helper.make_tensor_value_info("x", 1, shape)], [helper.make_tensor_value_info(result, 1, None)]
        graph = helper.make_graph(self.nodes, "g", *values, self.tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)


def drawn(seed: int) -> tuple[onnx.ModelProto, np.ndarray]:
    """Return a graph and its inputs."""
    g = Graph(seed)
    kind = g.r.choice(("alone", "axis", "blocks", "function", "MatMul", "Conv"))
    if kind in ("MatMul", "Conv"):
        shape: tuple[int, ...] = (g.r.randint(1, 3), g.r.randint(1, 6)) if kind == "MatMul" else (1, 2, 4, 4)
        x = np.array([g.r.randint(-60, 60) / 8 for _ in range(int(np.prod(shape)))], np.float32).reshape(shape)
        g.pair("x", "v", np.float32(g.r.choice((1, 0.5, 0.25))).reshape(()))
        weight = g.weight((shape[1], g.r.randint(1, 3)) if kind == "MatMul" else (3, 2, 2, 2))
        g.nodes.append(helper.make_node(kind, ["v", weight], ["raw"]))
        g.pair("raw", "y", np.float32(g.r.choice((0.5, 1, 2))).reshape(()))
        return g.model(shape, "y"), x
    shape = tuple(g.r.randint(1, 4) for _ in range(g.r.randint(1, 4)))
    scale, axis, attrs = g.r.choice((1, 0.5, 0.013, 3.7, 1e-3)), g.r.randrange(len(shape)), {}
    sizes: tuple[int, ...] = ()
    if kind == "axis":
        sizes, attrs = (shape[axis],), {"axis": axis}
    elif kind == "blocks":
        block, g.opset = g.r.randint(1, 3), max(g.opset, 21)
        sizes = tuple(-(-s // block) if i == axis else s for i, s in enumerate(shape))
        attrs = {"axis": axis, "block_size": block}
    scales = np.array([scale * g.r.choice((1, 2, 3.3)) for _ in range(int(np.prod(sizes)))], np.float32).reshape(sizes)
    g.pair("x", "v", scales, **attrs)
    if kind != "function":
        return g.model(shape, "v"), g.spread(shape, scale)
    g.nodes.append(helper.make_node(g.r.choice(("Neg", "Relu", "Abs", "Identity")), ["v"], ["raw"]))
    g.pair("raw", "y", np.float32(g.r.choice((scale, 2 * scale, 0.7 * scale))).reshape(()))
    return g.model(shape, "y"), g.spread(shape, scale)


@pytest.mark.parametrize("block", range(2))
def test_the_executor_equals_an_engine_bit_for_bit(block, request):
    count = GRAPHS * (NIGHTLY if request.config.getoption("--op-profile", None) == "nightly" else 1)
    found: Counter[str] = Counter()
    for seed in range(block * count, (block + 1) * count):
        model, x = drawn(seed)
        with np.errstate(all="ignore"):
            (own,) = prepare(model).run({"x": x.copy()})
            first = None
            with suppress(Exception):  # ONNX Runtime takes one block for none
                (first,) = session(model, optimized=False).run(None, {"x": x})
            if first is None or not np.array_equal(own, first, equal_nan=True):
                (other,) = ReferenceEvaluator(model).run(None, {"x": x})
                assert np.array_equal(own, other, equal_nan=True), f"seed {seed}: {own}, {first}, {other}"
                found["as the reference alone"] += 1  # saturate=0 beyond the ends: ONNX Runtime clips what rounds down
        feeds = {"x": torch.from_numpy(x)}
        made = IntegerExecutor(integer_graph(from_model(model), inputs=feeds))
        (codes,) = made.forward(feeds)
        assert np.array_equal(codes.numpy(), own, equal_nan=True), seed
        assert set(made.reasons) == set(made.floats)
        found["in float"] += bool(made.floats)
    assert found["in float"]
    assert found["as the reference alone"] <= 0.2 * count, found


def test_a_blockwise_weight_keeps_other_nodes_on_integers():
    """One such constant used to refuse the whole graph."""
    g = Graph(1)
    g.opset = 21
    for name, source in (("v", "x"), ("m", "raw"), ("y", "s")):
        g.tensors.append(numpy_helper.from_array(np.float32(0.0625), f"{name}_s"))
        g.tensor(f"{name}_z", TensorProto.UINT8, (), [128])
        for op, a, b in (("QuantizeLinear", source, f"{name}_q"), ("DequantizeLinear", f"{name}_q", name)):
            g.nodes.append(helper.make_node(op, [a, f"{name}_s", f"{name}_z"], [b]))
        if name == "v":
            g.tensor("w", TensorProto.INT4, (4, 3), [g.r.randint(-8, 7) for _ in range(12)])
            g.tensors.append(numpy_helper.from_array(np.full((2, 3), 0.25, np.float32), "ws"))
            g.nodes.append(helper.make_node("DequantizeLinear", ["w", "ws"], ["wv"], axis=0, block_size=2))
            g.nodes.append(helper.make_node("MatMul", ["v", "wv"], ["raw"]))
        elif name == "m":
            g.nodes.append(helper.make_node("Sigmoid", ["m"], ["s"]))
    model, x = g.model((2, 4), "y"), np.linspace(-3, 3, 8, dtype=np.float32).reshape(2, 4)
    made = integer_graph(from_model(model))
    assert [node.op for node in made.nodes if node.parameters is not None] == ["sigmoid"]
    (own,) = IntegerExecutor(made).forward({"x": torch.from_numpy(x)})
    (expected,) = session(model, optimized=False).run(None, {"x": x})
    assert np.array_equal(own.numpy(), expected)
