"""One graph built by hand, through Top MLIR, Compass IR and ONNX: the same numbers; and through the checks."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from lang_calls import Draw

import quantizer.lang as tpul
from quantizer.conformance import check_graph
from quantizer.conformance.faults.catalogue import catalogue
from quantizer.conformance.faults.planting import Planting
from quantizer.core.errors import SpecError, UnsupportedError
from quantizer.ir.formats import compass, top_mlir
from quantizer.lang import Graph, Tensor, run
from quantizer.runtime.executor import execute
from quantizer.runtime.onnx.kernels import specs

FEED = Draw("image").array([1, 3, 12, 12])


def network() -> Graph:
    """A small float network of operators that both the registry and Compass have."""
    d = Draw("network")

    def coeff(*shape: int) -> Tensor:
        return Tensor(ttype="coeff", data=d.array(shape, low=-1.0, high=1.0))

    with Graph("Net") as graph:
        x = Tensor([1, 3, 12, 12], name="x")
        y = tpul.relu(tpul.conv(x, coeff(4, 3, 3, 3), coeff(4), stride=[2, 1], pad=[1, 0, 1, 2]))
        y = tpul.maxpool2d(y, [2, 2], [2, 2])
        z = tpul.conv(y, coeff(4, 1, 3, 3), pad=[1, 1, 1, 1], group=4)
        y = tpul.add(tpul.sigmoid(z), y)
        y = tpul.reshape(tpul.avgpool2d(y), [1, -1])
        y = tpul.matmul(y, coeff(4, 5), coeff(5))
        tpul.softmax(tpul.leaky_relu(y, 0.125), 1, out_name="y")
    return graph


def test_three_file_formats_of_a_graph_give_the_same_numbers(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from quantizer.runtime.onnx_model import load_onnx_graph
    from quantizer.runtime.torch_executor import TorchExecutor

    graph, feed = network(), torch.from_numpy(FEED)
    wanted = run(graph, {"x": FEED})["y"]
    assert 0 < wanted.min() < wanted.max() < 1
    files = top_mlir.write(graph.to_ir(), tmp_path, "Net", "TOP_F32")
    assert np.array_equal(run(top_mlir.read(files.text), {"x": FEED})["y"], wanted)
    tpul.to_onnx(graph, tmp_path / "net.onnx")
    again = TorchExecutor(load_onnx_graph(tmp_path / "net.onnx"), platform="fp32").forward(feed)
    assert np.array_equal(again[0].numpy(), wanted)
    paths = tpul.to_compass(graph, tmp_path)
    assert [path.name for path in paths] == ["Net.txt", "Net.bin"]
    layers = compass.native(compass.read(*paths), specs())
    assert np.array_equal(execute(layers, {"x": feed}, specs()).values["y"].numpy(), wanted)


def test_operators_missing_in_the_registry_are_named() -> None:
    with Graph("g") as graph:
        tpul.sinh(tpul.relu(Tensor([2, 3], name="x")))
    with pytest.raises(UnsupportedError, match=r"sinh_0.*\(Sinh\)"):
        tpul.to_registry(graph)
    with pytest.raises(UnsupportedError, match="Sinh"):
        check_graph(graph)


def test_a_hand_written_graph_is_checked() -> None:
    with Graph("mine") as graph:
        x = Tensor([1, 2, 6, 6], name="x")
        w = Tensor(ttype="coeff", data=Draw("w").array([3, 2, 3, 3], low=-1.0, high=1.0))
        tpul.relu(tpul.conv(x, w))
    found = check_graph(graph, scheme="w8a8", platform="ideal")
    assert {(item.op, item.case.op) for item in found if item.case} == {("conv2d", "conv2d"), ("relu", "relu")}
    assert {item.case.data.set for item in found if item.case and item.op == "relu"} == set(specs()["relu"].data)
    assert not any(item.failing for item in found)
    assert all("arithmetic" in {v.check for v in item.verdicts if v.status == "pass"} for item in found)
    assert all(item.case.scheme == ("w8a8" if item.op == "conv2d" else "a8") for item in found if item.case)


def test_a_faulty_operator_fails_its_node() -> None:
    fault = next(item for item in catalogue() if item.id == "multiplier_half")
    with Planting(fault, specs()["conv2d"], ["ideal"]):
        found = check_graph(network(), data=["random"])
    assert {item.node for item in found if item.failing} == {"conv_0/Conv_0"}
    line = next(str(item) for item in found if item.failing)
    assert line.startswith("conv_0/Conv_0 (conv2d on random): arithmetic: ")
    assert re.fullmatch(r"relu_0/Relu_0 \(relu on random\): \d+ pass", str(found[1]))
    assert not any(item.failing for item in check_graph(network(), data=["random"]))


def test_case_ranges_are_those_observed_in_the_run() -> None:
    graph = network()
    values = execute(tpul.to_registry(graph), {"x": torch.from_numpy(FEED)}, specs()).values
    found = check_graph(graph, inputs={"x": torch.from_numpy(FEED)}, data=["random"])
    node = next(item for item in found if item.op == "max_pool2d")
    assert node.case is not None
    made = values["relu_0"]
    assert node.case.ranges["x"] == (float(made.min()), float(made.max()))
    assert not any(item.failing for item in found)


def test_unsupported_operators_are_gaps_and_unknown_names_errors() -> None:
    with Graph("g") as graph:
        tpul.relu(Tensor([2, 3], name="x"))
    (found,) = check_graph(graph, platform="ort")
    assert (found.case, [v.status for v in found.verdicts]) == (None, ["inconclusive"])
    assert "platform 'ort' does not run relu under 'w8a8'" in found.verdicts[0].reason
    with pytest.raises(SpecError, match="'w8a9': no such scheme"):
        check_graph(graph, scheme="w8a9")
    with pytest.raises(SpecError, match="no such platform"):
        check_graph(graph, platform="idea")
    with pytest.raises(UnsupportedError, match="relu has none of these"):
        check_graph(graph, data=["noise"])
