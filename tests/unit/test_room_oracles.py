"""Where a platform's room has an oracle of a family, the codes that it gives are the only right ones."""

from dataclasses import replace

import pytest
from plugin_sandbox import failing, sandbox, target

from quantizer.conformance.checks import room_oracles
from quantizer.core.library import load_library
from quantizer.core.rooms import Oracle
from quantizer.numerics.qparams import Staged
from quantizer.ops import REGISTRY, load_built_ins


@pytest.fixture(autouse=True)
def alone():
    load_built_ins()
    with sandbox():
        yield


def softmax():
    return target(load_library(), "softmax", "a8", "ort")


def test_one_code_beside_the_oracle_fails():
    own = REGISTRY.get("softmax", "quantized", "ort")

    def beside(x, *, parameters, axis):
        codes = own(x, parameters=parameters, axis=axis).codes.clone()
        codes.view(-1)[0] += 1 if codes.view(-1)[0] < parameters.outputs["y"].qmax else -1
        return Staged(codes, {})

    assert failing(softmax(), 5) == {}
    with REGISTRY.overridden("softmax", "quantized", beside, "ort"):
        assert "arithmetic" in failing(softmax(), 5)


def test_the_oracle_alone_decides(monkeypatch):
    found = room_oracles.oracle_of
    monkeypatch.setattr(room_oracles, "oracle_of", lambda *asked: replace(found(*asked), codes=f"{__name__}:largest"))
    assert "arithmetic" in failing(softmax(), 5)


def largest(asked):
    return asked.codes["x"] * 0 + asked.output.qmax


def test_what_an_oracle_grants_widens_accuracy_and_nothing_else(monkeypatch):
    monkeypatch.setattr(
        room_oracles, "oracle_of", lambda *_: Oracle("addition", f"{__name__}:nothing", lost=f"{__name__}:ten")
    )
    own = REGISTRY.get("add", "quantized", "ideal")

    def shifted(a, b, *, parameters):
        out = parameters.outputs["y"]
        return (own(a, b, parameters=parameters) + 9).clamp(out.qmin, out.qmax)

    with REGISTRY.overridden("add", "quantized", shifted, "ideal"):
        found = failing(target(load_library(), "add", "a8", "ideal"), 5)
    assert "arithmetic" in found and "accuracy" not in found


def nothing(asked):  # noqa: ARG001 - as an oracle is called
    return None


def ten(asked):  # noqa: ARG001 - as an oracle is called
    return 10.0
