"""Cases in which two sizes of one loop both exceed a block and leave a rest, or one size exceeds a counter.

`units` changes one size at a time, but kernels block two axes of a tensor, or the inputs and outputs of a group,
together.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from quantizer.conformance.generation.builder import complete
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.dealing import dealt, spread
from quantizer.conformance.generation.domains import draw
from quantizer.conformance.generation.fixed_sizes import completed, is_legal, of_fixed, plain_choices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.units import ILLEGAL, Unit, bound_with, is_ours, is_window
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.domains import draw_order
from quantizer.core.spec import Domain, Spec

EARLIER, LATER = "earlier", "later"
AXES = (EARLIER, LATER)
"""Cases per platform of an operator with axes: it works along the earlier or the later of two long axes.

A broadcast operand has size 1 on both axes (like a factor per channel), or on the later axis only.
"""
LONG, COPY, ALONG_CHANNELS = "long", "copy", "channels"
"""Further cases: one axis of size PAST_COUNTERS; a permutation that moves only axes of size 1; an operator that works
along the channels of images, which are more than a vector.

Kernels skip axes of size 1, and copy the tensor if the remaining axes keep their order.
"""
ROW_OF_BLOCKS, ROWS_OF_BLOCKS = "row of blocks", "rows of blocks"
BLOCKS: Mapping[str, tuple[int, ...]] = {ROW_OF_BLOCKS: (1, 1024), ROWS_OF_BLOCKS: (3, 2048)}
"""Further cases of an operator that computes along an axis: whole blocks of the largest size that kernels block by, in
one row or several. All other cases leave a rest or have less than a block.
"""
CHANNEL = 1
"""The axis of the channels among the four of images."""
IMAGES = ((2, 33, 3, 5), (1, 17, 4, 3))
ALONE, BETWEEN_ONES, ALONE_AXIS = "alone", (2, 3, 1, 17, 1), 3
"""A further case of a reduction. Its one axis is dropped, and lies between axes of size 1, which kernels skip."""
PAST_COUNTERS = 8193
"""Exceeds the integers of float16 (2048), and an accelerator's counters of 12 and 13 bits."""
SUMMED = ("linear", "bilinear", "product")
"""Kinds of operators that have no case of LONG if the number of terms of their sums depends on sizes."""
COPIES = (((0, 1), (0, 2, 3, 1)), ((0, 3), (0, 3, 1, 2)))
"""Axes longer than 1, and the permutation: channels first to channels last with one channel or one pixel, and back."""
PAIRS = ((16, 32), (32, 16), (32, 32), (8, 64))
"""Whole vectors of 8, 16, 32 or 64 elements along the last two axes. Each is exceeded by a rest that a hash chooses."""
MOST_REST = 15
GROUPS = ((4, 4), (8, 9), (16, 17))
"""Cases per platform of an operator with groups: inputs and outputs of a group."""
MANY = (2, 3)
"""Numbers of groups."""
CHANNELS = ((2, 8, 2), (32, 32, 1))
"""Further cases per platform of an operator with such a weight: inputs of a group, outputs of a group, groups.

First a vector of outputs from fewer inputs than a vector; then whole vectors of both, in one group. In the cases of
GROUPS neither size is a multiple of a vector, or both are equal.
"""
KERNELS, OF_SIGNALS = (1, 3), (3, 65)
"""Sizes of the kernel along each axis; of signals, also past a block of 64, as in networks for speech."""
JOINED = (8, 16, 6, 20, 24)
"""Sizes of all operands along the axis that an operator joins them along: whole vectors; a size that is a multiple of
4 only for two operands together; a block of 16 and a quarter or a half. In the first case of a platform, optional
operands are left out.
"""
SUMMED_UP = 1025
"""Length of a vector with running sums. There is a case for each combination of flags."""
SPATIAL: tuple[tuple[int, ...], ...] = ((1, 2), (2, 3))
"""Axes of an image whose channels are last, and first, that are padded together."""
ENDS = ((1, 0), (0, 1), (1, 1))
"""Places added before and behind each of these axes."""
PADDED = ((2, 3, 8, 16), (1, 8, 5, 8))
"""Images with whole vectors along the last axis."""
COLUMN = (1, 1, 10, 1)
OF_COLUMNS: tuple[tuple[tuple[int, ...], tuple[int, int]], ...] = tuple(((len(COLUMN) - 1,), end) for end in ENDS[:2])
"""A column becomes two, before or behind: rows of one element cannot be copied as they lie. An
operator's targets share these cases."""
TRIES = 64
"""The number of attempts: drawn sizes may be too large, have fewer than two axes, or let the operator work along
other axes."""


def joint_sizes(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases of AXES, LONG, COPY and GROUPS: a platform has each kind once."""
    spec = target.spec
    if not is_ours(spec):
        return []
    shape = axes_shape(spec)
    axes = dealt(everything, target, kinds_of_axes(spec) if shape else (), "joint_axes")
    groups = dealt(everything, target, GROUPS if _has_groups(spec) else (), "joint_groups")
    channels = dealt(everything, target, _channels(spec), "joint_channels")
    made = [_of_axes(target, shape, kind) for kind in axes] + [_of_group(target, pair, MANY) for pair in groups]
    made += [_of_group(target, (inputs, outputs), (many,)) for inputs, outputs, many in channels]
    made += [_joined(target, size) for size in dealt(everything, target, JOINED if joins(spec)[0] else (), "joined")]
    flags = _flags(spec) if shape and runs(spec) else []
    made += [_summed_up(target, shape, each) for each in dealt(everything, target, flags, "summed_up")]
    pads = shape and _ends_of(spec, shape)
    images = [(axes, end) for axes in SPATIAL for end in ENDS]
    ends = dealt(everything, target, images if pads else (), "padded")
    ends += spread(everything, target, OF_COLUMNS if pads else (), "columns")
    made += [_padded(target, shape, *each) for each in ends]
    return [case for case in made if case is not None]


def kinds_of_axes(spec: Spec) -> list[str]:
    """Return the kinds of cases of an operator that tells axes apart."""
    moves = any(domain.type == "permutation" for domain in spec.attrs.values())
    terms = spec.error_model.terms
    is_counted = spec.error_model.kind not in SUMMED or terms is None or not terms.names or runs(spec)
    chosen = any(domain.type == "axes" or is_axis(domain, axes_shape(spec)) for domain in spec.attrs.values())
    computes = chosen and not moves and not joins(spec)[0] and spec.error_model.kind != "movement"
    reduces = any(domain.type == "axes" for domain in spec.attrs.values()) and spec.error_model.kind != "movement"
    further = {LONG: is_counted, COPY: moves, ALONG_CHANNELS: chosen and not moves, **dict.fromkeys(BLOCKS, computes)}
    further[ALONE] = reduces
    return [*AXES, *(kind for kind, has in further.items() if has)]


def runs(spec: Spec) -> bool:
    """Return whether the result has one element per term (a running sum), so that one more term is one addition."""
    return spec.quantization.family == "running_sum"


def axes_shape(spec: Spec) -> str:
    """Return the shape whose axes an operator tells apart, because an attribute or another shape depends on it.

    Empty if there is none.
    """
    for name, domain in spec.dims.items():
        if domain.type == "shape" and not any((domain.product, domain.sum, domain.broadcasts_to, domain.like)):
            others = [each for n, each in (*spec.dims.items(), *spec.attrs.items()) if n != name]
            return name if any(_depends(each, name) for each in others) else ""
    return ""


def _depends(domain: Domain, shape: str) -> bool:
    ends = (domain.min, domain.max, domain.length, domain.product, domain.sum, domain.axes_of)
    named = {name for end in ends if end is not None for name in end.names}
    return shape in (*named, domain.broadcasts_to, domain.like) or domain.type in ("axes", "permutation")


def _of_axes(target: Target, shape: str, kind: str) -> Case | None:
    spec = target.spec
    for step in range(TRIES):
        number = key(step, target.id, "joint_axes", kind)
        chooser = plain_choices(number)
        if kind in AXES:
            bound = _of_two(spec, shape, kind, number, chooser)
        else:
            bound = _with_shape(spec, shape, _special(kind, number), chooser)
        if bound is not None:
            return completed(target, bound, number, chooser)
    return None


def _of_two(spec: Spec, shape: str, kind: str, number: int, chooser: HashChoices) -> dict[str, Any] | None:
    """Return sizes and attributes with two long last axes of *shape*; None if illegal or along another axis."""
    before, last = with_rests(PAIRS[number % len(PAIRS)], number // 8)
    bound = bound_with(spec, {shape: Unit(shape, last, 2, before=before)}, chooser)
    if bound is None or works_along(spec, shape, bound) not in (kind, ""):
        return None
    repeated = [name for name, domain in spec.dims.items() if domain.broadcasts_to == shape]
    # a factor per channel has size 1 on the last two axes; without a longer axis before them it would be one number
    if repeated and kind == EARLIER and all(size == 1 for size in bound[shape][-3:-2]):
        return None
    ones = (1, 1) if kind == EARLIER else (1,)
    # all but the last one or two axes as in the full shape, and 1 there
    bound |= dict.fromkeys(repeated, (*bound[shape][: -len(ones)], *ones))
    bound |= _one_end(spec, shape, kind, bound, number)
    return bound if is_legal(spec, bound) else None


def with_rests(vectors: Sequence[int], number: int) -> tuple[int, ...]:
    """Return sizes past whole vectors: each has a rest of at least 1, less than the vector and at most MOST_REST."""
    rests = (min(size - 1, MOST_REST) for size in vectors)
    return tuple(
        size + 1 + number // (MOST_REST + 2) ** place % most
        for place, (size, most) in enumerate(zip(vectors, rests, strict=True))
    )


def _special(kind: str, number: int) -> dict[str, Any]:
    """Return the fixed values of a case of LONG, COPY, ALONG_CHANNELS, ALONE or BLOCKS.

    The key of the shape is empty. Other keys are types of domains, whose attributes all have the value.
    """
    if kind == ALONG_CHANNELS:
        return {"": IMAGES[number % len(IMAGES)]}
    if kind in BLOCKS:
        return {"": BLOCKS[kind]}
    if kind == ALONE:
        return {"": BETWEEN_ONES, "bool": False}
    if kind == LONG:
        return {"": ((1, PAST_COUNTERS), (PAST_COUNTERS, 1))[number % 2]}
    long, perm = COPIES[number % len(COPIES)]
    sizes = iter(with_rests(PAIRS[number // 2 % len(PAIRS)], number // 16))
    return {"": tuple(next(sizes) if i in long else 1 for i in range(len(perm))), "permutation": perm}


def _with_shape(spec: Spec, shape: str, fixed: Mapping[str, Any], chooser: HashChoices) -> dict[str, Any] | None:
    """Return sizes and attributes with the *fixed* values; None if they are illegal or work along another axis."""
    bound: dict[str, Any] = {}
    try:
        for name in draw_order(spec):
            domain = spec.dims.get(name) or spec.attrs[name]
            drawn = draw(name, domain, chooser, bound)
            bound[name] = fixed.get("" if name == shape else domain.type, drawn)
    except ILLEGAL:
        return None
    if not is_legal(spec, bound):
        return None
    if fixed[""] == BETWEEN_ONES:
        return bound if _along(spec, shape, bound) == {ALONE_AXIS} else None
    if fixed[""] in IMAGES:
        return bound if CHANNEL in _along(spec, shape, bound) else None
    # the operator must work along the long one of (n, 1) or (1, n)
    long = EARLIER if bound[shape][-1] == 1 else LATER
    return bound if "permutation" in fixed or works_along(spec, shape, bound) in (long, "") else None


def _one_end(spec: Spec, shape: str, kind: str, bound: Mapping[str, Any], number: int) -> dict[str, tuple[int, ...]]:
    """Return paddings and the like of all axes: one amount at one end of the axis of *kind*, all others 0."""
    rank = len(bound[shape])
    axis = rank - (2 if kind == EARLIER else 1)
    # the list has the amounts before all axes, then those behind all axes
    place = axis + rank * (number // len(PAIRS) % 2)
    ends = [name for name, domain in spec.attrs.items() if is_of_ends(domain, shape) and len(bound[name]) == 2 * rank]
    return {name: tuple(max(v, 1) * (i == place) for i, v in enumerate(bound[name])) for name in ends}


def is_of_ends(domain: Domain, shape: str) -> bool:
    """Return whether an attribute is a list of numbers of at least 0, with a length that depends on the shape."""
    is_list = domain.length is not None and shape in domain.length.names
    return is_list and domain.min is not None and not domain.min.names and int(domain.min({})) == 0


def works_along(spec: Spec, shape: str, bound: Mapping[str, Any]) -> str:
    """Return along which of the last two axes an operator works: earlier, later, or "other" for both or neither.

    Empty if no attribute decides it. A permutation counts as earlier if it exchanges the two axes, and as later if only
    other axes move.
    """
    rank = len(bound[shape])
    for name, domain in spec.attrs.items():
        if domain.type == "permutation":
            return _of_permutation(bound[name])
        if domain.type == "axes" or is_axis(domain, shape):
            found = _along(spec, shape, bound) & {rank - 2, rank - 1}
            return "other" if len(found) != 1 else EARLIER if rank - 2 in found else LATER
    return ""


def _along(spec: Spec, shape: str, bound: Mapping[str, Any]) -> set[int]:
    """Return the axes that the first attribute of axes names, counted from the front."""
    for name, domain in spec.attrs.items():
        if domain.type == "axes" or is_axis(domain, shape):
            chosen = bound[name] if domain.type == "axes" else (bound[name],)
            return {axis % len(bound[shape]) for axis in chosen}
    return set()


def _of_permutation(perm: tuple[int, ...]) -> str:
    rank = len(perm)
    if perm.index(rank - 1) < perm.index(rank - 2):
        return EARLIER
    return "other" if perm == tuple(range(rank)) else LATER


def is_axis(domain: Domain, shape: str) -> bool:
    """Return whether an attribute is the number of one of the shape's axes."""
    return domain.type == "int" and domain.length is None and domain.min is not None and shape in domain.min.names


def _has_groups(spec: Spec) -> bool:
    return "groups" in spec.attrs and any(item.role == "weight" for item in spec.inputs.values())


def _channels(spec: Spec) -> list[tuple[int, int, int]]:
    """Return the entries of CHANNELS that suit the operator.

    Its weight must have both sizes as free dimensions, and only an operator with groups has several groups.
    """
    weights = [item.axes for item in spec.inputs.values() if item.role == "weight"]
    sizes = {axis.text for axes in weights if isinstance(axes, list) for axis in axes[:2]} & spec.dims.keys()
    free = [name for name in sizes if spec.dims[name].multiple_of is None or "groups" in spec.attrs]
    return [kind for kind in CHANNELS if (len(free) == 2 and kind[2] == 1) or _has_groups(spec)]


def _of_group(target: Target, pair: tuple[int, int], many: tuple[int, ...]) -> Case | None:
    spec = target.spec
    for step in range(TRIES):
        number = key(step, target.id, "joint_groups", str(pair))
        chooser = plain_choices(number)
        bound = bound_with(spec, _sizes(spec, pair, many[number % len(many)], number // 2), chooser)
        if bound is not None:
            return completed(target, bound, number, chooser)
    return None


def _sizes(spec: Spec, pair: tuple[int, int], groups: int, number: int) -> dict[str, Unit]:
    """Return the sizes of a group of a convolution, its number of groups, and its kernel."""
    factors = [item.axes for item in spec.inputs.values() if item.role != "bias"]
    first, second = [axes for axes in factors if isinstance(axes, list)][:2]
    channels = first[1].text
    wanted = {"groups": groups, channels: pair[0] * groups}
    for axis in second[:2]:
        if axis.text in spec.dims and axis.text != channels:
            least = spec.dims[axis.text].min
            # a dimension that is at least the number of groups counts the outputs of all groups, another those of one
            wanted[axis.text] = pair[1] * (groups if least is not None and "groups" in least.names else 1)
    windows = [name for name in draw_order(spec) if name in spec.dims and is_window(spec, name)]
    # a signal has one window axis: a long kernel is cheap there
    wanted |= dict.fromkeys(windows, (KERNELS if len(windows) > 1 else OF_SIGNALS)[number % 2])
    return {name: Unit(name, size) for name, size in wanted.items()}


def joins(spec: Spec) -> tuple[str, str]:
    """Return the common shape of joined operands, and the one axis in which they may differ.

    Empty strings if the operator joins nothing.
    """
    pairs = [(domain.like, domain.but_for.text) for domain in spec.dims.values() if domain.like and domain.but_for]
    return pairs[0] if len(set(pairs)) == 1 and len(pairs) > 1 else ("", "")


def _joined(target: Target, size: int) -> Case | None:
    spec, number = target.spec, key(0, target.id, "joined", str(size))
    (shape, axis), chooser = joins(spec), plain_choices(number)
    alike = [shape, *(name for name, domain in spec.dims.items() if domain.like)]
    bound = bound_with(spec, {shape: Unit(shape, 4)}, chooser)
    if bound is None:
        return None
    first = bound[shape]
    bound |= dict.fromkeys(alike, (first[0], size, *first[2:])) | {axis: 1}
    needed = [name for name, item in spec.inputs.items() if size != JOINED[0] or not item.optional]
    return complete(target, bound, needed, "random", number % (1 << 32), chooser)


def _flags(spec: Spec) -> list[dict[str, bool]]:
    """Return every combination of the attributes that are true or false."""
    names = [name for name, domain in spec.attrs.items() if domain.type == "bool"]
    return [dict(zip(names, values, strict=True)) for values in itertools.product((False, True), repeat=len(names))]


def _summed_up(target: Target, shape: str, flags: Mapping[str, bool]) -> Case | None:
    number = key(0, target.id, "summed_up", str(flags))
    return of_fixed(target, {shape: (SUMMED_UP,), **flags}, number)


def _ends_of(spec: Spec, shape: str) -> list[str]:
    """Return the attributes with two numbers for each axis: amounts added before and behind it."""
    return [name for name, domain in spec.attrs.items() if is_of_ends(domain, shape) and "2" in str(domain.length)]


def _padded(target: Target, shape: str, axes: tuple[int, ...], end: tuple[int, int]) -> Case | None:
    number = key(0, target.id, "padded", str((axes, end)))
    image = COLUMN if (axes, end) in OF_COLUMNS else PADDED[number % len(PADDED)]
    # [before all axes, behind all axes]
    amounts = tuple(many * (axis in axes) for many in end for axis in range(len(image)))
    return of_fixed(target, {shape: image, **dict.fromkeys(_ends_of(target.spec, shape), amounts)}, number)
