"""Products and roots of sums of squares along axes: floats against ONNX Runtime, codes in rational numbers, ties of roots."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from quantizer.conformance.generation.builder import complete
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.datasets import materialise
from quantizer.conformance.target import Target
from quantizer.core.errors import SpecError
from quantizer.core.library import load_library
from quantizer.ir.formats.onnx import from_model
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.request import Request
from quantizer.numerics.roots import rounded_root
from quantizer.ops import REGISTRY, load_built_ins
from quantizer.runtime.onnx.kernels import KERNELS
from quantizer.runtime.torch_executor import TorchExecutor

LIBRARY = load_library()
load_built_ins()
NAMES = {"reduce_l2": "ReduceL2", "reduce_prod": "ReduceProd"}
SHAPE = (3, 4, 2)


def floats(seed):
    return np.sin(np.arange(1, 25) * (seed + 0.7)).astype(np.float32).reshape(SHAPE)


@pytest.mark.parametrize("opset", [11, 18])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [(0,), (-1,), (0, 2), (0, 1, 2), None])
@pytest.mark.parametrize("op", NAMES)
def test_reductions_equal_onnx_runtime_up_to_sum_rounding(op, axes, keepdims, opset):
    x = floats(1)
    named = {} if axes is None or opset > 17 else {"axes": axes}
    kept = [numpy_helper.from_array(np.array(axes), "axes")] if axes is not None and opset > 17 else []
    node = helper.make_node(NAMES[op], ["x", *(tensor.name for tensor in kept)], ["y"], keepdims=keepdims, **named)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)
    graph = helper.make_graph([node], "g", [given], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    got = TorchExecutor(from_model(model), platform="fp32").forward([x])[0].numpy()
    assert got.shape == wanted.shape
    terms = math.prod(SHAPE[axis] for axis in axes or (0, 1, 2))
    assert (np.abs(got - wanted) <= 2 * (terms + 1) * 2.0**-24 * np.abs(wanted)).all()
    operands = [torch.from_numpy(x), *(torch.from_numpy(np.array(axes)) for _ in kept)]
    found = KERNELS[NAMES[op]].mapped(*operands, keepdims=keepdims, **named)
    assert (found.op, found.attrs["keepdims"]) == (op, bool(keepdims))


def decided(op, scheme, ranges):
    request = Request(
        LIBRARY.spec(op),
        LIBRARY.schemes[scheme],
        LIBRARY.platforms["ideal"],
        {"x": SHAPE},
        {"axes": (0, 2), "keepdims": False},
        ranges,
    )
    return default_parameters(request)


@pytest.mark.parametrize("ranges", [{"x": (-1.0, 1.0), "y": (-1.0, 2.0)}, {"x": (-3.0, 1.0), "y": (0.0, 0.5)}])
@pytest.mark.parametrize("scheme", ["a4", "a8", "a16"])
@pytest.mark.parametrize("op", NAMES)
def test_codes_are_exact_numbers_rounded_once(op, scheme, ranges):
    provided = decided(op, scheme, ranges)
    own, out = provided.inputs["x"], provided.outputs["y"]
    codes = torch.round(torch.from_numpy(floats(3)).double() / own.scale).long() + own.zero_point
    codes = codes.clamp(own.qmin, own.qmax)
    got = REGISTRY.get(op, "quantized", "ideal")(codes, parameters=provided, axes=(0, 2), keepdims=False)
    for place, code in enumerate(got.tolist()):
        values = [
            Fraction(int(c) - int(own.zero_point)) * Fraction(float(own.scale)) for c in codes[:, place].flatten()
        ]
        steps = (code - int(out.zero_point)) * Fraction(float(out.scale))
        half = Fraction(float(out.scale)) / 2
        low, high = (-math.inf if code == out.qmin else steps - half, math.inf if code == out.qmax else steps + half)
        if op == "reduce_prod":
            assert low <= math.prod(values) <= high
        else:
            assert (low <= 0 or low**2 <= sum(v * v for v in values)) and sum(v * v for v in values) <= high**2


def test_a_root_at_a_tie_follows_the_rounding_mode():
    squares = torch.tensor(
        [9, 25, 49, 10**18, (2 * 10**8 + 1) ** 2, (2 * 10**8 + 1) ** 2 - 1, (2 * 10**8 + 1) ** 2 + 1]
    )
    half = Fraction(1, 2)
    assert rounded_root(squares, half, "half_even").tolist() == [2, 2, 4, 5 * 10**8, 10**8, 10**8, 10**8 + 1]
    assert rounded_root(squares, half, "half_up").tolist() == [2, 3, 4, 5 * 10**8, 10**8 + 1, 10**8, 10**8 + 1]
    assert rounded_root(squares, half, "up").tolist() == [2, 3, 4, 5 * 10**8, 10**8 + 1, 10**8 + 1, 10**8 + 1]
    assert rounded_root(squares, half, "down").tolist() == [1, 2, 3, 5 * 10**8, 10**8, 10**8, 10**8]


def test_each_element_has_the_root_of_its_own_square():
    squares = torch.tensor([[25, 9, 24], [9, 25, 26]])
    assert rounded_root(squares, Fraction(1, 2), "half_up").tolist() == [[3, 2, 2], [2, 3, 3]]
    assert rounded_root(squares[:0], Fraction(1, 2), "half_up").shape == (0, 3)


def test_products_past_every_integer_type_are_exact():
    provided = decided("reduce_prod", "a16", {"x": (-1.0, 1.0), "y": (-1.0, 1.0)})
    own, out = provided.inputs["x"], provided.outputs["y"]
    codes = torch.full((3, 4, 200), own.qmax)
    got = REGISTRY.get("reduce_prod", "quantized", "ideal")(codes, parameters=provided, axes=(0, 2), keepdims=True)
    exact = (Fraction(own.qmax - int(own.zero_point)) * Fraction(float(own.scale))) ** 600 / Fraction(float(out.scale))
    assert got.shape == (1, 4, 1)
    assert (got == min(round(exact) + int(out.zero_point), out.qmax)).all()


@pytest.mark.parametrize("end", [2.0**-9, 1.0])
@pytest.mark.parametrize(("scheme", "terms"), [("a8", 129), ("a16", 129), ("a8", 1100)])
def test_tie_data_exist_for_long_products(scheme, terms, end):
    target = Target(LIBRARY.spec("reduce_prod"), LIBRARY.schemes[scheme], LIBRARY.platforms["ideal"])
    bound = {"shape": (terms,), "axes": (0,), "keepdims": True}
    for seed in range(4):
        chooser = HashChoices(seed, {"data": "ties"})
        case = complete(target, bound, ["x"], "ties", seed, chooser, {"x": (-end, end)})
        values = materialise(target, case)["x"]
        assert values.shape == (terms,)
        assert torch.isfinite(values).all()
        assert len(torch.unique(values)) == 2


@pytest.mark.parametrize("line", ["terms: 1", 'terms: "prod(take(shape, axes))"'])
def test_a_fold_without_axes_is_refused(tmp_path, line):
    text = f"""op: folded
version: "1.0"
summary: A product of everything.
dims: {{shape: {{type: shape, rank: [1, 2], max: 3}}}}
inputs: {{x: {{axes: shape}}}}
outputs: {{y: {{}}}}
shape: {{y: shape}}
error_model: {{kind: product, {line}}}
quantization: {{family: product}}
tiling: {{none: nothing is cut}}
"""
    (tmp_path / "folded.yaml").write_text(text)
    with pytest.raises(SpecError, match="error_model.kind|axes"):
        load_library([tmp_path])
