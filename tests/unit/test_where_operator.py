"""Where: floats against ONNX Runtime, codes in rational numbers, also in an integer graph."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

from quantizer.core.errors import ConstraintError
from quantizer.core.library import load_library
from quantizer.ir.formats.onnx import from_model
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.request import Request
from quantizer.ops import REGISTRY, load_built_ins
from quantizer.runtime.onnx.kernels import KERNELS, run_ours
from quantizer.runtime.torch_executor import TorchExecutor

LIBRARY = load_library()
load_built_ins()
SHAPES = [((2, 3, 4), (2, 3, 4), (2, 3, 4)), ((3, 4), (1,), (2, 3, 1)), ((1, 4), (3, 1), (3, 4)), ((), (2, 2), (2,))]


def wave(shape, factor):
    return np.sin(np.arange(1, 1 + int(np.prod(shape))) * factor).astype(np.float32).reshape(shape)


@pytest.mark.parametrize(("a", "b", "condition"), SHAPES)
def test_float_results_equal_onnx_runtime(a, b, condition):
    shapes = {"condition": condition, "a": a, "b": b}
    kinds = {"condition": TensorProto.BOOL, "a": TensorProto.FLOAT, "b": TensorProto.FLOAT}
    feeds = {"condition": wave(condition, 2.3) > 0, "a": wave(a, 0.7), "b": wave(b, 1.1)}
    inputs = [helper.make_tensor_value_info(name, kinds[name], shapes[name]) for name in shapes]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Where", [*shapes], ["y"], name="n")], "g", inputs, [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, feeds)
    assert np.array_equal(TorchExecutor(from_model(model), platform="fp32").forward(feeds)[0].numpy(), wanted)
    found = KERNELS["Where"].mapped(*(torch.from_numpy(np.asarray(value)) for value in feeds.values()))
    assert found.op == "where"
    assert np.array_equal(run_ours(found).numpy(), wanted)


def test_shapes_that_do_not_broadcast_are_refused_by_name():
    a, b, condition = torch.zeros(2, 3), torch.zeros(3), torch.ones(4, dtype=torch.bool)
    with pytest.raises(ConstraintError, match=r"condition \[4\] must broadcast"):
        run_ours(KERNELS["Where"].mapped(condition, a, b))


@pytest.mark.parametrize("scheme", ["a8", "a16", "a4"])
def test_where_requantizes_each_code_to_the_output(scheme):
    shapes = {"a": (6, 5), "b": (5,), "condition": (6, 1)}
    ranges = {"a": (-2.0, 3.0), "b": (-0.25, 1.0), "condition": (0.0, 1.0), "y": (-1.5, 2.5)}
    request = Request(LIBRARY.spec("where"), LIBRARY.schemes[scheme], LIBRARY.platforms["ideal"], shapes, {}, ranges)
    provided = default_parameters(request)
    codes = {}
    for name in "ab":
        params = provided.inputs[name]
        steps = torch.round(torch.from_numpy(2 * wave(shapes[name], 1.7)).double() / params.scale).long()
        codes[name] = (steps + params.zero_point).clamp(params.qmin, params.qmax)
    condition, out = torch.tensor([[0], [1], [1], [0], [1], [0]]), provided.outputs["y"]
    got = REGISTRY.get("where", "quantized", "ideal")(**codes, condition=condition, parameters=provided)
    for row, column in np.ndindex(6, 5):
        name, place = ("a", (row, column)) if condition[row, 0] else ("b", (column,))
        own = provided.inputs[name]
        steps = (int(codes[name][place]) - int(own.zero_point)) * Fraction(float(own.scale))
        wanted = round(steps / Fraction(float(out.scale))) + int(out.zero_point)
        assert int(got[row, column]) == min(max(wanted, out.qmin), out.qmax)
