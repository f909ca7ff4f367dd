"""A function that takes K trials in one call: called once, judged trial by trial, red if it mixes trials."""

import dataclasses
import functools
import re
from pathlib import Path

import pytest
import torch

from quantizer.conformance.faults.cases import gate_cases
from quantizer.conformance.generation.batches import RANGES, member, sibling
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.together import mixed_batch, run_together
from quantizer.conformance.trials.trial import Trial
from quantizer.core.errors import GraphError, PluginError
from quantizer.numerics.batched import of_batches, trials_of
from quantizer.numerics.float32_stages import to_codes
from quantizer.ops import REGISTRY, Registration, operator

SESSION = open_session(Options(root=Path(__file__).parents[2]))
OPS = ("conv2d", "add", "sigmoid")


def each(op, calls, change=lambda codes, k, parameters: codes):
    """Return a batched function that computes each trial as the built-in one does, then changes it."""
    own = REGISTRY.built_in(op, "quantized", ("ideal",)).function

    def quantized(*, parameters, **named):
        calls.append(len(parameters))
        made = []
        for k, provided in enumerate(parameters):
            one = {name: value[k] if isinstance(value, torch.Tensor) else value for name, value in named.items()}
            made.append(change(own(**one, parameters=provided), k, parameters))
        return torch.stack(made)

    return quantized


def batched(op, function):
    like = Registration(op, "quantized", of_batches(function), (1 << 30,), None, "a plugin", batched=True)
    return _registered(op, like)


class _registered:
    def __init__(self, op, entry, platform="ideal"):
        self.key, self.entry = (op, "quantized", platform), entry

    def __enter__(self):
        self.before = {key: list(known) for key, known in REGISTRY.entries.items()}
        REGISTRY.entries.setdefault(self.key, []).append(self.entry)

    def __exit__(self, *raised):
        REGISTRY.entries = self.before


def members(op, seed=3):
    """Return the trials of one structure on `ideal`."""
    target = next(t for t in SESSION.all_targets(SESSION.library.spec(op)) if t.platform.platform == "ideal")
    for start in range(0, 40, RANGES):
        trials = [Trial(target, member(target, seed, start + k), SESSION.engine) for k in range(RANGES)]
        if len({tuple(trial.case.shapes.items()) for trial in trials}) == 1 and trials[0].got.size > 1:
            return [Trial(target, trial.case, SESSION.engine) for trial in trials]
    raise AssertionError("no structure has equal shapes")


@pytest.mark.parametrize("op", OPS)
def test_batched_trials_are_one_call_with_the_same_codes(op):
    trials, calls = members(op), []
    wanted = [Trial(trial.target, trial.case, SESSION.engine).got for trial in trials]
    with batched(op, each(op, calls)):
        run_together(trials)
        assert calls == [RANGES]
        assert [trial.got.tolist() for trial in trials] == [codes.tolist() for codes in wanted]
        assert calls == [RANGES]
        assert not [v for trial in trials for v in judge(trial) if v.failing]


@pytest.mark.parametrize("op", OPS)
def test_a_fault_in_one_batched_trial_fails_only_that_trial(op):
    """An error in the second of several trials is reported only there."""

    def wrong(codes, k, parameters):
        if k != 1 or len(parameters) < RANGES:
            return codes
        codes = codes.clone()
        first = codes.view(-1)[0]
        codes.view(-1)[0] = first + (1 if first < parameters[k].outputs["y"].qmax else -1)
        return codes

    trials = members(op)
    with batched(op, each(op, [], wrong)):
        run_together(trials)
        red = [[v.check for v in judge(trial, ("arithmetic", "accuracy")) if v.failing] for trial in trials]
    assert red[1] and not red[0] and not any(red[2:])


MIXED = {
    "parameters of the first": lambda own: (
        lambda parameters, named: own(parameters=(parameters[0],) * len(parameters), **named)
    ),
    "trials in reverse": lambda own: lambda parameters, named: own(parameters=parameters, **named).roll(1, 0),
    "the first trial alone": lambda own: (
        lambda parameters, named: own(parameters=parameters, **named)[:1].expand(
            len(parameters),
            *own(
                parameters=parameters[:1], **{n: v[:1] if isinstance(v, torch.Tensor) else v for n, v in named.items()}
            ).shape[1:],
        )
    ),
}


@pytest.mark.parametrize("how", MIXED)
def test_a_function_that_mixes_trials_fails_and_names_the_trial(how):
    """One case is judged in a batch with another trial: by `repeat`, of every case that has more than one code."""
    make = MIXED[how](each("conv2d", []))
    trial = members("conv2d")[0]
    with batched("conv2d", lambda *, parameters, **named: make(parameters, named)):
        (verdict,) = judge(Trial(trial.target, trial.case, SESSION.engine), ("repeat",))
    assert verdict.failing
    assert re.search(r"of a batch of \d+ has other codes than alone", verdict.reason)


def one_of(own, parameters, named, k, **changes):
    """Return the codes of trial *k*, with its own tensors, or those of another trial that *changes* names."""
    mine = {n: v[changes.get(n, k)][None] if isinstance(v, torch.Tensor) else v for n, v in named.items()}
    return own(parameters=(parameters,), **mine)[0]


def of_the_first(field):
    """Take one field of the parameters from the first trial."""
    return lambda own, parameters, named, k: one_of(
        own, dataclasses.replace(parameters[k], **{field: getattr(parameters[0], field)}), named, k
    )


def first(name):
    return lambda own, parameters, named, k: one_of(own, parameters[k], named, k, **{name: 0})


def placed(order):
    """Give each trial the codes of the trial at *order*(its place, the number of trials)."""
    return lambda own, parameters, named, k: one_of(
        own, parameters[order(k, len(parameters))], named, order(k, len(parameters))
    )


SHARED = {
    "zero points of the inputs": ("relu", of_the_first("inputs")),
    "multipliers": ("matmul", of_the_first("rescale")),
    "tables": ("sigmoid", of_the_first("tables")),
    "weights": ("fully_connected", first("weight")),
    "biases": ("conv2d", first("bias")),
    "one of two buffers": ("mul", placed(lambda k, n: n - 1 - (n - 1 - k) % 2)),
    "one of four buffers": ("add", placed(lambda k, n: n - 1 - (n - 1 - k) % 4)),
    "the order of trials": ("sub", placed(lambda k, n: n - 1 - k)),
    "a rest after groups of eight": ("maximum", placed(lambda k, n: k - 1 if n > 8 and k >= n - n % 8 else k)),
}
"""What a batched function takes from a wrong trial -> an operator, and the function that does so."""


@pytest.mark.parametrize("what", SHARED)
def test_a_function_that_takes_one_thing_from_another_trial_fails(what):
    """The trials beside the case differ from it in ranges, constants and data, and stand in no periodic order."""
    op, wrong = SHARED[what]
    own = each(op, [])
    function = lambda *, parameters, **named: torch.stack(  # noqa: E731
        [wrong(own, parameters, named, k) for k in range(len(parameters))]
    )
    with batched(op, function):
        found = [judge(Trial(t.target, t.case, SESSION.engine), ("repeat",)) for n in range(4) for t in members(op, n)]
    assert any(verdict.failing for (verdict,) in found)


def products(off):
    """Return a batched matmul in float32. In a batch of several trials it adds two parts of each sum, and *off*."""

    def product(a, b, provided, *, alone):
        x, w = (
            (codes - provided.inputs[n].zero_point).float() * provided.inputs[n].scale.float()
            for n, codes in (("a", a), ("b", b))
        )
        half = 0 if alone else x.shape[-1] // 2
        made = x[..., :half] @ w[..., :half, :] + x[..., half:] @ w[..., half:, :]
        return to_codes(made, provided.outputs["y"], provided.platform) + (off if half else 0)

    return lambda a, b, *, parameters: torch.stack(
        [product(a[k], b[k], one, alone=len(parameters) == 1) for k, one in enumerate(parameters)]
    )


@pytest.mark.parametrize(("off", "status"), [(0, "pass"), (1, "fail")])
def test_float32_sums_of_a_batch_may_have_another_order_where_the_platform_promises_none(off, status):
    """Each result is judged by the interval of the sum in any order."""
    targets = SESSION.all_targets(SESSION.library.spec("matmul"))
    target = next(one for one in targets if one.id == "matmul-a8-torch_x86")
    case = next(c for t, c in gate_cases(SESSION, "matmul", "torch_x86") if c.shapes["a"] == (129, 257))
    like = Registration("matmul", "quantized", of_batches(products(off)), (1 << 30,), None, "a plugin")
    entry = dataclasses.replace(like, platform="torch_x86", batched=True, apart=True)
    with _registered("matmul", entry, "torch_x86"):
        several = mixed_batch(Trial(target, case, SESSION.engine))
        (verdict,) = judge(Trial(target, case, SESSION.engine), ("repeat",))
    assert any((codes != one.outcome.codes).any() for one, codes in several)
    assert verdict.status == status


def test_a_sibling_has_the_structure_of_its_case():
    for op in (*OPS, "gather", "where", "layer_norm"):
        trial = members(op)[0]
        case, other = trial.case, sibling(trial.target, trial.case, 0)
        assert (other.shapes, other.attrs, other.order, other.activation) == (
            case.shapes,
            case.attrs,
            case.order,
            case.activation,
        )
        assert other.ranges != case.ranges or other.data != case.data
        assert Trial(trial.target, other, SESSION.engine).got.shape == trial.got.shape


def test_a_right_batched_function_passes_repeat():
    for op in OPS:
        trial, calls = members(op)[0], []
        with batched(op, each(op, calls)):
            (verdict,) = judge(Trial(trial.target, trial.case, SESSION.engine), ("repeat",))
        assert verdict.status == "pass"
        assert sum(count > 1 for count in calls) == 1


def raises(codes, k, parameters):
    if len(parameters) > 1:
        raise MemoryError("no room")
    return codes


BROKEN = {"raises": raises, "floats": lambda codes, k, parameters: codes + 0.25 if len(parameters) > 1 else codes}


@pytest.mark.parametrize("how", BROKEN)
def test_a_function_failing_only_on_batches_gives_one_line(how):
    """Each single trial is correct."""
    trials = members("add")
    with batched("add", each("add", [], BROKEN[how])):
        ((first, verdict),) = run_together(trials)
        (alone,) = judge(Trial(first.target, first.case, SESSION.engine), ("repeat",))
        assert not [v for trial in trials for v in judge(trial, ("arithmetic", "accuracy")) if v.failing]
    assert first is trials[0]
    for found in (verdict, alone):
        assert found.failing
        assert "\n" not in found.reason
        assert "raised" in found.reason


@pytest.mark.parametrize("sizes", [{2}, {5, 7, 9}, {*range(32, 64)}])
def test_a_function_wrong_only_in_batches_of_some_sizes_fails(sizes):
    """`repeat` runs batches of several sizes, one a case."""
    wrong = lambda codes, k, parameters: codes + (len(parameters) in sizes)  # noqa: E731
    with batched("add", each("add", [], wrong)):
        found = [
            judge(Trial(t.target, t.case, SESSION.engine), ("repeat",)) for n in range(6) for t in members("add", n)
        ]
    red = [one.failing for (one,) in found]
    assert any(red)
    assert not all(red)


def test_batched_results_must_have_trials_on_the_first_axis():
    with pytest.raises(GraphError, match=r"returned shape \[2, 3\] for 3 trials: must begin with 3."):
        trials_of(torch.zeros(2, 3), 3)
    with pytest.raises(GraphError, match="returned int. Return a torch.Tensor."):
        trials_of(7, 1)


def test_only_integer_forwards_are_batched():
    with pytest.raises(PluginError, match="batched: must be a quantized function. Leave batched out."):
        operator("relu", kind="reference", batched=True)(lambda x: x)


def test_registering_a_batched_function_twice_gives_one_function():
    """A module that is imported again registers the same function, not another of the same version."""

    def quantized(x, *, parameters):
        return x

    assert of_batches(quantized) is of_batches(quantized)
    assert functools.wraps(quantized)(of_batches(quantized)).__wrapped__ is quantized
