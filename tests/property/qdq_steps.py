"""The operators of random quantized graphs: each function adds one to what is drawn."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
from qdq_graphs import UNARY, Assembly, Case, Drawn, float_model, session

SMALL = 400
"""Elements above which a tensor is not spread any further."""


def unary(d: Drawn, x: str) -> None:
    """Add a function of one element."""
    op = str(d.pick(*UNARY))
    inputs = [x]
    if op == "Clip":
        low, high = sorted(d.random.choice((0.0, -1.0, 0.37, 6.0, -2.5, 3.0)) for _ in range(2))
        bounds = ["" if d.random.random() < 0.2 else d.constant(np.float32(v)) for v in (low, high)]
        inputs += bounds if bounds[1] else bounds[:1]
    attrs = {"alpha": 0.1} if op == "LeakyRelu" else {}
    d.add(op, inputs, d.shapes[x], **attrs)


def _other(d: Drawn, shape: tuple[int, ...]) -> str:
    """Return a second operand: a tensor of the same shape, or a quantized constant that broadcasts."""
    same = [
        name for name, other in d.shapes.items() if other == shape and name not in d.weights and name not in d.biases
    ]
    if same and d.random.random() < 0.5:
        return str(d.pick(*same))
    wanted = d.random.choice(
        [shape, shape[-1:], (1,) * len(shape), tuple(s if i == 1 else 1 for i, s in enumerate(shape)), ()]
    )
    return d.weight(wanted, None, 2.0, symmetric=d.random.random() < 0.5)


def binary(d: Drawn, x: str) -> None:
    """Add Add, Mul and the like, the constant on either side."""
    op = str(d.pick("Add", "Mul", "Sub", "Div", "Max", "Min", "PRelu", "Add", "Mul"))
    shape = d.shapes[x]
    if op == "PRelu":
        d.add(op, [x, d.weight((shape[1], *[1] * (len(shape) - 2)) if len(shape) > 1 else shape, None, 0.5)], shape)
        return
    other = _other(d, shape)
    if op == "Div" and other not in d.weights:
        return  # an activation reaches 0
    inputs = [x, other] if d.random.random() < 0.7 or op == "Div" else [other, x]
    d.add(op, inputs, shape)


def product(d: Drawn, x: str) -> None:
    """Add MatMul with a weight, or with another activation, or Gemm in all its forms."""
    shape = d.shapes[x]
    if len(shape) == 2 and d.random.random() < 0.6:
        gemm(d, x)
        return
    columns = d.random.randint(1, 5)
    if len(shape) >= 2 and d.random.random() < 0.25 and math.prod(shape) < SMALL:
        turned = tuple(range(len(shape) - 2)) + (len(shape) - 1, len(shape) - 2)
        other = d.add("Transpose", [x], (*shape[:-2], shape[-1], shape[-2]), perm=turned)
        d.add("MatMul", [x, other], (*shape[:-1], shape[-2]))
        return
    if d.random.random() < 0.1:
        d.add("MatMul", [x, d.weight((shape[-1],), None)], shape[:-1])
        return
    if d.random.random() < 0.2:
        weight = d.weight((columns, shape[-1]), d.random.choice((0, 1)))
        turned = d.add("Transpose", [weight], (shape[-1], columns), perm=[1, 0])
        d.add("MatMul", [x, turned], (*shape[:-1], columns))
        return
    front = (shape[0],) if len(shape) == 3 and d.random.random() < 0.3 else ()
    axis = d.random.choice((len(front) + 1, len(front) + 1, len(front)))
    d.add("MatMul", [x, d.weight((*front, shape[-1], columns), axis)], (*shape[:-1], columns))


def gemm(d: Drawn, x: str) -> None:
    """Add Gemm: transA, transB, alpha, beta, C of two axes, one, a scalar, or none."""
    rows, inner = d.shapes[x]
    left, right = d.random.choice((0, 0, 0, 1)), d.random.choice((0, 1))
    rows, inner = (inner, rows) if left else (rows, inner)
    columns = d.random.randint(1, 5)
    weight = d.weight((columns, inner) if right else (inner, columns), 0 if right else 1)
    inputs = [x, weight]
    if d.random.random() < 0.7:
        forms = [columns, columns, columns, (1, columns), (rows, columns), (rows, 1), (1,), ()]
        inputs.append(d.bias(x, weight, d.random.choice(forms)))
    attrs = (
        {}
        if d.random.random() < 0.8
        else {"alpha": d.random.choice((0.5, 1.0, 3.0)), "beta": d.random.choice((0.5, 1.0))}
    )
    d.add("Gemm", inputs, (rows, columns), transA=left, transB=right, **attrs)


def convolution(d: Drawn, x: str) -> None:
    """Add Conv or ConvTranspose, grouped and dilated at times."""
    n, c, *sizes = d.shapes[x]
    group = d.random.choice((1, 1, c, 2 if c % 2 == 0 else 1))
    kernel = [d.random.randint(1, min(3, s)) for s in sizes]
    strides = [d.random.randint(1, 2) for _ in sizes]
    pads = [d.random.randint(0, k - 1) for k in (*kernel, *kernel)]
    if d.random.random() < 0.25 and len(sizes) == 2:
        outputs = d.random.randint(1, 3)
        weight = d.weight((c, outputs, *kernel), d.random.choice((1, 1, 0)))
        after = [
            (s - 1) * t + k - pads[i] - pads[i + len(sizes)]
            for i, (s, t, k) in enumerate(zip(sizes, strides, kernel, strict=True))
        ]
        if min(after) < 1 or math.prod(after) * outputs * group > SMALL:
            return
        inputs = [x, weight] + ([d.bias(x, weight, outputs * group)] if d.random.random() < 0.6 else [])
        d.add("ConvTranspose", inputs, (n, outputs * group, *after), strides=strides, pads=pads, group=group)
        return
    outputs = group * d.random.randint(1, 2)
    weight = d.weight((outputs, c // group, *kernel), d.random.choice((0, 0, 0, 1)))
    after = [
        (s + pads[i] + pads[i + len(sizes)] - k) // t + 1
        for i, (s, t, k) in enumerate(zip(sizes, strides, kernel, strict=True))
    ]
    inputs = [x, weight] + ([d.bias(x, weight, outputs)] if d.random.random() < 0.6 else [])
    d.add("Conv", inputs, (n, outputs, *after), strides=strides, pads=pads, group=group, kernel_shape=kernel)


def pool(d: Drawn, x: str) -> None:
    """Add a pool over windows, or over everything."""
    n, c, *sizes = d.shapes[x]
    op = str(d.pick("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
    if op.startswith("Global"):
        d.add(op, [x], (n, c, *[1] * len(sizes)))
        return
    kernel = [d.random.randint(1, min(3, s)) for s in sizes]
    strides = [d.random.randint(1, 2) for _ in sizes]
    pads = [d.random.randint(0, k - 1) for k in kernel] * 2
    after = [(s + pads[i] * 2 - k) // t + 1 for i, (s, t, k) in enumerate(zip(sizes, strides, kernel, strict=True))]
    attrs = {"count_include_pad": d.random.randint(0, 1)} if op == "AveragePool" else {}
    d.add(op, [x], (n, c, *after), kernel_shape=kernel, strides=strides, pads=pads, **attrs)


def resize(d: Drawn, x: str) -> None:
    """Add Resize by whole and other factors."""
    n, c, *sizes = d.shapes[x]
    factors = [d.random.choice((1.0, 2.0, 1.5, 0.5)) for _ in sizes]
    after = [math.floor(s * f) for s, f in zip(sizes, factors, strict=True)]
    if min(after) < 1 or math.prod(after) * c > SMALL:
        return
    mode = str(d.pick("nearest", "linear"))
    form = str(d.pick("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
    if form in ("align_corners", "pytorch_half_pixel") and any(
        s * f != math.floor(s * f) for s, f in zip(sizes, factors, strict=True)
    ):
        return  # the standard divides by the size before it is truncated, ONNX Runtime by the truncated size
    scales = d.constant(np.array([1, 1, *factors], np.float32))
    d.add("Resize", [x, "", scales], (n, c, *after), mode=mode, coordinate_transformation_mode=form)


def rows(d: Drawn, x: str) -> None:
    """Add an operator that computes along an axis: Softmax, mean, sum, LayerNormalization."""
    shape = d.shapes[x]
    axis = d.random.randrange(len(shape))
    op = str(
        d.pick(
            "Softmax",
            "LogSoftmax",
            "ReduceMean",
            "ReduceSum",
            "ReduceMax",
            "ReduceMin",
            "LayerNormalization",
            "Softmax",
            "ReduceMean",
        )
    )
    if op.endswith("oftmax"):
        d.add(op, [x], shape, axis=d.random.choice((axis, -1)))
    elif op == "LayerNormalization":
        inputs = [x, d.weight(shape[-1:], None), d.weight(shape[-1:], None)]
        d.add(op, inputs[: d.random.randint(2, 3)], shape, axis=-1)
    else:
        axes = sorted({axis, d.random.randrange(len(shape))})
        keep = d.random.randint(0, 1)
        after = tuple(1 if i in axes else s for i, s in enumerate(shape) if keep or i not in axes)
        if after:
            d.add(op, [x, d.whole(*axes)], after, keepdims=keep)


def movement(d: Drawn, x: str) -> None:
    """Add an operator that moves codes."""
    shape = d.shapes[x]
    axis = d.random.randrange(len(shape))
    op = str(
        d.pick(
            "Transpose",
            "Reshape",
            "Slice",
            "Pad",
            "Gather",
            "Concat",
            "Unsqueeze",
            "Flatten",
            "Split",
            "Expand",
            "Tile",
        )
    )
    if op == "Transpose":
        order = d.random.sample(range(len(shape)), len(shape))
        d.add(op, [x], tuple(shape[i] for i in order), perm=order)
    elif op == "Reshape":
        after = d.random.choice([(-1,), (shape[0], -1), (*shape[:-1], -1, 1)])
        known = math.prod(s for s in after if s > 0)
        d.add(op, [x, d.whole(*after)], tuple(math.prod(shape) // known if s < 0 else s for s in after))
    elif op == "Slice":
        start = d.random.randrange(shape[axis])
        stop = d.random.randint(start + 1, shape[axis])
        after = tuple(stop - start if i == axis else s for i, s in enumerate(shape))
        d.add(op, [x, d.whole(start), d.whole(stop), d.whole(axis)], after)
    elif op == "Pad":
        sizes = [d.random.randint(0, 2) if i == axis else 0 for i in range(len(shape))]
        mode = str(d.pick("constant", "constant", "edge"))
        value = (
            [d.constant(np.float32(d.random.choice((0.0, 0.5, -1.0, 0.3))))]
            if mode == "constant" and d.random.random() < 0.6
            else []
        )
        d.add(
            op,
            [x, d.whole(*sizes, *sizes), *value],
            tuple(s + 2 * p for s, p in zip(shape, sizes, strict=True)),
            mode=mode,
        )
    elif op == "Gather":
        picks = [d.random.randrange(-shape[axis], shape[axis]) for _ in range(d.random.randint(1, 3))]
        d.add(op, [x, d.whole(*picks)], tuple(len(picks) if i == axis else s for i, s in enumerate(shape)), axis=axis)
    elif op == "Concat" and math.prod(shape) < SMALL:
        other = _other(d, shape)
        other = other if d.shapes[other] == shape else x
        d.add(op, [x, other], tuple(2 * s if i == axis else s for i, s in enumerate(shape)), axis=axis)
    elif op == "Unsqueeze" and len(shape) < 4:
        d.add(op, [x, d.whole(axis)], (*shape[:axis], 1, *shape[axis:]))
    elif op == "Flatten":
        d.add(op, [x], (math.prod(shape[:1]), math.prod(shape[1:])), axis=1)
    elif op == "Expand" and math.prod(shape) < SMALL:
        d.add(op, [x, d.whole(2, *shape)], (2, *shape)) if len(shape) < 4 else None
    elif op == "Tile" and math.prod(shape) < SMALL:
        d.add(
            op,
            [x, d.whole(*[2 if i == axis else 1 for i in range(len(shape))])],
            tuple(2 * s if i == axis else s for i, s in enumerate(shape)),
        )


STEPS: tuple[tuple[Callable[[Drawn, str], None], int], ...] = (
    (unary, 1),
    (binary, 1),
    (product, 1),
    (product, 1),
    (convolution, 3),
    (convolution, 3),
    (pool, 3),
    (resize, 4),
    (rows, 1),
    (movement, 1),
)
"""What may be drawn, and how many axes it needs."""


def step(d: Drawn) -> None:
    """Add one operator to the newest tensors."""
    usable = [name for name in d.shapes if name == "x" or name.startswith("t")]
    x = str(d.pick(*usable[-3:]))
    able = [
        function for function, rank in STEPS if len(d.shapes[x]) >= rank and (rank < 3 or len(d.shapes[x]) in (3, 4))
    ]
    if d.shapes[x]:
        d.random.choice(able)(d, x)


FORMATS = (
    ("uint8",),
    ("int8",),
    ("uint8", "int8"),
    ("uint16",),
    ("int16",),
    ("int16", "uint16"),
    ("int4",),
    ("uint4", "int4"),
    ("uint8", "int4"),
    ("uint8", "int16"),
    ("int4", "uint8", "int16", "uint16"),
)


def drawn_case(seed: int, size: int) -> Case | None:
    """Return the case of a seed with up to *size* operators; None if ONNX Runtime refuses its float form."""
    source = random.Random(seed)
    d = Drawn(source, source.choice(FORMATS), source.random() < 0.5)
    rank = source.choice((2, 2, 3, 4, 4, 4))
    d.shapes["x"] = tuple(source.randint(1, 5) for _ in range(rank))
    tries = 0
    while len(d.nodes) < size and tries < 4 * size:
        step(d)
        tries += 1
    if not d.nodes:
        return None
    x = d.normal(d.shapes["x"]) * np.float32(source.choice((0.3, 1.0, 8.0)))
    try:
        found = session(float_model(d), optimized=False).run(None, {"x": x})
    except Exception:  # noqa: BLE001 - what it raises has no class of its own
        return None
    reached = {"x": x} | {
        node.output[0]: np.nan_to_num(v, posinf=9.0, neginf=-9.0) for node, v in zip(d.nodes, found, strict=True)
    }
    if any(not v.size for v in reached.values()):
        return None
    assembly = Assembly(d, reached)
    model = assembly.model()
    return Case(seed, model, {"x": x}, assembly.grids, tuple(node.op_type for node in d.nodes))
