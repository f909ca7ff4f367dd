"""Small changes to operators that move codes: indices, order inside blocks, ends of axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from quantizer.numerics.qparams import Parameters
from quantizer.ops.registry import Function


def each_next(values: Sequence[int]) -> tuple[int, ...]:
    """Move every index by one."""
    return tuple(value + 1 for value in values)


def each_before(values: Sequence[int]) -> tuple[int, ...]:
    """Move every index back by one."""
    return tuple(value - 1 for value in values)


def each_index_next(original: Function) -> Function:
    """Take the element after the place that an index names; the first one after the last."""

    def faulty(*, x: Tensor, indices: Tensor, axis: int, **named: Any) -> Tensor:
        codes: Tensor = original(x=x, indices=(indices + 1) % x.shape[axis], axis=axis, **named)
        return codes

    return faulty


def none_from_the_end(original: Function) -> Function:
    """Take an index below zero for the first."""
    return _with_indices(original, lambda indices: indices.clamp(min=0))


def indices_in_a_byte(original: Function) -> Function:
    """Keep only the low eight bits of each index that is not negative."""
    return _with_indices(original, lambda indices: torch.where(indices < 0, indices, indices & 0xFF))


def first_indices_for_all(original: Function) -> Function:
    """Gather every pair by the indices of the first."""

    def faulty(*, indices: Tensor, batch_dims: int, **named: Any) -> Tensor:
        own = indices[:1].expand_as(indices) if batch_dims else indices
        codes: Tensor = original(indices=own.contiguous(), batch_dims=batch_dims, **named)
        return codes

    return faulty


def _with_indices(original: Function, change: Callable[[Tensor], Tensor]) -> Function:
    def faulty(*, indices: Tensor, **named: Any) -> Tensor:
        codes: Tensor = original(indices=change(indices), **named)
        return codes

    return faulty


def each_from_the_start(original: Function) -> Function:
    """Begin every piece at the first element."""
    return _pieces(original, lambda size, _index, _start: range(size))


def each_at_its_multiple(original: Function) -> Function:
    """Begin every piece where it would begin if all pieces before it had its size."""
    # right only for pieces of one size
    return _pieces(original, lambda size, index, _start: range(size * index, size * index + size))


def each_one_later(original: Function) -> Function:
    """Begin every piece but the first one element too late."""
    return _pieces(original, lambda size, index, start: range(start + bool(index), start + bool(index) + size))


def like_pieces_exchanged(original: Function) -> Function:
    """Swap the first two pieces if they have the same size."""

    def faulty(*operands: Tensor, sizes: Sequence[int], **named: Any) -> tuple[Tensor, ...]:
        first, *rest = original(*operands, sizes=sizes, **named)
        return (rest[0], first, *rest[1:]) if len(sizes) > 1 and sizes[0] == sizes[1] else (first, *rest)

    return faulty


def _pieces(original: Function, taken: Callable[[int, int, int], Sequence[int]]) -> Function:
    """Take other elements of the axis for each piece (size, index, first element). Indices wrap around at its end."""
    del original

    def faulty(*, x: Tensor, axis: int, sizes: Sequence[int], **_: Any) -> tuple[Tensor, ...]:
        places = [taken(size, i, sum(sizes[:i])) for i, size in enumerate(sizes)]
        # modulo the axis, since a wrong place may lie beyond its end
        return tuple(x.index_select(axis, torch.tensor(list(place)) % x.shape[axis]) for place in places)

    return faulty


def turned_around(original: Function) -> Function:
    """Give the elements back in the opposite order."""

    def faulty(*operands: Tensor, **named: Any) -> Tensor:
        codes: Tensor = original(*operands, **named)
        return codes.flip(*range(codes.dim()))

    return faulty


def forwards(original: Function) -> Function:
    """Return elements in forward order along axes with a negative stride."""

    def faulty(*operands: Tensor, strides: Sequence[int], **named: Any) -> Tensor:
        codes: Tensor = original(*operands, strides=strides, **named)
        return codes.flip([axis for axis, step in enumerate(strides) if step < 0])

    return faulty


def other_mode(mode: str) -> str:
    """Exchange the orders DCR and CRD of a depth-to-space operator."""
    return "CRD" if mode == "DCR" else "DCR"


def places_transposed(original: Function) -> Function:
    """Take rows of a block for columns."""

    def faulty(*, x: Tensor, **named: Any) -> Tensor:
        codes: Tensor = original(x=x.transpose(2, 3), **named)
        return codes.transpose(2, 3).contiguous()

    return faulty


def each_element_repeated(original: Function) -> Function:
    """Repeat each element next to itself, instead of the tensor as a whole."""
    del original

    def faulty(*, x: Tensor, repeats: Sequence[int], **named: Any) -> Tensor:  # noqa: ARG001
        for axis, count in enumerate(repeats):
            x = x.repeat_interleave(count, dim=axis)
        return x

    return faulty


def other_places(mode: str) -> str:
    """Use the corners of elements as their positions instead of the centres; or the other way round."""
    return "half_pixel" if mode == "asymmetric" else "asymmetric"


def other_side(rounding: str) -> str:
    """Take the neighbour on the other side."""
    return {"floor": "ceil", "ceil": "floor", "round_prefer_floor": "round_prefer_ceil"}.get(
        rounding, "round_prefer_floor"
    )


def sides_exchanged(original: Function) -> Function:
    """Compare the second operand with the first."""

    def faulty(*, a: Tensor, b: Tensor, parameters: Parameters, **named: Any) -> Tensor:
        inputs = {"a": parameters.inputs["b"], "b": parameters.inputs["a"]}
        holds: Tensor = original(a=b, b=a, parameters=replace(parameters, inputs=inputs), **named)
        return holds

    return faulty


def not_the_other_way(original: Function) -> Function:
    """Replace a < b by not (b < a), which inverts the result for equal operands."""

    def faulty(**named: Any) -> Tensor:
        return 1 - sides_exchanged(original)(**named)  # type: ignore[no-any-return]

    return faulty


def scales_left_out(parameters: Parameters) -> Parameters:
    """Compare centred codes without their scales."""
    one = torch.ones((), dtype=torch.float64)
    return replace(parameters, inputs={name: replace(own, scale=one) for name, own in parameters.inputs.items()})


def other_end(original: Function) -> Function:
    """Pick the smallest element instead of the largest, or the other way round."""

    def faulty(*, x: Tensor, **named: Any) -> Tensor:
        # the largest of -x is the smallest of x; an index needs no sign
        picked: Tensor = original(x=-x, **named)
        return -picked if "axes" in named else picked

    return faulty


def first_left_out(original: Function) -> Function:
    """Ignore the first element along the last axis when picking."""

    def faulty(*, x: Tensor, **named: Any) -> Tensor:
        axis = max(named["axes"]) if "axes" in named else named["axis"]
        if x.shape[axis] < 2:
            return original(x=x, **named)  # type: ignore[no-any-return]
        picked: Tensor = original(x=x.narrow(axis, 1, x.shape[axis] - 1), **named)
        # without the first element, indices are one too small
        return picked if "axes" in named else picked + 1

    return faulty
