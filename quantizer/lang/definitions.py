"""Lets the caller define operators, as functions that build them from other operator functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from quantizer.core.errors import UnsupportedError
from quantizer.core.wording import suggestion
from quantizer.lang.errors import LangError
from quantizer.lang.tensor import Tensor

Definition = Callable[..., "Tensor | Sequence[Tensor]"]
F = TypeVar("F", bound=Definition)
_DEFINED: dict[str, Definition] = {}


def define_custom(name: str) -> Callable[[F], F]:
    """Register the decorated function, `f(*tensors, **params)`, as the definition of the custom operator *name*.

    The function returns the results in order. It is called once for each use, with an empty graph, and must build the
    same operators each time. A later definition replaces an earlier one.
    """
    if not isinstance(name, str) or not name.replace(".", "_").isidentifier():
        raise LangError(f"define_custom: name={name!r}: must be a name.")

    def register(function: F) -> F:
        _DEFINED[name] = function
        return function

    return register


def definition(name: str) -> Definition:
    """Return the definition of `custom` with this name; UnsupportedError if there is none."""
    if name not in _DEFINED:
        raise UnsupportedError(
            f"custom operator {name!r}: nothing defines it: write a function of other operators under"
            f" @define_custom({name!r}).{suggestion(str(name), _DEFINED, 'Defined')}"
        )
    return _DEFINED[name]
