"""Compass's tables of 16 bits, excused for their misaligned points, are held to half a unit of the function at those points."""

import functools
import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from quantizer.conformance.faults.cases import gate_cases
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.ops import REGISTRY

SESSION = open_session(Options(root=Path.cwd()))


@functools.cache
def cases():
    compass = gate_cases(SESSION, "sigmoid", "compass")
    found = ((target, case) for target, case in compass if target.id == "sigmoid-a16-compass")
    return [*itertools.islice(found, 8)]


def verdicts(change):
    rule = REGISTRY.get("sigmoid", "quantize", "compass")

    def provided(request):
        parameters = rule(request)
        table = parameters.tables["lut"]
        return replace(parameters, tables={"lut": replace(table, entries=change(table, parameters))})

    with REGISTRY.overridden("sigmoid", "quantize", provided, "compass"):
        return [
            verdict
            for target, case in cases()
            for verdict in judge(Trial(target, case, SESSION.engine), ("parameters",))
        ]


def real_entries(table, parameters):
    """Return table entries as another library rounds them, in float64."""
    (x,), (y,) = parameters.inputs.values(), parameters.outputs.values()
    points = np.linspace(x.qmin, x.qmax, table.entries.numel() - (x.first < x.qmin))
    points = np.append(points[:1], points) if x.first < x.qmin else points
    logistic = 1 / (1 + np.exp(np.minimum((int(x.zero_point) - points) * float(x.scale), 700.0)))
    return np.clip(logistic / float(y.scale) + int(y.zero_point), y.qmin, y.qmax)


def test_table_entries_of_another_library_are_a_declared_defect():
    found = verdicts(lambda table, parameters: torch.from_numpy(np.rint(real_entries(table, parameters))).long())
    assert {verdict.status for verdict in found} <= {"defect", "pass"}
    assert any(verdict.status == "defect" for verdict in found)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda table, parameters: table.entries + 1,
        lambda table, parameters: torch.from_numpy(np.floor(real_entries(table, parameters))).long(),
        lambda table, parameters: torch.where(torch.arange(table.entries.numel()) == 200, 1, 0) + table.entries,
        lambda table, parameters: table.entries.roll(1),
    ],
    ids=["all one more", "floored", "one of one more", "index off by one"],
)
def test_wrong_table_entries_fail(wrong):
    assert any(verdict.failing for verdict in verdicts(wrong))
