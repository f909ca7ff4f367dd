"""The one table of Top operators: operands, results and attributes of each operator that TpuLang emits.

A node of a graph under Top's names: `op` is `top.Conv`, attributes have the names and kinds below, `name` is the name
of the first output that is used, an operand that may be `none` is None, an unused result `i` is called `<name>#<i>`.
Any tensor operand may be a constant, which is a `top.Weight` in the text. Source: tpu-mlir's public definition of the
dialect (TopOps.td) and the calls of its TpuLang.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from quantizer.ir.graph import AttrValue

Presence = Literal["required", "none", "optional", "variadic"]
Kind = Literal["i64", "i32", "si32", "ui32", "f64", "bool", "string", "i64s", "f64s", "entries"]
"""Kind of an attribute: an integer of that type, a float, a truth value, a text, an array, or `Custom`'s parameters."""

# written after an operand's name in the table below: a tensor or `none`, may be left out at the end, repeated
_MARKS: dict[str, Presence] = {"?": "none", "~": "optional", "*": "variadic"}
ABSENT = "#"
"""Separator between a node's name and the number of a `none` result."""


@dataclass(frozen=True)
class Value:
    """An operand or a result: a tensor, a tensor or `none`, optional at the end, or repeated."""

    name: str
    presence: Presence = "required"


@dataclass(frozen=True)
class Attribute:
    """An attribute: its kind, whether it must be there, its default, and the texts that it may be."""

    kind: Kind
    required: bool = True
    default: AttrValue | None = None
    """The default value; None: the attribute is optional and has no default."""
    choices: tuple[str, ...] = ()

    def defaulted(self, value: AttrValue) -> Attribute:
        """Return this attribute as an optional one with the default *value*."""
        return replace(self, required=False, default=value)

    @property
    def optional(self) -> Attribute:
        """This attribute, which may be missing and has no default."""
        return replace(self, required=False)


@dataclass(frozen=True)
class TopOp:
    """One operator of the dialect."""

    name: str
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    attributes: Mapping[str, Attribute]


def _values(text: str) -> tuple[Value, ...]:
    return tuple(Value(word.rstrip("?~*"), _MARKS.get(word[-1], "required")) for word in text.split())


def _op(operands: str, results: str = "output", /, **attributes: Attribute) -> TopOp:
    return TopOp("", _values(operands), _values(results), attributes)


I64, SI32, UI32, I32 = Attribute("i64"), Attribute("si32"), Attribute("ui32"), Attribute("i32")
F64, BOOL, STRING, I64S, F64S = (
    Attribute("f64"),
    Attribute("bool"),
    Attribute("string"),
    Attribute("i64s"),
    Attribute("f64s"),
)
NO, YES = BOOL.defaulted(value=False), BOOL.defaulted(value=True)
NO_LIMIT = F64.defaulted(-1.0)


def _choice(*texts: str) -> Attribute:
    return Attribute("string", choices=texts)


ROUNDINGS = (
    "HalfAwayFromZero",
    "HalfUp",
    "HalfDown",
    "HalfToEven",
    "HalfToOdd",
    "HalfTowardsZero",
    "TowardsZero",
    "Up",
    "Down",
)
"""Top's rounding modes; HalfToOdd and HalfTowardsZero are not computed by its simulator and have no name in TpuLang."""
ROUND = _choice(*ROUNDINGS).defaulted("HalfAwayFromZero")
REQUANT = _choice("TFLite_LShift", "TFLite", "MultiplierShift", "OnlyShift", "QDM", "OnlyScale")
COMPARE = _choice("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "NotEqual", "And", "Not", "Xor")
REDUCE = _choice("ReduceMin", "ReduceMax", "ReduceMean", "ReduceL2", "ReduceL1", "ReduceSum", "ReduceProd")
_AUTO_PAD = _choice("SAME_UPPER", "SAME_LOWER", "NOTSET", "VALID").optional
_SHIFTED = {
    "mode": _choice("Add", "Sub", "Mul"),
    "shift": SI32,
    "is_reverse": NO,
    "saturation": YES,
    "round_mode": ROUND,
}
_RELU = {"do_relu": NO, "relu_limit": NO_LIMIT}
_INT4 = dict.fromkeys(("in_int4_scale", "in_int4_zp", "out_int8_scale", "out_int8_zp"), F64.optional)
_WINDOW = {"kernel_shape": I64S, "strides": I64S, "pads": I64S}
_POOL = (
    _WINDOW
    | _RELU
    | {
        "ceil_mode": BOOL.optional,
        "auto_pad": _AUTO_PAD,
        "is_adaptive": NO,
        "keepdims": YES,
        "pad_value": I64.defaulted(0),
        "count_include_pad": NO,
        "round_mode": ROUND,
        "first_round_mode": ROUND,
    }
)


def _unary(names: str, **attributes: Attribute) -> dict[str, TopOp]:
    return {name: _op("input", **attributes) for name in names.split()}


_OPS: dict[str, TopOp] = {
    "None": _op(""),
    "Weight": _op(
        "",
        scale=F64S.optional,
        store_mode=_choice("1N", "2N", "4N").optional,
        allow_split=I64S.optional,
        do_compress=BOOL.optional,
        bias0=I64.optional,
        bias1=I64.optional,
        is_signed=BOOL.optional,
        zero_guard=BOOL.optional,
        inline_bytes=STRING.optional,
    ),
    "Input": _op(
        "input",
        shape_tensor=I64S.optional,
        do_preprocess=NO,
        channel_format=_choice("nhwc", "nchw").optional,
        pixel_format=_choice("rgb", "bgr", "gray", "rgba", "gbrg", "grbg", "bggr", "rggb").optional,
        resize_dims=I64S.optional,
        keep_aspect_ratio=BOOL.optional,
        keep_ratio_mode=STRING.optional,
        pad_value=I64.optional,
        pad_type=_choice("normal", "center").optional,
        scale=F64S.optional,
        mean=F64S.optional,
        customization_format=STRING.optional,
        aligned=BOOL.optional,
        white_level=F64.optional,
        black_level=F64.optional,
    ),
    # products
    "Conv": _op(
        "input filter bias?",
        group=I64.defaulted(1),
        dilations=I64S.optional,
        inserts=I64S.optional,
        dynweight_reorderd=NO,
        weight_is_coeff=I64.defaulted(1),
        do_winograd=BOOL.optional,
        auto_pad=_AUTO_PAD,
        **_WINDOW,
        **_RELU,
        **_INT4,
    ),
    "Deconv": _op(
        "input filter bias?",
        group=I64.defaulted(1),
        dilations=I64S.optional,
        output_padding=I64S.optional,
        dynweight_reorderd=NO,
        **_WINDOW,
        **_RELU,
    ),
    "MatMul": _op(
        "input right bias?",
        right_transpose=NO,
        left_transpose=NO,
        output_transpose=NO,
        hdim_is_batch=NO,
        keep_dims=YES,
        weight_bits=I64.optional,
        **_RELU,
        **_INT4,
    ),
    # elementwise
    "Add": _op("inputs*", coeff=F64S.optional, is_scalar=NO, **_RELU),
    "Sub": _op("inputs*", is_reverse=NO, coeff=F64S.optional, is_scalar=NO, **_RELU),
    "Mul": _op("inputs*", is_scalar=NO, **_RELU),
    "Div": _op("inputs*", is_reverse=NO, is_scalar=NO, **_RELU),
    "Min": _op("inputs*"),
    "Max": _op("inputs*"),
    "AddConst": _op("input", const_val=F64, is_scalar=NO, **_RELU),
    "SubConst": _op("input", const_val=F64, is_reverse=NO, is_scalar=NO, **_RELU),
    "MulConst": _op("input", const_val=F64, is_scalar=NO, **_RELU),
    "MinConst": _op("input", const_val=F64, is_scalar=NO),
    "MaxConst": _op("input", const_val=F64, is_scalar=NO),
    "BinaryShift": _op("input1 input2", **_SHIFTED),
    "BinaryConstShift": _op("input", scale=SI32, **_SHIFTED),
    "Pow": _op("input", exponent=F64),
    "Clip": _op("inputs", min=F64, max=F64),
    "Compare": _op("lhs rhs", mode=COMPARE),
    "CompareConst": _op("input", mode=COMPARE, const_val=F64, inversed=BOOL, is_scalar=NO),
    "Where": _op(
        "cond tbrn? fbrn?", x_is_const=NO, y_is_const=NO, x_const_val=F64.defaulted(0.0), y_const_val=F64.defaulted(0.0)
    ),
    # functions of one input
    **_unary("Abs Ceil Floor Round Sin Cos Tan Sinh Cosh Arccos Arctanh Exp Log Sqrt Rsqrt Erf Sign SiLU Mish"),
    **_unary("HardSwish"),
    "Relu": _op("input", relu_limit=NO_LIMIT),
    "PRelu": _op("input slope"),
    "LeakyRelu": _op("input", alpha=F64, round_mode=ROUND),
    "Elu": _op("input", alpha=F64),
    "Tanh": _op("input", round_mode=ROUND),
    "Sigmoid": _op("input", scale=F64.defaulted(1.0), bias=F64.defaulted(0.0), log=NO, round_mode=ROUND),
    "HardSigmoid": _op("input", alpha=F64, beta=F64),
    "Swish": _op("input", beta=F64, round_mode=ROUND),
    "GELU": _op("input", round_mode=ROUND, approx_mode=_choice("normal", "tanh", "sigm").defaulted("normal")),
    "Softmax": _op("input", axis=SI32, log=NO, beta=F64.defaulted(1.0), round_mode=ROUND),
    "Lut": _op("input table"),
    # quantization
    "Cast": _op("input", round_mode=ROUND),
    "RequantInt": _op(
        "input",
        multiplier=I64S,
        rshift=I64S,
        quant_mode=REQUANT,
        round_mode=ROUND,
        rq_axis=SI32.defaulted(1),
        fuse_rq=NO,
    ),
    "DequantInt": _op(
        "input",
        multiplier=I64S,
        shift=I64S,
        lshift=I64.defaulted(0),
        quant_mode=_choice("Normal", "TFLite"),
        round_mode=ROUND,
    ),
    "RequantFp": _op(
        "input",
        scale=F64S,
        offset=F64S,
        quant_mode=REQUANT,
        round_mode=ROUND,
        first_round_mode=ROUND.defaulted("HalfUp"),
    ),
    "MeanStdScale": _op(
        "input",
        quant_mode=STRING,
        customization_format=STRING,
        channel_order=STRING,
        sign=YES,
        scale=F64S,
        std=F64S,
        mean=F64S,
        zero_points=F64S,
        resize_dims=I64S,
        rounding_mode=STRING,
    ),
    # windows and sizes
    "MaxPool": _op("input", **_POOL),
    "AvgPool": _op("input", **_POOL),
    "MaxPoolWithMask": _op("input", "output mask", **_POOL),
    "Upsample": _op("input", scale_h=I64, scale_w=I64, **_RELU),
    "Interp": _op(
        "input target_shape?",
        mode=_choice("nearest", "linear"),
        scale_h=NO_LIMIT,
        scale_w=NO_LIMIT,
        coord_mode=_choice("align_corners", "half_pixel", "pytorch_half_pixel", "asymmetric"),
    ),
    # movement
    "Copy": _op("input", shape=I64S, input_stride=I64S, output_stride=I64S),
    "Permute": _op("input", order=I64S),
    "Reshape": _op("input shapeT~", shape=I64S.optional, flatten_start_dim=I64.defaulted(-1)),
    "Flatten": _op("input", start_dim=I64.defaulted(0), end_dim=I64.defaulted(-1)),
    "Squeeze": _op("input", axes=I64S, is_scalar=NO),
    "Unsqueeze": _op("input", axes=I64S),
    "Expand": _op("input shapeT~", shape=I64S.defaulted(())),
    "Tile": _op("input tileT~", tile=I64S.optional),
    "Repeat": _op("input repeats"),
    "Concat": _op("inputs*", axis=SI32.defaulted(1), round_mode=ROUND, **_RELU),
    "Split": _op("input", "outputs*", axis=SI32, num=I64, split_size=I64S.optional),
    "Slice": _op(
        "input offsetT? endsT? stepsT?",
        offset=I64S,
        steps=I64S,
        ends=I64S,
        axes=I64S.defaulted(()),
        hasparamConvert_axes=I64S.defaulted(()),
    ),
    "Pad": _op(
        "input paddingsT~",
        paddings=I64S,
        val=F64.defaulted(0.0),
        mode=_choice("constant", "reflect", "symmetric", "edge"),
    ),
    "Shape": _op("input", start=I64.optional, end=I64.optional, step=I64.optional),
    "Gather": _op("input indices", keepdims=YES, axis=SI32.defaulted(0), is_scalar=NO),
    "ScatterElements": _op("input indices updates", axis=I64),
    "ScatterND": _op("input_data indices updates", reduction=I32.defaulted(0)),
    "NonZero": _op("input", order=_choice("ColMajor", "RowMajor")),
    # reductions, order, norms
    "Reduce": _op("input", axes=I64S, keepdims=BOOL, mode=REDUCE, is_scalar=NO),
    "Arg": _op(
        "input", "indices values?", axis=I64, keepdims=BOOL, mode=_choice("ArgMin", "ArgMax"), select_last_index=YES
    ),
    "Sort": _op("input", "values? indices", axis=I64, descending=YES),
    "TopK": _op(
        "input kT~", "values? indices?", axis=I64, K=I64.defaulted(-1), largest=YES, sorted=YES, replace_topk_indices=NO
    ),
    "BatchNorm": _op("input mean variance gamma? beta?", epsilon=F64.defaulted(1e-05), **_RELU),
    "LayerNorm": _op("input weight? bias?", normalized_shape=I64S, axis=SI32, eps=F64),
    "GroupNorm": _op("input weight? bias?", num_groups=I64, eps=F64),
    "RMSNorm": _op("input gamma?", eps=F64),
    # others
    "Nms": _op("inputs*", center_point_box=I64, max_output_size=I64),
    "Rope": _op(
        "input1 input2 input3",
        is_permute_optimize=NO,
        **{f"{step}_round_mode": ROUND for step in ("mul1", "mul2", "add")},
        **{f"{step}_shift": SI32.defaulted(0) for step in ("mul1", "mul2", "add")},
        **{f"{step}_saturation": YES for step in ("mul1", "mul2", "add")},
    ),
    "Yuv2rgbFormula": _op(
        "YUV",
        src_format=UI32,
        dst_format=UI32,
        image_format=_choice("FLOAT32", "UINT8"),
        formula_mode=_choice("_601_limited", "_601_full"),
        round_mode=ROUND,
    ),
    "Custom": _op("inputs*", "outputs*", name=STRING, params=Attribute("entries")),
}

TOP_OPS: dict[str, TopOp] = {f"top.{name}": replace(op, name=f"top.{name}") for name, op in _OPS.items()}
"""`top.Conv` -> operands, results and attributes. `Custom`'s `params` are pairs `(name, value)`: an int is i64, a float
f32 (and must be one), a bool, a list of ints or of floats."""
STRUCTURE = frozenset({"top.None", "top.Weight", "top.Input"})
"""Operations for absent operands, constants and inputs; only an Input that preprocesses becomes a node."""


def count_problem(wanted: Sequence[Value], count: int, absent: Sequence[bool]) -> str:
    """Return the error about *count* values, some of them `none`, for the declared ones; empty if they fit."""
    if any(value.presence == "variadic" for value in wanted):
        return f"{wanted[0].name} must be tensors, at least one" if not count or any(absent) else ""
    least = sum(value.presence != "optional" for value in wanted)
    if not least <= count <= len(wanted):
        named = ", ".join(value.name for value in wanted)
        return f"must be {least if least == len(wanted) else f'{least} to {len(wanted)}'}: {named or 'none'}"
    for value, gone in zip(wanted, absent, strict=False):
        if gone and value.presence == "required":
            return f"{value.name} must be a tensor, not none"
    return ""
