"""Cases in which one dimension is past every block that kernels have: each dimension of an operator once.

The units of an operator are many, and few of the long ones come into the gate. The targets of all platforms share these
cases: how long a dimension is has nothing to do with a platform's numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from quantizer.conformance.generation.builder import complete
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.dealing import spread
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.units import ROOM, Unit, bound_with, is_ours, is_window
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.spec import Spec

SIZE = 513
TRIES = 16
"""Choices that may be too large."""


def long_sizes(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases that the operator's targets have."""
    if not is_ours(target.spec):
        return []
    own = spread(everything, target, _names(target.spec), "long_sizes")
    return [case for name in own if (case := _case(target, name)) is not None]


def _names(spec: Spec) -> list[str]:
    """Return the dimensions that may be long: no windows, no choices, and none that another one decides."""
    sizes = [name for name, domain in spec.dims.items() if domain.type == "int" and domain.choices is None]
    return [name for name in sizes if not is_window(spec, name)]


def _case(target: Target, name: str) -> Case | None:
    data = "random" if "random" in target.spec.data else target.spec.data[0]
    for step in range(TRIES):
        number = key(step, target.id, "long_sizes", name)
        chooser = HashChoices(number, {"data": data, "tiles": "untiled"})
        bound = bound_with(target.spec, {name: Unit(name, SIZE)}, chooser, ROOM)
        if bound is not None:
            return complete(target, bound, list(target.spec.inputs), data, number % (1 << 32), chooser)
    return None
