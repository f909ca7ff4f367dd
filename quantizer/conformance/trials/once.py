"""A property that is computed once and keeps its value or the error that was raised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class once(Generic[T]):  # noqa: N801 - a decorator, as cached_property is
    """Compute a property at the first reading; every later reading gives the same value or raises the same error.

    functools.cached_property keeps no error. Under it a function that fails at its first call and succeeds at the next
    one would fail in no check, because the first reading only asks whether the case is refused. The value, or the
    error, can be assigned: then nothing is computed.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> Self | T:
        if instance is None:
            return self
        kept = instance.__dict__
        if self._name not in kept:
            try:
                kept[self._name] = self._function(instance)
            except Exception as err:  # noqa: BLE001 - raised below
                kept[self._name] = err
        found: T | Exception = kept[self._name]
        if isinstance(found, Exception):
            raise found
        return found

    def __set__(self, instance: object, value: T | Exception) -> None:
        instance.__dict__[self._name] = value
