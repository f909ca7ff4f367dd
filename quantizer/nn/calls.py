"""Maps each call of a traced network to an operator, a movement, a fused activation, or nothing (training only)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from quantizer.core.case import AttrValue
from quantizer.core.errors import GraphError, UnsupportedError
from quantizer.nn.conv_bn import ConvBN_fix
from quantizer.nn.fixed import Fixed
from quantizer.nn.graph_parameters import activation_params, bias_in_sums, constant
from quantizer.nn.lower import Builder, Coded, Moved, Shape, Value, Waiting
from quantizer.nn.modules import Activation_fix
from quantizer.numerics.rules import same_numbers


@dataclass(frozen=True)
class Call:
    """One call: its name in the graph, its operands as values, its other arguments, the shape of its result."""

    builder: Builder
    label: str
    module: nn.Module | None
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    shape: Shape
    nearest_bias: bool

    def said(self, place: int, name: str, default: Any) -> Any:
        """Return an argument by position or name; for a module, its attribute of that name."""
        if self.module is not None:
            return getattr(self.module, name, default)
        return self.args[place] if len(self.args) > place else self.kwargs.get(name, default)


Meaning = Callable[[Call], Value]


def on_grid(call: Call) -> Value:
    """Map an Activation_fix: put the operand on its grid."""
    assert isinstance(call.module, Fixed)
    return call.builder.on_grid(call.args[0], activation_params(call.module, call.label), call.label)


def same(call: Call) -> Value:
    """Pass the operand on."""
    value: Value = call.args[0]
    return value


def rectified(name: str) -> Meaning:
    """Fuse an activation into an operator whose result has no grid yet, or add a relu after codes."""

    def meaning(call: Call) -> Value:
        value: Value = call.args[0]
        if isinstance(value, Waiting) and name in call.builder.specs.get(value.op, _NOTHING).fuses:
            if value.activation in ("none", name):
                return replace(value, activation=name)
            raise UnsupportedError(f"{call.label}: {name} after {value.activation}: write one activation.")
        x = call.builder.coded(value)
        if name != "relu":
            raise UnsupportedError(
                f"{call.label}: {name} after codes has no operator: put it before the Activation_fix."
            )
        # a relu of codes lies on the grid of its operand
        return Waiting("relu", call.label, {"x": x}, call.shape, own=x.params)

    return meaning


def convolved(call: Call) -> Value:
    """Map a convolution of fixed weights; with one group for each channel it becomes a depthwise one."""
    module = call.module
    assert isinstance(module, Fixed)
    conv: Any = module.conv if isinstance(module, ConvBN_fix) else module
    x = call.builder.coded(call.args[0])
    rank = len(x.shape) - 2
    if conv.padding_mode != "zeros":
        raise UnsupportedError(f"{call.label}: padding_mode {conv.padding_mode!r}: an operator pads with zeros.")
    if conv.padding == "same":
        spans = [d * (k - 1) for d, k in zip(conv.dilation, conv.kernel_size, strict=True)]
        # as in torch, an odd number of places has one more behind
        before, behind = [s // 2 for s in spans], [s - s // 2 for s in spans]
    else:
        before = behind = [0] * rank if conv.padding == "valid" else list(conv.padding)
    attrs: dict[str, AttrValue] = {
        "stride": tuple(conv.stride),
        "padding": (*before, *behind),
        "dilation": tuple(conv.dilation),
        "groups": conv.groups,
    }
    op = f"conv{rank}d"
    if rank == 2 and conv.groups == x.shape[1] > 1:
        op = "depthwise_conv2d"
        del attrs["groups"]
    weight, bias = module.folded() if isinstance(module, ConvBN_fix) else (conv.weight, conv.bias)
    return Waiting(op, call.label, {"x": x}, call.shape, attrs, _constants(call, x, weight, bias))


def fully_connected(call: Call) -> Value:
    """Map a fully connected layer; its input must have two axes."""
    module: Any = call.module
    x = call.builder.coded(call.args[0])
    if len(x.shape) != 2:
        raise UnsupportedError(
            f"{call.label}: input of shape {list(x.shape)}: fully_connected takes rows. Flatten first."
        )
    constants = _constants(call, x, module.weight, module.bias)
    return Waiting("fully_connected", call.label, {"x": x}, call.shape, {}, constants)


def _constants(call: Call, x: Coded, weight: torch.Tensor, bias: torch.Tensor | None) -> dict[str, Any]:
    assert isinstance(call.module, Fixed)
    codes = constant(call.module, "weight", weight, call.label)
    if bias is None:
        return {"weight": codes}
    own = constant(call.module, "bias", bias, call.label)
    return {"weight": codes, "bias": bias_in_sums(own, x.params, codes, call.label, nearest=call.nearest_bias)}


def added(call: Call) -> Value:
    """Map a sum of two activations."""
    operands = {}
    for name, value in zip("ab", call.args, strict=True):
        if not isinstance(value, Coded | Waiting):
            raise UnsupportedError(f"{call.label}: adds {value!r}: both operands must be activations on grids.")
        operands[name] = call.builder.coded(value)
    if call.kwargs:
        raise UnsupportedError(f"{call.label}: {', '.join(call.kwargs)}: a sum has no such argument.")
    return Waiting("add", call.label, operands, call.shape)


def joined(call: Call) -> Value:
    """Map the concatenation of two to four activations."""
    parts = [call.builder.coded(value) for value in call.args[0]]
    axis = int(call.said(1, "dim", 0))
    if not 2 <= len(parts) <= 4:
        raise UnsupportedError(f"{call.label}: {len(parts)} operands: concat takes 2 to 4.")
    first = parts[0].params
    equal = all(same_numbers(first, part.params) for part in parts)
    operands = dict(zip("abcd", parts, strict=False))
    # codes of one grid are joined without rounding, so the result lies on that grid already
    return Waiting("concat", call.label, operands, call.shape, {"axis": axis}, own=first if equal else None)


def reshaped(call: Call) -> Value:
    """Map a reshape."""
    return call.builder.moved(call.args[0], Moved("reshape", {"shape": call.shape}, call.shape, call.label))


def largest(call: Call) -> Value:
    """Map max pooling: the largest element of each window."""
    if _pair(call.said(4, "dilation", 1)) != (1, 1):
        raise UnsupportedError(f"{call.label}: dilated windows: max_pool2d has none.")
    # F.max_pool2d has dilation before ceil_mode, F.avg_pool2d has no dilation
    attrs = _window(call, ceil_place=5)
    return call.builder.moved(call.args[0], Moved("max_pool2d", attrs, call.shape, call.label))


def averaged(call: Call) -> Value:
    """Map average pooling: the mean of each window."""
    if call.said(6, "divisor_override", None) is not None:
        raise UnsupportedError(f"{call.label}: divisor_override: avg_pool2d divides by the places of a window.")
    x = call.builder.coded(call.args[0])
    attrs = {**_window(call, ceil_place=4), "count_include_pad": bool(call.said(5, "count_include_pad", 1))}
    return Waiting("avg_pool2d", call.label, {"x": x}, call.shape, attrs)


def averaged_to(call: Call) -> Value:
    """Map adaptive average pooling to size 1: the mean over all places of each channel."""
    if _pair(call.said(1, "output_size", None)) != (1, 1):
        raise UnsupportedError(
            f"{call.label}: output size {call.said(1, 'output_size', None)}: only 1 has an operator."
        )
    return Waiting("global_avg_pool2d", call.label, {"x": call.builder.coded(call.args[0])}, call.shape)


def mean(call: Call) -> Value:
    """Map the mean over both spatial axes."""
    x = call.builder.coded(call.args[0])
    axes = call.said(1, "dim", None)
    if len(x.shape) != 4 or sorted(a % 4 for a in (axes if isinstance(axes, Sequence) else ())) != [2, 3]:
        raise UnsupportedError(
            f"{call.label}: mean over {axes} of {list(x.shape)}: only both spatial axes have an operator."
        )
    # the operator keeps both axes with size 1; torch's mean drops them unless keepdim is set
    made = Waiting("global_avg_pool2d", call.label, {"x": x}, (*x.shape[:2], 1, 1))
    if call.shape == made.shape:
        return made
    return replace(made, after=(Moved("reshape", {"shape": call.shape}, call.shape, f"{call.label}_flat"),))


def _window(call: Call, *, ceil_place: int) -> dict[str, AttrValue]:
    kernel = _pair(call.said(1, "kernel_size", None))
    stride = call.said(2, "stride", None)
    padding = _pair(call.said(3, "padding", 0))
    return {
        "kernel": kernel,
        # torch's default stride is the size of the window
        "stride": kernel if stride in (None, ()) else _pair(stride),
        "padding": (*padding, *padding),
        "ceil_mode": bool(call.said(ceil_place, "ceil_mode", 0)),
    }


def _pair(value: Any) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    if not isinstance(value, Sequence) or not value:
        raise GraphError(f"window {value!r}: must be one size or two.")
    return int(value[0]), int(value[-1])


class _Nothing:
    fuses: tuple[str, ...] = ()


# the input of a network is no operator and has no spec
_NOTHING: Any = _Nothing()
MODULES: tuple[tuple[type[nn.Module], Meaning], ...] = (
    (Activation_fix, on_grid),
    (ConvBN_fix, convolved),
    (nn.Conv1d, convolved),
    (nn.Conv2d, convolved),
    (nn.Conv3d, convolved),
    (nn.Linear, fully_connected),
    (nn.ReLU, rectified("relu")),
    (nn.ReLU6, rectified("relu6")),
    (nn.MaxPool2d, largest),
    (nn.AvgPool2d, averaged),
    (nn.AdaptiveAvgPool2d, averaged_to),
    (nn.Flatten, reshaped),
    (nn.Identity, same),
    (nn.Dropout, same),
    (nn.Dropout2d, same),
)
FUNCTIONS: dict[Any, Meaning] = {
    **dict.fromkeys((F.relu, torch.relu), rectified("relu")),
    F.relu6: rectified("relu6"),
    **dict.fromkeys((operator.add, operator.iadd, torch.add), added),
    **dict.fromkeys((torch.cat, torch.concat), joined),
    **dict.fromkeys((torch.flatten, torch.reshape, torch.squeeze, torch.unsqueeze), reshaped),
    **dict.fromkeys((F.max_pool2d, torch.max_pool2d), largest),
    F.avg_pool2d: averaged,
    F.adaptive_avg_pool2d: averaged_to,
    torch.mean: mean,
    F.dropout: same,
}
METHODS: dict[str, Meaning] = {
    **dict.fromkeys(("relu", "relu_"), rectified("relu")),
    **dict.fromkeys(("add", "add_"), added),
    **dict.fromkeys(("flatten", "reshape", "view", "squeeze", "unsqueeze"), reshaped),
    "mean": mean,
    **dict.fromkeys(("contiguous", "detach"), same),
}
