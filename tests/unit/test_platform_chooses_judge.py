"""Only the platform chooses the judge, not the names of a plugin's numbers or its shown stages."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from quantizer.conformance.faults.cases import gate_cases
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.readings import with_readings
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.core.errors import UnsupportedError
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.qparams import Staged
from quantizer.numerics.rounding import round_tensor
from quantizer.ops import REGISTRY

SESSION = open_session(Options(root=Path.cwd()))


@functools.cache
def cases_of(op, platform):
    return [*gate_cases(SESSION, op, platform)]


def failures(op, platform, functions, checks=("parameters", "arithmetic")):
    """Judge the gate's cases of *op* on *platform* with *functions* in place of the shipped ones."""
    rule, forward = functions
    found = {check: [] for check in checks}
    with (
        REGISTRY.overridden(op, "quantize", rule, platform),
        REGISTRY.overridden(op, "quantized", forward, platform),
    ):
        for target, case in cases_of(op, platform):
            for verdict in judge(Trial(target, case, SESSION.engine), checks):
                if verdict.failing:
                    found[verdict.check].append(verdict)
    return found


def multiplier(ratio):
    fraction, exponent = torch.frexp(torch.tensor(ratio, dtype=torch.float64))
    return int(torch.round(fraction * 2**31)), 31 - int(exponent)


def sides(request):
    """Provide the two multipliers of LiteRT's leaky rectifier on any platform."""
    made = default_parameters(request)
    ratio = float(made.inputs["x"].scale) / float(made.outputs["y"].scale)
    numbers = {}
    for side, factor in (("positive", 1.0), ("negative", float(request.attrs["slope"]))):
        numbers[side], numbers[f"{side}_shift"] = multiplier(ratio * factor)
    return replace(made, numbers=numbers, rescale=None, tables={})


def rounded_twice(x, *, parameters, slope):  # noqa: ARG001 - the slope stands in the numbers
    """Multiply at 31 bits and round, shift and round again."""
    (inp,), out, numbers = parameters.inputs.values(), parameters.outputs["y"], parameters.numbers
    c = (x - inp.zero_point).double()

    def side(name):
        high = torch.floor(c * numbers[name] / 2.0**31 + 0.5)
        return round_tensor(high * 2.0 ** (31 - numbers[f"{name}_shift"]), "half_away")

    codes = torch.where(c >= 0, side("positive"), side("negative")).long() + out.zero_point
    return codes.clamp(out.qmin, out.qmax)


@pytest.mark.parametrize("platform", ["ideal", "compass", "tosa"])
def test_numbers_of_another_arithmetic_fail_parameters(platform):
    found = failures("leaky_relu", platform, (sides, rounded_twice))
    assert found["arithmetic"]
    worst = found["parameters"][0].worst
    assert "numbers that the platform takes" in worst.allowed
    assert "positive_shift" in worst.got


def nothing(request):
    made = default_parameters(request)
    return replace(made, numbers={}, tables={}, rescale=None)


def rounded_once(x, *, parameters, slope):
    (inp,), out = parameters.inputs.values(), parameters.outputs["y"]
    c = (x - inp.zero_point).double()
    real = torch.where(c >= 0, c, c * float(torch.tensor(slope, dtype=torch.float32))) * inp.scale / out.scale
    return (round_tensor(real, "half_away").long() + out.zero_point).clamp(out.qmin, out.qmax)


def test_a_rule_without_numbers_is_judged_by_those_of_the_platform():
    found = failures("leaky_relu", "tflite_ref", (nothing, rounded_once))
    assert found["arithmetic"]
    assert not found["parameters"]


def shown(op, platform, stages):
    """Return the shipped forward of *op*, one code higher, that shows *stages* which explain its codes."""
    forward = REGISTRY.built_in(op, "quantized", platform).function

    def run(*operands, parameters, **attrs):
        made = forward(*operands, parameters=parameters, **attrs)
        codes = (made.codes if isinstance(made, Staged) else made) + 1
        out = parameters.outputs["y"]
        return Staged(codes.clamp(out.qmin, out.qmax), dict.fromkeys(stages, codes - out.zero_point))

    return run


@pytest.mark.parametrize(
    ("op", "platform", "stages"),
    [
        ("leaky_relu", "ideal", ["negative"]),
        ("clip", "ideal", ["relay"]),
        ("softmax", "ideal", ["reciprocal", "quotient"]),
        ("layer_norm", "ideal", ["variance", "mean"]),
        ("add", "compass", ["sum"]),
    ],
)
def test_undeclared_stages_do_not_excuse_wrong_codes(op, platform, stages):
    if REGISTRY.built_in(op, "quantized", platform) is None:
        pytest.fail(f"{op} does not run on {platform}")
    rule = REGISTRY.built_in(op, "quantize", platform)
    found = failures(op, platform, (rule.function if rule else default_parameters, shown(op, platform, stages)))
    assert found["arithmetic"]
    assert not found["parameters"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("add", "write OPERATOR/PLATFORM:READING"),
        ("ad/compass:exact_sums", "'ad': no such name"),
        ("add/compas:exact_sums", "'compas': no such name. Did you mean 'compass'?"),
        ("add/compass:exact_sum", "'exact_sum': no such name. Did you mean 'exact_sums'?"),
    ],
)
def test_an_unknown_reading_is_refused_by_name(text, said):
    with pytest.raises(UnsupportedError, match=r"--op-reading=") as caught:
        with_readings(SESSION.library, [text])
    assert said in str(caught.value)


@pytest.mark.parametrize("narrow", [False, True])
def test_a_float32_ratio_is_found_on_float64_platforms(narrow, op="conv2d"):
    """TensorFlow Lite forms the ratio of convolutions in float64: a rule that forms it in float32 is off by many units."""

    def rule(request):
        made = default_parameters(request)
        x, y, (weight, *_) = made.inputs["x"], made.outputs["y"], made.constants.values()
        ratio = x.scale * weight.params.scale / y.scale
        if narrow:
            ratio = (x.scale.float() * weight.params.scale.float() / y.scale.float()).double()
        fraction, exponent = torch.frexp(ratio)
        mantissa = torch.round(fraction * 2.0**31)
        if made.rescale is None or made.rescale.variant not in ("q31_half_up", "q31_double", "q31_half_up_in_8_lanes"):
            return made
        if bool((made.rescale.mantissa == 0).any()):  # too small for any shift
            return made
        return replace(made, rescale=replace(made.rescale, mantissa=mantissa, shift=31 - exponent.long()))

    forward = REGISTRY.built_in(op, "quantized", "tflite_ref").function
    found = failures(op, "tflite_ref", (rule, forward), ("parameters",))
    assert bool(found["parameters"]) is narrow


def test_a_multiplier_provided_for_a_mean_is_still_checked():
    own = REGISTRY.built_in("avg_pool2d", "quantized", "compass").function

    def rule(request):
        made = default_parameters(request)
        return replace(made, rescale=replace(made.rescale, mantissa=made.rescale.mantissa * 2))

    assert failures("avg_pool2d", "compass", (rule, own), ("parameters",))["parameters"]


def hidden(op, platform, *, off):
    """Return the shipped forward of *op* without its stages, *off* codes off in its first element."""
    own = REGISTRY.built_in(op, "quantized", platform).function

    def quantized(*operands, parameters, **named):
        codes, out = own(*operands, parameters=parameters, **named).codes.clone(), parameters.outputs["y"]
        first = codes.view(-1)[:1]
        first += off if int(first.sum()) < out.qmax else -off
        return codes

    return quantized


@pytest.mark.parametrize("op", ["leaky_relu", "clip"])
@pytest.mark.parametrize("off", [0, 1])
def test_hidden_stages_do_not_excuse_wrong_codes(op, off):
    rule = REGISTRY.built_in(op, "quantize", "compass").function
    found = failures(op, "compass", (rule, hidden(op, "compass", off=off)))
    cases = len(cases_of(op, "compass"))
    assert not found["parameters"]
    assert not found["arithmetic"] if not off else len(found["arithmetic"]) > cases // 2


def last_bits(bits):
    """Drop *bits* of the multiplier, under a shift that many lower."""

    def change(rescale):
        fewer = torch.floor(rescale.mantissa / 2**bits + 0.5)
        return replace(rescale, mantissa=fewer, shift=rescale.shift - bits)

    return change


def scaled(by):
    """Multiply the multiplier: it is no longer an integer."""
    return lambda rescale: replace(rescale, mantissa=rescale.mantissa * by)


@pytest.mark.parametrize(
    ("op", "platform", "change"),
    [
        ("leaky_relu", "compass", lambda rescale: replace(rescale, mantissa=rescale.mantissa + 2)),
        ("clip", "compass", last_bits(8)),
        ("rms_norm", "compass", last_bits(8)),
        ("relu", "compass", scaled(1 + 1e-5)),
    ],
)
def test_a_multiplier_less_exact_than_the_platforms_fails(op, platform, change):
    """The shipped forward multiplies by it, so that no other check sees more than a code next to a tie."""
    rule = REGISTRY.built_in(op, "quantize", platform)
    own = default_parameters if rule is None else rule.function

    def changed(request):
        made = own(request)
        return made if made.rescale is None else replace(made, rescale=change(made.rescale))

    found = failures(op, platform, (changed, REGISTRY.built_in(op, "quantized", platform).function), ("parameters",))
    assert found["parameters"]
    assert found["parameters"][0].worst.tensor.startswith("multiplier")


@pytest.mark.parametrize(("variant", "twice"), [("q31_double", True), ("q31_single", False)])
def test_a_fixed_point_multiplier_must_equal_the_platforms_bitwise(variant, twice, op="conv1d", platform="tflite_ref"):
    """Under a shift that is one lower: the same number is right where the platform rounds once, another one is not."""
    rule = REGISTRY.built_in(op, "quantize", platform)
    own = default_parameters if rule is None else rule.function
    dropped, odd = last_bits(1), []

    def changed(request):
        made = own(request)
        odd.append(bool((made.rescale.mantissa % 2 == 1).any()))
        return replace(made, rescale=dropped(made.rescale))

    judged = {True: 0, False: 0}
    with REGISTRY.overridden(op, "quantize", changed, platform):
        for target, case in cases_of(op, platform):
            if target.scheme.activation.bits == 8:
                named = {**target.platform.requantize, "convolution": variant}
                other = replace(target, platform=target.platform.model_copy(update={"requantize": named}))
                (verdict,) = judge(Trial(other, case, SESSION.engine), ("parameters",))
                assert verdict.failing == (twice or odd[-1])
                judged[odd[-1]] += 1
    assert judged[True]
