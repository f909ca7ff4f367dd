"""The commands of docs/models.md, run in order, print the output that the page shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from followed import follow
from onnx import TensorProto, helper, numpy_helper
from warmed import Warmed

from quantizer.numerics.deviates import deviates

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def net() -> onnx.ModelProto:
    """Return the QDQ model of the page: a convolution `stem`, and a softmax whose output scale is 0.0039."""
    constants = {
        "xs": np.float32(0.05),
        "xz": np.uint8(128),
        "w": (deviates((10, 3, 1, 1), (1, 0, 0)) * 30).clip(-100, 100).astype(np.int8),
        "ws": np.float32(0.02),
        "wz": np.int8(0),
        "ys": np.float32(0.1),
        "yz": np.uint8(128),
        "ps": np.float32(0.0039),
        "pz": np.uint8(3),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"]),
        helper.make_node("Conv", ["xd", "wd"], ["c"], "stem"),
        helper.make_node("QuantizeLinear", ["c", "ys", "yz"], ["cq"]),
        helper.make_node("DequantizeLinear", ["cq", "ys", "yz"], ["cd"]),
        helper.make_node("Softmax", ["cd"], ["s"], "Softmax", axis=-1),
        helper.make_node("QuantizeLinear", ["s", "ps", "pz"], ["sq"]),
        helper.make_node("DequantizeLinear", ["sq", "ps", "pz"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(values), name) for name, values in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the files that the page's commands read."""
    pytest.importorskip("onnxruntime")
    onnx.save(net(), tmp_path / "net.onnx")
    np.savez(tmp_path / "x.npz", x=deviates((1, 3, 16, 16), (2, 0, 0)).astype(np.float32))
    return tmp_path


SLOW = "quantizer fusion --platform"
"""Every graph on two platforms: most of a minute."""


def test_commands_print_the_output_on_the_page(folder: Path, warmed: Warmed) -> None:
    assert follow(PAGE, folder, warmed, without=SLOW) == 6
    assert (folder / "out" / "model.html").is_file()
    assert (folder / "stem" / "builtin-1-stem" / "case.json").is_file()


@pytest.mark.nightly
def test_every_graph_is_judged_on_two_platforms_as_the_page_says(folder: Path, warmed: Warmed) -> None:
    assert follow(PAGE, folder, warmed) == 7
