"""Deals kinds of cases to targets: each kind runs once per platform, or once per operator, not once per target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from quantizer.conformance.generation.hashing import key
from quantizer.conformance.target import Target
from quantizer.core.errors import UnsupportedError

Kind = TypeVar("Kind")


def dealt(targets: Iterable[Target], target: Target, kinds: Sequence[Kind], name: str) -> list[Kind]:
    """Return the share of *kinds* that *target* has: the platform's targets among *targets* get them in turn.

    UnsupportedError if *target* is not one of *targets*.
    """
    of_platform = [each.id for each in targets if each.deal == target.deal]
    if target.id not in of_platform:
        raise UnsupportedError(f"{target.id}: must be one of the targets that share the cases {name!r}.")
    # begins at another target for each operator, platform and list, so that the first target does not get the most
    turn = key(0, target.spec.op, target.platform.platform, name)
    return [kind for i, kind in enumerate(kinds) if of_platform[(turn + i) % len(of_platform)] == target.id]


def spread(targets: Iterable[Target], target: Target, kinds: Sequence[Kind], name: str) -> list[Kind]:
    """Return the share of *kinds* that *target* has: the operator's *targets* get them in turn, on all platforms.

    This suits kinds that do not depend on a platform's numbers. A target that is not one of *targets* gets none.
    """
    ids = [each.id for each in targets]
    turn = key(0, target.spec.op, name)
    return [kind for place, kind in enumerate(kinds) if ids and ids[(turn + place) % len(ids)] == target.id]


def share(targets: Iterable[Target], target: Target, kinds: Sequence[Kind], name: str, *, strong: bool) -> list[Kind]:
    """Return the share of *kinds* that *target* has: of all targets, or of its platform's targets if *strong*."""
    return (dealt if strong else spread)(targets, target, kinds, name)
