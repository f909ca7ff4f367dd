"""Cases of signals in operators of images: one row, a kernel longer than a vector, and padding as wide as the kernel.

Engines block the places of the output. With a padding wider than a block, whole blocks see no element of the image.
Kernels and paddings that are drawn independently are shorter than a block.
"""

from __future__ import annotations

from typing import Any

from quantizer.conformance.generation.builder import complete
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.domains import draw
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.units import ILLEGAL, is_ours, is_window
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.domains import draw_order
from quantizer.core.shapes import check, evaluate, variables
from quantizer.core.spec import Spec

LENGTHS = (33, 18)
"""Lengths of a kernel: two blocks of sixteen and one, and the smallest whose one-sided padding exceeds a block."""
SIDES = ((1.0, 0.0), (0.5, 0.5), (0.0, 1.0))
"""Padding before and after the signal, as shares of the kernel length less 1: all on one side, as in causal filters, or
half on both."""
BEYOND = 2
"""The signal is longer than the kernel by this."""


def long_windows(target: Target) -> list[Case]:
    """Return a case of a target whose operator has strided windows. A hash of the target chooses length and side."""
    spec, number = target.spec, key(0, target.id, "long_windows")
    if not {"stride", "padding"} <= spec.attrs.keys() or not is_ours(spec):
        return []
    chooser = HashChoices(number, {"data": "random", "tiles": "untiled"})
    side = SIDES[number // len(LENGTHS) % len(SIDES)]
    try:
        bound = _bound(spec, LENGTHS[number % len(LENGTHS)], side, chooser)
    except ILLEGAL:
        return []
    return [complete(target, bound, list(spec.inputs), "random", number % (1 << 32), chooser)]


def _bound(spec: Spec, length: int, side: tuple[float, float], chooser: HashChoices) -> dict[str, Any]:
    """Return the sizes and attributes: every image axis but the last has size 1, a kernel of size 1 and no padding.

    Attributes that are neither kernel nor padding have their defaults, or are drawn.
    """
    axes = spec.inputs[next(iter(spec.activations))].axes
    spatial = [axis.text for axis in axes[2:]] if isinstance(axes, list) else []
    ends = [int((length - 1) * share) for share in side]
    # before all axes, then behind all of them; only the last axis has any
    paddings = tuple(end for each in ends for end in (*(0 for _ in spatial[1:]), each))
    fixed: dict[str, Any] = {"kernel": (*(1 for _ in spatial[1:]), length), "padding": paddings}
    windows = [name for name in draw_order(spec) if name in spec.dims and is_window(spec, name)]
    fixed |= {name: length if name == windows[-1] else 1 for name in windows}
    fixed |= {name: length + BEYOND if name == spatial[-1] else 1 for name in spatial}
    bound: dict[str, Any] = {}
    for name in draw_order(spec):
        domain = spec.dims.get(name) or spec.attrs[name]
        value = draw(name, domain, chooser, bound)
        if name in spec.attrs and domain.default is not None:
            value = tuple(domain.default) if isinstance(domain.default, list) else domain.default
        elif name in spec.attrs and name == "stride":
            value = tuple(1 for _ in spatial)
        bound[name] = fixed.get(name, value)
    shapes = {name: evaluate(item.axes, bound) for name, item in spec.inputs.items()}
    check(spec, variables(spec, shapes, {name: bound[name] for name in spec.attrs}))
    return bound
