"""Cases of operators that take the size of their output: every mode meets every usual ratio, with many channels.

Kernels for one mode and one ratio work on whole vectors of channels, and have other code for the rest of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from quantizer.conformance.generation.builder import complete
from quantizer.conformance.generation.case_classes.usual_sizes import ASKED, first_modes
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.dealing import share
from quantizer.conformance.generation.domains import draw
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.units import ILLEGAL, ROOM, is_cheap, is_ours
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.domains import draw_order

Ratio = tuple[int, int]
RATIOS: tuple[tuple[Ratio, Ratio], ...] = (
    ((1, 1), (1, 1)),
    ((2, 1), (2, 1)),
    ((4, 1), (4, 1)),
    ((8, 1), (8, 1)),
    ((1, 2), (1, 2)),
    ((1, 4), (1, 4)),
    ((1, 1), (2, 1)),
    ((2, 1), (1, 2)),
)
"""Output size over input size along the axes before the last one, and along the last one."""
CHANNELS = (16, 8, 19)
"""Whole vectors, half a vector, and a vector and a rest. Modes and ratios take them in turn."""
PLACES = (1, 2, 3)
"""The size of an axis, in units of the ratio's denominator; a hash chooses it, at least 2 along the last axis."""


def resized_channels(everything: Sequence[Target], target: Target, *, strong: bool = False) -> list[Case]:
    """Return the target's share of the cases that its operator's targets have, one for each mode and ratio."""
    domain = target.spec.attrs.get(ASKED)
    if domain is None or domain.length is None or not is_ours(target.spec):
        return []
    kinds = [
        (mode, ratios, CHANNELS[(row + column) % len(CHANNELS)])
        for row, mode in enumerate(first_modes(target.spec).values())
        for column, ratios in enumerate(RATIOS)
    ]
    found = [_case(target, *kind) for kind in share(everything, target, kinds, "resized_channels", strong=strong)]
    return [case for case in found if case is not None]


def _case(target: Target, mode: Mapping[str, str], ratios: tuple[Ratio, Ratio], many: int) -> Case | None:
    spec, number = target.spec, key(0, target.id, "resized_channels", *mode.values(), repr(ratios))
    chooser = HashChoices(number, {"data": "random", "tiles": "untiled"})
    try:
        bound = _bound(target, mode, ratios, many, number, chooser)
    except ILLEGAL:
        return None
    if not is_cheap(spec, bound, ROOM):
        return None
    return complete(target, bound, list(spec.inputs), "random", number % (1 << 32), chooser)


def _bound(
    target: Target,
    mode: Mapping[str, str],
    ratios: tuple[Ratio, Ratio],
    many: int,
    number: int,
    chooser: HashChoices,
) -> dict[str, Any]:
    """Return sizes and attributes with the first of *mode*, the ratios, and so many channels."""
    spec = target.spec
    axes = spec.inputs[next(iter(spec.activations))].axes
    _, channels, *image = [axis.text for axis in axes] if isinstance(axes, list) else ["", ""]
    bound: dict[str, Any] = {
        name: draw(name, spec.dims.get(name) or spec.attrs[name], chooser, {}) for name in draw_order(spec)
    }
    # other attributes that are names keep their draws
    bound |= {**dict(itertools.islice(mode.items(), 1)), channels: many, ASKED: ()}
    for axis, name in enumerate(image):
        larger, smaller = ratios[axis == len(image) - 1]
        units = max(PLACES[number // (4 + axis) % len(PLACES)], 1 + (axis == len(image) - 1))
        bound[name], bound[ASKED] = units * smaller, (*bound[ASKED], units * larger)
    return bound
