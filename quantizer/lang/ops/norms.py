"""Normalisations of floats."""

from __future__ import annotations

import math
from collections.abc import Sequence

from quantizer.ir.graph import AttrValue
from quantizer.lang import arguments as a
from quantizer.lang.current import get_default_graph, operator
from quantizer.lang.errors import LangError
from quantizer.lang.graph import Result
from quantizer.lang.tensor import Tensor

GROUP = "norm"


def _vector(argument: str, value: Tensor | None, x: Tensor, count: int) -> None:
    """Require *count* numbers of x's type."""
    if a.optional(argument, value, (x.dtype,)) is not None and value is not None and math.prod(value.shape) != count:
        raise LangError(f"{argument} has shape {list(value.shape)}: must hold {count} numbers.")


def _epsilon(value: float) -> float:
    return a.number("epsilon", value, least=0.0)


@operator(GROUP)
def batch_norm(
    input: Tensor,
    mean: Tensor,
    variance: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    epsilon: float = 1e-5,
    out_name: str | None = None,
) -> Tensor:
    """Return (x - mean) / sqrt(variance + epsilon) * gamma + beta for each channel of axis 1."""
    a.tensor("input", input, a.FLOATS, range(2, 6))
    a.tensor("mean", mean)
    a.tensor("variance", variance)
    given = {"mean": mean, "variance": variance, "gamma": gamma, "beta": beta}
    for argument, value in given.items():
        _vector(argument, value, input, input.shape[1])
    attrs: dict[str, AttrValue] = {"epsilon": _epsilon(epsilon)}
    operands = [input, mean, variance, gamma, beta]
    return get_default_graph().add("top.BatchNorm", operands, attrs, Result(input.dtype), out_name=out_name)[0]


@operator(GROUP)
def layer_norm(
    input: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    epsilon: float = 1e-5,
    axis: int = 2,
    out_name: str | None = None,
) -> Tensor:
    """Normalise over the axes from *axis* on; then multiply each element by its gamma and add its beta."""
    a.tensor("input", input, a.FLOATS)
    along = a.axis("axis", axis, len(input.shape))
    for argument, value in {"gamma": gamma, "beta": beta}.items():
        _vector(argument, value, input, math.prod(input.shape[along:]))
    attrs: dict[str, AttrValue] = {"eps": _epsilon(epsilon), "axis": along, "normalized_shape": ()}
    operands = [input, gamma, beta]
    return get_default_graph().add("top.LayerNorm", operands, attrs, Result(input.dtype), out_name=out_name)[0]


@operator(GROUP)
def group_norm(
    input: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    epsilon: float = 1e-5,
    num_groups: int = 1,
    out_name: str | None = None,
) -> Tensor:
    """Normalise groups of the channels of axis 1; then multiply each channel by its gamma and add its beta."""
    a.tensor("input", input, a.FLOATS, range(3, 6))
    groups = a.integer("num_groups", num_groups, least=1)
    if input.shape[1] % groups:
        raise LangError(f"num_groups={groups}: must divide the {input.shape[1]} channels.")
    for argument, value in {"gamma": gamma, "beta": beta}.items():
        _vector(argument, value, input, input.shape[1])
    attrs: dict[str, AttrValue] = {"eps": _epsilon(epsilon), "num_groups": groups}
    operands = [input, gamma, beta]
    return get_default_graph().add("top.GroupNorm", operands, attrs, Result(input.dtype), out_name=out_name)[0]


@operator(GROUP)
def rms_norm(
    input: Tensor, gamma: Tensor | None = None, epsilon: float = 1e-5, axis: int = -1, out_name: str | None = None
) -> Tensor:
    """Divide by the root of the mean square over the last axis; then multiply each element by its gamma."""
    a.tensor("input", input, a.FLOATS)
    last = len(input.shape) - 1
    if a.axis("axis", axis, len(input.shape)) != last:
        raise LangError(f"axis={axis}: must be the last, -1 or {last}.")
    if a.optional("gamma", gamma, (input.dtype,)) is not None and gamma is not None and gamma.shape != input.shape[-1:]:
        raise LangError(f"gamma has shape {list(gamma.shape)}: must be [{input.shape[-1]}].")
    attrs: dict[str, AttrValue] = {"eps": _epsilon(epsilon)}
    return get_default_graph().add("top.RMSNorm", [input, gamma], attrs, Result(input.dtype), out_name=out_name)[0]


@operator(GROUP)
def normalize(
    input: Tensor, p: float = 2.0, axes: Sequence[int] | int = 1, eps: float = 1e-12, out_name: str | None = None
) -> Tensor:
    """Return x / max(eps, (sum of |x|**p over neighbouring axes)**(1/p)), written as the operators it consists of."""
    a.tensor("input", input, a.FLOATS)
    over = tuple(sorted(a.axes("axes", axes, len(input.shape))))
    if over != tuple(range(over[0], over[0] + len(over))):
        raise LangError(f"axes={list(over)}: must be neighbours.")
    power, least = a.number("p", p, above=0.0), a.number("eps", eps, above=0.0)
    graph, result = get_default_graph(), Result(input.dtype)

    def one(op: str, operands: list[Tensor], attrs: dict[str, AttrValue], name: str | None = None) -> Tensor:
        return graph.add(op, list(operands), attrs, result, out_name=name)[0]

    size = one("top.Abs", [input], {})
    if power == 2:
        size = one("top.Mul", [size, size], {})
    elif power != 1:
        size = one("top.Pow", [size], {"exponent": power})
    total = one("top.Reduce", [size], {"axes": over, "keepdims": True, "mode": "ReduceSum"})
    norm = total if power == 1 else one("top.Pow", [total], {"exponent": 1 / power})
    bounded = one("top.Clip", [norm], {"min": least, "max": math.inf})
    return one("top.Div", [input, one("top.Expand", [bounded], {"shape": input.shape})], {}, out_name)
