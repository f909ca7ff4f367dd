"""Operators that move or reduce elements, and operators that reorder them."""

from __future__ import annotations

from collections.abc import Sequence

from quantizer.ir.graph import AttrValue
from quantizer.lang import arguments as a
from quantizer.lang.current import get_default_graph, operator
from quantizer.lang.errors import LangError
from quantizer.lang.graph import Result
from quantizer.lang.tensor import Scalar, Tensor

GROUP = "arrange"
Sizes = Sequence[int]
SizesOrOne = Sequence[int] | int
REDUCTIONS = ("ReduceMin", "ReduceMax", "ReduceMean", "ReduceProd", "ReduceL2", "ReduceL1", "ReduceSum")


def same_type(top: str, x: Tensor, attrs: dict[str, AttrValue], out_name: str | None, *more: Tensor) -> Tensor:
    """Add an operator whose result has the operand's type."""
    return get_default_graph().add(top, [x, *more], attrs, Result(x.dtype), out_name=out_name)[0]


@operator(GROUP)
def permute(input: Tensor, order: Sizes, out_name: str | None = None) -> Tensor:
    """Return the axes in another order."""
    a.tensor("input", input)
    rank = len(input.shape)
    found = a.axes("order", order, rank)
    if len(found) != rank:
        raise LangError(f"order={list(order)}: must name every one of {rank} axes once.")
    return same_type("top.Permute", input, {"order": found}, out_name)


@operator(GROUP)
def tile(input: Tensor, reps: Sizes, out_name: str | None = None) -> Tensor:
    """Return the tensor repeated as a whole, a given number of times along each axis."""
    a.tensor("input", input, a.MOVED)
    return same_type("top.Tile", input, {"tile": a.integers("reps", reps, len(input.shape), least=1)}, out_name)


@operator(GROUP)
def repeat(input: Tensor, reps: Tensor, out_name: str | None = None) -> Tensor:
    """Do the same as `tile`, with the counts in a coefficient of int32."""
    a.tensor("input", input, a.MOVED)
    counts = a.coefficient("reps", reps, ("int32",))
    assert counts.buffer is not None
    if counts.shape != (len(input.shape),) or int(counts.buffer.min()) < 1:
        raise LangError(f"reps {counts.buffer.tolist()}: must be one count of at least 1 for each axis.")
    return same_type("top.Repeat", input, {}, out_name, reps)


@operator(GROUP)
def broadcast(input: Tensor, reps: Sizes, out_name: str | None = None) -> Tensor:
    """Return the tensor broadcast to the shape *reps*."""
    a.tensor("input", input, a.MOVED)
    wanted = a.integers("reps", reps, least=1)
    own = (1,) * (len(wanted) - len(input.shape)) + input.shape
    if len(own) != len(wanted) or any(n not in (1, m) for n, m in zip(own, wanted, strict=True)):
        raise LangError(f"reps={list(wanted)}: {list(input.shape)} must broadcast to it.")
    return same_type("top.Expand", input, {"shape": wanted}, out_name)


@operator(GROUP)
def concat(
    inputs: Sequence[Tensor],
    scales: Sequence[float] | None = None,
    zero_points: Sequence[int] | None = None,
    axis: int = 0,
    out_name: str | None = None,
    dtype: str = "float32",
    round_mode: str = "half_away_from_zero",
) -> Tensor:
    """Return tensors one after the other along an axis.

    scales and zero_points are those of every input and of the result; codes of other grids are requantized. dtype
    only repeats the type of the inputs.
    """
    if not isinstance(inputs, list | tuple) or len(inputs) < 2:
        raise LangError(f"inputs={inputs!r}: must be a list of two tensors or more.")
    first = a.tensor("inputs[0]", inputs[0])
    for i, item in enumerate(inputs):
        a.tensor(f"inputs[{i}]", item, (first.dtype,), len(first.shape))
    along = a.axis("axis", axis, len(first.shape))
    for i, item in enumerate(inputs):
        if any(n != m for j, (n, m) in enumerate(zip(item.shape, first.shape, strict=True)) if j != along):
            raise LangError(
                f"inputs[{i}] has shape {list(item.shape)}, inputs[0] {list(first.shape)}: must differ along "
                f"axis {along} only."
            )
    a.one_of("dtype", dtype, (*a.MOVED, "int32", "uint32"))
    given, zeros = a.pairs(scales, zero_points, len(inputs) + 1)
    graph, result = get_default_graph(), Result(first.dtype)
    if given is not None and zeros is not None:
        for item, scale, zero in zip(inputs, given, zeros, strict=False):
            graph.quantize(item, scale, zero)
        result = Result(first.dtype, "", given[-1], zeros[-1])
    attrs: dict[str, AttrValue] = {"axis": along, "round_mode": a.rounding("round_mode", round_mode)}
    return graph.add("top.Concat", list(inputs), attrs, result, out_name=out_name)[0]


@operator(GROUP)
def nonzero(input: Tensor, dtype: str = "int32", out_name: str | None = None) -> Tensor:
    """Return the indices of the elements that are not 0, one row for each element.

    Their number is known only when the graph runs.
    """
    a.tensor("input", input, a.FLOATS)
    result = Result(a.one_of("dtype", dtype, ("int32", "float32")))
    return get_default_graph().add("top.NonZero", [input], {"order": "ColMajor"}, result, out_name=out_name)[0]


@operator(GROUP)
def upsample(input: Tensor, scale: int = 2, out_name: str | None = None) -> Tensor:
    """Return each element of an image repeated *scale* times along height and width."""
    a.tensor("input", input, (*a.FLOATS, "int8"), 4)
    factor = a.integer("scale", scale, least=1)
    return same_type("top.Upsample", input, {"scale_h": factor, "scale_w": factor}, out_name)


@operator(GROUP)
def reduce(
    input: Tensor,
    method: str = "ReduceSum",
    axes: SizesOrOne = (1, 2),
    keep_dims: bool = True,
    out_name: str | None = None,
) -> Tensor:
    """Return a minimum, maximum, mean, sum, product or norm over axes."""
    a.tensor("input", input, a.FLOATS)
    attrs: dict[str, AttrValue] = {
        "mode": a.one_of("method", method, REDUCTIONS),
        "axes": a.axes("axes", axes, len(input.shape)),
        "keepdims": a.boolean("keep_dims", keep_dims),
    }
    return same_type("top.Reduce", input, attrs, out_name)


@operator(GROUP)
def unsqueeze(input: Tensor, axes: SizesOrOne = (1, 2), out_name: str | None = None) -> Tensor:
    """Return the tensor with axes of size 1 inserted at these positions of the result."""
    a.tensor("input", input)
    count = 1 if isinstance(axes, int) else len(axes)
    return same_type("top.Unsqueeze", input, {"axes": a.axes("axes", axes, len(input.shape) + count)}, out_name)


@operator(GROUP)
def split(input: Tensor, axis: int = 0, num: int = 1, size: Sizes = (), out_name: str | None = None) -> list[Tensor]:
    """Return *num* parts along an axis, of equal sizes or of the sizes in *size*; their names end with _0, _1, ..."""
    a.tensor("input", input, a.MOVED)
    along, count = a.axis("axis", axis, len(input.shape)), a.integer("num", num, least=2)
    attrs: dict[str, AttrValue] = {"axis": along, "num": count}
    total = input.shape[along]
    if len(size):
        sizes = a.integers("size", size, count, least=1)
        if sum(sizes) != total:
            raise LangError(f"size={list(sizes)}: must add up to {total}, the size of axis {along}.")
        attrs["split_size"] = sizes
    elif total % count:
        raise LangError(f"num={count}: must divide {total}, the size of axis {along}.")
    results = [Result(input.dtype, f"_{i}") for i in range(count)]
    return get_default_graph().add("top.Split", [input], attrs, *results, out_name=out_name)


def _listed(value: SizesOrOne | None) -> Sizes | None:
    return [value] if isinstance(value, int) and not isinstance(value, bool) else value  # type: ignore[return-value]


def _sliced(
    x: Tensor, starts: tuple[int, ...], ends: tuple[int, ...], steps: tuple[int, ...], axes: tuple[int, ...] | None
) -> dict[str, AttrValue]:
    """Return the attributes of a slice; every axis must keep at least one element."""
    where = tuple(range(len(starts))) if axes is None else axes
    for axis, start, end, step in zip(where, starts, ends, steps, strict=True):
        if step == 0:
            raise LangError(f"steps={list(steps)}: must not be 0.")
        size = x.shape[axis]
        if not range(*_bounds(start, end, step, size)):
            raise LangError(f"starts={start}, ends={end}, steps={step} of axis {axis} of size {size}: leaves nothing.")
    attrs: dict[str, AttrValue] = {"offset": starts, "steps": steps, "ends": ends}
    return attrs if axes is None else attrs | {"axes": axes}


def _slice(x: Tensor, attrs: dict[str, AttrValue], out_name: str | None) -> Tensor:
    """Add a slice with bounds as attributes, without operands for computed bounds."""
    return get_default_graph().add("top.Slice", [x, None, None, None], attrs, Result(x.dtype), out_name=out_name)[0]


def _bounds(start: int, end: int, step: int, size: int) -> tuple[int, int, int]:
    """Return the bounds of a range over an axis; negative ones count from the end, ones beyond are moved to it."""
    low, high = (value + size if value < 0 else value for value in (start, end))
    # a range that runs backwards ends before index 0, which is -1
    least, most = (0, size) if step > 0 else (-1, size - 1)
    return min(max(low, least), most), min(max(high, least), most), step


@operator(GROUP)
def slice(
    input: Tensor,
    starts: SizesOrOne,
    ends: SizesOrOne,
    steps: SizesOrOne | None = None,
    axes: SizesOrOne | None = None,
    out_name: str | None = None,
) -> Tensor:
    """Return elements from starts to ends by steps, along *axes* or the first ones.

    Negative bounds count from the end.
    """
    a.tensor("input", input)
    first = a.integers("starts", _listed(starts))
    last = a.integers("ends", _listed(ends), len(first))
    by = a.integers("steps", _listed(steps), len(first), (1,) * len(first))
    along = None if axes is None else a.axes("axes", axes, len(input.shape))
    if len(first) > len(input.shape) or (along is not None and len(along) != len(first)):
        raise LangError(f"starts={list(first)}: must be one for each of axes, or at most {len(input.shape)}.")
    return _slice(input, _sliced(input, first, last, by, along), out_name)


@operator(GROUP)
def extract(
    input: Tensor,
    start: Sizes | None = None,
    end: Sizes | None = None,
    stride: Sizes | None = None,
    out_name: str | None = None,
) -> Tensor:
    """Return elements from start up to end by stride, with one start, end and stride for every axis."""
    a.tensor("input", input, a.MOVED)
    rank = len(input.shape)
    first = a.integers("start", start, rank, (0,) * rank)
    last = a.integers("end", end, rank, input.shape)
    by = a.integers("stride", stride, rank, (1,) * rank)
    return _slice(input, _sliced(input, first, last, by, None), out_name)


@operator(GROUP)
def pad(
    input: Tensor,
    method: str = "constant",
    value: Scalar | float | None = None,
    padding: Sizes | None = None,
    out_name: str | None = None,
) -> Tensor:
    """Return the padded tensor: padded with one real number, its reflection, its symmetric reflection or its edge.

    padding is all begins, then all ends. symmetric repeats the edge, reflect does not.
    """
    a.tensor("input", input, a.MOVED)
    a.one_of("method", method, ("constant", "reflect", "symmetric", "edge"))
    places = a.integers("padding", padding, 2 * len(input.shape), (0,) * (2 * len(input.shape)), least=0)
    room = {"reflect": 1, "symmetric": 0}.get(method)
    # all begins come first, then all ends, so the axis of a number is its place modulo the rank
    if room is not None and any(n > input.shape[i % len(input.shape)] - room for i, n in enumerate(places)):
        raise LangError(
            f"padding={list(places)}: of {method} must be at most the sizes {list(input.shape)} less {room}."
        )
    number = 0.0 if value is None else float(a.scalar("value", value, input).value)
    return same_type("top.Pad", input, {"paddings": places, "val": number, "mode": method}, out_name)


@operator(GROUP)
def roll(input: Tensor, shifts: SizesOrOne, dims: SizesOrOne | None = None, out_name: str | None = None) -> Tensor:
    """Return elements moved cyclically by shifts along dims; without dims, along all elements in order.

    It is written as slices that are joined again, as in the original.
    """
    a.tensor("input", input, a.MOVED)
    if dims is None:
        flat = same_type("top.Reshape", input, {"shape": (-1,)}, None)
        moved = _rolled(flat, a.integer("shifts", shifts), 0, None)
        return same_type("top.Reshape", moved, {"shape": input.shape}, out_name)
    along = a.axes("dims", dims, len(input.shape))
    by = a.integers("shifts", _listed(shifts), len(along))
    moved = input
    for i, (axis, shift) in enumerate(zip(along, by, strict=True)):
        moved = _rolled(moved, shift, axis, out_name if i == len(along) - 1 else None)
    return moved


def _rolled(x: Tensor, shift: int, axis: int, out_name: str | None) -> Tensor:
    size = x.shape[axis]
    cut = size - shift % size
    # a shift by whole turns moves nothing
    if cut == size:
        ones = (1,) * len(x.shape)
        return same_type("top.Copy", x, {"shape": x.shape, "input_stride": ones, "output_stride": ones}, out_name)
    parts = [_slice(x, _sliced(x, (low,), (high,), (1,), (axis,)), None) for low, high in ((cut, size), (0, cut))]
    return get_default_graph().add("top.Concat", parts, {"axis": axis}, Result(x.dtype), out_name=out_name)[0]
