"""Plugins whose rule remembers the data of a case: functions correct only for these data fail."""

import dataclasses
from pathlib import Path

import pytest
import torch

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.quantize import quantize
from quantizer.ops import REGISTRY, Registration

SESSION = open_session(Options(root=Path(__file__).parents[2]))
OPS = ("conv2d", "matmul", "add", "relu", "sigmoid", "softmax", "layer_norm", "max_pool2d", "concat", "div")
CASES = 6


KEPT_BY = {
    "all but a half": lambda x: (x.flatten()[: x.numel() // 2].tolist(),),
    "the last": lambda x: (x.flatten()[-1:].tolist(),),
    "all but the last": lambda x: (x.flatten()[:-1].tolist(),),
    "the sum": lambda x: (int(x.sum()),),
    "the ends": lambda x: (int(x.min()), int(x.max())),
    "values in any order": lambda x: (sorted(x.flatten().tolist()),),
    "a coarser value": lambda x: ((x // 8).float().mean().round(),),
    "nothing": lambda x: (),
    "the input alone": lambda x: (x.flatten().tolist(),),
}
"""What a cache keeps a result by, besides shape and parameters."""


@pytest.mark.parametrize("only_last", [False, True])
@pytest.mark.parametrize("what", KEPT_BY)
def test_a_function_caching_results_by_part_of_its_data_fails(what, only_last):
    op, kept = "relu", {}
    own = REGISTRY.find(op, "quantized", ("ideal",))

    def forward(x, *, parameters, **named):
        out = () if what == "the input alone" else parameters.outputs["y"]
        key = str((x.shape, parameters.inputs["x"], out, KEPT_BY[what](x)))
        if only_last and key not in kept:
            kept.clear()
        return kept.setdefault(key, own.function(x, parameters=parameters, **named)).clone()

    entry = dataclasses.replace(own, function=forward, version=(1 << 30,), origin="a plugin")
    target = next(t for t in SESSION.all_targets(SESSION.library.spec(op)) if t.id == "relu-a8-ideal")
    with Plugin(op, remembers=False):
        REGISTRY.entries[op, "quantized", "ideal"] = [entry]
        trials = (
            Trial(target, build_case(target, HashChoices(seed, {"data": "random"})), SESSION.engine)
            for seed in range(20)
        )
        assert any(v.failing for trial in trials for v in judge(trial, ("repeat",)))


class Plugin:
    """The built-in functions of an operator as a plugin that adds 1 to the codes of unseen data."""

    def __init__(self, op, *, remembers):
        self.seen = set()
        found = {kind: REGISTRY.find(op, kind, ("ideal",)) for kind in ("quantize", "quantized")}
        own = {kind: default_parameters if entry is None else entry.function for kind, entry in found.items()}

        def rule(request):
            made = own["quantize"](request)
            inputs, quantizer = made.inputs, request.platform.quantizer
            given = {name: values for name, values in request.samples.items() if name in inputs}
            self.seen = {c for n, v in given.items() for c in quantize(v, inputs[n], quantizer).flatten().tolist()}
            return made

        def forward(*, parameters, **named):
            made = own["quantized"](parameters=parameters, **named)
            codes = {code for name in parameters.inputs if name in named for code in named[name].flatten().tolist()}
            if not remembers or codes <= self.seen:
                return made
            return made + 1 if isinstance(made, torch.Tensor) else dataclasses.replace(made, codes=made.codes + 1)

        like = found["quantized"]
        self.entries = [
            Registration(op, "quantize", rule, (1 << 30,), None, "a plugin"),
            dataclasses.replace(like, function=forward, version=(1 << 30,), platform=None, origin="a plugin"),
        ]

    def __enter__(self):
        self.before = {key: list(known) for key, known in REGISTRY.entries.items()}
        for entry in self.entries:
            for platform in (None, "ideal"):
                REGISTRY.entries.setdefault((entry.op, entry.kind, platform), []).append(entry)

    def __exit__(self, *raised):
        REGISTRY.entries = self.before


def failing(op, *, remembers):
    """Return the checks that fail on a few cases."""
    target = next(t for t in SESSION.all_targets(SESSION.library.spec(op)) if t.platform.platform == "ideal")
    found = set()
    for seed in range(CASES):
        with Plugin(op, remembers=remembers):
            trial = Trial(target, build_case(target, HashChoices(seed, {"data": "random"})), SESSION.engine)
            found |= {v.check for v in judge(trial, ("arithmetic", "accuracy", "repeat")) if v.failing}
    return found


@pytest.mark.parametrize("op", OPS)
def test_a_function_correct_only_for_remembered_data_fails(op):
    assert failing(op, remembers=True) == {"repeat"}


@pytest.mark.parametrize("op", OPS)
def test_a_function_without_remembered_data_passes(op):
    assert failing(op, remembers=False) == set()
