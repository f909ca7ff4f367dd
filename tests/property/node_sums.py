"""Random nodes of operators that multiply, slide windows, attend or recur."""

from __future__ import annotations

import math

import numpy as np
from node_values import FLOATS, INTEGERS, Draw, Made, draws, whole

ANY = (*FLOATS, *INTEGERS, bool)


@draws("MatMul", "Gemm")
def product(d: Draw, op: str) -> Made:
    m, k, n = (d.whole(1, 5) for _ in range(3))
    if op == "Gemm":
        left, right = d.one(0, 1), d.one(0, 1)
        kind = d.one(np.float32, np.float32, np.float64, np.float16)
        operands = [d.values((k, m) if left else (m, k), kind), d.values((n, k) if right else (k, n), kind)]
        attrs: dict[str, object] = {"transA": left, "transB": right}
        if d.chance(0.6):
            operands.append(d.values(d.r.choice([(n,), (1, n), (m, n), (m, 1), (1,), ()]), kind))
        attrs |= {name: d.one(0.5, 1.0, 2.0, 0.0) for name in ("alpha", "beta") if d.chance(0.4)}
        return Made(op, d.one(7, 11, 13), tuple(operands), attrs)
    kind = d.one(np.float32, np.float32, np.float64, np.int32, np.int64)
    front = d.shape(0, 2, 3)
    shapes = d.r.choice(
        [
            ((*front, m, k), (*d.beside(front), k, n)),
            ((k,), (k, n)),
            ((*front, m, k), (k,)),
            ((k,), (k,)),
            ((k,), (*front, k, n)),
            ((*d.beside(front), m, k), (*front, k, n)),
        ]
    )
    return Made(op, d.one(9, 13), tuple(d.values(s, kind) for s in shapes))


def _window(d: Draw, rank: int, sizes: tuple[int, ...]) -> dict[str, object]:
    """Return the attributes of a window that fits."""
    kernel = [d.whole(1, min(3, s)) for s in sizes]
    attrs: dict[str, object] = {"kernel_shape": kernel}
    if d.chance(0.6):
        attrs["strides"] = [d.whole(1, 3) for _ in sizes]
    if d.chance(0.3):
        attrs["dilations"] = [d.whole(1, 2) for _ in sizes]
    dilated = [(k - 1) * t + 1 for k, t in zip(kernel, attrs.get("dilations", [1] * rank), strict=True)]  # type: ignore[call-overload]
    if any(k > s for k, s in zip(dilated, sizes, strict=True)):
        attrs.pop("dilations")
    form = d.r.random()
    if form < 0.3:
        attrs["auto_pad"] = d.one("SAME_UPPER", "SAME_LOWER", "VALID")
    elif form < 0.75:
        attrs["pads"] = [d.whole(0, max(0, k - 1)) for k in (*kernel, *kernel)]
    return attrs


@draws("Conv", "ConvInteger", "QLinearConv")
def convolution(d: Draw, op: str) -> Made:
    rank = d.whole(1, 3) if op == "Conv" else d.whole(1, 2)
    group = d.whole(1, 3)
    c, o = group * d.whole(1, 2), group * d.whole(1, 2)
    sizes = tuple(d.whole(2, 6) for _ in range(rank))
    attrs = _window(d, rank, sizes) | {"group": group}
    if "dilations" in attrs and "auto_pad" in attrs:
        attrs.pop("dilations")  # ONNX Runtime does not implement both
    kernel = attrs["kernel_shape"] if d.chance(0.7) else attrs.pop("kernel_shape")
    shape, weight = (d.whole(1, 2), c, *sizes), (o, c // group, *kernel)  # type: ignore[misc]
    if op == "Conv":
        kind = d.one(np.float32, np.float32, np.float64)
        bias = (d.values((o,), kind),) if d.chance(0.6) else ()
        return Made(op, d.one(11, 22), (d.values(shape, kind), d.values(weight, kind), *bias), attrs)
    a = d.one(np.uint8, np.uint8, np.int8)
    b = d.one(np.uint8, np.int8) if a == np.uint8 else np.int8
    if op == "ConvInteger":
        zeros = (d.values((), np.uint8), d.values((), b)) if d.chance(0.7) else ()
        return Made(op, 10, (d.values(shape, np.uint8), d.values(weight, b), *zeros), attrs, held=frozenset({2, 3}))
    parts = () if d.chance(0.5) else (o,)
    scales = [
        np.array([d.r.uniform(0.01, 0.05) for _ in range(math.prod(p))], np.float32).reshape(p) for p in ((), parts, ())
    ]
    bias = (d.values((o,), np.int32),) if d.chance(0.6) else ()
    zero = np.zeros(parts, np.int8) if b == np.int8 else np.full(parts, d.whole(0, 255), np.uint8)
    operands = (
        d.values(shape, a),
        scales[0],
        d.values((), a),
        d.values(weight, b),
        scales[1],
        zero,
        scales[2],
        d.values((), a),
        *bias,
    )
    return Made(op, 10, operands, attrs, held=frozenset(range(1, 9)))


@draws("ConvTranspose")
def transposed(d: Draw, op: str) -> Made:
    rank, group = d.whole(1, 2), d.whole(1, 2)
    c, o = group * d.whole(1, 2), d.whole(1, 2)
    sizes = tuple(d.whole(1, 5) for _ in range(rank))
    attrs: dict[str, object] = {"group": group}
    kernel = [d.whole(1, 4) for _ in range(rank)]
    strides = [d.whole(1, 3) for _ in range(rank)]
    attrs["strides"] = strides
    if d.chance(0.3):
        attrs["dilations"] = [d.whole(1, 2) for _ in range(rank)]
    if d.chance(0.4):
        attrs["pads"] = [d.whole(0, k // 2) for k in (*kernel, *kernel)]
    if d.chance(0.3):
        attrs["output_padding"] = [d.whole(0, s - 1) for s in strides]
    bias = (d.values((o * group,)),) if d.chance(0.5) else ()
    return Made(op, d.one(11, 22), (d.values((d.whole(1, 2), c, *sizes)), d.values((c, o, *kernel)), *bias), attrs)


@draws("MaxPool", "AveragePool", "LpPool")
def pool(d: Draw, op: str) -> Made:
    rank = d.whole(1, 3)
    sizes = tuple(d.whole(2, 7) for _ in range(rank))
    attrs = _window(d, rank, sizes)
    if "dilations" in attrs and attrs.get("auto_pad", "VALID") != "VALID":
        attrs.pop(
            "dilations"
        )  # both engines ignore them when they choose pads, and so have fewer places than the standard
    opset = {"MaxPool": d.one(10, 12, 22), "AveragePool": d.one(11, 19, 22), "LpPool": d.one(11, 18, 22)}[op]
    if op != "MaxPool" and opset == 11:
        attrs.pop("dilations", None)
    if d.chance(0.35) and "auto_pad" not in attrs and not (op == "LpPool" and opset == 11):
        attrs["ceil_mode"] = 1
    if op == "AveragePool" and d.chance(0.5):
        attrs["count_include_pad"] = d.one(0, 1)
    if op == "LpPool":
        attrs["p"] = d.one(1, 2, 3)
    results = 2 if op == "MaxPool" and d.chance(0.3) else 1
    if op == "MaxPool" and results == 2 and d.chance(0.4):
        attrs["storage_order"] = 0
    kind = (
        d.one(np.float32, np.float32, np.float64, np.uint8, np.int8) if op == "MaxPool" and opset != 10 else np.float32
    )
    return Made(op, opset, (d.values((d.whole(1, 2), d.whole(1, 3), *sizes), kind),), attrs, results)


@draws("Resize", "Upsample")
def resize(d: Draw, op: str) -> Made:
    rank = d.whole(1, 2)
    sizes = tuple(d.whole(1, 5) for _ in range(rank))
    x = d.values(
        (1, d.whole(1, 2), *sizes), d.one(np.float32, np.float32, np.float64) if op == "Resize" else np.float32
    )
    if op == "Upsample":
        factors = np.array([1, 1, *[d.one(1.0, 2.0, 1.5, 3.0) for _ in sizes]], np.float32)
        return Made(op, 9, (x, factors), {"mode": d.one("nearest", "linear")}, held=frozenset({1}))
    mode = str(d.one("nearest", "linear", "cubic"))
    attrs: dict[str, object] = {"mode": mode}
    attrs["coordinate_transformation_mode"] = d.one(
        "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"
    )
    if mode == "nearest":
        attrs["nearest_mode"] = d.one("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    if mode == "cubic":
        if d.chance(0.5):
            attrs["cubic_coeff_a"] = d.one(-0.5, -0.75)
        if d.chance(0.4):
            attrs["exclude_outside"] = 1
    if d.chance(0.2) and mode != "nearest":
        attrs["antialias"] = 1
    if d.chance(0.5):
        return Made(
            op,
            d.one(18, 19),
            (x, None, None, whole(*x.shape[:2], *[d.whole(1, 9) for _ in sizes])),
            attrs,
            held=frozenset({3}),
        )
    factors = np.array([1, 1, *[d.one(1.0, 2.0, 1.5, 0.5, 0.7, 3.0) for _ in sizes]], np.float32)
    return Made(op, d.one(13, 18, 19), (x, None, factors), attrs, held=frozenset({2}))


@draws("GridSample", "AffineGrid", "RoiAlign", "NonMaxSuppression", "Col2Im")
def sampling(d: Draw, op: str) -> Made:
    n, c, h, w = d.whole(1, 2), d.whole(1, 2), d.whole(1, 5), d.whole(1, 5)
    if op == "GridSample":
        attrs = {"mode": d.one("linear", "nearest", "cubic"), "padding_mode": d.one("zeros", "border", "reflection")}
        x, grid = d.values((n, c, h, w)), d.values((n, d.whole(1, 4), d.whole(1, 4), 2)) / np.float32(1.3)
        return Made(op, d.one(20, 22), (x, grid), attrs | {"align_corners": d.one(0, 1)})
    if op == "AffineGrid":
        size = whole(n, c, h, w) if d.chance(0.6) else whole(n, c, 2, h, w)
        theta = d.values((n, len(size) - 2, len(size) - 1))
        return Made(op, 20, (theta, size), {"align_corners": d.one(0, 1)}, held=frozenset({1}))
    if op == "RoiAlign":
        count = d.whole(1, 3)
        boxes = np.array(
            [
                [d.r.uniform(-1, w), d.r.uniform(-1, h), d.r.uniform(0, w + 2), d.r.uniform(0, h + 2)]
                for _ in range(count)
            ],
            np.float32,
        )
        boxes = np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], 1)
        attrs = {
            "mode": d.one("avg", "max"),
            "output_height": d.whole(1, 3),
            "output_width": d.whole(1, 3),
            "sampling_ratio": d.one(0, 1, 2),
            "spatial_scale": d.one(1.0, 0.5),
        }
        opset = d.one(10, 16)
        if opset == 16:
            attrs["coordinate_transformation_mode"] = d.one("half_pixel", "output_half_pixel")
        return Made(
            op, opset, (d.values((n, c, h, w)), boxes, whole(*[d.whole(0, n - 1) for _ in range(count)])), attrs
        )
    if op == "Col2Im":
        block = [d.whole(1, min(2, h)), d.whole(1, min(2, w))]
        places = (h - block[0] + 1) * (w - block[1] + 1)
        return Made(
            op, 18, (d.values((n, c * math.prod(block), places)), whole(h, w), whole(*block)), held=frozenset({1, 2})
        )
    count = d.whole(1, 6)
    corners = np.abs(d.values((n, count, 4)))
    scores = np.abs(d.values((n, c, count)))
    operands = [corners, scores, whole(d.whole(0, 4)), np.array([d.r.random()], np.float32)]
    if d.chance(0.5):
        operands.append(np.array([d.r.random()], np.float32))
    return Made(op, 11, tuple(operands), {"center_point_box": d.one(0, 1)}, held=frozenset({2, 3, 4}))


@draws("LSTM", "GRU", "RNN")
def recurrent(d: Draw, op: str) -> Made:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    direction = str(d.one("forward", "reverse", "bidirectional"))
    count, hidden = 2 if direction == "bidirectional" else 1, d.whole(1, 3)
    steps, batch, width = d.whole(1, 4), d.whole(1, 3), d.whole(1, 3)
    attrs: dict[str, object] = {"hidden_size": hidden, "direction": direction}
    opset = d.one(7, 14)

    def small(*shape: int) -> np.ndarray:
        return np.clip(d.values(shape), -1.5, 1.5)

    parts: list[np.ndarray | None] = [small(steps, batch, width)]
    parts += [small(count, gates * hidden, width), small(count, gates * hidden, hidden)]
    parts.append(small(count, 2 * gates * hidden) if d.chance(0.6) else None)
    parts.append(np.array([d.whole(1, steps) for _ in range(batch)], np.int32) if d.chance(0.4) else None)
    parts.append(small(count, batch, hidden) if d.chance(0.5) else None)
    if op == "LSTM":
        parts.append(small(count, batch, hidden) if d.chance(0.5) else None)
        parts.append(small(count, 3 * hidden) if d.chance(0.3) else None)
        if d.chance(0.1):
            attrs["input_forget"] = 1
    if op == "GRU":
        attrs["linear_before_reset"] = d.one(0, 1)
    if d.chance(0.3):
        attrs["clip"] = d.one(0.5, 2.0)
    if d.chance(0.3):
        names = ["Sigmoid", "Tanh", "Relu", "HardSigmoid", "Softsign", "LeakyRelu", "Elu", "Affine"]
        wanted = {"LSTM": 3, "GRU": 2, "RNN": 1}[op] * count
        attrs["activations"] = [d.one(*names[: 3 if d.chance(0.6) else 8]) for _ in range(wanted)]
        if "Affine" in attrs["activations"]:  # type: ignore[operator]
            attrs["activations"] = ["Affine" if d.chance(0.5) else "HardSigmoid" for _ in range(wanted)]
            attrs |= {
                name: [d.one(0.3, 0.7) for _ in range(wanted)] for name in ("activation_alpha", "activation_beta")
            }
    while parts[-1] is None:
        parts.pop()
    return Made(op, opset, tuple(parts), attrs, results=3 if op == "LSTM" else 2, held=frozenset({1, 2, 3}))


@draws("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def losses(d: Draw, op: str) -> Made:
    n, c, tail = d.whole(1, 3), d.whole(1, 4), d.shape(0, 2, 3)
    labels = np.array([d.whole(0, c - 1) for _ in range(n * math.prod(tail))], np.int64).reshape((n, *tail))
    attrs: dict[str, object] = {"reduction": d.one("none", "mean", "sum")}
    if d.chance(0.4):
        attrs["ignore_index"] = d.whole(0, c - 1)
    operands = [d.values((n, c, *tail)), labels]
    if d.chance(0.5):
        operands.append(np.abs(d.values((c,))) + np.float32(0.1))
    return Made(op, 13, tuple(operands), attrs, results=2 if op.startswith("Soft") and d.chance(0.4) else 1)


@draws("Attention", "RotaryEmbedding")
def attention(d: Draw, op: str) -> Made:
    b, heads, length, size = d.whole(1, 2), d.whole(1, 3), d.whole(1, 4), 2 * d.whole(1, 3)
    if op == "RotaryEmbedding":
        x = d.values((b, heads, length, size))
        cos, sin = d.values((6, size // 2)), d.values((6, size // 2))
        at = np.array([d.whole(0, 5) for _ in range(b * length)], np.int64).reshape(b, length)
        return Made(op, 23, (x, cos, sin, at), {"interleaved": d.one(0, 1)})
    group = d.one(1, 2)
    keys = d.whole(1, 5)
    past = (
        d.whole(1, 3) if d.chance(0.3) else 0
    )  # not with is_causal: before 1.22 the reference counts rows from the end
    q = d.values((b, heads * group, length, size))
    k, v = d.values((b, heads, keys, size)), d.values((b, heads, keys, size if d.chance(0.6) else d.whole(1, 4)))
    attrs: dict[str, object] = {}
    if d.chance(0.4) and not past:
        attrs["is_causal"] = 1
    if d.chance(0.3):
        attrs["scale"] = d.one(0.3, 1.0)
    if d.chance(0.3):
        attrs["softcap"] = d.one(0.5, 2.0)
    mask = None
    if d.chance(0.5):
        total = keys + past
        mask = d.values(
            d.r.choice([(length, total), (b, 1, length, total), (1, heads * group, length, total)]),
            d.one(bool, np.float32),
        )
    if mask is not None:
        attrs.pop("is_causal", None)  # engines before onnx 1.22 and ONNX Runtime 1.32 treat both differently
    if mask is not None and mask.dtype == bool:
        mask[..., 0] = True  # of rows that see nothing engines made NaN until the standard said zeros
    operands: list[np.ndarray | None] = [q, k, v, mask]
    if past:
        operands += [d.values((b, heads, past, size)), d.values((b, heads, past, v.shape[-1]))]
    while operands[-1] is None:
        operands.pop()
    return Made(op, d.one(23, 24), tuple(operands), attrs, results=3 if past or d.chance(0.2) else 1)


@draws("DFT")
def fourier(d: Draw, op: str) -> Made:
    n, length = d.whole(1, 2), d.whole(1, 7)
    complex_ = d.chance(0.5)
    x = d.values((n, length, 2 if complex_ else 1))
    inverse = complex_ and d.chance(0.5)
    attrs = {"inverse": int(inverse)} | ({} if complex_ or d.chance(0.5) else {"onesided": 1})
    operands: list[np.ndarray | None] = [x]
    if d.chance(0.3):
        operands.append(np.array(d.whole(1, 8), np.int64))
    return Made(op, 17, tuple(operands), attrs, held=frozenset({1}))
