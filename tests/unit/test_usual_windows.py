"""Cases with the windows of networks, and with infinities among real numbers."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
import torch

from quantizer.conformance.faults.cases import explicit_cases
from quantizer.conformance.generation.case_classes.usual_windows import (
    CHANNELS,
    DILATED,
    WHOLE,
    WINDOWS,
    images,
    usual_windows,
)
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.core.shapes import infer_shapes

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def session():
    return open_session(Options(root=ROOT))


@pytest.mark.parametrize("op", ["conv2d", "depthwise_conv2d", "max_pool2d", "conv_transpose2d"])
def test_cases_combine_windows_and_channels_of_networks(session, op: str) -> None:
    """Each target has a case of three channels and one of another number; over the targets most windows occur."""
    targets = session.all_targets(session.library.spec(op))
    cases = [images(targets, target) for target in targets]
    assert all(len(own) == WHOLE for own in cases)
    assert all(own[0].shapes["x"][1] == 3 and own[1].shapes["x"][1] in CHANNELS[1] for own in cases)
    found = set()
    for own in cases:
        for case in own:
            (stride,) = set(case.attrs["stride"])
            padding = case.attrs["padding"]
            axes = len(padding) // 2 or 1
            (before,), (behind,) = set(padding[:axes]), set(padding[axes:] or padding)
            (kernel,) = set(case.attrs["kernel"] if "kernel" in case.attrs else case.shapes["weight"][2:])
            (dilation,) = set(case.attrs.get("dilation", (1,)))
            found.add((kernel, stride, before, behind, dilation))
    known = (*WINDOWS, *DILATED) if "conv" in op else WINDOWS
    assert found <= set(known) and len(found) > len(known) // 2


@pytest.mark.parametrize("op", ["conv2d", "conv1d", "conv3d"])
def test_a_window_of_the_whole_image_gives_one_element(session, op: str) -> None:
    """Of one image and one filter, without padding; over the targets the window has several places."""
    own = [usual_windows(target)[0] for target in session.all_targets(session.library.spec(op))]
    for case in own:
        assert case.shapes["x"][0] == case.shapes["weight"][0] == 1
        assert case.shapes["x"][2:] == case.shapes["weight"][2:] and not any(case.attrs["padding"])
    assert any(case.shapes["weight"][2] > 1 for case in own)


@pytest.mark.parametrize("op", ["conv2d", "max_pool2d"])
def test_a_window_leaves_each_rest_of_a_quarter_vector(session, op: str) -> None:
    """Each window at steps of 2 gives rows of several lengths, most of which are no multiple of 4."""
    targets, found = session.all_targets(session.library.spec(op)), defaultdict(set)
    for target in targets:
        for case in images(targets, target):
            out = infer_shapes(target.spec, case.shapes, case.attrs)["y"][-1]
            kernel = case.attrs["kernel"] if "kernel" in case.attrs else case.shapes["weight"][2:]
            found[kernel, case.attrs["stride"], case.attrs["padding"]].add(out)
    assert all(min(places) > 4 and len({size % 4 for size in places}) > 2 for places in found.values())


def test_operators_without_windows_have_no_window_cases(session) -> None:
    targets = session.all_targets(session.library.spec("add"))
    assert not any(usual_windows(target) or images(targets, target) for target in targets)


def test_infinities_are_quantized_to_the_extreme_codes(session) -> None:
    """Both signs occur, and the built-in quantizer saturates them."""
    target, case = next(
        (t, c) for t, c in explicit_cases(session, session.library.spec("quantize")) if c.data.set == "infinities"
    )
    trial = Trial(target, case, session.engine)
    x, codes, y = trial.tensors["x"], trial.outcome.codes, trial.parameters.outputs["y"]
    assert bool((x == torch.inf).any()) and bool((x == -torch.inf).any()) and bool(x.isfinite().any())
    assert set(codes[x == torch.inf].tolist()) == {y.qmax}
    assert set(codes[x == -torch.inf].tolist()) == {y.qmin}
