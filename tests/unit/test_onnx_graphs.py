"""Generated graphs of 5 to 30 nodes give ONNX Runtime's numbers, twice, and again after another shape."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_graphs import Builder

from quantizer.runtime.onnx_backend import QuantizerBackend

onnxruntime = pytest.importorskip("onnxruntime")


def session(model):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("seed", range(36))
def test_generated_graph_agrees_with_onnx_runtime(seed):
    builder = Builder(seed, opset=(11, 13, 18)[seed % 3])
    model = builder.model(5 + 25 * seed // 35)
    ours, theirs = QuantizerBackend.prepare(model), session(model)
    x = builder.whole(*builder.shape)
    other = builder.whole(1, *builder.shape[1:])
    for fed in (x, x, other, x):
        try:
            expected = theirs.run(None, {"x": fed})
        except Exception:  # noqa: BLE001 - the runtime's errors share no base
            assert fed is other
            continue
        for want, got in zip(expected, ours.run([fed]), strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)
