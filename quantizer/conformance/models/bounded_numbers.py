"""Tensors whose numbers each have a bound of the float32 error, computed by a rule for every function of torch.

A rule says how a function changes the errors of its operands and what its own float32 rounding adds, with sums in any
order. A function without a rule has no analysis, and the error names it. A comparison whose outcome the errors can
change is a bool of radius 1, and a choice by it may take either branch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from quantizer.conformance.checks.float32 import lost
from quantizer.core.errors import UnsupportedError

SMALLEST = float(torch.finfo(torch.float32).smallest_normal)
LARGEST = float(torch.finfo(torch.float32).max)
MADE = lost(4)
"""Error, relative to the largest number, of numbers that a definition computes from integers and attributes, such as
places on a grid."""
Pair: TypeAlias = "tuple[Tensor, Tensor]"
Rule: TypeAlias = "Callable[..., Pair]"
RULES: dict[str, Rule] = {}
"""The rule of each function of torch, by its name; `float32_rules` registers them."""


class NoAnalysisError(UnsupportedError):
    """A function without a rule, or an error that a rule cannot bound."""


class Bounded(Tensor):
    """Numbers in float64, or bools, with the largest distance of a float32 result from each."""

    radius: Tensor

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Compute *func* on the numbers, and the radius by its rule; NoAnalysisError if it has none."""
        # inside, functions of torch run on the plain tensors instead of coming back here
        with torch._C.DisableTorchFunctionSubclass():
            return _called(func, args, dict(kwargs or {}))


def bounded(values: Tensor, radius: Tensor) -> Bounded:
    """Return *values* with their radius. An overflow in float32 is infinite; a possible one has an infinite radius."""
    if values.is_floating_point():
        size = values.abs()
        values = torch.where(size - radius > LARGEST, values.sign() * math.inf, values)
        radius = torch.where(size + radius >= LARGEST, math.inf, radius).masked_fill(values.isinf(), 0.0)
    made = values.detach().as_subclass(Bounded)
    made.radius = radius
    return made


def exact(values: Tensor) -> Bounded:
    """Return *values* without error."""
    return bounded(values, torch.zeros(values.shape, dtype=torch.float64))


def parts(found: object) -> Pair:
    """Return an operand's numbers and their radius. Numbers that the definition computed are off by a few roundings."""
    if isinstance(found, Bounded):
        return found.as_subclass(Tensor), found.radius
    values = found if isinstance(found, Tensor) else torch.tensor(found, dtype=torch.float64)
    radius = torch.zeros(values.shape, dtype=torch.float64)
    # numbers that float32 holds, such as 0.5, are taken as exact
    if values.is_floating_point() and values.numel() and not torch.equal(values, values.float().to(values.dtype)):
        radius += MADE * float(values.abs().max())
    return values, radius


def _called(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    name = str(func.__name__).strip("_")
    if name == "get":  # of an attribute: its shape, type, or a transposition
        found = func(*_mapped(args, _numbers))
        return bounded(found, func(*_mapped(args, _radii))) if isinstance(found, Tensor) else found
    if name in SEEN:
        return func(*_mapped(args, _numbers), **_mapped(kwargs, _numbers))
    rule = RULES.get(name)
    if rule is not None:
        return bounded(*rule(*args, **kwargs))
    if name in MOVEMENTS:
        made, radii = (func(*_mapped(args, of), **_mapped(kwargs, of)) for of in (_numbers, _radii))
        if isinstance(made, Tensor):
            return bounded(made, radii)
        return [bounded(*pair) for pair in zip(made, radii, strict=True)]
    raise NoAnalysisError(f"there is no analysis of the float32 error of {name}")


def _mapped(found: Any, of: Callable[[Any], Any]) -> Any:
    if isinstance(found, list | tuple):
        return type(found)(_mapped(item, of) for item in found)
    if isinstance(found, dict):
        return {key: _mapped(item, of) for key, item in found.items()}
    return of(found)


def _numbers(found: Any) -> Any:
    return found.as_subclass(Tensor) if isinstance(found, Bounded) else found


def _radii(found: Any) -> Any:
    if isinstance(found, Bounded):
        return found.radius
    if isinstance(found, Tensor) and found.is_floating_point():
        return torch.zeros(found.shape, dtype=torch.float64)
    return found


SEEN = frozenset(
    "dim size numel is_floating_point stride isnan isinf isfinite new_zeros new_ones new_full zeros_like ones_like "
    "full_like len".split()
)
"""Functions whose results do not depend on the last bits of numbers."""
MOVEMENTS = frozenset(
    "transpose reshape permute getitem chunk split narrow flatten squeeze unsqueeze stack cat index_select gather flip "
    "repeat_interleave expand expand_as broadcast_to contiguous clone movedim select unfold unbind swapaxes tril triu "
    "diagonal tile repeat roll view amax relu abs concat detach take_along_dim".split()
)
"""Functions that move numbers, or whose results change at most as their operands do. The radii go through them
unchanged."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the decorated function as the rule of torch's functions of these names."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return register
