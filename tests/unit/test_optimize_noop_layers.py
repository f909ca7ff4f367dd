"""Reshapes that change nothing are not written, and nothing else changes for it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_global_calibration import LIBRARY, Network, drawn

from quantizer.ir.formats import compass
from quantizer.ir.graph import Node
from quantizer.optimize.steps import template_of

SHAPE = (1, 4, 3, 2)
SCHEMES = ((), ("quantize_method_for_activation = per_tensor_asymmetric",), ("trigger_float_op = float16_preferred!",))


def network(folder: Path, *ops: str) -> Network:
    net = Network(folder, drawn(6, *SHAPE[1:]))
    for op in ops:
        net.add(op, SHAPE, attrs={"shape": SHAPE} if op == "reshape" else {})
    return net


def written(net: Network, *lines: str) -> list[tuple[str, str, str]]:
    work = net.quantized(*lines)
    graph = compass.from_bytes(*compass.to_bytes(compass.foreign(work.quantized_graph, LIBRARY.specs)))
    layers = [(node.name, str(node.inputs[0]), node.outputs[0]) for node in graph.nodes if node.inputs]
    assert {name for name, _, _ in layers} | {"x"} == set(json.loads(template_of(work)))
    return layers


@pytest.mark.parametrize("lines", SCHEMES)
def test_readers_of_a_removed_reshape_read_its_input(tmp_path: Path, lines: tuple[str, ...]) -> None:
    net = network(tmp_path, "reshape", "sigmoid", "reshape", "reshape", "tanh")
    net.tensors["z"] = replace(net.tensors["x"], name="z")
    net.nodes.append(Node("z", "add", ("y4", "y3"), ("z",), order="channels_last"))
    assert written(net, *lines) == [("y1", "x", "y1"), ("y4", "y1", "y4"), ("z", "y4", "z")]


@pytest.mark.parametrize("lines", SCHEMES)
def test_a_removed_reshape_at_an_output_keeps_its_name(tmp_path: Path, lines: tuple[str, ...]) -> None:
    net = network(tmp_path, "sigmoid", "reshape", "reshape")
    assert written(net, *lines) == [("y0", "x", "y2")]
    alone = network(tmp_path, "reshape")
    assert written(alone, *lines) == [("y0", "x", "y0")]


def test_removing_reshapes_keeps_the_codes(tmp_path: Path) -> None:
    plain, more = (network(tmp_path, *ops).quantized() for ops in (("tanh", "sigmoid"), ("tanh", "reshape", "sigmoid")))
    data = drawn(6, *SHAPE[1:])
    wanted, got = (work.runs.outputs(work.quantized_graph, {"x": data}) for work in (plain, more))
    assert torch.equal(wanted[0], got[0])


def test_a_reshape_that_changes_the_shape_stays(tmp_path: Path) -> None:
    net = network(tmp_path, "sigmoid")
    net.add("reshape", (1, 24), attrs={"shape": (1, 24)})
    assert [name for name, _, _ in written(net)] == ["y0", "y1"]
