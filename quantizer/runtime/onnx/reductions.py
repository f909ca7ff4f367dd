"""Reductions over axes, the places of extremes, running sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from quantizer.core.errors import UnsupportedError
from quantizer.runtime.onnx.elementwise import UNSIGNED
from quantizer.runtime.onnx.kernels import NoFunctionError, Ours, axis_of, kernel, mapped, scalar, whole

Reduce = Callable[[Tensor, tuple[int, ...], bool], Tensor]


def axes_given(op: str, x: Tensor, axes: Any, noop: int) -> tuple[int, ...] | None:
    """Return the axes counted from 0, by default all; None if there is nothing to reduce."""
    given = whole(axes) if isinstance(axes, Tensor) else list(axes or ())
    if not given:
        return None if noop else tuple(range(x.dim()))
    return tuple(sorted({axis_of(op, axis, x.dim()) for axis in given}))


NARROW = {"ReduceL2": (torch.float16, torch.bfloat16)}
"""Formats in which the registry's operator would overflow or lose digits in intermediate results."""


def _reduction(name: str, function: Reduce, alone: Callable[[Tensor], Tensor], ours: str | None = None) -> None:
    def arguments(operands: tuple[Any, ...], axes: Sequence[int] | None) -> tuple[Tensor, Any]:
        return operands[0], operands[1] if len(operands) > 1 else axes

    @mapped(name)
    def find(*operands: Any, axes: Any = None, keepdims: int, noop_with_empty_axes: int = 0) -> Ours | None:
        x, given = arguments(operands, axes)
        over = axes_given(name, x, given, noop_with_empty_axes)
        if ours is None or not over or not x.is_floating_point() or not x.numel() or x.dtype in NARROW.get(name, ()):
            return None
        return Ours(ours, {"x": x}, {"axes": over, "keepdims": bool(keepdims)})

    @kernel(name)
    def compute(*operands: Any, axes: Any = None, keepdims: int, noop_with_empty_axes: int = 0) -> Tensor:
        x, given = arguments(operands, axes)
        over = axes_given(name, x, given, noop_with_empty_axes)
        if over is None:
            return alone(x)
        if x.dtype in UNSIGNED:
            raise NoFunctionError(f"{name} of {x.dtype}: no kernel takes this format.")
        return function(x, over, bool(keepdims)) if over else alone(x)


def _sum(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:  # noqa: FBT001 - as in torch
    return x.sum(dim=axes, keepdim=keep, dtype=x.dtype)


def _mean(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:  # noqa: FBT001 - as in torch
    if x.is_floating_point():
        return x.mean(dim=axes, keepdim=keep)
    count = math.prod(x.shape[axis] for axis in axes)
    if not count:
        raise UnsupportedError("a mean of no integers: must have elements.")
    return torch.div(_sum(x.long(), axes, keep), count, rounding_mode="trunc").to(x.dtype)


def _product(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:  # noqa: FBT001 - as in torch
    # torch's prod takes one axis; from the last on, so that earlier numbers stay valid
    for axis in reversed(axes):
        x = x.prod(dim=axis, keepdim=keep, dtype=x.dtype)
    return x


def _extreme(largest: bool) -> Reduce:  # noqa: FBT001 - one of two
    def reduce(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:  # noqa: FBT001 - as in torch
        # torch refuses an extreme over no elements
        if all(x.shape[axis] for axis in axes):
            if x.dtype == torch.bool:
                return reduce(x.to(torch.uint8), axes, keep).bool()
            return x.amax(dim=axes, keepdim=keep) if largest else x.amin(dim=axes, keepdim=keep)
        if x.dtype == torch.bool:
            fill: Any = not largest
        elif x.is_floating_point():
            # the neutral element, as the standard says for an empty reduction
            fill = -math.inf if largest else math.inf
        else:
            fill = torch.iinfo(x.dtype).min if largest else torch.iinfo(x.dtype).max
        shape = [1 if i in axes else size for i, size in enumerate(x.shape) if keep or i not in axes]
        return torch.full(shape, fill, dtype=x.dtype)

    return reduce


def _in_float(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return the result of a float function on x, in x's type."""
    return function(x) if x.is_floating_point() else function(x.double()).to(x.dtype)


def _squares(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:  # noqa: FBT001 - as in torch
    """Return the sum of squares. Squares of float16 numbers exceed its range, so they stay in float32."""
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    return _sum(wide * wide, axes, keep)


def _length(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:  # noqa: FBT001 - as in torch
    """Return the root of the sum of squares. Squares of integers exceed their range, so they are added in float64."""
    wide = x if x.is_floating_point() else x.double()
    return torch.sqrt(_squares(wide, axes, keep)).to(x.dtype)


def _log_sum_exp(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:  # noqa: FBT001 - as in torch
    return _in_float(lambda v: torch.logsumexp(v, dim=axes, keepdim=keep), x)


_reduction("ReduceSum", _sum, lambda x: x, "reduce_sum")
_reduction("ReduceMean", _mean, lambda x: x, "reduce_mean")
_reduction("ReduceMax", _extreme(largest=True), lambda x: x, "reduce_max")
_reduction("ReduceMin", _extreme(largest=False), lambda x: x, "reduce_min")
_reduction("ReduceProd", _product, lambda x: x, "reduce_prod")
_reduction("ReduceL1", lambda x, axes, keep: _sum(x.abs(), axes, keep), torch.abs)
_reduction("ReduceL2", _length, torch.abs, "reduce_l2")
_reduction("ReduceSumSquare", lambda x, axes, keep: _squares(x, axes, keep).to(x.dtype), torch.square)
_reduction(
    "ReduceLogSum", lambda x, axes, keep: _in_float(torch.log, _sum(x, axes, keep)), lambda x: _in_float(torch.log, x)
)
_reduction("ReduceLogSumExp", _log_sum_exp, lambda x: x)


@mapped("ArgMax")
def argmax(x: Tensor, *, axis: int, keepdims: int, select_last_index: int = 0) -> Ours | None:
    """Map to the registry's argmax."""
    if not x.is_floating_point() or not x.numel() or not x.dim():
        return None
    return Ours("argmax", {"x": x}, {"axis": axis, "keepdims": bool(keepdims), "select_last": bool(select_last_index)})


@mapped("ArgMin")
def argmin(x: Tensor, *, axis: int, keepdims: int, select_last_index: int = 0) -> Ours | None:
    """Map to the registry's argmin."""
    if not x.is_floating_point() or not x.numel() or not x.dim():
        return None
    return Ours("argmin", {"x": x}, {"axis": axis, "keepdims": bool(keepdims), "select_last": bool(select_last_index)})


@kernel("ArgMax")
def argmax_of_integers(x: Tensor, *, axis: int, keepdims: int, select_last_index: int = 0) -> Tensor:
    """Return the index of the maximum, the first or the last one of equals."""
    return _place(torch.argmax, x, axis, keepdims, select_last_index)


@kernel("ArgMin")
def argmin_of_integers(x: Tensor, *, axis: int, keepdims: int, select_last_index: int = 0) -> Tensor:
    """Return the index of the minimum, the first or the last one of equals."""
    return _place(torch.argmin, x, axis, keepdims, select_last_index)


def _place(function: Callable[..., Tensor], x: Tensor, axis: int, keepdims: int, last: int) -> Tensor:
    axis = axis_of("ArgMax", axis, x.dim())
    if not last:
        return function(x, dim=axis, keepdim=bool(keepdims))
    # the last of equals is the first of the reversed axis
    return x.shape[axis] - 1 - function(x.flip(axis), dim=axis, keepdim=bool(keepdims))


@mapped("CumSum")
def cumsum(x: Tensor, axis: Tensor, *, exclusive: int, reverse: int) -> Ours | None:
    """Map to the registry's cumsum, of floats."""
    if not x.is_floating_point() or not x.dim() or not x.numel():
        return None
    along = axis_of("CumSum", int(scalar(axis, 0)), x.dim())
    return Ours("cumsum", {"x": x}, {"axis": along, "exclusive": bool(exclusive), "reverse": bool(reverse)})


@kernel("CumSum")
def cumsum_of_integers(x: Tensor, axis: Tensor, *, exclusive: int, reverse: int) -> Tensor:
    """Return the running sum along one axis, with reverse from the end, with exclusive without the element itself."""
    along = axis_of("CumSum", int(scalar(axis, 0)), x.dim())
    y = x.flip(along) if reverse else x
    total = y.cumsum(dim=along, dtype=x.dtype)
    if exclusive and y.numel():
        zero = torch.zeros_like(y.narrow(along, 0, 1))
        total = torch.cat([zero, total.narrow(along, 0, y.shape[along] - 1)], dim=along)
    return total.flip(along) if reverse else total


@kernel("CumProd")
def cumprod(x: Tensor, axis: Tensor, *, exclusive: int, reverse: int) -> Tensor:
    """Return the running product along one axis, with reverse from the end, with exclusive without the element."""
    along = axis_of("CumProd", int(scalar(axis, 0)), x.dim())
    y = x.flip(along) if reverse else x
    total = y.cumprod(dim=along, dtype=x.dtype)
    if exclusive and y.numel():
        one = torch.ones_like(y.narrow(along, 0, 1))
        total = torch.cat([one, total.narrow(along, 0, y.shape[along] - 1)], dim=along)
    return total.flip(along) if reverse else total


@kernel("TopK")
def top_k(
    x: Tensor, given: Tensor | None = None, *, axis: int, k: int | None = None, largest: int = 1, sorted: int = 1
) -> tuple[Tensor, Tensor]:
    """Return the k largest or smallest along one axis in order, equal ones by index; sorted=0 leaves the order open."""
    count = int(scalar(given, k))
    along = axis_of("TopK", axis, x.dim())
    if not 0 <= count <= x.shape[along]:
        raise UnsupportedError(f"TopK: k={count}: must lie in [0, {x.shape[along]}].")
    wide = x.to(torch.int64) if x.dtype in (torch.uint16, torch.uint32) else x
    if x.dtype == torch.uint64:
        # with the sign bit flipped, int64 orders like uint64
        wide = x.view(torch.int64) ^ torch.iinfo(torch.int64).min
    # a stable sort, because torch's topk leaves the order of equals open
    order = torch.argsort(wide, dim=along, descending=bool(largest), stable=True).narrow(along, 0, count)
    picked = torch.gather(wide, along, order)
    if x.dtype == torch.uint64:
        return (picked ^ torch.iinfo(torch.int64).min).view(torch.uint64), order
    return picked.to(x.dtype), order
