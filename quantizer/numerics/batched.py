"""Batched functions: they compute several trials of one structure in one call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from quantizer.core.errors import GraphError
from quantizer.numerics.qparams import Parameters, Staged

Function = Callable[..., Any]


@functools.cache
def of_batches(function: Function) -> Function:
    """Wrap *function*, which takes K trials, so that it also takes a single case, as a batch of one.

    In a batch, each operand and the result have a first axis of K trials, and `parameters` is a tuple of K. A call with
    one `Parameters` is a single case.
    """

    @functools.wraps(function)
    def call(*operands: Any, parameters: Parameters | tuple[Parameters, ...], **named: Any) -> Any:
        if isinstance(parameters, tuple):
            return function(*operands, parameters=parameters, **named)
        one = {name: _as_batch(value) for name, value in named.items()}
        made = function(*map(_as_batch, operands), parameters=(parameters,), **one)
        return trials_of(made, 1)[0]

    return call


def _as_batch(value: Any) -> Any:
    return value.unsqueeze(0) if isinstance(value, Tensor) else value


def trials_of(made: Any, count: int) -> Sequence[Any]:
    """Split the result of a batched function into *count* trials; GraphError if it holds another number of trials."""
    if isinstance(made, Staged):
        codes = _each(made.codes, count)
        stages = {name: _each(values, count) for name, values in made.stages.items()}
        return [Staged(own, {name: held[k] for name, held in stages.items()}) for k, own in enumerate(codes)]
    if isinstance(made, tuple | list):
        return list(zip(*(_each(piece, count) for piece in made), strict=True))
    return _each(made, count)


def _each(made: Any, count: int) -> Sequence[Tensor]:
    if not isinstance(made, Tensor):
        raise GraphError(f"a batched function returned {type(made).__name__}. Return a torch.Tensor.")
    if not made.dim() or made.shape[0] != count:
        raise GraphError(
            f"a batched function returned shape {list(made.shape)} for {count} trials: must begin with {count}."
        )
    return made.unbind(0)
