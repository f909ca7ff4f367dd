"""Shapes: changed and read."""

from __future__ import annotations

from collections.abc import Sequence

from quantizer.ir.graph import AttrValue
from quantizer.lang import arguments as a
from quantizer.lang.current import get_default_graph, operator
from quantizer.lang.errors import LangError
from quantizer.lang.graph import Result
from quantizer.lang.ops.arrange import same_type
from quantizer.lang.tensor import Tensor

Sizes = Sequence[int]
SizesOrOne = Sequence[int] | int


@operator("shape")
def squeeze(tensor_i: Tensor, axis: SizesOrOne, out_name: str | None = None) -> Tensor:
    """Return the tensor without these axes of size 1."""
    a.tensor("tensor_i", tensor_i)
    chosen = a.axes("axis", axis, len(tensor_i.shape))
    if any(tensor_i.shape[i] != 1 for i in chosen):
        raise LangError(f"axis={list(chosen)} of shape {list(tensor_i.shape)}: their sizes must be 1.")
    return same_type("top.Squeeze", tensor_i, {"axes": chosen}, out_name)


@operator("shape")
def reshape(tensor: Tensor, new_shape: Sizes | Tensor, out_name: str | None = None) -> Tensor:
    """Reshape. 0 keeps the input's size at this position; a single -1 is the remaining size.

    new_shape may be a coefficient of int32.
    """
    a.tensor("tensor", tensor)
    if isinstance(new_shape, Tensor):
        a.coefficient("new_shape", new_shape, ("int32",))
        return same_type("top.Reshape", tensor, {}, out_name, new_shape)
    return same_type("top.Reshape", tensor, {"shape": a.integers("new_shape", new_shape, least=-1)}, out_name)


@operator("shape")
def shape_fetch(
    tensor_i: Tensor,
    begin_axis: int | None = None,
    end_axis: int | None = None,
    step: int = 1,
    out_name: str | None = None,
) -> Tensor:
    """Return the sizes of the axes from begin_axis up to end_axis, by step, as int32."""
    a.tensor("tensor_i", tensor_i)
    rank = len(tensor_i.shape)
    bounds: dict[str, AttrValue] = {"step": a.integer("step", step, least=1)}
    if begin_axis is not None:
        bounds["start"] = a.integer("begin_axis", begin_axis, -rank, rank - 1)
    if end_axis is not None:
        bounds["end"] = a.integer("end_axis", end_axis, -rank, rank)
    if not range(rank)[begin_axis:end_axis:step]:
        raise LangError(f"begin_axis={begin_axis}, end_axis={end_axis} of {rank} axes: must leave at least one axis.")
    return get_default_graph().add("top.Shape", [tensor_i], bounds, Result("int32"), out_name=out_name)[0]
