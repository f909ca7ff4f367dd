"""Items of graphs of a few nodes: collected from files, judged, recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from quantizer.conformance.fusion import judging
from quantizer.conformance.fusion.planted import PLANTS
from quantizer.conformance.run.graph_items import CASES, _recorded, collect_graph
from quantizer.conformance.setup.options import Options
from quantizer.core.errors import SpecError
from quantizer.core.record import read_line
from quantizer.core.verdict import Verdict, failure, inconclusive

pytest.importorskip("onnx")
ROOT = Path(__file__).parents[2]
PLACE = "graph_specs/add_relu.yaml"


def states(**asked):
    return [*collect_graph(ROOT / PLACE, PLACE, Options(root=ROOT, **asked))]


def test_a_graph_has_one_item_for_each_platform():
    assert [state.node_id for state in states()] == [f"{PLACE}::add_relu-fusion-ort"]
    named = states(platforms=("compass", "tosa"))
    assert [state.name for state in named] == ["add_relu-fusion-compass", "add_relu-fusion-tosa"]
    assert not states(schemes=("w8a8",))


def test_an_engine_has_items_on_its_own_platforms_if_it_runs_several_nodes():
    assert [state.platform for state in states(engine="litert:xnnpack")] == ["xnnpack"]
    assert [state.platform for state in states(engine="onnxruntime")] == ["ort"]
    assert not states(engine="ncnn")


def test_a_right_graph_passes_and_counts_what_it_compared():
    (state,) = states()
    state.runner.once()
    record = read_line(state.record("passed").to_json(), "here")
    assert (record.kind, record.cases, record.outcome) == ("fusion", 2 * CASES, "passed")
    assert record.checks["fusion"].passed > record.cases
    assert state.ended(record) is None


def test_an_item_that_compares_nothing_is_left_out_with_the_reason(monkeypatch):
    undecided = [judging.Judged("the whole graph", inconclusive("fusion", "no operator relu"))]
    monkeypatch.setattr("quantizer.conformance.fusion.systems.judge_graph", lambda *asked: undecided)
    (state,) = states()
    with pytest.raises(pytest.skip.Exception, match="no operator relu"):
        state.runner.once()
    assert state.left_out == "no operator relu"
    assert state.record("skipped").gaps == ("no operator relu",)


def test_a_wrong_rewrite_fails_the_item_with_the_smallest_case(monkeypatch):
    plant = next(plant for plant in PLANTS if plant.graph == "add_relu")
    monkeypatch.setattr(judging, "own_rewrites", lambda spec: {plant.name: plant.rewrite})
    (state,) = states()
    with pytest.raises(pytest.fail.Exception) as told:
        state.runner.once()
    assert plant.name in str(told.value)
    assert "smallest: add_relu" in str(told.value)
    assert f"run again: pytest '{PLACE}::add_relu-fusion-ort'" in str(told.value)
    record = state.record("failed")
    assert record.checks["fusion"].failed
    assert record.failure.startswith(plant.name)


def test_a_record_has_no_calibrated_numbers():
    told = Verdict(
        "fusion", "inconclusive", reason="gives 'x' int8 scale 0.0039 zero point -128; the file has int8 scale 1.5"
    )
    assert _recorded(told).reason == "gives 'x' int8; the file has int8"
    assert _recorded(Verdict("fusion", "pass", ratio=0.25)).ratio == 0.0
    assert _recorded(failure("fusion", "wrong")).ratio > 1.0


def test_a_graph_that_cannot_be_read_is_named_with_its_place(tmp_path):
    path = tmp_path / "graph.yaml"
    path.write_text("graph: other\nsummary: x\n")
    with pytest.raises(SpecError, match="graph.yaml"):
        [*collect_graph(path, "graph.yaml", Options(root=tmp_path))]
