"""The names, tensors, formats and arithmetic that AIPUBuilder-style plugins see."""

from __future__ import annotations

import logging
import math
import types

import numpy as np
import pytest
import torch

from quantizer.conformance.generation.hashing import key
from quantizer.core.dtypes import DTYPES
from quantizer.core.errors import GraphError, PluginError
from quantizer.core.library import load_library
from quantizer.core.schemes import ActivationPart
from quantizer.numerics.qparams import Rescale
from quantizer.numerics.quantize import quantize
from quantizer.numerics.ratio_to_multiplier import float32_multiplier
from quantizer.numerics.requantize import requantize
from quantizer.numerics.rules import activation_params
from quantizer.plugins.aipu import arithmetic, dtypes, log
from quantizer.plugins.aipu.dtypes import Dtype
from quantizer.plugins.aipu.modules import EXPORTS, answering
from quantizer.plugins.aipu.node import PyGraph, PyNode
from quantizer.plugins.aipu.optypes import OpType, known_optypes, register_optype
from quantizer.plugins.aipu.registration import op_register
from quantizer.plugins.aipu.tensor import PyTensor, TensorShape

COMPASS = load_library().platforms["compass"]

FRAMEWORK = [
    "op_register",
    "quant_register",
    "approx_register",
    "register_optype",
    "register_plugin",
    "PluginType",
    "OptBaseMetric",
    "PyTensor",
    "Tensor",
    "PyNode",
    "Dtype",
    "OpType",
]
UTILS = [
    "QuantMode",
    "dtype2nptype",
    "nptype2dtype",
    "dtype2range",
    "bits2dtype",
    "bits2range",
    "range2dtype",
    "is_signed",
    "is_float",
    "torch_type2dtype",
    "get_linear_quant_params_from_tensor",
    "get_scale_approximation_params",
    "linear_quantize_clip",
    "linear_dequantize",
    "linear_requantize",
    "lookup_lut_powerof2",
    "nhwc2nchw",
    "nchw2nhwc",
    "torch",
]
LOGGER = ["OPT_DEBUG", "OPT_INFO", "OPT_WARN", "OPT_ERROR", "OPT_FATAL"]


def star(name: str) -> dict[str, object]:
    found: dict[str, object] = {}
    with answering():
        exec(f"from AIPUBuilder.Optimizer.{name} import *", found)
    return found


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("framework", FRAMEWORK),
        ("utils", UTILS + LOGGER + FRAMEWORK),
        ("logger", LOGGER),
        ("ops", UTILS),
        ("framework.pycore.pytensor", ["PyTensor"]),
        ("framework.pycore.pytype", ["Dtype", "OpType"]),
        ("utils.dtype_utils", ["dtype2nptype"]),
        ("utils.quant_tool_utils", ["QuantMode", "linear_requantize"]),
    ],
)
def test_star_imports_provide_the_documented_names(module, names):
    found = star(module)
    assert not [name for name in names if name not in found]


def test_classes_are_the_same_in_every_module_and_every_import():
    assert star("framework")["PyTensor"] is star("utils")["Tensor"] is PyTensor
    for exports in EXPORTS.values():
        assert not [name for name, value in exports.items() if isinstance(value, types.ModuleType) and name != "torch"]


def test_all_layer_types_are_known_and_a_misspelt_one_names_the_nearest():
    assert len(known_optypes()) == 192
    assert str(OpType.Convolution) == "OpType.Convolution"
    assert OpType.Convolution.name == "Convolution"
    with pytest.raises(PluginError, match="OpType.Convolutoin: no such layer type. Did you mean 'Convolution'"):
        _ = OpType.Convolutoin
    assert not hasattr(OpType, "Nothing")
    assert "Convolution" in OpType
    assert register_optype("Convolution") is OpType.Convolution
    with pytest.raises(PluginError, match="must be a name"):
        register_optype("Two Words")


def test_registering_outside_of_a_plugin_is_an_error():
    with pytest.raises(PluginError, match="op_register: works in a plugin file while quantizer loads it"):
        op_register(OpType.Silu, "1.0")(lambda self: None)


@pytest.mark.parametrize("value", [2.5, 2, [2.5, 1.0], np.float32(2.5), torch.tensor(2.5), [torch.tensor(2.5), 1.0]])
def test_scale_and_zerop_come_back_as_flat_tensors(value):
    tensor = PyTensor("x")
    tensor.scale = tensor.zerop = tensor.max = value
    first = float(value[0] if isinstance(value, list) else value)
    for name, kind in (("scale", torch.float32), ("zerop", torch.int32), ("max", torch.float64)):
        found = getattr(tensor, name)
        assert (found.dim(), found.dtype) == (1, kind)
        assert float(found[0]) == (int(first) if name == "zerop" else first)
    tensor.scale = tensor.zerop = None
    assert tensor.scale is None
    assert tensor.zerop is None


def test_an_assigned_scale_is_a_copy_and_a_misspelt_field_an_error():
    tensor, mine = PyTensor("x"), torch.tensor([1.0])
    tensor.scale = mine
    mine += 1
    assert float(tensor.scale[0]) == 1.0
    with pytest.raises(AttributeError):
        tensor.zero_p = 3


@pytest.mark.parametrize(
    ("content", "kind", "dtype"),
    [
        (np.zeros((2, 3), np.uint16), torch.int32, Dtype.UINT16),
        (np.zeros(2, np.int8), torch.int32, Dtype.INT8),
        (np.zeros(2, np.uint32), torch.int64, Dtype.UINT32),
        (np.zeros(2, np.float32), torch.float32, Dtype.FP32),
        (torch.zeros(2, 3), torch.float32, Dtype.FP32),
        (TensorShape((2, 3)), torch.float32, None),
        ([1, 2], torch.int64, Dtype.INT64),
        (np.array([True]), torch.int32, Dtype.BOOL),
    ],
)
def test_a_tensor_holds_integers_wide_enough_for_sums(content, kind, dtype):
    tensor = PyTensor("t", content)
    assert (tensor.betensor.dtype, tensor.dtype) == (kind, dtype)
    assert tuple(tensor.ir_shape) == tuple(tensor.shape)


def test_a_clone_shares_nothing():
    tensor = PyTensor("t", torch.zeros(2))
    tensor.attrs["list"] = [1]
    tensor.min_key_axis = torch.zeros(2)
    other = tensor.clone("u")
    other.betensor += 1
    other.scale, other.min_key_axis[0] = 7.0, 5.0
    other.attrs["list"].append(2)
    assert tensor.betensor.tolist() == [0, 0]
    assert (float(tensor.scale), tensor.min_key_axis.tolist(), tensor.attrs) == (1.0, [0, 0], {"list": [1]})


def test_a_missing_attribute_of_a_node_is_named():
    node = PyNode("layer_a", OpType.Silu)
    node.params.update(axis=1)
    node.placeholders.append(PyTensor("p", torch.ones(1)))
    node.graph = PyGraph("g", {"x"}, 3)
    assert node.get_param("axis") == 1
    assert node.get_param("keep", optional=True, default_value=7) == 7
    assert (node.current_batch_size, node.force_dtype_int, node.force_shift_positive) == (3, False, False)
    assert [node.graph.get_valid_tensor_name("x") for _ in range(2)] == ["x_1", "x_2"]
    with pytest.raises(PluginError, match="layer 'layer_a' of type Silu: no param 'axes'. It has: axis"):
        node.get_param("axes")
    with pytest.raises(PluginError, match="no attribute 'layer_id'. It has: none"):
        node.get_attrs("layer_id")
    with pytest.raises(PluginError, match="no constant 'weights'"):
        node.get_constant("weights")
    other = node.clone()
    other.params["axis"], other.placeholders[0].betensor[0] = 2, 9.0
    assert (node.params["axis"], float(node.placeholders[0].betensor[0])) == (1, 1.0)


@pytest.mark.parametrize("dtype", Dtype)
def test_names_sizes_and_types_of_formats_agree(dtype):
    assert dtypes.str2dtype(str(dtype)) is dtype
    assert dtypes.str2dtype(dtypes.dtype2str(dtype)) is dtype
    assert dtypes.dtype2bytes(dtype) * 8 >= dtypes.dtype2bits(dtype)
    if dtypes.ours(dtype).is_integer:
        assert dtypes.bits2dtype(dtypes.dtype2bits(dtype), dtypes.is_signed(dtype)) is dtype
        assert dtypes.dtype2range(dtype) == dtypes.bits2range(dtypes.dtype2bits(dtype), dtypes.is_signed(dtype))
        assert not dtypes.is_float(dtype)
        held = np.iinfo(dtypes.dtype2nptype(dtype))
        assert held.min <= dtypes.dtype2range(dtype)[0] <= dtypes.dtype2range(dtype)[1] <= held.max


def test_formats_of_numpy_torch_and_ranges():
    assert dtypes.nptype2dtype(np.uint16) is Dtype.UINT16
    assert dtypes.dtype2nptype(Dtype.FP32) is np.float32
    assert dtypes.torch_type2dtype(torch.int8) is Dtype.INT8
    assert dtypes.torch_type2dtype(torch.bool) is Dtype.UINT8
    assert dtypes.is_signed(torch.uint8) is False
    assert dtypes.is_float(torch.bfloat16)
    assert dtypes.range2dtype(0, 255) == (8, Dtype.UINT8)
    assert dtypes.range2dtype(0, 255, force_int=True) == (16, Dtype.INT16)
    assert dtypes.range2dtype(-129, 0) == (16, Dtype.INT16)
    assert dtypes.range2dtype(0, 1 << 20) == (32, Dtype.UINT32)
    assert dtypes.from_ours(DTYPES["int48"]) is Dtype.INT64
    assert dtypes.from_ours(DTYPES["uint5"]) is Dtype.UINT8
    with pytest.raises(PluginError, match="dtype 'int9'"):
        dtypes.str2dtype("int9")
    with pytest.raises(GraphError, match="bits=65"):
        dtypes.bits2dtype(65, is_signed=True)


def ranged(low: float, high: float) -> PyTensor:
    tensor = PyTensor("t")
    tensor.min, tensor.max = low, high
    return tensor


@pytest.mark.parametrize(
    ("span", "mode", "scale", "zerop"),
    [
        ((-1, 1), "symmetric_restricted_range", 127.0, 0),
        ((-1, 1), "symmetric_full_range", 127.5, 0),
        ((-1, 1), "asymmetric", 127.5, 0),
        ((0, 6), "asymmetric", 42.5, 127),
        ((-1, 2), "asymmetric", 85.0, 43),
        ((-3.7, 0), "asymmetric", 68.919, -127),
        ((0, 0), "asymmetric", 1.0, 127),
    ],
)
def test_linear_quant_params_equal_those_of_the_original(span, mode, scale, zerop):
    found = arithmetic.get_linear_quant_params_from_tensor(ranged(*span), f"per_tensor_{mode}", 8, is_signed=True)
    assert round(float(found[0]), 3) == scale
    assert int(found[1]) == zerop
    assert found[2:] == (-127 if "restricted" in mode else -128, 127, Dtype.INT8)


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize(
    ("bits", "mode"),
    [(b, f"symmetric_{r}_range") for b in (4, 8, 12, 16) for r in ("restricted", "full")]
    + [(b, "asymmetric") for b in (4, 8, 12)],
)
def test_parameters_equal_the_platform_rule_to_the_last_bit(bits, signed, mode):
    part = ActivationPart(
        bits=bits,
        symmetry="asymmetric" if mode == "asymmetric" else "symmetric",
        range="restricted" if "restricted" in mode else "full",
    )
    for index in range(300):
        drawn = key(index, mode)
        low = -((drawn & 0xFFFF) / 977.0) if signed else 0.0
        high = ((drawn >> 16) & 0xFFFF) / 1.3e4
        wanted = activation_params(low, high, part, COMPASS.parameters, signed=signed)
        found = arithmetic.get_linear_quant_params_from_tensor(ranged(low, high), f"per_tensor_{mode}", bits, signed)
        assert torch.equal(found[0], wanted.steps)
        assert int(found[1]) == -int(wanted.zero_point)
        assert found[2:4] == (wanted.qmin, wanted.qmax)


def test_per_channel_parameters_equal_those_of_single_channels():
    tensor = PyTensor("w")
    tensor.min_key_axis, tensor.max_key_axis = torch.tensor([-1.0, -0.5, 0.0]), torch.tensor([0.3, 2.0, 0.0])
    found = arithmetic.get_linear_quant_params_from_tensor(
        tensor, "per_channel_symmetric_restricted_range", 8, is_signed=True
    )
    assert found[0].tolist() == [127.0, 63.5, 1.0]
    assert found[1].tolist() == [0, 0, 0]
    with pytest.raises(PluginError, match="per block"):
        arithmetic.get_linear_quant_params_from_tensor(tensor, "per_block_asymmetric", 8, is_signed=True)
    with pytest.raises(PluginError, match="no such quantization mode. Did you mean 'per_tensor_asymmetric'"):
        arithmetic.get_linear_quant_params_from_tensor(tensor, "per_tensor_asymetric", 8, is_signed=True)


def test_quantization_modes_answer_and_change():
    mode = arithmetic.QuantMode
    assert len(mode.mode_names()) == 9
    assert mode.is_per_channel("PER_CHANNEL_asymmetric")
    assert not mode.is_symmetric("per_tensor_asymmetric")
    assert mode.is_full_range("per_tensor_asymmetric")
    assert not mode.is_full_range("per_block_symmetric_restricted_range")
    assert mode.to_per_tensor("per_channel_symmetric_full_range") == "per_tensor_symmetric_full_range"
    assert mode.to_per_channel("per_tensor_asymmetric") == "per_channel_asymmetric"
    assert mode.to_symmetric("per_channel_symmetric_full_range") == "per_channel_symmetric_restricted_range"
    assert mode.to_asymmetric("per_tensor_symmetric_full_range") == "per_tensor_asymmetric"


@pytest.mark.parametrize("bits", [8, 12, 16])
def test_multipliers_equal_the_platform_rule(bits):
    ratios = torch.tensor([(key(i, "ratio") % 100003 + 1) * 2.0 ** -(i % 40) for i in range(400)], dtype=torch.float32)
    for ratio in ratios:
        wanted = float32_multiplier(ratio, bits)
        multiplier, kind, shift, shift_kind = arithmetic.get_scale_approximation_params(float(ratio), bits)
        assert (multiplier, shift) == (int(wanted[0]), int(wanted[1]))
        assert (kind, shift_kind) == (Dtype.UINT8 if bits == 8 else Dtype.UINT16, Dtype.INT8)
    multipliers, _, shifts, _ = arithmetic.get_scale_approximation_params(ratios, bits)
    assert torch.equal(
        multipliers * torch.exp2(-shifts), multipliers.double().mul(torch.exp2(-shifts.double())).float()
    )
    assert multipliers.dim() == 1


def test_multipliers_near_one_above_one_and_limited():
    assert arithmetic.get_scale_approximation_params(0.999, 8)[::2] == (1, 0)
    assert arithmetic.get_scale_approximation_params(1000.0, 8)[2] < 0
    assert arithmetic.get_scale_approximation_params(1000.0, 8, force_shift_positive=True)[::2] == (255, 0)
    assert arithmetic.get_scale_approximation_params(2.0**-20, 8, limit=True)[2] == 8
    assert arithmetic.get_scale_approximation_params(2.0**-40, 15)[2] == 31


def test_conversions_equal_the_platform_and_keep_the_type():
    params = activation_params(-1.0, 2.0, ActivationPart(bits=8), COMPASS.parameters, signed=True)
    x = torch.tensor([(key(i, "x") % 4001 - 1500) / 1000.0 for i in range(500)] + [0.5 / 85, 1.5 / 85, -0.5 / 85])
    codes = arithmetic.linear_quantize_clip(x, params.steps, -params.zero_point, params.qmin, params.qmax)
    assert codes.dtype == torch.float32
    exact = COMPASS.quantizer.model_copy(update={"operation": "multiply_float32"})
    assert (codes.long() - quantize(x, params, exact)).abs().max() <= 1
    assert torch.equal(codes, codes.round())
    back = arithmetic.linear_dequantize(codes, params.steps, -params.zero_point)
    inside = (codes > params.qmin) & (codes < params.qmax)
    assert float((back - x)[inside].abs().max()) <= float(params.scale) / 2 + 2.0**-22
    odd = torch.tensor([math.nan, math.inf, -math.inf])
    assert arithmetic.linear_quantize_clip(odd, 1.0, 0, -128, 127).tolist() == [0, 127, -128]
    assert arithmetic.linear_quantize_clip(torch.tensor([3, 500]), 1.0, 0, -128, 127).dtype == torch.int64
    assert arithmetic.linear_quantize_clip(torch.tensor([3], dtype=torch.int8), 1.0, 0, 0, 255).dtype == torch.float32


def test_quantize_adds_the_zero_point_before_and_requantize_after_rounding():
    half = torch.tensor([0.5, 1.5, 2.5])
    assert arithmetic.linear_quantize_clip(half, 1.0, 1, -128, 127).tolist() == [0, 0, 2]
    assert arithmetic.linear_requantize(half * 2, 1, 1, 1, -128, 127).tolist() == [-1, 1, 1]


def test_requantize_equals_the_platform_per_tensor_and_per_channel():
    acc = torch.tensor([[key(i * 3 + j, "acc") % 2000003 - 1000001 for j in range(3)] for i in range(200)])
    mantissa, shift = torch.tensor([201.0, 32767.0, 1.0]), torch.tensor([20, 27, 0])
    params = activation_params(
        -1.0, 2.0, ActivationPart(bits=16, symmetry="symmetric"), COMPASS.parameters, signed=True
    )
    wanted = requantize(acc, Rescale("multiplier_shift", mantissa.double(), shift), params, channel_axis=1)
    found = arithmetic.linear_requantize(acc.double(), mantissa, shift, 0, params.qmin, params.qmax, key_axis=1)
    assert torch.equal(found.long(), wanted)
    single = arithmetic.linear_requantize(acc[:, 0].double(), torch.tensor([201.0]), torch.tensor([20]), 5, -128, 127)
    assert torch.equal(single, (torch.round(acc[:, 0] * 201.0 / 2**20) - 5).clamp(-128, 127))


def test_tables_are_read_by_the_high_bits_and_interpolated_down():
    lut = torch.tensor([0, 10, -10, 7])
    codes = torch.arange(-8, 8).float()
    found = arithmetic.lookup_lut_powerof2(codes, lut, 4, True, 8, True)
    assert found.tolist() == [0, 2, 5, 7, 10, 5, 0, -5, -10, -6, -2, 2, 7, 7, 7, 7]
    assert arithmetic.lookup_lut_powerof2(codes, lut, 4, True, 4, True).max() == 7
    real = arithmetic.lookup_lut_powerof2(codes, lut.float(), 4, True, 8, True, is_float=True)
    assert real.tolist()[:5] == [0, 2.5, 5, 7.5, 10]
    with pytest.raises(GraphError, match="lut of 3 entries"):
        arithmetic.lookup_lut_powerof2(codes, lut[:3], 4, True, 8, True)


def test_axis_order_conversions_invert_each_other():
    x = torch.zeros(1, 2, 3, 4)
    assert arithmetic.nhwc2nchw(x).shape == (1, 4, 2, 3)
    assert torch.equal(arithmetic.nchw2nhwc(arithmetic.nhwc2nchw(x)), x)


def test_log_messages_may_hold_percent_signs_and_only_fatal_ends(caplog):
    caplog.set_level(logging.DEBUG, logger="quantizer.plugins.aipu")
    log.OPT_DEBUG("50%", "more", op_name="x")
    log.OPT_INFO("100% %s %d")
    log.OPT_WARN("once", log_once=True)
    log.OPT_WARN("once", log_once=True)
    log.OPT_ERROR(ValueError("%"), workflow_name="quantize")
    with pytest.raises(PluginError, match="25% too much"):
        log.OPT_FATAL("25% too much")
    assert caplog.messages == ["50%", "100% %s %d", "once", "%", "25% too much"]
    assert [record.levelname for record in caplog.records] == ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
