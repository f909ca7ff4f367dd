"""Where a platform's room has an oracle of a family, the codes that it gives are the only right ones."""

from dataclasses import replace

import pytest
from plugin_sandbox import failing, sandbox, target

from quantizer.conformance.checks import of_rooms
from quantizer.core.library import load_library
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
    found = of_rooms.oracle_of
    monkeypatch.setattr(of_rooms, "oracle_of", lambda *asked: replace(found(*asked), codes=f"{__name__}:largest"))
    assert "arithmetic" in failing(softmax(), 5)


def largest(asked):
    return asked.codes["x"] * 0 + asked.output.qmax
