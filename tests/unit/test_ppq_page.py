"""The program in docs/ppq.md runs, with the results that the page shows."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from quantizer.numerics.deviates import deviates

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ppq.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def net() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "relu1"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "m"], ["y"], "classes"),
    ]
    shapes = {"w": (4, 3, 3, 3), "b": (4,), "m": (4, 5)}
    constants = [
        numpy_helper.from_array(deviates(shape, (1, 0, place)).astype(np.float32), name)
        for place, (name, shape) in enumerate(shapes.items())
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 6, 6])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 5])
    graph = helper.make_graph(nodes, "net", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_every_line_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    onnx.save(net(), "net.onnx")
    samples = deviates((8, 3, 6, 6), (2, 0, 0)).astype(np.float32)
    np.savez("samples.npz", x=samples)
    assert len(BLOCKS) >= 9
    found: dict[str, Any] = {}
    exec("\n".join(BLOCKS), found)  # noqa: S102 - the page's own program
    assert found["status"] == 0
    assert [tuple(batch["x"].shape) for batch in found["batches"]] == [(4, 3, 6, 6)] * 2
    assert [error.name for error in found["by_graph"]] == ["conv1", "relu1", "pool", "flat", "classes"]
    assert all(0 < noise < 1e-2 and math.isfinite(noise) for noise in found["ppqs"].values())
    codes = found["codes"][0]
    assert codes.shape == (4, 5)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession("net_int8.onnx", options, providers=["CPUExecutionProvider"])
    assert np.array_equal(session.run(None, {"x": samples[:4]})[0], found["outputs"][0].numpy())
    assert onnx.load("net_float.onnx").graph.node[0].op_type == "Conv"
