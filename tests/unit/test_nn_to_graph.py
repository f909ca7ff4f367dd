"""A trained network as a graph of integers: the same numbers, its codes, its file, and what has no graph."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from nn_data import noise
from torch import Tensor, nn

from quantizer import nn as qnn
from quantizer.core.errors import FixError, GraphError, UnsupportedError
from quantizer.core.library import load_library
from quantizer.ir.formats import compass
from quantizer.ir.formats.compass_read_back import with_parameters
from quantizer.ir.graph import Graph, same
from quantizer.nn import FIX_FIXED, FIX_NONE, default_fix_cfg, quantize_cfg, run_graph, to_graph
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import dequantize
from quantizer.optimize.running import Runner

BIAS = {"method": FIX_FIXED, "bitwidth": 6, "scale": 8.0}


def act(**keys: Any) -> nn.Module:
    return qnn.Activation_fix(nf_fix_params=default_fix_cfg(["activation"], **keys))


def constants(bits: int = 8, **keys: Any) -> dict[str, Any]:
    return {**default_fix_cfg(["weight"], bitwidth=bits, **keys), "bias": BIAS}


class Net(qnn.FixTopModule):
    """Every kind of call that becomes a node, on two paths that meet in a sum and in a concatenation."""

    def __init__(self, bits: int, **keys: Any) -> None:
        super().__init__()
        self.fix0, self.fix1, self.fix2, self.fix3 = (act(bitwidth=bits, **keys) for _ in range(4))
        self.fix4, self.fix5, self.fix6, self.fix7 = (act(bitwidth=bits, **keys) for _ in range(4))
        self.conv = qnn.Conv2d_fix(3, 8, 3, padding=1, nf_fix_params=constants(bits, group="batch"))
        self.folded = qnn.ConvBN_fix(8, 8, 3, 1, 1, nf_fix_params=constants(bits))
        self.deep = qnn.Conv2d_fix(
            8, 8, 3, padding="same", groups=8, bias=False, nf_fix_params=default_fix_cfg(["weight"], bitwidth=bits)
        )
        self.pool, self.drop = nn.AvgPool2d(2), nn.Dropout()
        self.fc = qnn.Linear_fix(64, 5, nf_fix_params=constants(bits, group="batch"))

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.fix1(F.relu(self.conv(self.fix0(x)))), 2)
        y = self.fix2(F.max_pool2d(F.relu6(self.folded(x)), 3, 1, 1))
        z = self.fix3(self.deep(y)).relu()
        total = self.fix4(y + z)
        both = self.fix5(torch.cat([total, y], 1))
        small = self.fix6(self.pool(both))
        return self.fix7(self.fc(self.drop(small).view(small.shape[0], -1)))


def calibrated(net: nn.Module, *shape: int) -> nn.Module:
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.copy_(noise(name, *parameter.shape))
        for part in range(3):
            net(noise(f"calibration {part}", *shape) * 3)
        net.eval()(noise("calibration 0", *shape) * 3)
    return net


SHAPE = (4, 3, 8, 8)


def steps_between(found: Tensor, graph: Graph, wanted: Tensor) -> float:
    params = graph.tensor(graph.outputs[0]).qparams
    assert params is not None
    return float((found - wanted.detach().double()).abs().max()) / float(params.scale)


@pytest.mark.parametrize("order", ["channels_first", "channels_last"])
@pytest.mark.parametrize("keys", [{}, {"zero_point": True}], ids=["symmetric", "zero_point"])
@pytest.mark.parametrize("bits", [4, 8])
def test_the_graph_equals_the_network(bits: int, keys: dict[str, Any], order: Any) -> None:
    net = calibrated(Net(bits, **keys), *SHAPE)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    graph = to_graph(net, noise("x", *SHAPE), order=order)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    net.set_fix_method(FIX_FIXED)  # type: ignore[operator]
    seen = set()
    for part in range(4):
        x = noise(f"input {part}", *SHAPE) * 4
        wanted = net(x)
        assert torch.equal(run_graph(graph, x), wanted.double())
        seen |= set(wanted.flatten().tolist())
    assert len(seen) > 4
    ops = [node.op for node in graph.nodes]
    assert {"conv2d", "depthwise_conv2d", "fully_connected", "add", "concat", "avg_pool2d", "max_pool2d"} <= set(ops)
    assert ("transpose" in ops) == (order == "channels_last")


def test_weight_codes_equal_those_of_the_last_forward() -> None:
    net = calibrated(Net(8), *SHAPE)
    graph = to_graph(net, noise("x", *SHAPE))
    assert same(graph, net.to_graph(noise("x", *SHAPE))) is None  # type: ignore[operator]
    used = net.fix_state_dict()  # type: ignore[operator]
    for name in ("conv.weight", "folded.weight", "fc.weight", "conv.bias", "fc.bias"):
        tensor = graph.tensor(name)
        params = tensor.qparams
        assert tensor.data is not None
        assert params is not None
        real = (tensor.data - params.along(params.zero_point, tensor.data.dim())) * params.along(
            params.scale, tensor.data.dim()
        )
        assert torch.equal(real.float(), used[name]), name
        assert all(math.frexp(float(scale))[0] == 0.5 for scale in params.scale.reshape(-1))
    assert graph.tensor("conv.weight").dtype.name == "int8"
    assert all(isinstance(node.parameters, Parameters) for node in graph.nodes)


def test_a_second_activation_grid_rounds_again() -> None:
    net = nn.Sequential(
        act(),
        nn.MaxPool2d(2),
        qnn.Activation_fix(nf_fix_params={"activation": {"method": 2, "bitwidth": 3, "scale": 2.0}}),
    )
    calibrated(net, *SHAPE)
    graph = to_graph(net, noise("x", *SHAPE))
    x = noise("other", *SHAPE) * 3
    net[0].set_datum_method("activation", FIX_FIXED)  # type: ignore[operator]
    assert torch.equal(run_graph(graph, x), net(x).double())


@pytest.mark.parametrize("op", ["conv", "linear", "add", "concat", "relu", "max"])
@pytest.mark.parametrize("bits", [4, 8])
def test_power_of_two_scales_need_no_multiplier_rounding_on_compass(op: str, bits: int) -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = qnn.Conv2d_fix(3, 3, 1, nf_fix_params=constants(bits))
            self.fix = act(bitwidth=bits)

        def forward(self, x: Tensor) -> Tensor:
            y = self.fix(self.conv(x))
            return torch.relu(x + y) if op == "add" else torch.cat([x, y], 1)

    middle = {
        "conv": lambda: qnn.Conv2d_fix(3, 5, 3, stride=2, nf_fix_params=constants(bits, group="batch")),
        "linear": lambda: nn.Sequential(
            nn.Flatten(), qnn.Linear_fix(192, 7, bias=False, nf_fix_params=default_fix_cfg(["weight"]))
        ),
        "add": Sum,
        "concat": Sum,
        "relu": nn.ReLU,
        "max": lambda: nn.MaxPool2d(3, 2, 1),
    }[op]()
    net = calibrated(nn.Sequential(act(bitwidth=bits), middle, act(bitwidth=bits)), *SHAPE)
    graph = to_graph(net, noise("x", *SHAPE), platform="compass", order="channels_last")
    x = noise("other", *SHAPE) * 3
    qnn.FixTopModule.set_fix_method(net, FIX_FIXED)  # type: ignore[arg-type]
    if op == "add":  # Compass shrinks the factor 2**15 of a sum to 32767
        assert steps_between(run_graph(graph, x), graph, net(x)) <= 1
    else:
        assert torch.equal(run_graph(graph, x), net(x).double())


@pytest.mark.parametrize("keys", [{}, {"zero_point": True}], ids=["symmetric", "zero_point"])
@pytest.mark.parametrize("bits", [4, 8])
def test_the_written_compass_file_equals_the_network(tmp_path: Path, bits: int, keys: dict[str, Any]) -> None:
    net = nn.Sequential(
        act(bitwidth=bits, **keys),
        qnn.Conv2d_fix(3, 4, 3, nf_fix_params=constants(bits, group="batch")),
        nn.ReLU(),
        act(bitwidth=bits, **keys),
        nn.MaxPool2d(2),
        qnn.ConvBN_fix(4, 6, 2, nf_fix_params=constants(bits)),
        act(bitwidth=bits, **keys),
        nn.Flatten(),
        qnn.Linear_fix(24, 5, nf_fix_params=constants(bits)),
        act(bitwidth=bits, **keys),
    )
    calibrated(net, *SHAPE)
    x = noise("other", *SHAPE) * 3
    graph = to_graph(net, x, platform="compass", order="channels_last")
    qnn.FixTopModule.set_fix_method(net, FIX_FIXED)  # type: ignore[arg-type]
    files = (tmp_path / "net.txt", tmp_path / "net.bin")
    compass.write(qnn.compass_layers(graph), *files)
    specs, platform = load_library().specs, load_library().platform("compass")
    read = with_parameters(compass.native(compass.read(*files), specs), specs, platform)
    assert [node.op for node in read.nodes] == [node.op for node in graph.nodes]
    runner = Runner(specs, platform.quantizer, SHAPE[0])
    (codes,) = runner.outputs(read, {read.inputs[0]: x.movedim(1, -1)})
    params = read.tensor(read.outputs[0]).qparams
    assert params is not None
    assert torch.equal(dequantize(codes, params), net(x).double())
    text = files[0].read_text(encoding="utf-8")
    assert text.count("scale_value=") + text.count("\nscale_offset=") == 3


def test_only_graphs_for_compass_become_its_layers() -> None:
    net = calibrated(nn.Sequential(act(), nn.ReLU()), 2, 3)
    for keys in ({}, {"platform": "compass"}):
        with pytest.raises(UnsupportedError, match="platform='compass', order='channels_last'"):
            qnn.compass_layers(to_graph(net, noise("a", 2, 3), **keys))  # type: ignore[arg-type]


class Plain(nn.Module):
    """A forward given as a function of a module and its input."""

    def __init__(self, forward: Any, **modules: nn.Module) -> None:
        super().__init__()
        self.fix0, self.fix1 = act(), act()
        for name, module in modules.items():
            self.add_module(name, module)
        self.called = forward

    def forward(self, x: Tensor) -> Any:
        return self.called(self, x)


def _linear(**keys: Any) -> nn.Module:
    return qnn.Linear_fix(4, 4, nf_fix_params={**default_fix_cfg(["weight", "bias"]), **keys})


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (Plain(lambda m, x: m.fix0(x) + 1.0), "adds 1.0: both operands must be activations"),
        (Plain(lambda m, x: m.fc(x), fc=_linear()), "the input has no grid where it is used. Put an Activation_fix after it"),
        (Plain(lambda m, x: m.fc(m.fix0(x)), fc=_linear()), "fc: the result of fully_connected has no grid"),
        (Plain(lambda m, x: m.fix1(m.fc(m.fix0(x))), fc=nn.Linear(4, 4)), "fc: Linear is float. Use Linear_fix"),
        (Plain(lambda m, x: m.fix1(m.bn(m.fix0(x))), bn=qnn.BatchNorm1d_fix(4, nf_fix_params={})), "Fold it: use ConvBN_fix"),
        (Plain(lambda m, x: m.fix1(torch.sin(m.fix0(x)))), "sin: sin has no operator here"),
        (Plain(lambda m, x: m.fix1(nn.functional.gelu(m.fix0(x)))), "gelu has no operator here"),
        (Plain(lambda m, x: m.fix1(m.fc(m.fix0(x))), fc=_linear(weight={"method": 0})), "fc: 'weight' is float"),
        (Plain(lambda m, x: m.fix1(m.fc(m.fix0(x))), fc=_linear(bias={"method": 2, "scale": 2.0**-20})), "units of the sum"),
        (Plain(lambda m, x: m.fix1(m.fc(m.fix0(x))), fc=_linear(weight={"method": 1, "compat": "nics_fix"})), "2**bits + 1 values"),
        (Plain(lambda m, x: m.fix1(m.fc(m.fix0(x))), fc=_linear(weight={"method": 1, "group": "channel"})), "Use group batch"),
        (Plain(lambda m, x: m.fix1(F.max_pool1d(m.fix0(x), 2, return_indices=True)[0])), "no operator here"),
        (Plain(lambda m, x: m.fix0(x) if x.sum() > 0 else x), "its forward cannot be traced"),
        (Plain(lambda m, x: m.fix0(x) @ torch.zeros(3, 3)), "does not run on the examples"),
    ],
)  # fmt: skip
def test_unsupported_networks_are_refused_with_a_remedy(net: nn.Module, message: str) -> None:
    x = noise("row", 6, 4)
    for module in net.modules():
        if isinstance(module, qnn.Activation_fix):
            module(x)
        elif isinstance(module, qnn.Linear_fix):
            with torch.no_grad():
                fine = float(module.bias_fp_scale) == 2.0**-20
                module.bias.copy_(torch.full((4,), 2.0**-21 * 3 if fine else 0.5))
            module(x)
    with pytest.raises((GraphError, UnsupportedError)) as caught:
        to_graph(net, x)
    assert message in str(caught.value)


def test_a_network_that_never_ran_has_no_scales() -> None:
    with pytest.raises(FixError, match="Run a forward with method AUTO first"):
        to_graph(Plain(lambda m, x: m.fix0(x)), noise("x", 2, 3))


def test_a_bias_between_two_units_may_be_rounded() -> None:
    net = nn.Sequential(act(), _linear(bias={"method": 2, "bitwidth": 16, "scale": 2.0**-4}), act())
    calibrated(net, 6, 4)
    x = noise("row", 6, 4)
    with pytest.raises(GraphError, match="bias='nearest'"):
        to_graph(net, x)
    graph = to_graph(net, x, bias="nearest")
    assert steps_between(run_graph(graph, x), graph, net(x)) <= 1


def test_inputs_of_another_number_or_shape_are_refused() -> None:
    net = calibrated(nn.Sequential(act(), nn.ReLU()), 2, 3)
    with pytest.raises(GraphError, match="takes 1 inputs, 2 examples"):
        to_graph(net, noise("a", 2, 3), noise("b", 2, 3))
    graph = to_graph(net, noise("a", 2, 3))
    with pytest.raises(GraphError, match="must be"):
        run_graph(graph, noise("a", 2, 4))
    with pytest.raises(GraphError, match="1 inputs, 0 given"):
        run_graph(graph)


def test_float_methods_leave_activations_without_codes() -> None:
    net = calibrated(nn.Sequential(act(), nn.ReLU()), 2, 3)
    qnn.FixTopModule.set_fix_method(net, FIX_NONE)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="'activation' is float"):
        to_graph(net, noise("a", 2, 3))


def test_values_of_the_graph_lie_on_the_grids_of_the_network() -> None:
    net = calibrated(nn.Sequential(act(bitwidth=5)), 2, 30)
    x = noise("grid", 2, 30) * 5
    scale = net[0].activation_fp_scale.clone()
    graph = to_graph(net, x)
    assert torch.equal(run_graph(graph, x), quantize_cfg(x, scale, 5, FIX_FIXED)[0].double())
