"""Base class of all pydantic models that are read from files: strict, frozen, unknown keys are errors."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Iterator, Mapping

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """A record read from a file; a key that is not declared is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


@functools.cache
def meanings(model: type[Model]) -> Mapping[str, str]:
    """Return field -> the docstring below it, of *model* and its bases.

    The sources are parsed here on demand. With pydantic's use_attribute_docstrings each program would parse all of
    them at its start.
    """
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, Model):
            found |= _written(base.__module__).get(base.__qualname__, {})
    return {name: text for name, text in found.items() if name in model.model_fields}


@functools.cache
def _written(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return class -> field -> docstring for the classes of a module; empty if its source is not installed."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except OSError:
        return {}
    return {node.name: dict(_documented(node)) for node in tree.body if isinstance(node, ast.ClassDef)}


def _documented(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, below in zip(node.body, node.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, inspect.cleandoc(text)
