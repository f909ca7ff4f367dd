"""Random nodes of operators that move and pick."""

from __future__ import annotations

import math

import numpy as np
from node_values import FLOATS, INTEGERS, Draw, Made, draws, whole

ANY = (*FLOATS, *INTEGERS, bool)


@draws("Transpose", "Flatten", "Shape", "Size", "NonZero", "Trilu", "EyeLike", "GlobalAveragePool", "GlobalMaxPool")
def plain(d: Draw, op: str) -> Made:
    shape = d.shape(
        0 if op in ("Shape", "Size", "NonZero") else 2, 4, 4, 0 if d.chance(0.05) and not op.startswith("Global") else 1
    )
    x, attrs, opset = d.values(shape, d.r.choice(ANY)), {}, d.one(13, 15)
    operands: list[np.ndarray | None] = [x]
    if op == "Transpose" and d.chance(0.85):
        attrs = {"perm": d.r.sample(range(len(shape)), len(shape))}
    elif op == "Flatten":
        attrs = {"axis": d.whole(-len(shape), len(shape))} if d.chance(0.8) else {}
    elif op == "Shape":
        attrs, opset = {name: d.whole(-5, 5) for name in ("start", "end") if d.chance(0.5)}, 15
    elif op == "Trilu":
        attrs, opset = ({"upper": d.one(0, 1)} if d.chance(0.7) else {}), 14
        operands += [np.array(d.whole(-3, 3), np.int64)] if d.chance(0.6) else []
    elif op == "EyeLike":
        operands, attrs = [d.values(shape[:2], d.one(np.float32, np.int32, np.float64))], {"k": d.whole(-3, 3)}
    elif op.startswith("Global"):
        operands = [d.values((*shape[:2], *d.shape(1, 3, 4)), d.one(np.float32, np.float32, np.float64))]
        opset = d.one(13, 22)
    return Made(op, opset, tuple(operands), attrs, held=frozenset({1}) if d.chance(0.5) else frozenset())


@draws("Reshape", "Squeeze", "Unsqueeze", "Expand", "Tile", "CenterCropPad")
def reshaping(d: Draw, op: str) -> Made:
    shape, attrs, opset = d.shape(1), {}, d.one(13, 14, 21)
    x = d.values(shape, d.r.choice(ANY))
    if op == "Reshape":
        cut = d.whole(0, len(shape) - 1)
        target = d.one(
            [-1], [*shape[:cut], -1], [0] * cut + [-1], [math.prod(shape[: cut + 1]), *shape[cut + 1 :]], [1, -1, 1]
        )
        return Made(op, opset, (x, whole(*target)), {}, held=frozenset({1}))
    if op == "Squeeze":
        shape = tuple(1 if d.chance(0.5) else s for s in shape)
        axes = [i for i, s in enumerate(shape) if s == 1]
        axes = [a - len(shape) if d.chance(0.3) else a for a in axes if d.chance(0.7)]
        x = d.values(shape, d.r.choice(ANY))
        if not axes or d.chance(0.2):
            return Made(op, opset, (x,))
        return (
            Made(op, 11, (x,), {"axes": axes})
            if d.chance(0.2)
            else Made(op, 13, (x, whole(*axes)), held=frozenset({1}))
        )
    if op == "Unsqueeze":
        rank = len(shape) + d.whole(1, 2)
        axes = d.r.sample(range(rank), rank - len(shape))
        axes = [a - rank if d.chance(0.3) else a for a in axes]
        return (
            Made(op, 11, (x,), {"axes": axes})
            if d.chance(0.2)
            else Made(op, 13, (x, whole(*axes)), held=frozenset({1}))
        )
    if op == "Expand":
        narrow = d.beside(shape)
        return Made(
            op,
            13,
            (d.values(narrow, d.r.choice(ANY)), whole(*shape)),
            held=frozenset({1}) if d.chance(0.5) else frozenset(),
        )
    if op == "Tile":
        return Made(op, 13, (x, whole(*[d.whole(0 if d.chance(0.05) else 1, 3) for _ in shape])), held=frozenset({1}))
    axes = d.r.sample(range(len(shape)), d.whole(1, len(shape)))
    attrs = {"axes": [a - len(shape) if d.chance(0.3) else a for a in axes]}
    return Made(op, 18, (x, whole(*[d.whole(1, 6) for _ in axes])), attrs, held=frozenset({1}))


@draws("Concat", "Split")
def joins(d: Draw, op: str) -> Made:
    shape, kind = list(d.shape(1)), d.r.choice(ANY)
    axis = d.whole(0, len(shape) - 1)
    named = axis - len(shape) if d.chance(0.4) else axis
    if op == "Concat":
        parts = [
            tuple(d.whole(0 if d.chance(0.1) else 1, 4) if i == axis else s for i, s in enumerate(shape))
            for _ in range(d.whole(1, 4))
        ]
        return Made(op, 13, tuple(d.values(part, kind) for part in parts), {"axis": named})
    sizes = [d.whole(0 if d.chance(0.1) else 1, 3) for _ in range(d.whole(1, 4))]
    form = d.whole(0, 2)
    if form == 0:
        count = len(sizes)
        shape[axis] = max(count, d.whole(count, 3 * count))
        if (count - 1) * math.ceil(shape[axis] / count) >= shape[axis]:
            shape[axis] = 2 * count
        return Made(op, 18, (d.values(tuple(shape), kind),), {"axis": named, "num_outputs": count}, results=count)
    shape[axis] = sum(sizes)
    x = d.values(tuple(shape), kind)
    if form == 1:
        return Made(op, 11, (x,), {"axis": named, "split": sizes}, results=len(sizes))
    return Made(op, d.one(13, 18), (x, whole(*sizes)), {"axis": named}, results=len(sizes), held=frozenset({1}))


@draws("Slice")
def slicing(d: Draw, op: str) -> Made:
    shape = d.shape(1)
    x = d.values(shape, d.r.choice(ANY))
    axes = d.r.sample(range(len(shape)), d.whole(1, len(shape)))
    far = 2**63 - 1 if d.chance(0.5) else 2**31 - 1
    starts = [d.one(0, d.whole(-6, 6), far, -far) for _ in axes]
    ends = [d.one(far, d.whole(-6, 6), -far) for _ in axes]
    if d.chance(0.1):
        return Made(
            op,
            1,
            (x,),
            {"axes": axes, "starts": [max(-9, min(9, s)) for s in starts], "ends": [max(-9, min(9, e)) for e in ends]},
        )
    named = [a - len(shape) if d.chance(0.3) else a for a in axes]
    operands: list[np.ndarray | None] = [x, whole(*starts), whole(*ends)]
    if d.chance(0.8) or len(axes) < len(shape):
        operands.append(whole(*named))
        if d.chance(0.6):
            steps = [d.one(1, 2, -1, -2, 3) for _ in axes]
            ends = [-far if step < 0 and end == far else end for step, end in zip(steps, ends, strict=True)]
            operands[2] = whole(*ends)  # for a negative step, ONNX Runtime treats the largest end as the smallest
            operands.append(whole(*steps))
    else:
        operands = [x, whole(*starts), whole(*ends)]
    return Made(op, d.one(10, 11, 13), tuple(operands), held=frozenset({1, 2, 3, 4}) if d.chance(0.7) else frozenset())


@draws("Pad")
def padding(d: Draw, op: str) -> Made:
    mode = str(d.one("constant", "constant", "reflect", "edge", "wrap"))
    shape = d.shape(1, 4, 5, 2)
    kind = d.r.choice((np.float32, np.float32, np.float64, np.int32, np.int64, np.uint8, np.int8))
    low = -1 if d.chance(0.3) and mode in ("constant", "edge") else 0
    pads = [d.whole(low, min(2, s - 1)) for s in (*shape, *shape)]
    attrs = {} if mode == "constant" and d.chance(0.5) else {"mode": mode}
    opset = d.one(18, 19, 21) if mode != "wrap" else d.one(19, 21)
    operands: list[np.ndarray | None] = [d.values(shape, kind), whole(*pads)]
    if mode == "constant" and d.chance(0.6):
        operands.append(d.values((), kind))
    if d.chance(0.3):
        axes = d.r.sample(range(len(shape)), d.whole(1, len(shape)))
        operands = [
            operands[0],
            whole(*[pads[a] for a in axes], *[pads[a + len(shape)] for a in axes]),
            *(operands[2:] or [None]),
            whole(*[a - len(shape) if d.chance(0.3) else a for a in axes]),
        ]
    elif d.chance(0.2) and mode != "wrap":
        opset = d.one(11, 13)
    return Made(op, opset, tuple(operands), attrs, held=frozenset({1, 3}))


@draws("Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND", "Compress", "OneHot", "TensorScatter")
def picking(d: Draw, op: str) -> Made:
    shape = d.shape(1, 4, 4)
    kind, index = d.r.choice((*FLOATS, *INTEGERS)), d.one(np.int64, np.int64, np.int32)
    axis = d.whole(0, len(shape) - 1)
    named = axis - len(shape) if d.chance(0.4) else axis
    x = d.values(shape, kind)

    def places(sizes: tuple[int, ...], bound: int) -> np.ndarray:
        drawn = [d.whole(-bound if d.chance(0.4) else 0, bound - 1) for _ in range(math.prod(sizes))]
        return np.array(drawn, index).reshape(sizes)

    if op == "Gather":
        return Made(op, d.one(11, 13), (x, places(d.shape(0, 3, 3), shape[axis])), {"axis": named})
    if op == "Compress":
        count = d.whole(1, shape[axis])
        if d.chance(0.3):
            return Made(op, 11, (x, d.values((d.whole(1, math.prod(shape)),), bool)))
        return Made(op, 11, (x, d.values((count,), bool)), {"axis": named})
    if op == "OneHot":
        depth = d.whole(1, 5)
        sizes = d.shape(1, 3, 3)
        at = d.whole(-len(sizes) - 1, len(sizes))
        indices = np.array([d.whole(-depth - 1, depth) for _ in range(math.prod(sizes))], np.int64).reshape(sizes)
        return Made(
            op,
            11,
            (indices, np.array(d.one(depth, [depth]), np.int64), d.values((2,), np.float32)),
            {"axis": at},
            held=frozenset({1}),
        )
    if op == "GatherND":
        batch = d.whole(0, len(shape) - 1) if d.chance(0.3) else 0
        last = d.whole(1, len(shape) - batch)
        front = (*shape[:batch], *d.shape(0, 2, 3))
        indices = np.stack([places(front, shape[batch + i]) for i in range(last)], axis=-1).astype(np.int64)
        return Made(op, d.one(12, 13), (x, indices), {"batch_dims": batch} if batch or d.chance(0.3) else {})
    if op == "ScatterND":
        last = d.whole(1, len(shape))
        every = list(np.ndindex(*shape[:last]))
        picked = d.r.sample(every, d.whole(1, min(4, len(every))))
        if d.chance(0.4):
            picked.append(d.r.choice(every))
        unique = len(set(picked)) == len(picked)
        indices = np.array(picked, np.int64)
        updates = d.values((len(picked), *shape[last:]), kind)
        mode = str(d.one("none", "add", "mul", "max", "min"))
        if mode == "none" and not unique:
            mode = "add"
        return Made(op, 18, (x, indices, updates), {} if mode == "none" else {"reduction": mode})
    if op == "TensorScatter":
        b, length, width = d.whole(1, 3), d.whole(2, 5), d.whole(1, 3)
        rows = d.whole(1, length)
        circular = d.chance(0.4)
        at = [d.whole(0, length - 1 if circular else length - rows) for _ in range(b)]
        attrs = {"mode": "circular"} if circular else {}
        operands = (
            d.values((b, 2, length, width)),
            d.values((b, 2, rows, width)),
            whole(*at) if d.chance(0.8) else None,
        )
        return Made(op, 24, operands, attrs)
    sizes = tuple(d.whole(1, s) for s in shape)
    if op == "GatherElements":
        sizes = tuple(d.whole(1, 5) if i == axis else s for i, s in enumerate(sizes))
        return Made(op, d.one(11, 13), (x, places(sizes, shape[axis])), {"axis": named})
    rows = np.argsort(np.array([d.r.random() for _ in range(math.prod(shape))]).reshape(shape), axis=axis)
    indices = rows[tuple(slice(0, s) for s in sizes)].astype(index)
    mode = str(d.one("none", "add", "mul", "max", "min"))
    if mode != "none" and d.chance(0.5):
        indices = places(sizes, shape[axis])
    attrs = {"axis": named} | ({} if mode == "none" else {"reduction": mode})
    return Made(op, 18, (x, indices, d.values(sizes, kind)), attrs)


@draws("Range", "ConstantOfShape", "HannWindow", "HammingWindow", "BlackmanWindow")
def making(d: Draw, op: str) -> Made:
    if op == "Range":
        kind = d.one(np.float32, np.int64, np.int32, np.float64)
        step = d.one(1, 2, -1, 0.25 if np.dtype(kind).kind == "f" else 3, -2)
        parts = (d.whole(-5, 5), d.whole(-9, 9), step)
        return Made(op, 11, tuple(np.array(v, kind) for v in parts), held=frozenset({0, 1, 2}))
    if op == "ConstantOfShape":
        attrs = {"value": d.values((1,), d.r.choice(ANY))} if d.chance(0.7) else {}
        return Made(
            op, d.one(9, 20), (whole(*d.shape(0, 3, 3, 0 if d.chance(0.2) else 1)),), attrs, held=frozenset({0})
        )
    attrs = {"periodic": d.one(0, 1)} if d.chance(0.7) else {}
    return Made(op, 17, (np.array(d.whole(1, 12), np.int64),), attrs, held=frozenset({0}))


@draws("DepthToSpace", "SpaceToDepth")
def blocks(d: Draw, op: str) -> Made:
    b, n, c, h, w = d.whole(1, 3), d.whole(1, 2), d.whole(1, 3), d.whole(1, 3), d.whole(1, 3)
    kind = d.one(np.float32, np.float64)
    if op == "SpaceToDepth":
        return Made(op, 13, (d.values((n, c, h * b, w * b), kind),), {"blocksize": b})
    return Made(
        op,
        13,
        (d.values((n, c * b * b, h, w), kind),),
        {"blocksize": b} | ({"mode": d.one("DCR", "CRD")} if d.chance(0.7) else {}),
    )


@draws("ReverseSequence", "Dropout", "CastLike")
def others(d: Draw, op: str) -> Made:
    shape = d.shape(2, 4)
    if op == "ReverseSequence":
        batch = d.whole(0, 1)
        lengths = whole(*[d.whole(1, shape[1 - batch]) for _ in range(shape[batch])])
        return Made(op, 10, (d.values(shape, d.r.choice(ANY)), lengths), {"batch_axis": batch, "time_axis": 1 - batch})
    if op == "Dropout":
        return Made(op, d.one(12, 13), (d.values(shape),), results=d.whole(1, 2))
    kinds = (np.float32, np.float64, np.int32, np.int64, np.int8)
    return Made(op, d.one(15, 19), (d.values(shape, d.r.choice(kinds)), d.values((1,), d.r.choice(kinds))))
