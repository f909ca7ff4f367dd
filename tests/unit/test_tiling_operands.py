"""Tiles make up the output only if each element lies in exactly one of them."""

import pytest
import torch

from quantizer.tiling.operands import stitch
from quantizer.tiling.windows import Tile


def part(start: int, stop: int) -> tuple[Tile, torch.Tensor]:
    return Tile(((start, stop),), {}, {}), torch.zeros(stop - start, dtype=torch.int64)


def test_a_partition_is_put_together():
    assert stitch((5,), [part(0, 2), part(2, 5)], torch.int64).tolist() == [0] * 5


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ([part(0, 2)], "output element [2] lies in 0 tiles"),
        ([part(0, 3), part(2, 5)], "output element [2] lies in 2 tiles"),
    ],
    ids=["a hole of zeros", "an overlap"],
)
def test_tilings_with_gaps_or_overlaps_are_refused(parts, says):
    with pytest.raises(ValueError, match="must lie in 1") as error:
        stitch((5,), parts, torch.int64)
    assert str(error.value).startswith(says)
