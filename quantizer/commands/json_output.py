"""Results of commands as JSON for `--json`."""

from __future__ import annotations

import dataclasses
import json
import math


def json_text(value: object, *, sort_keys: bool = False) -> str:
    """Return *value* as JSON: records become objects, infinities and NaN texts."""
    return json.dumps(_plain(value), indent=2, sort_keys=sort_keys, allow_nan=False)


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: _plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    # JSON has no words for infinities and NaN; Python's own are refused by other readers
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
