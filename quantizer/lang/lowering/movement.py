"""Operators that move elements; codes do not change."""

from __future__ import annotations

import torch

from quantizer.core.errors import UnsupportedError
from quantizer.ir.graph import FREE
from quantizer.lang.lowering.emitter import Value
from quantizer.lang.lowering.lower import Call, lowers
from quantizer.numerics.qparams import QParams


@lowers("Copy")
def copy(c: Call) -> Value:
    """Return the operand; strides other than 1 are refused."""
    if {*c.attr("input_stride"), *c.attr("output_stride")} - {1}:
        raise UnsupportedError("top.Copy with strides: every one must be 1.")
    return c.e.op("Identity", c.value())


@lowers("Permute")
def permute(c: Call) -> Value:
    """Put the axes into another order."""
    return c.e.op("Transpose", c.value(), perm=c.attr("order"))


@lowers("Reshape")
def reshape(c: Call) -> Value:
    """Reshape: a size of 0 keeps that of the operand, -1 is the remainder."""
    if c.has(1):
        return c.e.op("Reshape", c.value(), _constant(c, 1), allowzero=0)
    return c.e.op("Reshape", c.value(), list(c.attr("shape")), allowzero=0)


def _constant(c: Call, i: int) -> Value:
    """Return operand *i* as int64; it must be known before the graph runs."""
    value = c.e.cast(c.value(i), "int64")
    if value.data is None:
        raise UnsupportedError(f"operand {i} of {c.node.op} decides a shape: must be a coefficient.")
    return value


@lowers("Flatten")
def flatten(c: Call) -> Value:
    """Join the axes from start_dim to end_dim into one."""
    x = c.value()
    first, last = c.attr("start_dim") % x.rank, c.attr("end_dim") % x.rank
    return c.e.op("Reshape", x, [*x.shape[:first], -1, *x.shape[last + 1 :]], allowzero=0)


@lowers("Squeeze", "Unsqueeze")
def axes_of_one(c: Call) -> Value:
    """Remove or insert axes of size 1."""
    return c.e.op(c.node.op.removeprefix("top."), c.value(), list(c.attr("axes")))


@lowers("Expand")
def expand(c: Call) -> Value:
    """Broadcast to a shape."""
    return c.e.op("Expand", c.value(), list(c.attr("shape")))


@lowers("Tile")
def tile(c: Call) -> Value:
    """Repeat the whole tensor along each axis."""
    return c.e.op("Tile", c.value(), list(c.attr("tile")))


@lowers("Repeat")
def repeat(c: Call) -> Value:
    """Repeat as Tile does, with the counts in a tensor."""
    return c.e.op("Tile", c.value(), _constant(c, 1))


@lowers("Concat")
def concat(c: Call) -> Value:
    """Concatenate along an axis; codes are requantized if their grid differs from the result's."""
    target, axis = c.outputs[0], c.attr("axis")
    same = all(
        _same_parameters(c.params(i), target.qparams) and c.value(i).dtype == target.dtype for i in range(len(c.values))
    )
    if same:
        return c.e.op("Concat", *[c.value(i) for i in range(len(c.values))], axis=axis)
    # codes of another grid become real numbers first
    return c.made(c.e.op("Concat", *[c.real(i) for i in range(len(c.values))], axis=axis), mode=c.attr("round_mode"))


def _same_parameters(own: QParams | None, target: QParams | None) -> bool:
    if own is None or target is None:
        return own is target
    return bool(torch.equal(own.scale, target.scale)) and bool(torch.equal(own.zero_point, target.zero_point))


@lowers("Split")
def split(c: Call) -> list[Value]:
    """Split along an axis into parts of given or of equal sizes."""
    x, axis, count = c.value(), c.attr("axis"), c.attr("num")
    sizes = list(c.attr("split_size") or ())
    if not sizes:
        if x.shape[axis] % count:
            raise UnsupportedError(f"axis {axis} of size {x.shape[axis]} into {count}: must divide, or give the sizes.")
        sizes = [x.shape[axis] // count] * count
    return c.e.ops("Split", count, x, sizes, axis=axis)


@lowers("Slice")
def slice_(c: Call) -> Value:
    """Take elements from offset up to end by steps, along the named axes or the first ones."""
    offset, ends, steps = (list(c.attr(name)) for name in ("offset", "ends", "steps"))
    axes = list(c.attr("axes")) or list(range(len(offset)))
    return c.e.op("Slice", c.value(), offset, ends, axes, steps)


@lowers("Pad")
def pad(c: Call) -> Value:
    """Pad x with one number, its reflection (with or without edge) or its edge; pads: all begins, then all ends."""
    x, pads, mode = c.value(), list(c.attr("paddings")), c.attr("mode")
    if mode == "symmetric":
        return _symmetric(c, x, pads)
    if mode != "constant":
        return c.e.op("Pad", x, pads, mode=mode)
    return c.e.op("Pad", x, pads, _fill(c, x), mode="constant")


def _fill(c: Call, x: Value) -> Value:
    """Return the padding value, as a code if the operand has codes."""
    number, params = float(c.attr("val")), c.params()
    kind = getattr(torch, x.dtype.name)
    if not x.dtype.is_integer:
        return c.e.constant(torch.tensor(number).to(kind), x.dtype)
    if params is not None:
        number = number / float(params.scale.reshape(-1)[0]) + float(params.zero_point.reshape(-1)[0])
    code = max(x.dtype.min, min(x.dtype.max, round(number)))
    return c.e.constant(torch.tensor(code, dtype=torch.int64).to(kind), x.dtype)


def _symmetric(c: Call, x: Value, pads: list[int]) -> Value:
    """Return x with its mirror image, edge included, on both sides of each axis."""
    for axis in range(x.rank):
        before, after, size = pads[axis], pads[axis + x.rank], x.shape[axis]
        if max(before, after) > size:
            raise UnsupportedError(f"paddings {pads}: symmetric ones must be at most the size {size} of axis {axis}.")
        # ONNX's Pad has no such mode, so a Gather picks the mirrored places
        places = [*reversed(range(before)), *range(size), *reversed(range(size - after, size))]
        if len(places) > size:
            x = c.e.op("Gather", x, torch.tensor(places, dtype=torch.int64), axis=axis)
    return x


@lowers("Shape")
def shape(c: Call) -> Value:
    """Return the sizes of the axes from start up to end, by step, as int32."""
    x = c.value()
    sizes = x.shape[slice(c.attr("start"), c.attr("end"), c.attr("step") or 1)]
    whole = c.e.op("Shape", x, start=0)
    places = torch.arange(x.rank)[slice(c.attr("start"), c.attr("end"))][:: c.attr("step") or 1]
    assert len(places) == len(sizes)
    return c.e.cast(c.e.op("Gather", whole, places, axis=0), "int32")


@lowers("Gather")
def gather(c: Call) -> Value:
    """Pick slices along one axis by indices."""
    index = c.e.cast(c.value(1), "int64")
    picked = c.e.op("Gather", c.value(), index, axis=c.attr("axis"))
    if c.attr("keepdims") or index.rank != 1 or index.shape[0] != 1:
        return picked
    return c.e.op("Squeeze", picked, [c.attr("axis")])


@lowers("ScatterElements")
def scatter_elements(c: Call) -> Value:
    """Write each update to the place along one axis that its index names."""
    index = c.e.cast(c.value(1), "int64")
    return c.e.op("ScatterElements", c.value(), index, c.value(2), axis=c.attr("axis"), reduction="none")


@lowers("ScatterND")
def scatter_nd(c: Call) -> Value:
    """Write each update to the place that the last axis of the indices names."""
    return c.e.op("ScatterND", c.value(), c.e.cast(c.value(1), "int64"), c.value(2), reduction="none")


@lowers("NonZero")
def non_zero(c: Call) -> Value:
    """Return the indices of the elements that are not 0, one row for each element."""
    x, kind = c.value(), c.outputs[0].dtype.name
    places = c.e.free("NonZero", x, "int64", (x.rank, FREE))
    # ONNX lists indices axis by axis
    rows = c.e.free("Transpose", places, "int64", (FREE, x.rank), perm=(1, 0))
    return c.e.cast(rows if c.attr("order") == "ColMajor" else places, kind)
