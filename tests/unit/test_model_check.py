"""`quantizer model check`: planted faults are found where they were planted, real architectures are judged at every edge."""

from __future__ import annotations

import json
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from model_zoo import SMALL, TORCHVISION, of_torchvision
from onnx import TensorProto, helper, numpy_helper

from quantizer.cli import main
from quantizer.conformance.models.bounds import enclosures
from quantizer.conformance.models.check import model_findings
from quantizer.core.library import load_library
from quantizer.ir.formats.onnx import from_model
from quantizer.ir.graph import Graph
from quantizer.numerics.deviates import deviates
from quantizer.reporting.model_page import model_page, summary
from quantizer.runtime.models.engines import OwnFloat, OwnIntegers, Values, model_engine
from quantizer.runtime.models.parts import Parts, parts_of, unquantized, with_constant_codes
from quantizer.runtime.onnx_model import load_onnx_graph
from quantizer.runtime.qdq import with_qdq
from quantizer.runtime.quantization import dispatch_graph, quantize_graph
from quantizer.runtime.sample_data import synthetic_batches
from quantizer.runtime.setting import Setting

pytest.importorskip("onnxruntime")
sys.path.insert(0, str(Path(__file__).parents[1] / "property"))  # for the graphs that are drawn there

from qdq_steps import drawn_case  # noqa: E402

ONNXRUNTIME = model_engine("onnxruntime", "ort")


def net() -> onnx.ModelProto:
    """Conv, Relu, MaxPool, Conv, Add, Sigmoid, MatMul."""
    shapes = {"w": (4, 3, 3, 3), "b": (4,), "v": (4, 4, 1, 1), "m": (4, 5)}
    constants = [
        numpy_helper.from_array(deviates(shape, (3, 0, place)).astype(np.float32), name)
        for place, (name, shape) in enumerate(shapes.items())
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("MaxPool", ["r"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p", "v"], ["d"], "second"),
        helper.make_node("Add", ["d", "p"], ["a"], "add"),
        helper.make_node("Sigmoid", ["a"], ["s"], "sigmoid"),
        helper.make_node("GlobalAveragePool", ["s"], ["g"], "mean"),
        helper.make_node("Flatten", ["g"], ["f"], "flat"),
        helper.make_node("MatMul", ["f", "m"], ["y"], "product"),
    ]
    ends = (
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
    )
    graph = helper.make_graph(nodes, "net", *ends, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


small = cache(lambda name: SMALL[name]())
"""The bytes of an architecture: training and export cost more than a check."""


def quantized() -> tuple[Graph, Values]:
    graph = from_model(net())
    batches = synthetic_batches(graph, 0, 2, 1)
    return with_qdq(quantize_graph(dispatch_graph(graph, "ort"), batches)), batches[0]


class Faulty(OwnFloat):
    """Our executor with a fault planted in one part."""

    def __init__(self, part: str, by: float) -> None:
        super().__init__()
        self.name, self.part, self.by = "faulty", part, by

    def _off(self, parts: Parts, values: Values) -> Values:
        edge = next(part.results[0] for part in parts.parts if part.name == self.part)
        off = values[edge].clone()
        off.reshape(-1)[3] += torch.tensor(self.by).to(off.dtype)
        return {**values, edge: off}

    def whole(self, parts: Parts, feeds: Values) -> Values:
        values = dict(feeds)
        for part in parts.parts:
            cut = parts.cut(part, values)
            made = self._run(cut, {name: values[name] for name in part.operands}, part.results)
            values |= self._off(parts, made) if part.name == self.part else made
        return values

    def alone(self, parts: Parts, edges: Values) -> Values:
        return self._off(parts, OwnFloat().alone(parts, edges))


@pytest.mark.parametrize("place", ["conv", "pool", "second", "add", "sigmoid", "mean", "product"])
def test_a_planted_two_step_fault_is_located(place: str) -> None:
    graph, feeds = quantized()
    findings, _ = model_findings(graph, feeds, (OwnFloat(), Faulty(place, 2)), "ort")
    assert findings.first is not None
    assert findings.first.name == place
    assert [(part.name, part.blamed) for part in findings.outside] == [(place, ("faulty",))]
    later = [part for part in findings.parts if part.differ and not part.parts_here]
    assert all(not part.blamed and not part.alone for part in later), "what inherits a difference is not blamed"
    assert f"first differ at {place}" in summary(findings)[0]


def test_a_correct_model_stays_inside_and_rounds_by_half_steps() -> None:
    graph, feeds = quantized()
    findings, _ = model_findings(graph, feeds, (OwnFloat(), OwnIntegers("ort")), "ort")
    assert not findings.outside
    assert not findings.inconclusive
    floats = [part.name for part in findings.parts if any(local.how for local in part.locals)]
    assert floats == ["relu"], "ort has no relu of its own; all others run on integers"
    findings, _ = model_findings(graph, feeds, (OwnFloat("float"), OwnIntegers("ort")), "ort")
    assert findings.float_edges
    assert max(part.apart for part in findings.parts if part.op == "QuantizeLinear") <= 0.5
    assert not findings.outside


class OneCodeOff(OwnIntegers):
    """The integers of a platform, one code of each result that they compute off by one: a frequent one, so in the middle."""

    name = "off"

    def alone(self, parts: Parts, edges: Values) -> Values:
        found = super().alone(parts, edges)
        computed = [
            name
            for part in parts.parts
            if self.integers(part)
            for name in part.results
            if not found[name].is_floating_point()
        ]
        return found | {name: self._off(found[name]) for name in computed}

    @staticmethod
    def _off(codes: torch.Tensor) -> torch.Tensor:
        off = codes.clone().reshape(-1)
        place = (off.long() - off.long().median()).abs().argmin()
        off[place] += 1 if off[place] < torch.iinfo(off.dtype).max - 1 else -1
        return off.reshape(codes.shape)


def check_on(platform: str, model: Path | onnx.ModelProto) -> None:
    """Our integers of a platform are blamed nowhere; one code off is blamed in every part that they compute.

    A platform that declares float32 sums in any order allows neighbours of some codes, where sums are long.
    """
    graph = from_model(model) if isinstance(model, onnx.ModelProto) else load_onnx_graph(model)
    batches = synthetic_batches(graph, 0, 2, 1)
    ready = with_qdq(quantize_graph(dispatch_graph(graph, platform), batches, Setting(bias=True)))
    findings, _ = model_findings(ready, batches[0], (OneCodeOff(platform), OwnIntegers(platform)), platform)
    assert all("builtin" not in part.blamed for part in findings.parts), summary(findings)
    computed = [
        part
        for part in findings.parts
        if part.quantized and part.op not in ("QuantizeLinear", "DequantizeLinear")
        if any(local.engine == "off" and not local.how for local in part.locals)
    ]
    assert computed
    blamed = ["off" in part.blamed for part in computed]
    enclosing = load_library().platforms[platform].enclosing is not None
    assert any(blamed) if enclosing else all(blamed), summary(findings)


@pytest.mark.parametrize(
    ("name", "platform"),
    [
        *(("digits", name) for name in sorted(load_library().platforms)),
        *(("decoder", name) for name in ("compass", "tflite_ref", "tosa")),
    ],
)
def test_builtin_codes_pass_on_every_platform_and_one_off_fails(name: str, platform: str) -> None:
    """Multipliers of 15 bits, two roundings and tables lay 0.5002 to 1.4 steps off, and were blamed."""
    check_on(platform, onnx.load_from_string(small(name)))


@pytest.mark.nightly
@pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed: the extra `models`")
@pytest.mark.parametrize("platform", sorted(load_library().platforms))
@pytest.mark.parametrize("name", TORCHVISION)
def test_architectures_pass_on_every_platform(tmp_path: Path, name: str, platform: str) -> None:
    (tmp_path / "model.onnx").write_bytes(of_torchvision(name, small=True))
    check_on(platform, tmp_path / "model.onnx")


@pytest.mark.parametrize("place", ["conv", "second", "add", "sigmoid", "mean", "product"])
def test_float_results_are_held_to_the_error_analysis(place: str) -> None:
    """Ten ulps of the largest result are outside for every operator here; the executor's own float32 is inside."""
    graph = from_model(net())
    feeds = synthetic_batches(graph, 1, 1, 1)[0]
    parts = parts_of(graph)
    values = {**feeds, **OwnFloat().whole(parts, feeds)}
    part = next(part for part in parts.parts if part.name == place)
    edge = part.results[0]
    found = enclosures(part, graph, {name: values[name] for name in part.operands})
    assert not isinstance(found, str)
    assert found[edge].outside(values[edge]).outside == 0
    exact, radius = found[edge].exact, found[edge].radius
    off = exact + 1.5 * radius + exact.abs() * 2.0**-22
    assert found[edge].outside(off).outside == exact.numel()
    assert bool((radius <= 200 * 2.0**-24 * exact.abs().max()).all()), "tight: a few last bits of a sum of 27 products"


def test_parts_contain_every_node_exactly_once() -> None:
    graph, feeds = quantized()
    parts = parts_of(graph)
    assert {"w#codes", "v#codes", "m#codes"} <= {
        name for name, t in with_constant_codes(graph).tensors.items() if t.is_constant
    }
    own = [node.name for part in parts.parts for node in part.nodes if node.op != "DequantizeLinear"]
    assert sorted(own) == sorted(node.name for node in graph.nodes if node.op != "DequantizeLinear")
    stripped, codes = unquantized(graph)
    assert not {"QuantizeLinear", "DequantizeLinear"} & stripped.operators
    real = OwnFloat().whole(parts_of(stripped), feeds)
    float_y = OwnFloat()._run(from_model(net()), feeds, ["y"])["y"]
    assert torch.allclose(real[stripped.outputs[0]], float_y)
    assert set(codes.values()) <= set(stripped.tensors) | set(graph.tensors)
    plain = parts_of(from_model(net()))
    assert [part.op for part in plain.parts][:2] == ["Conv", "MaxPool"]
    assert [node.op for node in plain.parts[0].nodes] == ["Conv", "Relu"]


INTEGER_SOFTMAX = {("Softmax", "onnxruntime:optimized")}
"""ONNX Runtime's quantized softmax looks exponentials up: some codes lie further off than float32 and half a step allow."""


def run(folder: Path, model: bytes, *arguments: str) -> tuple[int, dict[str, Any]]:
    path = folder / "model.onnx"
    path.write_bytes(model)
    code = main(["model", "check", str(path), "-o", str(folder / "out"), *arguments])
    return code, json.loads((folder / "out" / "findings.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("pair", [("builtin", "onnxruntime"), ("float", "builtin"), ("qdq", "onnxruntime:optimized")])
def test_small_architectures(
    tmp_path: Path, name: str, pair: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = run(tmp_path, small(name), "--engine", pair[0], "--engine", pair[1])
    said = capsys.readouterr().out
    blamed = {
        (part["op"], local["engine"])
        for part in found["parts"]
        for local in part["locals"]
        if local["verdict"] == "outside"
    }
    assert blamed <= INTEGER_SOFTMAX, said
    assert code == bool(blamed)
    assert not [part["op"] for part in found["parts"] if part["reason"]]
    page = (tmp_path / "out" / "model.html").read_text(encoding="utf-8")
    assert "http" not in page.replace("http-equiv", "")
    assert f"{pair[0]} and {pair[1]}" in page


@pytest.mark.parametrize("name", ["decoder", "lstm"])
def test_a_float_model_on_two_engines(tmp_path: Path, name: str) -> None:
    code, found = run(tmp_path, small(name), "--float", "--engine", "qdq", "--engine", "reference")
    assert code == 0
    assert not any(part["quantized"] for part in found["parts"])


def test_a_model_in_float_has_no_steps() -> None:
    """The distance from the float model was said to be 0 steps, of edges that have none."""
    graph = from_model(net())
    feeds = synthetic_batches(graph, 1, 1, 1)[0]
    findings, _ = model_findings(graph, feeds, (OwnFloat("float"), ONNXRUNTIME), "ort")
    apart = max(part.apart for part in findings.parts)
    assert 0 < apart < 1e-5
    assert (
        summary(findings)[0]
        == f"onnxruntime is at most {apart:.4g} from the float model, over {len(findings.parts)} edges."
    )


def test_a_cut_holds_one_operator_and_can_be_rerun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A scale of a cut is changed: ONNX Runtime then computes something else than the operands' own enclosure allows."""
    graph, feeds = quantized()
    findings, ran = model_findings(graph, feeds, (OwnFloat(), Faulty("second", 3)), "ort")
    from quantizer.commands.model import _written

    cuts = _written(tmp_path, findings, ran).cuts
    assert cuts == ("cuts/1-second",)
    folder = tmp_path / cuts[0]
    model = onnx.load(folder / "part.onnx")
    assert [node.op_type for node in model.graph.node].count("Conv") == 1
    assert [value.name for value in model.graph.input] == ["p#codes"]
    arguments = ["model", "check", str(folder / "part.onnx"), "--operands", str(folder / "operands.npz")]
    assert main([*arguments, "--engine", "qdq", "--engine", "onnxruntime"]) == 0
    assert "no engine lies outside an enclosure: 1 of 1 edges were judged" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--engine", "builtin"], "name two engines"),
        (["--engine", "builtin", "--engine", "onxruntime"], "no such engine of models"),
        (["--platform", "orr"], "ort"),
        (["--operands", "none.npz"], "none.npz"),
    ],
)
def test_invalid_model_check_arguments_are_refused(
    tmp_path: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(net(), path)
    assert main(["model", "check", str(path), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_names_are_text_on_the_page() -> None:
    graph, feeds = quantized()
    findings, _ = model_findings(graph.with_(name="<script>"), feeds, (OwnFloat(), OwnIntegers("ort")), "ort")
    assert "<script>" not in model_page(findings)


@pytest.mark.parametrize("seed", range(12))
def test_random_quantized_graphs_pass(seed: int) -> None:
    """Formats of 4, 8 and 16 bits: every edge of our float32, our integers and ONNX Runtime's float kernels is judged and inside."""
    case = drawn_case(seed, 3)
    assert case is not None
    feeds = {name: torch.from_numpy(np.asarray(values)) for name, values in case.feeds.items()}
    graph = from_model(case.model)
    for other in (OwnIntegers("ort"), ONNXRUNTIME):
        findings, _ = model_findings(graph, feeds, (OwnFloat(), other), "ort")
        assert not findings.outside, summary(findings)
        assert not findings.inconclusive


@pytest.mark.nightly
@pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed: the extra `models`")
@pytest.mark.parametrize("name", TORCHVISION)
@pytest.mark.parametrize("pair", [("qdq", "onnxruntime"), ("float", "builtin")])
def test_architectures_of_torchvision(tmp_path: Path, name: str, pair: tuple[str, str]) -> None:
    code, found = run(tmp_path, of_torchvision(name), "--engine", pair[0], "--engine", pair[1])
    assert code == 0
    assert not [part["name"] for part in found["parts"] if part["reason"]]
