"""Plugins whose rule remembers the data of a case: functions correct only for these data fail."""

import dataclasses
from pathlib import Path

import pytest
import torch

from quantizer.conformance.failures.message import describe
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


def grid(params):
    return {"scale": params.scale.tolist(), "zero point": params.zero_point.tolist()}


def key_without(parameters, named, lacks):
    """Return everything that decides a result, except for one thing."""
    tensors = {name: v for name, v in named.items() if isinstance(v, torch.Tensor)}
    found = named | {name: v.flatten().tolist() for name, v in tensors.items()}
    found |= {f"shape of {name}": v.shape for name, v in tensors.items()}
    for name, params in {**parameters.inputs, **parameters.outputs}.items():
        found |= {f"{what} of {name}": value for what, value in grid(params).items()}
    for name, constant in parameters.constants.items():
        found[f"scale of {name}"] = constant.params.scale.tolist() if name != lacks else None
    if lacks in ROUGH:
        return ROUGH[lacks](found)
    found.pop(lacks)
    return str(found)


def in_no_order(found):
    """Return a key that is the same for operands in turns."""
    return str(sorted(map(str, (found.pop("a"), found.pop("b")))) + [found])


def rounded(found):
    """Return a key of scales with two digits."""
    return str({name: f"{v:.2g}" if name.startswith("scale of") else v for name, v in found.items()})


ROUGH = {"the order of operands": in_no_order, "digits of scales": rounded}
LACKS = (
    ("relu", "zero point of x"),
    ("leaky_relu", "slope"),
    ("elu", "alpha"),
    ("fully_connected", "weight"),
    ("mul", "zero point of y"),
    ("minimum", "scale of a"),
    ("maximum", "scale of y"),
    ("resize_nearest", "mode"),
    ("add", "b"),
    ("abs", "shape of x"),
    ("sub", "the order of operands"),
    ("relu", "digits of scales"),
)
"""Operators, and what the key of their last result lacks."""


def plugin(op, forward):
    """Return the context in which *forward*(parameters=..., **operands and attributes) is a plugin's function."""
    own = REGISTRY.find(op, "quantized", ("ideal",))
    return Plugin(op, [dataclasses.replace(own, function=forward, version=(1 << 30,), origin="a plugin")])


def red(op, cases=24, place="ideal"):
    """Return whether `repeat` fails on one of some cases."""
    return any(v.failing for _, v in judged(op, cases, place))


def judged(op, cases, place="ideal"):
    """Yield some trials with their verdict of `repeat`."""
    targets = SESSION.all_targets(SESSION.library.spec(op))
    target = next(t for t in targets if t.platform.platform == place)
    seeds = (HashChoices(seed, {"data": "random"}) for seed in range(cases))
    trials = (Trial(target, build_case(target, chooser), SESSION.engine) for chooser in seeds)
    yield from ((trial, v) for trial in trials for v in judge(trial, ("repeat",)))


@pytest.mark.parametrize(("op", "lacks"), LACKS)
@pytest.mark.parametrize("complete", [False, True])
def test_a_function_that_keeps_its_last_result_under_an_incomplete_key_fails(op, lacks, complete):
    own, last = REGISTRY.find(op, "quantized", ("ideal",)).function, {}

    def forward(*, parameters, **named):
        key = key_without(parameters, named, lacks) + complete * str((parameters, named))
        if key not in last:
            last.clear()
            last[key] = own(parameters=parameters, **named)
        return last[key].clone()

    with plugin(op, forward):
        assert red(op, 4 if complete else 24) is not complete


@pytest.mark.parametrize(
    ("op", "lacks", "said"),
    [
        ("leaky_relu", "slope", "differs in attribute slope"),
        ("abs", "shape of x", "differs in the shape of x"),
        ("minimum", "scale of a", "differs in the range of a"),
        ("fully_connected", "weight", "differs in the data of weight"),
    ],
)
def test_a_failure_beside_a_case_names_the_difference_and_no_numbers_of_the_case(op, lacks, said):
    """The worst element belongs to the other case, so the operands of this case do not explain it."""
    own, last = REGISTRY.find(op, "quantized", ("ideal",)).function, {}

    def forward(*, parameters, **named):
        key = key_without(parameters, named, lacks)
        if key not in last:
            last.clear()
            last[key] = own(parameters=parameters, **named)
        return last[key].clone()

    with plugin(op, forward):
        trial, verdict = next((t, v) for t, v in judged(op, 24) if v.failing)
        text = describe("an item", trial.case, trial, [verdict], rerun="", replay="")
    assert said in verdict.reason
    assert "    code " not in text


STALE = {
    "relu": lambda r: (r.shapes, r.attrs, r.ranges["y"]),
    "add": lambda r: (r.shapes, r.ranges["a"], r.ranges["y"]),
    "mul": lambda r: (r.shapes, r.ranges["a"], r.ranges["b"]),
    "elu": lambda r: (r.shapes, r.ranges),
    "fully_connected": lambda r: (r.shapes, r.ranges, r.constants.get("bias", r.constants["weight"][0]).tolist()),
}
"""Operator -> the key under which a rule keeps its last numbers, without one thing that decides them."""


def red_rule(op, key_of, place="ideal"):
    """Return whether a rule fails that keeps its last numbers under *key_of*(request)."""
    rule, last = REGISTRY.find(op, "quantize", (place,)), {}
    rule = default_parameters if rule is None else rule.function

    def prepare(request):
        key = str(key_of(request))
        if key not in last:
            last.clear()
            last[key] = rule(request)
        return last[key]

    own = REGISTRY.find(op, "quantized", (place,))
    entries = [
        Registration(op, "quantize", prepare, (1 << 30,), place, "a plugin"),
        dataclasses.replace(own, version=(1 << 30,), platform=place, origin="a plugin"),
    ]
    with Plugin(op, entries):
        return red(op, place=place)


@pytest.mark.parametrize("op", STALE)
def test_a_rule_that_keeps_its_last_numbers_under_an_incomplete_key_fails(op):
    assert red_rule(op, STALE[op])


def test_a_rule_that_keeps_its_last_numbers_without_the_activation_fails():
    """On Compass a fused relu makes the output unsigned."""
    assert red_rule("add", lambda r: (r.shapes, r.ranges), "compass")
    assert not red_rule("add", lambda r: (r.shapes, r.ranges, r.activation), "compass")


@pytest.mark.parametrize("op", ["relu", "sigmoid", "add", "matmul", "softmax"])
def test_a_function_that_uses_what_its_rule_prepared_last_fails(op):
    """As a kernel with static state that two layers of a network would share."""
    rule = REGISTRY.find(op, "quantize", ("ideal",))
    rule, own = default_parameters if rule is None else rule.function, REGISTRY.find(op, "quantized", ("ideal",))
    last = []

    def prepare(request):
        last[:] = [rule(request)]
        return last[0]

    def forward(*, parameters, **named):
        return own.function(parameters=last[0], **named)

    entries = [
        Registration(op, "quantize", prepare, (1 << 30,), None, "a plugin"),
        dataclasses.replace(own, function=forward, version=(1 << 30,), platform=None, origin="a plugin"),
    ]
    with Plugin(op, entries):
        assert red(op)


class Plugin:
    """The built-in functions of an operator as a plugin that adds 1 to the codes of unseen data."""

    def __init__(self, op, entries=None, *, remembers=True):
        """entries: other functions."""
        self.seen = set()
        if entries is not None:
            self.entries = entries
            return
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
