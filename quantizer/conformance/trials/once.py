"""A property that is computed once and keeps its value or the error that was raised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")
RAISED = " raised"
"""The end of the names under which an instance keeps errors."""


class once(Generic[T]):  # noqa: N801 - a decorator, as cached_property is
    """Compute a property at the first reading; every later reading gives the same value or raises the same error.

    functools.cached_property keeps no error. Under it a function that fails at its first call and succeeds at the next
    one would fail in no check, because the first reading only asks whether the case is refused. A value can be given,
    and `raises` sets an error: then nothing is computed. The value is in the instance's own dictionary, where Python
    looks first: a case reads some seventy values again.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name, self._error = name, name + RAISED

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> Self | T:
        if instance is None:
            return self
        kept = instance.__dict__
        if self._error in kept:
            raise kept[self._error]
        try:
            found = self._function(instance)
        except Exception as err:
            kept[self._error] = err
            raise
        kept[self._name] = found
        return found

    def raises(self, instance: object, error: Exception) -> None:
        """Let every reading on *instance* raise *error*."""
        instance.__dict__.pop(self._name, None)
        instance.__dict__[self._error] = error
