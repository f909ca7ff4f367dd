"""Cases that differ in one thing: what a kernel that keeps results under too short a key gets wrong."""

from pathlib import Path

import pytest
import torch

from quantizer.conformance.generation.case_classes.one_difference import one_difference_cases
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.trials.trial import Trial
from quantizer.core.shapes import infer_shapes
from quantizer.ops import REGISTRY

SESSION = open_session(Options(root=Path.cwd()))


def target(op, scheme, platform):
    return next(t for t in SESSION.all_targets(SESSION.library.spec(op)) if t.id == f"{op}-{scheme}-{platform}")


@pytest.mark.parametrize("op", SESSION.library.specs)
def test_each_case_differs_from_the_first_in_one_respect(op):
    for found in map(one_difference_cases, SESSION.all_targets(SESSION.library.spec(op))):
        first = found[0]
        assert found[-1] == first
        for case in found[1:-1]:
            infer_shapes(SESSION.library.spec(op), case.shapes, case.attrs)
            changed = [
                *(name for name in case.attrs if case.attrs[name] != first.attrs[name]),
                *(name for name in case.ranges if case.ranges[name] != first.ranges[name]),
                *(["data"] if case.data != first.data else []),
                *(first.shapes.keys() - case.shapes.keys()),
            ]
            assert len(changed) == 1, (case.to_json(), changed)


def kept(function, key):
    """Return *function* as a table of its own, kept under `key(operands)`."""
    known = {}

    def run(x, *, parameters, **attrs):
        params = parameters.inputs["x"]
        name = key(params, attrs)
        if name not in known:
            known[name] = function(torch.arange(params.qmin, params.qmax + 1), parameters=parameters, **attrs)
        return known[name][x - params.qmin]

    return run


def failing(where, changed):
    with REGISTRY.overridden(where.spec.op, "quantized", changed, where.platform.platform):
        return [
            verdict.check
            for case in one_difference_cases(where)
            for verdict in judge(Trial(where, case, SESSION.engine))
            if verdict.failing
        ]


@pytest.mark.parametrize(
    ("op", "key"),
    [
        ("sigmoid", lambda x, _: float(x.scale)),
        ("gelu", lambda x, _: (float(x.scale), int(x.zero_point))),
        ("relu", lambda x, _: float(x.scale)),
    ],
)
def test_a_table_cached_under_an_incomplete_key_is_found(op, key):
    where = target(op, "a8", "ideal")
    forward = REGISTRY.built_in(op, "quantized", "ideal").function
    assert not failing(where, kept(forward, lambda *_: object()))
    assert failing(where, kept(forward, key))


def test_a_bias_kept_from_the_previous_call_is_found():
    where = target("fully_connected", "w8a8", "ideal")
    forward, known = REGISTRY.built_in("fully_connected", "quantized", "ideal").function, {}

    def run(x, weight, bias=None, *, parameters):
        name = weight.numpy().tobytes()
        if bias is not None:
            known[name] = bias
        return forward(x, weight, known.get(name, bias), parameters=parameters)

    assert failing(where, run)


@pytest.mark.parametrize(("op", "name", "digits"), [("pad", "value", 1), ("resize_nearest", "rounding", 5)])
def test_an_attribute_cached_under_an_incomplete_key_is_found(op, name, digits):
    where = [t for t in SESSION.all_targets(SESSION.library.spec(op)) if t.platform.platform == "ideal"]
    forward, known = REGISTRY.built_in(op, "quantized", "ideal").function, {}

    def run(x, *, parameters, **attrs):
        value = attrs[name]
        short = round(value, digits) if isinstance(value, float) else value[:digits]
        others = tuple((key, given) for key, given in attrs.items() if key != name)
        kept = known.setdefault((short, others, tuple(x.shape)), value)
        return forward(x, parameters=parameters, **{**attrs, name: kept})

    assert any(failing(one, run) for one in where)
