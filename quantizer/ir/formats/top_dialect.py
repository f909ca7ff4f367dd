"""The dialect `top` for xdsl, built from the same table, so that a second MLIR parser checks the written text.

Checked are counts and types of operands and results, kinds and choices of attributes, shapes, and quantized types.
xdsl checks the rest of the text (values, types of uses, the function's results). Needs the extra [mlir].
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from xdsl.context import Context
from xdsl.dialects import builtin as b
from xdsl.dialects.func import Func
from xdsl.ir import Attribute, Dialect, Operation, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import (
    AnyOf,
    AttrConstraint,
    BaseAttr,
    EqAttrConstraint,
    IRDLOperation,
    attr_def,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_attr_def,
    opt_operand_def,
    result_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError, VerifyException

from quantizer.core.dtypes import DTYPES
from quantizer.core.errors import FormatError
from quantizer.ir.formats import top_ops
from quantizer.ir.formats.mlir_attrs import WANTED
from quantizer.ir.formats.mlir_types import QUANTIZED
from quantizer.ir.formats.shape_calls import Known
from quantizer.ir.formats.top_ops import TOP_OPS, TopOp, Value
from quantizer.ir.formats.top_shapes import check

_STORAGE = {text: DTYPES[name] for name, text in QUANTIZED.items()}
_INTEGERS = {
    "i64": b.IntegerType(64),
    "i32": b.IntegerType(32),
    "si32": b.IntegerType(32, b.Signedness.SIGNED),
    "ui32": b.IntegerType(32, b.Signedness.UNSIGNED),
}
_TENSOR = AnyOf([BaseAttr(b.TensorType), BaseAttr(b.UnrankedTensorType)])
_NONE = EqAttrConstraint(b.NoneType())


@irdl_attr_definition
class UniformType(ParametrizedAttribute, TypeAttribute):
    """`!quant.uniform<i8<-128:127>:f32:axis, {scale:zero_point, ...}>`: the type of quantized codes."""

    name = "quant.uniform"
    storage: b.StringAttr
    bounds: b.ArrayAttr[b.IntAttr]
    axis: b.IntAttr
    """-1: per tensor."""
    scales: b.ArrayAttr[b.FloatData]
    zeros: b.ArrayAttr[b.IntAttr]

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        """Return the parameters between the angle brackets."""
        with parser.in_angle_brackets():
            storage = parser.parse_identifier(context_msg=" for the storage, such as i8")
            bounds: list[int] = []
            if parser.parse_optional_punctuation("<"):
                bounds = [parser.parse_integer(allow_boolean=False)]
                parser.parse_punctuation(":")
                bounds.append(parser.parse_integer(allow_boolean=False))
                parser.parse_punctuation(">")
            parser.parse_punctuation(":")
            if parser.parse_type() != b.Float32Type():
                parser.raise_error("the expressed type must be f32")
            axis = -1
            if parser.parse_optional_punctuation(":"):
                axis = parser.parse_integer(allow_boolean=False, allow_negative=False)
            parser.parse_punctuation(",")
            listed = parser.parse_optional_comma_separated_list(parser.Delimiter.BRACES, lambda: _step(parser))
            steps = [_step(parser)] if listed is None else listed
            if (listed is None) != (axis == -1):
                parser.raise_error("per axis is written i8:f32:axis, {...}, per tensor i8:f32, scale:zero_point")
        return [
            b.StringAttr(storage),
            b.ArrayAttr([b.IntAttr(bound) for bound in bounds]),
            b.IntAttr(axis),
            b.ArrayAttr([b.FloatData(scale) for scale, _ in steps]),
            b.ArrayAttr([b.IntAttr(zero) for _, zero in steps]),
        ]

    def print_parameters(self, printer: Printer) -> None:
        """Print the parameters between angle brackets."""
        low_high = ":".join(str(bound.data) for bound in self.bounds)
        pairs = zip(self.scales, self.zeros, strict=True)
        steps = ", ".join(f"{scale.data!r}:{zero.data}" for scale, zero in pairs)
        per_tensor = self.axis.data == -1
        axis, listed = ("", steps) if per_tensor else (f":{self.axis.data}", f"{{{steps}}}")
        printer.print_string(f"<{self.storage.data}{f'<{low_high}>' if low_high else ''}:f32{axis}, {listed}>")

    def verify(self) -> None:
        """Raise VerifyException where codes, scales or zero points are impossible."""
        if self.storage.data not in _STORAGE:
            raise VerifyException(f"{self.storage.data!r} cannot hold codes: must be one of {', '.join(_STORAGE)}")
        dtype = _STORAGE[self.storage.data]
        # without bounds, all codes of the storage type
        low, high = [bound.data for bound in self.bounds] or [dtype.min, dtype.max]
        if not dtype.min <= low <= high <= dtype.max:
            raise VerifyException(f"codes {low}:{high}: must lie in [{dtype.min}, {dtype.max}]")
        for scale in self.scales:
            if not 0.0 < scale.data < math.inf:
                raise VerifyException(f"scale {scale.data}: must be positive and finite")
        for zero in self.zeros:
            if not low <= zero.data <= high:
                raise VerifyException(f"zero point {zero.data}: must be one of the codes [{low}, {high}]")


def _step(parser: AttrParser) -> tuple[float, int]:
    scale = float(parser.parse_number(allow_boolean=False))
    return scale, parser.parse_integer(allow_boolean=False) if parser.parse_optional_punctuation(":") else 0


@dataclass(frozen=True)
class KindConstraint(AttrConstraint[Attribute]):
    """A constraint: the attribute has the kind that the table declares."""

    name: str
    attribute: top_ops.Attribute

    def verify(self, attr: Attribute, constraint_context: object) -> None:  # noqa: ARG002
        """Raise VerifyException for an attribute of another kind, or a text that is not a choice."""
        kind, choices = self.attribute.kind, self.attribute.choices
        if not _is(kind, attr) or (choices and attr.data not in choices):
            wanted = f"one of {', '.join(choices)}" if choices else WANTED[kind]
            raise VerifyException(f"attribute {self.name!r}: must be {wanted}, got {attr}")

    def mapping_type_vars(self, type_var_mapping: object) -> KindConstraint:  # noqa: ARG002
        """Return the constraint itself, because it has no type variables."""
        return self


def _is(kind: str, attr: Attribute) -> bool:
    if kind in ("i64s", "f64s", "entries"):
        item = {"i64s": "i64", "f64s": "f64", "entries": "entry"}[kind]
        return isinstance(attr, b.ArrayAttr) and all(_is(item, held) for held in attr)
    if kind == "bool":
        return isinstance(attr, b.IntegerAttr) and attr.type == b.IntegerType(1)
    if kind in _INTEGERS:
        return isinstance(attr, b.IntegerAttr) and attr.type == _INTEGERS[kind]
    if kind in ("f64", "f32"):
        return isinstance(attr, b.FloatAttr) and attr.type == (b.Float64Type() if kind == "f64" else b.Float32Type())
    if kind == "entry":
        return isinstance(attr, b.DictionaryAttr) and len(attr.data) == 1 and all(map(_is_value, attr.data.values()))
    return isinstance(attr, b.StringAttr | b.BytesAttr)


def _is_value(attr: Attribute) -> bool:
    if isinstance(attr, b.ArrayAttr):
        return all(_is("i64", item) for item in attr) or all(_is("f32", item) for item in attr)
    return any(_is(kind, attr) for kind in ("bool", "i64", "f32"))


def _constraint(value: Value) -> Any:
    return (
        AnyOf([BaseAttr(b.TensorType), BaseAttr(b.UnrankedTensorType), _NONE]) if value.presence == "none" else _TENSOR
    )


def _operation(op: TopOp) -> type[IRDLOperation]:
    """Return the operation of xdsl that the table's entry describes."""
    fields: dict[str, Any] = {"name": op.name, "verify_": _verify, "__doc__": f"`{op.name}`."}
    operands = {"variadic": var_operand_def, "optional": opt_operand_def}
    for value in op.operands:
        fields[f"operand_{value.name}"] = operands.get(value.presence, operand_def)(_constraint(value))
    for value in op.results:
        define = var_result_def if value.presence == "variadic" else result_def
        fields[f"result_{value.name}"] = define(_NONE if op.name == "top.None" else _constraint(value))
    for key, attribute in op.attributes.items():
        define_attr = attr_def if attribute.required else opt_attr_def
        fields[f"attribute_{key}"] = define_attr(KindConstraint(key, attribute), attr_name=key)
    made: type[IRDLOperation] = irdl_op_definition(type(op.name.replace(".", ""), (IRDLOperation,), fields))
    return made


def _verify(self: Operation) -> None:
    """Raise VerifyException for an attribute that is not in the table, no operands at all, or an impossible shape."""
    op = TOP_OPS[self.name]
    for key in self.attributes:
        if key not in op.attributes:
            raise VerifyException(f"no attribute {key!r}")
    for what, values, held in (("operands", op.operands, self.operands), ("results", op.results, self.results)):
        if values and values[0].presence == "variadic" and not held:
            raise VerifyException(f"no {what}: at least one")
    for value in (*self.operands, *self.results):
        _check_axis(value.type)
    attrs = {key: _python(attr) for key, attr in self.attributes.items()}
    try:
        check(
            op.name,
            attrs,
            _shapes(self.operands),
            _shapes(self.results),
            weights=[
                value.owner.name == "top.Weight" if isinstance(value.owner, Operation) else False
                for value in self.operands
            ],
            absent=[isinstance(value.type, b.NoneType) for value in self.operands],
        )
    except ValueError as err:
        raise VerifyException(str(err)) from None


def _check_axis(type_: Attribute) -> None:
    element = getattr(type_, "element_type", None)
    if not isinstance(element, UniformType) or element.axis.data == -1:
        return
    shape = type_.get_shape() if isinstance(type_, b.TensorType) else ()
    count, axis = len(element.scales), element.axis.data
    if shape[axis : axis + 1] != (count,) and not (axis == 1 and shape[:1] == (count,)):
        raise VerifyException(f"{count} scales along axis {axis} of shape {list(shape)}: every slice needs one scale")


def _shapes(values: Iterable[Any]) -> list[Known]:
    return [value.type.get_shape() if isinstance(value.type, b.TensorType) else None for value in values]


def _python(attr: Attribute) -> object:
    if isinstance(attr, b.ArrayAttr):
        return tuple(_python(item) for item in attr)
    if isinstance(attr, b.IntegerAttr):
        return bool(attr.value.data) if attr.type == b.IntegerType(1) else attr.value.data
    return attr.value.data if isinstance(attr, b.FloatAttr) else getattr(attr, "data", None)


TOP = Dialect("top", [_operation(op) for op in TOP_OPS.values()], [])
QUANT = Dialect("quant", [], [UniformType])


def context() -> Context:
    """Return a context of xdsl that knows modules, functions, Top and quantized types only."""
    made = Context()
    for dialect in (b.Builtin, Func, TOP, QUANT):
        made.load_dialect(dialect)
    return made


def verify_text(text: str, path: str) -> int:
    """Return how many operations of Top the module *text* has; FormatError if xdsl or the dialect refuses it."""
    try:
        module = Parser(context(), text, path).parse_module()
    except ParseError as err:
        before = str(err.span.input.content)[: err.span.start]
        place = f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"
        raise FormatError(f"{path}:{place}: xdsl: {_line(err.msg)}.") from None
    except (VerifyException, ValueError, RecursionError) as err:
        raise FormatError(f"{path}: xdsl: {_line(str(err))}.") from None
    count = 0
    for operation in module.walk():
        try:
            # one operation after the other, so that the error can name the one that is wrong
            operation.verify(verify_nested_ops=False)
        except VerifyException as err:
            # xdsl wraps the error of a dialect's own check into one about the operation
            reason = err.__cause__ if isinstance(err.__cause__, VerifyException) else err
            shown = f"{operation.name} at {operation.location}"
            raise FormatError(f"{path}: {shown}: {_line(str(reason))}.") from None
        count += operation.name.startswith("top.")
    return count


def _line(message: str) -> str:
    """Return the last line with text in a message of xdsl, without its frame."""
    lines = [line.strip(" ^\t") for line in message.strip().splitlines()]
    return (next((line for line in reversed(lines) if line), "cannot be read"))[:300].rstrip(".")
