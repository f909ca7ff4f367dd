"""Cases in which one dimension is longer than every block of kernels: one case for each dimension of an operator.

An operator has many units, and few of the long ones are in the gate. The targets of all platforms share these cases,
because a dimension's length does not depend on a platform's numbers.
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
"""The number of attempts: other drawn sizes may be too large beside it."""


def long_sizes(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the cases that the operator's targets have."""
    if not is_ours(target.spec):
        return []
    own = spread(everything, target, _names(target.spec), "long_sizes")
    return [case for name in own if (case := _case(target, name)) is not None]


def _names(spec: Spec) -> list[str]:
    """Return the dimensions that may be long: integers that are neither windows nor chosen from a list."""
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
