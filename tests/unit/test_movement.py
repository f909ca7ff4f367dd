"""Operators that move, pick or repeat codes against torch and ONNX Runtime, which know nothing of them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper

from quantizer.core.library import load_library
from quantizer.core.shapes import infer_shapes
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.request import Request
from quantizer.ops import REGISTRY, load_built_ins

LIBRARY = load_library()
load_built_ins()
Case = tuple[str, tuple[int, ...], dict[str, Any]]


def onnx_result(kind: str, x: np.ndarray[Any, Any], constants: Mapping[str, Any], **attrs: Any) -> np.ndarray[Any, Any]:
    """Return ONNX Runtime's result of one node."""
    named = [numpy_helper.from_array(np.asarray(value, dtype=np.int64), name) for name, value in constants.items()]
    node = helper.make_node(kind, ["x", *constants], ["y"], **attrs)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    made = helper.make_tensor_value_info("y", TensorProto.INT64 if kind == "ArgMin" else TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [given], [made], named)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": x})
    return np.asarray(found)


def onnx_of(op: str, x: np.ndarray[Any, Any], attrs: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    match op:
        case "slice":
            axes = list(range(x.ndim))
            constants = {"starts": attrs["begin"], "ends": attrs["end"], "axes": axes, "steps": attrs["strides"]}
            return onnx_result("Slice", x, constants)
        case "squeeze":
            return onnx_result("Squeeze", x, {"axes": attrs["axes"]})
        case "depth_to_space":
            return onnx_result("DepthToSpace", x, {}, blocksize=attrs["block"], mode=attrs["mode"])
        case "space_to_depth":
            return onnx_result("SpaceToDepth", x, {}, blocksize=attrs["block"])
        case "replicate":
            return onnx_result("Tile", x, {"repeats": attrs["repeats"]})
        case "argmin":
            last = int(attrs["select_last"])
            return onnx_result(
                "ArgMin", x, {}, axis=attrs["axis"], keepdims=int(attrs["keepdims"]), select_last_index=last
            )
        case "global_max_pool2d":
            return onnx_result("GlobalMaxPool", x, {})
        case _:
            kind = {"reduce_max": "ReduceMax", "reduce_min": "ReduceMin"}[op]
            return onnx_result(kind, x, {"axes": attrs["axes"]}, keepdims=int(attrs["keepdims"]))


CASES: list[Case] = [
    ("slice", (4, 7), {"begin": (1, -6), "end": (4, 7), "strides": (1, 2)}),
    ("slice", (3, 5, 6), {"begin": (-1, 4, 5), "end": (-9, 0, -7), "strides": (-1, -2, -3)}),
    ("slice", (2, 9), {"begin": (-7, 2), "end": (99, -1), "strides": (1, 3)}),
    ("squeeze", (1, 3, 1, 5), {"axes": (0, 2)}),
    ("depth_to_space", (2, 12, 3, 5), {"block": 2, "mode": "DCR"}),
    ("depth_to_space", (1, 18, 2, 3), {"block": 3, "mode": "CRD"}),
    ("space_to_depth", (2, 3, 6, 9), {"block": 3}),
    ("replicate", (2, 3, 1), {"repeats": (1, 2, 4)}),
    ("global_max_pool2d", (2, 3, 4, 5), {}),
    ("reduce_max", (3, 4, 5), {"axes": (0, 2), "keepdims": False}),
    ("reduce_min", (3, 4, 5), {"axes": (1,), "keepdims": True}),
    ("argmin", (4, 6, 3), {"axis": -2, "keepdims": True, "select_last": True}),
    ("argmin", (4, 6, 3), {"axis": 1, "keepdims": False, "select_last": False}),
]


@pytest.mark.parametrize(("op", "shape", "attrs"), CASES, ids=[f"{op}-{i}" for i, (op, _, _) in enumerate(CASES)])
def test_both_forwards_and_the_shape_equal_onnx_runtime(op: str, shape: tuple[int, ...], attrs: Any) -> None:
    """Values are few, so that elements are equal; codes under one scale and zero point are real values moved."""
    spec = LIBRARY.spec(op)
    x = (np.arange(np.prod(shape)) ** 2 * 5 % 23 % 7 - 3).reshape(shape).astype(np.float32)
    wanted = torch.from_numpy(onnx_of(op, x, attrs))
    assert infer_shapes(spec, {"x": shape}, attrs)["y"] == tuple(wanted.shape)
    assert torch.equal(REGISTRY.get(op, "reference")(torch.from_numpy(x), **attrs), wanted)
    scheme, platform = LIBRARY.scheme("a8"), LIBRARY.platform("compass")
    parameters = default_parameters(Request(spec, scheme, platform, {"x": shape}, attrs, {"x": (-3.0, 4.0)}))
    codes = REGISTRY.get(op, "quantized")(torch.from_numpy(x).long() + 7, parameters=parameters, **attrs)
    assert torch.equal(codes, wanted if op == "argmin" else wanted.long() + 7)


def test_depth_and_space_blocks_equal_torch() -> None:
    x = torch.arange(2 * 12 * 3 * 4, dtype=torch.float32).reshape(2, 12, 3, 4)
    wide = F.pixel_shuffle(x, 2)
    assert torch.equal(REGISTRY.get("depth_to_space", "reference")(x, block=2, mode="CRD"), wide)
    depth = REGISTRY.get("space_to_depth", "reference")(wide, block=2)
    assert torch.equal(REGISTRY.get("depth_to_space", "reference")(depth, block=2, mode="DCR"), wide)


@pytest.mark.parametrize("groups", [1, 2, 3, 4, 12])
def test_shuffled_channels_equal_torch(groups: int) -> None:
    x = torch.arange(2 * 12 * 3 * 4).reshape(2, 12, 3, 4)
    wanted = torch.nn.ChannelShuffle(groups)(x)
    assert torch.equal(REGISTRY.get("channel_shuffle", "reference")(x, groups=groups), wanted)
    assert torch.equal(REGISTRY.get("channel_shuffle", "quantized")(x, parameters=None, groups=groups), wanted)


def test_slices_of_a_short_axis_equal_python() -> None:
    """Starts and ends lie before, in and behind the axis, with all strides; the spec refuses empty results."""
    x, spec = torch.arange(4), LIBRARY.spec("slice")
    parameters = default_parameters(
        Request(
            spec,
            LIBRARY.scheme("a8"),
            LIBRARY.platform("ideal"),
            {"x": (4,)},
            {"begin": (0,), "end": (4,), "strides": (1,)},
            {"x": (0.0, 1.0)},
        )
    )
    seen = 0
    for begin, end, step in itertools.product(range(-6, 7), range(-6, 7), (-3, -2, -1, 1, 2, 3)):
        wanted = list(range(4))[begin:end:step]
        attrs = {"begin": (begin,), "end": (end,), "strides": (step,)}
        if wanted:
            seen += 1
            for kind, more in (("reference", {}), ("quantized", {"parameters": parameters})):
                assert REGISTRY.get("slice", kind)(x, **more, **attrs).tolist() == wanted, (kind, attrs)  # type: ignore[arg-type]
    assert seen > 300
