"""Cases with the windows of networks: usual kernels, strides, paddings and dilations, with few channels.

Engines have kernels for just these. Independently drawn attributes seldom match one of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from quantizer.conformance.generation.builder import complete
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.dealing import dealt, spread
from quantizer.conformance.generation.domains import draw
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.units import ILLEGAL, batch_of, is_ours, is_window
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.domains import draw_order
from quantizer.core.shapes import check, evaluate, variables
from quantizer.core.spec import Domain, Spec

WINDOWS = (
    (3, 2, 1, 1, 1),
    (3, 2, 0, 1, 1),
    (3, 1, 1, 1, 1),
    (1, 2, 0, 0, 1),
    (5, 1, 2, 2, 1),
    (3, 2, 0, 0, 1),
    (7, 2, 3, 3, 1),
    (2, 2, 0, 0, 1),
    (5, 2, 1, 2, 1),
    (3, 2, 1, 0, 1),
)
DILATED = (
    (3, 1, 2, 2, 2),
    (3, 2, 0, 0, 2),
    (3, 1, 0, 0, 2),
    (3, 2, 2, 2, 2),
    (3, 1, 3, 3, 3),
    (5, 1, 4, 4, 2),
    (3, 2, 1, 1, 3),
)
"""Kernel, stride, padding before, padding after and dilation. All axes have the same.

An even image with an odd kernel and a stride needs an odd total padding, with the extra place after or before the
image. DILATED is for operators that have a dilation.
"""
CHANNELS = ((3,), (1, 4))
"""Numbers of channels: a colour image, a gray image or sound, and colours padded to four. A case for each."""
WHOLE = len(CHANNELS)
"""Row of a further case of a target: the window is the whole image and gives one element."""
VECTORS = (8, 16, 24, 32)
"""Channels of a further case of a target: whole vectors, under any of the windows or, in half of the targets, a kernel
of size 1."""
FUSED = ("relu", "relu6", "none")
"""A fused activation that is common in networks, if the target has it."""
OF_VECTORS = WHOLE + 1
"""Row of the case with VECTORS."""
POINT = (1, 1, 0, 0, 1)
"""The kernel of size 1, as in WINDOWS."""
PATCHES = ((4, 4, 0, 0, 1), (8, 8, 0, 0, 1), (14, 14, 0, 0, 1))
"""Windows without overlap, as networks cut an image into patches. The targets of a platform share these cases."""
OF_PATCHES = OF_VECTORS + 1
"""Row of these cases."""
FIRST_LAYER = (3, 2, 1, 1, 1)
"""The window of a typical first layer: from a colour picture to whole vectors of channels. One of a platform's targets
has the case, and one has that of one gray picture."""
OF_FIRST_LAYER = OF_PATCHES + 1
"""Row of this case."""
STEPS = (2, 3, 4)


def _overlaps() -> Iterator[tuple[int, int, int, int, int]]:
    """Yield for each stride the kernels that leave gaps, touch, overlap in one place, and just twice; for 1 up to 7.

    The padding is such that the output has one place for each step. Those in other lists are left out.
    """
    # kernel and stride; the paddings of the other lists do not change how windows overlap
    known = {window[:2] for window in WINDOWS + PATCHES}
    kernels = {1: tuple(range(2, 8))} | {s: (s - 1, s, s + 1, 2 * s - 1, 2 * s) for s in STEPS}
    for stride, sizes in kernels.items():
        for kernel in sizes:
            overlap = max(kernel - stride, 0)
            if (kernel, stride) not in known:
                known.add((kernel, stride))
                yield kernel, stride, overlap // 2, overlap - overlap // 2, 1


DEEP = tuple((2 * stride + 1, stride, 0, stride - 1, 1) for stride in STEPS[1:])
"""Kernels one place longer than two strides: three windows share that place. For a stride of 2, it is in WINDOWS."""
SPACED = ((3, 2, 0, 0, 3), (3, 3, 0, 0, 2), (3, 3, 0, 0, 3))
"""Strides and dilations, both more than one, without padding, for operators that have a dilation; a further one is in
DILATED."""
OVERLAPS = (*_overlaps(), *DEEP)
"""Windows by how far two neighbours overlap, from a colour picture to whole vectors of channels. An operator's targets
share these cases."""
FULL = tuple((kernel, stride, kernel - 1, kernel - 1, 1) for kernel in (2, 3) for stride in range(1, kernel + 1))
"""Windows with so much padding that the first sees one place of the image. There are three along each axis and no
rest. An operator's targets share these cases."""
GROUPED = (((3, 2, 1, 1, 1), 32), ((3, 1, 1, 1, 1), 32), ((3, 2, 1, 1, 1), 9))
"""Windows and channels of a group: whole vectors, and a vector and a rest. A platform's targets share the cases."""
OF_GRAY = OF_FIRST_LAYER + 2
"""Row of the case of one gray picture."""
GROUPS, OUTPUTS = 2, 8
"""Groups in these cases, and outputs of a group."""
OF_GROUPS = OF_FIRST_LAYER + 1
"""Row of these cases."""
CEILED = (
    *((window, (rest,)) for window in ((3, 2, 0, 0, 1), (2, 2, 0, 0, 1), (3, 2, 1, 1, 1)) for rest in (0, 1)),
    ((3, 3, 1, 1, 1), (-2,)),
    ((1, 2, 0, 0, 1), (1, 0)),
)
"""Windows and rests for operators that may round the number of outputs up, as these cases do. A rest is what is left
of the image after the last whole step. Without a rest, the axes have one output, two, and so on. With a rest, each
axis has a further window that extends beyond the image. With a negative rest, a second window would begin in the
padding, so there is one output. Several rests belong to the axes in turn. The targets of a platform share these cases.
A hash chooses the other attributes that are true or false."""
CEIL = "ceil_mode"
SAME = (
    (2, 2, 0, 1, 1),
    (3, 3, 0, 1, 1),
    (4, 4, 0, 1, 1),
    (4, 4, 1, 2, 1),
    (4, 2, 1, 2, 1),
    (5, 3, 1, 2, 1),
    (3, 2, 1, 2, 1),
)
"""Windows whose odd total padding keeps an image divided by the stride, with the larger part behind, and one more. An
operator's targets share these windows, each with every combination of the attributes that are true or false."""
STEPS_OF_IMAGES, REST = (4, 8), 4
"""With few channels, an image has at least so many steps beyond the first along its last two axes, and fewer than so
many more. In the first REST of a window's cases, nothing is left after the last step. Of three axes, only the last one
is so long."""
AXES = 2
"""The number of an image's axes."""
PLACES = (4, 5)
"""Added to the smallest size, so that the output has several elements and an odd or an even number of rows; at least
one more than the stride is added."""
DILATION = "dilation"


def usual_windows(target: Target) -> list[Case]:
    """Return the cases of a target whose operator has strided windows, of the rows WHOLE and OF_VECTORS."""
    spec = target.spec
    if not {"stride", "padding"} <= spec.attrs.keys() or not is_ours(spec):
        return []
    return [case for row in (WHOLE, OF_VECTORS) if (case := _case(target, row)) is not None]


def images(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the cases of a target with few channels, one for each number of CHANNELS.

    The operator's targets get the windows in turn, and each window one more place of the output's last axis.
    """
    spec = target.spec
    if not {"stride", "padding"} <= spec.attrs.keys() or not is_ours(spec):
        return []
    windows = WINDOWS + DILATED if DILATION in spec.attrs else WINDOWS
    first = [each.id for each in everything].index(target.id) * WHOLE + key(0, spec.op, "images") % len(windows)
    made = [
        _case(target, row, (windows[turn % len(windows)],), places=turn // len(windows))
        for row, turn in enumerate(range(first, first + WHOLE))
    ]
    return [case for case in made if case is not None]


def patches(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases of PATCHES that its platform's targets have."""
    if not {"stride", "padding"} <= target.spec.attrs.keys() or not is_ours(target.spec):
        return []
    windows = dealt(everything, target, PATCHES, "patches")
    return [case for window in windows if (case := _case(target, OF_PATCHES, (window,))) is not None]


def first_layer(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of a platform's two cases of FIRST_LAYER, if the operator has filters."""
    if not {"stride", "padding"} <= target.spec.attrs.keys() or not is_ours(target.spec) or not filters_of(target.spec):
        return []
    rows = dealt(everything, target, (OF_FIRST_LAYER, OF_GRAY), "first_layer")
    return [case for row in rows if (case := _case(target, row, (FIRST_LAYER,))) is not None]


def overlapping(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases of OVERLAPS that its operator's targets have."""
    if not {"stride", "padding"} <= target.spec.attrs.keys() or not is_ours(target.spec):
        return []
    windows = spread(everything, target, OVERLAPS, "overlapping")
    return [case for window in windows if (case := _case(target, OF_FIRST_LAYER, (window,))) is not None]


def spaced(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases of SPACED that its operator's targets have."""
    if not {"stride", "padding", DILATION} <= target.spec.attrs.keys() or not is_ours(target.spec):
        return []
    windows = spread(everything, target, SPACED, "spaced")
    return [case for window in windows if (case := _case(target, OF_FIRST_LAYER, (window,))) is not None]


def fully_padded(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases of FULL that its operator's targets have."""
    if not {"stride", "padding"} <= target.spec.attrs.keys() or not is_ours(target.spec):
        return []
    found = [_sized(target, "fully_padded", window, (0,), 2) for window in spread(everything, target, FULL, "full")]
    return [case for case in found if case is not None]


def grouped_windows(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases of GROUPED that its platform's targets have; none without groups."""
    if not {"stride", "padding", "groups"} <= target.spec.attrs.keys() or not is_ours(target.spec):
        return []
    kinds = dealt(everything, target, GROUPED, "grouped_windows")
    found = [_case(target, OF_GROUPS, (window,), GROUPS * each) for window, each in kinds]
    return [case for case in found if case is not None]


def ceiled(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases of CEILED that its platform's targets have."""
    if CEIL not in target.spec.attrs or not is_ours(target.spec):
        return []
    names = [name for name, domain in target.spec.attrs.items() if domain.type == "bool" and name != CEIL]
    found = [
        _sized(target, "ceiled", *kind, fixed={name: bool(key(0, target.id, name, repr(kind)) % 2) for name in names})
        for kind in dealt(everything, target, CEILED, "ceiled")
    ]
    return [case for case in found if case is not None]


def same_padding(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases of SAME that its operator's targets have."""
    spec = target.spec
    if not {"stride", "padding"} <= spec.attrs.keys() or not is_ours(spec):
        return []
    names = [name for name, domain in spec.attrs.items() if domain.type == "bool"]
    flags = [dict(zip(names, values, strict=True)) for values in itertools.product((False, True), repeat=len(names))]
    kinds = spread(everything, target, list(itertools.product(SAME, flags)), "same_padding")
    found = [
        _sized(target, "same_padding", window, (int(fixed.get(CEIL, False)),), 2, fixed) for window, fixed in kinds
    ]
    return [case for case in found if case is not None]


def _sized(
    target: Target,
    name: str,
    window: tuple[int, int, int, int, int],
    rests: tuple[int, ...],
    steps: int = 0,
    fixed: Mapping[str, Any] = MappingProxyType({}),
) -> Case | None:
    """Return a case whose axes have so many steps and a rest, with *fixed* attributes.

    Without a number of steps, the axes have one step and a rest, or none, one and so on; outputs are rounded up.
    """
    spec, number = target.spec, key(rests[0], target.id, name, str(window), *map(str, fixed.items()))
    chooser = HashChoices(number, {"data": "random", "tiles": "untiled"})
    kernel, stride, before, behind, _ = window
    try:
        bound = _bound(spec, window, OF_PATCHES, number // 2, chooser)
        axes = spec.inputs[next(iter(spec.activations))].axes
        for place, axis in enumerate(axes[2:] if isinstance(axes, list) else ()):
            rest = rests[place % len(rests)]
            # the first window, further steps, and the rest, less the padding on both sides
            bound[axis.text] = kernel + stride * (steps or (1 if rest else place)) + rest - before - behind
        bound = checked(spec, {**bound, **fixed} if steps else {**bound, **fixed, CEIL: True})
    except ILLEGAL:
        return None
    return complete(target, bound, list(spec.inputs), "random", number % (1 << 32), chooser)


def _case(
    target: Target,
    row: int,
    windows: tuple[tuple[int, int, int, int, int], ...] = WINDOWS,
    channels: int = 0,
    places: int = 0,
) -> Case | None:
    spec, number = target.spec, key(row, target.id, "usual_windows")
    # each choice takes other digits of one hash, so that the choices do not depend on each other
    fused = FUSED[number // 4 % len(FUSED)] if row == OF_VECTORS else ""
    chooser = HashChoices(number, {"data": "random", "tiles": "untiled"} | ({"activation": fused} if fused else {}))
    if row == OF_VECTORS and number // 2 % 2:
        windows = (POINT,)
    elif row == OF_VECTORS and DILATION in spec.attrs:
        windows = WINDOWS + DILATED
    try:
        bound = _bound(spec, windows[number % len(windows)], row, number // len(windows), chooser, channels, places)
    except ILLEGAL:
        return None
    return complete(target, bound, list(spec.inputs), "random", number % (1 << 32), chooser)


def _bound(
    spec: Spec,
    window: tuple[int, int, int, int, int],
    row: int,
    number: int,
    chooser: HashChoices,
    many: int = 0,
    places: int = 0,
) -> dict[str, Any]:
    """Return sizes and attributes; *many*: the channels of a row of groups; *places*: more of an image's last axis."""
    bound: dict[str, Any] = {}
    # a window that is the whole image needs neither steps nor padding
    kernel, stride, before, behind, dilation = (window[0], 1, 0, 0, 1) if row == WHOLE else window
    fixed = {"kernel": (kernel,), "stride": (stride,), "padding": (before, behind), DILATION: (dilation,)}
    axes = spec.inputs[next(iter(spec.activations))].axes
    filters = filters_of(spec) if row in (OF_VECTORS, OF_FIRST_LAYER, OF_GROUPS, OF_GRAY) else ""
    channels, *spatial = [axis.text for axis in axes[1:]] if isinstance(axes, list) else [""]
    grouped = {"groups": GROUPS, channels: many, filters: GROUPS * OUTPUTS} if row == OF_GROUPS else {}
    grouped |= {batch_of(spec): 1, channels: 1} if row == OF_GRAY else {}
    long = spatial[-2 if len(spatial) == AXES else -1 :] if row < WHOLE else []
    for name in draw_order(spec):
        domain = spec.dims.get(name) or spec.attrs[name]
        value = draw(name, domain, chooser, bound)
        if name in fixed and isinstance(value, tuple):
            # before all axes, then behind all of them; kernels and strides have one number for both
            ends = fixed[name] if len(value) % 2 == 0 else fixed[name][:1]
            value = tuple(end for end in ends for _ in range(len(value) // len(ends)))
        elif name in spec.attrs:
            value = value if domain.default is None else plain(domain.default)
        elif is_window(spec, name):
            value = kernel
        elif name in long and domain.min is not None:
            value = int(domain.min(bound)) + _steps(spec, stride, places if name == long[-1] else number // 64)
        elif name in spatial and domain.min is not None:
            value = int(domain.min(bound)) + (0 if row == WHOLE else max(PLACES[number % len(PLACES)], stride + 1))
        elif row == WHOLE and domain.min is not None and name != channels:
            value = int(domain.min(bound))
        elif name == channels and row == OF_VECTORS:
            value = VECTORS[number // 2 % len(VECTORS)]
        elif name == filters:
            # filters must be a multiple of the groups in some operators
            value = _whole(domain, VECTORS[number // 8 % len(VECTORS)], bound)
        elif name == channels and row == OF_FIRST_LAYER:
            value = CHANNELS[0][0]
        elif name == channels and row < WHOLE:
            value = CHANNELS[row][number // 2 % len(CHANNELS[row])]
        bound[name] = grouped.get(name, value)
    return checked(spec, bound)


def _steps(spec: Spec, stride: int, number: int) -> int:
    """Return the places of an image beyond the first window: as many steps as *number* says, and a part of one."""
    least, more = STEPS_OF_IMAGES
    steps = least + number % more
    return steps if "output_padding" in spec.attrs else stride * steps + number // REST % stride


def checked(spec: Spec, bound: dict[str, Any]) -> dict[str, Any]:
    """Return *bound*; an error of ILLEGAL if it breaks a constraint."""
    shapes = {name: evaluate(item.axes, bound) for name, item in spec.inputs.items()}
    check(spec, variables(spec, shapes, {name: bound[name] for name in spec.attrs}))
    return bound


def filters_of(spec: Spec) -> str:
    """Return the dimension of a weight that is the output's channels; empty without a weight."""
    held = [item for item in spec.inputs.values() if item.role == "weight" and isinstance(item.axes, list)]
    names = [item.axes[item.channel_axis or 0].text for item in held if isinstance(item.axes, list)]
    return next((name for name in names if name in spec.dims), "")


def _whole(domain: Domain, size: int, bound: Mapping[str, Any]) -> int:
    """Return *size*, or the number below it that is allowed, at least one multiple."""
    step = 1 if domain.multiple_of is None else int(domain.multiple_of(bound))
    return max(size // step, 1) * step


def plain(value: Any) -> Any:
    """Return the default of an attribute as a case holds it."""
    return tuple(value) if isinstance(value, list) else value
