"""Operands that commute, under a rule with a number for each: `properties` says where nothing could be compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from quantizer.conformance.checks.properties import OTHER_NUMBERS, Related, properties
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.numerics.parameters import default_parameters
from quantizer.ops import REGISTRY
from quantizer.runtime.engines.builtin import BuiltinEngine

SESSION = open_session(Options(root=Path.cwd()))
TARGET = Target(SESSION.library.spec("add"), SESSION.library.schemes["a8"], SESSION.library.platforms["ideal"])


def steady(request):
    return replace(default_parameters(request), numbers={"multiplier_a": 1, "multiplier_b": 2})


def by_first(request):
    """Choose the output's scale by the first operand: the swapped run has other codes."""
    found = steady(request)
    out = found.outputs["y"]
    scale = out.scale * (2.0 if request.inputs["a"].scale > request.inputs["b"].scale else 1.0)
    return replace(found, outputs={"y": replace(out, scale=scale, steps=None)})


def judged(rule):
    case = build_case(TARGET, HashChoices(3, {"data": "random", "activation": "none"}))
    with REGISTRY.overridden("add", "quantize", rule, "ideal"):
        trial = Trial(TARGET, case, BuiltinEngine())
        assert not torch.equal(*(trial.parameters.inputs[name].scale for name in "ab"))
        return trial, properties(trial)


def test_a_swap_that_the_rule_follows_is_judged():
    _, found = judged(steady)
    assert found is not None and found.status == "pass" and not found.vacuous


def test_a_lone_swap_with_other_scales_is_inconclusive():
    _, found = judged(by_first)
    assert found is not None and (found.status, found.reason) == ("inconclusive", OTHER_NUMBERS)


def test_a_swap_under_other_scales_counts_as_vacuous_beside_other_relations(monkeypatch: pytest.MonkeyPatch):
    again = Related({}, {}, {}, {}, "")
    monkeypatch.setattr(
        "quantizer.conformance.checks.properties.related_runs",
        lambda trial: [replace(again, codes=trial.codes, parameters=trial.parameters, low=trial.got, high=trial.got)],
    )
    trial, found = judged(by_first)
    assert found is not None and found.status == "pass"
    assert (found.vacuous, found.elements) == (trial.got.size, 2 * trial.got.size)
