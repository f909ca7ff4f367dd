"""Single ONNX nodes at the ends of their ranges and in rare forms, against ONNX Runtime."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from onnx import helper
from test_onnx_integer import runtime

from quantizer.core.errors import QuantizerError
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
    """Assert that a node has ONNX Runtime's results: shape, type, infinities and NaN exactly."""
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
    """HardSwish overflowed at 1e38, Gelu gave NaN at infinity, and Sign 0 for NaN."""
    agrees(op, ENDS)
    agrees(op, ENDS[:1].reshape(()))


@pytest.mark.parametrize("mode", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
@pytest.mark.parametrize("seed", range(4))
def test_bilinear_images_equal_the_runtime_if_weights_are_exact(mode, seed):
    """Means of codes are ties more often than not, and a last bit was one code of the next quantization."""
    r = random.Random(seed)
    h, w = r.randint(2, 9), r.randint(2, 9)
    size = [2 * h - 1, 2 * w - 1] if mode == "align_corners" else [r.choice([1, 2, 4]) * h, r.choice([1, 2]) * w]
    codes = np.array([r.randint(-128, 127) for _ in range(2 * h * w)], np.float32).reshape(1, 2, h, w)
    operands = [codes * np.float32(0.037), None, None, np.array([1, 2, *size], np.int64)]
    agrees("Resize", *operands, mode="linear", coordinate_transformation_mode=mode, rtol=0, atol=0)


def test_hard_swish_equals_the_runtime_bit_for_bit():
    """From 3 on it is x; a product by 6 and a quotient by 6 were not."""
    agrees("HardSwish", np.arange(-500, 500, dtype=np.float32) * np.float32(0.0137), rtol=0, atol=0)


@pytest.mark.parametrize(
    "x", [np.float32(3), np.float32(0), np.zeros((2, 3), np.float32), np.array([0, 2, 5], np.int64)]
)
def test_nonzero_returns_the_indices_of_nonzero_elements(x):
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


def drawn(seed, *shape, reach=2.0):
    r = random.Random(seed)
    return np.array([r.uniform(-reach, reach) for _ in range(int(np.prod(shape)))], np.float32).reshape(shape)


@pytest.mark.parametrize("op", ["Asin", "Asinh", "Acosh", "Atan", "Acos", "Atanh"])
def test_inverse_functions(op):
    agrees(op, drawn(1, 3, 4))
    agrees(op, np.array([0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], np.float32))
    agrees(op, np.float32(0.5))


def test_isnan_and_isinf_equal_onnx_runtime():
    agrees("IsNaN", ENDS, types=(bool,), opset=20)
    for negative in (0, 1):
        for positive in (0, 1):
            agrees("IsInf", ENDS, types=(bool,), opset=20, detect_negative=negative, detect_positive=positive)


def test_dropout_in_inference_returns_its_input():
    x = drawn(2, 2, 3)
    agrees("Dropout", x)
    agrees("Dropout", x, np.float32(0.3), np.array(False))
    agrees("Dropout", x, np.float32(0.3), types=(np.float32, bool))
    agrees("Dropout", x, np.float32(0.0), np.array(True), types=(np.float32, bool))
    model, fed = one_node("Dropout", (x, np.float32(0.3), np.array(True)))
    with pytest.raises(QuantizerError, match="random numbers"):
        TorchExecutor(from_model(model), platform="fp32").forward(
            {k: torch.from_numpy(np.array(v)) for k, v in fed.items()}
        )


@pytest.mark.parametrize("k", [-2, 0, 1, 5])
def test_identity_matrices(k):
    agrees("EyeLike", np.zeros((3, 4), np.float32), k=k)
    agrees("EyeLike", np.zeros((3, 4), np.float32), k=k, dtype=7, types=(np.int64,))


@pytest.mark.parametrize(("batch", "time"), [(0, 1), (1, 0)])
def test_reversed_sequences(batch, time):
    shape = [4, 3, 2] if batch == 0 else [3, 4, 2]
    agrees("ReverseSequence", drawn(3, *shape), np.array([1, 3, 2, 3], np.int64), batch_axis=batch, time_axis=time)


@pytest.mark.parametrize("axes", [[0, 2, 3], [0, 1, 2, 3], [2, 3]])
def test_mean_variance_normalization_equals_onnx_runtime(axes):
    agrees("MeanVarianceNormalization", drawn(4, 2, 3, 4, 5), rtol=2e-5, atol=1e-6, axes=axes)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifted_bits(dtype, direction):
    x = np.array([1, 200, 255, 7, 16], dtype)
    agrees("BitShift", x, np.array([1, 2, 3, 7, 0], dtype), direction=direction)


def test_the_remainder_of_floats():
    a, b = drawn(5, 20, reach=9.0), drawn(6, 20)
    agrees("Mod", a, b, fmod=1)
    model, fed = one_node("Mod", (a, b))
    (found,) = TorchExecutor(from_model(model), platform="fp32").forward(
        {k: torch.from_numpy(v) for k, v in fed.items()}
    )
    np.testing.assert_allclose(found.numpy(), np.mod(a, b), rtol=1e-6)


@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_recurrent_layers_clip_before_their_activations(op, gates, direction):
    count, hidden = 2 if direction == "bidirectional" else 1, 3
    operands = [drawn(7, 4, 2, 5), drawn(8, count, gates * hidden, 5), drawn(9, count, gates * hidden, hidden)]
    results = (np.float32,) * (3 if op == "LSTM" else 2)
    agrees(
        op,
        *operands,
        drawn(10, count, 2 * gates * hidden),
        types=results,
        rtol=1e-5,
        atol=1e-6,
        opset=14,
        hidden_size=hidden,
        direction=direction,
        clip=0.7,
    )


@pytest.mark.parametrize("op", ["ReduceL2", "ReduceMean"])
def test_reductions_of_integers_whose_sums_leave_their_range(op):
    """Squares from 46341 on wrapped in int32: the length of (50000, 3) was 0."""
    agrees(op, np.array([[50000, 3, -1], [2**30, 2**30, 2**30 - 7]], np.int32), np.array([1]), keepdims=0)


def test_slices_without_elements_are_scattered():
    x = np.zeros((5, 0, 2), np.float32)
    agrees("ScatterND", x, np.array([[1]], np.int64), x[:1])
    agrees("ScatterND", x, np.array([[1], [3]], np.int64), x[:2])


def test_more_conditions_than_slices_are_refused():
    model, fed = one_node("Compress", [np.zeros((2, 1), np.float32), np.array([True, False, True])], axis=1)
    with pytest.raises(QuantizerError, match="Compress of 1 slices by 3 conditions"):
        TorchExecutor(from_model(model), platform="fp32").forward({k: torch.from_numpy(v) for k, v in fed.items()})
