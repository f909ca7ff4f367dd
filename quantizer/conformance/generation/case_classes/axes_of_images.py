"""Cases of operators that tell axes apart: every choice of axes of an image or of a sequence, with long axes.

Kernels have code of their own for the axes of an image that networks reduce, pad or exchange, for the innermost axis,
and for a kept axis beside them. Drawn choices of axes seldom meet whole vectors along the kept one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from quantizer.conformance.generation.builder import complete
from quantizer.conformance.generation.case_classes.joint_sizes import axes_shape, is_axis, is_of_ends
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.dealing import share
from quantizer.conformance.generation.domains import draw
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.units import ILLEGAL, ROOM, is_cheap, is_ours
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.domains import draw_order
from quantizer.core.spec import Spec

SHAPES = ((2, 5, 3, 16), (1, 4, 5, 19), (2, 16, 3, 5), (3, 9, 24))
"""Images with channels last and first, and sequences; whole vectors, and a rest behind one."""
FEW = ((2, 3, 2, 9), (1, 9, 3, 2), (2, 3, 9))
"""Such shapes with few elements along any axes but one, for products."""
ENDS = ((1, 0), (0, 1), (1, 1))
"""Places added before and behind each chosen axis."""
Kind = tuple[tuple[int, ...], str, tuple[int, ...]]
"""A shape, a type of attribute, and the value of attributes of this type."""
ENDS_OF_AXES, ONE_AXIS = "ends", "axis"
"""Types of attributes besides those of domains."""


def axes_of_images(everything: Sequence[Target], target: Target, *, strong: bool = False) -> list[Case]:
    """Return the target's share of the cases that its operator's targets have, or its platform's if *strong*."""
    spec = target.spec
    shape = axes_shape(spec) if is_ours(spec) else ""
    kinds = list(_kinds(spec, shape)) if shape else []
    found = [_case(target, shape, kind) for kind in share(everything, target, kinds, "axes_of_images", strong=strong)]
    return [case for case in found if case is not None]


def _kinds(spec: Spec, shape: str) -> Iterator[Kind]:
    """Yield every choice of axes, of one axis, every order of axes, or every padding, for each shape."""
    types = {_type_of(spec, name, shape) for name in spec.attrs}
    for sizes in FEW if spec.error_model.kind == "product" else SHAPES:
        axes = range(len(sizes))
        some = [chosen for many in axes for chosen in itertools.combinations(axes, many + 1)]
        if "axes" in types:
            yield from ((sizes, "axes", chosen) for chosen in some)
        elif ONE_AXIS in types:
            yield from ((sizes, ONE_AXIS, (axis,)) for axis in axes)
        elif "permutation" in types and sizes in SHAPES[1:]:
            yield from ((sizes, "permutation", order) for order in itertools.permutations(axes))
        elif ENDS_OF_AXES in types and sizes in SHAPES[:2]:
            for chosen, ends in itertools.product(some, ENDS):
                yield sizes, ENDS_OF_AXES, tuple(end * (axis in chosen) for end in ends for axis in axes)


def _type_of(spec: Spec, name: str, shape: str) -> str:
    """Return the type of an attribute that chooses axes; its domain's type if it does not."""
    domain = spec.attrs[name]
    if is_axis(domain, shape):
        return ONE_AXIS
    return ENDS_OF_AXES if is_of_ends(domain, shape) else domain.type


def _case(target: Target, shape: str, kind: Kind) -> Case | None:
    spec, number = target.spec, key(0, target.id, "axes_of_images", repr(kind))
    chooser = HashChoices(number, {"data": "random", "tiles": "untiled"})
    try:
        bound = _bound(spec, shape, kind, chooser)
    except ILLEGAL:
        return None
    if not is_cheap(spec, bound, ROOM):
        return None
    return complete(target, bound, list(spec.inputs), "random", number % (1 << 32), chooser)


def _bound(spec: Spec, shape: str, kind: Kind, chooser: HashChoices) -> Mapping[str, Any]:
    sizes, wanted, value = kind
    bound: dict[str, Any] = {}
    for name in draw_order(spec):
        drawn = draw(name, spec.dims.get(name) or spec.attrs[name], chooser, bound)
        if name == shape:
            drawn = sizes
        elif name in spec.attrs and _type_of(spec, name, shape) == wanted:
            drawn = value[0] if wanted == ONE_AXIS else value
        bound[name] = drawn
    return bound
