"""Cases whose axes are named from the last to the first, which changes no result.

A kernel that takes one axis after the other must count the axes that are gone. Drawn axes rise.
"""

from __future__ import annotations

from collections.abc import Sequence

from quantizer.conformance.generation.case_classes.joint_sizes import axes_shape
from quantizer.conformance.generation.dealing import spread
from quantizer.conformance.generation.fixed_sizes import of_fixed
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.units import is_ours
from quantizer.conformance.target import Target
from quantizer.core.case import Case

KINDS = (((3, 4, 5), (1, 0)), ((2, 3, 4, 5), (3, 1)), ((3, 2, 4), (2, 1, 0)))
"""Shapes with axes in falling order: neighbours, not neighbours, and all."""


def falling_axes(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases of KINDS that its operator's targets have."""
    spec = target.spec
    shape = axes_shape(spec)
    name = next((name for name, domain in spec.attrs.items() if domain.type == "axes"), "")
    kinds = KINDS if shape and name and is_ours(spec) else ()
    made = [
        of_fixed(target, {shape: sizes, name: axes}, key(0, target.id, "falling_axes", str(sizes)))
        for sizes, axes in spread(everything, target, kinds, "falling_axes")
    ]
    return [case for case in made if case is not None]
