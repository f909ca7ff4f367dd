"""All checks on one trial, with what discounts them: declared defects, mistrust, arithmetic that is not sharp."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from quantizer.conformance.checks.accuracy import accuracy
from quantizer.conformance.checks.arithmetic import arithmetic
from quantizer.conformance.checks.exact import exact
from quantizer.conformance.checks.float_forward import float_forward
from quantizer.conformance.checks.parameters import parameters
from quantizer.conformance.checks.round_trip import round_trip
from quantizer.conformance.checks.variants import properties, repeat, tiled
from quantizer.conformance.faithful import is_faithful
from quantizer.conformance.trial import Trial
from quantizer.core.errors import QuantizerError
from quantizer.core.expressions import parse
from quantizer.core.platforms import CASE_NAMES, Defect
from quantizer.core.verdict import CHECKS, Verdict, failure

VACUOUS_SHARE = 0.05
SHARP_WIDTH = 2.0

FUNCTIONS: Mapping[str, Callable[[Trial], Verdict | None]] = {
    "parameters": parameters,
    "float": float_forward,
    "arithmetic": arithmetic,
    "accuracy": accuracy,
    "exact": exact,
    "tiled": tiled,
    "round_trip": round_trip,
    "properties": properties,
    "repeat": repeat,
}


def judge(trial: Trial, checks: Sequence[str] = CHECKS) -> list[Verdict]:
    """Return the verdict of every check in *checks* that applies, in their order.

    A function under test that raises fails the check that ran it; a rule that hands nothing fails `parameters` alone.
    """
    try:
        _ = trial.parameters
    except Exception as err:  # noqa: BLE001 - whatever a plugin raises is its failure
        return [failure("parameters", f"the quantize rule raised {_raised(err)}")]
    found = (_run(name, trial) for name in CHECKS if name in checks)
    verdicts = [verdict for verdict in found if verdict is not None]
    return [_discounted(verdict, trial, verdicts) for verdict in verdicts]


def _run(name: str, trial: Trial) -> Verdict | None:
    try:
        return FUNCTIONS[name](trial)
    except Exception as err:  # noqa: BLE001 - whatever an engine raises is its failure
        return failure(name, f"raised {_raised(err)}")


def _raised(err: Exception) -> str:
    first = str(err).splitlines()[0] if str(err) else ""
    kind = "" if isinstance(err, QuantizerError) else f"{type(err).__name__}: "
    return f"{kind}{first}"


def _discounted(verdict: Verdict, trial: Trial, verdicts: Sequence[Verdict]) -> Verdict:
    if verdict.failing:
        reason = known_defect(trial, verdict.check)
        return replace(verdict, status="defect", reason=reason) if reason else verdict
    if verdict.check == "accuracy" and verdict.status == "pass" and not _is_sharp(verdicts):
        if verdict.elements and verdict.vacuous > VACUOUS_SHARE * verdict.elements:
            return replace(verdict, status="mistrusted", reason="more than 5 % of the elements are vacuous")
        if trial.case.data.set == "random" and trial.is_constant_output:
            return replace(verdict, status="mistrusted", reason="the output is almost constant or clipped")
    return verdict


def _is_sharp(verdicts: Sequence[Verdict]) -> bool:
    return any(v.check == "arithmetic" and v.status == "pass" and 0 < v.width <= 1 for v in verdicts)


def case_values(trial: Trial) -> dict[str, object]:
    """Return what the predicate of a defect may name beside dimensions and attributes."""
    scheme, parameters = trial.target.scheme, trial.parameters
    scales = [float(params.scale.max()) for params in parameters.inputs.values()]
    every = [*scales, *(float(params.scale.max()) for params in parameters.outputs.values())]
    values = (
        scheme.activation.bits, scheme.activation.lut_bits, scheme.weight.bits if scheme.weight else 0,
        trial.case.data.set, trial.case.activation, max(scales) / min(scales), max(every) / min(every),
    )  # fmt: skip
    return dict(zip(CASE_NAMES, values, strict=True))


def known_defect(trial: Trial, check: str) -> str | None:
    """Return `id: reason` of the declared defect that explains a failing *check*, or None.

    A defect of a real system excuses only what that system does: the parameters or codes of the built-in functions,
    which are the ones that were seen to agree with it. A plugin's known failure has nothing to be compared with.
    """
    names = {**trial.bound, **case_values(trial)}
    for defect in trial.target.platform.defects:
        if trial.spec.op not in defect.ops or check not in defect.checks or not parse(defect.predicate)(names):
            continue
        if type(defect) is not Defect or is_faithful(trial, check):
            return f"{defect.id}: {defect.reason}"
    return None
