"""Cases that combine a size that kernels treat specially with a class of attributes, data and ranges.

Bugs of real kernels show where several conditions meet: a depth above a block size without a bias, or more channels
than a vector with a multiplier above one. The gate distributes the units of an operator over the targets of each
platform; nightly runs make every unit meet every class of every attribute with every class of data.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from quantizer.conformance.generation.builder import complete, factors
from quantizer.conformance.generation.case_classes.scaled import is_near
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.near_sums import is_near_sum
from quantizer.conformance.generation.units import Unit, bound_with, units, with_rest
from quantizer.conformance.target import Target
from quantizer.core.case import Case, Range

GATE = 7
"""The number of a target's cases in the gate."""
DATA = ("random", "accumulator_limit", "corners", "ties", "saturation", "zero_point_extremes")
"""Classes of data. An operator uses those that it has."""
OF_WEIGHTS = {"random": "uneven_channels"}
"""The data set of a class in operators with a weight: in random weights all long channels have one scale."""
FULL = ("accumulator_limit", "corners")
"""Classes of data whose values are as large as possible."""
RANGES = ("drawn", "equal", "drawn", "coarse", "fine", "equal_inputs", "one_sided", "one_sided")
"""Classes of ranges; drawn ranges have twice the weight.

equal: the output has the range of the first operand. equal_inputs: all activations have one range; an operator of one
activation and a weight instead has an output range so small that the multiplier is 1 or a little more. coarse, fine:
the output's range is larger, or smaller, than calibrated. one_sided: the range of the first operand or of the output
lies below or above 0, so that its zero point is the last or the first code.
"""
SIDES = (("below", ""), ("above", ""), ("", "below"), ("below", "below"), ("above", "below"), ("below", "above"))
"""On which side of 0 the ranges of the first operand and of the output lie; empty: as drawn."""
FACTORS: Mapping[str, tuple[float, ...]] = {"coarse": (8.0, 64.0), "fine": (0.125, 2.0**-6)}
MAGNIFIED = (1.0, 1.5)
"""Multipliers of small outputs."""
LARGE, MIDDLING = 129, 17
"""Sizes from which a unit counts as large, or as medium."""
TRIES = 6
"""A row is left out after this many kinds of units that give only illegal or too large cases."""


def conditions(everything: Sequence[Target], target: Target) -> Iterator[Case]:
    """Yield the gate's cases of *target*: its share of the units that its platform's targets have among *everything*.

    The kinds of units alternate, and so do the units of a kind: a dimension with many units does not crowd out an
    attribute.
    """
    of_platform = [t.id for t in everything if t.deal == target.deal]
    known = _by_kind(target)
    if not known:
        return
    salt = key(0, target.spec.op, target.platform.platform, "conditions")
    for row in range(GATE):
        turn = row * len(of_platform) + of_platform.index(target.id)
        number = key(row, target.id, "conditions")
        asked = _pairs(known, salt % len(known) + turn, salt + turn // len(known), number)
        case = next(_made(target, asked, number, {}), None)
        if case is not None:
            yield case


def every_condition(everything: Sequence[Target], target: Target) -> Iterator[Case]:
    """Yield cases where every unit meets every class of attribute, presence and data, distributed as in the gate."""
    of_platform = [t.id for t in everything if t.deal == target.deal]
    found = {
        name: bins
        for name, bins in factors(target.spec, ["-"]).items()
        if name not in ("target", "data", *target.spec.dims)
    }
    longest = max((len(bins) for bins in found.values()), default=1)
    rows = itertools.product(units(target), _data(target), range(longest))
    for index, (unit, data, turn) in enumerate(rows):
        if index % len(of_platform) == of_platform.index(target.id):
            row = {name: bins[(turn + key(0, name, repr(unit), data)) % len(bins)] for name, bins in found.items()}
            yield from itertools.islice(
                _made(target, [{unit.name: unit}], key(index, target.id, "every"), {**row, "data": data}), 1
            )


def _by_kind(target: Target) -> list[list[Unit]]:
    """Return the operator's units, a list for each kind, in an order that is the platform's own."""
    found: dict[tuple[str, int | None, bool, bool], list[Unit]] = {}
    for unit in units(target):
        found.setdefault(unit.kind, []).append(unit)
    salt = (target.spec.op, target.platform.platform)
    return [_in_turns(sorted(of, key=lambda unit: key(0, *salt, repr(unit)))) for of in found.values()]


def _in_turns(of: Sequence[Unit]) -> list[Unit]:
    """Return the units so that large, medium and small ones alternate, and a few of them cover every magnitude."""
    ends = (LARGE, MIDDLING, -math.inf)
    parts = [[u for u in of if low <= u.value < high] for low, high in zip(ends, (math.inf, *ends), strict=False)]
    return [unit for turn in itertools.zip_longest(*parts) for unit in turn if unit is not None]


def _pairs(known: Sequence[Sequence[Unit]], kind: int, turn: int, number: int) -> Iterator[dict[str, Unit]]:
    """Yield the condition of *kind* together with one of another name, then alone; then conditions of later kinds."""
    for step in range(TRIES):
        of = known[(kind + step) % len(known)]
        unit = of[(turn + step // len(known)) % len(of)]
        others = [each for each in known if each[0].name != unit.name]
        if others and number % 4:
            blocks = [each for each in others if each[0].is_blocks]
            # with weights in blocks, a size beside a whole number of blocks is preferred
            beside = (blocks or others)[number // 4 % len(blocks or others)]
            other = beside[number // 64 % len(beside)]
            yield {unit.name: unit, other.name: other}
        yield {unit.name: unit}


def _data(target: Target) -> list[str]:
    """Return the classes of data that the operator has, `near_ties` included if a bias can bring sums next to ties."""
    found: list[str] = [name for name in DATA if name in target.spec.data] or list(target.spec.data[:1])
    if _has_weight(target):
        found = [OF_WEIGHTS.get(name, name) for name in found]
    return [*found, "near_ties"] if is_near_sum(target) else found


def _has_weight(target: Target) -> bool:
    return any(item.role == "weight" for item in target.spec.inputs.values())


def _made(
    target: Target, asked: Iterator[dict[str, Unit]] | Sequence[dict[str, Unit]], number: int, row: Mapping[str, str]
) -> Iterator[Case]:
    """Yield the possible cases of those units, attributes and data."""
    spec = target.spec
    classes = _data(target)
    for wanted in asked:
        # only the largest data reach the end of an accumulator
        full = [name for name in FULL if name in spec.data and any(unit.is_full for unit in wanted.values())]
        kind = _kind_of_ranges(target, number)
        data = row.get("data") or (full or classes)[number % len(full or classes)]
        data = "outliers" if kind == "magnified" and not full and data != "near_ties" else data
        # tiles in half of the cases
        choices = {**row, "data": data} if number // 128 % 2 else {"tiles": "untiled", **row, "data": data}
        choices |= {"activation": "none"} if data == "near_ties" else {}
        chooser = HashChoices(number, choices)
        bound = bound_with(spec, {name: with_rest(unit, number // 4096) for name, unit in wanted.items()}, chooser)
        if bound is None:
            continue
        # mostly without a bias, so that the sum alone reaches the end; near_ties solves a bias and needs it
        usual = "no" if full and number % 4 else ("yes", "no")[number // 2 % 2]
        usual = "yes" if data == "near_ties" else usual
        present = [
            name
            for name, item in spec.inputs.items()
            if not item.optional or (row.get(f"with_{name}") or usual) == "yes"
        ]
        # an operand that needs another one is left out together with it
        present = [n for n in present if spec.inputs[n].needs in (None, *present)]
        case = complete(target, bound, present, data, number % (1 << 32), chooser)
        if kind == "one_sided" and data != "ties":
            given = _beside_zero(target, case, *SIDES[number // 512 % len(SIDES)])
            case = complete(target, bound, present, data, number % (1 << 32), chooser, given) if given else case
        else:
            case = _ranged(target, case, kind, number)
        if is_near(case):
            yield case


def _kind_of_ranges(target: Target, number: int) -> str:
    """Return a class of ranges. With one activation and a weight, small outputs replace equal inputs."""
    kind = RANGES[number // 8 % len(RANGES)]
    alone = _has_weight(target) and len(target.spec.activations) == 1
    return "magnified" if kind == "equal_inputs" and alone and target.scheme.grid == "uniform" else kind


def _values(target: Target, case: Case) -> list[str]:
    """Return the activations whose range is free."""
    items = target.spec.inputs
    return [n for n in target.spec.activations if n in case.shapes and items[n].kind == "value" and not items[n].domain]


def _calibrated(target: Target) -> list[str]:
    """Return the outputs with a calibrated range, which a case may choose."""
    spec = target.spec
    return [n for n in spec.outputs if spec.quantization.outputs.get(n, "calibrated") == "calibrated"]


def _beside_zero(target: Target, case: Case, first: str, output: str) -> dict[str, Range]:
    """Return ranges that lie on one side of 0 and are as wide as before. Operands with a fixed range are left out."""
    moved = [(name, first) for name in _values(target, case)[:1]] + [(name, output) for name in _calibrated(target)]
    widths = {name: case.ranges[name][1] - case.ranges[name][0] for name, side in moved if side and name in case.ranges}
    sides = dict(moved)
    return {n: (-width, 0.0) if sides[n] == "below" else (0.0, width) for n, width in widths.items()}


def _possible(asked: Range, calibrated: Range) -> Range:
    """Return the range *asked* for of an output; the *calibrated* one if the two do not overlap."""
    # without an overlap every result would saturate
    return asked if asked[0] <= calibrated[1] and calibrated[0] <= asked[1] else calibrated


def _ranged(target: Target, case: Case, kind: str, number: int) -> Case:
    """Return the case under ranges of another class, where its data do not follow from ranges."""
    if case.data.set == "ties" or kind == "drawn":
        return case
    values, calibrated = _values(target, case), _calibrated(target)
    ranges: dict[str, Range] = dict(case.ranges)
    if kind in FACTORS and calibrated:
        grow = FACTORS[kind][number // 64 % 2]
        grown = {n: (ranges[n][0] * grow, ranges[n][1] * grow) for n in calibrated if n in ranges}
        ranges |= {n: _possible(span, ranges[n]) for n, span in grown.items()}
    elif kind == "equal" and values and calibrated:
        ranges |= {n: _possible(ranges[values[0]], ranges[n]) for n in calibrated if n in ranges}
    elif kind == "magnified" and values and calibrated:
        ranges |= _magnified(target, case, values[0], calibrated, MAGNIFIED[number // 64 % 2])
    elif kind == "equal_inputs" and len(values) > 1:
        ranges |= dict.fromkeys(values, ranges[values[0]])
    return case.but(ranges=ranges) if all(math.isfinite(end) for span in ranges.values() for end in span) else case


def _magnified(target: Target, case: Case, value: str, outputs: Sequence[str], multiplier: float) -> dict[str, Range]:
    """Return ranges of outputs and of a bias such that the requantization multiplier is *multiplier*."""
    items, part = target.spec.inputs, target.weight
    held = [name for name in case.shapes if items[name].role == "weight"]
    if part is None or not held:
        return {}
    low, high = case.ranges[value]
    largest = max(map(abs, case.ranges[held[0]]))
    # half of the width with which input step * weight step / output step is *multiplier*
    half = (high - low) * largest / (2 ** (part.bits - 1) - 1) / multiplier / 2
    biases = [name for name in case.shapes if items[name].role == "bias"]
    return dict.fromkeys((*outputs, *biases), (-half, half))
