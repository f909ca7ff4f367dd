"""Calibration of whole graphs: each method makes the error of a network smaller that it is made for, driven by its cfg field."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from quantizer.core.dtypes import DTYPES
from quantizer.core.errors import FormatError
from quantizer.core.library import load_library
from quantizer.ir.formats import compass
from quantizer.ir.graph import Graph, Node
from quantizer.ir.graph import Tensor as GraphTensor
from quantizer.ops import load_built_ins
from quantizer.optimize import steps
from quantizer.optimize.cfg import read_cfg
from quantizer.optimize.global_methods import DEFAULTS
from quantizer.optimize.work import Work
from quantizer.runtime.executor import run_node

load_built_ins()
LIBRARY = load_library()
CONV = {"stride": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
F32 = DTYPES["float32"]
UNIT = 2.0**-24
ROUNDINGS = 3 * int(DEFAULTS["equalization"]["rounds"]) + 1
"""Of a pair of layers that share a factor, each round: its inverse and a product before, a product after; one for float64's own."""


class Network:
    """A chain of layers that is written as Compass IR, with calibration data."""

    def __init__(self, folder: Path, data: Tensor) -> None:
        self.folder, self.data = folder, data
        self.tensors = {"x": GraphTensor("x", (1, *data.shape[1:]), F32)}
        self.nodes: list[Node] = []

    def add(self, op: str, shape: tuple[int, ...], *constants: Tensor, **more: object) -> Network:
        made, source = f"y{len(self.nodes)}", self.nodes[-1].outputs[0] if self.nodes else "x"
        names = [f"{made}_c{place}" for place in range(len(constants))]
        self.tensors |= {n: GraphTensor(n, tuple(c.shape), F32, c) for n, c in zip(names, constants, strict=True)}
        self.tensors[made] = GraphTensor(made, shape, F32)
        self.nodes.append(Node(made, op, (source, *names), (made,), order="channels_last", **more))  # type: ignore[arg-type]
        return self

    def quantized(self, *lines: str) -> Work:
        last = self.nodes[-1].outputs[0]
        graph = Graph("net", tuple(self.nodes), self.tensors, ("x",), (last,))
        text, blob = compass.to_bytes(compass.foreign(graph, LIBRARY.specs))
        (self.folder / "net.txt").write_text(text)
        (self.folder / "net.bin").write_bytes(blob)
        np.save(self.folder / "x.npy", self.data.numpy())
        given = {"graph": "net.txt", "bin": "net.bin", "dataset": "NumpyDataset", "calibration_data": "x.npy"}
        given |= {"calibration_batch_size": "16", "calibration_strategy_for_activation": "extrema"}
        given = {k: str(self.folder / v) if k in ("graph", "bin", "calibration_data") else v for k, v in given.items()}
        given |= dict(line.split(" = ", 1) for line in lines)
        cfg = self.folder / "opt.cfg"
        cfg.write_text("[Common]\n" + "".join(f"{key} = {value}\n" for key, value in given.items()))
        return steps.quantized(read_cfg(cfg), LIBRARY)

    def error(self, *lines: str) -> float:
        """Return the mean squared error of the quantized graph against the first, float one."""
        plain = self.quantized(*(line for line in lines if not line.startswith("global")))
        work = self.quantized(*lines)
        (wanted,) = plain.runs.outputs(plain.float_graph, {"x": self.data})
        moved = evaluated(work.float_graph, self.data) - evaluated(plain.float_graph, self.data)
        assert bool((moved.abs() <= gamma(ROUNDINGS) * evaluated(plain.float_graph, self.data, sizes=True)).all())
        (codes,) = work.runs.outputs(work.quantized_graph, {"x": self.data})
        params = work.quantized_graph.tensor(work.quantized_graph.outputs[0]).qparams
        assert params is not None
        return float(((codes - params.zero_point) * params.scale - wanted).square().mean())


def evaluated(graph: Graph, x: Tensor, *, sizes: bool = False) -> Tensor:
    """Return the output in float64; with *sizes* that of the sizes of all constants and of what nodes give each other.

    A node that only scales along changes no size by more than its constants are changed, relative to these: Higham 2002, 3.1.
    """
    values = {name: tensor.data.double() for name, tensor in graph.tensors.items() if tensor.data is not None}
    values[graph.inputs[0]] = x.double()
    for node in graph.order:
        if not node.inputs:
            continue
        spec = LIBRARY.spec(node.op)
        operands = {key: values[name] for key, name in zip(spec.inputs, node.inputs, strict=False) if name is not None}
        if sizes and node.op != "layer_norm":
            operands = {key: value.abs() for key, value in operands.items()}
        shape = {"shape": (len(x), *node.attrs["shape"][1:])} if node.op == "reshape" else node.attrs
        (values[node.outputs[0]],) = run_node(spec, replace(node, attrs=shape), operands).tensors
    return values[graph.outputs[0]]


def gamma(roundings: int) -> float:
    return roundings * UNIT / (1 - roundings * UNIT)


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def correlated(tmp_path: Path) -> Network:
    """A convolution and two fully connected layers whose inputs lie near a subspace; weights of few bits."""
    data = drawn(32, 4, 4, 2) @ drawn(2, 8, seed=2) + 0.05 * drawn(32, 4, 4, 8, seed=3)
    net = Network(tmp_path, data)
    net.add("conv2d", (1, 4, 4, 8), 0.3 * drawn(8, 3, 3, 8, seed=4), torch.zeros(8), attrs=CONV, activation="relu")
    net.add("reshape", (1, 128), attrs={"shape": (1, 128)})
    return net.add("fully_connected", (1, 10), 0.1 * drawn(10, 128, seed=5), torch.zeros(10))


@pytest.mark.parametrize(("method", "most"), [("gptq_zy[2,1,0.01,64]", 0.6), ("adaround[2,60,4,0.02]", 0.6)])
def test_non_nearest_codes_improve_the_output(correlated: Network, method: str, most: float) -> None:
    plain = correlated.error("weight_bits = 4")
    assert correlated.error("weight_bits = 4", f"global_calibration = {method}") < most * plain


def test_chosen_codes_stay_within_the_grid_of_the_rule(correlated: Network) -> None:
    plain = correlated.quantized("weight_bits = 4")
    assert plain.decided is not None
    for method in ("gptq_zy", "adaround[2,60,4,0.02]"):
        work = correlated.quantized("weight_bits = 4", f"global_calibration = {method}")
        assert work.decided is not None
        for name, own in work.decided.provided.items():
            for key, constant in own.constants.items():
                usual = plain.decided.provided[name].constants[key]
                assert torch.equal(constant.params.scale, usual.params.scale)
                if key == "weight":
                    assert not torch.equal(constant.codes, usual.codes)
                    assert int(constant.codes.min()) >= -7
                    assert int(constant.codes.max()) <= 7
                if key == "weight" and method.startswith("adaround"):
                    assert int((constant.codes - usual.codes).abs().max()) == 1


@pytest.mark.parametrize("rate", [0.05, 0.2])
def test_the_first_adaquant_step_follows_the_gradient_by_its_rate(tmp_path: Path, rate: float) -> None:
    """Adam's first step is its rate against the gradient's sign, which two sums at neighbouring scales show, codes as they are."""
    x, weights = drawn(1, 1, 1, 8, seed=11), drawn(4, 1, 1, 8, seed=12)
    net = Network(tmp_path, x).add(
        "conv2d", (1, 1, 1, 4), weights, torch.zeros(4), attrs={**CONV, "padding": (0, 0, 0, 0)}
    )
    plain, learned = net.quantized(), net.quantized(f"global_calibration = adaquant_zy[1,1,1,0,0,0,{rate}]")
    assert plain.decided is not None
    assert learned.decided is not None
    params, constant = plain.decided.tensors["x"], plain.decided.provided["y0"].constants["weight"]
    steps, after = 1.0 / float(params.scale), params.qmin / learned.ranges["x"].low
    codes = (x.double() * steps).round().clamp(params.qmin, params.qmax).reshape(8)
    real = (constant.codes.double() * constant.params.scale).reshape(4, 8)
    wanted = weights.double().reshape(4, 8) @ x.double().reshape(8)

    def error(scale: float) -> float:
        return float((real @ (codes / scale) - wanted).square().mean())

    downhill = -1.0 if error(steps * 1.0001) > error(steps * 0.9999) else 1.0
    assert after - steps == pytest.approx(downhill * rate, rel=1e-3)
    assert learned.ranges["x"].high == pytest.approx(params.qmax / after)
    kept = learned.decided.provided["y0"].constants["weight"]
    assert int((kept.codes - constant.codes).abs().max()) <= 1


def test_adaquant_makes_the_output_better(correlated: Network) -> None:
    plain = correlated.error("weight_bits = 4")
    assert (
        correlated.error("weight_bits = 4", "global_calibration = adaquant_zy[2,20,4,0.1,0.02,0.01,0.01]") < 0.8 * plain
    )


def test_adaquant_with_some_rates_missing_is_refused(correlated: Network) -> None:
    with pytest.raises(FormatError, match="adaquant_zy"):
        correlated.quantized("global_calibration = adaquant_zy[1,1,1,0.001]")


def test_a_method_applies_only_to_layers_in_its_scope(correlated: Network) -> None:
    plain = correlated.quantized("weight_bits = 4")
    work = correlated.quantized("weight_bits = 4", "global_calibration = gptq_zy[1][FullyConnected]")
    assert plain.decided is not None
    assert work.decided is not None
    pairs = {name: (own, plain.decided.provided[name]) for name, own in work.decided.provided.items() if own.constants}
    same = {n: torch.equal(a.constants["weight"].codes, b.constants["weight"].codes) for n, (a, b) in pairs.items()}
    assert same == {"y0": True, "y2": False}


def test_equalization_helps_layers_of_unequal_channels(tmp_path: Path) -> None:
    spread = torch.logspace(-2, 2, 8)
    net = Network(tmp_path, drawn(32, 6, 6, 4))
    net.add("conv2d", (1, 6, 6, 8), drawn(8, 3, 3, 4, seed=2) * spread[:, None, None, None], spread, attrs=CONV)
    net.add("relu", (1, 6, 6, 8))
    net.add("conv2d", (1, 6, 6, 5), drawn(5, 3, 3, 8, seed=3) / spread, torch.zeros(5), attrs=CONV)
    plain = net.error()
    assert net.error("global_calibration = equalization") < 0.1 * plain


def test_smooth_quant_helps_a_normalization_with_outlying_channels(tmp_path: Path) -> None:
    gamma = torch.ones(16)
    gamma[3], gamma[11] = 60.0, 30.0
    net = Network(tmp_path, drawn(64, 16))
    net.add("layer_norm", (1, 16), gamma, torch.zeros(16), attrs={"axis": -1, "epsilon": 1e-5})
    net.add("fully_connected", (1, 8), drawn(8, 16, seed=2) / gamma, torch.zeros(8))
    plain = net.error()
    assert net.error("global_calibration = smooth_quant_zy[0.5]") < 0.5 * plain
    both = net.error("global_calibration = smooth_quant_zy & gptq_zy")
    assert both < 0.5 * plain


@pytest.mark.parametrize(
    "value",
    ["easy_quant", "gptq_zy[1] & equalization", "adaround[1;2]", "smooth_quant_zy[0.5,1]", "gptq_zy[1,1,1,1,1]"],
)
def test_invalid_global_calibrations_are_refused(correlated: Network, value: str) -> None:
    with pytest.raises(FormatError, match="global_calibration: got .* must be none, or methods joined by &"):
        correlated.quantized(f"global_calibration = {value}")
