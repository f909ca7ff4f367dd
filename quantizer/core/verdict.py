"""A verdict: the result of one check on one case, with the worst element and the derivation of its allowed interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Status = Literal["pass", "fail", "mistrusted", "overflow", "defect", "inconclusive"]
"""inconclusive: the check could not be made; defect: it failed as the platform declares; `reason` says why."""

CHECKS = (
    "parameters",
    "float",
    "arithmetic",
    "accuracy",
    "exact",
    "tiled",
    "round_trip",
    "pipeline",
    "properties",
    "repeat",
    "engine",
)
"""The checks of an example, in the order in which they are read."""

SAMPLED = ("pipeline",)
"""Those checks that cost more than all others: no profile runs them on every case."""

EVERY = tuple(name for name in CHECKS if name not in SAMPLED)
"""The checks that judge a case by default; `conformance/judging/schedule.py` chooses among them in a run."""

ITEM_CHECKS = ("spec", "golden", "reject", "regressions")
"""The checks that run once per operator."""


UNJUDGED = "error model custom says nothing of the enclosure of a result; declare stages"
"""Why accuracy cannot judge an operator whose error model is custom and which declares no stages."""


SHARP_WIDTH = 2.0
"""Widest interval, in codes, that still distinguishes neighbouring codes; a wider one is inconclusive."""


@dataclass(frozen=True)
class Worst:
    """The worst element: the one with the largest ratio of error to allowed error; texts only where it fails."""

    tensor: str
    index: tuple[int, ...]
    expected: str = ""
    got: str = ""
    allowed: str = ""
    detail: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """What *check* found: `ratio` = error / allowed, 1 at the edge; vacuous elements are never a pass."""

    check: str
    status: Status
    ratio: float = 0.0
    elements: int = 0
    failed: int = 0
    vacuous: int = 0
    width: float = 0.0
    """Widest allowed interval, in codes; wider than 2 codes is reported as inconclusive."""
    worst: Worst | None = None
    reason: str = ""

    @property
    def failing(self) -> bool:
        """Whether the case failed."""
        return self.status == "fail"


def passed(check: str, *, ratio: float = 0.0, elements: int = 0) -> Verdict:
    """Return a passing verdict without details."""
    return Verdict(check, "pass", ratio=ratio, elements=elements)


def inconclusive(check: str, reason: str) -> Verdict:
    """Return the verdict of a check that could not decide, with the reason."""
    return Verdict(check, "inconclusive", reason=reason)


def failure(check: str, reason: str, worst: Worst | None = None, *, elements: int = 1, failed: int = 1) -> Verdict:
    """Return a failure that is not a matter of degree."""
    return Verdict(check, "fail", ratio=float("inf"), elements=elements, failed=failed, worst=worst, reason=reason)
