"""Graphs as one TOSA graph against a graph for each node, on the reference model."""

import pytest

from quantizer.cli import main
from quantizer.conformance.fusion.cases import cases
from quantizer.conformance.fusion.joined import judge_joined_graph
from quantizer.core.graph_spec import shipped_graphs
from quantizer.runtime.engines.catalogue import chosen
from quantizer.runtime.engines.external import ExternalEngine

pytest.importorskip("tosa_reference_model")
ts = pytest.importorskip("tosa_serializer")
from quantizer.platforms.tosa import joined  # noqa: E402 - it imports the serializer

GRAPHS = shipped_graphs()
REAL = ("conv_clip", "softmax_scales", "split_sum")
"""Graphs of which a node computes on real numbers on the platform."""


@pytest.fixture(scope="module")
def engine():
    made = ExternalEngine(chosen("tosa"))
    yield made
    made.close()


def verdicts(name, engine, count=2):
    graph = GRAPHS[name]
    return [item.verdict for case in cases(graph, count) for item in judge_joined_graph(graph, case, "tosa", engine)]


@pytest.mark.parametrize("name", sorted(set(GRAPHS) - set(REAL)))
def test_a_whole_graph_equals_its_single_nodes(name, engine):
    found = verdicts(name, engine)
    assert not [item.reason for item in found if item.failing]
    assert any(item.status == "pass" for item in found)


def wrongly(change):
    """Return how records are added where *change* makes another one of an operator, or None, which leaves it out."""
    right = joined.added

    def added(whole, job, record, places):
        if not isinstance(record, joined.Applied):
            return right(whole, job, record, places)
        if (changed := change(record)) is None:
            return places[record.inputs[0]]
        return right(whole, job, changed, places)

    return added


def _without_clamp(record):
    return None if record.op == ts.Op.CLAMP else record


def _of_one_operand(record):
    inputs = (record.inputs[0], record.inputs[0])
    return joined.Applied(record.value, record.op, inputs, record.attributes) if record.op == ts.Op.ADD else record


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("conv_relu_add", _without_clamp),
        ("conv_relu_shared", _without_clamp),
        ("add_relu", _of_one_operand),
    ],
)
def test_a_wrong_graph_is_red(name, change, engine, monkeypatch):
    monkeypatch.setattr(joined, "added", wrongly(change))
    assert any(item.failing for item in verdicts(name, engine, 8))


@pytest.mark.parametrize("name", REAL)
def test_a_graph_with_real_numbers_is_inconclusive(name, engine):
    assert {item.status for item in verdicts(name, engine)} == {"inconclusive"}


def test_the_command_judges_tosa(capsys):
    assert main(["fusion", "pad_conv", "--engine", "tosa", "--cases", "1"]) == 0
    assert capsys.readouterr().out == "pad_conv on tosa: 1 pass\n"
