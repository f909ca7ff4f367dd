"""The kill matrix by place: fault x operator x (platform, arithmetic). Each case has one arithmetic.

That a fault is found on one platform proves nothing for another, where the number that it changes may have another
name or not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from quantizer.conformance.faults.fault import Fault
from quantizer.conformance.faults.kills import Kill, Subject
from quantizer.conformance.faults.silence import silence
from quantizer.conformance.faults.without_effect import EVERYWHERE, Triple
from quantizer.conformance.kinds import kind_of
from quantizer.conformance.trials.trial import Trial
from quantizer.core.errors import QuantizerError

KILLED, SURVIVES, WITHOUT, UNDECIDED, STALE = "killed", "survives", "without effect", "undecided", "listed, with effect"
"""STALE: listed as without effect, but has one. UNDECIDED: no effect in the gate's cases, and no known reason."""
FAILING = (SURVIVES, STALE)


@dataclass(frozen=True)
class Place:
    """The outcome of one fault in one operator on one platform, under one of its arithmetics."""

    fault: str
    op: str
    form: str
    """The error model of the operator, which determines its arithmetic."""
    platform: str
    arithmetic: str
    """The kind of numbers that the platform's own rule provides."""
    outcome: str
    cases: int
    kill: Kill | None = None
    reason: str = ""
    """Why the fault changes nothing there."""


class Places:
    """The cases of one operator by platform and arithmetic."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._where: dict[tuple[str, str], list[int]] = {}
        for index, trial in enumerate(subject.every()):
            found = arithmetic(trial)
            if found is not None:
                self._where.setdefault((trial.target.platform.platform, found), []).append(index)

    def examined(self, fault: Fault, listed: Mapping[Triple, str]) -> tuple[Place, ...]:
        """Return the outcome of *fault* in each place.

        *listed*: (fault, operator, platform) -> why it has no effect.
        """
        return tuple(
            self._place(fault, platform, name, indices, listed) for (platform, name), indices in self._where.items()
        )

    def _place(
        self, fault: Fault, platform: str, name: str, indices: Sequence[int], listed: Mapping[Triple, str]
    ) -> Place:
        found, spec = self._subject.examine_among(fault, indices), self._subject.trials[indices[0]].spec
        # a reason for all platforms comes first
        known = next((listed[key] for at in (EVERYWHERE, platform) if (key := (fault.id, spec.op, at)) in listed), "")
        # a known reason is preferred to a derived one
        reason = "" if found.effect else known or silence(fault, [self._subject.trials[index] for index in indices])
        if found.effect:
            outcome = STALE if known else KILLED if found.kills else SURVIVES
        else:
            outcome = WITHOUT if reason else UNDECIDED
        return Place(
            fault.id, spec.op, spec.error_model.kind, platform, name, outcome, len(indices), found.first, reason
        )


def silent_places(places: Iterable[Place]) -> Mapping[Triple, str]:
    """Return why a fault changes nothing in an operator on a platform, if that is true of every arithmetic there."""
    found: dict[Triple, list[Place]] = {}
    for place in places:
        found.setdefault((place.fault, place.op, place.platform), []).append(place)
    return {
        triple: " ".join(dict.fromkeys(place.reason for place in there))
        for triple, there in found.items()
        if all(place.outcome == WITHOUT for place in there)
    }


def arithmetic(trial: Trial) -> str | None:
    """Return the kind of the numbers that the platform's rule provides for a case; None if it refuses the case."""
    try:
        if trial.unsupported is not None:
            return None
        grid = trial.target.scheme.grid
        return f"{kind_of(trial.parameters)}{'' if grid in ('uniform', 'blocks') else f', {grid}'}"
    except QuantizerError:
        return None
