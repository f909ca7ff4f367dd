"""Elements that indices name: floats against ONNX Runtime, whose rule says what smaller indices and negative ones mean."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

from quantizer.core.library import load_library
from quantizer.ir.formats.onnx import from_model
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.request import Request
from quantizer.ops import REGISTRY, load_built_ins
from quantizer.runtime.onnx.kernels import KERNELS
from quantizer.runtime.torch_executor import TorchExecutor

LIBRARY = load_library()
load_built_ins()
CASES = [
    ((4, 5), (4, 9), 1, True),
    ((4, 5), (2, 5), -2, True),
    ((3, 4, 2), (3, 4, 1), -1, True),
    ((6,), (11,), 0, True),
    ((4, 5), (3, 2), 1, False),
    ((3, 4, 2), (1, 4, 2), 1, False),
]
"""Shape, shape of the indices, axis, whether the registry's operator computes it."""


@pytest.mark.parametrize(("shape", "indices_shape", "axis", "ours"), CASES)
def test_gather_elements_equals_onnx_runtime(shape, indices_shape, axis, ours):
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    size = shape[axis]
    indices = (np.arange(np.prod(indices_shape)) * 7 % (2 * size) - size).reshape(indices_shape)
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    given.append(helper.make_tensor_value_info("indices", TensorProto.INT64, indices_shape))
    node = helper.make_node("GatherElements", ["x", "indices"], ["y"], name="n", axis=axis)
    graph = helper.make_graph([node], "g", given, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x, "indices": indices})
    assert np.array_equal(TorchExecutor(from_model(model), platform="fp32").forward([x, indices])[0].numpy(), wanted)
    found = KERNELS["GatherElements"].mapped(torch.from_numpy(x), torch.from_numpy(indices), axis=axis)
    assert (found is not None) == ours
    if found is None:
        return
    request = Request(
        LIBRARY.spec("gather_elements"),
        LIBRARY.schemes["a8"],
        LIBRARY.platforms["ideal"],
        {"x": shape, "indices": indices_shape},
        {"axis": axis},
        {"x": (0.0, 127.5)},
    )
    quantized = REGISTRY.get("gather_elements", "quantized", "ideal")
    codes = torch.from_numpy(x).long() - 128
    got = quantized(codes, torch.from_numpy(indices), parameters=default_parameters(request), axis=axis)
    assert np.array_equal(got.numpy() + 128, wanted)
