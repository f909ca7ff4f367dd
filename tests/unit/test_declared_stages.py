"""Declared stages: their language, their lint, their formats, and how shown and hidden stages are judged."""

import numpy as np
import pytest
import torch

from quantizer.conformance.bounds import Interval
from quantizer.conformance.bounds.expressions import enclosed
from quantizer.conformance.checks.accuracy import accuracy
from quantizer.conformance.checks.arithmetic import arithmetic
from quantizer.conformance.checks.parameters import parameters as parameters_check
from quantizer.conformance.failures.element import element_lines
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case, DataRecipe, TilePlan
from quantizer.core.errors import SpecError
from quantizer.core.library import load_library, read_spec
from quantizer.core.real_expressions import parse_real
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.qparams import Staged
from quantizer.numerics.rounding import round_tensor, splitmix64
from quantizer.ops import REGISTRY
from quantizer.runtime.engines.builtin import BuiltinEngine

SPEC = """
op: gated
version: "1.0"
summary: SiLU of a gate times a second operand.
dims:
  shape: {type: shape, rank: [1, 2], min: 1, max: 4}
inputs:
  gate: {axes: shape}
  up: {axes: shape}
outputs:
  y: {}
shape:
  y: shape
error_model: {kind: custom}
quantization: {family: gated_product}
stages:
  act: {value: silu(gate), bits: BITS, scale: "max(abs(gate_low), abs(gate_high)) / TOP"}
  y: {value: act * up}
tiling:
  "*": {rule: independent}
oracle: none
"""


def spec_of(tmp_path, text=SPEC, bits="16", top="32767"):
    path = tmp_path / "gated.yaml"
    path.write_text(text.replace("BITS", bits).replace("TOP", top))
    return read_spec(path)[0]


def right(gate, up, *, parameters):
    act, output = parameters.stages["act"], parameters.outputs["y"]
    params = parameters.inputs["gate"]
    real = torch.nn.functional.silu((gate - params.zero_point).double() * params.scale)
    codes = round_tensor(real / act.scale, "half_even").long().clamp(act.qmin, act.qmax)
    other = parameters.inputs["up"]
    ratio = act.scale * other.scale / output.scale
    made = round_tensor(codes * (up - other.zero_point) * ratio, "half_even").long() + output.zero_point
    return Staged(made.clamp(output.qmin, output.qmax), {"act": codes})


def case_of(shape):
    ranges = {"gate": (-6.0, 6.0), "up": (-2.0, 2.0), "y": (-4.0, 4.0)}
    return Case(
        "gated",
        "a8",
        "ideal",
        {"gate": shape, "up": shape},
        {},
        ranges,
        "channels_first",
        TilePlan({}),
        DataRecipe("random", 7),
    )


def target_of(spec):
    library = load_library()
    return Target(spec, library.schemes["a8"], library.platforms["ideal"])


def verdicts(spec, forward):
    """Return the verdicts of three checks on *forward* in one case."""

    def reference(gate, up):
        return torch.nn.functional.silu(gate) * up

    with (
        REGISTRY.overridden("gated", "reference", reference, None),
        REGISTRY.overridden("gated", "quantized", forward, None),
    ):
        trial = Trial(target_of(spec), case_of((16, 16)), BuiltinEngine())
        return {"arithmetic": arithmetic(trial), "accuracy": accuracy(trial), "parameters": parameters_check(trial)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x ** 2", "the operators are"),
        ("open(x)", "only these functions"),
        ("mean(x)", "takes 2 operands"),
        ("mean(x, y * 2)", "the axis must be"),
        ("silu", "is a function"),
        ("[x]", "not part of the language"),
        ("x if y else z", "not part"),
        ("1e400", "not a number"),
        ("x.y", "not part"),
        ("silu(x=1)", "only these functions"),
    ],
)
def test_an_invalid_stage_expression_is_refused(text, said):
    with pytest.raises(SpecError, match=said.replace("(", r"\(")):
        parse_real(text)


def drawn(seed):
    """Return 40 rows of 6 numbers in [-0.5, 0.5)."""
    whole = splitmix64(torch.arange(240) + 1000 * seed).reshape(40, 6)
    return (whole.double() / 2.0**64).numpy()


@pytest.mark.parametrize(
    "text",
    [
        "silu(x) * w",
        "x / sqrt(mean(square(x), -1) + 0.5)",
        "gelu(x) - tanh(w)",
        "exp(x - greatest(x, -1))",
        "max(x, w) + abs(-x)",
    ],
)
def test_an_interval_holds_the_values_of_all_operands_inside(text):
    x, w, dx = 8 * drawn(1), 2 * drawn(2), 0.2 * abs(drawn(3))
    expression = parse_real(text)
    box = enclosed(expression, {"x": Interval.around(x, dx), "w": Interval.around(w, dx)}, {})
    for seed in range(4, 204):
        a, b = (v + dx * 2 * drawn(seed + 1000 * place) for place, v in enumerate((x, w)))
        inside = enclosed(expression, {"x": Interval.exactly(a), "w": Interval.exactly(b)}, {})
        assert (box.lo <= inside.hi).all() and (inside.lo <= box.hi).all()
        assert (inside.hi - inside.lo <= 1e-12 * (1 + np.abs(inside.hi))).all()


def test_a_correct_kernel_passes_with_or_without_shown_stages(tmp_path):
    spec = spec_of(tmp_path)
    for forward in (right, lambda **named: right(**named).codes):
        found = verdicts(spec, forward)
        assert {verdict.status for verdict in found.values()} == {"pass"}, found


def test_a_failure_shows_the_code_of_each_shown_stage(tmp_path):
    spec = spec_of(tmp_path)
    for forward, lines in ((right, 3), (lambda **named: right(**named).codes, 0)):
        with REGISTRY.overridden("gated", "quantized", forward, None):
            trial = Trial(target_of(spec), case_of((16, 16)), BuiltinEngine())
            found = [line.split(None, 1) for line in element_lines(trial, (3, 5))]
            start = next((i for i, (label, _) in enumerate(found) if label == "act"), len(found))
            shown = dict(found[start : start + lines])
            assert len(shown) == lines
            if lines:
                code = int(trial.outcome.stages["act"][3, 5])
                assert shown["act"].startswith("act[3,5], int16 scale ") and shown["code"] == str(code)
                assert float(shown["real"]) == pytest.approx(code * float(trial.parameters.stages["act"].scale), 1e-5)


def test_a_hidden_stage_allowing_over_two_codes_is_inconclusive(tmp_path):
    spec = spec_of(tmp_path, bits="4", top="7")
    assert verdicts(spec, right)["arithmetic"].status == "pass"
    hidden = verdicts(spec, lambda **named: right(**named).codes)["arithmetic"]
    assert hidden.status in ("mistrusted", "inconclusive") and "Show the stages" in hidden.reason


def test_formats_of_stages_are_the_declared_ones(tmp_path):
    made = default_parameters(target_of(spec_of(tmp_path)).request(case_of((1,)), {}))
    gate, act = made.inputs["gate"], made.stages["act"]
    low = float(gate.scale) * (gate.qmin - int(gate.zero_point))
    assert (act.qmin, act.qmax, int(act.zero_point)) == (-32768, 32767, 0)
    assert float(act.scale) == max(abs(low), abs(float(gate.scale) * (gate.qmax - int(gate.zero_point)))) / 32767


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("value: silu(gate)", "value: silu(gait)", "name 'gait' is no operand"),
        ("y: {value: act * up}", "y: {value: act * up, bits: 8}", "the output's format is the scheme's"),
        ("y: {value: act * up}", "y: {value: gate * up}", "no later stage reads it"),
        ("bits: BITS, ", "", "must be given for a stage before the output"),
        ("gate_low", "gate_lo", "no number of a scale"),
        ("  y: {value: act * up}\n", "", "must end with y"),
    ],
)
def test_lint_reports_errors_in_stages(tmp_path, old, new, said):
    with pytest.raises(SpecError, match=said):
        spec_of(tmp_path, SPEC.replace(old, new))


def test_a_reference_that_contradicts_its_stages_fails(tmp_path):
    spec = spec_of(tmp_path, SPEC.replace("silu(gate)", "sigmoid(gate)"))
    verdict = verdicts(spec, right)["accuracy"]
    assert verdict.failing and "the stages of the spec give" in verdict.reason
