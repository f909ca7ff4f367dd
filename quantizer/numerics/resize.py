"""Resizing images: where an element of the output lies in the input, as a rational number and in float32."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Places:
    """Positions of the output's elements along one axis of the input: `top / bottom`, bottom positive."""

    top: Tensor
    """int64."""
    bottom: int
    size: int
    """The number of elements of the input axis."""
    shrinks: bool
    """Whether the output is shorter."""

    def index(self, rounding: str) -> Tensor:
        """Return the indices of the nearest elements, clamped to the input; *rounding* decides ties."""
        match rounding:
            case "round_prefer_floor":
                # ceil(place - 1/2): a tie goes to the smaller index
                found = -((self.bottom - 2 * self.top) // (2 * self.bottom))
            case "round_prefer_ceil":
                # floor(place + 1/2): a tie goes to the larger index
                found = (2 * self.top + self.bottom) // (2 * self.bottom)
            case "ceil":
                found = -(-self.top // self.bottom)
            # rounds up where the image shrinks and down where it grows
            case "simple" if self.shrinks:
                found = -(-self.top // self.bottom)
            case _:
                found = self.top // self.bottom
        return found.clamp(0, self.size - 1)

    def neighbours(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the indices of both neighbours, clamped to the input, and `bottom` times the weight of the second."""
        inside = self.top.clamp(0, (self.size - 1) * self.bottom)
        low = inside // self.bottom
        return low, (low + 1).clamp(max=self.size - 1), inside - low * self.bottom


def places(size: int, count: int, mode: str) -> Places:
    """Return where *count* elements of the output lie among *size* of the input.

    Source: ONNX Resize, coordinate_transformation_mode.
    """
    i = torch.arange(count)
    match mode:
        case "align_corners" if count > 1:
            return Places(i * (size - 1), count - 1, size, count < size)
        case "align_corners":
            return Places(i * 0, 1, size, count < size)
        case "pytorch_half_pixel" if count == 1:
            return Places(i * 0, 1, size, count < size)
        case "half_pixel" | "pytorch_half_pixel":
            # (i + 1/2) * size / count - 1/2, over the denominator 2 * count
            return Places((2 * i + 1) * size - count, 2 * count, size, count < size)
        case "tf_half_pixel_for_nn":
            return Places((2 * i + 1) * size, 2 * count, size, count < size)
        case _:
            return Places(i * size, count, size, count < size)


NEAR_HALF = (1e-07, 1e-09)
"""For linear positions: the relative and the absolute distance from a half within which the rule rounds down."""


def float32_places(size: int, count: int, mode: str) -> Tensor:
    """Return the positions of `places` in float32, computed with the inverse of the ratio count / size."""
    i, step = torch.arange(count), 1.0 / (count / size)
    match mode:
        case "align_corners":
            return i * 0.0 if count == 1 else i * (size - 1) / (count - 1)
        case "pytorch_half_pixel" if count == 1:
            return i * 0.0
        case "half_pixel" | "pytorch_half_pixel":
            return (i + 0.5) * step - 0.5
        case "tf_half_pixel_for_nn":
            return (i + 0.5) * step
        case _:
            return i * step


def float32_index(places_: Tensor, rounding: str, size: int) -> Tensor:
    """Return the nearest index of float32 positions: half to even, but down if within rounding error of a half."""
    match rounding:
        case "round_prefer_floor":
            # positions carry the rounding error of the ratio, so a half need not be exact
            near = torch.isclose(places_, places_.int() + 0.5, rtol=NEAR_HALF[0], atol=NEAR_HALF[1])
            found = torch.where(near, torch.floor(places_), torch.round(places_))
        case "round_prefer_ceil":
            found = torch.floor(places_ + 0.5)
        case "ceil":
            found = torch.ceil(places_)
        case "simple" if len(places_) < size:
            found = torch.ceil(places_)
        case "simple":
            found = torch.trunc(places_)
        case _:
            found = torch.floor(places_)
    return found.long().clamp(0, size - 1)


def float32_weights(places_: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the indices of both neighbours, clamped to the input, and the float32 weights of both."""
    low = torch.floor(places_).long().clamp(min=0)
    high = torch.ceil(places_).long().clamp(max=size - 1)
    second = places_ - low
    return low, high, 1 - second, second
