"""Stored cases: goldens, regressions, and the cases that show a platform's declared defects."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from quantizer.conformance.findings import Findings
from quantizer.conformance.generation.datasets import check_sets
from quantizer.conformance.judging.judge import known_defect
from quantizer.conformance.judging.matches_builtin import matches_builtin
from quantizer.conformance.stored.folders import Stores
from quantizer.conformance.stored.golden_review import Change, ChangeModel
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Array, Trial
from quantizer.core.case import VERSION, AttrValue, Case
from quantizer.core.case_file import MAX_ELEMENTS, read_model, refuse_later
from quantizer.core.domains import fits, wanted
from quantizer.core.errors import CaseError, QuantizerError
from quantizer.core.files import replace_files
from quantizer.core.library import Library, near_operator
from quantizer.core.model import Model
from quantizer.core.reading import Readable
from quantizer.core.roles import applies
from quantizer.core.shapes import infer_shapes
from quantizer.core.spec import Spec
from quantizer.runtime.engines.protocol import Engine
from quantizer.runtime.raised import raised
from quantizer.tiling.stacks import cut_along
from quantizer.tiling.windows import tileable_axes

FLOAT32_MAX = float(np.finfo(np.float32).max)
MAX_CODES = 256
MAX_FILE = 1 << 20
STORED = Readable(
    "a file of stored cases", MAX_FILE, CaseError, "Name a replay file (reports/out/failures/*.json) or a stored case."
)


class _GoldenModel(Model):
    case: dict[str, Any]
    codes: list[int]
    engine: str
    reason: str
    history: list[ChangeModel] = []


class _ReplayModel(Model):
    case: dict[str, Any]
    item: str = ""
    checks: list[str] = []
    finding: str = ""
    reason: str = ""
    text: str = ""
    """The text of the failure."""
    tensors: dict[str, dict[str, Any]] = {}
    """Values of the run, for a reader only: a replay computes them again."""


@dataclass(frozen=True)
class Golden:
    """A case with its expected codes, the engine that computed them, and the reason of their last change."""

    case: Case
    codes: tuple[int, ...]
    engine: str
    reason: str
    history: tuple[Change, ...] = ()
    """The changes of each update, the oldest first."""

    def to_line(self) -> str:
        """Return the golden as one line of JSON, as the file of an operator's goldens stores it."""
        content = {"case": self.case.to_dict(), "codes": list(self.codes), "engine": self.engine, "reason": self.reason}
        if self.history:
            content["history"] = [change.to_dict() for change in self.history]
        return json.dumps(content, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class Replay:
    """A case that once failed, and why it is kept."""

    case: Case
    checks: tuple[str, ...]
    finding: str
    reason: str
    path: Path


def read_goldens(path: Path) -> list[Golden]:
    """Read one operator's goldens; CaseError names file, line and field."""
    found = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        where = f"{path}:{number}"
        model = read_model(_GoldenModel, _with_case(_json(line, where), where), where)
        if len(model.codes) > MAX_CODES:
            raise CaseError(f"{where}: codes: {len(model.codes)} of them; a golden holds at most {MAX_CODES}.")
        history = tuple(Change(**dict(entry)) for entry in model.history)
        found.append(Golden(Case.from_dict(model.case, where), tuple(model.codes), model.engine, model.reason, history))
    return found


def read_replay(path: Path) -> Replay:
    """Read a replay file; CaseError names file and field."""
    where = str(path)
    model = read_model(_ReplayModel, _with_case(_json(_text(path), where), where), where)
    return Replay(Case.from_dict(model.case, where), tuple(model.checks), model.finding, model.reason, path)


def _with_case(raw: object, where: str) -> object:
    """Return *raw*; CaseError if its case is of a later version: what surrounds it may have other keys, too."""
    if isinstance(raw, dict):
        refuse_later(raw.get("case"), VERSION, where)
    return raw


def _text(path: Path) -> str:
    return STORED.text_of(path, str(path))


def _json(text: str, where: str) -> object:
    return STORED.parsed(text, where)


def target_of(library: Library, case: Case, where: str) -> Target:
    """Return the target of a stored case; CaseError with *where* if the case no longer validates."""
    if case.op not in library.specs:
        near = near_operator(case.op, library.specs)
        raise CaseError(f"{where}: operator {case.op!r}: no spec is known. Name its folder with --op-specs.{near}")
    try:
        spec = library.spec(case.op)
        target = Target(spec, library.scheme(case.scheme), library.platform(case.platform))
        if not applies(spec, target.scheme, target.platform):
            if (target.scheme.weight is not None) == spec.has_weights:
                raise CaseError(f"scheme {case.scheme!r}: {case.op} has no such numbers on {case.platform}.")
            raise CaseError(f"scheme {case.scheme!r}: {case.op} {'needs' if spec.has_weights else 'has no'} weights.")
        check_case(spec, case)
    except QuantizerError as err:
        raise CaseError(f"{where}: {err}") from None
    return target


def check_case(spec: Spec, case: Case) -> None:
    """Raise CaseError for a case that does not fit *spec*: attributes, shapes, ranges, data set, tiles."""
    for name, domain in spec.attrs.items():
        if name not in case.attrs or not fits(_plain(case.attrs[name]), domain):
            shown = repr(case.attrs[name]) if name in case.attrs else "nothing"
            raise CaseError(f"attrs.{name}: must be {wanted(domain)}, got {shown}.")
    shapes = infer_shapes(spec, case.shapes, case.attrs)
    for name, shape in {**case.shapes, **shapes}.items():
        if math.prod(shape) > MAX_ELEMENTS:
            raise CaseError(f"tensor {name!r}: shape {list(shape)} has more than {MAX_ELEMENTS} elements.")
    for name in [*case.shapes, *(n for n in spec.outputs if spec.quantization.outputs.get(n) is None)]:
        low, high = case.ranges.get(name, (1.0, 0.0))
        if not -FLOAT32_MAX <= low <= high <= FLOAT32_MAX:
            raise CaseError(
                f"ranges.{name}: must be [smallest, largest] in float32, got {list(case.ranges.get(name, ()))}."
            )
    if case.activation not in ("none", *spec.fuses):
        raise CaseError(f"activation {case.activation!r}: must be one of {', '.join(('none', *spec.fuses))}.")
    _check_kept(case)
    check_sets(case)
    if case.data.stack is not None:
        cut_along(spec, case.shapes, case.attrs, case.data.stack.axis)
    legal = tileable_axes(spec, case.shapes, case.attrs)
    for axis in case.tiles.sizes:
        if axis not in legal:
            raise CaseError(f"tiles.{axis}: cannot be cut here; these can: {', '.join(legal) or 'none'}.")


def _check_kept(case: Case) -> None:
    for name, coordinates in case.data.kept.items():
        shape = case.shapes.get(name, ())
        for place in coordinates:
            if len(place) != len(shape) or any(i >= size for i, size in zip(place, shape, strict=True)):
                raise CaseError(f"data.kept.{name}: {list(place)} lies outside shape {list(shape)}.")


def _plain(value: AttrValue) -> object:
    return list(value) if isinstance(value, tuple) else value


SUSPECT = (
    "The kernel may be wrong: look at the operator's other items first. If they are green and the change is meant, "
    "store the new codes."
)
"""The text before the command that stores goldens; the command would also store the codes of a wrong kernel."""


def golden_problems(
    targets: Sequence[Target], everything: Sequence[Target], engine: Engine, stores: Stores, step: str
) -> Findings:
    """Return the problems of an operator's goldens: missing, stale, unused, different; each with the next step."""
    found, shown = Findings(), stores.options.shown
    files = stores.goldens()
    if targets and not files:
        wanted = shown(stores.golden(targets[0].platform.platform))
        text = f"{wanted}: there is no golden. Once the operator's other items are green, store its codes. {step}"
        return Findings([text])
    chosen, known = {target.id: target for target in targets}, {target.id for target in everything}
    seen = set()
    stored = ((golden, path) for path in files for golden in read_goldens(path))
    for golden, file in stored:
        name = target_id(golden.case)
        seen.add(name)
        if name in chosen:
            try:
                _compare(found, chosen[name], engine, golden, step)
            except Exception as err:  # noqa: BLE001 - whatever a plugin raises is its failure
                found.problems.append(f"{name}: raised {raised(err)}")
        elif name not in known:
            found.problems.append(f"{name}: a golden in {shown(file)} that nothing uses. {step}")
    for name, target in chosen.items():
        if name not in seen and engine.supports(target.spec, target.scheme, target.platform) is None:
            where = shown(stores.golden(target.platform.platform))
            found.problems.append(f"{name}: no golden in {where}. {step}")
    return found


def target_id(case: Case) -> str:
    """Return the name of a case's target."""
    return f"{case.op}-{case.scheme}-{case.platform}"


def _compare(found: Findings, target: Target, engine: Engine, golden: Golden, step: str) -> None:
    """Record one golden: its codes compared, or the reason why the engine does not run its case."""
    try:
        check_case(target.spec, golden.case)
    except QuantizerError as err:
        found.compare([f"{target.id}: the golden is stale: {err} {step}"])
        return
    trial = Trial(target, golden.case, engine)
    refused = engine.supports(target.spec, target.scheme, target.platform) or trial.refusal
    if refused is not None:
        found.refused.append(refused)
        return
    got, wanted = trial.got, np.array(golden.codes)
    if _is_of_an_earlier_release(trial, wanted):
        found.refused.append("the golden has codes of an earlier release of the system")
        return
    found.compare([f"{text} {SUSPECT} {step}" for text in _differences(trial, got, wanted)], wanted.size)


def _is_of_an_earlier_release(trial: Trial, wanted: Array) -> bool:
    """Return whether codes differ from a golden because the engine's release does: as the built-in functions differ."""
    if not trial.target.platform.is_later or np.array_equal(trial.got.ravel(), wanted):
        return False
    return matches_builtin(trial, "engine")


def _differences(trial: Trial, got: Array, wanted: Array) -> list[str]:
    name = trial.target.id
    if got.size != wanted.size:
        return [f"{name}: the golden has {wanted.size} codes, the engine gives {got.size}."]
    wrong = np.flatnonzero(got.ravel() != wanted)
    if not wrong.size or (trial.engine.version and known_defect(trial, "engine") is not None):
        return []
    index = tuple(int(i) for i in np.unravel_index(int(wrong[0]), got.shape))
    return [
        f"{name}: {wrong.size} of {wanted.size} codes differ from the golden; first y{list(index)}: "
        f"expected {wanted[wrong[0]]}, got {got[index]}."
    ]


def keep(replay: Replay, folder: Path, reason: str) -> Path:
    """Write *replay* into the stored regressions with the reason, and return its path."""
    case = replay.case
    path = folder / f"{target_id(case)}-{case.digest}.json"
    content = {
        "case": case.to_dict(),
        "item": target_id(case),
        "checks": list(replay.checks),
        "finding": replay.finding,
        "reason": reason,
    }
    replace_files({path: json.dumps(content, indent=1, sort_keys=True) + "\n"})
    return path
