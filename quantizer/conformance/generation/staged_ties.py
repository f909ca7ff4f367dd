"""Ties of operators with declared stages: ranges under which the last rounding has ties, and codes that reach them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.bounds.expressions import enclosed
from quantizer.conformance.bounds.interval import Interval
from quantizer.conformance.bounds.rounding import code_interval
from quantizer.conformance.generation.choice_sources import ChoiceSource
from quantizer.conformance.generation.hashing import integers
from quantizer.conformance.generation.ranges import activation_of, range_of
from quantizer.conformance.target import Target
from quantizer.core.case import Case, Range
from quantizer.core.shapes import variables
from quantizer.core.stages import StageFormat, numbers_of
from quantizer.numerics.stage_formats import declared_stages, formats_of

Array = NDArray[Any]
SAMPLED = 1 << 14
"""The number of combinations of the operands' codes that are searched for ties."""
COMPARED = 64
"""The number of results from which the unit of all results is computed."""
SHORT = 24
"""The largest number of bits of a scale for which products of scales and codes are exact in float64."""
LARGEST_FACTOR = 1 << 16
"""The largest factor that may shorten a scale's mantissa. More bits would not fit a float32 range."""
ZEROS = 64
"""The number of zero points that are tried for the smallest factor."""
FOLDS = frozenset({"sum", "mean", "greatest"})


def tied_ranges(target: Target, case: Case, chooser: ChoiceSource) -> dict[str, Range]:
    """Return ranges with short scales, so that the last rounding has ties; no ranges if that is impossible.

    A short scale is a binary fraction of few bits. A stage whose scale is `gate_high / 32767` has one if the numerator
    cancels all prime factors of 32767. The end code of the gate contains some of them, depending on its zero point. The
    rest must be a factor of its step. Of several zero points, the one with the smallest such factor is chosen.
    """
    if not is_searched(target, case):
        return {}
    names = list(target.spec.activations)
    exponents = {name: chooser.integer(f"{name}.tied", -3, 3) for name in names}
    low, high = _ends(target, case)
    found = []
    for attempt in range(ZEROS):
        zero = chooser.integer(f"tied.zero.{attempt}", low // 2, high // 2)
        tried = case.but(ranges={**case.ranges, **{n: range_of(target, 2.0 ** exponents[n], zero) for n in names}})
        if (factor := _factor(_scales(target, tried))) is not None:
            found.append((factor, attempt, zero))
        if factor == 1:
            break
    if not found:
        return {}
    factor, _, zero = min(found)
    ranges = {n: range_of(target, factor * 2.0 ** exponents[n], zero) for n in names}
    tied = case.but(ranges={**case.ranges, **ranges})
    # the factor is right only if every scale of a stage is proportional to the operands' steps
    if _factor(_scales(target, tied)) != 1:
        return {}
    span = _output_range(target, tied, chooser)
    return {**ranges, "y": span} if span else {}


def solved_stages(target: Target, case: Case) -> dict[str, Array]:
    """Return operands in which three of four elements give ties at the last rounding; empty without ties."""
    if "y" not in case.ranges or not is_searched(target, case) or _factor(_scales(target, case)) != 1:
        return {}
    codes, values = _sample(target, case)
    places = np.flatnonzero(_ties(target, case, values))
    shape = case.shapes[target.spec.activations[0]]
    if not places.size or not math.prod(shape):
        return {}
    tied = places[integers(case.data.seed, "tied", shape, 0, places.size - 1)]
    other = integers(case.data.seed, "tied.other", shape, 0, values.size - 1)
    picked = np.where(integers(case.data.seed, "tied.beside", shape, 0, 3) > 0, tied, other)
    return {name: each[picked] * float(activation_of(target, case, name).scale) for name, each in codes.items()}


def is_searched(target: Target, case: Case) -> bool:
    """Return whether the operator works element by element, with inner stages and a rational last one."""
    stages = [*declared_stages(target.spec, target.platform).values()]
    names = target.spec.activations
    if len(stages) < 2 or not names or set(names) != set(case.shapes):
        return False
    items = [target.spec.inputs[name] for name in names]
    alike = len({case.shapes[name] for name in names}) == 1 and all(item.kind == "value" for item in items)
    whole = target.scheme.activation.format == "integer" and target.scheme.activation.rule != "power_of_two"
    folded = any(FOLDS & stage.value.functions for stage in stages)
    return alike and whole and not folded and stages[-1].value.is_rational


def _ends(target: Target, case: Case) -> tuple[int, int]:
    params = activation_of(target, case, target.spec.activations[0])
    return params.qmin, params.qmax


def _formats(target: Target, case: Case) -> dict[str, StageFormat]:
    known = {name: activation_of(target, case, name) for name in target.spec.activations}
    bound = variables(target.spec, case.shapes, case.attrs)
    return formats_of(target.spec, target.platform, bound, target.scheme.activation.bits, known)


def _scales(target: Target, case: Case) -> list[float]:
    inner = [form.scale for form in _formats(target, case).values()]
    return [*inner, *(float(activation_of(target, case, name).scale) for name in target.spec.activations)]


def _factor(scales: list[float]) -> int | None:
    """Return the factor of the operand steps after which all scales have few significant bits; None if it is large."""
    factor = 1
    for scale in scales:
        mantissa = Fraction(math.frexp(scale)[0])
        near = mantissa.limit_denominator(LARGEST_FACTOR)
        # a fraction of few bits is fine as it is
        if mantissa.denominator > 1 << SHORT:
            # the scale is not the float64 of a fraction with a small denominator
            if abs(near - mantissa) > mantissa * Fraction(1, 1 << 50):
                return None
            # powers of two in the denominator only move the exponent
            odd = near.denominator // (near.denominator & -near.denominator)
            factor = math.lcm(factor, odd)
    return factor if factor < LARGEST_FACTOR else None


def _sample(target: Target, case: Case) -> tuple[dict[str, Array], Array]:
    """Return centred codes by operand, and the last stage's value where all inner codes are decided."""
    codes, known = {}, {}
    for name in target.spec.activations:
        params = activation_of(target, case, name)
        drawn = integers(case.data.seed, f"{name}.sampled", (SAMPLED,), params.qmin, params.qmax)
        codes[name] = drawn - int(params.zero_point)
        known[name] = Interval.exactly(codes[name] * float(params.scale))
    numbers = numbers_of(variables(target.spec, case.shapes, case.attrs), target.scheme.activation.bits)
    formats, decided = _formats(target, case), np.ones(SAMPLED, dtype=bool)
    value = Interval.exactly(np.zeros(SAMPLED))
    for name, stage in declared_stages(target.spec, target.platform).items():
        value = enclosed(stage.value, known, numbers)
        if name in formats:
            form, mode = formats[name], stage.rounding or target.platform.rounding
            low, high = (
                code_interval(end / form.scale, qmin=form.qmin, qmax=form.qmax, rounding=mode)[place]
                for place, end in enumerate((value.lo, value.hi))
            )
            # kept only where both ends of the enclosure round to one code, which is then the only right one
            decided &= low == high
            known[name] = Interval.exactly(low * form.scale)
    middle = np.broadcast_to((value.lo + value.hi) / 2, (SAMPLED,))
    return {name: each[decided] for name, each in codes.items()}, middle[decided]


def _output_range(target: Target, case: Case, chooser: ChoiceSource) -> Range | None:
    """Return a range of the output with a step of an odd multiple of the values' unit, under which some are ties."""
    _, values = _sample(target, case)
    some = [Fraction(float(value)) for value in values[values != 0][:COMPARED]]
    if not some:
        return None
    # the odd part of the greatest common divisor: half of a step with it can be one of the values
    top = math.gcd(*(value.numerator for value in some))
    odd = top // (top & -top)
    low, high = _ends(target, case)
    zero = chooser.integer("tied.y", low // 4, high // 4)
    whole = math.floor(math.log2(float(np.abs(values).max()) / (odd * max(high, 1)))) + 1
    found = []
    for exponent in range(whole, whole - target.scheme.activation.bits - 1, -1):
        span = range_of(target, odd * 2.0**exponent, zero)
        count = int(_ties(target, case.but(ranges={**case.ranges, "y": span}), values).sum())
        if count:
            found.append((count, span))
    most = max((count for count, _ in found), default=0)
    # not only the step with the most ties, so that cases differ
    good = [span for count, span in found if 4 * count >= most]
    return good[chooser.integer("tied.step", 0, len(good) - 1)] if good else None


def _ties(target: Target, case: Case, values: Array) -> Array:
    """Return which *values* lie exactly between two codes of the output, neither beyond the ends."""
    params = activation_of(target, case, "y")
    steps = values / float(params.scale)
    below = np.floor(steps) + int(params.zero_point)
    inside = (below >= params.qmin) & (below < params.qmax)
    return np.asarray(inside & (steps - np.floor(steps) == 0.5))  # exact: all numbers are short
