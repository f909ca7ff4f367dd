"""mixed_precision_auto_search: finds from which layer on a graph needs more bits, or floating point."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from torch import Tensor

from quantizer.optimize.loader import Batches
from quantizer.optimize.per_layer import LayerKey
from quantizer.optimize.settings import Settings
from quantizer.optimize.values import Value

WIDE: Mapping[str, Value] = {"activation_bits": 16, "weight_bits": 16, "bias_bits": 48, "lut_items_in_bits": 10}
"""The setting of layers that need more bits."""
FLOAT: Mapping[str, Value] = {"trigger_float_op": "float32_preferred!"}
"""The setting of layers for which wide codes are not enough."""
Drop = Callable[[Mapping[str, Settings]], float]
"""Settings of all layers -> the drop of the first metric from the float graph to the quantized graph."""


@dataclass(frozen=True)
class Search:
    """The request in the field."""

    batches: int
    threshold: float
    at_most: bool
    """L: the drop must not exceed the threshold.

    G, for metrics where smaller is better: it must not be below the threshold.
    """

    def satisfied(self, drop: float) -> bool:
        """Return whether a drop is within the requested limit."""
        return drop <= self.threshold if self.at_most else drop >= self.threshold


@dataclass(frozen=True)
class Found:
    """The settings that a search ends with."""

    settings: Mapping[str, Settings]
    drop: float
    wide_from: int
    """Number of the first layer with more bits; the number of layers if none needs them."""
    float_from: int
    """Number of the first layer in floating point."""
    satisfied: bool


@dataclass(frozen=True)
class FirstBatches:
    """The first batches of a data set."""

    source: Batches
    count: int

    def batches(self) -> Iterator[tuple[dict[str, Tensor], Any]]:
        """Yield them."""
        return islice(self.source.batches(), self.count)

    def sized(self, size: int) -> FirstBatches:
        """Return the same number of batches, with another size."""
        return FirstBatches(self.source.sized(size), self.count)


def searched(search: Search, settings: Mapping[str, Settings], keys: Mapping[str, LayerKey], drop: Drop) -> Found:
    """Return the settings that satisfy *search* with the fewest widened layers, or the fewest layers in floating point.

    Source: the Compass Optimizer: all layers from some number on are changed, which assumes that later layers are more
    sensitive. Only if wide codes in all layers are not enough, the same search runs for floating point.
    """
    count = 1 + max(key.number for key in keys.values())
    drops: dict[tuple[int, int], float] = {}

    def changed(wide_from: int, float_from: int) -> dict[str, Settings]:
        found = {}
        for name, own in settings.items():
            number = keys[name].number
            found[name] = own.but(**(WIDE if number >= wide_from else {}), **(FLOAT if number >= float_from else {}))
        return found

    def satisfies(wide_from: int, float_from: int) -> bool:
        place = wide_from, float_from
        # each drop costs a quantization and a run over the data, and the search asks for some places twice
        if place not in drops:
            drops[place] = drop(changed(*place))
        return search.satisfied(drops[place])

    place = last_place(count, lambda first: satisfies(first, count)), count
    if not satisfies(*place):
        # wide codes everywhere were not enough
        place = 0, last_place(count, lambda first: satisfies(0, first))
    done = satisfies(*place)
    return Found(changed(*place), drops[place], *place, done)


def last_place(count: int, satisfies: Callable[[int], bool]) -> int:
    """Return the largest place found that satisfies, or 0: halve from *count* on, then add powers of two."""
    place = failing = count
    while not satisfies(place):
        if place == 0:
            return 0
        failing, place = place, place // 2
    # the largest power of two that is not above the distance
    step = 1 << max(failing - place, 1).bit_length() - 1
    while step:
        if place + step < failing and satisfies(place + step):
            place += step
        step //= 2
    return place
