"""PyGraph, QuantizeGraph and OptMaster over our classes: topology, shared tensors, forward, files, steps."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch

from quantizer.core.errors import FormatError
from quantizer.optimize.views import OptMaster, PyGraph, QuantizeGraph

NET = Path(__file__).parents[2] / "cases" / "reference" / "compass_net"
CONV = NET.parent / "compass" / "conv3x3" / "pc_asym"


def master(folder: Path) -> OptMaster:
    given = dict(line.split(" = ") for line in (CONV / "opt.cfg").read_text().splitlines()[1:])
    given |= {key: str(CONV / given[key]) for key in ("graph", "bin", "calibration_data")}
    given["output_dir"] = str(folder / "out")
    (folder / "opt.cfg").write_text("[Common]\n" + "".join(f"{key} = {value}\n" for key, value in given.items()))
    return OptMaster(folder / "opt.cfg")


def test_the_topology_is_that_of_the_file() -> None:
    graph = QuantizeGraph.parse(NET / "net.txt", NET / "net.bin")
    assert isinstance(graph, PyGraph)
    assert isinstance(graph.net_, nx.DiGraph)
    assert list(nx.topological_sort(graph.net_))[0].type.name == "Input"
    assert {node.name for node in graph.nodes} == {node.name for node in graph.net_}
    for node in graph.nodes:
        assert node.graph is graph
        assert list(node.parents) == list(graph.net_.predecessors(node))
        for tensor in node.inputs:
            assert tensor.pnode in node.parents
            assert any(tensor is made for made in tensor.pnode.outputs)
    edges = {(a.name, b.name) for a, b in graph.net_.edges}
    sections = (NET / "net.txt").read_text().split("\n\n")[1:]
    layers = [
        dict(line.split("=", 1) for line in section.splitlines() if line) for section in sections if section.strip()
    ]
    tops = {name: item["layer_name"] for item in layers for name in item["layer_top"].strip("[]").split(",")}
    wanted = {
        (tops[name], item["layer_name"])
        for item in layers
        for name in item["layer_bottom"].strip("[]").split(",")
        if name
    }
    assert edges == wanted


def test_steps_run_once_and_in_order(tmp_path: Path) -> None:
    run = master(tmp_path)
    assert len(run.steps) == 10
    run.run("gather_statistics")
    assert run.done == run.steps[:4]
    assert run.g.nodes[1].quantized is False
    run.run("gather_statistics")
    assert run.done == run.steps[:4]
    assert not (tmp_path / "out").exists()
    run.run()
    assert run.done == run.steps
    assert (tmp_path / "out" / "quant.bin").read_bytes() == (CONV / "quant.bin").read_bytes()
    with pytest.raises(FormatError, match="no such step. Did you mean 'quantize_layers'"):
        run.run("quantize_layer")


def test_the_quantized_graph_equals_the_recorded_codes_and_file(tmp_path: Path) -> None:
    run = master(tmp_path).run("quantize_layers")
    recorded = np.load(CONV / "ref.npz")
    values = torch.from_numpy(np.load(CONV / "val.npy"))[:1]
    run.qg.serialize(tmp_path / "again.txt", tmp_path / "again.bin")
    for graph in (run.qg, QuantizeGraph.parse(tmp_path / "again.txt", tmp_path / "again.bin")):
        node = graph.nodes[1]
        assert node.quantized
        assert node.type.name == "Convolution"
        weights, top = node.constants["weights"], node.outputs[0]
        assert (str(weights.dtype), weights.qbits) == ("Dtype.INT8", 8)
        assert weights.scale is not None
        assert weights.scale.numel() == 6
        assert top.scale is not None
        (codes,) = graph.forward({graph.input_tensors[0].name: values})
        assert np.array_equal(codes.numpy(), recorded["b0_q_out0"])
        assert torch.equal(top.betensor, codes)
        assert np.array_equal(node.inputs[0].betensor.numpy(), recorded["b0_q_in0"])
    assert (tmp_path / "again.bin").read_bytes() == (CONV / "quant.bin").read_bytes()
    said = set((tmp_path / "again.txt").read_text().splitlines())
    assert said == set((CONV / "quant.txt").read_text().splitlines())
