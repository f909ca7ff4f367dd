"""A kernel's decision is kept while shapes and types stay, and never where a value decides."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

from quantizer.ir.formats.onnx import from_model
from quantizer.runtime.onnx.decided import Decided
from quantizer.runtime.onnx.kernels import KERNELS, Context, Kernel
from quantizer.runtime.torch_executor import TorchExecutor

F, WHOLE = TensorProto.FLOAT, TensorProto.INT64


def executor(op, kinds, ranks, opset=18, **attrs):
    names = [f"x{place}" for place in range(len(kinds))]
    node = helper.make_node(op, names, ["y"], name="n", **attrs)
    inputs = [
        helper.make_tensor_value_info(name, kind, [f"{name}_{axis}" for axis in range(rank)])
        for name, kind, rank in zip(names, kinds, ranks, strict=True)
    ]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", F, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return TorchExecutor(from_model(model), platform="fp32")


def counted(monkeypatch, name):
    """Return the operands on which the decision of a kernel is made from now on."""
    seen, own = [], KERNELS[name].mapped

    def mapped(*operands, **attrs):
        seen.append(operands)
        return own(*operands, **attrs)

    monkeypatch.setitem(KERNELS, name, Kernel(name, KERNELS[name].own, mapped))
    return seen


def test_a_kernel_is_chosen_once_per_shape(monkeypatch):
    seen = counted(monkeypatch, "Add")
    run = executor("Add", [F, F], [2, 2])
    a, b = torch.randn(3, 4), torch.randn(3, 4)
    for _ in range(3):
        assert torch.equal(run.forward([a, b])[0], a + b)
    assert len(seen) == 2  # on values, then without
    assert torch.equal(run.forward([a, b[:1]])[0], a + b[:1])
    assert torch.equal(run.forward([a, b])[0], a + b)
    assert len(seen) == 6


@pytest.mark.parametrize(
    ("op", "kinds", "ranks", "first", "second", "wanted"),
    [
        ("PRelu", [F, F], [2, 1], [[[-1.0, 2.0]], [0.5]], [[[-1.0, 2.0]], [0.25]], [[-0.25, 2.0]]),
        ("PRelu", [F, F], [2, 1], [[[-1.0, 2.0]], [0.5]], [[[-1.0, 2.0]], [-2.0]], [[2.0, 2.0]]),
        ("Pow", [F, F], [1, 0], [[4.0], 2.0], [[4.0], 0.5], [2.0]),
        ("ReduceSum", [F, WHOLE], [2, 1], [[[1.0, 2.0]], [0]], [[[1.0, 2.0]], [1]], [[3.0]]),
        ("Gather", [F, WHOLE], [1, 1], [[5.0, 7.0], [0]], [[5.0, 7.0], [1]], [7.0]),
        ("CumSum", [F, WHOLE], [2, 0], [[[1.0], [2.0]], 0], [[[1.0], [2.0]], 1], [[1.0], [2.0]]),
        ("Reshape", [F, WHOLE], [2, 1], [[[1.0, 2.0]], [2, 1]], [[[1.0, 2.0]], [1, 2]], [[1.0, 2.0]]),
    ],
)
def test_a_deciding_value_is_read_at_each_call(op, kinds, ranks, first, second, wanted):
    run = executor(op, kinds, ranks)
    types = {F: np.float32, WHOLE: np.int64}
    for given in (first, first, second, second):
        (found,) = run.forward([np.array(value, types[kind]) for value, kind in zip(given, kinds, strict=True)])
    assert found.tolist() == wanted


def test_a_cached_kernel_decision_depends_on_types():
    run = Decided(KERNELS["Relu"])
    node = from_model(
        helper.make_model(
            helper.make_graph(
                [helper.make_node("Relu", ["x"], ["y"])],
                "g",
                [helper.make_tensor_value_info("x", F, [2])],
                [helper.make_tensor_value_info("y", F, [2])],
            ),
            opset_imports=[helper.make_opsetid("", 18)],
            ir_version=8,
        )
    ).nodes[0]
    context = Context(executor("Relu", [F], [1]).graph, torch.device("cpu"))
    for values in (torch.tensor([-1.0, 2.0]), torch.tensor([-1, 2]), torch.tensor([-1.0, 2.0])):
        assert run(node, [values], context).dtype == values.dtype
