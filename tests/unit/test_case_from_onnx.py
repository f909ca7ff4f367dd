"""`quantizer case from-onnx`: nodes of a model with its own scales and codes, judged, shrunk and replayed."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from warmed import Warmed

from quantizer.cli import main
from quantizer.conformance.model_cases import check_given
from quantizer.conformance.stored.files import read_replay
from quantizer.core.case import Case
from quantizer.core.errors import CaseError
from quantizer.ir.graph import Graph
from quantizer.numerics.deviates import deviates
from quantizer.runtime.models.engines import Session, Values
from quantizer.runtime.onnx_model import load_onnx_graph

pytest.importorskip("onnxruntime")

PLUGIN = '''
from quantizer.numerics import Parameters
from quantizer.ops import operator
import torch


@operator("conv2d", platform="ort")
def quantized(x, weight, bias=None, *, stride, padding, dilation, groups, parameters: Parameters):
    """Forget the zero point of the input."""
    sums = torch.nn.functional.conv2d(x.double(), weight.double(), None, stride, padding[:2], dilation, groups)
    ratio = parameters.inputs["x"].scale * parameters.constants["weight"].params.scale / parameters.outputs["y"].scale
    codes = torch.round(sums * ratio.reshape(1, -1, 1, 1)) + parameters.outputs["y"].zero_point
    return codes.clamp(parameters.outputs["y"].qmin, parameters.outputs["y"].qmax).long()
'''


def model(*, unsigned: bool = True, softmax: bool = False) -> onnx.ModelProto:
    """A QDQ convolution with a bias, its weights' scales by channel and no multiple of the largest weight; a softmax or a Det."""
    kind = np.uint8 if unsigned else np.int8
    zero = 131 if unsigned else 3
    codes = (deviates((6, 3, 3, 3), (1, 0, 0)) * 30).clip(-100, 100).astype(np.int8)
    scales = np.linspace(0.011, 0.019, 6, dtype=np.float32)
    constants = {
        "xs": np.float32(0.0173),
        "xz": kind(zero),
        "ys": np.float32(0.217),
        "yz": kind(zero + 5),
        "w": codes,
        "ws": scales,
        "wz": np.zeros(6, np.int8),
        "b": np.arange(-300, 300, 100, dtype=np.int32),
        "bs": scales * np.float32(0.0173),
        "bz": np.zeros(6, np.int32),
        "ps": np.float32(1 / 256),
        "pz": kind(0 if unsigned else -128),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bd"], axis=0),
        helper.make_node("Conv", ["xd", "wd", "bd"], ["c"], "stem", pads=[1, 1, 1, 1]),
        helper.make_node("QuantizeLinear", ["c", "ys", "yz"], ["cq"]),
        helper.make_node("DequantizeLinear", ["cq", "ys", "yz"], ["cd"]),
        helper.make_node("Softmax" if softmax else "Det", ["cd"], ["s"], "second", **({"axis": 1} if softmax else {})),
        helper.make_node("QuantizeLinear", ["s", "ps", "pz"], ["sq"]),
        helper.make_node("DequantizeLinear", ["sq", "ps", "pz"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 7, 7])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(values), name) for name, values in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(model(softmax=True), tmp_path / "net.onnx")
    np.savez(tmp_path / "x.npz", x=deviates((1, 3, 7, 7), (2, 0, 0)).astype(np.float32))
    return tmp_path


@pytest.mark.parametrize("unsigned", [True, False])
def test_a_right_convolution_is_green_on_onnxruntime_and_the_builtin_functions(
    place: Path, capsys: pytest.CaptureFixture[str], unsigned: bool
) -> None:
    onnx.save(model(unsigned=unsigned, softmax=True), place / "net.onnx")
    asked = ["case", "from-onnx", "net.onnx", "--node", "stem", "--data", "x.npz", "-o", "out"]
    assert main([*asked, "--engine", "builtin", "--engine", "onnxruntime"]) == 0
    shown = capsys.readouterr().out
    assert "engine onnxruntime, platform ort" in shown
    assert shown.count("stem                 conv2d") == 2
    assert "FAIL" not in shown
    case = read_replay(place / "out" / "onnxruntime-1-stem" / "case.json").case
    assert case.data.given["x"].scale == (float(np.float32(0.0173)),)
    assert case.data.given["x"].zero_point == (131 if unsigned else 3,)
    assert len(case.data.given["weight"].scale) == 6
    assert case.shapes["x"] == (1, 3, 7, 7)
    assert main(["case", "replay", "out/onnxruntime-1-stem/case.json", "--op-engine", "onnxruntime"]) == 0


def test_a_wrong_function_fails_is_shrunk_and_replayed(place: Path, warmed: Warmed) -> None:
    """In processes of their own: a plugin stays registered in the one that loads it."""
    (place / "wrong.py").write_text(PLUGIN)
    asked = ("case", "from-onnx", "net.onnx", "--data", "x.npz", "--op-plugins", "wrong.py", "-o", "out")
    done = warmed.run("quantizer", *asked, merged=True)
    assert done.returncode == 1, done.stdout
    shown = done.stdout
    assert shown.index("stem                 conv2d             FAIL arithmetic") < shown.index("second  ")
    for line in ("  worst       y[", "  expected    ", "  allowed     ", "  got         ", "  multiplier  "):
        assert line in shown
    case = read_replay(place / "out" / "builtin-1-stem" / "case.json").case
    assert np.prod(case.shapes["weight"]) < 6 * 27
    assert len(case.data.given["weight"].codes) == np.prod(case.shapes["weight"])
    replay = ("case", "replay", "out/builtin-1-stem/case.json")
    done = warmed.run("quantizer", *replay, "--op-plugins", "wrong.py", merged=True)
    assert done.returncode == 1, done.stdout
    assert "  worst       y[" in done.stdout
    assert main([*replay]) == 0, "our own function is right on the same case"


WORKER = """
import onnxruntime
NAME, VERSION, FORM = "my_sim", "0.1", "onnx-qdq"
OPERATORS = ["conv2d"]
def load(model, options):
    return onnxruntime.InferenceSession(model)
def run(session, feeds):
    (codes,) = session.run(None, dict(feeds))
    codes[:, 3:] = 7  # filters past the third
    return [codes]
"""


def test_rerun_commands_name_the_engine_as_given(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The lines to run again work as they stand. Operators that the engine does not name are not judged."""
    (place / "my sim.py").write_text(WORKER)
    engine = f"{sys.executable}:my sim.py"
    assert main(["case", "from-onnx", "net.onnx", "--data", "x.npz", "--engine", engine, "-o", "out"]) == 1
    shown = capsys.readouterr().out
    assert "no case: engine my_sim has no softmax" in shown
    for word in ("rerun", "replay"):
        (line,) = (line for line in shown.splitlines() if line.strip().startswith(f"{word}  "))
        assert main(shlex.split(line.split(maxsplit=1)[1])[1:]) == 1
        assert "outside their interval" in capsys.readouterr().out


def test_nodes_without_a_spec_or_with_unknown_names_are_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(model(), place / "net.onnx")
    for node, said in (("sten", "stem"), ("second", "Det")):
        assert main(["case", "from-onnx", "net.onnx", "--node", node, "-o", "out"]) == 2
        wrong = capsys.readouterr().err
        assert f"--node={node}" in wrong
        assert said in wrong
        assert wrong.count("\n") == 1
        assert not (place / "out").exists()


def test_a_case_that_contradicts_itself_is_refused(place: Path) -> None:
    assert main(["case", "from-onnx", "net.onnx", "--node", "stem", "-o", "out"]) == 0
    stored = read_replay(place / "out" / "builtin-1-stem" / "case.json").case.to_dict()
    stored["data"]["given"]["x"]["codes"][0] = 300
    with pytest.raises(CaseError, match=r"data\.given\.x: a code lies outside \[0, 255\]"):
        check_given(Case.from_dict(stored, "here"))


def test_loading_a_file_keeps_scales_of_small_constants(place: Path) -> None:
    nodes = load_onnx_graph(place / "net.onnx").nodes
    assert [node.op for node in nodes if node.reads[0] in ("w", "b")] == ["DequantizeLinear"] * 2


def test_a_correct_network_writes_nothing_and_lists_unchecked_nodes(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["case", "from-onnx", "net.onnx", "--data", "x.npz", "--engine", "onnxruntime", "-o", "out"]) == 0
    shown = capsys.readouterr().out
    assert "  stem                 conv2d             7 pass\n" in shown
    assert "no check fails: out is not written. --node NAME writes a node that passes.\n" in shown
    assert not (place / "out").exists()


def test_output_parameters_fixed_by_the_platform_must_match_the_file(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = model(softmax=True)
    (scale,) = [tensor for tensor in made.graph.initializer if tensor.name == "ps"]
    scale.CopyFrom(numpy_helper.from_array(np.float32(0.25), "ps"))
    onnx.save(made, place / "net.onnx")
    assert main(["case", "from-onnx", "net.onnx", "--data", "x.npz"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "no case" in line]
    wanted = "platform 'ort' gives 's' uint8 scale 0.00390625 zero point 0; the file has uint8 scale 0.25 zero point 0."
    assert line == f"  second               Softmax            no case: {wanted}"


def two_nodes() -> onnx.ModelProto:
    """A QDQ convolution whose real result is added to another tensor before it is quantized."""
    constants = {
        "xs": np.float32(0.0173),
        "xz": np.uint8(131),
        "zs": np.float32(0.031),
        "zz": np.uint8(120),
        "ys": np.float32(0.217),
        "yz": np.uint8(128),
        "w": (deviates((6, 3, 3, 3), (1, 0, 0)) * 30).clip(-60, 60).astype(np.int8),
        "ws": np.float32(0.0131),
        "wz": np.int8(0),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node("QuantizeLinear", ["z", "zs", "zz"], ["zq"]),
        helper.make_node("DequantizeLinear", ["zq", "zs", "zz"], ["zd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"]),
        helper.make_node("Conv", ["xd", "wd"], ["c"], "stem", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "zd"], ["s"], "sum"),
        helper.make_node("QuantizeLinear", ["s", "ys", "yz"], ["sq"]),
        helper.make_node("DequantizeLinear", ["sq", "ys", "yz"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, c, 7, 7]) for n, c in (("x", 3), ("z", 6))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(values), name) for name, values in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("node", [(), ("--node", "sum")])
def test_nodes_joined_by_float_values_are_judged_together(
    place: Path, capsys: pytest.CaptureFixture[str], node: tuple[str, ...]
) -> None:
    onnx.save(two_nodes(), place / "net.onnx")
    assert main(["case", "from-onnx", "net.onnx", *node, "--engine", "onnxruntime"]) == 0
    assert "  stem+sum             Conv+Add           pass optimized\n" in capsys.readouterr().out


def test_a_wrong_fused_pair_of_nodes_fails_and_is_written(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Session.results

    def wrong(self: Session, graph: Graph, feeds: Values, wanted: Sequence[str]) -> Values:
        made = right(self, graph, feeds, wanted)
        return {name: values.flip(-1) for name, values in made.items()}

    monkeypatch.setattr(Session, "results", wrong)
    onnx.save(two_nodes(), place / "net.onnx")
    assert main(["case", "from-onnx", "net.onnx", "--engine", "onnxruntime", "-o", "out"]) == 1
    shown = capsys.readouterr().out
    assert "  stem+sum             Conv+Add           FAIL optimized: 'sq'[0, 0, 0, 0]: code " in shown
    folder = place / "out" / "onnxruntime-1-stem-sum"
    assert [node.op for node in load_onnx_graph(folder / "part.onnx").order][-2:] == ["Add", "QuantizeLinear"]
    operands = np.load(folder / "operands.npz")
    assert sorted(operands) == ["xq", "zq"]
    # two columns are the fewest that can be in the wrong order; the weights need three channels
    assert {name: values.shape for name, values in operands.items()} == {"xq": (1, 3, 1, 2), "zq": (1, 6, 1, 2)}
    assert [int((operands[name] != zero).sum()) for name, zero in (("xq", 131), ("zq", 120))] == [0, 1]
    (again,) = [line.split("again: quantizer ")[1] for line in shown.splitlines() if "again: " in line]
    assert main(shlex.split(again)) == 1
    assert "  stem+sum             Conv+Add           FAIL optimized: " in capsys.readouterr().out


def test_an_engine_for_single_operators_skips_pairs_of_nodes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(two_nodes(), place / "net.onnx")
    assert main(["case", "from-onnx", "net.onnx"]) == 0
    assert "no case: its result 'c' is not quantized" in capsys.readouterr().out
    assert main(["case", "from-onnx", "net.onnx", "--node", "sum"]) == 2
    assert "'c' is not quantized" in capsys.readouterr().err
