"""Measures the share of elements on which a real engine and our functions of its platform agree."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.datasets import materialise
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.ranges import range_of
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case, DataRecipe
from quantizer.core.errors import QuantizerError
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.engines.protocol import Engine

ELEMENTS = 20_000
"""The least number of elements of each population."""
MOST = 2.0**120
"""Larger results, such as those of exp, may lie outside every range with float32 ends."""
PATIENCE = 2_000
"""After this many refused cases in a row, a population is given up."""


@dataclass
class Agreement:
    """The measured agreement of one population of a target."""

    cases: int = 0
    elements: int = 0
    exact: int = 0
    largest: int = 0
    """Largest difference, in output codes."""
    refused: int = 0
    first: Case | None = None
    """The first case whose codes differ."""
    errors: list[str] = field(default_factory=list)
    """The errors that the engine raised."""

    @property
    def fraction(self) -> float:
        """The share of equal elements; 1 only if all are equal."""
        return self.exact / self.elements if self.elements else math.nan


def random_cases(target: Target) -> Iterator[Case]:
    """Yield cases of random data under scales of any value."""
    for index in itertools.count():
        yield build_case(
            target, HashChoices(key(index, "agreement", target.id), {"data": "random", "tiles": "untiled"})
        )


def tied_cases(target: Target) -> Iterator[Case]:
    """Yield cases under scales that are powers of two: alternately codes of the whole range, and solved ties."""
    for index in itertools.count():
        case = build_case(target, HashChoices(key(index, "tied", target.id), {"data": "ties", "tiles": "untiled"}))
        yield case if index % 2 else _whole_range(target, case)


def _whole_range(target: Target, case: Case) -> Case:
    """Return *case* with data over the whole range, its output range grown to hold most of them."""
    weighted = any(item.role == "weight" for item in target.spec.inputs.values())
    filled = case.but(data=DataRecipe("corners" if weighted else "random", case.data.seed))
    if "y" not in case.ranges:
        return filled
    y = target.real({name: values.double() for name, values in materialise(target, filled).items()}, filled).numpy()
    largest = float(np.abs(y).max(initial=0.0))
    if largest == 0.0 or not largest < MOST:
        return filled
    codes = 1 << (target.scheme.activation.bits - 1)
    # one case in three holds all results; the others have half or a quarter of that range
    shift = case.data.seed % 3
    step = 2.0 ** (math.ceil(math.log2(largest / codes)) - shift)
    low, _ = range_of(target, step, 0)
    zero = 0 if low < 0 else codes
    return filled.but(ranges={**case.ranges, "y": range_of(target, step, zero)})


POPULATIONS: Mapping[str, Callable[[Target], Iterator[Case]]] = {"random": random_cases, "tied": tied_cases}


def compare(target: Target, engine: Engine, population: str, elements: int = ELEMENTS) -> Agreement:
    """Compare *engine* with the built-in functions on *population*, over at least *elements* elements."""
    found, in_a_row = Agreement(), 0
    for case in POPULATIONS[population](target):
        if found.elements >= elements or in_a_row >= PATIENCE:
            break
        trial = Trial(target, case, engine)
        if trial.refusal is not None:
            found.refused, in_a_row = found.refused + 1, in_a_row + 1
            continue
        in_a_row = 0
        _add(found, trial)
    return found


def _add(found: Agreement, trial: Trial) -> None:
    found.cases += 1
    wanted = BuiltinEngine().run(trial.call, trial.codes, trial.parameters).codes.numpy()
    found.elements += wanted.size
    try:
        got = trial.got
    except QuantizerError as err:
        found.errors.append(str(err))
        found.first = found.first or trial.case
        return
    # another shape counts as different in every element
    away = np.abs(got - wanted) if got.shape == wanted.shape else np.full(wanted.shape, 1 << 31)
    found.exact += int(np.count_nonzero(away == 0))
    if away.any():
        found.largest = max(found.largest, int(away.max()))
        found.first = found.first or trial.case
