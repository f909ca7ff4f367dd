"""Cases of edge numbers and patterns, and planted effects on sums."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from quantizer.conformance.generation.case_classes.deep import LONG, cancelling_and_wide
from quantizer.conformance.generation.case_classes.edge_numbers import BELOW, edge_numbers
from quantizer.conformance.generation.case_classes.first_broadcast import first_broadcast
from quantizer.conformance.generation.case_classes.patterned import AT_END, BESIDE, PAST, VECTOR, patterned
from quantizer.conformance.generation.case_classes.usual_windows import VECTORS, usual_windows
from quantizer.conformance.generation.fillers import PATTERNS, Site, cancelling, patterns
from quantizer.conformance.real.facts import facts
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def session():
    return open_session(Options(root=ROOT))


def _targets(session, op):
    return session.all_targets(session.library.spec(op))


def _known(session, target, case):
    trial = Trial(target, case, session.engine)
    return facts(trial.spec, case.shapes, case.attrs, trial.parameters, case.ranges)


def test_edge_numbers_occur_in_the_cases(session) -> None:
    """Each target has an empty range; some have equal asymmetric parameters, or a ratio just below a power of two."""
    equal = below = 0
    for target in _targets(session, "negative") + _targets(session, "fully_connected")[:8]:
        known = [_known(session, target, case) for case in edge_numbers(target)]
        assert any(each["low"] == each["high"] == 0.0 for each in known)
        equal += any(each["same_scale"] and each["zero"] not in (0, each["first"], each["last"]) for each in known)
        below += any(BELOW - 2.0**-18 <= each["ratio_top"] < 1.0 for each in known)
    assert equal and below


def test_patterns_match_their_names() -> None:
    """Sorted, of alternating sign, zero except at one end, and within the range."""
    for seed in range(len(PATTERNS)):
        values = patterns(Site("x", "activation", (3, 4), -1.0, 2.0, None, seed))
        assert values.shape == (3, 4) and values.min() >= -1.0 and values.max() <= 2.0
        flat = values.reshape(-1)
        if seed < 2:
            assert (np.diff(flat) * (1, -1)[seed] > 0).all()
        if seed == 2:
            assert (flat[1:] * flat[:-1] < 0).all()
        if seed in (3, 4):
            assert np.flatnonzero(flat).tolist() == [(0, 11)[seed - 3]]


def test_pattern_cases_have_zero_points_next_to_the_ends(session) -> None:
    """Among the targets of an operator."""
    found = set()
    for target in _targets(session, "relu"):
        for case in patterned(target):
            known = _known(session, target, case)
            found |= {known["zero"] - known["first"], known["zero"] - known["last"], known["zero"]}
    assert {distance for _, distance in BESIDE} <= found


def test_the_largest_element_of_a_long_row_is_first_or_last(session) -> None:
    """One case of each target has an axis past a vector and is in order, or has one value in the last place."""
    for target in _targets(session, "argmax"):
        case = patterned(target)[PAST]
        assert max(case.shapes["x"]) > VECTOR
        assert case.data.seed % len(PATTERNS) in AT_END


@pytest.mark.parametrize("op", ["add", "sub", "maximum", "less"])
def test_the_first_operand_is_broadcast(session, op: str) -> None:
    """Its elements are fewer than the second's, which are more than a vector."""
    found = [case for target in _targets(session, op) for case in first_broadcast(target)]
    assert len(found) == len(_targets(session, op))
    for case in found:
        sizes = [math.prod(case.shapes[name]) for name in ("a", "b")]
        assert sizes[0] < sizes[1] and sizes[1] > VECTOR


def test_cancelling_cases_have_long_sums(session) -> None:
    """The correction for the zero point is past the whole numbers of float32, the sum is a step times an end."""
    values = cancelling(Site("x", "activation", (2, 5), -1.0, 1.0, None, 3))
    assert np.count_nonzero(values) == 1
    of = [
        case
        for target in _targets(session, "matmul")
        for case in cancelling_and_wide(target)
        if case.data.set == "cancelling"
    ]
    assert of and all(case.shapes["a"][-1] in LONG for case in of)


def test_a_1x1_kernel_has_vector_sized_channels(session) -> None:
    """Some target has a 1x1 kernel with vector-sized input and output channels."""
    shapes = [case.shapes["weight"] for t in _targets(session, "conv2d") for case in usual_windows(t)]
    assert any(s[2:] == (1, 1) and s[0] in VECTORS and s[1] in VECTORS for s in shapes)


def test_effects_on_sums_show_beyond_float32_integers(session) -> None:
    """A correction in float32 changes a sum that float32 does not hold, and no small one."""
    from quantizer.conformance.real.effects import SUMS

    target = next(t for t in _targets(session, "fully_connected") if t.id == "fully_connected-w8a8-ideal")
    trial = Trial(target, edge_numbers(target)[0], session.engine)
    named = {name: codes for name, codes in trial.codes.items() if name != "bias"}
    for total, changes in (((1 << 24) + 1, True), (1, False)):
        held = torch.full(trial.output_shape, total, dtype=torch.int64)
        made = SUMS["correction_in_float32"]()(lambda *_, parameters, held=held, **__: held)(
            parameters=trial.parameters, **{**named, "weight": torch.zeros_like(named["weight"])}
        )
        assert torch.equal(made, held) != changes
