"""Cases with the windows of deep layers: many channels of small uneven images, and spaced windows of whole vectors.

Kernels of deep layers hold a block of channels beside a few rows, whose numbers of rows and columns need not both be
odd or even. Engines turn a spaced window with steps into other layers where the channels are whole vectors.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from quantizer.conformance.generation.builder import complete
from quantizer.conformance.generation.case_classes.usual_windows import DILATION, SPACED, checked, filters_of, plain
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.dealing import spread
from quantizer.conformance.generation.domains import draw
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.units import ILLEGAL, ROOM, batch_of, is_cheap, is_ours, is_window
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.domains import draw_order
from quantizer.core.spec import Spec

DEEP, SIDES, KERNEL = (64, 128), ((5, 6), (6, 5)), 3
"""Channels of a block, the last two sides of an image of them, and the kernel along each axis. An operator's targets
share a case for each pair, as they do for SPACED and VECTORS."""
FURTHER = KERNEL
"""The size of further axes of an image."""
OUTPUTS = (8, 2)
"""Outputs of such a layer: a vector, or two where that is too much."""
VECTORS = (8, 16)
"""Channels and outputs of spaced windows, whose images have PLACES beyond the first window."""
PLACES = 4


def deep_windows(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases of DEEP that its operator's targets have."""
    kinds = list(itertools.product(DEEP, SIDES)) if _has_windows(target.spec) else []
    made = [_deep(target, *kind) for kind in spread(everything, target, kinds, "deep_windows")]
    return [case for case in made if case is not None]


def spaced_vectors(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases of SPACED with VECTORS, if its operator has a dilation."""
    has_any = _has_windows(target.spec) and DILATION in target.spec.attrs
    kinds = list(itertools.product(SPACED, VECTORS)) if has_any else []
    made = [_spaced(target, *kind) for kind in spread(everything, target, kinds, "spaced_vectors")]
    return [case for case in made if case is not None]


def _has_windows(spec: Spec) -> bool:
    return {"stride", "padding"} <= spec.attrs.keys() and is_ours(spec)


def _deep(target: Target, channels: int, sides: tuple[int, int]) -> Case | None:
    """Return the case with the most outputs that a case may have room for."""
    spec, number = target.spec, key(0, target.id, "deep_windows", str((channels, sides)))
    _, channel, *spatial = _image(spec)
    sizes = dict.fromkeys(spatial, FURTHER) | dict(zip(spatial[-2:], sides[-len(spatial) :], strict=True))
    for outputs in OUTPUTS:
        fixed = {channel: channels, filters_of(spec): _outputs(spec, channels, outputs), **sizes}
        case = _case(target, fixed, {"kernel": KERNEL}, number)
        if case is not None:
            return case
    return None


def _spaced(target: Target, window: tuple[int, int, int, int, int], channels: int) -> Case | None:
    spec, number = target.spec, key(0, target.id, "spaced_vectors", str((window, channels)))
    kernel, stride, _, _, dilation = window
    _, channel, *spatial = _image(spec)
    sizes = dict.fromkeys(spatial, (kernel - 1) * dilation + 1 + PLACES + number % stride)
    fixed = {channel: channels, filters_of(spec): channels, **sizes}
    return _case(target, fixed, {"kernel": kernel, "stride": stride, DILATION: dilation}, number)


def _image(spec: Spec) -> list[str]:
    axes = spec.inputs[next(iter(spec.activations))].axes
    return [axis.text for axis in axes] if isinstance(axes, list) else ["", ""]


def _outputs(spec: Spec, channels: int, outputs: int) -> int:
    """Return the outputs; as many as channels, where each channel has its own."""
    domain = spec.dims.get(filters_of(spec))
    counted = set() if domain is None or domain.multiple_of is None else domain.multiple_of.names
    return channels if counted & set(_image(spec)) else outputs


def _case(target: Target, fixed: Mapping[str, int], window: Mapping[str, int], number: int) -> Case | None:
    """Return a case with these sizes and this window along all axes, other attributes at their defaults, one image."""
    spec, chooser = target.spec, HashChoices(number, {"data": "random", "tiles": "untiled"})
    bound: dict[str, Any] = {}
    try:
        for name in draw_order(spec):
            domain = spec.dims.get(name) or spec.attrs[name]
            value = draw(name, domain, chooser, bound)
            if name in window and isinstance(value, tuple):
                value = (window[name],) * len(value)
            elif name in spec.attrs:
                value = value if domain.default is None else plain(domain.default)
            elif is_window(spec, name):
                value = window["kernel"]
            bound[name] = 1 if name == batch_of(spec) else fixed.get(name, value)
        bound = checked(spec, bound)
    except ILLEGAL:
        return None
    if not is_cheap(spec, bound, ROOM):
        return None
    return complete(target, bound, list(spec.inputs), "random", number % (1 << 32), chooser)
