"""Infers the result shapes of Top's operators from operand shapes and attributes.

There is no shape if the text alone does not determine it. Source: the rules of tpu-mlir's public shape inference. Pads
are all begins, then all ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

from quantizer.core.errors import FormatError
from quantizer.ir.formats import shape_moves as moves
from quantizer.ir.formats import shape_windows as windows
from quantizer.ir.formats.shape_calls import Call, Known, broadcast
from quantizer.ir.formats.top_ops import ABSENT, TOP_OPS
from quantizer.ir.graph import Graph

Rule = Callable[[Call], "list[Known]"]


def check(
    op: str,
    attrs: Mapping[str, object],
    operands: Sequence[Known],
    results: Sequence[Known],
    *,
    weights: Sequence[bool] = (),
    absent: Sequence[bool] = (),
) -> None:
    """Raise ValueError if an operator cannot take operands of these shapes, or cannot have results of these.

    None is an unknown shape, or the shape of `none`. A size below 0 is unknown too. *weights* and *absent*
    say, for each operand, whether it is a constant and whether it is `none`.
    """
    gone = tuple(absent) or (False,) * len(operands)
    known = all(no or _known(shape) for shape, no in zip(operands, gone, strict=True))
    if op not in _RULES or not known:
        return
    table = TOP_OPS[op].attributes
    # a text leaves out attributes that have their default
    filled = {key: item.default for key, item in table.items() if item.default is not None} | dict(attrs)
    shapes = tuple(shape or () for shape in operands)
    made = _RULES[op](Call(filled, shapes, tuple(weights) or (False,) * len(shapes), gone))
    for i, (found, wanted) in enumerate(zip_longest(results, made)):
        if _known(found) and wanted is not None and found != wanted:
            raise ValueError(f"result {i} has shape {list(found or ())}, must be {list(wanted)}")


def check_graph(graph: Graph) -> None:
    """Raise FormatError for the first node of *graph* that cannot take its operands or does not make its results."""
    for node in graph.order:
        tensors = [None if name is None else graph.tensor(name) for name in node.inputs]
        made = [graph.tensor(name) for name in node.outputs]
        absent = [name == f"{node.name}{ABSENT}{i}" for i, name in enumerate(node.outputs)]
        try:
            check(
                node.op,
                node.attrs,
                [item.shape if item and item.ranked else None for item in tensors],
                [None if gone or not item.ranked else item.shape for item, gone in zip(made, absent, strict=True)],
                weights=[item is not None and item.is_constant for item in tensors],
                absent=[item is None for item in tensors],
            )
        except ValueError as err:
            raise FormatError(f"graph {graph.name!r}: node {node.name!r} ({node.op}): {err}.") from None


def _known(shape: Known) -> bool:
    return shape is not None and all(size >= 0 for size in shape)


def _operand_shape(call: Call) -> list[Known]:
    return [call.first]


def _broadcast(call: Call) -> list[Known]:
    return [broadcast([shape for shape, gone in zip(call.shapes, call.absent, strict=True) if not gone])]


_SAME = (
    "AddConst SubConst MulConst MinConst MaxConst BinaryConstShift Pow Clip CompareConst Abs Ceil Floor Round Sin "
    "Cos Tan Sinh Cosh Arccos Arctanh Exp Log Sqrt Rsqrt Erf Sign SiLU Mish HardSwish Relu PRelu LeakyRelu Elu "
    "Tanh Sigmoid HardSigmoid Swish GELU Lut Cast RequantInt DequantInt RequantFp MeanStdScale Copy "
    "ScatterElements ScatterND BatchNorm GroupNorm RMSNorm Rope Input"
)
_BROADCAST = "Add Sub Mul Div Min Max BinaryShift Compare Where"
_OTHERS: dict[str, Rule] = {
    "Conv": windows.conv,
    "Deconv": windows.deconv,
    "MatMul": windows.matmul,
    "MaxPool": windows.pool,
    "AvgPool": windows.pool,
    "MaxPoolWithMask": lambda call: windows.pool(call) * 2,
    "Permute": moves.permute,
    "Reshape": moves.reshape,
    "Flatten": moves.flatten,
    "Squeeze": moves.squeeze,
    "Unsqueeze": moves.unsqueeze,
    "Expand": moves.expand,
    "Tile": moves.tile,
    "Concat": moves.concat,
    "Split": moves.split,
    "Slice": moves.cut,
    "Pad": moves.pad,
    "Shape": moves.shape,
    "Gather": moves.gather,
    "Reduce": moves.reduce,
    "Arg": moves.arg,
    "Sort": moves.sort,
    "TopK": moves.topk,
    "Upsample": moves.upsample,
    "Softmax": moves.on_axis,
    "LayerNorm": moves.on_axis,
}
_RULES: dict[str, Rule] = (
    {f"top.{name}": _operand_shape for name in _SAME.split()}
    | {f"top.{name}": _broadcast for name in _BROADCAST.split()}
    | {f"top.{name}": rule for name, rule in _OTHERS.items()}
)
CHECKED = frozenset(_RULES)
"""The operators whose shapes are checked. For other operators, the text does not determine the result."""
