"""Tests a platform with built-in functions on a few cases of one operator per family, before a run relies on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from quantizer.conformance.failures.message import headline
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import Session, open_session
from quantizer.conformance.stored.files import read_replay
from quantizer.conformance.stored.fitting import target_of
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.arithmetics import changed
from quantizer.core.case import Case
from quantizer.core.defects import Defect
from quantizer.core.errors import QuantizerError
from quantizer.core.files import is_file
from quantizer.core.platforms import Platform
from quantizer.core.rooms import oracle_of, room_of
from quantizer.core.spec import Spec
from quantizer.core.verdict import Verdict
from quantizer.core.wording import shown_path
from quantizer.ops import REGISTRY

FIRST = ("add", "conv2d", "mul", "sigmoid", "layer_norm", "pad")
"""Operators that represent their families. Other families are represented by the first operator in order of names."""
CHECKS = ("parameters", "arithmetic", "accuracy")
CASES = 3
"""The number of an operator's cases under the platform's first scheme, and again under its last."""
OF_TABLES = ("monotone", "piecewise_monotone")
"""Error models of functions of one input."""
OPERATORS_NAMED = ("fixed_outputs", "fixed_ranges", "full_range_outputs", "padded_tiles", "stages")
"""Keys of a platform file that hold rules for single operators."""


def platform_problems(platforms: Iterable[str], specs: Sequence[Path]) -> Iterator[str]:
    """Yield one line for each platform and operator whose built-in functions fail there.

    *specs*: folders and files that declare the platforms, in addition to the shipped ones.
    """
    session = open_session(Options(root=Path.cwd(), specs=tuple(specs)))
    for name in platforms:
        platform = session.library.platforms.get(name)
        for op in () if platform is None else _operators(session, platform):
            yield from _of_operator(session, name, op)
        if platform is not None:
            yield from _of_unread_requantizations(session, platform)
            yield from _of_left_out_defects(session, platform)


def _operators(session: Session, platform: Platform) -> list[str]:
    """Return the operators to try: one for each family and error model, and those with their own rule or function."""
    found: dict[object, str] = {}
    specs = session.library.specs
    computed = specs.keys() & {entry.op for entry in REGISTRY.all()}
    for op in (*(op for op in FIRST if op in computed), *sorted(computed)):
        found.setdefault((specs[op].quantization.family, specs[op].error_model.kind), op)
    named = {op for key in OPERATORS_NAMED for op in getattr(platform, key)}
    # places[1:]: the platform whose functions a copy uses
    lent = {entry.op for entry in REGISTRY.all() if entry.platform in platform.places[1:]}
    return [*dict.fromkeys((*found.values(), *sorted((named | lent) & computed)))]


def _targets(session: Session, platform: str, spec: Spec) -> list[Target]:
    return [target for target in session.all_targets(spec) if target.platform.platform == platform]


def _of_operator(session: Session, platform: str, op: str) -> Iterator[str]:
    spec = session.library.specs.get(op)
    targets = [] if spec is None else _targets(session, platform, spec)
    # the first and the last scheme, which may be the same
    for target in {t.id: t for t in (*targets[:1], *targets[-1:])}.values():
        found = _first(session, target)
        if found is not None:
            yield f"{shown_path(session.library.platform_paths[platform])}: {target.id}: {found}"


def _of_unread_requantizations(session: Session, platform: Platform) -> Iterator[str]:
    """Yield a line for each family that `requantize` names although generic functions requantize none of its sums."""
    for family in sorted(platform.requantize.keys() - {"default"}):
        specs = [spec for spec in session.library.specs.values() if spec.quantization.family == family]
        targets = [target for spec in specs for target in _targets(session, platform.platform, spec)[:1]]
        if targets and all(_reads_a_table(session, target) for target in targets):
            where = f"{shown_path(session.library.platform_paths[platform.platform])}: requantize.{family}"
            said = f"nothing reads it: {targets[0].spec.op} reads a table. Remove it, or register functions of your own"
            yield f"{where}: {said} for {platform.platform}."


def _reads_a_table(session: Session, target: Target) -> bool:
    """Return whether the generic functions of an operator look codes up and multiply nothing."""
    places = target.platform.places
    entries = [REGISTRY.built_in(target.spec.op, kind, places) for kind in ("quantize", "quantized")]
    if target.spec.error_model.kind not in OF_TABLES or any(entry is None or entry.platform for entry in entries):
        return False
    case = build_case(target, HashChoices(key(0, target.id, "lint"), {"data": "random"}))
    return Trial(target, case, session.engine).parameters.rescale is None


def _first(session: Session, target: Target) -> str | None:
    """Return the first failing verdict of a few cases, as text; None if all pass."""
    for index in range(CASES):
        try:
            case = build_case(target, HashChoices(key(index, target.id, "lint"), {"data": "random"}))
            trial = Trial(target, case, session.engine)
            failing = [verdict for verdict in judge(trial, CHECKS) if verdict.failing]
        except Exception as err:  # noqa: BLE001 - whatever a platform's rules raise is said about the platform
            said = f"raised {type(err).__name__}: {err}".splitlines()[0]
            return f"{said}{_changed(session, target.platform)}"
        if failing:
            why = f"{_unregistered(target)}{_left_out(session, target, failing[0])}"
            return f"{_said(failing[0])}{why or _changed(session, target.platform)}"
    return None


def _changed(session: Session, platform: Platform) -> str:
    """Return the settings in which a copy differs from the platform whose functions it uses, as text; may be empty."""
    home = session.library.platforms.get(platform.functions or "")
    keys = [] if home is None or home is platform else [*changed(platform, home)]
    return f". It has the functions of {platform.functions}, and changes {', '.join(keys)}" if keys else ""


def _of_left_out_defects(session: Session, platform: Platform) -> Iterator[str]:
    """Yield a line for each defect of the original that a copy shows in its stored case but does not declare."""
    lender, room = platform.functions, room_of(platform.functions or "")
    if lender is None or room is None or lender not in session.library.platforms:
        return
    kept, ops = {defect.id for defect in platform.defects}, _operators(session, platform)
    for defect in session.library.platform(lender).defects:
        path = room.cases / defect.case
        missed = defect.engine is None and defect.id not in kept and any(defect.concerns(op) for op in ops)
        if missed and is_file(path):
            case = read_replay(path).case.but(platform=platform.platform)
            if (check := _shown(session, case, defect)) is not None:
                where = f"{shown_path(session.library.platform_paths[platform.platform])}: {case.op}"
                yield f"{where}: {check} fails in the case of defect {defect.id} of {lender}. Keep its `defects`."


def _shown(session: Session, case: Case, defect: Defect) -> str | None:
    """Return the check of *defect* that fails in its stored *case* on a copy; None if the copy has no such case.

    The case may be of an operator that the copy leaves out, because it represents all operators of the defect.
    """
    try:
        trial = Trial(target_of(session.library, case, defect.case), case, session.engine)
        failing = [verdict.check for verdict in judge(trial, defect.checks) if verdict.failing]
    except QuantizerError:  # the copy has no such scheme or fused activation
        return None
    return next(iter(failing), None)


def _unregistered(target: Target) -> str:
    """Return advice if the room has an oracle for the operator but no function that computes it; empty otherwise."""
    op, family, places = target.spec.op, target.spec.quantization.family, target.platform.places
    own = REGISTRY.built_in(op, "quantized", places)
    if oracle_of(family, places) is None or (own is not None and own.platform in places):
        return ""
    where = f'@operator("{op}", kind="quantized", platform="{places[-1]}")'
    return f". The room has an oracle of {family} and no function of {op}. Register the room's own with {where}."


def _left_out(session: Session, target: Target, verdict: Verdict) -> str:
    """Return the defects of the original that a copy does not declare and that may explain the failure."""
    lender = target.platform.functions
    if lender is None or lender not in session.library.platforms:
        return ""
    kept = {defect.id for defect in target.platform.defects}
    lent = [
        defect.id
        for defect in session.library.platform(lender).defects
        if verdict.check in defect.checks and (not defect.ops or target.spec.op in defect.ops)
    ]
    missing = [name for name in lent if name not in kept]
    return f". {lender} declares defects of it: {', '.join(missing)}. Keep its `defects`." if missing else ""


def _said(verdict: Verdict) -> str:
    """Return the headline of a failing verdict, with its worst element: place, result and allowed interval."""
    head, worst = headline(verdict).splitlines()[0], verdict.worst
    if worst is None:
        return head
    place = worst.tensor + (f"[{','.join(map(str, worst.index))}]" if worst.index else "")
    return f"{head}: {place} is {worst.got}, expected {worst.expected} ({worst.allowed})"
