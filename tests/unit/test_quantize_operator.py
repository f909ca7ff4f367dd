"""The operator quantize: an input of real numbers, judged by the platform's quantizer."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.errors import SpecError
from quantizer.core.library import load_library, read_spec
from quantizer.ops import REGISTRY, load_built_ins
from quantizer.runtime.engines.builtin import BuiltinEngine

load_built_ins()
LIBRARY = load_library()
SPEC = LIBRARY.spec("quantize")
PLATFORMS = ["ideal", "compass", "ort", "tflite_ref", "xnnpack", "torch_x86"]


def trials(platform: str, count: int, **row: str) -> list[Trial]:
    target = Target(SPEC, LIBRARY.scheme("a8"), LIBRARY.platform(platform))
    return [Trial(target, build_case(target, HashChoices(i, row)), BuiltinEngine()) for i in range(count)]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_codes_are_the_nearest_ones_and_ties_are_reached(platform: str) -> None:
    """Against rationals: away from ties every float32 way rounds to the nearest code; ties are hit."""
    ties = 0
    for trial in trials(platform, 20) + trials(platform, 10, data="ties"):
        assert trial.codes["x"].dtype == torch.float32
        output = trial.output
        for x, code in zip(trial.tensors["x"].flatten().tolist(), trial.got.ravel().tolist(), strict=True):
            exact = Fraction(x) / Fraction(float(output.scale)) + int(output.zero_point)
            ties += (2 * exact).denominator == 1 and exact.denominator == 2
            if abs(exact - round(exact)) < Fraction(499, 1000):
                assert code == min(max(round(exact), output.qmin), output.qmax)
    assert ties > 100


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_float64_quantizer_fails_where_float32_is_declared(platform: str) -> None:
    """The same numbers in float64: right to half a code, and another code beside ties of the float32 quotient."""
    quantizer = LIBRARY.platform(platform).runtime_quantizer

    def wide(x: torch.Tensor, *, parameters: object) -> torch.Tensor:
        y = parameters.outputs["y"]
        value = x.double().numpy() / float(y.scale)
        places = np.rint(value) if quantizer.rounding == "half_even" else np.trunc(value + np.copysign(0.5, value))
        return torch.from_numpy(np.clip(places + int(y.zero_point), y.qmin, y.qmax)).long()

    cases = trials(platform, 150)
    with REGISTRY.overridden("quantize", "quantized", wide, None):
        failing = [v for trial in cases for v in judge(trial, ("arithmetic",)) if v.failing]
    assert bool(failing) == (quantizer.operation != "exact")


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        (
            "  x: {axes: shape, kind: real}",
            "  x: {axes: shape, kind: real, role: weight}",
            "role: must be activation for real numbers",
        ),
        ("error_model: {kind: movement}", "error_model: {kind: monotone}", "real numbers are judged as the one input"),
        (
            "quantization: {family: boundary}",
            "quantization: {family: boundary, outputs: {y: same_as(x)}}",
            "same_as: no such",
        ),
    ],
)
def test_a_wrong_spec_is_an_error_at_its_line(tmp_path: Path, right: str, wrong: str, said: str) -> None:
    text = Path("op_specs/quantize.yaml").read_text()
    assert right in text
    (tmp_path / "quantize.yaml").write_text(text.replace(right, wrong))
    with pytest.raises(SpecError, match=rf"quantize.yaml:\d+(:\d+)?: .*{said}"):
        read_spec(tmp_path / "quantize.yaml")
