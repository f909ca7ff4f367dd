"""Sorting, and indices of extremes."""

from __future__ import annotations

from quantizer.ir.graph import AttrValue
from quantizer.lang import arguments as a
from quantizer.lang.current import get_default_graph, operator
from quantizer.lang.errors import LangError
from quantizer.lang.graph import Result
from quantizer.lang.tensor import Tensor

GROUP = "sort"
ORDERED = (*a.FLOATS_AND_CODES, "int16", "int32")


@operator(GROUP)
def arg(
    input: Tensor, method: str = "max", axis: int = 0, keep_dims: bool = True, out_name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Return the index of the extreme along one axis (the first if several are equal), and the extreme.

    The index is float32 for float32 inputs, else int32. The names end with _ind and _val.
    """
    a.tensor("input", input, ("float32", "float16", *a.CODES, "int32"))
    mode = {"max": "ArgMax", "min": "ArgMin"}[a.one_of("method", method, ("max", "min"))]
    attrs: dict[str, AttrValue] = {
        "axis": a.axis("axis", axis, len(input.shape)),
        "keepdims": a.boolean("keep_dims", keep_dims),
        "mode": mode,
        "select_last_index": False,
    }
    kind = "float32" if input.dtype == "float32" else "int32"
    results = (Result(kind, "_ind"), Result(input.dtype, "_val"))
    place, extreme = get_default_graph().add("top.Arg", [input], attrs, *results, out_name=out_name)
    return place, extreme


def _order(input: Tensor, axis: int, descending: bool) -> dict[str, AttrValue]:
    a.tensor("input", input, ORDERED)
    return {"axis": a.axis("axis", axis, len(input.shape)), "descending": a.boolean("descending", descending)}


@operator(GROUP)
def sort(input: Tensor, axis: int = -1, descending: bool = True, out_name: str | None = None) -> tuple[Tensor, Tensor]:
    """Return the elements sorted along one axis, and their indices; equal elements keep their order."""
    results = (Result(input.dtype, "_val"), Result("int32", "_ind"))
    attrs = _order(input, axis, descending)
    values, places = get_default_graph().add("top.Sort", [input], attrs, *results, out_name=out_name)
    return values, places


@operator(GROUP)
def argsort(input: Tensor, axis: int = -1, descending: bool = True, out_name: str | None = None) -> Tensor:
    """Return the indices that sort the elements."""
    results = (Result(input.dtype, used=False), Result("int32"))
    return get_default_graph().add("top.Sort", [input], _order(input, axis, descending), *results, out_name=out_name)[0]


@operator(GROUP)
def sort_by_key(
    input: Tensor, key: Tensor, axis: int = -1, descending: bool = True, out_name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Return slices along one axis sorted by their keys, and the sorted keys; key has one number for each slice."""
    a.tensor("input", input)
    along = a.axis("axis", axis, len(input.shape))
    a.tensor("key", key, ORDERED, 1)
    if key.shape[0] != input.shape[along]:
        raise LangError(f"key has shape {list(key.shape)}: must be [{input.shape[along]}], the size of axis {along}.")
    graph = get_default_graph()
    ordered = {"axis": 0, "descending": a.boolean("descending", descending)}
    # one name for the results of both operators
    base = out_name or graph.fresh_name()
    results = (Result(key.dtype, "_sorted_key"), Result("int32", "_interm"))
    keys, places = graph.add("top.Sort", [key], ordered, *results, out_name=base)
    result = Result(input.dtype, "_sorted_out")
    found = graph.add("top.Gather", [input, places], {"axis": along}, result, out_name=base)[0]
    return found, keys


@operator("vision")
def topk(input: Tensor, axis: int, k: int, out_name: str | None = None) -> tuple[Tensor, Tensor]:
    """Return the k largest elements along one axis in order, and their indices; the names end with _val and _ind."""
    a.tensor("input", input, ORDERED)
    along = a.axis("axis", axis, len(input.shape))
    attrs: dict[str, AttrValue] = {"axis": along, "K": a.integer("k", k, 1, input.shape[along])}
    results = (Result(input.dtype, "_val"), Result("int32", "_ind"))
    values, places = get_default_graph().add("top.TopK", [input], attrs, *results, out_name=out_name)
    return values, places
