"""Sums of products beside the steps of a room's own rule: its oracle is asked where they are."""

from __future__ import annotations

import numpy as np
import pytest

from quantizer.conformance.generation import near_sums, room_sums
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.case_classes import near_ties
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.near_sums import provided_for, ratios
from quantizer.conformance.generation.room_sums import beside_steps
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.library import load_library
from quantizer.core.rooms import Oracle
from quantizer.ops import load_built_ins
from quantizer.runtime.engines.builtin import BuiltinEngine

LIBRARY = load_library()
load_built_ins()
CONVOLUTION = Target(LIBRARY.spec("conv2d"), LIBRARY.schemes["w8a8"], LIBRARY.platforms["ideal"])


def at_three_tenths(asked):
    """Steps lie at three tenths of a code, where no generic arithmetic has any."""
    unit = np.asarray(asked.grids["x"].scale) * np.asarray(asked.grids["weight"].scale) / float(asked.output.scale)
    view = [-1 if axis == asked.channels else 1 for axis in range(len(asked.shape))]
    return np.floor(asked.sums * (unit.reshape(view) if unit.ndim else unit) + 0.7).astype(np.int64)


def of_operands(asked):
    return asked.codes["x"]


def of_operands_at_three_tenths(asked):
    assert (asked.codes["x"] >= asked.grids["x"].qmin).all()
    return at_three_tenths(asked)


def room_with(monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    monkeypatch.setattr(room_sums, "oracle_of", lambda *_: Oracle("convolution", f"{__name__}:{function}"))


def sums_of(case) -> np.ndarray:
    drawn = Trial(CONVOLUTION, case, BuiltinEngine()).tensors.items()
    tensors = {name: values.double().numpy() for name, values in drawn}
    parameters = provided_for(CONVOLUTION, case, tensors)
    return beside_steps(CONVOLUTION, case, parameters, ratios(parameters, case.shapes["weight"][0]))


def drawn():
    return build_case(CONVOLUTION, HashChoices(7, {"data": "random", "with_bias": "yes", "activation": "none"}))


def test_room_sums_lie_on_both_sides_of_oracle_steps(monkeypatch: pytest.MonkeyPatch):
    room_with(monkeypatch, "at_three_tenths")
    below, above = np.split(sums_of(drawn()), 2, axis=1)
    assert below.shape[1] == room_sums.STEPS
    assert ((above == below + 1) | (above == 0)).all()


def test_only_oracles_of_sums_have_room_sums(monkeypatch: pytest.MonkeyPatch):
    room_with(monkeypatch, "of_operands")
    assert sums_of(drawn()).shape[1] == 0


@pytest.mark.parametrize("function", ["at_three_tenths", "of_operands_at_three_tenths"])
def test_cases_have_sums_next_to_oracle_steps(monkeypatch: pytest.MonkeyPatch, function: str):
    """Random sums are seldom the last before a step, of which there is one in some hundred sums."""
    room_with(monkeypatch, function)
    for module in (near_sums, near_ties):
        monkeypatch.setattr(module, "has_own_rule", lambda _: True)
    cases = near_ties.near_ties(CONVOLUTION)
    assert [case.data.set for case in cases] == ["near_ties"] * near_ties.CASES + ["ties"] * near_ties.CASES
    for case in cases[: near_ties.CASES]:
        trial = Trial(CONVOLUTION, case, BuiltinEngine())
        unit = trial.parameters.constants["bias"].params.scale.double() / trial.output.scale.double()
        share = unit.numpy().reshape(-1, 1, 1) if unit.dim() else unit.numpy()
        beyond = (trial.sums * share + 0.7) % 1
        assert (np.minimum(beyond, 1 - beyond) < share).any()
