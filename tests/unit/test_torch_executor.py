"""The executor with PPQ's interface: names are checked, and no values are kept between runs."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from quantizer.core.errors import GraphError
from quantizer.ir.formats.onnx import from_model
from quantizer.runtime.dispatch import assigned, operation_handlers, register_operation_handler
from quantizer.runtime.hooks import RuntimeHook
from quantizer.runtime.torch_executor import OperationError, TorchExecutor, UndispatchedGraphWarning


def graph():
    """x -> Conv -> LeakyRelu -> Add(x2) -> y, with a branch Neg that nobody asks for."""

    def value(name, shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("LeakyRelu", ["a"], ["b"], name="leaky", alpha=0.125),
        helper.make_node("Neg", ["a"], ["n"], name="neg"),
        helper.make_node("Add", ["b", "x2"], ["y"], name="add"),
    ]
    w = numpy_helper.from_array(np.ones((1, 1, 3, 3), np.float32), "w")
    proto = helper.make_graph(nodes, "g", [value("x", [1, 1, "h", "w"]), value("x2", [1])], [value("y", None)], [w])
    return from_model(helper.make_model(proto, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))


X, X2 = -torch.ones(1, 1, 3, 3), torch.ones(1)


@pytest.fixture
def executor():
    return TorchExecutor(graph(), platform="fp32")


def test_inputs_by_name_by_order_and_inside(executor):
    (y,) = executor.forward([X, X2])
    assert y[0, 0, 1, 1] == 1 - 9 / 8
    assert torch.equal(executor.forward({"x2": X2, "x": X})[0], y)
    assert torch.equal(executor.forward((X.numpy(), X2.numpy()))[0], y)
    inner = executor.forward({"a": torch.full((1, 1, 1, 1), 4.0), "x2": X2})
    assert inner[0].item() == 5
    changed = executor.forward({"x": X, "x2": X2, "w": torch.zeros(1, 1, 3, 3)})
    assert changed[0].unique().tolist() == [1]
    assert torch.equal(executor.forward([X, X2])[0], y)


def test_outputs_in_the_order_asked_for_and_repeated(executor):
    y, x, w, again, a = executor.forward([X, X2], ["y", "x", "w", "y", "a"])
    assert torch.equal(y, again)
    assert x is X
    assert w.shape == (1, 1, 3, 3)
    assert a[0, 0, 1, 1] == -9


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda e: e.forward({"z": X}), GraphError, "'z'"),
        (lambda e: e.forward([X]), GraphError, "2 inputs"),
        (lambda e: e.forward(X), GraphError, "1 tensors were fed"),
        (lambda e: e.forward({"x": X}), GraphError, "'x2' was not fed"),
        (lambda e: e.forward({"x": X.double(), "x2": X2}), GraphError, "float64"),
        (lambda e: e.forward({"x": X[0], "x2": X2}), GraphError, "4 axes"),
        (lambda e: e.forward([X, X2], ["q"]), GraphError, "'q'"),
        (lambda e: e.forward([X, X2], "y"), TypeError, "list of names"),
        (lambda e: e.forward([X, X2], hooks={"cnv": RuntimeHook(e.graph.nodes[0])}), GraphError, "Did you mean 'conv'"),
        (lambda e: e.forward([X, X2], hooks={"conv": print}), TypeError, "RuntimeHook"),
        (lambda e: e.remove_quantize_delegate(object()), GraphError, "no delegate"),
        (lambda e: TorchExecutor(e.graph, platform="tpu"), ValueError, "no such platform"),
        (lambda e: TorchExecutor(e.graph, platform="fp32", device="abacus"), ValueError, "no such device"),
    ],
)
def test_unknown_names_and_wrong_values_are_errors(executor, call, error, text):
    with pytest.raises(error, match=text):
        call(executor)


def test_only_requested_outputs_are_computed(executor):
    class Counting(RuntimeHook):
        calls = 0

        def post_forward_hook(self, outputs, **_):
            type(self).calls += 1
            return outputs

    executor.forward([X, X2], hooks={"neg": Counting(executor.graph.node("neg"))})
    assert Counting.calls == 0
    executor.forward([X, X2], ["n"], {"neg": Counting(executor.graph.node("neg"))})
    assert Counting.calls == 1


def test_live_values_follow_the_liveness_analysis(executor):
    seen = {}

    class Watching(RuntimeHook):
        def pre_forward_hook(self, inputs, **_):
            seen[self._hook_to.name] = set(executor.live)
            return inputs

    hooks = {node.name: Watching(node) for node in executor.graph.nodes}
    executor.forward([X, X2], ["y", "n"], hooks)
    assert seen == {"conv": {"x", "x2"}, "leaky": {"a", "x2"}, "neg": {"a", "b", "x2"}, "add": {"b", "x2", "n"}}
    assert executor.live == frozenset()


def test_no_values_are_kept_after_an_error(executor):
    bad = torch.ones(1, 2, 3, 3)
    with pytest.raises(OperationError, match=r"Op Execution Error: conv\(Conv\)") as caught:
        executor.forward([bad, X2])
    assert caught.value.__cause__ is not None
    assert executor.live == frozenset()
    assert executor.forward([X, X2])[0].shape == X.shape


def test_hooks_replace_operands_and_results(executor):
    class Doubling(RuntimeHook):
        def pre_forward_hook(self, inputs, **_):
            return [2 * inputs[0], *inputs[1:]]

        def post_forward_hook(self, outputs, **_):
            return [outputs[0] + 1]

    (a,) = executor.forward([X, X2], ["a"], {"conv": Doubling(executor.graph.node("conv"))})
    assert a[0, 0, 1, 1] == 2 * -9 + 1
    assert X[0, 0, 1, 1] == -1


def test_gradients_are_computed_only_on_request(executor):
    x = X.clone().requires_grad_()
    assert not executor.forward([x, X2])[0].requires_grad
    executor.forward_with_gradient([x, X2])[0].sum().backward()
    assert x.grad[0, 0, 1, 1] == 9 * 0.125


def test_a_part_of_the_graph(executor):
    nodes = [executor.graph.node("leaky"), executor.graph.node("neg")]
    b, n = executor.partial_graph_forward(nodes, {"a": torch.full((1, 1, 1, 1), -8.0)}, ["b", "n"])
    assert (b.item(), n.item()) == (-1, 8)
    with pytest.raises(GraphError, match="'x2' was not fed|'y'"):
        executor.partial_graph_forward(nodes, {"a": X}, ["y"])


def test_a_handler_applies_only_to_its_platform():
    """The seed's LeakyRelu: x * alpha on one platform, x >> 3 on another."""

    def shifted(op, values, ctx, **kwargs):
        x = values[0]
        return torch.where(x < 0, torch.floor(x / 8), x)

    x = torch.full((1, 1, 1, 1), -9.0)
    with operation_handlers():
        register_operation_handler(shifted, "LeakyRelu", "xnnpack")
        run = {
            p: TorchExecutor(graph(), platform=p).forward({"a": x}, ["b"])[0].item()
            for p in ("xnnpack", "compass", "fp32")
        }
        mixed = assigned(graph(), {"leaky": "xnnpack"}, {"leaky": "compass"})
        assert TorchExecutor(mixed).forward({"a": x}, ["b"])[0].item() == -1.125
        mixed = assigned(graph(), {"leaky": "xnnpack"})
        assert TorchExecutor(mixed).forward({"a": x}, ["b"])[0].item() == -2
    assert run == {"xnnpack": -2, "compass": -1.125, "fp32": -1.125}
    assert TorchExecutor(graph(), platform="xnnpack").forward({"a": x}, ["b"])[0].item() == -1.125
    with pytest.raises(ValueError, match="no such platform"):
        register_operation_handler(shifted, "LeakyRelu", "xnnpak")
    with pytest.raises(TypeError, match="must be a function"):
        register_operation_handler(3, "LeakyRelu", "xnnpack")


def test_a_custom_operator_runs_through_its_handler():
    node = helper.make_node("Foo", ["x"], ["y"], domain="acme", k=3)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    proto = helper.make_graph([node], "g", values[:1], values[1:])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)]
    loaded = from_model(helper.make_model(proto, opset_imports=imports, ir_version=8))
    with operation_handlers():
        register_operation_handler(lambda op, values, ctx, **_: values[0] * op.attrs["k"], "acme::Foo", "fp32")
        assert TorchExecutor(loaded, platform="fp32")(torch.ones(1))[0].item() == 3


def test_an_undispatched_graph_warns():
    with pytest.warns(UndispatchedGraphWarning, match="dispatch_graph"):
        TorchExecutor(graph())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TorchExecutor(graph(), platform="fp32")
        TorchExecutor(assigned(graph(), {}))


def test_shapes_of_a_run(executor):
    traced = executor.tracing_operation_meta([torch.ones(1, 1, 2, 7), X2])
    assert [traced.tensor(name).shape for name in ("x", "a", "y")] == [(1, 1, 2, 7)] * 3


def test_decisions_follow_shapes_and_feeds_from_call_to_call(executor):
    wide = -torch.ones(1, 1, 5, 4)
    for x in (X, wide, X):
        a = torch.nn.functional.conv2d(x, torch.ones(1, 1, 3, 3), padding=1)
        wanted = torch.nn.functional.leaky_relu(a, 0.125) + 1
        assert torch.equal(executor.forward([x, X2])[0], wanted)
        with pytest.raises(OperationError):
            executor.forward([torch.ones(1, 3, 3, 3), X2])
        assert executor.forward({"x": x, "x2": X2, "w": torch.zeros(1, 1, 5, 5)})[0].unique().tolist() == [1]
