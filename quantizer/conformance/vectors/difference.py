"""Compares two bundles of vectors. Cases are matched by their recipes, not by their names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from quantizer.conformance.vectors.reading import Bundle
from quantizer.core.vectors import VectorCase

Kind = Literal["added", "removed", "stricter", "looser", "other"]


@dataclass(frozen=True)
class Difference:
    """A case that differs between two bundles."""

    kind: Kind
    """stricter: an allowed code no longer is; looser: only the reverse; other: operands or provided numbers differ."""
    name: str
    """The case's id in the new bundle, or in the old bundle if it was removed."""
    text: str

    def __str__(self) -> str:
        """Return the line of the case."""
        return f"{self.kind}: {self.name}: {self.text}"


def differences(old: Bundle, new: Bundle) -> Iterator[Difference]:
    """Yield the differences in the order of the new bundle, then the removed cases."""
    before = {_recipe(vector): vector for vector in old.manifest.cases}
    for vector in new.manifest.cases:
        known = before.pop(_recipe(vector), None)
        if known is None:
            yield Difference("added", vector.id, "no case of the old bundle has its shapes, attributes and data")
        elif (found := _between(old, known, new, vector)) is not None:
            yield Difference(found[0], vector.id, found[1])
    for vector in before.values():
        yield Difference("removed", vector.id, "no case of the new bundle has its shapes, attributes and data")


def _recipe(vector: VectorCase) -> str:
    return json.dumps(vector.case.model_dump(mode="json"))  # escapes half a surrogate pair, which UTF-8 does not hold


def _between(old: Bundle, before: VectorCase, new: Bundle, after: VectorCase) -> tuple[Kind, str] | None:
    """Return how a case changed; None if it did not."""
    if _operands(before) != _operands(after) or before.output != after.output:
        return "other", "operands or formats changed, and with them the allowed codes"
    # open cases have a reason instead of intervals
    if before.allowed is None or after.allowed is None:
        if before.allowed is after.allowed:
            return None
        if after.allowed is None:
            return "looser", f"it was judged and is open now: {after.open}"
        return "stricter", f"it was open and is judged now; before: {before.open}"
    low, high = (old.array(end).astype(np.int64) for end in (before.allowed.low, before.allowed.high))
    # int64: codes of the output's type would wrap in differences
    least, most = (new.array(end).astype(np.int64) for end in (after.allowed.low, after.allowed.high))
    narrower = (least > low) | (most < high)
    wider = (least < low) | (most > high)
    # stricter in one element is stricter, whatever the others are
    if narrower.any():
        index = tuple(int(i) for i in np.argwhere(narrower)[0])
        said = f"[{low[index]}, {high[index]}] became [{least[index]}, {most[index]}]"
        return "stricter", f"{np.count_nonzero(narrower)} of {low.size} elements; at {list(index)} {said}"
    if wider.any():
        return "looser", f"{np.count_nonzero(wider)} of {low.size} elements"
    if _numbers(before) != _numbers(after):
        return "other", "other multipliers, tables or numbers are provided; the same codes are right"
    if before.models != after.models:
        return "other", "its models in other forms changed; the same codes are right"
    return None


def _operands(vector: VectorCase) -> list[object]:
    return [(operand.name, operand.values.sha256, operand.values.dtype, operand.grid) for operand in vector.operands]


def _numbers(vector: VectorCase) -> tuple[object, ...]:
    tables = [(t.name, t.entries.sha256, t.first, t.step, t.unit) for t in vector.tables]
    return vector.multiplier, vector.numbers, tables
