"""Graphs as one program of torch's quantized functions, where a relu is part of the function before it."""

from collections import Counter

import pytest

from quantizer.cli import main
from quantizer.conformance.fusion.cases import build, cases
from quantizer.conformance.fusion.joined import judge_joined_graph
from quantizer.conformance.fusion.numbers import with_numbers_of
from quantizer.core.graph_spec import shipped_graphs
from quantizer.platforms.torch import joined
from quantizer.runtime.engines.catalogue import chosen
from quantizer.runtime.engines.external import ExternalEngine

GRAPHS = shipped_graphs()
PLATFORMS = ("torch_x86", "torch_fbgemm", "torch_qnnpack")
FUSED = ("add_relu", "conv_relu_add", "linear_relu_add", "matmul_add_relu")


@pytest.fixture(scope="module")
def engine():
    made = ExternalEngine(chosen("torch"))
    yield made
    made.close()


def verdicts(name, platform, engine, count=3):
    graph = GRAPHS[name]
    return [item.verdict for case in cases(graph, count) for item in judge_joined_graph(graph, case, platform, engine)]


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("name", FUSED)
def test_fused_functions_equal_their_single_nodes(name, platform, engine):
    found = verdicts(name, platform, engine)
    assert not [item.reason for item in found if item.failing]
    assert any(item.status == "pass" for item in found)


@pytest.mark.parametrize("name", FUSED)
def test_a_fused_function_without_its_relu_is_red(name, engine, monkeypatch):
    monkeypatch.setattr(joined, "SUFFIX", "")
    assert any(item.failing for item in verdicts(name, "torch_x86", engine))


def _before_any(parts, outputs):
    """Fuse a relu with the function before it, whoever else reads that."""
    return {n: part.wires["x"] for n, part in enumerate(parts) if part.made["kind"] == "relu" and "x" in part.wires}


def test_a_relu_fused_over_a_second_reader_is_red(engine, monkeypatch):
    monkeypatch.setattr(joined, "fused_relus", _before_any)
    assert any(item.failing for item in verdicts("conv_relu_shared", "torch_x86", engine))


def test_a_relu_fused_with_the_sum_after_it_is_red(engine, monkeypatch):
    right = joined.fused_relus

    def wrong(parts, outputs):
        return {**right(parts, outputs), **dict.fromkeys([-1], len(parts) - 1)}

    monkeypatch.setattr(joined, "fused_relus", wrong)
    assert any(item.failing for item in verdicts("linear_relu_add", "torch_x86", engine))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("conv_relu_shared", "torch fuses no relu with convolution: the sum before the relu is needed too"),
        ("concat_scales", "torch has no fused function for convolution, concat"),
        ("mul_add", "torch has no fused function for mul, add"),
    ],
)
def test_graphs_that_torch_does_not_fuse_are_inconclusive(name, reason, engine):
    (found,) = verdicts(name, "torch_x86", engine, 1)
    assert found.status == "inconclusive"
    assert reason in found.reason


def test_qnnpack_refuses_a_relu_that_leaves_one_code(engine):
    found = Counter(item.reason for item in verdicts("add_relu", "torch_qnnpack", engine, 9))
    assert found["QNNPACK takes no empty range of output codes"] == 1


def test_an_unsigned_relu_shares_parameters_with_its_operand():
    graph = with_numbers_of(build(GRAPHS["conv_relu_add"], next(cases(GRAPHS["conv_relu_add"], 1))), "torch_x86").graph
    conv, relu = (graph.node(f"{name}#quantize").inputs[1:] for name in ("conv", "relu"))
    assert conv == relu
    assert {graph.tensor(name).dtype.name for name in ("x#zero", "conv#zero", "relu#codes")} == {"uint8"}
    assert graph.tensor("w#codes").dtype.name == "int8"


def test_the_command_judges_the_variant_that_was_named(capsys):
    assert main(["fusion", "add_relu", "--engine", "torch:fbgemm", "--cases", "1"]) == 0
    assert capsys.readouterr().out == "add_relu on torch_fbgemm: 1 inconclusive, 1 pass\n"
