"""The output of `quantizer engine new` runs unchanged."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from quantizer.cli import main
from quantizer.runtime.engines.skeletons import bodies, skeleton

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402


def test_the_worker_of_onnx_files_runs_codes(tmp_path: Path) -> None:
    file = tmp_path / "mine_worker.py"
    file.write_text(skeleton("mine", "onnx-qdq"))
    spec = importlib.util.spec_from_file_location("mine_worker", file)
    assert spec is not None
    assert spec.loader is not None
    worker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(worker)
    held = [
        numpy_helper.from_array(np.array(0.5, np.float32), "s"),
        numpy_helper.from_array(np.array(0, np.int8), "z"),
    ]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("QuantizeLinear", ["b", "s", "z"], ["y"]),
    ]
    ends = [[helper.make_tensor_value_info(name, TensorProto.INT8, [3])] for name in "xy"]
    model = helper.make_model(
        helper.make_graph(nodes, "g", *ends, held), opset_imports=[helper.make_opsetid("", 13)], ir_version=9
    )
    (codes,) = worker.run(worker.load(model.SerializeToString(), {}), {"x": np.array([-3, 0, 5], np.int8)})
    assert codes.tolist() == [0, 0, 5]


def test_every_form_that_the_page_lists_has_a_worker() -> None:
    page = (Path(__file__).parents[2] / "docs/engines.md").read_text()
    table = page.partition("| form |")[2].partition("\n\n")[0]
    rows = [row.split("|") for row in table.splitlines()[1:]]
    listed = {name for row in rows if len(row) > 1 for name in re.findall(r"`([\w-]+)`", row[1])}
    assert listed == bodies().keys()


@pytest.mark.parametrize(
    ("form", "platform"), [("npz", ""), ("onnx-qdq", ""), ("tflite", ""), ("tosa", "tosa"), ("onnx-qlinear", "ort")]
)
def test_the_command_for_a_new_worker_names_its_platform(form, platform, tmp_path, capsys):
    assert main(["engine", "new", "mine", "--form", form, "-o", str(tmp_path / "mine.py")]) == 0
    assert capsys.readouterr().out.strip().endswith(f"mine.py --op-platform={platform}" if platform else "mine.py")
