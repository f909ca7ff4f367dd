"""Runs one trial's checks and settles their verdicts: defects, overridden checks, too wide intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from quantizer.conformance.checks.accuracy import accuracy
from quantizer.conformance.checks.arithmetic import arithmetic
from quantizer.conformance.checks.engine import engine
from quantizer.conformance.checks.exact import exact
from quantizer.conformance.checks.float_forward import float_forward
from quantizer.conformance.checks.invariance import repeat, tiled
from quantizer.conformance.checks.parameters import parameters
from quantizer.conformance.checks.pipeline import pipeline
from quantizer.conformance.checks.properties import properties
from quantizer.conformance.checks.round_trip import round_trip
from quantizer.conformance.checks.window_sums import mean_sums
from quantizer.conformance.judging.matches_builtin import matches_builtin
from quantizer.conformance.judging.stated_results import is_as_stated
from quantizer.conformance.model_cases import OF_RULES
from quantizer.conformance.trials.other_data import with_other_data
from quantizer.conformance.trials.trial import Trial
from quantizer.core.defects import CASE_NAMES, Defect
from quantizer.core.errors import QuantizerError, RefusedError
from quantizer.core.expressions import parse
from quantizer.core.verdict import CHECKS, EVERY, Verdict, failure, inconclusive
from quantizer.numerics.qparams import QParams
from quantizer.runtime.engines.protocol import Engine
from quantizer.runtime.isolation.plugins import deaths
from quantizer.runtime.raised import failed, raised
from quantizer.tiling.stacks import parts

VACUOUS_SHARE = 0.05
SHARP_WIDTH = 2.0
CODES = ("arithmetic", "accuracy")
"""Checks that compare codes with the codes that are required."""
OF_DATA = ("engine", "arithmetic")
"""Checks that may be inconclusive only because of the data."""

FUNCTIONS: Mapping[str, Callable[[Trial], Verdict | None]] = {
    "parameters": parameters,
    "float": float_forward,
    "arithmetic": arithmetic,
    "accuracy": accuracy,
    "exact": exact,
    "tiled": tiled,
    "round_trip": round_trip,
    "pipeline": pipeline,
    "properties": properties,
    "repeat": repeat,
    "engine": engine,
}


def judge(trial: Trial, checks: Sequence[str] = EVERY) -> list[Verdict]:
    """Return the verdict of every check in *checks* that applies and that the engine's surface allows, in their order.

    A case that an engine cannot run is inconclusive once, unless the provided parameters are wrong. If a function
    under test raises, the check that ran it fails. A rule without a result fails `parameters` only.
    """
    try:
        if trial.unsupported is not None:
            return [inconclusive("engine", trial.unsupported)]
        _ = trial.parameters
    except Exception as err:  # noqa: BLE001 - whatever a plugin raises is its failure
        return [failure("parameters", f"the quantize rule: {raised(err)}")]
    if trial.refusal is not None:
        provided = _run("parameters", trial) if "parameters" in checks and "parameters" in trial.engine.checks else None
        return [provided if provided is not None and provided.failing else inconclusive("engine", trial.refusal)]
    verdicts = [*_verdicts(trial, checks)]
    return [_settled(verdict, trial, verdicts) for verdict in verdicts]


def judged(trial: Trial, checks: Sequence[str] = EVERY) -> list[tuple[Trial, list[Verdict]]]:
    """Return the trial with its verdicts.

    If a check does not pass on a stack, each part is returned with its own verdicts.

    A defect that excuses, mistrusts or leaves open one part has no effect on the others. A check that passes on the
    whole passes on every part; each part gets its share of the verdict. If a check fails on the whole and on no part,
    the whole comes after its parts.
    """
    verdicts, held, found = _opened(trial, checks)
    if not found:
        return [(trial, verdicts)]
    count = sum(1 for one, _ in found if one is not trial)
    return [
        (one, verdicts if one is trial else _complete(said, held, count, first=place == 0))
        for place, (one, said) in enumerate(found)
    ]


def judged_once(trial: Trial, checks: Sequence[str] = EVERY) -> list[tuple[Trial, list[Verdict]]]:
    """Return the verdicts of `judged`; checks that pass on the whole stack come first and count for each part."""
    verdicts, held, found = _opened(trial, checks)
    if not found:
        return [(trial, verdicts)]
    return [(trial, held), *found]


def _opened(
    trial: Trial, checks: Sequence[str]
) -> tuple[list[Verdict], list[Verdict], list[tuple[Trial, list[Verdict]]]]:
    """Return the verdicts on the whole, those that hold for every part, and each part with the others.

    No parts are judged if all checks pass, if the trial has no parts, or if a process ended. If the whole stack does
    not run, the parts are judged by all checks.
    """
    before = deaths()
    verdicts = judge(trial, checks)
    held = [verdict for verdict in verdicts if _holds_of_parts(verdict)]
    if trial.data_sets == 1 or deaths() > before or len(held) == len(verdicts):
        return verdicts, held, []
    again = {verdict.check for verdict in verdicts} - {verdict.check for verdict in held}
    if "engine" in again:  # a part may run even if the whole does not
        return verdicts, [], _by_parts(trial, verdicts, checks)
    needed = again | ({"arithmetic"} if "accuracy" in again else set())  # for its width
    found = _by_parts(trial, verdicts, [name for name in checks if name in needed])
    return verdicts, held, [(one, [v for v in said if v.check in again or v.failing]) for one, said in found]


def _complete(said: Sequence[Verdict], held: Sequence[Verdict], count: int, *, first: bool) -> list[Verdict]:
    """Return the verdicts of one part, with its share of the counts of the whole; the first part gets the remainder.

    Every part has the same provided numbers.
    """
    own = {verdict.check: verdict for verdict in said}
    for verdict in held:
        several = verdict.elements if verdict.check == "parameters" else verdict.elements // count
        rest = verdict.elements % count if first and several != verdict.elements else 0
        empty = verdict.vacuous // count + (verdict.vacuous % count if first else 0)
        own.setdefault(verdict.check, replace(verdict, elements=several + rest, vacuous=empty))
    return sorted(own.values(), key=lambda verdict: CHECKS.index(verdict.check))


def _by_parts(trial: Trial, verdicts: Sequence[Verdict], checks: Sequence[str]) -> list[tuple[Trial, list[Verdict]]]:
    """Return each part with its verdicts, then the whole if a check fails on it and on no part.

    If no part fails alone, each part is judged by its codes in the result of the whole stack. A failure is reported
    for a part that was run alone.
    """
    if _shares_hold(trial, verdicts):
        found = [(part, judge(part, checks)) for part in trial.parts]
        if not any(verdict.failing for _, several in found for verdict in several):
            return found
    alone = [Trial(trial.target, piece.case, trial.engine) for piece in parts(trial.spec, trial.case)]
    found = [(part, judge(part, checks)) for part in alone]
    shown = {verdict.check for _, several in found for verdict in several if verdict.failing}
    failing = {verdict.check for verdict in verdicts if verdict.failing}
    return found if failing <= shown else [*found, (trial, [*verdicts])]


def _shares_hold(trial: Trial, verdicts: Sequence[Verdict]) -> bool:
    """Return whether parts may be judged by their shares: the whole ran, failed nowhere, and has no stages."""
    refused = any(verdict.check == "engine" and not _holds_of_parts(verdict) for verdict in verdicts)
    return not refused and not any(verdict.failing for verdict in verdicts) and not trial.outcome.stages


def _holds_of_parts(verdict: Verdict) -> bool:
    """Return whether a stack's verdict holds for each part: a pass, or a check that does not apply.

    `arithmetic` may be inconclusive only for the data of one part, such as a sum that may overflow the accumulator.
    """
    return verdict.status == "pass" or (verdict.status == "inconclusive" and verdict.check not in OF_DATA)


def _verdicts(trial: Trial, checks: Sequence[str]) -> Iterator[Verdict]:
    """Yield the verdict of each check.

    If the process of plugins ends during a check, the case fails and no check follows.
    """
    before = deaths()
    for name in CHECKS:
        if name in checks and name in trial.engine.checks and deaths() == before:
            verdict = _run(name, trial)
            if verdict is not None:
                yield verdict


def _run(name: str, trial: Trial) -> Verdict | None:
    if trial.case.data.given and name in OF_RULES:
        return inconclusive(name, "scales and zero points are the model's")
    try:
        verdict = FUNCTIONS[name](trial)
        return _on_other_data(trial, verdict) if name == "repeat" and verdict is not None else verdict
    except RefusedError as err:
        return inconclusive(name, str(err))
    except Exception as err:  # noqa: BLE001 - whatever an engine raises is its failure
        return failure(name, failed(err))


def _on_other_data(trial: Trial, verdict: Verdict) -> Verdict:
    """Return the verdict of `repeat`. It fails if a plugin is wrong on data that it has not seen before."""
    others = () if verdict.failing else with_other_data(trial)
    found = next((one for other in others for one in _of_codes(other, trial) if one.failing), None)
    if found is None:
        return verdict
    said = f": {found.reason}" if found.reason else ""
    return replace(found, check="repeat", reason=f"{found.check} of other data under the same parameters{said}")


def _of_codes(other: Trial, judged_before: Trial) -> list[Verdict]:
    """Return the verdicts on the codes of *other*.

    `accuracy` judges parameters, too, which were judged before unless the rule is asked anew.
    """
    exact = judge(other, CODES[:1])
    if other.case is judged_before.case and any(verdict.status == "pass" for verdict in exact):
        return exact
    return [*exact, *judge(other, CODES[1:])]


def _settled(verdict: Verdict, trial: Trial, verdicts: Sequence[Verdict]) -> Verdict:
    try:
        return _discounted(verdict, trial, verdicts)
    except Exception as err:
        if trial.engine.version and not isinstance(err, QuantizerError):
            raise  # a real engine raises in its own process, so this error is ours
        # a function under test that raises here excuses nothing
        return verdict if verdict.failing else failure(verdict.check, failed(err))


def _discounted(verdict: Verdict, trial: Trial, verdicts: Sequence[Verdict]) -> Verdict:
    if verdict.failing:
        reason = known_defect(trial, verdict.check)
        return replace(verdict, status="defect", reason=reason) if reason else verdict
    if verdict.status == "pass" and (reason := _unstable_defect(trial, verdict.check)):
        return replace(verdict, status="defect", reason=reason)
    if verdict.check == "accuracy" and verdict.status == "pass" and not _is_sharp(verdicts):
        if verdict.elements and verdict.vacuous * trial.data_sets > VACUOUS_SHARE * verdict.elements:
            return replace(verdict, status="mistrusted", reason="more than 5 % of the elements are vacuous")
        if any(part.case.data.sets == ("random",) and part.is_constant_output for part in trial.parts):
            return replace(verdict, status="mistrusted", reason="the output is almost constant or clipped")
    return verdict


def _is_sharp(verdicts: Sequence[Verdict]) -> bool:
    return any(v.check == "arithmetic" and v.status == "pass" and 0 < v.width <= 1 for v in verdicts)


def case_values(trial: Trial, asked: Collection[str] = CASE_NAMES) -> dict[str, object]:
    """Return the values in *asked* that a defect's predicate may name, in addition to dimensions and attributes."""
    return {name: _CASE_VALUES[name](trial) for name in CASE_NAMES if name in asked}


def _input_scales(trial: Trial) -> list[float]:
    return [float(params.scale.max()) for params in trial.parameters.inputs.values()]


def _scales(trial: Trial) -> list[float]:
    return [*_input_scales(trial), *(float(params.scale.max()) for params in trial.parameters.outputs.values())]


def _spread(scales: Sequence[float]) -> float:
    """Return the ratio of the largest to the smallest of *scales*; 1 if there are none."""
    return max(scales) / min(scales) if scales else 1.0


def _largest_sum(trial: Trial) -> float:
    """Return the largest |sum| of a linear or bilinear operator or a mean; |code| for other operators of one input.

    Else 0.
    """
    kind = trial.spec.error_model.kind
    if kind in ("linear", "bilinear"):
        return float(np.abs(trial.sums).max(initial=0.0))
    if kind == "mean" and (known := mean_sums(trial)) is not None:
        return float(np.abs(known[0]).max(initial=0.0))
    if len(trial.codes) != 1 or not trial.parameters.inputs:
        return 0.0
    return max((float(values.abs().max()) for values in trial.centred.values() if values.numel()), default=0.0)


def _largest_ratio(trial: Trial) -> float:
    """Return the largest product of input and weight scales over the output's.

    Without products, the largest scale's.
    """
    if trial.spec.error_model.kind != "bilinear":
        return max(trial.ratios.values(), default=0.0) if trial.parameters.outputs else 0.0
    factors = [trial.qparams(name).scale for name in trial.tensors if trial.spec.inputs[name].role != "bias"]
    return float(math.prod(float(scale.max()) for scale in factors)) / float(trial.output.scale)


def _largest_code(trial: Trial) -> float:
    """Return a bound on the largest |output code| before saturation; 0 except for sums and real inputs."""
    reads_reals = any(item.kind == "real" for item in trial.spec.inputs.values())
    if trial.spec.error_model.kind not in ("linear", "bilinear") and not reads_reals:
        return 0.0
    real = np.abs(trial.reference(trial.values)).max(initial=0.0) / float(trial.output.scale)
    return float(real) + abs(int(trial.output.zero_point))


def _largest_pair(trial: Trial) -> int:
    """Return twice the product of the largest |raw code| of each operand but the bias; 0 of operators without products.

    Padding adds the zero point to the codes that occur.
    """
    if trial.spec.error_model.kind != "bilinear":
        return 0
    names = [name for name in trial.codes if trial.spec.inputs[name].role != "bias"]
    largest = (int(trial.codes[name].to(torch.int64).abs().max()) for name in names if trial.codes[name].numel())
    return 2 * math.prod(max(code, _largest_zero([trial.qparams(n)])) for n, code in zip(names, largest, strict=True))


def _largest_zero(tensors: Iterable[QParams]) -> int:
    return max((int(params.zero_point.abs().max()) for params in tensors), default=0)


def _range_low(trial: Trial) -> float:
    """Return the highest lower end, at most 0, of calibrated input and output ranges, each in its own steps."""
    tensors = {**trial.parameters.inputs, **trial.parameters.outputs}
    ends = (
        min(trial.case.ranges[name][0], 0.0) / float(params.scale.min())
        for name, params in tensors.items()
        if name in trial.case.ranges
    )
    return max(ends, default=0.0)


_CASE_VALUES: Mapping[str, Callable[[Trial], object]] = {
    "activation_bits": lambda trial: trial.target.scheme.activation.bits,
    "lut_bits": lambda trial: trial.target.scheme.activation.lut_bits,
    "weight_bits": lambda trial: trial.target.scheme.weight.bits if trial.target.scheme.weight else 0,
    "data": lambda trial: trial.case.data.sets[0],
    "activation": lambda trial: trial.case.activation,
    "input_spread": lambda trial: _spread(_input_scales(trial)),
    "spread": lambda trial: _spread(_scales(trial)),
    "largest_sum": _largest_sum,
    "largest_ratio": _largest_ratio,
    "largest_code": _largest_code,
    "input_zero_point": lambda trial: _largest_zero(trial.parameters.inputs.values()),
    "output_zero_point": lambda trial: _largest_zero(trial.parameters.outputs.values()),
    "weight_zero_point": lambda trial: _largest_zero(c.params for c in trial.parameters.constants.values()),
    "range_low": _range_low,
    "terms": lambda trial: trial.terms,
    "fast": lambda trial: trial.target.scheme.activation.fast,
    "cut_axes": lambda trial: tuple(trial.case.tiles.sizes),
    "largest_pair": _largest_pair,
    "biased": lambda trial: any(trial.spec.inputs[name].role == "bias" for name in trial.case.shapes),
}
"""How each of CASE_NAMES is computed. They are computed on demand, because sums need a run of the reference."""


def known_defect(trial: Trial, check: str) -> str | None:
    """Return `id: reason` of the declared defect that explains a failing *check*, or None.

    A defect of a real system excuses only results equal to those of the built-in functions, which were observed to
    agree with that system. A defect of a real engine holds only in versions in which it was seen. If it states what
    the engine computes, it excuses only that result. A known failure of a plugin is not compared with anything.
    """
    for defect in _declared(trial, check, trial.target.platform.defects):
        if defect.engine is not None:
            if concerns(defect, trial.engine, trial.target.platform.platform) and is_as_stated(defect, trial, check):
                return f"{defect.id}: {defect.reason}"
        elif type(defect) is not Defect or _matches(trial, check):
            return f"{defect.id}: {defect.reason}"
    return None


def _matches(trial: Trial, check: str) -> bool:
    """Return whether a failing *check* fails as the built-in functions do; parts share the result of their stack."""
    if check not in trial.matches:
        trial.matches[check] = matches_builtin(trial, check)
    return trial.matches[check]


def _unstable_defect(trial: Trial, check: str) -> str | None:
    """Return `id: reason` of the declared defect by which an engine's result changes between runs, or None."""
    platform = trial.target.platform
    unstable = [d for d in platform.defects if d.unstable and concerns(d, trial.engine, platform.platform)]
    return next((f"{defect.id}: {defect.reason}" for defect in _declared(trial, check, unstable)), None)


def _declared(trial: Trial, check: str, defects: Sequence[Defect]) -> Iterator[Defect]:
    """Yield the defects that name *check* and whose predicate holds for the case."""
    concerned = [defect for defect in defects if defect.concerns(trial.spec.op) and check in defect.checks]
    if concerned:
        predicates = [parse(defect.predicate) for defect in concerned]
        asked = frozenset[str]().union(*(predicate.names for predicate in predicates))
        names = {**trial.bound, **case_values(trial, asked)}
        yield from (defect for defect, holds in zip(concerned, predicates, strict=True) if holds(names))


def is_overruled(defect: Defect, trial: Trial) -> bool:
    """Return whether an engine has its own defect for the case of a platform's *defect*.

    Then it need not show the platform's defect.
    """
    if defect.engine is not None:
        return False
    platform = trial.target.platform
    own = [other for other in platform.defects if other.engine and concerns(other, trial.engine, platform.platform)]
    return any(True for check in defect.checks for _ in _declared(trial, check, own))


def concerns(defect: Defect, engine: Engine, platform: str) -> bool:
    """Return whether *engine* has *defect*, in a version and with instruction sets where it was seen."""
    if defect.engine is None:
        return True
    seen = engine.version in defect.versions and defect.seen_with(engine.instructions)
    return seen and defect.engine == engine.identity(platform)
