"""Operators that choose elements by tables, conditions and indices."""

from __future__ import annotations

import math

from quantizer.ir.graph import AttrValue
from quantizer.lang import arguments as a
from quantizer.lang.current import get_default_graph, operator
from quantizer.lang.errors import LangError
from quantizer.lang.graph import Result
from quantizer.lang.ops.compare import MODES, compared
from quantizer.lang.tensor import Scalar, Tensor

GROUP = "select"
TABLE = 256
INDICES = ("int32", "uint32", "int16", "uint16", "uint8", "int8")


@operator(GROUP)
def lut(input: Tensor, table: Tensor, out_name: str | None = None) -> Tensor:
    """Return the entry of a table of 256 at each code; a negative code counts from the end."""
    a.tensor("input", input, a.CODES)
    a.tensor("table", table, a.CODES)
    if math.prod(table.shape) != TABLE:
        raise LangError(f"table has shape {list(table.shape)}: must hold {TABLE} entries.")
    return get_default_graph().add("top.Lut", [input, table], {}, Result(table.dtype), out_name=out_name)[0]


@operator(GROUP)
def cond_select(cond: Tensor, tbrn: Tensor | Scalar, fbrn: Tensor | Scalar, out_name: str | None = None) -> Tensor:
    """Return tbrn where cond (float32) is not 0, else fbrn; both of one type, tensors of cond's shape or Scalars."""
    a.tensor("cond", cond, ("float32",))
    return _selected(cond, tbrn, fbrn, out_name)


def _selected(cond: Tensor, tbrn: Tensor | Scalar, fbrn: Tensor | Scalar, out_name: str | None) -> Tensor:
    attrs: dict[str, AttrValue] = {}
    operands: list[Tensor | None] = [cond]
    for argument, side, item in (("tbrn", "x", tbrn), ("fbrn", "y", fbrn)):
        if isinstance(item, Scalar):
            attrs[f"{side}_is_const"], attrs[f"{side}_const_val"] = True, float(item.value)
            operands.append(None)
            continue
        a.tensor(argument, item)
        if item.shape != cond.shape:
            raise LangError(f"{argument} has shape {list(item.shape)}: must be {list(cond.shape)}, the condition's.")
        operands.append(item)
    if tbrn.dtype != fbrn.dtype:
        raise LangError(f"tbrn is {tbrn.dtype}, fbrn {fbrn.dtype}: must be of one type.")
    return get_default_graph().add("top.Where", operands, attrs, Result(tbrn.dtype), out_name=out_name)[0]


@operator(GROUP)
def select(
    lhs: Tensor,
    rhs: Tensor,
    tbrn: Tensor | Scalar,
    fbrn: Tensor | Scalar,
    type: str,
    out_name: str | None = None,
) -> Tensor:
    """Return tbrn where a comparison of two float32 tensors holds, fbrn elsewhere; type is Greater, Less, Equal, ..."""
    a.tensor("lhs", lhs, ("float32",))
    a.tensor("rhs", rhs, ("float32",))
    if lhs.shape != rhs.shape:
        raise LangError(f"lhs has shape {list(lhs.shape)}, rhs {list(rhs.shape)}: must be the same.")
    mode = a.one_of("type", type, tuple(MODES.values()))
    return _selected(compared(mode, lhs, rhs), tbrn, fbrn, out_name)


def _indices(argument: str, index: Tensor, size: int) -> None:
    a.tensor(argument, index, INDICES)
    # computed indices are known only when the graph runs
    if index.buffer is not None and not -size <= int(index.buffer.min()) <= int(index.buffer.max()) < size:
        span = f"[{index.buffer.min()}, {index.buffer.max()}]"
        raise LangError(f"{argument} holds {span}: must lie in [{-size}, {size - 1}].")


@operator(GROUP)
def index_select(
    input: Tensor, index: Tensor, axis: int = -1, out_name: str | None = None, keep_dims: bool = True
) -> Tensor:
    """Return slices along one axis by indices; keep_dims False drops the axis where index is [1]."""
    a.tensor("input", input)
    along = a.axis("axis", axis, len(input.shape))
    _indices("index", index, input.shape[along])
    attrs: dict[str, AttrValue] = {"axis": along, "keepdims": a.boolean("keep_dims", keep_dims)}
    return get_default_graph().add("top.Gather", [input, index], attrs, Result(input.dtype), out_name=out_name)[0]


@operator("tail")
def scatter(input: Tensor, index: Tensor, updates: Tensor, axis: int = 0, out_name: str | None = None) -> Tensor:
    """Return the input with each update at the place that its index names along one axis; the last of equals wins."""
    a.tensor("input", input, (*a.MOVED, "int32"))
    a.tensor("updates", updates, (input.dtype,), len(input.shape))
    along = a.axis("axis", axis, len(input.shape))
    _indices("index", index, input.shape[along])
    if index.shape != updates.shape or any(
        n > m for i, (n, m) in enumerate(zip(index.shape, input.shape, strict=False)) if i != along
    ):
        raise LangError(
            f"index has shape {list(index.shape)}, updates {list(updates.shape)}: must be the same, within "
            f"{list(input.shape)} apart from axis {along}."
        )
    operands = [input, index, updates]
    attrs: dict[str, AttrValue] = {"axis": along}
    return get_default_graph().add("top.ScatterElements", operands, attrs, Result(input.dtype), out_name=out_name)[0]


@operator("tail")
def scatterND(input: Tensor, indices: Tensor, updates: Tensor, out_name: str | None = None) -> Tensor:  # noqa: N802
    """Return the input with each update, an element or a slice, at the position that the last axis of indices names."""
    a.tensor("input", input, (*a.MOVED, "int32"))
    a.tensor("indices", indices, ("uint32", "int32"))
    a.tensor("updates", updates, (input.dtype,))
    depth = indices.shape[-1]
    wanted = (*indices.shape[:-1], *input.shape[depth:])
    if depth > len(input.shape) or updates.shape != wanted:
        raise LangError(f"updates has shape {list(updates.shape)}: must be {list(wanted)}.")
    operands = [input, indices, updates]
    return get_default_graph().add("top.ScatterND", operands, {}, Result(input.dtype), out_name=out_name)[0]
