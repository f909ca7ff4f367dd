"""Oracles: which functions may be the oracle of a new operator, and that they judge it."""

from __future__ import annotations

import pytest
import torch
from plugin_sandbox import failing, open_library, sandbox, target, write

from quantizer.core.errors import SpecError
from quantizer.core.library import load_library
from quantizer.ops import load_built_ins
from quantizer.plugins.oracle import oracle_function

X = torch.tensor([-2.0, -0.5, 0.0, 0.25, 3.0], dtype=torch.float64)


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with sandbox():
        yield


def spec_with(oracle, op="add", **changes):
    load_built_ins()
    return load_library().specs[op].model_copy(update={"oracle": oracle, **changes})


def unary(oracle):
    spec = spec_with(oracle)
    return spec.model_copy(update={"inputs": {"x": spec.inputs["a"]}, "op": "unary"})


@pytest.mark.parametrize(
    ("oracle", "wanted"),
    [
        ("torch.sin", torch.sin),
        ("torch.nn.functional.gelu", torch.nn.functional.gelu),
        ("torch.special.expit", torch.sigmoid),
        ("numpy.sin", torch.sin),
        ("numpy.abs", torch.abs),
    ],
)
def test_an_oracle_computes_in_the_type_of_its_operands(oracle, wanted):
    function = oracle_function(unary(oracle))
    assert function is not None
    found = function(x=X)
    assert found.dtype == torch.float64
    assert float((found - wanted(X)).abs().max()) <= 2.0**-52


@pytest.mark.parametrize(("oracle", "attrs"), [("onnx.Sin", {}), ("onnx.LeakyRelu", {"alpha": 0.5})])
def test_an_operator_of_onnx_is_an_oracle(oracle, attrs):
    pytest.importorskip("onnx")
    spec = unary(oracle)
    domain = load_library().specs["argmax"].attrs["axis"]
    function = oracle_function(spec.model_copy(update={"attrs": dict.fromkeys(attrs, domain)}))
    assert function is not None
    wanted = torch.nn.functional.leaky_relu(X, 0.5) if attrs else torch.sin(X)
    assert float((function(x=X, **attrs) - wanted).abs().max()) <= 2.0**-24


def test_an_oracle_gets_operands_in_order_and_attributes_by_name():
    spec = spec_with("torch.sub", attrs={"alpha": load_library().specs["argmax"].attrs["axis"]})
    function = oracle_function(spec)
    assert function is not None
    assert torch.equal(function(b=X, a=2 * X, alpha=3), -X)


@pytest.mark.parametrize(
    ("oracle", "said"),
    [
        ("torch.load", "no such function"),
        ("torch.save", "no such function"),
        ("numpy.memmap", "no such function"),
        ("numpy.fromfile", "no such function"),
        ("numpy.genfromtxt", "no such function"),
        ("torch.__import__", "no such function"),
        ("torch.os.system", "'torch.os' holds no oracles"),
        ("os.system", "'os' holds no oracles"),
        ("torch.hub.load", "'torch.hub' holds no oracles"),
        ("numpy.ndarray", "no such function"),
        ("torch.nn.functional.relux", "Did you mean 'relu'"),
        ("torch.pi", "no such function"),
        ("sin", "'' holds no oracles"),
    ],
)
def test_anything_else_is_refused(oracle, said):
    with pytest.raises(SpecError, match=said):
        oracle_function(unary(oracle))


def test_a_spec_without_oracle_calls_none():
    assert oracle_function(unary(None)) is None
    assert oracle_function(unary("none")) is None


SPEC = """
    op: plugin_copy
    version: "1.0"
    summary: A copy.
    dims:
      shape: {type: shape, rank: [1, 2], min: 1, max: 6}
    inputs:
      x: {axes: shape}
    outputs:
      y: {}
    shape:
      y: shape
    error_model: {kind: movement}
    quantization: {family: movement, outputs: {y: same_as(x)}}
    tiling:
      "*": {rule: independent}
"""
PLUGIN = """
    import torch
    from quantizer.ops import operator

    @operator("plugin_copy")
    def reference(x):
        return x * 2

    @operator("plugin_copy")
    def quantized(x, *, parameters):
        return x
"""


@pytest.mark.parametrize(("oracle", "fails"), [("\noracle: torch.positive\n", True), ("", False)])
def test_an_oracle_judges_the_plugins_own_reference(tmp_path, oracle, fails):
    from textwrap import dedent

    spec = write(tmp_path, "specs/plugin_copy.yaml", dedent(SPEC) + oracle, header=False)
    library = open_library(write(tmp_path, "own_copy.py", PLUGIN, header=False), specs=(spec,))
    assert ("float" in failing(target(library, "plugin_copy", "a8", "ideal"), 10)) is fails


def test_builtin_references_ignore_the_oracle_of_their_spec(tmp_path):
    wrong = target(open_library(), "add", "a8", "ideal")
    spec = wrong.spec.model_copy(update={"oracle": "torch.sub"})
    assert failing(type(wrong)(spec, wrong.scheme, wrong.platform), 3) == {}
