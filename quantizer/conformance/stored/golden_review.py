"""The difference between an old and a new golden, for review and for the history in the golden's line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from quantizer.conformance.judging.recorder import sqnr
from quantizer.conformance.trials.trial import Trial
from quantizer.core.model import Model

Decibel = float | Literal["inf"] | None


class ChangeModel(Model):
    """One entry of a golden's history."""

    reason: str
    changed: Annotated[int, Field(ge=0)] | None = None
    lsb: Annotated[int, Field(ge=0)] | None = None
    sqnr_before: Decibel = None
    sqnr_after: Decibel = None


@dataclass(frozen=True)
class Change:
    """The changes in one update. A field is None if the case itself was replaced, or if there is nothing to compare."""

    reason: str
    changed: int | None = None
    """The number of elements whose codes differ."""
    lsb: int | None = None
    """The largest difference between two codes."""
    sqnr_before: Decibel = None
    """SQNR of the old codes against the reference, in dB, dequantized with today's output scale."""
    sqnr_after: Decibel = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are known."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def text(self, target: str, size: int) -> str:
        """Return the change in one line."""
        if self.changed is None:
            return f"{target}: the case no longer validates and was replaced"
        line = f"{target}: {self.changed} of {size} codes change, by {self.lsb} LSB at most"
        if self.sqnr_before is None or self.sqnr_after is None:
            return line
        return f"{line}; SQNR {self.sqnr_before} -> {self.sqnr_after} dB"


def change_of(trial: Trial, before: Sequence[int], reason: str) -> Change:
    """Return the differences between the codes *before* and the codes of *trial*."""
    now = trial.got.ravel()
    if len(before) != now.size:
        return Change(reason)
    old = np.array(before, dtype=np.int64)
    # in int64, because differences of unsigned codes would wrap
    apart = np.abs(now.astype(np.int64) - old)
    pair = (_sqnr(trial, old), _sqnr(trial, now)) if trial.spec.outputs["y"].kind == "value" else (None, None)
    return Change(reason, int(np.count_nonzero(apart)), int(apart.max(initial=0)), *pair)


def _sqnr(trial: Trial, codes: np.ndarray[Any, Any]) -> Decibel:
    if not trial.y.any():
        return None
    found = sqnr(trial, codes)
    return "inf" if math.isinf(found) else round(found, 2)
