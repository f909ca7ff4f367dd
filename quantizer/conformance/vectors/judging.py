"""Judges results of a bundle: each code must lie in its interval. A missing result fails; an open case never passes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from quantizer.conformance.trials.elements import place_of_largest
from quantizer.conformance.trials.trial import Array
from quantizer.conformance.vectors.models import transposed
from quantizer.conformance.vectors.reading import Bundle
from quantizer.core.errors import CaseError
from quantizer.core.files import exists, is_folder
from quantizer.core.reading import Readable
from quantizer.core.record import CheckRecord, Record
from quantizer.core.vectors import VectorCase
from quantizer.core.wording import shown_path

CHECK = "arithmetic"
RESULT = Readable("the result of a case", 1 << 30, CaseError)


@dataclass(frozen=True)
class Judged:
    """The verdict on one case."""

    vector: VectorCase
    status: Literal["pass", "fail", "open"]
    reason: str = ""
    elements: int = 0
    """The number of elements whose interval is conclusive."""
    failed: int = 0
    width: float = 0.0
    """The widest interval, in codes."""

    def __str__(self) -> str:
        """Return the line of a case that does not pass."""
        return f"{self.status}: {self.vector.id}: {self.reason}"


def judge(bundle: Bundle, results: Path, form: str = "") -> Iterator[Judged]:
    """Yield the verdict on each case, in the order of the bundle; CaseError if *results* is not a folder.

    *form*: the form of the models whose outputs are judged; empty for the operator's own. A case that the form does not
    hold is open.
    """
    if not is_folder(results):
        raise CaseError(
            f"{shown_path(results)}: is not a folder. Name the folder that holds a file CASE.bin for each case."
        )
    for vector in bundle.manifest.cases:
        yield _judged(bundle, vector, results / f"{vector.id}.bin", form)


def _judged(bundle: Bundle, vector: VectorCase, path: Path, form: str) -> Judged:
    output, allowed = vector.output, vector.allowed
    if allowed is None:
        return Judged(vector, "open", vector.open or "nothing is allowed or forbidden")
    model = next((one for one in vector.models if one.form == form), None)
    if form and (model is None or model.refused):
        return Judged(vector, "open", f"{form}: {model.refused if model else 'the bundle has no such models'}")
    low, high = (bundle.array(end).astype(np.int64) for end in (allowed.low, allowed.high))
    wide = high - low >= allowed.conclusive
    elements, width = int(np.count_nonzero(~wide)), float((high - low).max() + 1) if low.size else 0.0
    if not exists(path):
        return Judged(vector, "fail", f"no result. Write {path.name}", elements, max(low.size, 1), width)
    kind = np.dtype(output.dtype).newbyteorder("<")
    content, wanted = RESULT.bytes_of(path), low.size * kind.itemsize
    if len(content) != wanted:
        said = f"{path.name} has {len(content)} bytes, {wanted} are needed: {output.dtype} of shape {output.shape}"
        return Judged(vector, "fail", said, elements, max(low.size, 1), width)
    # in int64, because codes of unsigned types would wrap in the comparison's differences
    raw = np.frombuffer(content, kind).astype(np.int64)
    got = transposed(raw, model.shape, model.axes, low.shape) if model else raw.reshape(low.shape)
    outside = (got < low) | (got > high)
    failed = int(np.count_nonzero(outside))
    if failed:
        return Judged(vector, "fail", _worst(got, low, high, failed), elements, failed, width)
    if low.size and not elements:
        return Judged(vector, "open", "every element's interval is too wide to decide anything", width=width)
    return Judged(vector, "pass", elements=elements, width=width)


def _worst(got: Array, low: Array, high: Array, failed: int) -> str:
    """Return a text about the element that is furthest from its interval, the first of several."""
    away = np.maximum(low - got, got - high)
    index = place_of_largest(away)
    said = f"element {list(index)}: got {got[index]}, allowed [{low[index]}, {high[index]}]"
    return f"{said}; {failed} of {got.size} elements are outside"


def records(found: Iterable[Judged]) -> list[Record]:
    """Return a record for each operator, scheme and platform, with the check `arithmetic` only."""
    # groupby joins neighbours only
    ordered = sorted(found, key=lambda one: _target(one.vector))
    return [_record(target, [*own]) for target, own in itertools.groupby(ordered, key=lambda one: _target(one.vector))]


def _target(vector: VectorCase) -> tuple[str, str, str]:
    return vector.case.op, vector.case.scheme, vector.case.platform


def _record(target: tuple[str, str, str], found: list[Judged]) -> Record:
    op, scheme, platform = target
    states = [one.status for one in found]
    check = CheckRecord(
        passed=states.count("pass"),
        failed=states.count("fail"),
        inconclusive=states.count("open"),
        elements=sum(one.elements for one in found),
        width=max(one.width for one in found),
        vacuous=sum(one.vector.allowed.vacuous for one in found if one.vector.allowed is not None),
        reasons=tuple(sorted({one.reason for one in found if one.status == "open"})),
    )
    worst = next((one for one in found if one.status == "fail"), None)
    outcome = "failed" if worst else "passed" if "pass" in states else "skipped"
    return Record(
        "-".join(target),
        op,
        "cases",
        outcome,
        scheme=scheme,
        platform=platform,
        engine="vectors",
        cases=len(found),
        checks={CHECK: check},
        failure="" if worst is None else str(worst),
    )
