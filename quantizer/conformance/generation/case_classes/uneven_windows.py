"""Cases with windows whose axes differ, or whose padding lies only after the data, with the channels of networks.

Networks factor a kernel into a row and a column, run signals as images of one row, and widen a kernel by its dilation;
converters leave padding at one end. Drawn attributes seldom have these numbers together with whole vectors of channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from quantizer.conformance.generation.builder import complete
from quantizer.conformance.generation.case_classes.usual_windows import (
    DILATION,
    PLACES,
    POINT,
    checked,
    filters_of,
    plain,
)
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.dealing import dealt, spread
from quantizer.conformance.generation.domains import draw
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.units import ILLEGAL, is_ours, is_window
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.domains import draw_order
from quantizer.core.spec import Domain, Spec

Window = tuple[int, int, int, int, int]
"""Kernel, stride, padding before and behind, and dilation along an axis."""


@dataclass(frozen=True)
class Kind:
    """The window of one axis, the first or the last by hash, and that of the others."""

    own: Window
    others: Window
    is_signal: bool = False
    """Whether the image has one place along the other axes."""
    channels: int = field(default=0, repr=False)
    """The channels, and the filters if it is one; 0: one of CHANNELS."""


FACTORED = ((3, 1, 1, 1, 1), (7, 1, 3, 3, 1))
"""Windows of one axis. The kernel has size 1 along the others."""
PADDED, BARE = (3, 2, 1, 1, 1), (3, 2, 0, 0, 1)
"""A window of one axis. The others have the same window without padding."""
EVEN: tuple[Window, ...] = ((7, 1, 0, 1, 1), (2, 1, 0, 1, 1), (3, 1, 4, 4, 4))
"""Windows of all axes: padding only behind, and a dilation larger than the kernel with as much padding."""
KINDS = (*(Kind(own, POINT) for own in FACTORED), Kind(PADDED, BARE), Kind(FACTORED[0], POINT, is_signal=True))
SIGNALS = (
    Kind((2, 2, 0, 0, 1), POINT, is_signal=True, channels=1),
    Kind((2, 2, 0, 0, 1), POINT, is_signal=True, channels=8),
    Kind((4, 2, 1, 1, 1), POINT, is_signal=True, channels=8),
    Kind((8, 4, 2, 2, 1), POINT, is_signal=True, channels=8),
)
"""Signals under kernels of one step, or of two with half a step of padding, as networks shorten and lengthen sound. An
operator's targets share these cases."""
FLAT = 2
"""The largest number of image axes with which a long kernel is used along all of them."""
LONG = 5
CHANNELS = (8, 32)


def uneven_windows(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases that its platform's targets have."""
    spec = target.spec
    if not {"stride", "padding"} <= spec.attrs.keys() or not is_ours(spec):
        return []
    kinds = (*(KINDS if len(_axes(spec)) > 1 else ()), *(Kind(each, each) for each in EVEN))
    known = [kind for kind in kinds if _is_known(kind, spec)]
    own = dealt(everything, target, known, "uneven_windows")
    own += spread(everything, target, SIGNALS if len(_axes(spec)) > 1 else (), "signals")
    cases = [_case(target, kind) for kind in own]
    return [case for case in cases if case is not None]


def _is_known(kind: Kind, spec: Spec) -> bool:
    """Return whether the operator has the dilation that the kind needs, and no long kernel fills a volume."""
    is_large = kind.others[0] > LONG and len(_axes(spec)) > FLAT
    return (kind.own[-1] == 1 or DILATION in spec.attrs) and not is_large


def _axes(spec: Spec) -> list[str]:
    """Return the names of the sizes of the image."""
    axes = spec.inputs[next(iter(spec.activations))].axes
    return [axis.text for axis in axes[2:]] if isinstance(axes, list) else []


def _case(target: Target, kind: Kind) -> Case | None:
    spec, number = target.spec, key(0, target.id, "uneven_windows", repr(kind))
    chooser = HashChoices(number, {"data": "random", "tiles": "untiled"})
    try:
        bound = checked(spec, _bound(spec, kind, number, chooser))
    except ILLEGAL:
        return None
    return complete(target, bound, list(spec.inputs), "random", number % (1 << 32), chooser)


def _bound(spec: Spec, kind: Kind, number: int, chooser: HashChoices) -> dict[str, Any]:
    sizes = _axes(spec)
    own = len(sizes) - 1 if kind.is_signal or number // 16 % 2 else 0
    windows = [kind.own if axis == own else kind.others for axis in range(len(sizes))]
    kernels = dict(zip((name for name in draw_order(spec) if _is_kernel(spec, name)), windows, strict=False))
    bound: dict[str, Any] = {}
    for name in draw_order(spec):
        domain = spec.dims.get(name) or spec.attrs[name]
        value = draw(name, domain, chooser, bound)
        if name in kernels:
            value = kernels[name][0]
        elif name in sizes and domain.min is not None:
            alone = kind.is_signal and sizes.index(name) != own
            value = 1 if alone else int(domain.min(bound)) + max(PLACES[number % len(PLACES)], kind.own[1] + 1)
        elif name in spec.attrs:
            value = _attribute(name, domain, windows, value)
        elif name == _channels(spec):
            value = kind.channels or (CHANNELS[-1] if kind.is_signal else CHANNELS[number // 8 % len(CHANNELS)])
        elif name == filters_of(spec) and kind.channels == 1:
            value = 1
        bound[name] = value
    return bound


def _attribute(name: str, domain: Domain, windows: Sequence[Window], drawn: Any) -> Any:
    """Return the entries of the windows for an attribute of windows, and the default of another."""
    places = {"kernel": (0,), "stride": (1,), "padding": (2, 3), DILATION: (4,)}
    if name in places and isinstance(drawn, tuple):
        # padding: before all axes, then behind all axes
        return tuple(window[place] for place in places[name] for window in windows)
    return drawn if domain.default is None else plain(domain.default)


def _is_kernel(spec: Spec, name: str) -> bool:
    return name in spec.dims and is_window(spec, name)


def _channels(spec: Spec) -> str:
    axes = spec.inputs[next(iter(spec.activations))].axes
    return axes[1].text if isinstance(axes, list) else ""
