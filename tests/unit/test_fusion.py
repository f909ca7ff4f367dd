"""Graphs of a few nodes: right rewrites and a real engine's fusions pass, bugs of two nodes fail, failures get smaller."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from quantizer.cli import main
from quantizer.conformance.fusion import graph_defects, judging
from quantizer.conformance.fusion.cases import build, cases
from quantizer.conformance.fusion.graph_defects import described
from quantizer.conformance.fusion.judging import composed, judge_graph, judge_rewrite, smallest
from quantizer.conformance.fusion.planted import PLANTS
from quantizer.conformance.fusion.rewrites import own_rewrites
from quantizer.core.defects import GRAPH_NAMES
from quantizer.core.dtypes import DTYPES
from quantizer.core.errors import EngineError, SpecError
from quantizer.core.graph_spec import load_graph_spec, shipped_graphs
from quantizer.core.library import load_library
from quantizer.ir.graph import Graph, Node, Tensor
from quantizer.runtime.models.engines import model_engine

onnxruntime = pytest.importorskip("onnxruntime")
ONNXRUNTIME, OPTIMIZED = "onnxruntime", "onnxruntime:optimized"
GRAPHS = shipped_graphs()
ROOT = Path(__file__).parents[2]
COUNT = 6
NARROW_COUNT = 16
"""Cases in which a bug with a condition as narrow as an engine's is met."""


@pytest.fixture(scope="module")
def sessions():
    return tuple(model_engine(name, "ort") for name in (ONNXRUNTIME, OPTIMIZED))


@pytest.mark.parametrize("name", GRAPHS)
def test_single_nodes_rewrites_and_the_fusing_engine_agree(name, sessions):
    found = [item for case in cases(GRAPHS[name], COUNT) for item in judge_graph(GRAPHS[name], case, "ort", *sessions)]
    assert not [str(item) for item in found if item.verdict.failing]
    passed = {item.what for item in found if item.verdict.status == "pass"}
    assert passed >= {"the whole graph", OPTIMIZED, *own_rewrites(GRAPHS[name])}


def test_a_declared_fused_defect_shows_in_its_graph(sessions):
    for defect in load_library().platforms["ort"].graph_defects:
        if onnxruntime.__version__ not in defect.versions:
            pytest.skip("another version than those in which it was seen")
        spec = GRAPHS[defect.graph]
        found = [item for case in cases(spec, 8) for item in judge_graph(spec, case, "ort", *sessions)]
        assert any(item.what == OPTIMIZED and item.verdict.status == "defect" for item in found)


def _conclusive(sessions):
    """Return a softmax for which float32 allows one code, and which shows the declared defect if the version has it."""
    spec = GRAPHS["softmax_scales"]
    found = {
        judging.judge_optimized(built, *sessions).status: built for built in (build(spec, c) for c in cases(spec, 8))
    }
    return found.get("defect") or found["pass"]


def test_a_fused_defect_of_another_version_excuses_nothing(sessions, monkeypatch):
    built = _conclusive(sessions)
    # Where VNNI is missing, a node's own defect comes first.
    monkeypatch.setattr(judging, "_known", lambda built, system: {})
    if onnxruntime.__version__ in load_library().platforms["ort"].graph_defects[0].versions:
        assert judging.judge_optimized(built, *sessions).reason.startswith("softmax_scale_truncated:")
    library = load_library()
    ort = library.platforms["ort"]
    others = [defect.model_copy(update={"versions": ["0.0"]}) for defect in ort.graph_defects]
    changed = {**library.platforms, "ort": ort.model_copy(update={"graph_defects": others})}
    monkeypatch.setattr(graph_defects, "load_library", lambda: replace(library, platforms=changed))
    assert judging.judge_optimized(built, *sessions).status != "defect"


@pytest.mark.parametrize("cause", ["kernel", "node"])
def test_a_declared_defect_excuses_only_its_own_errors(sessions, monkeypatch, cause):
    built = _conclusive(sessions)
    weights = built.graph.node("weights")
    fused = {weights.name: "declared: a fused kernel"} if cause == "kernel" else {}
    monkeypatch.setattr(judging, "_known", lambda built, system: {} if fused else {"beside": "declared: a node"})
    monkeypatch.setattr(judging, "known_where_fused", lambda built, system, platform: fused)

    class Wrong:
        name = OPTIMIZED

        def results(self, graph, feeds, wanted):
            made = sessions[0].results(graph, feeds, wanted)
            name = graph.outputs[0]
            return {**made, name: made[name] + 1}

    assert judging.judge_optimized(built, sessions[0], Wrong()).failing


@pytest.mark.parametrize("name", GRAPHS)
def test_a_declared_defect_of_a_node_excuses_later_edges(name, monkeypatch):
    (case, *_) = cases(GRAPHS[name], 1)
    built = build(GRAPHS[name], case)
    monkeypatch.setattr(judging, "known_defect", lambda trial, check: "declared: every node")
    known = judging._known(built, judging.chosen(ONNXRUNTIME))
    assert known
    assert known.keys() <= {edge for node in built.graph.nodes for edge in node.outputs}
    assert judging._behind(built.graph, known) & set(built.graph.outputs)
    assert not judging._behind(built.graph, built.graph.outputs) & set(built.graph.order[0].outputs)


@pytest.mark.parametrize("platform", ["ideal", "compass", "tosa"])
def test_graphs_agree_on_other_platforms(platform):
    spec = GRAPHS["conv_relu_shared"]
    found = [item for case in cases(spec, 1) for item in judge_graph(spec, case, platform)]
    assert {item.verdict.status for item in found} == {"pass"}


@functools.cache
def _known_runs(name):
    return [composed(build(GRAPHS[name], case), "ort") for case in cases(GRAPHS[name], NARROW_COUNT)]


def test_cases_have_tensors_of_equal_numbers_and_relus_above_their_lowest_code():
    found = {"scale": set(), "zero": set(), "relu": set()}
    for own in _known_runs("add_relu"):
        tensor = own.built.graph.tensor
        for part in ("scale", "zero"):
            found[part].add(float(tensor(f"x#{part}").data) == float(tensor(f"z#{part}").data))
        found["relu"].add(float(tensor("relu#zero").data) > -128)
    assert all(values == {True, False} for values in found.values())


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name.replace(" ", "_"))
def test_a_bug_of_two_nodes_fails(plant):
    wrong = (judge_rewrite(own, plant.rewrite) for own in _known_runs(plant.graph))
    assert any(verdict.failing and "does not run" not in verdict.reason for verdict in wrong)


@pytest.mark.parametrize("name", GRAPHS)
def test_correct_rewrites_pass_where_buggy_ones_fail(name):
    rights = own_rewrites(GRAPHS[name]).values()
    assert not any(judge_rewrite(own, right).failing for own in _known_runs(name)[::3] for right in rights)


def test_a_failure_has_fewer_nodes_and_smaller_sizes():
    spec, plant = GRAPHS["mul_add"], next(plant for plant in PLANTS if plant.graph == "mul_add")
    case = max(cases(spec, COUNT), key=lambda case: case.sizes["c"])

    def fails(candidate):
        return judge_rewrite(composed(build(spec, candidate), "ort"), plant.rewrite).failing

    found = smallest(spec, case, fails)
    assert fails(found)
    assert found.sizes["n"] == found.sizes["c"] == 1


def test_the_same_seed_gives_the_same_cases_and_another_one_others():
    spec = GRAPHS["pad_conv"]
    assert list(cases(spec, 3)) == list(cases(spec, 3)) != list(cases(spec, 3, seed=1))


def test_a_wrong_file_gets_each_error_with_its_place(tmp_path):
    path = tmp_path / "pair.yaml"
    path.write_text(
        "graph: other\nsummary: x\ndims: {n: {}}\ninputs: {x: [n]}\n"
        "nodes: {a: {op: Relu, reads: [y]}}\noutputs: [a]\nquantized: [[]]\n"
    )
    with pytest.raises(SpecError) as err:
        load_graph_spec(path)
    for said in ("the name of its file", "'y': no tensor before it", "'a' leaves the graph"):
        assert said in str(err.value)


def test_the_command_counts_and_names_unknown_graphs(capsys):
    assert main(["fusion", "mul_add", "--cases", "1"]) == 0
    assert "mul_add on ort:" in capsys.readouterr().out
    assert main(["fusion", "mul_ad"]) == 2
    assert "mul_add" in capsys.readouterr().err


def test_a_case_prints_its_graph_and_nodes():
    (case,) = cases(GRAPHS["mul_add"], 1)
    assert "mul_add[0]" in str(case)
    assert "until mul" in str(replace(case, nodes=("mul",)))


def test_an_engine_without_a_fusion_switch_runs_with_all_outputs(capsys):
    assert main(["fusion", "mul_add", "lstm_cell", "--engine", "onnx_reference", "--cases", "2"]) == 0
    said = capsys.readouterr().out
    assert "mul_add on float32_any_order:" in said
    assert "fail" not in said


def test_only_a_defect_of_an_earlier_node_excuses_a_wrong_edge(sessions, monkeypatch):
    class Wrong:
        name = ONNXRUNTIME

        def whole(self, parts, feeds):
            made = sessions[0].whole(parts, feeds)
            return {**made, "mul#codes": made["mul#codes"] + 1}

    built = build(GRAPHS["mul_add"], next(iter(cases(GRAPHS["mul_add"], 1))))
    assert judging.judge_optimized(built, Wrong(), sessions[1]).failing
    monkeypatch.setattr(judging, "_known", lambda built, system: {"mul#float": "declared: a product"})
    assert judging.judge_optimized(built, Wrong(), sessions[1]).status == "defect"
    monkeypatch.setattr(judging, "_known", lambda built, system: {"sum#float": "declared: what comes later"})
    assert judging.judge_optimized(built, Wrong(), sessions[1]).failing


@pytest.mark.parametrize("name", GRAPHS)
def test_a_case_that_is_made_smaller_stays_in_its_domains(name):
    spec = GRAPHS[name]
    found = [smallest(spec, case, lambda _: True) for case in cases(spec, 3)]
    assert all(judging._is_legal(spec, case) for case in found)
    assert all(judging._is_legal(spec, case) for case in cases(spec, 16))


def _described(op, **attrs):
    """Return what a predicate may name of an operator between the codes of a convolution and a sum."""
    numbers = {"scale": torch.tensor(0.5), "zero": torch.tensor(3), "high": torch.tensor(2.0)}
    real = [Tensor(name, (1, 2), dtype=DTYPES["float32"]) for name in ("x", "c", "d", "y", "e", "s")]
    codes = [Tensor(name, (1, 2), dtype=DTYPES["int8"]) for name in ("c_codes", "y_codes")]
    held = [Tensor(name, tuple(data.shape), dtype=DTYPES["float32"], data=data) for name, data in numbers.items()]
    nodes = (
        Node("conv", "Conv", ("x",), ("c",)),
        Node("q1", "QuantizeLinear", ("c", "scale", "zero"), ("c_codes",)),
        Node("d1", "DequantizeLinear", ("c_codes", "scale", "zero"), ("d",)),
        Node("node", op, ("d", "high"), ("y",), attrs),
        Node("q2", "QuantizeLinear", ("y", "scale", "zero"), ("y_codes",)),
        Node("d2", "DequantizeLinear", ("y_codes", "scale", "zero"), ("e",)),
        Node("sum", "Add", ("e", "x"), ("s",)),
    )
    graph = Graph("g", nodes, {t.name: t for t in (*real, *codes, *held)}, ("x",), ("s",))
    return described(graph, graph.node("node"))


def test_graph_predicates_know_parameters_neighbours_shapes_and_attributes():
    found = _described("MaxPool", pads=(1, 0))
    assert {name: found[name] for name in ("input_scale", "output_scale", "second", "third")} == {
        "input_scale": 0.5,
        "output_scale": 0.5,
        "second": 2.0,
        "third": 0.0,
    }
    assert (found["before"], found["after"]) == ("Conv", "Add")
    assert (found["shape"], found["pads"], found["axis"]) == ((1, 2), (1, 0), 0)
    assert found.keys() == {*GRAPH_NAMES}


def test_only_a_declared_defect_excuses_a_raising_engine(sessions, monkeypatch):
    built = build(GRAPHS["add_relu"], next(cases(GRAPHS["add_relu"], 1)))

    class Raises:
        name = ONNXRUNTIME

        def whole(self, parts, feeds):
            raise EngineError("it raised")

    monkeypatch.setattr(judging, "_known", lambda built, system: {})
    assert judging.judge_optimized(built, Raises(), sessions[1]).failing
    monkeypatch.setattr(judging, "_known", lambda built, system: {"edge": "declared: it raises"})
    assert judging.judge_optimized(built, Raises(), sessions[1]).status == "defect"


def test_each_defect_of_graphs_has_its_severity_graph_and_script():
    for platform in load_library().platforms.values():
        for defect in platform.graph_defects:
            assert defect.severity
            assert defect.graph in GRAPHS
            assert not defect.script or (ROOT / "examples" / "gallery" / defect.script).is_file()


def test_a_difference_is_judged_only_where_float32_allows_one_code(sessions):
    class Other:
        name = OPTIMIZED

        def results(self, graph, feeds, wanted):
            return {name: codes ^ 1 for name, codes in sessions[0].results(graph, feeds, wanted).items()}

    spec, plain = GRAPHS["matmul_add_relu"], sessions[0]
    built = [build(spec, case) for case in cases(spec, 8)]
    assert {judging.judge_optimized(one, plain, plain).status for one in built} == {"pass"}
    assert {judging.judge_optimized(one, plain, Other()).status for one in built} == {"fail", "inconclusive"}
