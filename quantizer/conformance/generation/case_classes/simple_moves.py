"""Cases of moves along axes: one number that is repeated, two exchanged axes, and reductions with falling axes.

Kernels fill whole vectors from one number, and exchange two axes block by block, with other loops where the rows or the
columns are no whole vectors. Drawn sizes are small, and a drawn permutation is seldom that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quantizer.conformance.generation.case_classes.joint_sizes import axes_shape
from quantizer.conformance.generation.dealing import spread
from quantizer.conformance.generation.fixed_sizes import of_fixed
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.units import is_ours
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.domains import ENTRY
from quantizer.core.shapes import Shape
from quantizer.core.spec import Domain, Spec

NUMBER, TIMES = (1, 1, 1, 1), 33
"""The axes of one number, and how often it is repeated along one of them: past a block of 32."""
PLANES = ((3, 35, 36), (3, 36, 35), (3, 37, 35), (3, 36, 40))
"""Rows and columns past a block of 32. Either are whole vectors of 4, or have a rest."""
EXCHANGED = (0, 2, 1)
FALLING = {(3, 4, 5): (1, 0), (2, 3, 4, 5): (3, 1), (3, 2, 4): (2, 1, 0)}
"""Shapes with axes in falling order, which changes no result: neighbours, not neighbours, and all. A kernel that takes
one axis after the other must count the axes that are gone. Drawn axes rise."""


def repeated_number(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases of NUMBER that its operator's targets have: one for each axis."""
    spec = target.spec
    shape, name = axes_shape(spec), _repeats(spec)
    axes = range(len(NUMBER)) if shape and name and is_ours(spec) else ()
    made = [
        of_fixed(
            target,
            {shape: NUMBER, name: tuple(TIMES if i == axis else 1 for i in range(len(NUMBER)))},
            key(0, target.id, "repeated_number", str(axis)),
        )
        for axis in spread(everything, target, axes, "repeated_number")
    ]
    return [case for case in made if case is not None]


def exchanged(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases of PLANES that its operator's targets have."""
    return _along(everything, target, "permutation", dict.fromkeys(PLANES, EXCHANGED), "exchanged")


def falling_axes(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases of FALLING that its operator's targets have."""
    return _along(everything, target, "axes", FALLING, "falling_axes")


def _along(
    everything: Sequence[Target], target: Target, kind: str, given: Mapping[Shape, tuple[int, ...]], name: str
) -> list[Case]:
    """Return the target's share of the cases *given*: shape -> value of the operator's attribute of this *kind*."""
    spec = target.spec
    shape = axes_shape(spec)
    attribute = next((name for name, domain in spec.attrs.items() if domain.type == kind), "")
    shapes = [*given] if shape and attribute and is_ours(spec) else []
    made = [
        of_fixed(target, {shape: sizes, attribute: given[sizes]}, key(0, target.id, name, str(sizes)))
        for sizes in spread(everything, target, shapes, name)
    ]
    return [case for case in made if case is not None]


def _repeats(spec: Spec) -> str:
    """Return the attribute that says how often each axis of a moved tensor is repeated; empty without one."""
    moves = spec.error_model.kind == "movement"
    return next((name for name, domain in spec.attrs.items() if moves and _counts(domain)), "")


def _counts(domain: Domain) -> bool:
    """Return whether an attribute has a number of at least 1 for each axis, whatever the axis's size is."""
    if domain.length is None or not domain.length.names or domain.min is None or domain.max is None:
        return False
    is_fixed = not (domain.min.names or domain.max.names) - {ENTRY}
    return is_fixed and int(domain.min({})) == 1
