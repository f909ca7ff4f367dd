"""Operators with declared stages: shown stages are judged from the codes before them, hidden ones by their formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.bounds import Interval, code_interval
from quantizer.conformance.bounds.expressions import enclosed, exact_value
from quantizer.conformance.bounds.rounding import RESOLUTION, rational_codes
from quantizer.conformance.trials.elements import Allowed, judge_codes
from quantizer.conformance.trials.finding import Finding
from quantizer.conformance.trials.trial import Trial
from quantizer.core.rounding_modes import RoundingMode
from quantizer.core.stages import Stage, StageFormat, numbers_of
from quantizer.core.verdict import Verdict, failure, inconclusive
from quantizer.numerics.stage_formats import declared_stages, formats_of

Array = NDArray[Any]
CHECK = "arithmetic"
WIDEST = 2
"""An element is inconclusive if its interval has more codes than this."""
INCONCLUSIVE_SHARE = 0.05
"""A case with a larger share of inconclusive elements than this does not pass."""


@dataclass(frozen=True)
class _Operand:
    """Input of a later stage: an interval of real numbers, and exact values if its codes are known."""

    real: Interval
    exact: Callable[[tuple[int, ...]], Fraction] | None = None


def has_stages(trial: Trial) -> bool:
    """Return whether the spec, or the platform, declares stages for the operator."""
    return bool(declared_stages(trial.spec, trial.target.platform))


def staged(trial: Trial) -> Verdict:
    """Judge each shown stage from the codes before it, then the output; the first stage that fails is the verdict.

    A hidden stage may be any number to which its declared rounding can bring its real value. An element is
    inconclusive if more than 2 codes remain possible. A case with many such elements does not pass.
    """
    operands, formats = dict(_inputs(trial)), _formats(trial)
    numbers = numbers_of(trial.bound, trial.target.scheme.activation.bits)
    found: list[Verdict] = []
    for name, stage in declared_stages(trial.spec, trial.target.platform).items():
        value = enclosed(stage.value, {n: part.real for n, part in operands.items()}, numbers)
        exact = _exactly(stage, operands, numbers)
        # the last stage has no format of its own: it is the output
        if name not in formats:
            return _combined(_last(trial, stage, value, exact), found)
        shown = trial.outcome.stages.get(name)
        if shown is None:
            operands[name] = _Operand(_hidden(value, formats[name], _mode(trial, stage)))
            continue
        codes = shown.numpy()
        found.append(_shown(trial, name, stage, formats[name], value, exact, codes))
        if found[-1].failing:
            return found[-1]
        operands[name] = _of_codes(codes, formats[name].scale)
    raise AssertionError("the last stage is the output's; `spec lint` keeps it so.")


def unrounded(trial: Trial, operands: Mapping[str, Interval], *, rounded: bool) -> Interval:
    """Return the output of the stages for real *operands*, before its rounding; *rounded*: with the inner roundings."""
    formats, numbers = _formats(trial), numbers_of(trial.bound, trial.target.scheme.activation.bits)
    known = {**operands}
    value = Interval.exactly(np.zeros(trial.output_shape))
    for name, stage in declared_stages(trial.spec, trial.target.platform).items():
        value = enclosed(stage.value, known, numbers)
        known[name] = _hidden(value, formats[name], _mode(trial, stage)) if rounded and name in formats else value
    return Interval(*np.broadcast_arrays(value.lo, value.hi, np.zeros(trial.output_shape))[:2])


def computes_reference(trial: Trial) -> str | None:
    """Return the place where the stages without roundings differ from the reference on float operands, or None.

    Differences up to 2**-40 of the largest number in the reference, or of the output's format, are float64's error.
    """
    exact = unrounded(trial, {n: Interval.exactly(v.numpy()) for n, v in trial.doubles.items()}, rounded=False)
    output, y = trial.output, trial.y
    size = float(output.scale) * max(abs(output.qmin - int(output.zero_point)), output.qmax - int(output.zero_point))
    room = RESOLUTION * np.maximum(np.where(np.isfinite(y), np.abs(y), 0.0), size)
    outside = np.isfinite(y) & ~exact.widened(room).contains(y)
    if not outside.any():
        return None
    index = tuple(int(i) for i in np.argwhere(outside)[0])
    return (
        f"the stages of the spec give {exact.lo[index]:.9g} at y{list(index)} where the reference gives {y[index]:.9g}."
        " Correct the stages, or the reference."
    )


def stage_findings(trial: Trial) -> Iterator[Finding]:
    """Yield the findings about the formats of stages that a rule provides: they must equal the declared ones."""
    declared = _formats(trial) if has_stages(trial) else {}
    for name, got in trial.parameters.stages.items():
        if name not in declared:
            text = "stages that the spec or the platform declares"
            yield Finding(f"stage {name}", float("inf"), ", ".join(declared) or "no stage", name, text)
            continue
        wanted = declared[name]
        pairs = (
            ("scale", wanted.scale, float(got.scale)),
            ("zero point", 0, int(got.zero_point)),
            ("codes", (wanted.qmin, wanted.qmax), (got.qmin, got.qmax)),
        )
        for what, expected, found in pairs:
            ratio = 0.0 if expected == found else float("inf")
            yield Finding(f"stage {name}", ratio, f"{what} {expected}", f"{found}", "the declared format of the stage")


def undeclared(shown: Mapping[str, object], declared: set[str], what: str) -> Verdict | None:
    """Return a failure if the forward shows an undeclared stage, else None."""
    names = [name for name in shown if name not in declared]
    if not names:
        return None
    known = ", ".join(sorted(declared)) or "none"
    return failure(
        CHECK,
        f"stage {names[0]!r} is shown, and nobody declared it. Stages of {what}: {known}."
        " Declare it under `stages` of the spec or the platform, or do not show it.",
    )


def _formats(trial: Trial) -> dict[str, StageFormat]:
    platform, bits = trial.target.platform, trial.target.scheme.activation.bits
    return formats_of(trial.spec, platform, trial.bound, bits, trial.parameters.inputs)


def _mode(trial: Trial, stage: Stage) -> RoundingMode:
    return stage.rounding or trial.target.platform.rounding


def last_mode(trial: Trial) -> RoundingMode:
    """Return how the output of declared stages is rounded."""
    return _mode(trial, [*declared_stages(trial.spec, trial.target.platform).values()][-1])


def _inputs(trial: Trial) -> Iterator[tuple[str, _Operand]]:
    """Yield each operand: centred codes times scale, exact as rationals."""
    for name, codes in trial.centred.items():
        scale = np.broadcast_to(trial.broadcast(name, trial.qparams(name).scale), codes.shape)
        yield name, _of_codes(codes.numpy(), scale)


def _of_codes(codes: Array, scale: Array | float) -> _Operand:
    whole = codes.astype(np.float64)
    steps = np.broadcast_to(np.asarray(scale, np.float64), whole.shape)

    def exact(index: tuple[int, ...]) -> Fraction:
        at = _broadcast_index(index, whole.shape)
        return int(whole[at]) * Fraction(float(steps[at]))

    return _Operand(Interval.exactly(whole) * Interval.exactly(steps), exact)


def _broadcast_index(index: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the place in an operand of *shape* that element *index* of a result reads."""
    last = index[len(index) - len(shape) :]
    return tuple(0 if size == 1 else place for place, size in zip(last, shape, strict=True))


def _exactly(
    stage: Stage, operands: Mapping[str, _Operand], numbers: Mapping[str, float]
) -> Callable[[tuple[int, ...]], Fraction] | None:
    """Return the exact value of an element of a rational stage if its operands have known codes, else None."""
    read = {name: operands[name].exact for name in stage.value.names if name in operands}
    if not stage.value.is_rational or None in read.values():
        return None

    def exact(index: tuple[int, ...]) -> Fraction:
        return exact_value(stage.value, {name: at(index) for name, at in read.items() if at is not None}, numbers)

    return exact


def _hidden(value: Interval, stage: StageFormat, mode: RoundingMode) -> Interval:
    """Return the interval of a hidden stage's result: its value, widened by its rounding, clamped to its code range."""
    # toward zero goes down or up by the sign, and an interval may hold both signs
    below = 0.5 if mode.startswith("half") else float(mode in ("down", "toward_zero", "stochastic"))
    above = 0.5 if mode.startswith("half") else float(mode in ("up", "toward_zero", "stochastic"))
    lost = Interval.exactly(np.asarray(stage.scale))
    low = value + Interval.exactly(np.asarray(-below)) * lost
    high = value + Interval.exactly(np.asarray(above)) * lost
    return Interval(low.lo, high.hi).saturated(stage.scale * stage.qmin, stage.scale * stage.qmax)


def _codes(
    value: Interval,
    scale: float,
    zero: int,
    ends: tuple[int, int],
    mode: RoundingMode,
    exact: Callable[[tuple[int, ...]], Fraction] | None,
) -> tuple[Array, Array]:
    """Return the smallest and the largest code that the rounding of a number in *value* may give.

    A value exactly between two codes is held to the mode. If float64 cannot decide on which side of such a tie a
    value lies, both codes pass, because the stages' scales are float64 numbers.
    """
    low, high = (
        code_interval(end / scale, zero_point=zero, qmin=ends[0], qmax=ends[1], rounding=mode)[place]
        for place, end in enumerate((value.lo, value.hi))
    )
    low, high = np.array(low), np.array(high)
    for index in map(tuple, np.argwhere(low != high).tolist() if exact is not None else []):
        steps = exact(index) / Fraction(scale)  # type: ignore[misc]
        if (2 * steps).denominator == 1:
            code = rational_codes(steps, mode)[0] + zero
            low[index] = high[index] = min(max(code, ends[0]), ends[1])
    return low, high


def _shown(
    trial: Trial,
    name: str,
    stage: Stage,
    form: StageFormat,
    value: Interval,
    exact: Callable[[tuple[int, ...]], Fraction] | None,
    codes: Array,
) -> Verdict:
    mode = _mode(trial, stage)
    low, high = _codes(value, form.scale, 0, (form.qmin, form.qmax), mode, exact)
    allowed = Allowed(
        low,
        high,
        made_of=f"{mode} of {stage.value.text}, stage {name}",
        detail=lambda i: {"exact": f"{value.lo[i] / form.scale:.9g}"},
    )
    return judge_codes(CHECK, trial, allowed, got=codes, tensor=name)


def _last(trial: Trial, stage: Stage, value: Interval, exact: Callable[[tuple[int, ...]], Fraction] | None) -> Verdict:
    output, mode, shape = trial.output, _mode(trial, stage), trial.output_shape
    scale, zero = float(output.scale), int(output.zero_point)
    value = Interval(np.broadcast_to(value.lo, shape), np.broadcast_to(value.hi, shape))
    low, high = _codes(value, scale, zero, (output.qmin, output.qmax), mode, exact)
    allowed = Allowed(
        low,
        high,
        made_of=f"{mode} of {stage.value.text} of the stages before it",
        detail=lambda i: {"exact": f"[{value.lo[i] / scale:.9g}, {value.hi[i] / scale:.9g}] + {zero}"},
    )
    verdict = judge_codes(CHECK, trial, allowed)
    wide = int(np.count_nonzero(high - low + 1 > WIDEST))
    return verdict if verdict.failing or not wide else _inconclusive(verdict, wide)


def _inconclusive(verdict: Verdict, wide: int) -> Verdict:
    reason = f"hidden stages leave more than {WIDEST} codes of {wide} of {verdict.elements} elements. Show the stages."
    if wide == verdict.elements:
        return inconclusive(CHECK, f"hidden stages leave more than {WIDEST} codes of every element. Show the stages.")
    status = "mistrusted" if wide > INCONCLUSIVE_SHARE * verdict.elements else verdict.status
    return replace(verdict, status=status, vacuous=wide, reason=reason)


def _combined(last: Verdict, before: list[Verdict]) -> Verdict:
    """Return the verdict on the output, with the elements of the stages that passed before it."""
    if last.failing or not before:
        return last
    return replace(last, elements=last.elements + sum(verdict.elements for verdict in before))
