"""Tiles of a transposed convolution along one axis are parts of the whole one, whatever its stride, kernel and padding."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from quantizer.numerics.kernels import conv_transpose
from quantizer.tiling.spread import Spread


@pytest.mark.parametrize(("size", "stride"), [*product((1, 2, 5), (1, 2, 3))])
def test_every_tile_is_a_part_of_the_whole(size: int, stride: int) -> None:
    drawn = torch.Generator().manual_seed(size)
    for kernel, dilation, before, after, extra in product((1, 2, 3), (1, 2), (0, 1, 2), (0, 2), range(stride)):
        x, w = (torch.randint(-9, 10, (1, 1, own), generator=drawn) for own in (size, kernel))
        reach = dilation * (kernel - 1) + 1
        length = (size - 1) * stride + reach + extra - before - after
        if length < 1:
            continue

        def run(part: torch.Tensor, crop: tuple[int, int], added: int) -> torch.Tensor:
            return conv_transpose(
                part,
                w,
                stride=[stride],
                padding=[crop],
                output_padding=[added],
                dilation=[dilation],  # noqa: B023
            )

        whole = run(x, (before, after), extra)
        for start in range(length):
            for stop in range(start + 1, length + 1):
                span, crop, added = Spread(size, stride, reach, before).tile((start, stop))
                wanted = whole[..., start:stop]
                if span == (size, size):
                    assert not wanted.any()
                    continue
                assert min(crop) >= 0 <= added <= extra
                assert torch.equal(run(x[..., slice(*span)], crop, added), wanted)


def test_a_tile_reads_no_more_than_reaches_it() -> None:
    assert Spread(9, 2, 3, 1).tile((4, 8)) == ((2, 5), (1, 2), 0)
