"""Cases of layers: every usual window meets every kind of channels, since kernels are chosen by both together.

A library has one kernel for a window of three places, one step and whole vectors of channels, another one for a step of
two, a third one for a rest of channels, and so on. A fault is in one of them. Drawn sizes seldom match two such
conditions at once. The number of places of the output, which the loops of a kernel depend on, changes from one case to
the next. A hash chooses the batch and all else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quantizer.conformance.generation.case_classes.usual_windows import DILATION, POINT, filters_of, plain
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.dealing import share
from quantizer.conformance.generation.domains import draw
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.input_ranges import with_input_range
from quantizer.conformance.generation.units import ILLEGAL, ROOM, is_cheap, is_ours, is_window
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.domains import draw_order
from quantizer.core.spec import Spec

Window = tuple[int, int, int, int, int]
"""Kernel, stride, padding before and behind, and dilation along an axis."""
ALIKE: tuple[Window, ...] = (
    POINT,
    (1, 2, 0, 0, 1),
    (1, 1, 1, 1, 1),
    (2, 2, 0, 0, 1),
    (3, 1, 1, 1, 1),
    (3, 1, 0, 0, 1),
    (3, 2, 1, 1, 1),
    (3, 2, 0, 0, 1),
    (3, 2, 0, 1, 1),
    (3, 1, 2, 2, 2),
    (4, 2, 1, 1, 1),
    (5, 1, 2, 2, 1),
    (5, 2, 2, 2, 1),
    (7, 2, 3, 3, 1),
)
"""Windows of all axes."""
ROW: Window = (3, 1, 1, 1, 1)
UNEVEN: tuple[tuple[Window, Window], ...] = (
    (POINT, ROW),
    (ROW, POINT),
    (POINT, (9, 1, 4, 4, 1)),
    (ROW, (3, 2, 1, 1, 1)),
    (ROW, (3, 1, 0, 0, 1)),
)
"""Windows of the axes before the last one, and of the last one: a row, a column, as many places in one row as a square
of three has, and axes that differ in stride or padding."""
PLANE = (POINT, ROW, ROW)
"""A further window of three axes."""


@dataclass(frozen=True)
class Channels:
    """Input and output channels of a group, and the number of groups."""

    inputs: int
    outputs: int
    groups: int = 1


MIXING = (
    Channels(16, 16),
    Channels(64, 16),
    Channels(70, 16),
    Channels(16, 6),
    Channels(20, 32),
    Channels(3, 16),
    Channels(8, 12),
    Channels(19, 13),
    Channels(8, 64),
    Channels(4, 4, 16),
    Channels(8, 8, 8),
    Channels(16, 16, 2),
    Channels(5, 3, 3),
)
"""Channels of layers that mix them: whole vectors, a block, a block and a rest, few outputs of a vector, quarters of a
vector, a picture, half vectors, rests; and groups of these."""
ALONE = tuple(Channels(1, 1, many) for many in (16, 8, 24, 64, 48, 12, 19)) + tuple(
    Channels(1, each, many) for each, many in ((2, 8), (2, 19), (4, 4), (8, 2), (16, 1), (3, 10), (4, 12))
)
"""Channels of layers that filter each one alone: whole vectors, halves, blocks of four, three and one, quarters, rests;
and several filters for each channel."""
OF_BOTH = (ALONE[0], ALONE[6], ALONE[7])
"""Those of ALONE for operators that may also mix channels."""
PLACES = ((8, 8), (5, 7), (4, 4), (2, 9), (1, 6), (3, 5), (6, 1), (2, 2), (1, 1))
"""Places of the output along the axes before the last one, and along the last one. Windows and channels take them in
turn, or a later one if the case would be too large. Transposed windows have as many places of the input."""
LARGE, FLAT = 3, 2
"""The largest kernel of a volume, which has more than FLAT axes."""


def layers(everything: Sequence[Target], target: Target, *, strong: bool = False) -> list[Case]:
    """Return the target's share of the cases, one for each window and channels.

    All of an operator's targets share them; if *strong*, those of a platform.
    """
    spec = target.spec
    if not {"stride", "padding"} <= spec.attrs.keys() or not is_ours(spec):
        return []
    kinds = [
        (windows, channels, PLACES[(row + column) % len(PLACES) :], column)
        for row, windows in enumerate(_windows(spec))
        for column, channels in enumerate(_channels(spec))
    ]
    found = [layer(target, *kind) for kind in share(everything, target, kinds, "layers", strong=strong)]
    return [case for case in found if case is not None]


def _windows(spec: Spec) -> list[tuple[Window, ...]]:
    """Return the windows of an operator, one for each axis."""
    axes = len(_axes(spec)) - 2
    pairs = [(each, each) for each in ALIKE] + (list(UNEVEN) if axes > 1 else [])
    found = [(*(axes - 1) * (others,), last) for others, last in pairs] + [PLANE] * (axes == len(PLANE))
    largest = LARGE if axes > FLAT else max(each[0] for pair in pairs for each in pair)
    return [
        each
        for each in found
        if all(kernel <= largest and (dilation == 1 or DILATION in spec.attrs) for kernel, *_, dilation in each)
    ]


def _channels(spec: Spec) -> Sequence[Channels]:
    """Return the kinds of channels of an operator; one that has no filters keeps each channel alone."""
    if "groups" in spec.attrs:
        return (*MIXING, *OF_BOTH)
    return ALONE if filters_of(spec) else [each for each in ALONE if each.outputs == 1]


def _axes(spec: Spec) -> list[str]:
    """Return the names of the first activation's axes."""
    axes = spec.inputs[next(iter(spec.activations))].axes
    return [axis.text for axis in axes] if isinstance(axes, list) else []


def layer(
    target: Target, windows: tuple[Window, ...], channels: Channels, places: Sequence[tuple[int, int]], turn: int
) -> Case | None:
    """Return the case with the first of *places* with which it is not too large; *turn*: places beyond whole steps."""
    spec, number = target.spec, key(0, target.id, "layers", repr(windows), repr(channels))
    chooser = HashChoices(number, {"data": "random", "tiles": "untiled"})
    for each in places:
        try:
            fixed = dict(_fixed(spec, windows, channels, each, turn))
            bound = _bound(spec, fixed, number, chooser)
        except ILLEGAL:
            continue
        if is_cheap(spec, bound, ROOM):
            present = [name for name, item in spec.inputs.items() if number // 64 % 4 or not item.optional]
            return with_input_range(target, bound, present, number, chooser)
    return None


def _bound(spec: Spec, fixed: Mapping[str, Any], number: int, chooser: HashChoices) -> dict[str, Any]:
    """Return sizes and attributes, those *fixed* among them."""
    bound: dict[str, Any] = {}
    for name in draw_order(spec):
        domain = spec.dims.get(name) or spec.attrs[name]
        # half of the cases have the usual values of other attributes
        usual = name in spec.attrs and domain.default is not None and number // 2 % 2
        drawn = draw(name, domain, chooser, bound)
        bound[name] = fixed.get(name, plain(domain.default) if usual else drawn)
    return bound


def _fixed(
    spec: Spec, windows: tuple[Window, ...], channels: Channels, places: tuple[int, int], turn: int
) -> Iterator[tuple[str, Any]]:
    """Yield the sizes and attributes that windows, channels and places decide."""
    _, inputs, *image = _axes(spec)
    kernels, strides, before, behind, dilations = zip(*windows, strict=True)
    attributes = {"kernel": kernels, "stride": strides, "padding": before + behind, DILATION: dilations}
    yield from ((name, values) for name, values in attributes.items() if name in spec.attrs)
    yield from zip((name for name in spec.dims if is_window(spec, name)), kernels, strict=False)
    yield inputs, channels.inputs * channels.groups
    if filters_of(spec):
        yield filters_of(spec), channels.outputs * (channels.groups if _is_sum(spec) else 1)
    if "groups" in spec.attrs:
        yield "groups", channels.groups
    for axis, name in enumerate(image):
        many = places[-1] if axis == len(image) - 1 else places[0]
        yield name, many if "output_padding" in spec.attrs else _size(windows[axis], many, turn)


def _is_sum(spec: Spec) -> bool:
    """Return whether the filters are those of all groups, not of one."""
    return spec.dims[filters_of(spec)].multiple_of is not None


def _size(window: Window, places: int, turn: int) -> int:
    """Return the size of an axis with so many places of the output, and a part of a step that *turn* chooses."""
    kernel, stride, before, behind, dilation = window
    least = (places - 1) * stride + (kernel - 1) * dilation + 1 - before - behind
    return max(least, 1) + turn % stride
