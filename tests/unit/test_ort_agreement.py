"""Platform `ort` against ONNX Runtime's kernels: output codes and float forward of every operator that it names.

Populations: every data set in turn (rows), random, ties; codes over the whole range under scales that are powers of two
(exact ties) or eighths (sums that are ties in the reals and that float32 decides).
"""

from __future__ import annotations

import numpy as np
from ort_cases import (
    COUNT,
    ORT,
    TARGETS,
    assert_agrees,
    assert_float_within_bound,
    items,
    one_thread,  # noqa: F401 - used by every test
    pairs,
    target_of,
)

from quantizer.conformance.checks.arithmetic import arithmetic
from quantizer.conformance.judging.known_defects import known_defect
from quantizer.platforms.onnxruntime.engine import NODES


def test_every_operator_of_the_platform_is_compared() -> None:
    assert {target_of(item).spec.op for item in TARGETS} == set(ORT.ops or ()) == set(NODES)


@items
def test_output_codes_equal_the_kernel(item: str, population: str) -> None:
    found = pairs(item, population)
    assert len(found) == COUNT
    assert assert_agrees(found) > 3 * COUNT
    if item not in ("softmax-a8", "argmax-a8"):
        codes = np.concatenate([trial.got.ravel() for trial, _ in found])
        assert np.count_nonzero((codes > 0) & (codes < 255)) > codes.size / 4, "most outputs saturate"


@items
def test_real_codes_raise_no_alarm(item: str, population: str) -> None:
    """The arithmetic check passes ONNX Runtime's own codes but for the platform's declared defects."""
    for trial, other in pairs(item, population):
        verdict = arithmetic(other)
        known = known_defect(trial, "arithmetic") or known_defect(other, "arithmetic")
        assert verdict.status == "pass" or known, (trial.case.to_json(), verdict)


@items
def test_float_forward_of_both_is_within_the_derived_bound(item: str, population: str) -> None:
    assert_float_within_bound(pairs(item, population))
