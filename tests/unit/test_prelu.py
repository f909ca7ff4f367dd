"""Slopes for each slice along one axis: floats against ONNX Runtime, codes in rational numbers, ONNX's forms of it."""

from __future__ import annotations

from fractions import Fraction

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
SHAPE = (2, 3, 4, 5)


def model(slope_shape):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in "xy")
    slope = helper.make_tensor_value_info("slope", TensorProto.FLOAT, slope_shape)
    graph = helper.make_graph([helper.make_node("PRelu", ["x", "slope"], ["y"], name="n")], "g", [x, slope], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def floats(shape, seed):
    return np.sin(np.arange(1, 1 + np.prod(shape)) * (seed + 0.7)).astype(np.float32).reshape(shape)


@pytest.mark.parametrize(
    ("slope_shape", "axis"),
    [((3, 1, 1), 1), ((1, 3, 1, 1), 1), ((5,), 3), ((4, 1), 2), ((2, 1, 1, 1), 0), ((3, 4, 1), None), ((1,), None)],
)
def test_onnx_slopes_along_one_axis_are_the_registrys(slope_shape, axis):
    x, slope, file = floats(SHAPE, 1), floats(slope_shape, 2), model(slope_shape)
    session = onnxruntime.InferenceSession(file.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"x": x, "slope": slope})[0]
    graph = from_model(file)
    assert np.array_equal(TorchExecutor(graph, platform="fp32").forward([x, slope])[0].numpy(), wanted)
    found = KERNELS["PRelu"].mapped(torch.from_numpy(x), torch.from_numpy(abs(slope)))
    if axis is None:
        assert found is None or found.op == "leaky_relu"
        return
    assert (found.op, found.attrs) == ("prelu", {"axis": axis})
    got = REGISTRY.get("prelu", "reference")(torch.from_numpy(x), torch.from_numpy(slope).reshape(-1), axis=axis)
    assert np.array_equal(got.numpy(), wanted)


@pytest.mark.parametrize("scheme", ["w8a8", "w8asyma8", "w16a16"])
def test_codes_are_products_rounded_once(scheme):
    x, weight = torch.from_numpy(floats(SHAPE, 3)), torch.from_numpy(floats((3,), 4))
    request = Request(
        LIBRARY.spec("prelu"),
        LIBRARY.schemes[scheme],
        LIBRARY.platforms["ideal"],
        {"x": SHAPE, "weight": (3,)},
        {"axis": 1},
        {"x": (-2.5, 3.0), "y": (-2.0, 3.0)},
        {"weight": weight},
    )
    provided = default_parameters(request)
    own, slopes, out = provided.inputs["x"], provided.constants["weight"], provided.outputs["y"]
    codes = torch.round(x.double() / own.scale).long().add(own.zero_point).clamp(own.qmin, own.qmax)
    got = REGISTRY.get("prelu", "quantized", "ideal")(codes, slopes.codes, parameters=provided, axis=1)
    scales, zeros = (part.expand(3).tolist() for part in (slopes.params.scale, slopes.params.zero_point))
    for index in np.ndindex(SHAPE):
        value = (int(codes[index]) - int(own.zero_point)) * Fraction(float(own.scale))
        if value < 0:
            value *= (int(slopes.codes[index[1]]) - zeros[index[1]]) * Fraction(scales[index[1]])
        wanted = round(value / Fraction(float(out.scale))) + int(out.zero_point)
        assert int(got[index]) == min(max(wanted, out.qmin), out.qmax)
