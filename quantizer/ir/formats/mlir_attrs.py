"""Attributes of Top operators.

Converts our values to MLIR's text and back, and checks each against its kind in the table.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

from quantizer.core.errors import UnsupportedError
from quantizer.ir.formats.mlir_text import MAX_DEPTH, Cursor, quoted
from quantizer.ir.formats.mlir_types import float_text
from quantizer.ir.formats.top_ops import Attribute
from quantizer.ir.graph import AttrValue

RANGES = {
    "i64": (-(1 << 63), (1 << 63) - 1),
    "i32": (-(1 << 31), (1 << 31) - 1),
    "si32": (-(1 << 31), (1 << 31) - 1),
    "ui32": (0, (1 << 32) - 1),
}
"""The integer types of attributes -> the least and the largest value."""
WANTED = {
    "i64": "an integer of type i64 such as 1 : i64",
    "i32": "an integer of type i32 such as 1 : i32",
    "si32": "an integer of type si32 such as 1 : si32",
    "ui32": "an integer of type ui32 such as 1 : ui32",
    "f64": "a float of type f64 such as 1.0 : f64",
    "bool": "true or false",
    "string": "a string",
    "i64s": "an array of i64 such as [1, 1]",
    "f64s": "an array of f64 such as [1.0 : f64]",
    "entries": "an array of dictionaries of one entry each such as [{k = 3 : i64}]",
}
"""Descriptions of the kinds of attributes, for messages."""
_SHOWN = {"dict": "a dictionary", "array": "an array", "string": "a string", "bool": "a bool", "symbol": "a symbol"}
_FORMATS = {"f32": ("<f", "<I"), "f64": ("<d", "<Q")}


@dataclass(frozen=True)
class Literal:
    """A value in the text: `type` is an integer or float type, string, bool, array, dict or symbol."""

    type: str
    value: Any
    at: int

    @property
    def shown(self) -> str:
        """A description of this value for a message."""
        return _SHOWN.get(self.type) or f"{self.value!r} : {self.type}"


def attribute_text(place: str, attribute: Attribute, value: AttrValue) -> str:
    """Return the text of *value*; UnsupportedError if it is not of the attribute's kind."""
    try:
        text = _text(attribute, value)
    except (TypeError, ValueError):
        text = ""
    if not text:
        wanted = f"one of {', '.join(attribute.choices)}" if attribute.choices else WANTED[attribute.kind]
        raise UnsupportedError(f"{place}: {value!r} cannot be written: must be {wanted}.")
    return text


def _text(attribute: Attribute, value: AttrValue) -> str:
    """Return the text of *value*, or None if it has another kind."""
    kind = attribute.kind
    if kind == "string":
        fits = isinstance(value, str) and (not attribute.choices or value in attribute.choices)
        return string_text(str(value)) if fits else ""
    if kind in ("i64s", "f64s"):
        texts = [_number(kind[:-1], item) for item in value] if isinstance(value, tuple) else [""]
        # MLIR leaves out i64 in an array, because it is the default
        return f"[{', '.join(text.removesuffix(' : i64') for text in texts)}]" if all(texts) else ""
    if kind == "entries":
        pairs = [_entry(item) for item in value] if isinstance(value, tuple) else [""]
        return f"[{', '.join(pairs)}]" if all(pairs) else ""
    return _number(kind, value)


def string_text(value: str) -> str:
    """Return the MLIR string of *value*; ValueError if it is not Unicode text."""
    value.encode("utf-8")
    return quoted(value)


def _number(kind: str, value: object) -> str:
    if isinstance(value, bool):
        return ("true" if value else "false") if kind == "bool" else ""
    if isinstance(value, int) and kind in RANGES:
        low, high = RANGES[kind]
        return f"{value} : {kind}" if low <= value <= high else ""
    if isinstance(value, float) and kind in _FORMATS and not math.isnan(value):
        packing, bits = _FORMATS[kind]
        if math.isinf(value):
            # MLIR has no word for infinity: it is spelled as its bits
            return f"{struct.unpack(bits, struct.pack(packing, value))[0]:#X} : {kind}".replace("0X", "0x")
        # a number that float32 does not hold would be read back as another
        exact = kind == "f64" or struct.unpack("<f", struct.pack("<f", value))[0] == value
        return f"{float_text(value)} : {kind}" if exact else ""
    return ""


def _entry(pair: object) -> str:
    """Return `{name = value}` of one parameter of `Custom`."""
    if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) and pair[0].isidentifier()):
        return ""
    name, value = pair
    if isinstance(value, tuple):
        kinds = {type(item) for item in value}
        kind = "f32" if kinds == {float} else "i64"
        texts = [_number(kind, item) for item in value]
        text = f"[{', '.join(texts)}]" if all(texts) and name.isascii() else ""
    else:
        text = next((found for kind in ("bool", "i64", "f32") if (found := _number(kind, value))), "")
    return f"{{{name} = {text}}}" if text and name.isascii() else ""


def read_dictionary(cursor: Cursor, depth: int = 0) -> dict[str, Literal]:
    """Return the entries between braces; FormatError if a name occurs twice."""
    found: dict[str, Literal] = {}
    cursor.expect("{")
    while not cursor.at("}"):
        token = cursor.token
        name = cursor.label(cursor.next()) if token.kind == "string" else cursor.expect_kind("word", "a name").text
        if name in found:
            cursor.fail(f"attribute {name!r} occurs twice", token.at)
        if not cursor.skip("="):
            cursor.fail(f"attribute {name!r}: must be followed by '=' and a value, got {cursor.shown()}")
        found[name] = read_literal(cursor, depth)
        if not cursor.skip(","):
            break
    cursor.expect("}")
    return found


def read_literal(cursor: Cursor, depth: int = 0) -> Literal:
    """Return the value at the cursor; FormatError for a form that no Top attribute has."""
    token = cursor.token
    if depth > MAX_DEPTH:
        cursor.fail(f"values are nested deeper than {MAX_DEPTH}")
    if token.kind == "string":
        return Literal("string", cursor.label(cursor.next()), token.at)
    if token.kind == "symbol":
        return Literal("symbol", cursor.next().text[1:], token.at)
    if token.kind in ("int", "float", "hex"):
        return _read_number(cursor)
    if token.text in ("true", "false") and token.kind == "word":
        return Literal("bool", cursor.next().text == "true", token.at)
    if cursor.at("{"):
        return Literal("dict", read_dictionary(cursor, depth=depth + 1), token.at)
    if not cursor.skip("["):
        cursor.fail(f"must be a number, string, bool, [...] or {{...}}, got {cursor.shown()}")
    items: list[Literal] = []
    while not cursor.at("]"):
        items.append(read_literal(cursor, depth + 1))
        if not cursor.skip(","):
            break
    cursor.expect("]")
    return Literal("array", items, token.at)


def _read_number(cursor: Cursor) -> Literal:
    token = cursor.next()
    # the time of int() grows with the square of the length
    if len(token.text) > 400:
        cursor.fail(f"a number of {len(token.text)} characters: at most 400", token.at)
    kind = "f64" if token.kind == "float" else "i64"
    if cursor.skip(":"):
        kind = cursor.expect_kind("word", "the type of the number").text
    if kind in _FORMATS:
        return Literal(kind, _float(cursor, kind, token.text, token.at, is_hex=token.kind == "hex"), token.at)
    if token.kind == "float":
        cursor.fail(f"{token.text[:40]} is no {kind[:20]}: write an integer", token.at)
    return Literal(kind, int(token.text, 16 if token.kind == "hex" else 10), token.at)


def _float(cursor: Cursor, kind: str, text: str, at: int, *, is_hex: bool) -> float:
    packing, bits = _FORMATS[kind]
    if is_hex and int(text, 16) >= 1 << (8 * struct.calcsize(bits)):
        cursor.fail(f"{text[:40]}: more bits than {kind} has", at)
    value = float(struct.unpack(packing, struct.pack(bits, int(text, 16)))[0]) if is_hex else float(text)
    if math.isnan(value) or (math.isinf(value) and not is_hex):
        cursor.fail(f"{text[:40]} is not a number that {kind} holds", at)
    try:
        return float(struct.unpack(packing, struct.pack(packing, value))[0])
    except OverflowError:
        cursor.fail(f"{text[:40]} is too large for {kind}", at)


def conform(cursor: Cursor, place: str, attribute: Attribute, literal: Literal) -> AttrValue:
    """Return the value of *literal* for the graph; FormatError if it is not of the attribute's kind."""
    value = _value(attribute, literal)
    if value is None:
        wanted = f"one of {', '.join(attribute.choices)}" if attribute.choices else WANTED[attribute.kind]
        got = repr(literal.value) if attribute.choices and literal.type == "string" else literal.shown
        cursor.fail(f"{place}: must be {wanted}, got {got[:80]}", literal.at)
    return value


def _value(attribute: Attribute, literal: Literal) -> AttrValue | None:
    kind = attribute.kind
    if kind in ("i64s", "f64s"):
        items: list[Literal] | None = literal.value if literal.type == "array" else None
        fits = items is not None and all(_plain(kind[:-1], item) is not None for item in items)
        return tuple(item.value for item in items) if items is not None and fits else None
    if kind == "entries":
        return _entries(literal)
    if kind == "string" and attribute.choices and literal.value not in attribute.choices:
        return None
    return _plain(kind, literal)


def _plain(kind: str, literal: Literal) -> AttrValue | None:
    if literal.type != kind:
        return None
    if kind in RANGES and not RANGES[kind][0] <= literal.value <= RANGES[kind][1]:
        return None
    found: AttrValue = literal.value
    return found


def _entries(literal: Literal) -> AttrValue | None:
    if literal.type != "array" or any(item.type != "dict" or len(item.value) != 1 for item in literal.value):
        return None
    pairs: list[AttrValue] = []
    for item in literal.value:
        ((name, held),) = item.value.items()
        parts = held.value if held.type == "array" else [held]
        kinds = {part.type for part in parts}
        if len(kinds) > 1 or not kinds <= {"i64", "f32", "bool"} or (held.type == "array" and kinds == {"bool"}):
            return None
        if any(_plain(part.type, part) is None for part in parts):
            return None
        pairs.append((name, tuple(part.value for part in parts) if held.type == "array" else held.value))
    return tuple(pairs)
