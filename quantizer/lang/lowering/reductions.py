"""Reductions, positions of extremes, sorting."""

from __future__ import annotations

from quantizer.lang.lowering.emitter import Value
from quantizer.lang.lowering.lower import Call, lowers


@lowers("Reduce")
def reduce(c: Call) -> Value:
    """Reduce axes by minimum, maximum, mean, sum, product or norm."""
    keep = int(c.attr("keepdims"))
    return c.made(c.e.op(c.attr("mode"), c.real(), list(c.attr("axes")), keepdims=keep, noop_with_empty_axes=0))


@lowers("Arg")
def arg(c: Call) -> list[Value]:
    """Return the index of the extreme along one axis (the first if several are equal), and the extreme."""
    x, axis, keep = c.value(), c.attr("axis"), int(c.attr("keepdims"))
    place = c.e.op(c.attr("mode"), x, axis=axis, keepdims=keep, select_last_index=0)
    mode = "ReduceMax" if c.attr("mode") == "ArgMax" else "ReduceMin"
    extreme = c.e.op(mode, x, [axis], keepdims=keep, noop_with_empty_axes=0)
    return [c.e.cast(place, c.outputs[0].dtype), extreme]


@lowers("Sort")
def sort(c: Call) -> list[Value]:
    """Return the elements sorted along one axis, and their indices before sorting; equal elements keep their order."""
    x, axis = c.value(), c.attr("axis")
    # a TopK of all elements sorts them
    return _ordered(c, x, axis, x.shape[axis], largest=c.attr("descending"))


@lowers("TopK")
def topk(c: Call) -> list[Value]:
    """Return the K largest along one axis in order, and their indices; equal elements in the order of their indices."""
    return _ordered(c, c.value(), c.attr("axis"), c.attr("K"), largest=c.attr("largest"))


def _ordered(c: Call, x: Value, axis: int, count: int, *, largest: bool) -> list[Value]:
    values, places = c.e.ops("TopK", 2, x, [count], axis=axis, largest=int(largest), sorted=1)
    return [values, c.e.cast(places, "int32")]
