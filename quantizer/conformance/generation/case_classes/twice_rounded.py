"""Cases that show whether a platform rounds a scaled sum twice, because a single rounding gives other codes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from quantizer.conformance.generation.builder import build_case, output_hints
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.datasets import materialise
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.ranges import activation_of, range_of, unit_of
from quantizer.conformance.own_functions import own_codes
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.platform_settings import FirstRounding
from quantizer.core.rounding_modes import RoundingMode

CASES = 3
"""The number of cases per target in which a single rounding gives other codes."""
SEARCHED = 160
"""The number of drawn cases that are searched. At 8 fractional bits, a single rounding changes one sum in 512."""
KINDS = ("linear", "selection", "mean", "bilinear")
"""Error models of operators that requantize a sum by a multiplier."""
RIVALS: tuple[RoundingMode, ...] = ("half_even", "half_up", "half_down", "half_away", "half_toward_zero")
"""Modes of the first rounding that differ only on its ties."""
TIED = 160
"""The number of drawn cases that are searched for each of these modes."""


def twice_rounded(target: Target) -> list[Case]:
    """Return cases in which a missing or different first rounding gives another output code.

    Only a sum within half a unit of the first rounding from a tie of the second one shows this. Random data seldom have
    such sums, so a kernel that rounds once would pass. There are no cases for platforms that round once.
    """
    first = target.platform.first_rounding
    if first is None or target.spec.error_model.kind not in KINDS:
        return []
    found = (case for case in _drawn(target, "random", SEARCHED) if _differs(target, None, case))
    modes = [mode for mode in RIVALS if mode != first.rounding and first.rounding in RIVALS]
    rivals = [first.model_copy(update={"rounding": mode}) for mode in modes]
    return [*itertools.islice(found, CASES), *_of_modes(target, rivals)]


def _of_modes(target: Target, rivals: list[FirstRounding]) -> Iterator[Case]:
    """Yield cases with ties of the first rounding until each rival mode is shown by a case, as far as possible."""
    for case in _drawn(target, "ties", TIED) if rivals else ():
        shown = [rival for rival in rivals if _differs(target, rival, case)]
        if shown:
            yield case
        rivals = [rival for rival in rivals if rival not in shown]
        if not rivals:
            return


def _drawn(target: Target, data: str, count: int) -> Iterator[Case]:
    for index in range(count):
        number = key(index, target.id, "twice_rounded")
        case = build_case(target, HashChoices(number, {"data": data}))
        # every fourth case keeps its drawn steps
        yield _at_ties(target, case, number // 16) if data == "ties" and index % 4 else case


def _at_ties(target: Target, case: Case, number: int) -> Case:
    """Return the case with steps that make one of its sums a tie of the first rounding, next to a tie of the second.

    A sum of S units, S odd, times `m / 2**(n + 1)` ties at n places; m is solved for S, since a power of two leaves
    most sums far from the second tie. No change where a bias is solved, or the output does not have its own scale.
    """
    first, family = target.platform.first_rounding, target.spec.quantization.family
    free = family not in target.platform.same_as_input and target.spec.op not in target.platform.fixed_outputs
    if first is None or target.spec.has_weights or not free or "y" not in case.ranges:
        return case
    tensors = materialise(target, case)
    is_product, hints = target.spec.error_model.kind == "bilinear", output_hints(target, case, tensors)
    unit = unit_of(target, case) if is_product else hints.get("mean_step", 2 * hints["step"]) / 2
    # in units of the accumulator, so that integers are expected
    sums = target.real({name: values.double() for name, values in tensors.items()}, case).numpy() / unit
    factors = _factors(sums[sums % 2 == 1], first.fraction_bits, activation_of(target, case, "y").qmax)
    if not factors:
        return case
    factor = float(factors[number % len(factors)])
    present = [name for name in target.spec.activations if name in case.ranges]
    names = present[:1] if is_product else present
    known = {name: activation_of(target, case, name) for name in (*names, "y")}
    steps = {name: float(params.scale) * factor for name, params in known.items()}
    steps["y"] = unit * 2.0 ** (first.fraction_bits + 1)
    spans = {name: range_of(target, step, int(known[name].zero_point)) for name, step in steps.items()}
    return case.but(ranges={**case.ranges, **spans})


def _factors(sums: NDArray[np.float64], places: int, reach: int) -> list[int]:
    """Return the factors that bring one of the odd *sums* to half a code, one unit more or one less, in *reach*."""
    whole = 2 << places
    found = [
        (abs(each) * factor, factor)
        for each in map(int, np.unique(sums))
        for side in (-1, 1)
        # each * factor = half a code +- 1 (mod a code): an odd number has an inverse modulo a power of two
        if (factor := (whole // 2 + side) * pow(each, -1, whole) % whole)
    ]
    return [factor for product, factor in found if product < reach * whole]


def _differs(target: Target, first: FirstRounding | None, case: Case) -> bool:
    """Return whether another first rounding gives other codes of the platform's own functions.

    A plugin's function under test may round once whatever the platform says.
    """
    rival = replace(target, platform=target.platform.model_copy(update={"first_rounding": first}))
    tensors = materialise(target, case)
    codes, rival_codes = (own_codes(one, case, tensors) for one in (target, rival))
    return not torch.equal(codes, rival_codes)
