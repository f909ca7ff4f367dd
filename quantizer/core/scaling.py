"""Scalings: the real values of a tensor's codes, by one scale, by one for each slice, or by one for each block."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Blocks:
    """A scale for each block of neighbouring elements along one axis, in each slice along the channel axis.

    Scales and zero points of a tensor in blocks are matrices: a row for each channel, a column for each block. The last
    block is shorter where `size` does not divide the axis.
    """

    axis: int
    """The axis of the blocks, counted from the front."""
    size: int
    """The number of elements of a block along the axis."""
    start: int = 0
    """The number of elements along the axis before this tensor, if it was cut from a larger one. Its first block may
    begin in there."""

    def place(self, index: int) -> int:
        """Return the block of the element at *index* along the axis."""
        return (self.start + index) // self.size

    def places(self, length: int) -> list[int]:
        """Return the block of each element of an axis of *length*."""
        return [self.place(index) for index in range(length)]

    def count(self, length: int) -> int:
        """Return the number of blocks on an axis of *length*."""
        return -(-length // self.size)

    def spans(self, length: int) -> list[tuple[int, int, int]]:
        """Return (block, start, stop) of each block with elements on an axis of *length*."""
        found = []
        for block in range(self.place(0), self.place(length - 1) + 1 if length else 0):
            # blocks are counted in the tensor from which this one was cut
            low, high = block * self.size - self.start, (block + 1) * self.size - self.start
            found.append((block, max(low, 0), min(high, length)))
        return found

    def cut(self, start: int) -> Blocks:
        """Return the blocks of a tensor that is cut to begin at element *start* of the axis; its scales are not cut."""
        return replace(self, start=self.start + start)
