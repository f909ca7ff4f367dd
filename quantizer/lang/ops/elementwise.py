"""Element-wise operators of two operands (one may be a number); shifts; copies and casts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from quantizer.ir.graph import AttrValue
from quantizer.lang import arguments as a
from quantizer.lang.current import get_default_graph, operator
from quantizer.lang.errors import LangError
from quantizer.lang.graph import Result
from quantizer.lang.tensor import TENSOR_DTYPES, Scalar, Tensor

Operand: TypeAlias = "Tensor | Scalar | int | float"
Scales = Sequence[float] | None
Zeros = Sequence[int] | None
ORDERED = (*a.FLOATS_AND_CODES, *a.WORDS)


def _both(t0: Operand, t1: Operand) -> tuple[Tensor | Scalar, Tensor | Scalar]:
    """Return both operands, numbers as Scalars; one must be a Tensor."""
    like = t0 if isinstance(t0, Tensor) else t1
    if not isinstance(like, Tensor):
        raise LangError(f"tensor_i0={t0!r}, tensor_i1={t1!r}: one must be a Tensor.")
    first = t0 if isinstance(t0, Tensor) else a.scalar("tensor_i0", t0, like)
    second = t1 if isinstance(t1, Tensor) else a.scalar("tensor_i1", t1, like)
    return first, second


def _result_type(
    t0: Tensor | Scalar, t1: Tensor | Scalar, out_dtype: str | None, allowed: Sequence[str], *, signed: bool
) -> str:
    """Return the type of the result: the operands' type or, for codes of both signs, the first signed type."""
    for argument, item in (("tensor_i0", t0), ("tensor_i1", t1)):
        if isinstance(item, Tensor):
            a.one_of(f"{argument}.dtype", item.dtype, allowed)
    kinds = [item.dtype for item in (t0, t1) if isinstance(item, Tensor)]
    if any(kind in a.FLOATS for kind in kinds) or "float" in t0.dtype + t1.dtype:
        if t0.dtype != t1.dtype:
            raise LangError(
                f"operands of {t0.dtype} and {t1.dtype}: floats must be of one type and combined with floats only."
            )
        return str(a.one_of("out_dtype", out_dtype or t0.dtype, (t0.dtype,)))
    whole = [kind for kind in allowed if "int" in kind and not (signed and kind.startswith("uint"))]
    # the signed type, if the operands have both signs
    default = kinds[0] if kinds[0].startswith("int") else kinds[-1]
    default = default.removeprefix("u") if signed else default
    return str(a.one_of("out_dtype", out_dtype or default, whole))


def _coefficient(item: Tensor | Scalar) -> Tensor:
    """Return a number as a tensor [1]."""
    if isinstance(item, Tensor):
        return item
    return Tensor([1], ttype="coeff", data=np.array([item.value], dtype=item.dtype), dtype=item.dtype)


def _binary(
    op: str,
    t0: Operand,
    t1: Operand,
    scale: Scales,
    zero_point: Zeros,
    out_dtype: str | None,
    out_name: str | None,
    allowed: Sequence[str] = a.FLOATS_AND_CODES,
) -> Tensor:
    """Add an arithmetic operator of two tensors, or one of a tensor and a number."""
    first, second = _both(t0, t1)
    kind = _result_type(first, second, out_dtype, allowed, signed=op == "top.Sub")
    scales, zeros = a.pairs(scale, zero_point, 3)
    graph, result = get_default_graph(), Result(kind)
    if scales is not None and zeros is not None:
        if kind not in a.CODES:
            raise LangError(f"scale={list(scales)} of {kind}: must be None unless the result is int8 or uint8.")
        # mul takes a number as it is; add and sub take it as a code of the second scale
        if op != "top.Mul":
            first, second = _typed(first, second)
        for i, item in enumerate((first, second)):
            if isinstance(item, Tensor):
                graph.quantize(item, scales[i], zeros[i])
        result = Result(kind, "", scales[2], zeros[2])
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return graph.add(op, [first, second], {}, result, out_name=out_name)[0]
    tensor, number = (first, second) if isinstance(first, Tensor) else (second, first)
    assert isinstance(tensor, Tensor)
    assert isinstance(number, Scalar)
    attrs: dict[str, AttrValue] = {"const_val": float(number.value)}
    if op == "top.Sub" and tensor is second:
        attrs["is_reverse"] = True
    return graph.add(f"{op}Const", [tensor], attrs, result, out_name=out_name)[0]


def _typed(first: Tensor | Scalar, second: Tensor | Scalar) -> tuple[Tensor, Tensor]:
    """Return a number that is used with scales as a tensor of the other operand's type.

    The scales then apply to its code.
    """
    like = first if isinstance(first, Tensor) else second
    both = [
        # a plain whole number becomes a code of the other operand's type; a Scalar with another type keeps it
        item if isinstance(item, Tensor) else Scalar(item.value, like.dtype if item.dtype == "int32" else item.dtype)
        for item in (first, second)
    ]
    return _coefficient(both[0]), _coefficient(both[1])


@operator("binary")
def add(
    tensor_i0: Operand,
    tensor_i1: Operand,
    scale: Scales = None,
    zero_point: Zeros = None,
    out_dtype: str | None = None,
    out_name: str | None = None,
) -> Tensor:
    """Add with numpy's broadcasting. scale and zero_point are [first, second, result]; codes without them are numbers.

    Two tensors of codes with scales are added in integers, 20 bits wider, as TensorFlow Lite does.
    """
    return _binary("top.Add", tensor_i0, tensor_i1, scale, zero_point, out_dtype, out_name)


@operator("binary")
def mul(
    tensor_i0: Operand,
    tensor_i1: Operand,
    scale: Scales = None,
    zero_point: Zeros = None,
    out_dtype: str | None = None,
    out_name: str | None = None,
) -> Tensor:
    """Multiply with numpy's broadcasting. A number is used as it is, without its scale.

    The product of two tensors of codes with scales is requantized in the same way as the sums of conv_quant.
    """
    return _binary("top.Mul", tensor_i0, tensor_i1, scale, zero_point, out_dtype, out_name)


@operator("binary")
def sub(
    tensor_i0: Operand,
    tensor_i1: Operand,
    scale: Scales = None,
    zero_point: Zeros = None,
    out_dtype: str | None = None,
    out_name: str | None = None,
) -> Tensor:
    """Subtract, by the rules of `add`; the result is signed."""
    return _binary("top.Sub", tensor_i0, tensor_i1, scale, zero_point, out_dtype, out_name)


@operator("binary")
def max(
    tensor_i0: Operand,
    tensor_i1: Operand,
    scale: Scales = None,
    zero_point: Zeros = None,
    out_dtype: str | None = None,
    out_name: str | None = None,
) -> Tensor:
    """Return the larger element of each pair; integers may have 16 and 32 bits, too."""
    return _binary("top.Max", tensor_i0, tensor_i1, scale, zero_point, out_dtype, out_name, ORDERED)


@operator("binary")
def min(
    tensor_i0: Operand,
    tensor_i1: Operand,
    scale: Scales = None,
    zero_point: Zeros = None,
    out_dtype: str | None = None,
    out_name: str | None = None,
) -> Tensor:
    """Return the smaller element of each pair; integers may have 16 and 32 bits, too."""
    return _binary("top.Min", tensor_i0, tensor_i1, scale, zero_point, out_dtype, out_name, ORDERED)


@operator("binary")
def div(tensor_i0: Operand, tensor_i1: Operand, out_name: str | None = None) -> Tensor:
    """Divide floats; division by a number multiplies by its reciprocal in float64."""
    first, second = _both(tensor_i0, tensor_i1)
    kind = _result_type(first, second, None, a.FLOATS, signed=False)
    graph = get_default_graph()
    if isinstance(second, Scalar):
        if second.value == 0:
            raise LangError("tensor_i1=0: must not be zero.")
        attrs: dict[str, AttrValue] = {"const_val": 1 / float(second.value)}
        return graph.add("top.MulConst", [_coefficient(first)], attrs, Result(kind), out_name=out_name)[0]
    return graph.add("top.Div", [_coefficient(first), second], {}, Result(kind), out_name=out_name)[0]


def _shifted(
    mode: str,
    t0: Operand,
    t1: Operand,
    shift: int,
    out_dtype: str | None,
    round_mode: str,
    is_saturate: bool,
    out_name: str | None,
) -> Tensor:
    first, second = _both(t0, t1)
    kind = _result_type(first, second, out_dtype, (*a.CODES, *a.WORDS), signed=mode == "Sub")
    attrs: dict[str, AttrValue] = {
        "mode": mode,
        "shift": a.integer("shift", shift, -63, 63),
        "saturation": a.boolean("is_saturate", is_saturate),
        "round_mode": a.rounding("round_mode", round_mode),
    }
    graph, result = get_default_graph(), Result(kind)
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return graph.add("top.BinaryShift", [first, second], attrs, result, out_name=out_name)[0]
    tensor, number = (first, second) if isinstance(first, Tensor) else (second, first)
    assert isinstance(tensor, Tensor)
    assert isinstance(number, Scalar)
    attrs["scale"] = a.integer("the number", number.value, -(1 << 31), (1 << 31) - 1)
    if mode == "Sub" and tensor is second:
        attrs["is_reverse"] = True
    return graph.add("top.BinaryConstShift", [tensor], attrs, result, out_name=out_name)[0]


@operator("binary shift")
def add_shift(
    tensor_i0: Operand,
    tensor_i1: Operand,
    shift: int,
    out_dtype: str | None = None,
    round_mode: str = "half_away_from_zero",
    is_saturate: bool = True,
    out_name: str | None = None,
) -> Tensor:
    """Return (t0 + t1) * 2**shift of integers, rounded; beyond the type it saturates or wraps."""
    return _shifted("Add", tensor_i0, tensor_i1, shift, out_dtype, round_mode, is_saturate, out_name)


@operator("binary shift")
def sub_shift(
    tensor_i0: Operand,
    tensor_i1: Operand,
    shift: int,
    out_dtype: str | None = None,
    round_mode: str = "half_away_from_zero",
    is_saturate: bool = True,
    out_name: str | None = None,
) -> Tensor:
    """Return (t0 - t1) * 2**shift, by the rules of `add_shift`; the result is signed."""
    return _shifted("Sub", tensor_i0, tensor_i1, shift, out_dtype, round_mode, is_saturate, out_name)


@operator("binary shift")
def mul_shift(
    tensor_i0: Operand,
    tensor_i1: Operand,
    shift: int,
    out_dtype: str | None = None,
    round_mode: str = "half_away_from_zero",
    is_saturate: bool = True,
    out_name: str | None = None,
) -> Tensor:
    """Return (t0 * t1) * 2**shift, by the rules of `add_shift`."""
    return _shifted("Mul", tensor_i0, tensor_i1, shift, out_dtype, round_mode, is_saturate, out_name)


@operator("misc")
def copy(input: Tensor, out_name: str | None = None) -> Tensor:
    """Return the tensor under another name."""
    a.tensor("input", input, a.FLOATS_AND_CODES)
    ones = (1,) * len(input.shape)
    attrs: dict[str, AttrValue] = {"shape": input.shape, "input_stride": ones, "output_stride": ones}
    return get_default_graph().add("top.Copy", [input], attrs, Result(input.dtype), out_name=out_name)[0]


@operator("misc")
def cast(
    tensor_i: Tensor, out_dtype: str = "float32", out_name: str | None = None, round_mode: str = "half_away_from_zero"
) -> Tensor:
    """Return the numbers in another type; for an integer type they are rounded and saturated."""
    a.tensor("tensor_i", tensor_i)
    kind = a.one_of("out_dtype", out_dtype, TENSOR_DTYPES)
    attrs: dict[str, AttrValue] = {"round_mode": a.rounding("round_mode", round_mode, without=("half_up", "half_down"))}
    return get_default_graph().add("top.Cast", [tensor_i], attrs, Result(kind), out_name=out_name)[0]


@operator("misc")
def clamp(input: Tensor, min: float, max: float, out_name: str | None = None) -> Tensor:
    """Return floats between two numbers."""
    a.tensor("input", input, a.FLOATS)
    low, high = a.number("min", min), a.number("max", max)
    if low > high:
        raise LangError(f"min={low:g}, max={high:g}: min must not be above max.")
    return get_default_graph().add(
        "top.Clip", [input], {"min": low, "max": high}, Result(input.dtype), out_name=out_name
    )[0]
