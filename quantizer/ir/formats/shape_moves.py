"""Shapes of Top operators that move, join and sort elements.

Source: the rules of tpu-mlir's public shape inference. Pads are all begins, then all ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from quantizer.ir.formats.shape_calls import Call, Known, Shape, axes_of, axis_of, broadcast, need


def permute(call: Call) -> list[Known]:
    """Return the shape in another order of axes."""
    order = call.attrs["order"]
    need(
        sorted(order) == list(range(len(call.first))), f"order {list(order)}: must name axes 0 to {len(call.first) - 1}"
    )
    return [tuple(call.first[i] for i in order)]


def reshape(call: Call) -> list[Known]:
    """Return the requested shape, in which 0 keeps an axis and -1 is the remainder."""
    shape = call.attrs.get("shape")
    # a shape that is an operand is known only when the graph runs
    if shape is None or len(call.shapes) > 1 or call.attrs["flatten_start_dim"] != -1:
        return [None]
    fits = all(size >= -1 for size in shape) and sum(size == -1 for size in shape) <= 1
    need(fits and all(size or i < len(call.first) for i, size in enumerate(shape)), f"shape {list(shape)}: impossible")
    sizes = [size or call.first[i] for i, size in enumerate(shape)]
    count, rest = math.prod(call.first), math.prod(size for size in sizes if size != -1)
    if -1 in sizes:
        need(rest > 0 and count % rest == 0, f"shape {list(shape)} does not divide the {count} elements")
        sizes[sizes.index(-1)] = count // rest
    need(math.prod(sizes) == count, f"shape {list(shape)} is not {count} elements")
    return [tuple(sizes)]


def flatten(call: Call) -> list[Known]:
    """Return the shape with neighbouring axes as one."""
    rank = len(call.first)
    start, end = axis_of(call.attrs["start_dim"], rank), axis_of(call.attrs["end_dim"], rank)
    need(start <= end, f"start_dim {start} lies after end_dim {end}")
    return [(*call.first[:start], math.prod(call.first[start : end + 1]), *call.first[end + 1 :])]


def squeeze(call: Call) -> list[Known]:
    """Return the shape without axes of size 1."""
    axes = axes_of(call.attrs["axes"], len(call.first))
    for axis in axes:
        need(call.first[axis] == 1, f"axes {list(call.attrs['axes'])}: axis {axis} of {list(call.first)} is not 1")
    # without axes, every axis of size 1 is removed
    gone = axes or [i for i, size in enumerate(call.first) if size == 1]
    return [tuple(size for i, size in enumerate(call.first) if i not in gone) or None]


def unsqueeze(call: Call) -> list[Known]:
    """Return the shape with axes of size 1 inserted."""
    rank = len(call.first) + len(call.attrs["axes"])
    axes, sizes = axes_of(call.attrs["axes"], rank), iter(call.first)
    return [tuple(1 if i in axes else next(sizes) for i in range(rank))]


def expand(call: Call) -> list[Known]:
    """Return the shape broadcast to another."""
    shape = call.attrs["shape"]
    return [broadcast([call.first, tuple(shape)]) if shape and min(shape) > 0 and len(call.shapes) == 1 else None]


def tile(call: Call) -> list[Known]:
    """Return the shape repeated along each axis."""
    times = call.attrs.get("tile")
    if times is None or len(times) != len(call.first) or len(call.shapes) > 1:
        return [None]
    return [tuple(size * count for size, count in zip(call.first, times, strict=True))]


def concat(call: Call) -> list[Known]:
    """Return the shape of tensors concatenated along one axis."""
    axis = axis_of(call.attrs["axis"], len(call.first))
    for shape in call.shapes:
        fits = len(shape) == len(call.first) and (*shape[:axis], *shape[axis + 1 :]) == (
            *call.first[:axis],
            *call.first[axis + 1 :],
        )
        need(fits, f"shapes {list(call.first)} and {list(shape)} differ elsewhere than on axis {axis}")
    return [(*call.first[:axis], sum(shape[axis] for shape in call.shapes), *call.first[axis + 1 :])]


def split(call: Call) -> list[Known]:
    """Return the shapes of the parts along one axis."""
    axis, count = axis_of(call.attrs["axis"], len(call.first)), call.attrs["num"]
    size = call.first[axis]
    need(count > 0, f"num {count}: must be positive")
    sizes = call.attrs.get("split_size") or (size // count,) * count
    need(len(sizes) == count and sum(sizes) == size, f"sizes {list(sizes)}: must be {count} that add up to {size}")
    return [(*call.first[:axis], part, *call.first[axis + 1 :]) for part in sizes]


def cut(call: Call) -> list[Known]:
    """Return the shape of a slice with positive steps."""
    attrs, axes = call.attrs, call.attrs["axes"] or range(len(call.attrs["offset"]))
    starts, ends, steps = attrs["offset"], attrs["ends"], attrs["steps"]
    need(len(starts) == len(ends) == len(steps) == len(axes), "offset, ends, steps and axes must be of one length")
    # bounds that are operands are known only when the graph runs
    unsaid = not all(call.absent[1:]) or any(step <= 0 for step in steps)
    if unsaid or (not attrs["axes"] and (min(starts, default=0) < 0 or min(ends, default=0) < 0)):
        return [None]
    sizes = list(call.first)
    for axis, start, end, step in zip(axes_of(axes, len(sizes)), starts, ends, steps, strict=True):
        sizes[axis] = len(range(*slice(start, end, step).indices(sizes[axis])))
    return [tuple(sizes) if 0 not in sizes else None]


def pad(call: Call) -> list[Known]:
    """Return the shape with padding."""
    pads, rank = call.attrs["paddings"], len(call.first)
    need(len(pads) == 2 * rank, f"paddings {list(pads)}: must be {2 * rank} numbers, all begins, then all ends")
    return [tuple(size + pads[i] + pads[i + rank] for i, size in enumerate(call.first))]


def shape(call: Call) -> list[Known]:
    """Return the shape of the result of Shape: one axis, as long as the number of selected sizes."""
    span = slice(call.attrs.get("start"), call.attrs.get("end"), call.attrs.get("step") or 1)
    return [(len(call.first[span]),)]


def gather(call: Call) -> list[Known]:
    """Return the shape of slices taken by indices."""
    axis, places = axis_of(call.attrs["axis"], len(call.first)), call.shapes[1]
    kept = () if places == (1,) and not call.attrs["keepdims"] else places
    return [(*call.first[:axis], *kept, *call.first[axis + 1 :]) or (1,)]


def _reduced(shape: Shape, axes: Sequence[int], *, keep: bool) -> Known:
    gone = axes_of(axes, len(shape))
    return tuple(1 if i in gone else size for i, size in enumerate(shape) if keep or i not in gone) or None


def reduce(call: Call) -> list[Known]:
    """Return the shape without the reduced axes, or with 1 for each."""
    return [_reduced(call.first, call.attrs["axes"], keep=call.attrs["keepdims"])]


def arg(call: Call) -> list[Known]:
    """Return the shapes of the indices and values of extremes."""
    return [_reduced(call.first, [call.attrs["axis"]], keep=call.attrs["keepdims"])] * 2


def sort(call: Call) -> list[Known]:
    """Return the shapes of the sorted values and of their indices."""
    axis_of(call.attrs["axis"], len(call.first))
    return [call.first] * 2


def topk(call: Call) -> list[Known]:
    """Return the shapes of the K largest values and of their indices."""
    axis, count = axis_of(call.attrs["axis"], len(call.first)), call.attrs["K"]
    if len(call.shapes) > 1 or count < 0:
        return [None, None]
    need(count <= call.first[axis], f"K {count}: axis {axis} has {call.first[axis]} elements")
    return [(*call.first[:axis], count, *call.first[axis + 1 :])] * 2


def upsample(call: Call) -> list[Known]:
    """Return the shape of an image with repeated rows and columns."""
    need(len(call.first) == 4, f"input has shape {list(call.first)}: must be [n, c, h, w]")
    return [(*call.first[:2], call.first[2] * call.attrs["scale_h"], call.first[3] * call.attrs["scale_w"])]


def on_axis(call: Call) -> list[Known]:
    """Return the shape unchanged; the axis must exist."""
    axis_of(call.attrs["axis"], len(call.first))
    return [call.first]
