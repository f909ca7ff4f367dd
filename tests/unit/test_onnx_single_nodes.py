"""Single ONNX nodes at the ends of their ranges and in rare forms, against ONNX Runtime."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from onnx import helper
from test_onnx_integer import runtime

from quantizer.ir.formats.onnx import from_model
from quantizer.runtime.torch_executor import TorchExecutor

ENDS = np.array([1e38, -1e38, 3e38, np.inf, -np.inf, np.nan, 0.0, 1e-40, 40.0, -40.0, 0.3], np.float32)


def one_node(op, operands, opset=22, types=(), **attrs):
    """Return the model of one node on operands that are all fed, the inputs a, b and so on; types: of its results."""
    names = [chr(ord("a") + i) if operand is not None else "" for i, operand in enumerate(operands)]
    types = types or (np.asarray(operands[0]).dtype,)
    outputs = [f"y{i}" for i in range(len(types))]
    fed = {name: np.asarray(v) for name, v in zip(names, operands, strict=True) if v is not None}
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in fed.items()
    ]
    formats = [helper.np_dtype_to_tensor_dtype(np.dtype(kind)) for kind in types]
    values = [helper.make_tensor_value_info(n, kind, None) for n, kind in zip(outputs, formats, strict=True)]
    graph = helper.make_graph([helper.make_node(op, names, outputs, **attrs)], "g", inputs, values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), fed


def agrees(op, *operands, opset=22, types=(), rtol=2e-6, atol=1e-7, **attrs):
    """Assert that a node has ONNX Runtime's results: shape, type, infinities and what is no number exactly."""
    model, fed = one_node(op, operands, opset, types, **attrs)
    try:
        expected = runtime(model, fed)
    except Exception as err:  # noqa: BLE001 - what ONNX Runtime raises has no class of its own
        pytest.skip(f"ONNX Runtime refuses it: {str(err)[:60]}")
    found = TorchExecutor(from_model(model), platform="fp32").forward(
        {k: torch.from_numpy(v.copy()) for k, v in fed.items()}
    )
    for own, other in zip(found, expected, strict=True):
        assert own.numpy().dtype == other.dtype
        assert tuple(own.shape) == other.shape
        np.testing.assert_allclose(own.numpy(), other, rtol=rtol, atol=atol, equal_nan=True)


@pytest.mark.parametrize("op", ["HardSwish", "Gelu", "Sign", "Mish", "Softplus", "Elu", "Erf", "Sigmoid"])
def test_functions_of_one_element_at_the_ends_of_float32(op):
    """HardSwish overflowed at 1e38, Gelu gave NaN at infinity, and Sign 0 for what is no number."""
    agrees(op, ENDS)
    agrees(op, ENDS[:1].reshape(()))


@pytest.mark.parametrize(
    "x", [np.float32(3), np.float32(0), np.zeros((2, 3), np.float32), np.array([0, 2, 5], np.int64)]
)
def test_the_indices_of_what_is_not_zero(x):
    agrees("NonZero", x, types=(np.int64,))


@pytest.mark.parametrize("seed", range(60))
def test_transposed_convolutions_with_pads_that_are_left_to_them(seed):
    """With a window smaller than the stride SAME has nothing to cut; an output_shape has zeros at its end then."""
    r = random.Random(seed)
    rank, group = r.choice([1, 2]), r.choice([1, 1, 2])
    k, s, d, sizes = ([r.randint(1, top) for _ in range(rank)] for top in (4, 3, 2, 5))
    attrs = {"strides": s, "dilations": d, "group": group, "auto_pad": r.choice(["SAME_UPPER", "SAME_LOWER", "NOTSET"])}
    if r.random() < 0.3:
        attrs["output_padding"] = [r.randint(0, max(0, size - 1)) for size in s]
    if r.random() < 0.3 or attrs["auto_pad"] == "NOTSET":
        attrs["output_shape"] = [max(1, a * b + r.randint(-1, 1)) for a, b in zip(sizes, s, strict=True)]

    def drawn(*shape):
        count = int(np.prod(shape))
        return np.array([r.randint(-3, 3) for _ in range(count)], np.float32).reshape(shape)

    agrees("ConvTranspose", drawn(1, 4, *sizes), drawn(4, r.randint(1, 2), *k), opset=17, **attrs)
