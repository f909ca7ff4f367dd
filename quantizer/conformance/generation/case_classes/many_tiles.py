"""Cases of layers whose output has more tiles than a block, or more channels than any other case.

Fast convolutions compute tiles of two, four or six places, and several tiles at once, with another loop for the tiles
that are left over. How many are left over follows from both axes together.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from quantizer.conformance.generation.case_classes.layers import Channels, Window, layer
from quantizer.conformance.generation.case_classes.usual_windows import filters_of
from quantizer.conformance.generation.dealing import share
from quantizer.conformance.generation.units import is_ours
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.spec import Spec

WINDOWS: tuple[Window, ...] = ((3, 1, 0, 0, 1), (3, 1, 1, 1, 1))
"""The windows that have fast convolutions, without and with padding."""
TILES = (((20, 4), Channels(8, 4)), ((12, 12), Channels(8, 8)), ((9, 27), Channels(8, 5)))
"""Places of the output: 5, 9 and 21 tiles of four by four, so that 5, 1 and 5 of 8 are left over; the last ones have
incomplete tiles at both ends."""
FILTERS = (((2, 2), Channels(2, 512)), ((3, 1), Channels(1, 260)))
"""Hundreds of filters: whole vectors, and a block of 256 and a rest."""
IMAGE = 4
"""The number of axes of a batch of images."""


def many_tiles(everything: Sequence[Target], target: Target, *, strong: bool = False) -> list[Case]:
    """Return the target's share of the cases that its operator's targets have, or its platform's if *strong*."""
    kinds = list(itertools.product(WINDOWS, (*TILES, *FILTERS))) if _filters_images(target.spec) else []
    found = [
        layer(target, (window, window), channels, (places,), 0)
        for window, (places, channels) in share(everything, target, kinds, "many_tiles", strong=strong)
    ]
    return [case for case in found if case is not None]


def _filters_images(spec: Spec) -> bool:
    """Return whether the operator has filters in groups over two axes, and our own reference."""
    axes = spec.inputs[next(iter(spec.activations))].axes if spec.activations else ()
    images = isinstance(axes, list) and len(axes) == IMAGE and {"stride", "padding", "groups"} <= spec.attrs.keys()
    return images and bool(filters_of(spec)) and is_ours(spec)
