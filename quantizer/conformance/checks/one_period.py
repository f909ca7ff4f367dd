"""Periodic functions of more than 8 bits with a table of one period: entries, multiplier, codes, error."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quantizer.conformance.checks.multiplier_rules import FLOAT32_CODES, equal
from quantizer.conformance.expected import multipliers as expected_multipliers
from quantizer.conformance.trials.finding import Finding
from quantizer.conformance.trials.trial import Trial
from quantizer.numerics.qparams import Table

Array = NDArray[Any]
PERIOD = 2 * math.pi


def entries(trial: Trial, table: Table) -> tuple[Array, Array]:
    """Return f over one period, both ends included, in output codes, and the float32 error of positions and values."""
    ((name, _),) = trial.codes.items()
    places = torch.linspace(0.0, PERIOD, table.entries.numel(), dtype=torch.float64)
    wanted = trial.reference({name: places}) / float(trial.output.scale)
    return wanted, np.full(wanted.shape, FLOAT32_CODES * (1 + PERIOD) / float(trial.output.scale))


def number_findings(trial: Trial) -> Iterator[Finding]:
    """Yield the findings about the multiplier from centred codes to entries: size / (2 pi) / steps_x, in float32."""
    table, numbers = trial.parameters.tables.get("period"), trial.parameters.numbers
    if table is None:
        return
    (x,) = trial.parameters.inputs.values()
    steps = np.float32(1.0 / float(x.scale) if x.steps is None else x.steps.numpy())
    ratio = np.float32(table.entries.numel() / 2 / math.pi) / steps
    wanted = expected_multipliers.float32_multiplier(ratio, min(15, trial.target.scheme.activation.bits))
    got = numbers["multiplier"], numbers["shift"]
    yield equal("multiplier, shift", (int(wanted[0]), wanted[1]), got, "the rule's multiplier of size / (2 pi) * s_x")


def codes(trial: Trial, table: Table) -> Array:
    """Return the entries at round(c * m * 2**-n) modulo the table's size."""
    numbers, entry = trial.parameters.numbers, table.entries.numpy()
    centred = next(iter(trial.centred.values())).numpy().astype(np.float64)
    place = np.rint(centred * numbers["multiplier"] * 2.0 ** -numbers["shift"]).astype(np.int64)
    return np.asarray(np.clip(entry[place % entry.size], trial.output.qmin, trial.output.qmax))


def stage_error(trial: Trial) -> Array:
    """Return e in output codes: the multiplier's error, half a cell, and one cell because the table has both ends.

    If the slope of a function is at most 1, its value changes no more than its argument.
    """
    table, numbers = trial.parameters.tables["period"], trial.parameters.numbers
    size, (x,) = table.entries.numel(), trial.parameters.inputs.values()
    centred = np.abs(next(iter(trial.centred.values())).numpy())
    gain = numbers["multiplier"] * 2.0 ** -numbers["shift"]
    lost = centred * abs(gain - size / PERIOD * float(x.scale))
    return np.asarray(0.5 + (lost + 1.5) * PERIOD / size / float(trial.output.scale))
