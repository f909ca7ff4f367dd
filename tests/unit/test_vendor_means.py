"""A mean that a vendor declares: bounds of as many terms as it has, whatever its family and its operand are called."""

from pathlib import Path

import pytest
from plugin_sandbox import open_library, sandbox, target, write

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.trials.trial import Trial
from quantizer.runtime.engines.builtin import BuiltinEngine

SPEC = """
op: line_mean
version: "1.0"
summary: Mean of each line.
dims:
  n: {{min: 1, max: 2}}
  k: {{min: 3000, max: 4096}}
inputs:
  {operand}: {{axes: [n, k]}}
outputs:
  y: {{axes: [n]}}
shape:
  y: [n]
error_model: {{kind: mean{terms}}}
quantization: {{family: {family}}}
oracle: none
tiling:
  n: {{rule: independent}}
data: [random]
"""
PLUGIN = """
import torch
from quantizer.ops import operator
from quantizer.numerics.quantize import centred

@operator("line_mean")
def reference({operand}):
    if {operand}.dtype != torch.float32:
        return {operand}.mean(1)
    total = torch.zeros({operand}.shape[0])
    for column in {operand}.unbind(1):
        total = total + column
    return total / {operand}.shape[1]

@operator("line_mean")
def accumulate({operand}, *, parameters):
    return centred({operand}, parameters.inputs["{operand}"]).long().sum(1)
"""


@pytest.mark.parametrize("operand", ["x", "lines"])
@pytest.mark.parametrize(("family", "terms"), [("line_mean", ", terms: k"), ("line_mean", ""), ("mean", ", terms: k")])
def test_a_forward_that_adds_one_after_another_is_no_alarm(tmp_path: Path, operand, family, terms):
    with sandbox():
        plugin = write(tmp_path / "plugin", "means.py", PLUGIN.format(operand=operand), header=False)
        write(
            tmp_path / "specs", "line_mean.yaml", SPEC.format(operand=operand, family=family, terms=terms), header=False
        )
        library = open_library(plugin, specs=(tmp_path / "specs",))
        chosen = target(library, "line_mean", "a8", "ideal")
        for index in range(8):
            trial = Trial(chosen, build_case(chosen, HashChoices(key(index, "mean"), {})), BuiltinEngine())
            found = judge(trial, ("float", "exact", "tiled"))
            assert not [verdict for verdict in found if verdict.failing]
