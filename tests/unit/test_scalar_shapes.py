"""A spec whose shapes may have no axis: scalars are drawn, judged, shrunk to and replayed like other shapes."""

from textwrap import dedent

import pytest
from plugin_sandbox import open_library, sandbox, target, trials, write

from quantizer.conformance.failures.shrink import shrink
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.stored.fitting import check_case
from quantizer.conformance.trials.trial import Trial
from quantizer.runtime.engines.builtin import BuiltinEngine

SPEC = """
    op: reversed_sign
    version: "1.0"
    summary: The negative of each element.
    dims:
      shape: {type: shape, rank: [0, 2], min: 1, max: 4}
    inputs:
      x: {axes: shape}
    outputs:
      y: {}
    shape:
      y: shape
    error_model: {kind: linear, terms: 1}
    quantization: {family: addition}
    tiling:
      "*": {rule: independent}
"""
PLUGIN = """
    from quantizer.ops import operator
    from quantizer.ops.negative import quantized as right

    @operator("reversed_sign")
    def reference(x):
        return -x

    @operator("reversed_sign")
    def quantized(x, *, parameters):
        codes, y = right(x, parameters=parameters), parameters.outputs["y"]
        return (codes + 1).clamp(y.qmin, y.qmax) if x.dim() in WRONG else codes
"""


def failed(judged, case):
    return any(verdict.failing for verdict in judge(Trial(judged, case, BuiltinEngine())))


@pytest.mark.parametrize("wrong", [(), (0,), (1, 2)])
def test_failing_scalars_are_generated_and_found_by_shrinking(tmp_path, wrong):
    spec = write(tmp_path, "specs/reversed_sign.yaml", dedent(SPEC), header=False)
    with sandbox():
        plugin = write(tmp_path, "signs.py", PLUGIN.replace("WRONG", repr(wrong)), header=False)
        judged = target(open_library(plugin, specs=(spec,)), "reversed_sign", "a8", "ideal")
        cases = [trial.case for trial in trials(judged, 24)]
        assert {len(case.shapes["x"]) for case in cases} == {0, 1, 2}
        failing = [case for case in cases if failed(judged, case)]
        assert {len(case.shapes["x"]) for case in failing} == set(wrong)
        for case in failing[:2]:
            smallest = shrink(judged, case, lambda candidate: failed(judged, candidate))
            check_case(judged.spec, smallest)
            assert len(smallest.shapes["x"]) in wrong
