"""The item OP-spec: it checks functions and oracle, that every key has an effect, and that planted faults are found."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from quantizer.conformance.checks.float_forward import float_radius
from quantizer.conformance.faults import Subject, catalogue, explicit_cases
from quantizer.conformance.findings import Findings
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.setup.session import Session
from quantizer.conformance.spec_checks.unreachable_declarations import unmet
from quantizer.conformance.spec_checks.unused_keys import unread_keys
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Array, Trial
from quantizer.core.case import Case
from quantizer.core.errors import QuantizerError
from quantizer.core.spec import Spec
from quantizer.ops import REGISTRY
from quantizer.ops.registry import BUILT_IN
from quantizer.plugins.oracle import oracle_function
from quantizer.runtime.engines.builtin import BuiltinEngine

QUICK = ("input_zero_point_provided", "one_code_up", "reference_in_place")
"""Faults of every operator, one in each function; `quantizer faults` and tests/quality plant the catalogue."""
QUICK_CASES = 24
QUICK_TARGETS = 3
"""The numbers of cases and targets that try a fault, or compare a built-in reference with its oracle."""


FINE_BITS = 2.0**-30 + 2.0**-44
"""Operands are multiplied by 1 plus this, so that they need more bits than float32 has."""
FEW = 8
"""With fewer distinct results than this, the precision of a reference cannot be judged."""


def spec_problems(session: Session, spec: Spec) -> Findings:
    """Return the problems of *spec*, each with the next step; expensive checks run only if the cheap ones pass.

    Comparisons are the shape of the first case, the reference with its oracle, and each planted fault.
    """
    path = session.library.paths[spec.op]
    reference = REGISTRY.find(spec.op, "reference")
    if reference is None:
        text = f"no module registers a reference. Write @operator({spec.op!r}) def reference(...), or name its plugin."
        return Findings([text])
    found = Findings()
    problems = found.problems
    if not any(REGISTRY.find(spec.op, "quantized", name) for name in (None, *session.library.platforms)):
        problems.append(f"no quantized function. Write @operator({spec.op!r}) def quantized(..., *, parameters).")
    if REGISTRY.built_in(spec.op, "reference") is reference and reference.origin != BUILT_IN and spec.oracle is None:
        problems.append(
            f"{path.name}: self-referenced: the operator's own reference judges it. Name an oracle, such as "
            "`oracle: torch.nn.functional.relu`, or `oracle: none` with the reason in the summary."
        )
    if not session.all_targets(spec):
        problems.append("no platform and scheme apply. Check `excludes` and the platforms' `schemes` and `ops`.")
        return found
    found.compare(_first_case_problems(session, spec))
    # without a first case, all further checks would fail with the same message
    if problems:
        return found
    try:
        problems += _spec_key_problems(session, spec)
        found.compare(_precision_problems(session, spec))
        _compare_with_oracle(found, session, spec)
        _plant_faults(found, session, spec)
    except QuantizerError as err:
        return Findings([f"the spec generates a case that is not legal: {err} Bound its domains."])
    return found


def _first_case_problems(session: Session, spec: Spec) -> list[str]:
    target = session.all_targets(spec)[0]
    try:
        trial = Trial(target, build_case(target, HashChoices(key(0, spec.op), {})), session.engine)
        if trial.y.shape != trial.output_shape:
            return [
                f"the reference gives shape {list(trial.y.shape)}, the spec's shape rule {list(trial.output_shape)}."
            ]
    except QuantizerError as err:
        return [f"the first generated case cannot be built: {err}"]
    except Exception as err:  # noqa: BLE001 - whatever a plugin's reference raises is its failure
        return [f"the reference raised {type(err).__name__}: {err}"]
    return []


def _some_cases(session: Session, spec: Spec) -> list[tuple[Target, Case]]:
    return list(itertools.islice(explicit_cases(session, spec, QUICK_TARGETS), QUICK_CASES))


def _spec_key_problems(session: Session, spec: Spec) -> Iterator[str]:
    """Yield a message, with its place, for every bin that is never reached and every key that has no effect."""
    positions = session.library.positions[spec.op]
    found = [*unmet(spec, session.all_targets(spec), session.library)]
    # a bin that no case reaches is reported as such, not once more as unread
    known = {location for location, _ in found}
    found += [
        (location, "nothing reads it, whatever the case. Remove it.")
        for location in unread_keys(session, session.library.paths[spec.op])
        if not any(location == place[: len(location)] for place in known)
    ]
    yield from (positions.message(location, text) for location, text in found)


def _precision_problems(session: Session, spec: Spec) -> list[str]:
    """Return a message if the reference computes in fewer bits than float64.

    It gets operands that need more bits than float32 has, and a float64 reference shows some of these bits in its
    results. Integer results prove nothing: an index, a comparison or a clamp has no further bits.
    """
    seen: set[float] = set()
    for target, case in _some_cases(session, spec):
        trial = Trial(target, case, session.engine)
        pointing = {name for name, item in spec.inputs.items() if item.kind == "index"}
        operands = {
            name: values if name in pointing else values * (1 + FINE_BITS) for name, values in trial.doubles.items()
        }
        made = trial.reference(operands).astype(np.float64).reshape(-1)
        seen.update(made[np.isfinite(made) & (made != np.round(made))].tolist())
    values = np.asarray([*seen])
    with np.errstate(over="ignore"):
        # every result is a float32 number, which is no coincidence for so many of them
        coarse = values.size >= FEW and bool((values == values.astype(np.float32)).all())
    if not coarse:
        return []
    text = (
        "the reference computes in float32 or less, but it judges float32. Keep the float64 of its operands throughout."
    )
    return [f"{spec.op}: {text}"]


def _compare_with_oracle(found: Findings, session: Session, spec: Spec) -> None:
    """Compare a built-in reference with the oracle that its spec names, up to the first case in which they differ.

    They differ if they are further apart than the float check allows a float32 forward. The reference of a plugin is
    compared with its oracle in every case.
    """
    reference = REGISTRY.built_in(spec.op, "reference")
    oracle = oracle_function(spec)
    if oracle is None or reference is None or reference.origin != BUILT_IN:
        return
    for target, case in _some_cases(session, spec):
        trial = Trial(target, case, session.engine)
        wanted, own = oracle(**trial.doubles, **case.attrs).double().numpy(), trial.reference(trial.doubles)
        if wanted.shape != own.shape or not _near(wanted, own, float_radius(trial)):
            text = "the reference differs from the oracle by more than rounding. Correct one of the two."
            said = f"{target.id}: {spec.oracle}: {text} Shapes {dict(case.shapes)}, attributes {dict(case.attrs)}."
            found.compare([said], wanted.size)
            return
        found.compare([], wanted.size)


def _near(wanted: Array, got: Array, radius: Array) -> bool:
    with np.errstate(invalid="ignore"):
        close = np.abs(wanted - got) <= radius
    return bool((close | (wanted == got) | (np.isnan(wanted) & np.isnan(got))).all())


def _plant_faults(found: Findings, session: Session, spec: Spec) -> None:
    """Plant three faults that every operator can have. Add a problem for each that the gate does not find."""
    if not isinstance(session.engine, BuiltinEngine):
        return
    cases = _some_cases(session, spec)
    subject = Subject(session, spec.op, cases)
    for fault in (fault for fault in catalogue() if fault.id in QUICK):
        seen = subject.examine(fault)
        said = (
            f"fault {fault.id} ({fault.place}) is found by no check in {len(cases)} cases: the operator is not judged. "
            f"Give its `error_model` a kind that has bounds, and run `quantizer faults --op {spec.op}`."
        )
        # a fault that changes nothing in these cases says nothing about the checks
        if seen.effect:
            found.compare([] if seen.kills else [said])
