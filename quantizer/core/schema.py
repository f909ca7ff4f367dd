"""Generate the JSON schemas with which editors complete and explain YAML files, and the schema of vector manifests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from quantizer.core.files import replace_files
from quantizer.core.model import Model, meanings
from quantizer.core.platforms import Platform
from quantizer.core.schemes import Schemes
from quantizer.core.spec import Spec
from quantizer.core.vectors import Manifest

Json = Any
"""A JSON value."""
SCHEMAS: Mapping[str, type[Model]] = {
    "operator.schema.json": Spec,
    "schemes.schema.json": Schemes,
    "platform.schema.json": Platform,
    "vectors.schema.json": Manifest,
}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NULL = {"type": "null"}


def schema_text(model: type[Model]) -> str:
    """Return the JSON schema of *model*: the same bytes for the same model, docstrings as descriptions."""
    schema = _plain(_explained(model))
    return json.dumps({"$schema": _DIALECT, **schema}, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def _explained(model: type[Model]) -> Json:
    """Return pydantic's schema of *model* with the docstring of each field as its description."""
    schema = model.model_json_schema()
    models = {schema["title"]: model} | {found.__name__: found for found in _parts(Model)}
    for name, part in {model.__name__: schema, **schema.get("$defs", {})}.items():
        texts = meanings(models[name]) if name in models else {}
        for key, value in part.get("properties", {}).items():
            if key in texts:
                value.setdefault("description", texts[key])
    return schema


def _parts(model: type[Model]) -> Iterator[type[Model]]:
    for part in model.__subclasses__():
        yield part
        yield from _parts(part)


def _plain(value: Json, *, are_names: bool = False) -> Json:
    """Return a schema as strict as the reader of files, and without titles: no empty values, no foreign keys."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    # names of properties may equal words of the schema, such as title
    if are_names:
        return {name: _plain(inner) for name, inner in value.items()}
    found = {
        word: _plain(inner, are_names=word in ("properties", "$defs", "patternProperties"))
        for word, inner in value.items()
        if word != "title" and not (word == "default" and not isinstance(inner, bool | int | float | str))
    }
    if "patternProperties" in found:
        found["additionalProperties"] = False
    choices = [choice for choice in found.get("anyOf", []) if choice != _NULL]
    # an optional field: absent, not null
    if len(choices) == 1:
        del found["anyOf"]
        return {**choices[0], **found}
    return {**found, "anyOf": choices} if choices else found


def stale_schemas(folder: Path) -> list[Path]:
    """Return the schema files of *folder* that are missing or outdated."""
    return [folder / name for name, model in SCHEMAS.items() if _content(folder / name) != schema_text(model)]


def _content(path: Path) -> str | None:
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None


def write_schemas(folder: Path) -> list[Path]:
    """Write the schema files that are missing or differ; return their paths."""
    stale = stale_schemas(folder)
    replace_files({path: schema_text(SCHEMAS[path.name]) for path in stale})
    return stale
