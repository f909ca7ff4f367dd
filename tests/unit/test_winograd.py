"""Winograd's convolution F(2, 3): equal to the plain one on whole numbers, which float32 holds."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from quantizer.numerics.winograd import convolved, transformed


def whole(*shape: int, seed: int) -> torch.Tensor:
    return torch.randint(-9, 10, shape, generator=torch.Generator().manual_seed(seed)).float()


def test_a_row_is_transformed() -> None:
    """By hand: of (1, 2, 4) the ends stay, between them stand half the sum and half the alternating sum."""
    assert transformed(torch.tensor([[[[1.0, 2.0, 4.0]]]])).tolist() == [[[[1.0, 3.5, 1.5, 4.0]]]]


@pytest.mark.parametrize("width", [4, 7, 8])
@pytest.mark.parametrize("padding", [(0, 0, 0, 0), (1, 1, 1, 1), (2, 0, 1, 3)])
def test_winograd_equals_the_convolution(width: int, padding: tuple[int, int, int, int]) -> None:
    x, weights = whole(2, 3, 5, width, seed=1), 2 * whole(4, 3, 3, 3, seed=2)
    top, left, bottom, right = padding
    wanted = functional.conv2d(functional.pad(x, (left, right, top, bottom)), weights)
    made = convolved(x, transformed(weights), padding, (wanted.shape[2], wanted.shape[3]))
    assert torch.equal(made, wanted)
