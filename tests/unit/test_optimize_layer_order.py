"""Layers are written by generation, as in the original: after every layer on the longest path to them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from test_global_calibration import LIBRARY, Network, drawn

from quantizer.ir.formats import compass
from quantizer.ir.graph import Node
from quantizer.optimize.generations import by_generation

SHAPE = (1, 4, 3, 2)


def branched(folder: Path) -> Network:
    """x -> y0 -> y1 -> d, x -> c -> d, c -> e, in this order."""
    net = Network(folder, drawn(6, *SHAPE[1:])).add("sigmoid", SHAPE).add("tanh", SHAPE)
    for name, op, inputs in (("c", "sigmoid", ("x",)), ("d", "add", ("y1", "c")), ("e", "add", ("c", "d"))):
        net.tensors[name] = replace(net.tensors["x"], name=name)
        net.nodes.append(Node(name, op, inputs, (name,), order="channels_last"))
    return net


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ((), "x y0 c y1 d e"),
        (
            ("trigger_float_op = disable & <[Tanh]:float16_preferred!>",),
            "x y0 c y0_DeQuantize_0 y1 y1_Quantize_0 d e",
        ),
        (
            ("trigger_float_op = disable & <{c}:float16_preferred!>",),
            "x y0 x_DeQuantize_0 c y1 c_Quantize_0 d e",
        ),
    ],
)
def test_layers_are_sorted_by_generation(tmp_path: Path, lines: tuple[str, ...], wanted: str) -> None:
    work = branched(tmp_path).quantized(*lines)
    text, _ = compass.to_bytes(compass.foreign(work.quantized_graph, LIBRARY.specs))
    names = [line.partition("=")[2] for line in text.splitlines() if line.startswith("layer_name=")]
    assert names == wanted.split()
    assert work.keys["c"].number == 3


def test_constants_come_first(tmp_path: Path) -> None:
    net = Network(tmp_path, drawn(4, 2, 9, 6)).add("sigmoid", (1, 2, 9, 6))
    work = net.add("matmul", (1, 2, 9, 7), drawn(1, 2, 6, 7, seed=2)).quantized()
    graph = compass.foreign(work.quantized_graph, LIBRARY.specs)
    assert [node.op for node in graph.nodes] == ["Input", "Constant", "Activation", "MatMul"]


def test_of_one_generation_the_order_stays() -> None:
    nodes = [Node(name, "relu", (read,), (name,)) for name, read in (("b", "a"), ("d", "x"), ("a", "x"), ("c", "d"))]
    assert [node.name for node in by_generation(nodes)] == ["d", "a", "b", "c"]
