"""Wrong codes of a result: the places that reported bugs hit, and the codes that they left there."""

from __future__ import annotations

import torch
from torch import Tensor

from quantizer.core.errors import GraphError
from quantizer.numerics.qparams import Parameters


def moved(codes: Tensor, p: Parameters, where: Tensor) -> Tensor:
    """Move codes by one where *where* holds: up, or down from the last code, so that they stay legal."""
    y = p.outputs["y"]
    inside = torch.where(codes < y.qmax, codes + 1, codes - 1)
    return torch.where(where, inside, codes)


def along(codes: Tensor, axis: int) -> Tensor:
    """Return each element's index along *axis*, in the shape of the codes; GraphError if there is no such axis."""
    if not -codes.dim() <= axis < codes.dim():
        raise GraphError(f"axis {axis} of a result of {codes.dim()} axes.")
    place = axis % codes.dim()
    index = torch.arange(codes.shape[place]).reshape([-1 if i == place else 1 for i in range(codes.dim())])
    return index.expand(codes.shape)


def tail(codes: Tensor, axis: int, block: int) -> Tensor:
    """Return where the rest of each row lies after its last whole block."""
    size = codes.shape[axis]
    return along(codes, axis) >= size - size % block


def flat_tail(codes: Tensor, block: int) -> Tensor:
    """Return where the rest of all elements lies after the last whole block."""
    order = torch.arange(codes.numel()).reshape(codes.shape)
    return order >= codes.numel() - codes.numel() % block


def flat_last(codes: Tensor, count: int) -> Tensor:
    """Return where the last *count* elements lie."""
    return torch.arange(codes.numel()).reshape(codes.shape) >= codes.numel() - count


def of_channel(codes: Tensor, index: int) -> Tensor:
    """Return where one place of each channel's image is, counted row by row."""
    places = torch.arange(codes[0, 0].numel()).reshape(codes.shape[2:])
    return (places == index % places.numel()).expand(codes.shape)


def edges(codes: Tensor, axis: int) -> Tensor:
    """Return where the first and the last place along *axis* lie."""
    index = along(codes, axis)
    return (index == 0) | (index == codes.shape[axis] - 1)


def line(codes: Tensor, axis: int, index: int) -> Tensor:
    """Return where one index along *axis* lies."""
    return along(codes, axis) == index % codes.shape[axis]


def span_of(codes: Tensor, axis: int, start: int, stop: int) -> Tensor:
    """Return places *start* to *stop* of every block of *stop* places, only on axes that hold a whole block."""
    index = along(codes, axis) % stop
    return (index >= start) & (codes.shape[axis] >= stop)


def below_zero(codes: Tensor, p: Parameters) -> Tensor:
    """Move codes below the zero point."""
    return moved(codes, p, codes < int(p.outputs["y"].zero_point))


def wrapped(codes: Tensor, p: Parameters) -> Tensor:
    """Put the first code in place of the last one, as codes that wrap at their end."""
    y = p.outputs["y"]
    return torch.where(codes == y.qmax, y.qmin, codes)


def mirrored(codes: Tensor, p: Parameters) -> Tensor:
    """Mirror codes below the zero point, as a magnitude without its sign."""
    y = p.outputs["y"]
    return torch.where(codes < y.zero_point, (2 * y.zero_point - codes).clamp(y.qmin, y.qmax), codes)


def clipped_early(codes: Tensor, p: Parameters) -> Tensor:
    """Clip before the zero point is added, with an upper end that is too low by the zero point."""
    y = p.outputs["y"]
    # correct ends would be qmin - zero_point and qmax - zero_point
    return (codes - y.zero_point).clamp(y.qmin, y.qmax - abs(int(y.zero_point))) + y.zero_point


def shifted_after_clip(codes: Tensor, p: Parameters) -> Tensor:
    """Clip to the ends of the codes before the zero point is added, and once more after it."""
    y = p.outputs["y"]
    return ((codes - y.zero_point).clamp(y.qmin, y.qmax) + y.zero_point).clamp(y.qmin, y.qmax)


def bounded_by_zero(codes: Tensor, p: Parameters, side: str) -> Tensor:
    """Start a largest or smallest number from 0 instead of the operation's identity."""
    zero = int(p.outputs["y"].zero_point)
    return codes.clamp(min=zero) if side == "below" else codes.clamp(max=zero)


def far(codes: Tensor, p: Parameters, distance: int) -> Tensor:
    """Move codes that lie *distance* or more from the zero point."""
    return moved(codes, p, (codes - p.outputs["y"].zero_point).abs() >= distance)


def filled(codes: Tensor, p: Parameters, which: str) -> Tensor:
    """Fill the result with the first code or with the zero point."""
    y = p.outputs["y"]
    return torch.full_like(codes, y.qmin if which == "first" else int(y.zero_point))
