"""Exhaustive cases of all combinations of codes: their content, and that one wrong combination is found."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from quantizer.conformance.generation.builder import build_case, coverage, single_bin_choices, wanted_coverage
from quantizer.conformance.generation.case_classes.exhaustive import WIDTHS, exhaustive_cases
from quantizer.conformance.generation.case_classes.near_ties import near_ties
from quantizer.conformance.generation.case_classes.scaled import FARTHEST
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.core.shapes import infer_shapes
from quantizer.ops import REGISTRY

SESSION = open_session(Options(root=Path.cwd()))


def target(name):
    op = name.split("-")[0]
    return next(t for t in SESSION.all_targets(SESSION.library.spec(op)) if t.id == name)


@pytest.mark.parametrize(
    "name",
    ["sqrt-a16-ideal", "relu-a8-tflite_ref", "gelu-a4-ideal", "add-a8-ort", "div-a8s-compass", "less-a4-ideal"],
)
def test_every_combination_of_codes_occurs_once(name):
    where = target(name)
    found = exhaustive_cases(where)
    assert len(found) == len(WIDTHS)
    for case in found:
        infer_shapes(where.spec, case.shapes, case.attrs)
        codes = Trial(where, case, SESSION.engine).codes
        given = list(zip(*(tensor.reshape(-1).tolist() for tensor in codes.values()), strict=True))
        params = Trial(where, case, SESSION.engine).parameters.inputs.values()
        wanted = set(itertools.product(*(range(p.qmin, p.qmax + 1) for p in params)))
        assert set(given) == wanted
        assert len(given) == 2 ** (where.scheme.activation.bits * len(codes))
        assert max(abs(end) for span in case.ranges.values() for end in span) <= FARTHEST


def test_exhaustive_cases_have_widely_different_ranges():
    widths = [high - low for low, high in (case.ranges["x"] for case in exhaustive_cases(target("tanh-a8-ideal")))]
    assert max(widths) > 2**14 * min(widths)


@pytest.mark.parametrize(
    "name", ["conv2d-w8a8-ideal", "softmax-a8-ideal", "transpose-a8-ideal", "where-a8-ideal", "add-a16-ideal"]
)
def test_only_small_pointwise_operators_have_exhaustive_cases(name):
    assert exhaustive_cases(target(name)) == []


def one_off(where, wrong):
    """Return the operator's integer forward with one code more, or less, at the operands' codes *wrong*."""
    forward = REGISTRY.get(where.spec.op, "quantized", where.platform.platform)

    def run(*operands, parameters, **attrs):
        out = forward(*operands, parameters=parameters, **attrs)
        at = torch.stack([part == code for part, code in zip(operands, wrong, strict=True)]).all(dim=0)
        y = parameters.outputs["y"]
        return torch.where(at, torch.where(out < y.qmax, out + 1, out - 1), out)

    return run


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("sqrt-a16-ideal", (12_347,)),
        ("hard_swish-a16-ideal", (-3_001,)),
        ("maximum-a8-ideal", (77, 78)),
        ("add-a8-tflite_ref", (-19, 54)),
        ("mul-a8-torch_fbgemm", (201, 3)),
    ],
)
def test_one_wrong_combination_is_found(name, wrong):
    where = target(name)
    with REGISTRY.overridden(where.spec.op, "quantized", one_off(where, wrong), where.platform.platform):
        verdicts = [
            verdict
            for case in exhaustive_cases(where)
            for verdict in judge(Trial(where, case, SESSION.engine), ("arithmetic",))
        ]
    assert any(verdict.failing for verdict in verdicts)


@pytest.mark.parametrize("name", ["div-a8-ideal", "div-a16-ideal", "div-a8s-ideal", "div-a8_pow2-ideal"])
def test_tied_quotients_are_ties(name):
    where = target(name)
    for seed in range(8):
        trial = Trial(where, build_case(where, HashChoices(seed, {"data": "ties"})), SESSION.engine)
        defined = trial.y_hat[np.isfinite(trial.y_hat)]
        assert np.mean(np.fmod(np.abs(defined) * 2 / float(trial.output.scale), 2) == 1) >= 0.25


def test_a_division_by_reciprocals_is_found():
    """The product with the rounded reciprocal misses a quotient that is a tie."""
    where, found = target("div-a16-ideal"), set()

    def by_reciprocals(a, b, *, parameters):
        (first, second), out = parameters.inputs.values(), parameters.outputs["y"]
        top, bottom = torch.broadcast_tensors(a - first.zero_point, b - second.zero_point)
        ratio = float(first.scale) / (float(second.scale) * float(out.scale))
        value = top.double() * (1.0 / bottom.double()) * ratio
        codes = (torch.round(value.nan_to_num(0.0, 2.0**40, -(2.0**40))) + out.zero_point).long()
        return torch.where((bottom == 0) & (top == 0), 0, codes).clamp(out.qmin, out.qmax)

    with REGISTRY.overridden("div", "quantized", by_reciprocals, "ideal"):
        for seed in range(16):
            case = build_case(where, HashChoices(seed, {"data": "ties"}))
            found |= {v.check for v in judge(Trial(where, case, SESSION.engine), ("arithmetic",)) if v.failing}
    assert found == {"arithmetic"}


@pytest.mark.parametrize("op", ["slice", "conv1d", "conv_transpose2d", "split", "pad"])
def test_one_bin_choices_reach_each_structural_bin(op):
    for where in SESSION.all_targets(SESSION.library.spec(op)):
        saturates = where.platform.accumulator.overflow == "saturate"
        for entry in wanted_coverage(where.spec, where.platform):
            if entry.startswith("data=") or (saturates and entry == "tiles=split"):
                continue
            (chooser,) = single_bin_choices(where, entry)
            assert entry in coverage(where, build_case(where, chooser))


@pytest.mark.parametrize("name", ["reduce_sum-a16-ideal", "global_avg_pool2d-a16-ideal", "reduce_mean-a16-ideal"])
def test_float32_after_an_exact_sum_is_found(name):
    where = target(name)
    forward = REGISTRY.get(where.spec.op, "quantized", "ideal")

    def in_float32(x, *, parameters, **attrs):
        sums = where.spec.op == "reduce_sum"
        exact, (first,), out = (
            forward(x, parameters=parameters, **attrs),
            parameters.inputs.values(),
            parameters.outputs["y"],
        )
        axes = attrs.get("axes", (2, 3))
        total = (x - first.zero_point).sum(dim=axes, keepdim=attrs.get("keepdims", True))
        count = 1 if sums else x.numel() // max(total.numel(), 1)
        factor = (first.scale / (out.scale * count)).float()
        codes = torch.round(total.float() * factor).long() + out.zero_point
        return codes.clamp(out.qmin, out.qmax).reshape(getattr(exact, "codes", exact).shape)

    with REGISTRY.overridden(where.spec.op, "quantized", in_float32, "ideal"):
        found = {
            verdict.check
            for case in near_ties(where)
            for verdict in judge(Trial(where, case, SESSION.engine), ("arithmetic",))
            if verdict.failing
        }
    assert found == {"arithmetic"}
    assert not near_ties(target(name.replace("a16", "a8")))
