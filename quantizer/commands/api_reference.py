"""Writes the page of all names that other code may import, from the packages themselves."""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from collections.abc import Iterator

from quantizer.core.wording import in_markdown

PUBLIC = ("core", "numerics", "ir", "ops", "runtime", "optimize", "conformance", "reporting", "nn")
"""The packages with public names. `quantizer.lang` has its own page."""
LONGEST = 150
"""The most characters of a shown signature. Keys of specs and platforms, which are longer, have their own pages."""
_INTRO = """\
# The public API

Written by `quantizer docs` from the packages. Names on this page keep their meaning within a major version. Import
them from the package that the heading names:

```python
from quantizer.runtime import RuntimeHook, TorchExecutor, register_operation_handler
```

A name is imported when it is first used, so that `quantizer.core` and `quantizer.reporting` need no torch. Every other
module, and every name that is not on this page, is private and may change in any release. The functions of
`quantizer.lang` are listed in [tpulang.md](../tpulang.md)."""


def api_document() -> str:
    """Return the page: each public package, with the signature and the first sentence of each name."""
    return "\n\n".join([_INTRO, *(_section(package) for package in PUBLIC)]) + "\n"


def _section(package: str) -> str:
    module = importlib.import_module(f"quantizer.{package}")
    lines = [f"## quantizer.{package}", "", _first(module), ""]
    for name in sorted(module.__all__, key=lambda name: (name.lower(), name)):
        lines += _entry(name, getattr(module, name))
    return "\n".join(lines).rstrip()


def _entry(name: str, value: object) -> Iterator[str]:
    yield f"* `{name}{_signature(value)}`: {_first(value)}" if callable(value) else f"* `{name}`"
    if inspect.isclass(value) and not issubclass(value, enum.Enum | Exception):
        for method, function in vars(value).items():
            if inspect.isfunction(function) and not method.startswith("_"):
                yield f"    * `{method}{_signature(function)}`: {_first(function)}"


def _signature(value: object) -> str:
    """Return the names of the parameters, without types; empty for an exception or an enumeration."""
    if inspect.isclass(value) and issubclass(value, enum.Enum | Exception):
        return ""
    try:
        parameters = inspect.signature(value).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):  # the constructor of this class is not written in Python
        return ""
    names = ", ".join(_names(list(parameters)))
    return f"({names})" if len(names) <= LONGEST else "(...)"


def _names(parameters: list[inspect.Parameter]) -> Iterator[str]:
    keyword_only = False
    for parameter in parameters:
        if parameter.name in {"self", "cls"}:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            yield "*"
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
        stars = "**" if parameter.kind is parameter.VAR_KEYWORD else stars
        # *args already says that what follows is given by name
        keyword_only |= stars == "*"
        optional = "=..." if parameter.default is not parameter.empty else ""
        yield f"{stars}{parameter.name}{optional}"


def _first(value: object) -> str:
    """Return the first sentence of the docstring; empty if the object itself has none."""
    # inspect.getdoc would give a class the docstring of its base
    text = (value.__doc__ if inspect.isclass(value) else inspect.getdoc(value)) or ""
    paragraph = in_markdown(text.strip().split("\n\n")[0])
    return re.split(r"(?<=\.)\s+(?=[A-Z])", paragraph)[0]
