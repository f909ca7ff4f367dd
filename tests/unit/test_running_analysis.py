"""The running error analysis: every rule holds what float32 makes of the same definition, and little more."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor

from quantizer.cli import main
from quantizer.conformance.models.bounded_numbers import Bounded, NoAnalysisError, bounded, exact
from quantizer.conformance.models.bounds import enclosures
from quantizer.ir.formats.onnx import from_model
from quantizer.numerics.deviates import deviates
from quantizer.runtime.models.engines import OwnFloat
from quantizer.runtime.models.parts import parts_of

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": lambda x, y: (x * y).sum(-1, keepdim=True) + 1,
    "mean": lambda x, y: 2 - (x - y).mean(),
    "matmul": lambda x, y: x @ y.transpose(-1, -2),
    "einsum": lambda x, y: torch.einsum("ij,kj->ik", x, y),
    "quotient": lambda x, y: x / (y.abs() + 1),
    "root": lambda x, y: torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * y,
    "rsqrt": lambda x, y: y * torch.rsqrt(x.abs() + 0.5),
    "gates": lambda x, y: (1 - torch.sigmoid(x)) * torch.tanh(y) + torch.exp(-x.abs()),
    "logarithms": lambda x, y: torch.log(x.abs() + 1) - torch.logsumexp(y, -1, keepdim=True),
    "softmax": lambda x, y: torch.softmax(3 * x, -1) @ y.T,
    "log_softmax": lambda x, y: torch.log_softmax(x - y, -1),
    "softplus": lambda x, y: torch.logaddexp(x, torch.zeros_like(x)) + torch.expm1(y),
    "powers": lambda x, y: (x.abs() ** 3).sum(-1) ** (1 / 3) + (1 + y.abs()).sum(-1) ** -0.75,
    "products": lambda x, y: x.prod(-1) + y.cumprod(-1)[:, -1] + x.cumsum(-1)[:, 0],
    "choice": lambda x, y: torch.where(x < 0, x * 0.3, x) + y.clamp(-1, 1) - torch.maximum(x, y),
    "moves": lambda x, y: torch.cat([torch.stack([x, y]).flatten(0, 1)[1:], -y], 0).unsqueeze(1).chunk(2)[0],
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("off", [0.0, 2.0**-20], ids=["exact", "off"])
def test_float32_results_lie_within_a_radius_of_few_ulps(name: str, off: float) -> None:
    """Operands may be off by as much as is said, in either direction: the result moves by no more than the radius."""
    generator = torch.Generator().manual_seed(len(name))
    for _ in range(20):
        x, y = (torch.randn(5, 7, generator=generator).double() for _ in range(2))
        made = FUNCTIONS[name](*(bounded(v, off * v.abs()) for v in (x, y)))
        assert isinstance(made, Bounded)
        value = made.as_subclass(Tensor)
        assert torch.equal(value, FUNCTIONS[name](x, y))
        for way in (off, -off):
            moved = FUNCTIONS[name]((x * (1 + way)).float(), (y * (1 - way)).float()).double()
            inner = off or 2.0**-24  # a number becomes float32 first
            wide = FUNCTIONS[name](*(bounded(v, inner * 1.1 * v.abs()) for v in (x, y))).radius
            assert bool(((moved - value).abs() <= wide).all())
        assert float(made.radius.max()) <= (100 * 2.0**-24 + 100 * off) * max(1.0, float(value.abs().max())) * 7


def test_a_choice_within_the_error_allows_both_branches() -> None:
    x = bounded(torch.tensor([1e-9, 1.0]).double(), torch.tensor([1e-8, 1e-8]).double())
    made = torch.where(x > 0, 5.0, -5.0)
    assert made.radius[0] >= 10
    assert made.radius[1] == 0
    assert torch.floor(x).radius.tolist() == [1, 1]


def test_possible_overflow_has_an_infinite_radius() -> None:
    large = exact(torch.tensor([1e30, 1.8e19, 1.0]).double())
    made = large * large
    assert made.as_subclass(Tensor).tolist() == [math.inf, pytest.approx(3.24e38), 1.0]
    assert made.radius[0] == 0
    assert math.isfinite(float(made.radius[2]))
    edge = bounded(torch.tensor([3.4e38]).double(), torch.tensor([1e37]).double())
    assert edge.radius.tolist() == [math.inf]


@pytest.mark.parametrize("function", [torch.fft.fft, torch.linalg.det, torch.argmax, lambda x: x.tolist(), bool])
def test_a_function_without_a_rule_is_named(function: Callable[..., Any]) -> None:
    with pytest.raises(NoAnalysisError, match="there is no analysis of the float32 error of"):
        function(exact(torch.ones(1, 1).double()))


def network(op: str, shapes: dict[str, list[int]], results: int = 1, **attrs: Any) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    outputs = [helper.make_tensor_value_info(f"y{k}", TensorProto.FLOAT, None) for k in range(results)]
    node = helper.make_node(op, list(shapes), [o.name for o in outputs], **attrs)
    graph = helper.make_graph([node], "g", inputs, outputs)
    opset = [helper.make_opsetid("", 21)]
    return onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opset, ir_version=10))


NODES = {
    "InstanceNormalization": network("InstanceNormalization", {"x": [2, 3, 4, 5], "s": [3], "b": [3]}),
    "GroupNormalization": network("GroupNormalization", {"x": [2, 4, 3, 3], "s": [4], "b": [4]}, num_groups=2),
    "GRU": network("GRU", {"x": [6, 2, 3], "w": [1, 12, 3], "r": [1, 12, 4]}, 2, hidden_size=4),
    "LSTM": network("LSTM", {"x": [6, 2, 3], "w": [1, 16, 3], "r": [1, 16, 4], "b": [1, 32]}, 3, hidden_size=4),
    "RNN": network("RNN", {"x": [6, 2, 3], "w": [1, 4, 3], "r": [1, 4, 4]}, 2, hidden_size=4),
    "ReduceLogSumExp": network("ReduceLogSumExp", {"x": [3, 9]}),
    "ReduceL2": network("ReduceL2", {"x": [3, 9]}),
    "LpNormalization": network("LpNormalization", {"x": [3, 9]}),
    "LRN": network("LRN", {"x": [1, 6, 3, 3]}, size=3),
    "MeanVarianceNormalization": network("MeanVarianceNormalization", {"x": [2, 3, 4, 5]}),
    "GridSample": network("GridSample", {"x": [1, 2, 4, 4], "g": [1, 3, 3, 2]}),
    "Einsum": network("Einsum", {"x": [3, 4], "w": [4, 5]}, equation="ij,jk->ki"),
    "Celu": network("Celu", {"x": [40]}, alpha=2.3),
}


@pytest.mark.parametrize("op", NODES)
def test_an_operator_is_judged_by_its_own_definition(op: str) -> None:
    """Our float32 lies inside; half as much again as the radius, beyond the last bit, lies outside at every element."""
    graph = from_model(NODES[op])
    feeds = {
        n: torch.from_numpy(deviates(graph.tensor(n).shape, (len(op), 0, k))).float()
        for k, n in enumerate(graph.inputs)
    }
    parts = parts_of(graph)
    values = OwnFloat().whole(parts, feeds)
    found = enclosures(parts.parts[0], graph, feeds)
    assert not isinstance(found, str), found
    for name, enclosure in found.items():
        assert enclosure.outside(values[name]).outside == 0
        off = enclosure.exact + 1.5 * enclosure.radius + enclosure.exact.abs() * 2.0**-22 + 2.0**-100
        assert enclosure.outside(off).outside == off.numel()
        assert float(enclosure.radius.max()) <= 3e-4 * float(enclosure.exact.abs().max())


def test_control_flow_and_float16_are_compared_without_analysis(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model with an If ended in an AssertionError; float16 was judged by float32's bound, and blamed."""
    value = helper.make_tensor_value_info
    bodies = {
        key: helper.make_graph([node], key, [], [value(node.output[0], TensorProto.FLOAT, [2, 3])])
        for key, node in (
            ("then_branch", helper.make_node("Add", ["x", "x"], ["a"])),
            ("else_branch", helper.make_node("Relu", ["x"], ["b"])),
        )
    }
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["s"], keepdims=0),
        helper.make_node("Cast", ["s"], ["c"], to=TensorProto.BOOL),
        helper.make_node("If", ["c"], ["y"], **bodies),
        helper.make_node("Cast", ["y"], ["h"], to=TensorProto.FLOAT16),
        helper.make_node("Sigmoid", ["h"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, [2, 3])], [value("z", TensorProto.FLOAT16, [2, 3])]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "m.onnx")
    for engines in (("qdq", "onnxruntime"), ("builtin", "onnxruntime")):
        chosen = [word for engine in engines for word in ("--engine", engine)]
        assert main(["model", "check", str(tmp_path / "m.onnx"), "--float", *chosen]) == 0
        said = capsys.readouterr().out
        assert "If: there is no analysis of bodies of control flow" in said
        assert "Sigmoid: there is no analysis of arithmetic in float16" in said
