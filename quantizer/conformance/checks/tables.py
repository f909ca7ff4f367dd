"""Lookup tables, judged entry by entry against the function at the code of the entry (docs/reference/checks.md)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quantizer.conformance.bounds import Interval
from quantizer.conformance.bounds.rounding import code_interval, rational_codes
from quantizer.conformance.checks import one_period, poles
from quantizer.conformance.checks.room_oracles import entries_of_room
from quantizer.conformance.checks.step_tables import step_codes
from quantizer.conformance.expected.norms import inverse_roots
from quantizer.conformance.trials.finding import Finding
from quantizer.conformance.trials.trial import Trial
from quantizer.numerics.qparams import Table

Array = NDArray[Any]
FLOAT32_ENTRIES = 2.0**-21
FLOAT32_TINY = 2.0**-149
OF_UNITS = ("exp", "inverse_root", "inverse")
"""Names of tables that hold real numbers in their own unit. All other tables hold output codes."""
BESIDE = 2.0**-20
"""The distance, in codes, of two places at which f is compared."""
POINT = 2.0**-22
"""Error of a float32 point between two ends, relative to their distance: the step is rounded, and the point is too."""


def table_findings(trial: Trial, name: str, table: Table) -> Iterator[Finding]:
    """Judge that each entry is within half a unit (and the declared float32 budget) of f at the code that reads it."""
    yield from _layout(trial, name, table)
    if (stated := entries_of_room(trial, name)) is not None:
        away = np.abs(table.entries.numpy() - stated)
        index = int(np.argmax(away))
        yield Finding(
            f"table {name}",
            math.inf if away.any() else 0.0,
            f"{stated[index]}",
            f"{table.entries[index]}",
            "the entry of the platform's rule",
            (index,),
        )
        return
    entries = table.entries.numpy().astype(np.float64)
    places = table.first + table.step * np.arange(entries.size)
    if name in OF_UNITS:
        yield from _fine_enough(trial, name, table)
    else:
        # a table of codes shows this finding only where it fails: its entries are judged below in any case
        yield from (finding for finding in _steps_fine_enough(trial, name, table) if finding.ratio)
    if (found := _entries_at(trial, name, table, places)) is None:
        return
    wanted, budget = found
    ratio = np.abs(entries - wanted) / (half_a_unit(table) + budget)
    unread = _unread(trial, name, table, places)
    mode = trial.target.platform.rounding
    if name not in OF_UNITS and not mode.startswith("half"):
        wrong = _surely_whole(trial, places, wanted) & (entries != wanted)
        ratio = np.where(wrong, math.inf, _directed(trial, name, entries, wanted, budget))
    elif name not in OF_UNITS:
        ratio = np.maximum(ratio, _wrong_ties(trial, name, entries, wanted))
    # a float32 operand beside a jump of f may give the code of either side
    if name not in OF_UNITS and (either := _steps(trial, places, 0.0)) is not None:
        ratio = np.where(np.any([entries == codes for codes in either], axis=0), np.minimum(ratio, 1.0), np.inf)
    ratio = np.where(unread, 0.0, ratio)
    index = int(np.argmax(ratio))
    yield Finding(
        f"table {name}",
        float(ratio[index]),
        f"{wanted[index]:.9g}",
        f"{entries[index]:.9g}",
        _rule_of_entries(trial),
        (index,),
    )


def _unread(trial: Trial, name: str, table: Table, places: Array) -> Array:
    """Return a mask of the entries for codes below the smallest one, if each code has its own entry.

    Restricted codes lack the smallest code of their format, and tables may repeat an entry for it.
    """
    if name in OF_UNITS or table.step != 1 or len(trial.parameters.inputs) != 1:
        return np.zeros(places.shape, bool)
    return places < next(iter(trial.parameters.inputs.values())).qmin


def _steps(trial: Trial, places: Array, beside: Array | float) -> list[Array] | None:
    if len(trial.parameters.inputs) != 1 or trial.spec.error_model.kind != "monotone":
        return None
    return step_codes(trial, places, beside, _folded(trial, next(iter(trial.parameters.inputs))))


def _rule_of_entries(trial: Trial) -> str:
    mode, function = trial.target.platform.rounding, "f"
    if trial.target.oracle is not None:
        function = f"{trial.spec.oracle}, the oracle of the spec,"
    if mode.startswith("half"):
        return f"half a unit of {function} at the code that indexes the entry, ties by the declared mode"
    return f"{function} at the code that indexes the entry, rounded {mode.replace('_', ' ')}"


def _directed(trial: Trial, name: str, entries: Array, wanted: Array, budget: Array | float) -> Array:
    """Return the distance of f from each entry in steps; infinite if it was not rounded in the platform's direction."""
    mode, zero = trial.target.platform.rounding, int(trial.output.zero_point)
    added = _added_before_rounding(trial, name)
    low, high = code_interval(
        wanted - zero + added,
        e_over_s=budget,
        zero_point=zero - added,
        rounding=mode,
        qmin=trial.output.qmin,
        qmax=trial.output.qmax,
    )
    inside = (entries >= low) & (entries <= high)
    return np.where(inside, np.minimum(np.abs(entries - wanted), 1.0), np.inf)


def _surely_whole(trial: Trial, places: Array, wanted: Array) -> Array:
    """Return a mask of the positions where f is exactly a code, so that directed rounding does not move it.

    Only if the platform's own arithmetic is exact (`_is_exact`), and only where f changes within a fraction of a code:
    where f is flat, the float64 value may be a limit that f only approaches.
    """
    whole = wanted == np.rint(wanted)
    if not whole.any() or not _is_exact(trial):
        return np.zeros(wanted.shape, bool)
    moves = np.zeros(wanted.shape, bool)
    # f is not flat where a small step to either side changes it
    for side in (-BESIDE, BESIDE):
        if (found := _function_codes(trial, places + side)) is not None:
            moves |= found[0] != wanted
    return np.asarray(whole & moves)


def _is_exact(trial: Trial) -> bool:
    """Return whether entries are exact: computed in float64, or in float32 under scales of powers of two."""
    scales = [float(trial.output.scale), *(float(params.scale) for params in trial.parameters.inputs.values())]
    return not in_float32(trial) or all(math.frexp(scale)[0] == 0.5 for scale in scales)


def _added_before_rounding(trial: Trial, name: str) -> int:
    """Return the zero point where the platform adds it before it rounds an entry; whole vectors add it after."""
    before = trial.target.platform.quantizer.zero_point == "before" and name != "vector"
    return int(trial.output.zero_point) if before else 0


def in_float32(trial: Trial) -> bool:
    """Return whether the platform computes entries in float32: it says so, or their points are spread in float32."""
    rule = trial.target.platform.tables
    return rule.arithmetic == "float32" or rule.alignment == "linspace"


def half_a_unit(table: Table) -> float:
    """Return the rounding error of an entry, in units: 1/2 for integers, the smallest float32 for floats."""
    return FLOAT32_TINY if table.entries.dtype.is_floating_point else 0.5


def _entries_at(trial: Trial, name: str, table: Table, places: Array) -> tuple[Array, Array] | None:
    if name == "exp":
        return exponentials(trial, table, places)
    if name == "inverse_root":
        return inverse_roots(places, table.unit), np.zeros(places.shape)
    if name == "period":
        return one_period.entries(trial, table)
    if name == "inverse":
        return inverses(table, places)
    return _function_codes(trial, places)


def _layout(trial: Trial, name: str, table: Table) -> Iterator[Finding]:
    """Judge the layout of an interpolated table: the declared number of segments and rounding between entries."""
    rule, bits = trial.target.platform.tables, trial.target.scheme.activation.bits
    if (segments := rule.segments_of(bits)) is None or name in OF_UNITS:
        return
    step = (1 << bits) // segments
    signed = next(iter(trial.parameters.inputs.values())).dtype.kind == "int"
    wanted = (segments + 1, -(1 << (bits - 1)) if signed else 0, step, rule.interpolation)
    got = (table.entries.numel(), table.first, table.step, table.interpolation)
    text = "entries, first code, step and interpolation of the platform's tables"
    yield Finding(f"table {name}", 0.0 if got == wanted else math.inf, f"{wanted}", f"{got}", text)


def _wrong_ties(trial: Trial, name: str, entries: Array, wanted: Array) -> Array:
    """Return infinity where f is a tie and the entry differs from the declared rounding mode, else 0.

    Judged only where the platform's own arithmetic is exact: in rationals, or in float32 under scales of powers of two.
    """
    platform, zero = trial.target.platform, int(trial.output.zero_point)
    faults = np.zeros(wanted.shape)
    if not _is_exact(trial):
        return faults
    inner = _added_before_rounding(trial, name)
    # the floor is no tie, so a value that f only approaches is not judged as one
    wanted = np.where(_only_neared(trial, wanted), np.floor(wanted), wanted)
    for place in np.flatnonzero(wanted - np.floor(wanted) == 0.5):
        exact = Fraction(float(wanted[place])) - zero + inner
        code = rational_codes(exact, platform.rounding)[0] + zero - inner
        faults[place] = 0.0 if entries[place] == code else math.inf
    return faults


def _only_neared(trial: Trial, wanted: Array) -> Array:
    """Return a mask of values that f only approaches (asymptotes): float64 cannot tell that they are ties."""
    y, near = trial.spec.outputs["y"], np.zeros(wanted.shape, dtype=bool)
    for end in (y.min, y.max):
        if end is not None and not end.names:
            near |= wanted == float(end({})) / float(trial.output.scale) + int(trial.output.zero_point)
    return near


def _fine_enough(trial: Trial, name: str, table: Table) -> Iterator[Finding]:
    """Judge that units and steps are at least as fine as the platform's: later checks allow for its rounding."""
    wanted = None if trial.built_in is None else trial.built_in.tables.get(name)
    if wanted is None:
        return
    unit = max(wanted.unit, 2.0**-wanted.bits)
    yield _no_coarser(name, "unit", unit, table.unit)
    yield from _steps_fine_enough(trial, name, table)


def _steps_fine_enough(trial: Trial, name: str, table: Table) -> Iterator[Finding]:
    """Judge that the entries lie no further apart than the platform's: `accuracy` allows for what lies between two."""
    wanted = None if trial.built_in is None else trial.built_in.tables.get(name)
    if wanted is not None:
        yield _no_coarser(name, "step", abs(wanted.step), abs(table.step))


def _no_coarser(name: str, what: str, finest: float, got: float) -> Finding:
    text = f"no coarser a {what} than the platform's rule has"
    return Finding(f"table {name}", 0.0 if got <= finest else math.inf, f"{what} {finest}", f"{what} {got}", text)


def holds_spread_entries(trial: Trial, name: str, table: Table) -> bool:
    """Return whether entries are f at points spread evenly over the codes, ends included (alignment `linspace`).

    Each is within half a unit plus the float32 error of f. The points are float32 too: all but the two ends may be
    slightly off, and f moves with them. Where f jumps (floor, ceil, round), the codes of both sides are allowed.
    """
    count, operand = table.entries.numel(), trial.parameters.inputs[trial.spec.activations[0]]
    entries = table.entries.numpy()
    # exponentials end at distance 0 from the largest code
    first, last = table.first, 0 if name == "exp" else table.first + table.step * count - 1
    lacking = name not in OF_UNITS and first < operand.qmin
    points = np.linspace(operand.qmin if lacking else first, last, count - lacking)
    points = np.append(points[:1], points) if lacking else points
    # the first and the last point are exact
    beside = np.where((points == points[0]) | (points == last), 0.0, POINT * (last - first))
    if name not in OF_UNITS and (either := _steps(trial, points, beside)) is not None:
        return bool(np.any([entries == codes for codes in either], axis=0).all())
    near = [_entries_at(trial, name, table, places) for places in (points, points - beside, points + beside)]
    known = [found for found in near if found is not None]
    if not known:
        return False
    (wanted, budget), *moved = known
    budget = budget + np.maximum.reduce([np.abs(other - wanted) for other, _ in moved])
    return bool((np.abs(entries - wanted) <= half_a_unit(table) + budget).all())


def exponentials(trial: Trial, table: Table, places: Array) -> tuple[Array, Array]:
    """Return exp at each distance from the largest code, in units of the table, and the error that float32 may add."""
    params = trial.parameters.inputs[trial.spec.activations[0]]
    scale, zero = float(params.scale), abs(int(params.zero_point))
    wanted = np.exp(np.minimum(places, 0) * scale) / table.unit
    if not in_float32(trial):
        return wanted, 2.0**-45 * wanted
    # kernels may scale code and zero point separately, and add the logarithm of the unit inside exp
    summed = (np.abs(places) + 2 * zero) * scale + abs(math.log(table.unit))
    return wanted, np.maximum(FLOAT32_ENTRIES, 4 * 2.0**-24 * summed) * wanted


def inverses(table: Table, places: Array) -> tuple[Array, Array]:
    """Return 1 / c in units of the table, at most 1 and 0 for 0, and the error that float32 may add."""
    wanted = np.where(places > 0, 1.0 / np.maximum(places, 1) / table.unit, 0.0)
    return wanted, FLOAT32_ENTRIES * wanted


def _function_codes(trial: Trial, places: Array) -> tuple[Array, Array] | None:
    """Return sat(f) in output codes at each input code, and its budget; None if f has not one input and one scale.

    The float32 error is relative to the code both with and without its zero point; the former may be far larger.
    Outside the domain of f, where it is NaN, the entry is code 0.
    """
    operands = list(trial.case.shapes)
    if len(operands) != 1 or trial.spec.outputs["y"].kind != "value":
        return None
    params, output = trial.parameters.inputs[operands[0]], trial.output
    values = (torch.from_numpy(places) - params.zero_point).double() * params.scale
    before = trial.reference({operands[0]: values}) / float(output.scale)
    real = before + int(output.zero_point)
    if real.shape != places.shape:
        return None
    before, real = (np.where(np.isnan(codes), 0.0, codes) for codes in (before, real))
    slack = FLOAT32_ENTRIES if in_float32(trial) else 2.0**-45
    budget = slack * np.minimum(np.maximum(np.abs(before), np.abs(real)), output.qmax - output.qmin + 1.0)
    return np.clip(real, output.qmin, output.qmax), budget + cancelled(trial, {operands[0]: values})


def cancelled(trial: Trial, values: Mapping[str, torch.Tensor]) -> Array | float:
    """Return the float32 error of a small entry, in codes, where a platform evaluates f in float32.

    A bounded f may have everywhere the absolute error of its largest value (a logistic function computed as a
    difference from 1/2, a clipped line). An f with an extremum may have the error of f(|x|) (a product of x and a sum
    that cancels). For an f with periodic poles, or a monotone f (which may have steps), the error is the change that
    the rounding of its operand causes.
    """
    y = trial.spec.outputs["y"]
    if not in_float32(trial):
        return 0.0
    if trial.spec.error_model.period is not None:
        ((name, part),) = values.items()
        if trial.spec.error_model.kind == "poles":
            near = Interval.around(part.numpy(), FLOAT32_ENTRIES * part.abs().numpy())
            return np.asarray(poles.enclosure(trial, name, near).width / float(trial.output.scale))
        return np.asarray(FLOAT32_ENTRIES * (1.0 + part.abs().numpy()) / float(trial.output.scale))
    if trial.spec.error_model.kind == "piecewise_monotone":
        absolute = {name: part.abs() + _folded(trial, name) for name, part in values.items()}
        return np.asarray(FLOAT32_ENTRIES * np.abs(trial.reference(absolute)) / float(trial.output.scale))
    moved = _moved(trial, values) if trial.spec.error_model.kind == "monotone" else 0.0
    if y.min is None or y.max is None:
        return moved
    largest = max(abs(float(end(trial.bound))) for end in (y.min, y.max))
    return moved + FLOAT32_ENTRIES * largest / float(trial.output.scale)


def _moved(trial: Trial, values: Mapping[str, torch.Tensor]) -> Array:
    """Return the change of a monotone f, in codes, within the float32 error of its operand; a jump counts in full.

    The scale is rounded once. Then the difference from the zero point is multiplied by it or divided by its inverse,
    rounded once; or code and zero point are multiplied by it separately.
    """
    ((name, part),) = values.items()
    by = 2.0**-24 * (4 * part.abs() + _folded(trial, name))
    low, high = (trial.reference({name: part + side * by}) for side in (-1, 1))
    # infinity minus infinity is NaN
    with np.errstate(invalid="ignore"):
        moved = np.abs(high - low) / float(trial.output.scale)
    return np.where(np.isfinite(moved), moved, 0.0)


def _folded(trial: Trial, name: str) -> float:
    """Return the product of scale and zero point: its rounding shows in the real value of a code."""
    params = trial.parameters.inputs[name]
    return float((params.scale * params.zero_point.abs()).max())
