"""Scan, spectra, attention with bodies, integers without a sign and floats of 16 bits, against plain formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from quantizer.runtime.onnx_backend import QuantizerBackend
from quantizer.runtime.torch_executor import OperationError

X = (3 * np.sin(np.arange(24, dtype=np.float32) ** 2)).reshape(2, 3, 4)


def model(
    op: str, opset: int, operands: list[np.ndarray | None], kinds: list[int], domain: str = "", **attrs: Any
) -> onnx.ModelProto:
    names = [f"x{i}" if value is not None else "" for i, value in enumerate(operands)]
    node = helper.make_node(op, names, [f"y{i}" for i in range(len(kinds))], domain=domain, **attrs)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), [None] * value.ndim)
        for name, value in zip(names, operands, strict=True)
        if value is not None
    ]
    outputs = [helper.make_tensor_value_info(f"y{i}", kind, None) for i, kind in enumerate(kinds)]
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(helper.make_graph([node], "g", inputs, outputs), opset_imports=opsets, ir_version=8)


def ran(op: str, opset: int, operands: list[np.ndarray | None], kinds: list[int], **attrs: Any) -> list[np.ndarray]:
    made = model(op, opset, operands, kinds, **attrs)
    feeds = {f"x{i}": value for i, value in enumerate(operands) if value is not None}
    return [np.asarray(value) for value in QuantizerBackend.prepare(made).run(feeds)]


def running_sum(shape: list[int]) -> onnx.GraphProto:
    """Return a body: the next state is the sum of state and slice, and twice it the result."""
    values = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("s", "x", "t", "r")}
    nodes = [helper.make_node("Add", ["s", "x"], ["t"]), helper.make_node("Add", ["t", "t"], ["r"])]
    return helper.make_graph(nodes, "body", [values["s"], values["x"]], [values["t"], values["r"]])


def test_scan_reads_and_writes_along_any_axis_in_either_direction() -> None:
    start = np.zeros((2, 4), np.float32)
    state, rows = ran(
        "Scan",
        21,
        [start, X],
        [TensorProto.FLOAT] * 2,
        body=running_sum([2, 4]),
        num_scan_inputs=1,
        scan_input_axes=[-2],
        scan_input_directions=[1],
        scan_output_axes=[1],
        scan_output_directions=[1],
    )
    sums = np.cumsum(X[:, ::-1], axis=1, dtype=np.float32)
    assert np.array_equal(state, sums[:, -1])
    assert np.array_equal(rows, 2 * sums[:, ::-1])


def test_scan_of_version_8_runs_each_example_as_long_as_it_is() -> None:
    start = np.zeros((2, 4), np.float32)
    lengths = np.array([2, 3], np.int64)
    state, rows = ran(
        "Scan",
        8,
        [lengths, start, X],
        [TensorProto.FLOAT] * 2,
        body=running_sum([4]),
        num_scan_inputs=1,
        directions=[1],
    )
    for i, length in enumerate(lengths):
        sums = np.cumsum(X[i, :length][::-1], axis=0, dtype=np.float32)
        assert np.array_equal(state[i], sums[-1])
        assert np.array_equal(rows[i, :length], 2 * sums)
    assert not rows[0, 2:].any()


def test_scan_without_slices_returns_only_the_states() -> None:
    state, rows = ran(
        "Scan",
        21,
        [X[0, 0], np.zeros((0, 4), np.float32)],
        [TensorProto.FLOAT] * 2,
        body=running_sum([4]),
        num_scan_inputs=1,
    )
    assert np.array_equal(state, X[0, 0])
    assert rows.shape == (0, 4)


def test_scan_names_operands_of_two_lengths() -> None:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("a", "b", "c")]
    body = helper.make_graph([helper.make_node("Add", ["a", "b"], ["c"])], "body", values[:2], values[2:])
    with pytest.raises(OperationError, match=r"scanned operands of \[2, 3\] slices"):
        ran("Scan", 21, [X[0, :2].copy(), X[0]], [TensorProto.FLOAT], body=body, num_scan_inputs=2)


@pytest.mark.parametrize("window", [None, np.hanning(5).astype(np.float32)], ids=["rectangular", "window"])
@pytest.mark.parametrize("onesided", [0, 1])
def test_stft_transforms_each_frame(window: np.ndarray | None, onesided: int) -> None:
    signal = np.sin(np.arange(28, dtype=np.float32) ** 1.5).reshape(2, 14, 1)
    operands = [signal, np.array(3, np.int64), window, np.array(5, np.int64)]
    (found,) = ran("STFT", 17, operands, [TensorProto.FLOAT], onesided=onesided)
    weights = np.ones(5) if window is None else window
    frames = np.stack([signal[:, i : i + 5, 0] * weights for i in range(0, 10, 3)], axis=1)
    wanted = np.fft.rfft(frames) if onesided else np.fft.fft(frames)
    assert np.allclose(found[..., 0] + 1j * found[..., 1], wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("bands", "size", "rate", "low", "high"), [(8, 16, 8192, 0.0, 4096.0), (3, 32, 8000, 100.0, 2000.0)]
)
def test_mel_weights_equal_the_reference(bands: int, size: int, rate: int, low: float, high: float) -> None:
    whole = [np.array(value, np.int64) for value in (bands, size, rate)]
    operands = [*whole, np.array(low, np.float32), np.array(high, np.float32)]
    (found,) = ran("MelWeightMatrix", 17, list(operands), [TensorProto.FLOAT])
    made = model("MelWeightMatrix", 17, list(operands), [TensorProto.FLOAT])
    (wanted,) = ReferenceEvaluator(made).run(None, {f"x{i}": value for i, value in enumerate(operands)})
    assert found.any()
    assert np.allclose(found, wanted)


def doubled(name: str, kind: int) -> onnx.GraphProto:
    given, made = (helper.make_tensor_value_info(side, kind, [1, 4, 3, 3]) for side in ("a", "b"))
    return helper.make_graph([helper.make_node("Add", ["a", "a"], ["b"])], name, [given], [made])


def test_flex_attention_passes_scores_and_shares_through_bodies() -> None:
    q = np.sin(np.arange(24, dtype=np.float32)).reshape(1, 4, 3, 2)
    k, v = (np.cos(np.arange(12, dtype=np.float32) * step).reshape(1, 2, 3, 2) for step in (1, 2))
    (found,) = ran(
        "FlexAttention",
        22,
        [q, k, v],
        [TensorProto.FLOAT],
        domain="ai.onnx.preview",
        scale=0.5,
        score_mod=doubled("scores", TensorProto.FLOAT),
        prob_mod=doubled("shares", TensorProto.FLOAT),
    )
    keys, values = (np.repeat(x.astype(np.float64), 2, axis=1) for x in (k, v))
    scores = 2 * 0.5 * q @ keys.swapaxes(2, 3)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    assert np.allclose(found, 2 * powers / powers.sum(-1, keepdims=True) @ values, atol=1e-6)


UINTS = np.array([[3, 65000], [1, 7]])


@pytest.mark.parametrize("kind", [np.uint32, np.uint64])
@pytest.mark.parametrize(
    ("op", "opset", "others", "attrs", "wanted"),
    [
        ("CumSum", 14, [np.array(1, np.int64)], {}, np.cumsum(UINTS, axis=1)),
        ("PRelu", 16, [np.array([2, 2])], {}, UINTS),
        ("Gemm", 13, [UINTS], {"transB": 1}, UINTS @ UINTS.T),
        ("Shrink", 9, [], {"lambd": 5.0, "bias": 1.0}, np.array([[0, 64999], [0, 6]])),
        (
            "ScatterElements",
            18,
            [np.array([[1], [0]], np.int64), np.array([[9], [8]])],
            {"axis": 1, "reduction": "add"},
            np.array([[3, 65009], [9, 7]]),
        ),
    ],
    ids=["CumSum", "PRelu", "Gemm", "Shrink", "ScatterElements"],
)
def test_unsigned_integers_are_computed_modulo_their_range(
    op: str, opset: int, others: list[np.ndarray], attrs: dict[str, Any], wanted: np.ndarray, kind: type
) -> None:
    rest = [
        value if value.ndim == 0 or (op[0] == "S" and not i) else value.astype(kind) for i, value in enumerate(others)
    ]
    (found,) = ran(op, opset, [UINTS.astype(kind), *rest], [helper.np_dtype_to_tensor_dtype(np.dtype(kind))], **attrs)
    assert found.dtype == kind
    assert np.array_equal(found, wanted.astype(kind))


def test_argmax_and_argmin_of_unsigned_integers() -> None:
    (found,) = ran("ArgMax", 13, [UINTS.astype(np.uint32)], [TensorProto.INT64], axis=1, keepdims=0)
    assert found.dtype == np.int64
    assert found.tolist() == [1, 1]


def test_uncomputed_integers_beyond_int64_are_refused_by_name() -> None:
    large = np.array([1 << 63, 1], np.uint64)
    with pytest.raises(OperationError, match=r"CumSum of torch.int64, torch.uint64: nothing computes it"):
        ran("CumSum", 14, [large, np.array(0, np.int64)], [TensorProto.UINT64])


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_remainder_by_a_subnormal_number(kind: type) -> None:
    small = np.full(20, np.finfo(kind).smallest_subnormal * 71362, kind)
    large = np.full(20, -2.0117204, kind)
    (found,) = ran("Mod", 13, [large, small], [helper.np_dtype_to_tensor_dtype(np.dtype(kind))], fmod=1)
    assert found.tolist() == [math.fmod(float(large[0]), float(small[0]))] * 20


@pytest.mark.parametrize(
    ("op", "opset", "others", "attrs"),
    [
        ("InstanceNormalization", 6, [np.ones(3, np.float16), np.zeros(3, np.float16)], {}),
        ("LpNormalization", 1, [], {"axis": -1, "p": 2}),
        ("LRN", 13, [], {"size": 3, "alpha": 1.0, "bias": 1.0}),
        ("ReduceL2", 18, [np.array([2], np.int64)], {"keepdims": 1}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("rank", [3, 4])
def test_squares_of_float16_do_not_leave_the_range(
    op: str, opset: int, others: list[np.ndarray], attrs: dict[str, Any], rank: int
) -> None:
    x = (400 + 300 * X).astype(np.float16).reshape((2, 3, 4) if rank == 3 else (2, 3, 2, 2))
    (half,) = ran(op, opset, [x, *others], [TensorProto.FLOAT16], **attrs)
    wide = [value if value.dtype == np.int64 else value.astype(np.float32) for value in others]
    (exact,) = ran(op, opset, [x.astype(np.float32), *wide], [TensorProto.FLOAT], **attrs)
    assert half.dtype == np.float16
    assert np.array_equal(half, exact.astype(np.float16)) or np.allclose(half, exact, rtol=1e-3, atol=1e-3)
    assert np.isfinite(half).all()
    assert half.any()


def test_resize_does_not_change_an_axis_of_equal_size() -> None:
    x = np.array([[np.nan, 1, 2, 3], [4, 5, 6, 7]], np.float32)
    roi = np.array([0, 0, 1, 1], np.float32)
    operands = [x, roi, np.array([1, 2], np.float32)]
    (found,) = ran(
        "Resize", 19, operands, [TensorProto.FLOAT], mode="linear", coordinate_transformation_mode="tf_crop_and_resize"
    )
    assert np.allclose(found[1], np.arange(8) * 3 / 7 + 4)
