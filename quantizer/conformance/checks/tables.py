"""Handed tables against the function at the codes that index them (VERDICTS, "parameters")."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quantizer.conformance.bounds.rounding import rational_codes
from quantizer.conformance.checks.finding import Finding
from quantizer.conformance.restated_norm import inverse_roots
from quantizer.conformance.trial import Trial
from quantizer.numerics.qparams import Table

Array = NDArray[Any]
FLOAT32_ENTRIES = 2.0**-21
FLOAT32_TINY = 2.0**-149


def table_findings(trial: Trial, name: str, table: Table) -> Iterator[Finding]:
    """Each entry is within half a unit (and the declared float32 budget) of f at the code that indexes it."""
    entries = table.entries.numpy().astype(np.float64)
    places = table.first + table.step * np.arange(entries.size)
    if name in ("exp", "inverse_root"):
        yield from _fine_enough(trial, name, table)
    if name == "exp":
        found: tuple[Array, Array] | None = exponentials(trial, table, places)
    elif name == "inverse_root":
        found = inverse_roots(places, table.unit), np.zeros(places.shape)
    else:
        found = _function_codes(trial, places)
    if found is None:
        return
    wanted, budget = found
    half = FLOAT32_TINY if table.entries.dtype.is_floating_point else 0.5
    ratio = np.abs(entries - wanted) / (half + budget)
    if name not in ("exp", "inverse_root"):
        ratio = np.maximum(ratio, _wrong_ties(trial, entries, wanted))
    index = int(np.argmax(ratio))
    yield Finding(
        f"table {name}", float(ratio[index]), f"{wanted[index]:.9g}", f"{entries[index]:.9g}",
        "half a unit of f at the code that indexes the entry, ties by the declared mode", (index,),
    )  # fmt: skip


def _wrong_ties(trial: Trial, entries: Array, wanted: Array) -> Array:
    """Return inf where f lies exactly between two codes and the entry is not the declared mode's.

    Judged only where the platform's own arithmetic is exact: in rationals, or in float32 under scales of powers of two.
    """
    platform, zero = trial.target.platform, int(trial.output.zero_point)
    scales = [float(trial.output.scale), *(float(params.scale) for params in trial.parameters.inputs.values())]
    faults = np.zeros(wanted.shape)
    if platform.quantizer.operation != "exact" and any(math.frexp(scale)[0] != 0.5 for scale in scales):
        return faults
    inner = zero if platform.quantizer.zero_point == "before" else 0
    for place in np.flatnonzero(wanted - np.floor(wanted) == 0.5):
        exact = Fraction(float(wanted[place])) - zero + inner
        code = rational_codes(exact, platform.rounding)[0] + zero - inner
        faults[place] = 0.0 if entries[place] == code else math.inf
    return faults


def _fine_enough(trial: Trial, name: str, table: Table) -> Iterator[Finding]:
    """No unit or step is coarser than that of the platform's own rule: what a table rounds off is forgiven later."""
    wanted = None if trial.built_in is None else trial.built_in.tables.get(name)
    if wanted is None:
        return
    unit = max(wanted.unit, 2.0**-wanted.bits)
    for what, finest, got in (("unit", unit, table.unit), ("step", abs(wanted.step), abs(table.step))):
        text = f"no coarser a {what} than the platform's rule has"
        yield Finding(f"table {name}", 0.0 if got <= finest else math.inf, f"{what} {finest}", f"{what} {got}", text)


def exponentials(trial: Trial, table: Table, places: Array) -> tuple[Array, Array]:
    """Return exp at each distance from the largest code, in units of the table, and what float32 may lose of it."""
    params = trial.parameters.inputs[trial.spec.activations[0]]
    scale, zero = float(params.scale), abs(int(params.zero_point))
    wanted = np.exp(np.minimum(places, 0) * scale) / table.unit
    if trial.target.platform.quantizer.operation == "exact":
        return wanted, 2.0**-45 * wanted
    summed = (np.abs(places) + 2 * zero) * scale + abs(math.log(table.unit))
    return wanted, np.maximum(FLOAT32_ENTRIES, 4 * 2.0**-24 * summed) * wanted


def _function_codes(trial: Trial, places: Array) -> tuple[Array, Array] | None:
    """Return sat(f) in output codes at each input code, and its budget; None where f has not one input and one scale."""
    operands = list(trial.case.shapes)
    if len(operands) != 1 or trial.spec.outputs["y"].kind != "value":
        return None
    params, output = trial.parameters.inputs[operands[0]], trial.output
    values = (torch.from_numpy(places) - params.zero_point).double() * params.scale
    real = trial.reference({operands[0]: values}) / float(output.scale) + int(output.zero_point)
    if real.shape != places.shape:
        return None
    slack = 2.0**-45 if trial.target.platform.quantizer.operation == "exact" else FLOAT32_ENTRIES
    budget = slack * np.minimum(np.abs(real), output.qmax - output.qmin + 1.0)
    return np.clip(real, output.qmin, output.qmax), budget + cancelled(trial)


def cancelled(trial: Trial) -> float:
    """Return what a small entry may lose, in codes, where a platform evaluates a bounded f in float32.

    A logistic function that is a difference from 1/2 has the absolute error of its bound wherever it is small.
    """
    y = trial.spec.outputs["y"]
    if trial.target.platform.tables.arithmetic != "float32" or y.min is None or y.max is None:
        return 0.0
    largest = max(abs(float(end(trial.bound))) for end in (y.min, y.max))
    return FLOAT32_ENTRIES * largest / float(trial.output.scale)
