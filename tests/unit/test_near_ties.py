"""Sums of products next to ties: they hit their aim, right functions pass, and kernels that round differently fail."""

from __future__ import annotations

import pytest
import torch

from quantizer.conformance.generation.case_classes.near_ties import near_ties
from quantizer.conformance.generation.hashing import integers
from quantizer.conformance.generation.near_sums import declared, near_sums
from quantizer.conformance.judging.dataset_assertions import hits_target
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.library import load_library
from quantizer.ops import REGISTRY, load_built_ins
from quantizer.runtime.engines.builtin import BuiltinEngine

LIBRARY = load_library()
load_built_ins()
CONVOLUTION = LIBRARY.spec("conv2d")
PLATFORMS = [
    name
    for name, known in sorted(LIBRARY.platforms.items())
    if "w8a8" in LIBRARY.schemes_for(CONVOLUTION, known) and not known.enclosing  # which allows any order of float32
]
OPS = ("conv2d", "fully_connected")


def target(op, platform, scheme="w8a8"):
    return Target(LIBRARY.spec(op), LIBRARY.schemes[scheme], LIBRARY.platforms[platform])


def multiplier(parameters, rank, axis=1):
    """Return the ratio of the provided scales, one for each channel, in float64."""
    (x,), weight, out = parameters.inputs.values(), parameters.constants["weight"].params, parameters.outputs["y"]
    ratio = x.scale * weight.scale / out.scale
    return ratio.reshape([-1 if i == axis else 1 for i in range(rank)]) if ratio.dim() else ratio


def fused_multiply_add(acc, ratio, zero):
    """The product is not rounded before the zero point is added."""
    return torch.round((acc.double() * ratio.float().double() + zero).float())


def rounded_twice(acc, ratio, zero):
    """To eight more places first, then to codes: floor of both."""
    return torch.floor((torch.floor(acc.double() * ratio * 256 + 0.5) + 128) / 256) + zero


def in_float32(acc, ratio, zero):
    """Sum, ratio and product in float32."""
    return torch.round(acc.float() * ratio.float()) + zero


def in_float64(acc, ratio, zero):
    """Multiply in float64 where the platform rounds the product to float32 or multiplies by few bits."""
    return torch.round(acc.double() * ratio) + zero


FAULTS = (fused_multiply_add, rounded_twice, in_float32, in_float64)


def planted(fault, original):
    def forward(x, weight, bias=None, *, parameters, **attrs):
        entry = REGISTRY.get(original, "accumulate", parameters.platform.platform)
        acc = entry(x, weight, bias, parameters=parameters, **attrs)
        out = parameters.outputs["y"]
        codes = fault(acc, multiplier(parameters, acc.dim()), out.zero_point)
        return codes.clamp(out.qmin, out.qmax).long()

    return forward


def has_effect(fault, parameters):
    """Return whether the fault changes a code of sums next to ties, exhaustively, without any data."""
    channels = parameters.constants["weight"].codes.shape[0]
    sums = near_sums(parameters, channels)
    out = parameters.outputs["y"]
    right = declared(parameters, sums, torch.zeros(channels).long())
    wrong = fault(torch.from_numpy(sums).long(), multiplier(parameters, 2, axis=0), out.zero_point)
    return bool((wrong.clamp(out.qmin, out.qmax).numpy() != right).any())


def trials(where):
    return [Trial(where, case, BuiltinEngine()) for case in near_ties(where)]


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("op", OPS)
def test_near_tie_cases_reach_their_target_and_builtins_pass(op, platform):
    found = trials(target(op, platform))
    assert found
    for trial in found:
        assert hits_target(trial)
        verdicts = judge(trial, ("parameters", "arithmetic", "accuracy", "exact"))
        assert {v.status for v in verdicts} <= {"pass", "inconclusive", "mistrusted", "defect"}, [
            str(v) for v in verdicts
        ]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("op", OPS)
def test_a_kernel_with_another_rounding_fails(op, platform, fault):
    where = target(op, platform)
    if not any(has_effect(fault, trial.parameters) for trial in trials(where)):
        with REGISTRY.overridden(op, "quantized", planted(fault, op), platform):
            assert not any(v.failing for t in trials(where) for v in judge(t, ("arithmetic",)))
        return
    with REGISTRY.overridden(op, "quantized", planted(fault, op), platform):
        assert any(v.failing for t in trials(where) for v in judge(t, ("arithmetic",)))


def test_a_platform_without_multipliers_has_no_near_tie_cases():
    """torch's batch_norm multiplies in float32 and provides no multiplier."""
    assert near_ties(target("batch_norm", "ideal"))
    assert not near_ties(target("batch_norm", "torch_x86"))


def test_a_fused_multiply_add_is_not_seen_by_random_data():
    """A fused multiply-add changes at most one code in 300,000, too few for random data."""
    where = target("conv2d", "ort")
    trial = trials(where)[0]
    channels = trial.parameters.constants["weight"].codes.shape[0]
    sums = integers(1, "sums", (channels, 20_000), -(1 << 20), 1 << 20)
    right = declared(trial.parameters, sums, torch.zeros(len(sums)).long())
    out = trial.parameters.outputs["y"]
    wrong = fused_multiply_add(torch.from_numpy(sums), multiplier(trial.parameters, 2, axis=0), out.zero_point)
    assert (wrong.clamp(out.qmin, out.qmax).numpy() != right).mean() < 1e-4
