"""Every operator function with random legal arguments: inferred, run, exported; illegal ones refused and nothing changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from lang_calls import CALLS, Built, Draw, build

import quantizer.lang as tpul
from quantizer.lang import FUNCTIONS, Graph, LangError, Scalar, Tensor
from quantizer.lang.export import lowered, run

onnxruntime = pytest.importorskip("onnxruntime")
SEEDS = range(4)
ROUNDS_OTHERWISE = ["tan", "arccos", "arctanh", "softmax", "layer_norm", "group_norm", "rms_norm", "sigmoid", "batch_norm", "exp", "swish", "tanh", "silu", "log_sigmoid", "hswish", "gelu", "interpolate", "interpolate_v2", "sin", "cos", "ln", "erf", "mish", "cosh", "sinh", "elu", "sqrt", "rsqrt", "hsigmoid", "normalize", "mean_std_scale", "div", "reduce", "avgpool2d", "avgpool3d"]  # fmt: skip
"""Functions of real numbers whose last bit no standard decides; all others are compared with ONNX Runtime bit for bit."""


def results(built: Built) -> list[np.ndarray]:
    found = run(built.graph, built.feeds, built.results)
    return [found[str(tensor.name)] for tensor in built.results]


@pytest.mark.parametrize("name", sorted(CALLS))
def test_results_match_the_inferred_types_and_shapes(name: str) -> None:
    for seed in SEEDS:
        built = build(name, seed)
        for got, tensor in zip(results(built), built.results, strict=True):
            assert got.dtype == tensor.dtype, seed
            assert len(got.shape) == len(tensor.shape), seed
            assert all(n in (-1, m) for n, m in zip(tensor.shape, got.shape, strict=True)), seed


@pytest.mark.parametrize("name", sorted(CALLS))
def test_the_exported_graph_equals_onnx_runtime(name: str) -> None:
    from quantizer.ir.formats.onnx_write import to_model

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for seed in SEEDS:
        built = build(name, seed)
        data = to_model(lowered(built.graph, built.results)).SerializeToString()
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        theirs = session.run([tensor.name for tensor in built.results], built.feeds)
        for got, other in zip(results(built), theirs, strict=True):
            assert got.dtype == other.dtype
            assert got.shape == other.shape
            if name not in ROUNDS_OTHERWISE or got.dtype.kind != "f":
                assert np.array_equal(got, other), (name, seed)


def test_every_function_is_drawn() -> None:
    assert set(CALLS) == set(FUNCTIONS)


TORCH: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "abs": torch.abs, "ceil": torch.ceil, "floor": torch.floor, "sin": torch.sin, "cos": torch.cos, "exp": torch.exp,
    "ln": torch.log, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "elu": F.elu, "square": torch.square,
    "sqrt": torch.sqrt, "erf": torch.erf, "sinh": torch.sinh, "cosh": torch.cosh, "sign": torch.sign, "gelu": F.gelu,
    "relu": F.relu, "tan": torch.tan, "arccos": torch.acos, "arctanh": torch.atanh,
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(TORCH))
def test_float_functions_equal_torch(name: str) -> None:
    values = Draw(name).array([3, 5], low=0.25, high=0.9)
    with Graph("g") as graph:
        FUNCTIONS[name].call(Tensor([3, 5], name="x"), out_name="y")
    got = run(graph, {"x": values})["y"]
    assert np.array_equal(got, TORCH[name](torch.from_numpy(values)).numpy())


def test_convolutions_and_products_equal_torch() -> None:
    d = Draw("structures")
    x, w, v = d.array([2, 4, 7, 8]), d.array([6, 2, 3, 2]), d.array([3, 4, 3, 2])
    with Graph("g") as graph:
        i = Tensor([2, 4, 7, 8], name="x")
        args: dict[str, Any] = {"stride": [2, 1], "pad": [1, 0, 2, 1], "dilation": [1, 2], "group": 2}
        tpul.conv(i, Tensor(ttype="coeff", data=w), out_name="conv", **args)
        back = {"stride": [2, 3], "pad": [1, 0, 1, 0], "output_padding": [1, 2], "group": 2}
        tpul.deconv(i, Tensor(ttype="coeff", data=v), out_name="deconv", **back)
        tpul.maxpool2d(i, [3, 2], [2, 2], [1, 0, 1, 1], out_name="max")
        tpul.permute(i, [0, 2, 3, 1], out_name="permute")
        tpul.roll(i, [1, -2], [1, 3], out_name="roll")
        tpul.reduce(i, "ReduceMax", [1, -1], keep_dims=False, out_name="reduce")
        tpul.topk(i, 2, 3, out_name="topk")
        tpul.pad(i, "reflect", None, [0, 0, 1, 2, 0, 0, 3, 1], out_name="pad")
    got = run(graph, {"x": x})
    t = torch.from_numpy(x)
    wide = F.pad(t, (0, 1, 1, 2))
    wanted = {
        "conv": F.conv2d(wide, torch.from_numpy(w), stride=(2, 1), dilation=(1, 2), groups=2),
        "deconv": F.conv_transpose2d(
            t, torch.from_numpy(v).transpose(0, 1), stride=(2, 3), padding=(1, 0), output_padding=(1, 2), groups=2
        ),
        "max": F.max_pool2d(F.pad(t, (0, 1, 1, 1), value=-torch.inf), (3, 2), (2, 2)),
        "permute": t.permute(0, 2, 3, 1),
        "roll": torch.roll(t, (1, -2), (1, 3)),
        "reduce": t.amax((1, 3)),
        "topk_val": torch.topk(t, 3, 2).values,
        "pad": F.pad(t, (2, 1, 1, 3), mode="reflect"),
    }
    for name, values in wanted.items():
        assert np.array_equal(got[name], values.numpy()), name


def _x(shape: list[int], dtype: str = "float32") -> Tensor:
    return Tensor(shape, name="x", dtype=dtype)


def _w(*shape: int, dtype: str = "float32") -> Tensor:
    return Tensor(ttype="coeff", data=np.ones(shape, dtype), dtype=dtype)


IMAGE = [1, 4, 6, 6]
ILLEGAL: list[tuple[str, Callable[[], Any], str]] = [
    ("conv", lambda: tpul.conv(_x(IMAGE), _w(2, 3, 3, 3)), "its axis 1 must be the input's 4 channels / group"),
    ("conv", lambda: tpul.conv(_x(IMAGE), _w(2, 4, 3, 3), pad=[1, 1]), r"pad=\[1, 1\]: must have 4 numbers"),
    ("conv", lambda: tpul.conv(_x(IMAGE), _w(2, 4, 3, 3), pad=[1, 1, -1, 1]), "every number must be at least 0"),
    ("conv", lambda: tpul.conv(_x(IMAGE), _w(2, 4, 3, 3), stride=[0, 1]), "every number must be at least 1"),
    ("conv", lambda: tpul.conv(_x(IMAGE), _w(2, 4, 3, 3), stride=[1.0, 1]), "must be a list of whole numbers"),
    ("conv", lambda: tpul.conv(_x(IMAGE), _w(3, 2, 3, 3), group=2), "must divide the 3 filters"),
    ("conv", lambda: tpul.conv(_x(IMAGE), _w(2, 4, 9, 9)), "conv: "),
    ("conv", lambda: tpul.conv(_x(IMAGE), _w(2, 4, 3, 3), _w(3)), r"bias has shape \[3\]: must be \[2\]"),
    ("conv", lambda: tpul.conv(_x([1, 4, 6]), _w(2, 4, 3, 3)), "must have 4 axes"),
    ("conv", lambda: tpul.conv(_x(IMAGE, "int8"), _w(2, 4, 3, 3)), "input is int8: must be float32 or float16"),
    ("conv", lambda: tpul.conv(_x(IMAGE), _w(2, 4, 3, 3), out_dtype="int32"), "out_dtype='int32': must be one of float32"),
    ("conv", lambda: tpul.conv(_x(IMAGE), _w(2, 4, 3, 3), pads=[1]), "unexpected keyword argument 'pads'"),
    ("conv", lambda: tpul.conv("x", _w(2, 4, 3, 3)), "input='x': must be a Tensor"),
    ("conv_v2", lambda: tpul.conv_v2(_x(IMAGE), _w(2, 4, 3, 3), _w(2)), r"bias has shape \[2\]: must be \[1, 2, 1, 1\]"),
    ("conv_v2", lambda: tpul.conv_v2(_x(IMAGE), _w(2, 4, 3, 3), input_zp=3), "must be None"),
    ("conv_int", lambda: tpul.conv_int(_x(IMAGE, "int8"), _w(2, 4, 3, 3, dtype="int8")), "input_zp is None"),
    ("conv_int", lambda: tpul.conv_int(_x(IMAGE, "int8"), _w(2, 4, 3, 3, dtype="int8"), input_zp=200, weight_zp=0),
     r"zero_point=200: must be a whole number in \[-128, 127\]"),
    ("conv_int", lambda: tpul.conv_int(_x(IMAGE, "int8"), _w(2, 4, 3, 3, dtype="int8"), input_zp=[1, 2], weight_zp=0),
     "must be one number for the whole tensor"),
    ("conv_int", lambda: tpul.conv_int(_x(IMAGE, "int8"), _w(2, 4, 3, 3, dtype="int8"), input_zp=1, weight_zp=[1, 2, 3]),
     "3 parameters for tensor without a name"),
    ("conv_quant", lambda: tpul.conv_quant(_x(IMAGE, "int8"), _w(2, 4, 3, 3, dtype="int8"), input_scale=-0.5,
     weight_scale=1.0, output_scale=1.0), "scale=-0.5: must be positive and finite"),
    ("conv_quant", lambda: tpul.conv_quant(_x(IMAGE, "int8"), _w(2, 4, 3, 3, dtype="int8"), input_scale=0.5,
     weight_scale=1.0), "output_scale is None"),
    ("deconv", lambda: tpul.deconv(_x(IMAGE), _w(2, 4, 3, 3), output_padding=[1, 0]), "must be below stride"),
    ("matmul", lambda: tpul.matmul(_x([2, 3]), _w(4, 5)), "matmul: "),
    ("matmul", lambda: tpul.matmul(_x([2, 3]), _w(3, 5), keep_dims=1), "keep_dims=1: must be True or False"),
    ("add", lambda: tpul.add(_x([2, 3]), _w(4)), "add: "),
    ("add", lambda: tpul.add(_x([2, 3], "int8"), _w(4, dtype="int8")), "add: Add of int64"),
    ("gt", lambda: tpul.gt(_x([2, 3]), _w(4)), "gt: Greater of float32"),
    ("add", lambda: tpul.add(1, 2), "one must be a Tensor"),
    ("add", lambda: tpul.add(_x([2, 3]), _w(3, dtype="float16")), "float32 and float16: floats must be of one type"),
    ("add", lambda: tpul.add(_x([2, 3], "int8"), 0.5), "int8 and float32"),
    ("add", lambda: tpul.add(_x([2], "int8"), 1, scale=[1.0, 1.0]), "must have 3 numbers"),
    ("add", lambda: tpul.add(_x([2], "int8"), 1, zero_point=[1, 1, 1]), "must be given with scale"),
    ("add", lambda: tpul.add(_x([2]), 1.0, scale=[1.0, 1.0, 1.0]), "must be None unless the result is int8 or uint8"),
    ("sub", lambda: tpul.sub(_x([2], "int8"), 1, out_dtype="uint8"), "out_dtype='uint8'"),
    ("div", lambda: tpul.div(_x([2]), 0), "must not be zero"),
    ("div", lambda: tpul.div(_x([2], "int8"), 2), "int8"),
    ("add_shift", lambda: tpul.add_shift(_x([2]), 1, 1), "tensor_i0.dtype='float32'"),
    ("mul_shift", lambda: tpul.mul_shift(_x([2], "int8"), 3, 99), "shift=99: must be from -63 to 63"),
    ("cast", lambda: tpul.cast(_x([2]), "int64"), "out_dtype='int64'"),
    ("cast", lambda: tpul.cast(_x([2]), "int8", round_mode="half_up"), "round_mode='half_up'"),
    ("clamp", lambda: tpul.clamp(_x([2]), 2.0, 1.0), "min must not be above max"),
    ("clamp", lambda: tpul.clamp(_x([2]), float("nan"), 1.0), "must be a finite number"),
    ("requant_int", lambda: tpul.requant_int(_x([1, 3], "int32"), 1, 0, 0, 3), "requant_mode=3: must be from 0 to 2"),
    ("requant_int", lambda: tpul.requant_int(_x([1, 3], "int32"), [1, 2], 0, 0, 2), "mul has 2 numbers"),
    ("requant_int", lambda: tpul.requant_int(_x([1, 3], "int32"), 1, 0, 5, 2, "int32"), "must be 0"),
    ("requant_int", lambda: tpul.requant_int(_x([1, 3], "int32"), 1, 0, 1 << 31, 2), "offset=2147483648"),
    ("requant_int", lambda: tpul.requant_int(_x([1, 2], "int32"), 1, 0, [3, 300], 2), "zero_point=300"),
    ("requant_int", lambda: tpul.requant_int(_x([1, 3], "int32"), 1, 0, [3, 4], 2), "offset has 2 numbers"),
    ("requant_int", lambda: tpul.requant_int(_x([1, 3], "int32"), 1, 0, 0, 2, round_mode="nearest"), "round_mode='nearest'"),
    ("requant_fp_to_int", lambda: tpul.requant_fp_to_int(_x([1, 3]), -1.0, 0, 0, "int8"), "must be positive and finite"),
    ("requant_fp_to_int", lambda: tpul.requant_fp_to_int(_x([1, 3]), [1.0, 2.0, 3.0], 0, 0, "int8", round_mode="half_up"),
     "round_mode='half_up'"),
    ("requant_fp_to_int", lambda: tpul.requant_fp_to_int(_x([1, 3]), [1.0, 2.0], 0, 0, "int8"), "one for each slice"),
    ("dequant_int_to_fp", lambda: tpul.dequant_int_to_fp(_x([2], "int16"), 1.0, 0, "float16"), "out_dtype='float16'"),
    ("maxpool2d", lambda: tpul.maxpool2d(_x(IMAGE), [2, 2], pad=[2, 0, 0, 0]), "must be below kernel"),
    ("maxpool2d", lambda: tpul.maxpool2d(_x(IMAGE), [9, 9]), "maxpool2d: "),
    ("maxpool2d_with_mask", lambda: tpul.maxpool2d_with_mask(_x(IMAGE, "int8"), [2, 2]), "input is int8"),
    ("leaky_relu", lambda: tpul.leaky_relu(_x([2]), float("inf")), "must be a finite number"),
    ("prelu", lambda: tpul.prelu(_x([2, 3]), _w(2)), "must broadcast"),
    ("prelu", lambda: tpul.prelu(_x([2, 3]), Tensor([3], name="s")), "must be a coefficient"),
    ("softmax", lambda: tpul.softmax(_x([2, 3]), 2), r"axis=2: must lie in \[-2, 1\]"),
    ("exp", lambda: tpul.exp(_x([2]), scale=[1.0, 1.0]), "of a tensor of float32"),
    ("exp", lambda: tpul.exp(_x([2], "int32")), "input is int32"),
    ("arg", lambda: tpul.arg(_x([2, 3]), "mean"), "method='mean'"),
    ("sort_by_key", lambda: tpul.sort_by_key(_x([2, 3]), Tensor([2], name="k")), r"must be \[3\]"),
    ("topk", lambda: tpul.topk(_x([2, 3]), 1, 4), "k=4: must be from 1 to 3"),
    ("permute", lambda: tpul.permute(_x([2, 3]), [0, 0]), "different axes"),
    ("permute", lambda: tpul.permute(_x([2, 3]), [0]), "must name every one of 2 axes"),
    ("tile", lambda: tpul.tile(_x([2, 3]), [0, 1]), "at least 1"),
    ("broadcast", lambda: tpul.broadcast(_x([2, 3]), [2, 4]), "must broadcast to it"),
    ("concat", lambda: tpul.concat([_x([2, 3])]), "two tensors or more"),
    ("concat", lambda: tpul.concat([_x([2, 3]), Tensor([2, 4], name="k")]), "must differ along axis 0 only"),
    ("split", lambda: tpul.split(_x([4, 3]), 0, 2, [1, 2]), "must add up to 4"),
    ("split", lambda: tpul.split(_x([4, 3]), 1, 2), "must divide 3"),
    ("slice", lambda: tpul.slice(_x([4, 3]), [3], [1]), "leaves nothing"),
    ("slice", lambda: tpul.slice(_x([4, 3]), [0], [1], [0]), "must not be 0"),
    ("pad", lambda: tpul.pad(_x([4, 3]), "reflect", None, [4, 0, 0, 0]), "at most the sizes"),
    ("roll", lambda: tpul.roll(_x([4, 3]), [1], [5]), r"dims=5: must lie in|dims=.*must lie in"),
    ("reshape", lambda: tpul.reshape(_x([4, 3]), [5, 2]), "number of elements must not change"),
    ("squeeze", lambda: tpul.squeeze(_x([4, 1]), [0]), "their sizes must be 1"),
    ("shape_fetch", lambda: tpul.shape_fetch(_x([4, 1]), 1, 1), "must leave at least one axis"),
    ("batch_norm", lambda: tpul.batch_norm(_x(IMAGE), _w(3), _w(4)), "mean has shape"),
    ("group_norm", lambda: tpul.group_norm(_x(IMAGE), num_groups=3), "must divide the 4 channels"),
    ("rms_norm", lambda: tpul.rms_norm(_x(IMAGE), axis=1), "must be the last"),
    ("normalize", lambda: tpul.normalize(_x(IMAGE), axes=[0, 2]), "must be neighbours"),
    ("layer_norm", lambda: tpul.layer_norm(_x(IMAGE), epsilon=-1.0), "epsilon=-1.0: must be at least 0"),
    ("gt", lambda: tpul.gt(_x([2], "int8"), Tensor([2], name="y", dtype="uint8")), "tensor_i1 is uint8"),
    ("gt", lambda: tpul.gt(_x([2], "int8"), _w(2, dtype="int8"), [1.0, 2.0, 1.0]), "both operands must have the same"),
    ("lut", lambda: tpul.lut(_x([2], "int8"), _w(255, dtype="int8")), "must hold 256 entries"),
    ("cond_select", lambda: tpul.cond_select(_x([2]), _w(3), Scalar(1.0)), "the condition's"),
    ("index_select", lambda: tpul.index_select(_x([2]), _w(1, dtype="int32") , -2), "axis=-2"),
    ("scatter", lambda: tpul.scatter(_x([2, 3]), _w(1, 2, dtype="int32"), _w(1, 3)), "must be the same"),
    ("interpolate", lambda: tpul.interpolate(_x(IMAGE), 0.0, 1.0), "scale_h=0.0: must be above 0"),
    ("interpolate", lambda: tpul.interpolate(_x(IMAGE), 0.1, 1.0), "at least one row"),
    ("interpolate_v2", lambda: tpul.interpolate_v2(_x(IMAGE), scale=[1.0, 1.0], antialias=1), "antialias=1: must be 0"),
    ("mean_std_scale", lambda: tpul.mean_std_scale(_x(IMAGE), [1.0], [0.0]), "std=.* must have 4 numbers"),
    ("matmulrq_int_op", lambda: tpul.matmulrq_int_op(_x([2, 3], "int8"), _w(3, 2, dtype="int8"), input_transpose=True),
     "must be False"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "illegal", "says"), ILLEGAL, ids=[f"{i}-{row[0]}" for i, row in enumerate(ILLEGAL)])
def test_an_illegal_call_names_its_rule_and_changes_nothing(name: str, illegal: Callable[[], Any], says: str) -> None:
    with Graph("g") as graph:
        kept = Tensor([2, 2], name="kept")
        tpul.relu(kept)
        before = (list(graph.nodes), dict(graph.tensors), graph._made.copy())
        with pytest.raises(LangError, match=says) as caught:
            illegal()
        assert str(caught.value).startswith(f"{name}: ")
        assert (list(graph.nodes), dict(graph.tensors), graph._made.copy()) == before
        assert tpul.relu(kept).name == "relu_1"
