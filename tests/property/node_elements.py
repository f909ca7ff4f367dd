"""Random nodes of operators that compute element by element, or along an axis."""

from __future__ import annotations

import math

import numpy as np
from node_values import FLOATS, INTEGERS, WIDE, Draw, Made, draws, whole


@draws("Abs", "Neg", "Sign", "Relu", "Floor", "Ceil", "Round", "Exp", "Log", "Sqrt", "Reciprocal", "Sigmoid", "Tanh", "Erf",
       "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Softplus", "Softsign",
       "HardSwish", "Mish", "Identity", "Swish")  # fmt: skip
def unary(d: Draw, op: str) -> Made:
    kinds = FLOATS + (INTEGERS if op in ("Abs", "Neg", "Sign", "Identity", "Relu") else ())
    opset = {"HardSwish": d.one(14, 22), "Mish": d.one(18, 22), "Swish": 24}.get(op, d.one(13, 14, 17, 21))
    attrs = {"alpha": d.one(0.5, 1.7)} if op == "Swish" and d.chance(0.5) else {}
    return Made(op, opset, (d.values(d.shape(), d.r.choice(kinds), special=True),), attrs)


@draws("Elu", "Celu", "Selu", "LeakyRelu", "ThresholdedRelu", "HardSigmoid", "Gelu", "Shrink")
def activation(d: Draw, op: str) -> Made:
    names = {"Selu": ("alpha", "gamma"), "HardSigmoid": ("alpha", "beta"), "Shrink": ("bias", "lambd"), "Gelu": ()}
    attrs = {name: d.r.choice((0.1, 0.5, 1.0, 2.3)) for name in names.get(op, ("alpha",)) if d.chance(0.6)}
    if op == "Gelu":
        attrs = {"approximate": d.one("none", "tanh")} if d.chance(0.7) else {}
    kind = np.float32 if op == "Celu" else d.r.choice(FLOATS)
    if op == "Shrink" and d.chance(0.3):
        kind = d.r.choice(INTEGERS)
    opset = 20 if op == "Gelu" else d.one(13, 16, 22)
    return Made(op, opset, (d.values(d.shape(), kind, special=True),), attrs)


@draws("Add", "Sub", "Mul", "Div")
def arithmetic(d: Draw, op: str) -> Made:
    kind, shape = d.r.choice(FLOATS + INTEGERS), d.shape()
    b = d.values(d.beside(shape), kind, special=True)
    if op == "Div" and np.dtype(kind).kind in "iu":
        b = np.where(b == 0, np.array(3, kind), b)
    return Made(
        op, d.one(7, 13, 14) if kind not in (np.int8, np.uint8) else 14, (d.values(shape, kind, special=True), b)
    )


@draws("Pow")
def power(d: Draw, op: str) -> Made:
    shape = d.shape()
    a, b = d.r.choice(WIDE), d.r.choice(WIDE)
    x, y = d.values(shape, a, special=True), d.values(d.beside(shape), b, special=True)
    if np.dtype(a).kind in "iu":
        x, y = (
            np.clip(x, -5, 5),
            np.clip(y, 0, 6) if np.dtype(b).kind in "iu" else np.abs(np.round(np.nan_to_num(y) % 5)),
        )
    return Made(op, d.one(13, 15), (x, y.astype(b)))


@draws("Mod")
def remainder(d: Draw, op: str) -> Made:
    kind, shape = d.r.choice(FLOATS + INTEGERS), d.shape()
    b = d.values(d.beside(shape), kind)
    floats = np.dtype(kind).kind == "f"
    return Made(
        op, 13, (d.values(shape, kind), np.where(b == 0, np.array(3, kind), b)), {"fmod": 1 if floats else d.one(0, 1)}
    )


@draws("PRelu")
def prelu(d: Draw, op: str) -> Made:
    shape = d.shape(1)
    slope = tuple(1 if d.chance(0.3) else s for s in shape)[d.whole(0, len(shape)) :]
    kind = d.r.choice(FLOATS)
    return Made(op, d.one(9, 16), (d.values(shape, kind, special=True), d.values(slope, kind)))


@draws("Max", "Min", "Sum", "Mean")
def several(d: Draw, op: str) -> Made:
    shape, kind = d.shape(), d.r.choice(FLOATS if op in ("Sum", "Mean") else FLOATS + INTEGERS)
    operands = [d.values(shape, kind, special=True)]
    operands += [d.values(d.beside(shape), kind, special=True) for _ in range(d.whole(0, 2))]
    d.r.shuffle(operands)
    return Made(op, 13, tuple(operands))


@draws("And", "Or", "Xor", "Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")
def comparison(d: Draw, op: str) -> Made:
    kinds = (bool,) if op in ("And", "Or", "Xor") else (*FLOATS, *INTEGERS)
    kind, shape = d.r.choice(kinds), d.shape()
    return Made(op, d.one(13, 16), (d.values(shape, kind, special=True), d.values(d.beside(shape), kind, special=True)))


@draws("Not")
def negation(d: Draw, op: str) -> Made:
    return Made(op, 13, (d.values(d.shape(), bool),))


@draws("BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bits(d: Draw, op: str) -> Made:
    shape = d.shape()
    kind = d.r.choice(
        (np.uint8, np.uint16, np.uint32, np.uint64) if op == "BitShift" else (*INTEGERS, np.uint16, np.int16)
    )
    b = d.values(d.beside(shape), kind)
    attrs = {}
    if op == "BitShift":
        b, attrs = b % (9 * 8 * np.dtype(kind).itemsize // 8), {"direction": d.one("LEFT", "RIGHT")}
    return Made(op, 18, (d.values(shape, kind), b.astype(kind)), attrs)


@draws("BitwiseNot")
def bit_negation(d: Draw, op: str) -> Made:
    return Made(op, 18, (d.values(d.shape(), d.r.choice(INTEGERS)),))


@draws("IsNaN", "IsInf")
def questions(d: Draw, op: str) -> Made:
    attrs = {name: d.one(0, 1) for name in ("detect_negative", "detect_positive") if op == "IsInf" and d.chance(0.5)}
    return Made(op, d.one(13, 20), (d.values(d.shape(), d.one(np.float32, np.float64), special=True),), attrs)


@draws("Where")
def where(d: Draw, op: str) -> Made:
    shape, kind = d.shape(), d.r.choice(FLOATS + INTEGERS)
    operands = [
        d.values(shape if i == d.seed % 3 else d.beside(shape), bool if i == 0 else kind, special=True)
        for i in range(3)
    ]
    return Made(op, d.one(9, 16), tuple(operands))


@draws("Clip")
def clip(d: Draw, op: str) -> Made:
    kind = d.r.choice(FLOATS + INTEGERS)
    x = d.values(d.shape(), kind, special=True)
    if d.chance(0.15) and kind == np.float32:
        return Made(op, 6, (x,), {name: v for name, v in (("min", -0.7), ("max", 0.9)) if d.chance(0.7)})
    bounds = [d.values((), kind) if d.chance(0.75) else None for _ in range(2)]
    return Made(op, d.one(12, 13), (x, *bounds), held=frozenset({1, 2}) if d.chance(0.5) else frozenset())


CASTS = (
    np.float32,
    np.float16,
    np.float64,
    np.int32,
    np.int64,
    np.int8,
    np.uint8,
    np.int16,
    np.uint16,
    np.uint32,
    bool,
)


@draws("Cast")
def cast(d: Draw, op: str) -> Made:
    from onnx import helper

    source, target = d.r.choice(CASTS), d.r.choice(CASTS)
    x = d.values(d.shape(), source)
    if np.dtype(source).kind == "f" and np.dtype(target).kind in "iu":
        info = np.iinfo(target)
        x = np.clip(x, max(int(info.min), -1000), min(int(info.max), 1000)).astype(source)
    return Made(op, d.one(13, 19, 21), (x,), {"to": helper.np_dtype_to_tensor_dtype(np.dtype(target))})


@draws("Softmax", "LogSoftmax", "Hardmax", "LpNormalization")
def along(d: Draw, op: str) -> Made:
    shape = d.shape(1)
    axis = d.whole(-len(shape), len(shape) - 1)
    attrs: dict[str, object] = {"axis": axis} if d.chance(0.8) else {}
    opset = d.one(13, 22) if op == "LpNormalization" else d.one(11, 13)
    if op == "LpNormalization":
        attrs["p"] = d.one(1, 2)
    special = opset == 13 and op in ("Softmax", "LogSoftmax") and d.chance(0.15)
    return Made(op, opset, (d.values(shape, d.r.choice(FLOATS), special=special),), attrs)


@draws(
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceSumSquare",
)
def reduction(d: Draw, op: str) -> Made:
    shape = d.shape(0, 4, 5, 0 if d.chance(0.05) else 1)
    kind = d.r.choice((np.float32, np.float32, np.float64, np.int32, np.int64))
    if op in ("ReduceLogSum", "ReduceLogSumExp", "ReduceL2", "ReduceMean"):
        kind = d.one(np.float32, np.float64)
    opset = d.one(11, 13, 18)
    axes = sorted({d.whole(0, len(shape) - 1) for _ in range(d.whole(1, 3))}) if shape else []
    if d.chance(0.3):
        axes = [a - len(shape) for a in axes]
    attrs: dict[str, object] = {"keepdims": d.one(0, 1)} if d.chance(0.8) else {}
    x = d.values(
        shape, kind, special=op not in ("ReduceLogSum", "ReduceProd", "ReduceL2", "ReduceSumSquare")
    )  # a product overflows in the order of its factors
    operands: list[np.ndarray | None] = [x % 100 if x.dtype.kind in "iu" else x]
    given = d.chance(0.8)
    if opset >= (13 if op == "ReduceSum" else 18):
        if given:
            operands.append(whole(*axes))
        if d.chance(0.3):
            attrs["noop_with_empty_axes"] = 1
    elif given and axes:
        attrs["axes"] = axes
    return Made(op, opset, tuple(operands), attrs, held=frozenset({1}) if d.chance(0.7) else frozenset())


@draws("ArgMax", "ArgMin")
def argument(d: Draw, op: str) -> Made:
    shape = d.shape(1)
    attrs = {"axis": d.whole(-len(shape), len(shape) - 1), "keepdims": d.one(0, 1), "select_last_index": d.one(0, 0, 1)}
    x = d.values(shape, d.one(np.float32, np.int32, np.int64, np.uint8))
    return Made(op, 13, (x // 2 if x.dtype.kind in "iu" else np.round(x),), attrs)


@draws("CumSum", "CumProd")
def running(d: Draw, op: str) -> Made:
    shape = d.shape(1)
    attrs = {name: d.one(0, 1) for name in ("exclusive", "reverse") if d.chance(0.6)}
    axis = np.array(d.whole(-len(shape), len(shape) - 1), d.one(np.int32, np.int64))
    return Made(
        op,
        26 if op == "CumProd" else d.one(11, 14),
        (d.values(shape, d.r.choice(WIDE)), axis),
        attrs,
        held=frozenset({1}),
    )


@draws("TopK")
def largest(d: Draw, op: str) -> Made:
    shape = d.shape(1)
    axis = d.whole(-len(shape), len(shape) - 1)
    attrs = {"axis": axis, "largest": d.one(0, 1), "sorted": 1}
    x = d.values(shape, d.one(np.float32, np.float64, np.int32, np.int64))
    return Made(op, 11, (x, whole(d.whole(1, shape[axis]))), attrs, results=2, held=frozenset({1}))


@draws("Unique")
def unique(d: Draw, op: str) -> Made:
    shape = d.shape(1, 3, 4)
    x = np.round(d.values(shape, np.float32)) if d.chance(0.6) else d.values(shape, np.int64)
    attrs: dict[str, object] = {"sorted": d.one(0, 1)}
    if d.chance(0.4):
        attrs["axis"] = d.whole(-len(shape), len(shape) - 1)
    return Made(op, 11, (x,), attrs, results=4)


@draws("Det")
def determinant(d: Draw, op: str) -> Made:
    n = d.whole(1, 4)
    return Made(op, d.one(11, 22), (d.values((*d.shape(0, 2, 3), n, n), np.float32),))


@draws("Einsum")
def einsum(d: Draw, op: str) -> Made:
    forms = (
        "ij,jk->ik",
        "bij,bjk->bik",
        "ij->ji",
        "ii->i",
        "i,j->ij",
        "bhid,bhjd->bhij",
        "ij->",
        "...ij,...jk->...ik",
        "ij,ij->i",
        "ijk->kij",
        "bij,bkj->bik",
        "i,i->",
        "ij,kj",
    )
    form = str(d.one(*forms))
    sizes = {letter: d.whole(1, 4) for letter in "abcdefghijk"}
    front = (2,) if d.chance(0.5) else ()
    shapes = []
    for term in form.split("->", maxsplit=1)[0].split(","):
        letters = term.replace("...", "")
        shapes.append((front if "..." in term else ()) + tuple(sizes[c] for c in letters))
    return Made(
        op,
        12,
        tuple(
            d.values(s, d.one(np.float32, np.float64) if i == 0 and len(shapes) == 1 else np.float32)
            for i, s in enumerate(shapes)
        ),
        {"equation": form},
    )


@draws("LayerNormalization", "RMSNormalization")
def layer_norm(d: Draw, op: str) -> Made:
    shape = d.shape(1)
    axis = d.whole(0, len(shape) - 1)
    attrs: dict[str, object] = {"axis": axis - (len(shape) if d.chance(0.5) else 0)}
    if d.chance(0.5):
        attrs["epsilon"] = d.one(1e-5, 1e-2, 0.5)
    if d.chance(0.2):
        attrs["stash_type"] = 1
    kind = d.one(np.float32, np.float32, np.float16, np.float64)
    parts = [d.values(shape, kind), d.values(shape[axis:], kind)]
    if op == "LayerNormalization" and d.chance(0.5):
        parts.append(d.values(shape[axis:], kind))
    results = d.whole(1, 3) if op == "LayerNormalization" and kind == np.float32 else 1
    return Made(op, 17 if op == "LayerNormalization" else 23, tuple(parts), attrs, results)


@draws("BatchNormalization", "InstanceNormalization", "GroupNormalization", "LRN", "MeanVarianceNormalization")
def norm(d: Draw, op: str) -> Made:
    groups = d.whole(1, 3)
    c = groups * d.whole(1, 3)
    shape = (d.whole(1, 3), c, *d.shape(1 if op != "MeanVarianceNormalization" else 2, 2))
    if op == "LRN":
        shape = (shape[0], c, *d.shape(2, 2))
        attrs = {"size": d.whole(1, 5), "alpha": d.one(1e-4, 0.3), "beta": d.one(0.75, 0.5), "bias": d.one(1.0, 2.0)}
        return Made(op, 13, (d.values(shape),), attrs)
    if op == "MeanVarianceNormalization":
        return Made(
            op, 13, (d.values((*shape[:2], *d.shape(2, 2))),), {"axes": d.one([0, 2, 3], [2, 3], [0, 1, 2, 3], [1])}
        )
    attrs = {"epsilon": d.one(1e-5, 1e-2)} if d.chance(0.7) else {}
    x = d.values(shape)
    if op == "BatchNormalization":
        if d.chance(0.2):
            x = d.values(shape[:2])
        return Made(
            op,
            d.one(9, 14, 15),
            (x, *(d.values((c,)) for _ in range(3)), np.abs(d.values((c,))) + np.float32(0.1)),
            attrs,
        )
    count = c if op == "InstanceNormalization" or d.chance(0.6) else groups
    opset = d.one(6, 22) if op == "InstanceNormalization" else (21 if count == c else 18)
    if op == "GroupNormalization":
        attrs["num_groups"] = groups
    return Made(op, opset, (x, d.values((count,)), d.values((count,))), attrs)


@draws("QuantizeLinear", "DequantizeLinear")
def quantization(d: Draw, op: str) -> Made:
    shape = d.shape(1)
    kind = d.one(np.uint8, np.int8, np.int16, np.uint16)
    axis = d.whole(0, len(shape) - 1)
    form = d.one("tensor", "axis", "block")
    block = d.whole(1, 3)
    parts = {"tensor": (), "axis": (shape[axis],)}.get(str(form))
    attrs: dict[str, object] = {}
    if parts is None:
        parts = tuple(math.ceil(s / block) if i == axis else s for i, s in enumerate(shape))
        attrs["block_size"] = block
    if form != "tensor":
        attrs["axis"] = axis - (len(shape) if d.chance(0.3) else 0)
    scale = np.abs(d.values(parts)).astype(np.float32) + np.float32(0.01)
    if d.chance(0.5):
        scale = np.exp2(np.round(np.log2(scale))).astype(np.float32)
    zero = d.values(parts, kind) if d.chance(0.7) else None
    if op == "QuantizeLinear":
        operand = d.values(shape, np.float32)
        if zero is None and d.chance(0.5):
            from onnx import helper

            attrs["output_dtype"] = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    else:
        operand = d.values(shape, kind if zero is not None or d.chance(0.8) else np.int32)
    return Made(op, 21, (operand, scale, zero), attrs, held=frozenset({1, 2}) if d.chance(0.6) else frozenset())


@draws("DynamicQuantizeLinear")
def dynamic(d: Draw, op: str) -> Made:
    return Made(op, 11, (d.values(d.shape(0, 4)),), results=3)


@draws("MatMulInteger")
def matmul_integer(d: Draw, op: str) -> Made:
    m, k, n = (d.whole(1, 5) for _ in range(3))
    front = d.shape(0, 2, 3)
    a, b = d.one(np.uint8, np.int8), d.one(np.uint8, np.int8)
    operands: list[np.ndarray | None] = [d.values((*front, m, k), a), d.values((k, n), b)]
    if d.chance(0.7):
        operands += [d.values((), a), d.values(() if d.chance(0.5) else (n,), b)]
    return Made(op, 10, tuple(operands))


@draws("QLinearMatMul")
def qlinear_matmul(d: Draw, op: str) -> Made:
    m, k, n = (d.whole(1, 5) for _ in range(3))
    a, y = d.one(np.uint8, np.int8), None
    b = a if a == np.int8 else d.one(np.uint8, np.int8)
    y = a
    columns = () if d.chance(0.6) else (n,)

    def scale(shape: tuple[int, ...], low: float) -> np.ndarray:
        return np.array([d.r.uniform(low, 3 * low) for _ in range(math.prod(shape))], np.float32).reshape(shape)

    operands = (
        d.values((m, k), a),
        scale((), 0.02),
        d.values((), a),
        d.values((k, n), b),
        scale(columns, 0.02),
        d.values(columns, b),
        scale((), 0.02),
        d.values((), y),
    )
    return Made(op, d.one(10, 21), operands, held=frozenset({1, 2, 3, 4, 5, 6, 7}))
