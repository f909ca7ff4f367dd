"""Checks that the fields of a record have their declared types: a plugin's function may return anything."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Literal

Test = Callable[[Any], bool]


def strange(kind: type, values: Mapping[str, Any]) -> str | None:
    """Return a message about the first of *values*, a record's fields, that has the wrong type, or None."""
    for name, (hint, test) in _tests(kind).items():
        if not test(values[name]):
            return f"provided {kind.__name__} whose {name} is a {type(values[name]).__name__}: must be {hint}."
    return None


@cache
def _tests(kind: type) -> Mapping[str, tuple[str, Test]]:
    hints = typing.get_type_hints(kind)
    return {name: (_said(hints[name]), _test(hints[name])) for name in kind.__dataclass_fields__}  # type: ignore[attr-defined]


def _said(hint: Any) -> str:
    return " or ".join(map(_said, typing.get_args(hint))) if _is_union(hint) else getattr(hint, "__name__", str(hint))


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _test(hint: Any) -> Test:
    """Return a function that tests values of a type.

    It accepts everything for a type that does not restrict its values.
    """
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if _is_union(hint):
        tests = [_test(item) for item in args]
        return lambda value: any(test(value) for test in tests)
    if origin is Literal:
        return lambda value: isinstance(value, str | int) and value in args
    if hint is float:
        return lambda value: type(value) in (int, float)
    # not isinstance: True is an int
    if hint is int:
        return lambda value: type(value) is int
    if origin in (Mapping, dict) and len(args) == 2:
        key, item = map(_test, args)
        return lambda value: isinstance(value, Mapping) and all(key(k) and item(v) for k, v in value.items())
    if origin in (Sequence, list, tuple):
        return lambda value: isinstance(value, list | tuple)
    return (lambda value: isinstance(value, hint)) if isinstance(hint, type) else lambda _: True
