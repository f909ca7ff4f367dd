"""A number next to a tie has one right code where the platform declares the float32 operations that give it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from quantizer.conformance.faults.cases import gate_cases
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.ops import REGISTRY

SESSION = open_session(Options(root=Path.cwd()))


def trials(op, platform):
    """Yield the gate's cases of *op* on *platform*, in their order."""
    for target, case in gate_cases(SESSION, op, platform):
        yield Trial(target, case, SESSION.engine)


def failing(trial, check, kind, made):
    """Judge *trial* with *made* in place of what the shipped function of *kind* gives."""
    own = REGISTRY.find(trial.spec.op, kind, trial.target.platform.places)
    place = None if own is None else own.platform
    with REGISTRY.overridden(trial.spec.op, kind, lambda *_, **__: made, place):
        (verdict,) = judge(trial, (check,))
    return verdict.failing


def again(trial):
    other = Trial(trial.target, trial.case, trial.engine)
    other.tensors = trial.tensors
    return other


@pytest.mark.parametrize(
    ("op", "name", "platform"),
    [
        ("fully_connected", "weight", "compass"),
        ("fully_connected", "weight", "torch_qnnpack"),
        ("instance_norm", "gamma", "compass"),
        ("rms_norm", "gamma", "compass"),
    ],
)
def test_a_weight_has_the_code_of_the_declared_quantizer(op, name, platform):
    """-1 of a range up to 2: 63.5 steps, to the last bit of the scale; the code of either side was accepted."""
    cases = (trial for trial in trials(op, platform) if name in trial.tensors and trial.tensors[name].shape[-1] > 1)
    trial = next(t for t in cases if t.target.scheme.name == "w8pta8")
    weight = torch.zeros_like(trial.tensors[name])
    weight[..., 0], weight[..., 1] = 2.0, -1.0
    trial.tensors = {**trial.tensors, name: weight}
    right = trial.parameters
    held = right.constants[name]
    codes = held.codes.clone()
    assert set(codes[..., 1].flatten().tolist()) == {-64}
    assert not failing(again(trial), "parameters", "quantize", right)
    codes[..., 1] = -63
    wrong = replace(right, constants={**right.constants, name: replace(held, codes=codes)})
    assert failing(again(trial), "parameters", "quantize", wrong)


def with_entry(parameters, place, entry):
    table = parameters.tables["lut"]
    entries = table.entries.clone()
    entries[place] = entry
    return replace(parameters, tables={"lut": replace(table, entries=entries)})


def test_a_whole_number_has_the_code_of_the_declared_quantizer():
    """round(2) is 42.5 steps of 6 / 127.5: float32 steps give 42, and 43 was accepted."""
    trial = next(trials("round", "compass"))
    right = trial.parameters
    place = int((right.tables["lut"].entries == 42).nonzero()[0])
    assert not failing(again(trial), "parameters", "quantize", right)
    assert failing(again(trial), "parameters", "quantize", with_entry(right, place, 43))


def test_a_table_entry_at_a_jump_must_be_on_either_side():
    """round(1/2) is 0 or 1, whichever float32 makes of 1/2: code 0 or 21, and 10 was accepted."""
    first = next(trials("round", "compass"))
    case = replace(first.case, ranges={"x": (-63.75, 63.75), "y": (-6.0, 6.0)})
    trial = Trial(first.target, case, first.engine)
    right, zero = trial.parameters, -first.parameters.tables["lut"].first
    assert right.tables["lut"].entries[zero : zero + 2].tolist() == [0, 0]
    found = {
        entry: failing(again(trial), "parameters", "quantize", with_entry(right, zero + 1, entry))
        for entry in (0, 10, 21)
    }
    assert found == {0: False, 10: True, 21: False}


@pytest.mark.parametrize("platform", ["torch_fbgemm", "torch_x86", "torch_qnnpack"])
def test_a_float32_mean_of_two_terms_has_one_code(platform):
    """Every order adds two numbers to one sum: half-way between two codes the declared float32 steps decide."""
    cases = (trial for trial in trials("reduce_mean", platform) if tuple(trial.case.attrs["axes"]) == (0,))
    trial = next(t for t in cases if t.case.shapes["x"][0] == 2 and (t.codes["x"].sum(0) % 2 == 1).any())
    right = trial.outcome.codes
    sums = trial.codes["x"].sum(0, keepdim=trial.case.attrs["keepdims"])
    assert not failing(again(trial), "arithmetic", "quantized", right)
    other = torch.where(sums % 2 == 1, sums - right, right)
    assert failing(again(trial), "arithmetic", "quantized", other)
