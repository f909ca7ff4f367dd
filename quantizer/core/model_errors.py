"""Turns pydantic's errors into our messages: place, value, rule and remedy."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from quantizer.core.model import Model, meanings
from quantizer.core.wording import got, near, suggestion
from quantizer.core.yaml_source import Location, Positions

IDENTIFIER = r"^[a-z][a-z0-9_]*$"
NUMBERS = r"^\d+(\.\d+)*$"
PART_NAME = r"^[a-z][a-z0-9]*(_[a-z0-9]+)?$"
_PATTERNS = {
    PART_NAME: "must be small letters and digits, a letter first, and at most one suffix after a _, "
    "such as w8pt, a16 or a8_pow2",
    IDENTIFIER: "must be snake_case: small letters, digits and _, a letter first",
    NUMBERS: 'must be numbers joined by dots, such as "1.0"',
}
_KINDS = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "int_parsing": "an integer",
    "int_parsing_size": "an integer of at most 64 bits",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list, such as [1, 2]",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "mapping_type": "a mapping",
}
_BOUNDS = {
    "greater_than": ("must be above", "gt", ""),
    "greater_than_equal": ("must be at least", "ge", ""),
    "less_than": ("must be below", "lt", ""),
    "less_than_equal": ("must be at most", "le", ""),
    "too_short": ("must have a length of at least", "min_length", ""),
    "too_long": ("must have a length of at most", "max_length", ""),
    "string_too_short": ("must have at least", "min_length", " characters"),
    "string_too_long": ("must have at most", "max_length", " characters"),
}
MOST = 40
"""The largest number of errors of a file in one message: one wrong indentation makes an error of each line after it."""


@dataclass(frozen=True)
class Finding:
    """One error in a file: the location of a value (or of its key) and a sentence."""

    location: Location
    text: str
    key: bool = False


def render(findings: Iterable[Finding], positions: Positions) -> str:
    """Return the first MOST *findings* as one text, in the order of the file, and the number of the others."""
    # a set, because two forms of a union may report the same error
    placed = sorted(
        {(positions.mark(f.location, key=f.key), positions.message(f.location, f.text, key=f.key)) for f in findings}
    )
    lines = [text for _, text in placed[:MOST]]
    if left := len(placed) - len(lines):
        lines.append(f"and {left:,} more errors. Correct these first: the others may follow from them.")
    return "\n".join(lines)


def explain(error: ValidationError, model: type[Model], data: object) -> list[Finding]:
    """Return one finding for each error of pydantic when *model* read *data*."""
    return [_finding(item, model, data) for item in error.errors(include_url=False)]


def _finding(item: ErrorDetails, model: type[Model], data: object) -> Finding:
    kind, value = item["type"], item["input"]
    context: Mapping[str, Any] = item.get("ctx", {})
    on_key = item["loc"][-1:] == ("[key]",)
    full = item["loc"][:-1] if on_key else item["loc"]
    if kind == "missing":
        parent = _in_file(full[:-1], data)
        why = next((fields[str(full[-1])] for fields in _fields(model, parent) if str(full[-1]) in fields), "")
        return Finding((*parent, str(full[-1])), f"must be given{': ' + why[0].lower() + why[1:] if why else '.'}")
    if kind == "extra_forbidden":
        location = (*_in_file(full[:-1], data), full[-1])
        legal = [name for fields in _fields(model, location[:-1]) for name in fields]
        return Finding(location, f"no such key.{suggestion(full[-1], legal, 'Known keys')}", key=True)
    location = _in_file(full, data)
    return Finding(location, _sentence(kind, value, context), key=on_key)


def _sentence(kind: str, value: object, context: Mapping[str, Any]) -> str:
    if kind == "value_error":
        return f"{context['error']}."
    hint = ""
    if kind == "literal_error":
        legal = str(context["expected"]).replace(" or ", ", ").replace("'", "").split(", ")
        rule = f"must be {'one of ' if len(legal) > 1 else ''}{', '.join(legal)}"
        hint = near(value, legal)
    elif kind == "string_pattern_mismatch":
        rule = _PATTERNS.get(context["pattern"], f"must match {context['pattern']}")
    elif kind in _KINDS:
        rule = f"must be {_KINDS[kind]}"
        if kind == "string_type" and isinstance(value, bool | int | float):
            hint = f' Write "{got(value)}" in quotes.'
    elif kind in _BOUNDS:
        words, key, unit = _BOUNDS[kind]
        rule = f"{words} {context[key]}{unit}"
    else:
        rule = f"must follow the schema ({kind})"
    return f"{rule}, got {got(value)}.{hint}"


def _in_file(location: tuple[int | str, ...], data: object) -> Location:
    """Return *location* without the parts that name a member of a union, which are not keys in the file."""
    found: list[str | int] = []
    for part in location:
        # pydantic puts the tag of a union's member between two keys
        is_key = isinstance(data, dict) and part in data
        is_index = isinstance(data, list) and isinstance(part, int) and part < len(data)
        if is_key or is_index:
            data = data[part]  # type: ignore[index]
            found.append(part)
    return tuple(found)


def _fields(model: type[Model], location: Location) -> Iterator[dict[str, str]]:
    """Yield the fields of each model that may occur at *location*, with their meaning."""
    found: list[object] = [model]
    for part in location:
        found = [inner for outer in found for member in _members(outer) for inner in _step(member, part)]
    for outer in found:
        for member in _members(outer):
            if isinstance(member, type) and issubclass(member, Model):
                texts = meanings(member)
                yield {name: " ".join(texts.get(name, "").split()) for name in member.model_fields}


def _members(annotation: object) -> Iterator[object]:
    origin = get_origin(annotation)
    # only the type counts here, not its constraints
    if origin is Annotated:
        yield from _members(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for inner in get_args(annotation):
            yield from _members(inner)
    else:
        yield annotation


def _step(annotation: object, part: str | int) -> list[object]:
    if get_origin(annotation) in (dict, list):
        return [get_args(annotation)[-1]]
    if isinstance(annotation, type) and issubclass(annotation, Model) and part in annotation.model_fields:
        return [annotation.model_fields[str(part)].annotation]
    return []
