"""The input rows and the padding that a tile of a transposed convolution needs."""

from __future__ import annotations

from dataclasses import dataclass

Span = tuple[int, int]


@dataclass(frozen=True)
class Spread:
    """A transposed convolution along one axis: each element is spread over *reach* places, *stride* apart."""

    size: int
    """The number of elements of the input."""
    stride: int
    reach: int
    """The number of places from the first to the last tap: `dilation * (kernel - 1) + 1`."""
    before: int
    """The number of places that the padding crops at the start."""

    def tile(self, output: Span) -> tuple[Span, Span, int]:
        """Return the input elements that a tile of *output* needs, places to crop at both ends, and zeros to append.

        If a gap between two elements lies at an end of the tile, the element beyond the gap is read too. The span of
        elements is empty if the tile begins after the last tap of the last element.
        """
        first, end = output[0] + self.before, output[1] + self.before
        # -(a // b) is -a / b rounded up: the first element with a tap in the tile, or the one before it across a gap
        low = min(-((self.reach - 1 - first) // self.stride), first // self.stride)
        high = max((end - 1) // self.stride + 1, -((self.reach - end) // self.stride) + 1)
        low, high = max(low, 0), min(high, self.size)
        # the tile lies behind all taps: nothing but zeros
        if first >= (self.size - 1) * self.stride + self.reach:
            return (self.size, self.size), (0, 0), end - first
        behind = (high - 1) * self.stride + self.reach - end
        return (low, high), (first - low * self.stride, max(behind, 0)), max(-behind, 0)
