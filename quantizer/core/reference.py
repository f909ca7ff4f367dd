"""Writes the reference of a YAML file's keys as markdown: its schema as tables, with examples from shipped files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from quantizer.core.model import Model
from quantizer.core.schema import schema_text

Json = Any
"""A JSON value."""
Uses = dict[tuple[str, str], tuple[str, str]]
"""(section, key) -> (its shortest value in the shipped files, the file)."""
EXPRESSION = {"string", "number", "boolean"}
MOST_WORDS = 8
"""The type column holds up to this many words of an enumeration; longer ones are listed below the table."""
LONGEST = 64
"""The largest number of characters of an example."""
_REF = "#/$defs/"


def reference_document(model: type[Model], intro: Iterable[str], files: Iterable[Path]) -> str:
    """Return markdown: a section for the file, then one for each kind of value, in the order of first use."""
    schema = json.loads(schema_text(model))
    sections = {model.__name__: schema, **{name: schema["$defs"][name] for name in _order(schema)}}
    uses: Uses = {}
    for path in sorted(files):
        with path.open(encoding="utf-8") as stream:
            value = yaml.safe_load(stream)
        for section, key, used in _walk(sections, model.__name__, schema, value):
            _keep(uses, section, key, used, path.stem)
    lines = [*intro, ""]
    defined = {name: section.get("description", "") for name, section in sections.items()}
    for name, section in sections.items():
        lines += _section(name, section, uses, defined)
    return "\n".join(lines).rstrip() + "\n"


def _order(schema: Json) -> list[str]:
    """Return the definitions in the order in which properties first name them, breadth first."""
    found: list[str] = []
    waiting = [schema]
    # the list grows while it is read
    for current in waiting:
        for name in _named(current.get("properties", {})):
            if name not in found:
                found.append(name)
                waiting.append(schema["$defs"][name])
    return found


def _named(value: Json) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"].removeprefix(_REF)
        for inner in value.values():
            yield from _named(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _named(inner)


def _walk(sections: Mapping[str, Json], name: str, schema: Json, value: Json) -> Iterator[tuple[str, str, Json]]:
    """Yield (section, key, value) for every key that *value* sets, nested ones included, under *schema*."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REF)
        schema = sections[name]
    for choice in schema.get("oneOf", schema.get("anyOf", [])):
        if _fits(sections, choice, value):
            yield from _walk(sections, name, choice, value)
    if isinstance(value, list) and "items" in schema:
        for item in value:
            yield from _walk(sections, name, schema["items"], item)
    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        if key in schema.get("properties", {}):
            yield name, key, inner
            yield from _walk(sections, name, schema["properties"][key], inner)
        else:
            for rest in (*schema.get("patternProperties", {}).values(), schema.get("additionalProperties")):
                if isinstance(rest, dict):
                    yield from _walk(sections, name, rest, inner)


def _fits(sections: Mapping[str, Json], schema: Json, value: Json) -> bool:
    """Return whether *value* can match *schema*, judged by its shape and its required keys."""
    if "$ref" in schema:
        schema = sections[schema["$ref"].removeprefix(_REF)]
    if isinstance(value, dict):
        required: set[str] = set(schema.get("required", []))
        return schema.get("type") == "object" and required <= value.keys()
    is_array: bool = schema.get("type") == "array"
    return isinstance(value, list) == is_array


def _keep(uses: Uses, section: str, key: str, value: Json, stem: str) -> None:
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False, allow_unicode=True)
    text = text.removesuffix("\n...\n").strip()
    empty = value in (None, "", [], {}, False)
    known = uses.get((section, key))
    # the shortest value is the easiest example to read
    if not empty and len(text) <= LONGEST and (known is None or len(text) < len(known[0])):
        uses[section, key] = (text, stem)


def _section(name: str, schema: Json, uses: Uses, defined: Mapping[str, str]) -> list[str]:
    required, long = set(schema.get("required", [])), []
    lines = [f"## {name}", "", _prose(schema.get("description", "")), ""]
    lines += ["| key | type | default | meaning | example |", "|---|---|---|---|---|"]
    for key, found in _ordered(schema):
        default = "required" if key in required else _default(found)
        example = uses.get((name, key))
        shown = f"{_code(example[0])} ({example[1]})" if example else ""
        kind, words = _type(found)
        long += [(key, words)] if words else []
        meaning = found.get("description") or defined.get(found.get("$ref", "").removeprefix(_REF), "")
        lines.append(f"| `{key}` | {kind} | {default} | {_prose(meaning)} | {shown} |")
    lines.append("")
    for key, words in long:
        lines += [f"`{key}` is one of: {', '.join(f'`{word}`' for word in words)}.", ""]
    return lines


def _ordered(schema: Json) -> list[tuple[str, Json]]:
    """Return the properties, required ones first, then ordered by name."""
    required = set(schema.get("required", []))
    return sorted(schema.get("properties", {}).items(), key=lambda item: (item[0] not in required, item[0]))


def _default(schema: Json) -> str:
    if "default" in schema:
        text = json.dumps(schema["default"], ensure_ascii=False)
        return "empty" if text == '""' else _code(text.strip('"'))
    return "empty" if schema.get("type") in ("array", "object") and "minItems" not in schema else "none"


def _type(schema: Json) -> tuple[str, list[str]]:
    """Return the type in words, and the list of an enumeration's words if it is too long for the type column."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REF)
        return f"[{name}](#{name.lower()})", []
    if "const" in schema:
        return _code(str(schema["const"])), []
    if "enum" in schema:
        words = [str(word) for word in schema["enum"]]
        return ("a word, see below", words) if len(words) > MOST_WORDS else (", ".join(map(_code, words)), [])
    choices = schema.get("oneOf", schema.get("anyOf"))
    if choices:
        return _joined(" or ", choices)
    kind = schema.get("type")
    if isinstance(kind, list):
        return ("a value" if "array" in kind else "expression" if set(kind) == EXPRESSION else " or ".join(kind)), []
    if kind == "array":
        inner, words = _type(schema.get("items", {}))
        exact = f"{schema['minItems']} of " if schema.get("minItems") == schema.get("maxItems") is not None else ""
        return f"list of {exact}{inner}", words
    if kind == "object":
        rest = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties")]
        inner, words = _joined(" or ", [item for item in rest if isinstance(item, dict)])
        return f"name → {inner}", words
    plain = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
    return plain.get(str(kind), str(kind)) + _range(schema), []


def _joined(word: str, schemas: list[Json]) -> tuple[str, list[str]]:
    parts = [_type(item) for item in schemas]
    return word.join(text for text, _ in parts), [found for _, words in parts for found in words]


def _range(schema: Json) -> str:
    signs: Mapping[str, Callable[[Any], str]] = {
        "minimum": lambda v: f"≥ {v}",
        "exclusiveMinimum": lambda v: f"> {v}",
        "maximum": lambda v: f"≤ {v}",
    }
    found = [sign(schema[key]) for key, sign in signs.items() if key in schema]
    return f" {', '.join(found)}" if found else ""


def _prose(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"
