"""Cases of layers cross windows with channels, places and ranges of the input."""

from __future__ import annotations

from pathlib import Path

import pytest

from quantizer.conformance.generation.case_classes.layers import ALIKE, ALONE, MIXING, OF_BOTH, PLACES, UNEVEN, layers
from quantizer.conformance.generation.input_ranges import ABOVE, AROUND, KINDS
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.core.shapes import infer_shapes

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def session():
    return open_session(Options(root=ROOT))


def _cases(session, op):
    targets = list(session.all_targets(session.library.spec(op)))
    return [(target, case) for target in targets for case in layers(targets, target)]


@pytest.mark.parametrize(("op", "kinds"), [("conv2d", len(MIXING) + len(OF_BOTH)), ("depthwise_conv2d", len(ALONE))])
def test_every_window_meets_every_kind_of_channels(session, op: str, kinds: int) -> None:
    """A few pairs are left out because even one place of the output is too large."""
    met = {
        (*(case.attrs[name] for name in ("stride", "padding", "dilation")), case.shapes["weight"], case.shapes["x"][1])
        for _, case in _cases(session, op)
    }
    pairs = (len(ALIKE) + len(UNEVEN)) * kinds
    assert 0.95 * pairs <= len(met) <= pairs


def test_channels_meet_every_number_of_places(session) -> None:
    met = set[tuple[int, ...]]()
    for target, case in _cases(session, "depthwise_conv2d"):
        met.add(infer_shapes(target.spec, case.shapes, case.attrs)["y"][2:])
    assert set(PLACES) <= met


def test_most_inputs_lie_above_or_around_zero(session) -> None:
    """Above 0, the zero point is the first code; around 0, the middle one."""
    cases = [(t, c) for t, c in _cases(session, "conv2d") if t.scheme.activation.symmetry != "symmetric"]
    params = [
        next(iter(Trial(t, c, session.engine).parameters.inputs.values()))
        for t, c in cases
        if t.scheme.activation.bits == 8
    ]
    first = sum(int(each.zero_point) == each.qmin for each in params)
    middle = sum(int(each.zero_point) == (each.qmin + each.qmax + 1) // 2 for each in params)
    assert first > KINDS.count(ABOVE) / len(KINDS) * len(params) * 0.7
    assert middle > KINDS.count(AROUND) / len(KINDS) * len(params) * 0.5
