"""Comparisons: 1 where they hold and 0 elsewhere, in the operands' type. Codes are compared as real values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from quantizer.ir.graph import AttrValue
from quantizer.lang import arguments as a
from quantizer.lang.current import get_default_graph, operator
from quantizer.lang.errors import LangError
from quantizer.lang.graph import Result
from quantizer.lang.tensor import Scalar, Tensor

MODES = {"gt": "Greater", "lt": "Less", "ge": "GreaterOrEqual", "le": "LessOrEqual", "eq": "Equal", "ne": "NotEqual"}
Scales = Sequence[float] | None
Zeros = Sequence[int] | None


class Compare(Protocol):
    """A comparison of two tensors of one type; scale is [both, both, result]."""

    def __call__(
        self,
        tensor_i0: Tensor,
        tensor_i1: Tensor,
        scale: Scales = None,
        zero_point: Zeros = None,
        out_name: str | None = None,
    ) -> Tensor:
        """Add the operator and return its result."""
        ...


class CompareConst(Protocol):
    """A comparison of a tensor with a real number; scale is [tensor, result]."""

    def __call__(
        self,
        tensor_i0: Tensor,
        scalar_i1: Scalar | float,
        scale: Scales = None,
        zero_point: Zeros = None,
        out_name: str | None = None,
    ) -> Tensor:
        """Add the operator and return its result."""
        ...


def compared(
    mode: str, t0: Tensor, t1: Tensor, scale: Scales = None, zero_point: Zeros = None, out_name: str | None = None
) -> Tensor:
    """Add a comparison of two tensors."""
    a.tensor("tensor_i0", t0, a.FLOATS_AND_CODES)
    a.tensor("tensor_i1", t1, (t0.dtype,))
    scales, zeros = a.pairs(scale, zero_point, 3)
    graph, result = get_default_graph(), Result(t0.dtype)
    if scales is not None and zeros is not None:
        if scales[0] != scales[1] or zeros[0] != zeros[1]:
            raise LangError(f"scale={list(scales)}, zero_point={list(zeros)}: both operands must have the same.")
        graph.quantize(t0, scales[0], zeros[0])
        graph.quantize(t1, scales[1], zeros[1])
        result = Result(t0.dtype, "", scales[2], zeros[2])
    return graph.add("top.Compare", [t0, t1], {"mode": mode}, result, out_name=out_name)[0]


def _tensors(name: str) -> Compare:
    def function(
        tensor_i0: Tensor,
        tensor_i1: Tensor,
        scale: Scales = None,
        zero_point: Zeros = None,
        out_name: str | None = None,
    ) -> Tensor:
        return compared(MODES[name], tensor_i0, tensor_i1, scale, zero_point, out_name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return 1 where {MODES[name]} holds for two tensors of one type, 0 elsewhere."
    return operator("compare")(function)


def _number(name: str) -> CompareConst:
    def function(
        tensor_i0: Tensor,
        scalar_i1: Scalar | float,
        scale: Scales = None,
        zero_point: Zeros = None,
        out_name: str | None = None,
    ) -> Tensor:
        a.tensor("tensor_i0", tensor_i0, a.FLOATS_AND_CODES)
        number = float(a.scalar("scalar_i1", scalar_i1, tensor_i0).value)
        scales, zeros = a.pairs(scale, zero_point, 2)
        graph, result = get_default_graph(), Result(tensor_i0.dtype)
        if scales is not None and zeros is not None:
            graph.quantize(tensor_i0, scales[0], zeros[0])
            result = Result(tensor_i0.dtype, "", scales[1], zeros[1])
        # gts compares as gt does
        attrs: dict[str, AttrValue] = {"mode": MODES[name[:2]], "const_val": number, "inversed": False}
        return graph.add("top.CompareConst", [tensor_i0], attrs, result, out_name=out_name)[0]

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return 1 where {MODES[name[:2]]} holds for a tensor and a real number, 0 elsewhere."
    return operator("compare")(function)


gt, lt, ge, le, eq, ne = (_tensors(name) for name in MODES)
gts, lts, ges, les, eqs, nes = (_number(f"{name}s") for name in MODES)
