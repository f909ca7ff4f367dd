"""Graphs as one model of an engine whose models are written operator by operator: LiteRT with and without its delegate."""

from dataclasses import replace

import pytest

from quantizer.cli import main
from quantizer.conformance.fusion import joined
from quantizer.conformance.fusion.cases import cases
from quantizer.conformance.fusion.joined import judge_joined_graph
from quantizer.core.graph_spec import shipped_graphs
from quantizer.platforms.litert import engine as litert
from quantizer.platforms.litert.model import Op
from quantizer.runtime.engines.catalogue import chosen
from quantizer.runtime.engines.external import ExternalEngine

pytest.importorskip("ai_edge_litert")
GRAPHS = shipped_graphs()
JOINED = tuple(
    "conv_relu_add conv_relu_shared mean_centred mul_add pad_conv pad_pool pool_requantize relu_pool".split()
)
"""Graphs of which LiteRT has each node, with the numbers that it takes."""


@pytest.fixture(scope="module")
def engine():
    made = ExternalEngine(chosen("litert"))
    yield made
    made.close()


def verdicts(name, platform, engine, count=2):
    graph = GRAPHS[name]
    return [item.verdict for case in cases(graph, count) for item in judge_joined_graph(graph, case, platform, engine)]


@pytest.mark.parametrize("platform", ["tflite_builtin", "xnnpack"])
@pytest.mark.parametrize("name", JOINED)
def test_a_whole_model_equals_its_single_nodes(name, platform, engine):
    found = verdicts(name, platform, engine)
    assert not [item.reason for item in found if item.failing]
    assert any(item.status == "pass" for item in found)


def _with_relu(op: Op) -> Op:
    """Fuse a relu that the graph does not have into each ADD."""
    return replace(op, options={**op.options, "fused_activation_function": 1}) if op.code == "ADD" else op


def test_a_wrong_fusion_is_red(engine, monkeypatch):
    right = litert.joined.model
    monkeypatch.setattr(litert.joined, "model", lambda ops, *rest: right([_with_relu(op) for op in ops], *rest))
    assert any(item.failing for item in verdicts("mul_add", "tflite_builtin", engine, 4))


def test_a_graph_that_litert_cannot_express_is_inconclusive(engine):
    assert {item.status for item in verdicts("softmax_scales", "tflite_builtin", engine)} == {"inconclusive"}


@pytest.mark.parametrize(
    ("name", "platform", "count", "number", "said"),
    [
        ("add_relu", "tflite_builtin", 9, 13, "'sum' fails alone: abort_on_large_scale_ratio: "),
        ("conv_relu_add", "xnnpack", 12, 18, "'conv' fails alone: scale_ratio_256_fails_allocation: "),
    ],
)
def test_a_node_with_a_declared_defect_is_excused(engine, name, platform, count, number, said):
    case = list(cases(GRAPHS[name], count))[number]
    (found,) = judge_joined_graph(GRAPHS[name], case, platform, engine)
    assert found.verdict.status == "defect"
    assert found.verdict.reason.startswith(said)


def test_an_undeclared_node_failure_leaves_the_graph_inconclusive(engine, monkeypatch):
    monkeypatch.setattr(joined, "declared", lambda trial, engine: None)
    case = list(cases(GRAPHS["conv_relu_add"], 12))[18]
    (found,) = judge_joined_graph(GRAPHS["conv_relu_add"], case, "xnnpack", engine)
    assert found.verdict.status == "inconclusive"
    assert "'conv' fails alone, where its operator is judged: " in found.verdict.reason


def test_the_command_judges_the_variant_that_was_named(capsys):
    assert main(["fusion", "pad_conv", "--engine", "litert:xnnpack", "--cases", "1"]) == 0
    assert capsys.readouterr().out == "pad_conv on xnnpack: 1 pass\n"
