"""The per-layer syntax of cfg values: `8 & <[(1,2)]:16> <[FullyConnected]:16> <{conv.*}:16>`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from quantizer.optimize.values import Kind, Value

SYNTAX = "value & <[(first,last),...]:value> <[LayerType,...]:value> <{name pattern}:value>"
RANGES = re.compile(r"\[(\(\d+,\d+\)(?:,\(\d+,\d+\))*),?\]")
TYPES = re.compile(r"\[(\w+(?:,\w+)*),?\]")
LONGEST_PATTERN = 200
MOST_REPETITIONS = 3
"""Matching takes a time that grows with the length of a name to this power."""


@dataclass(frozen=True)
class LayerKey:
    """The keys by which a per-layer value can be chosen."""

    number: int
    name: str
    type: str
    method: str = ""
    """The function of an Activation layer; empty for others."""


@dataclass(frozen=True)
class PerLayer:
    """A value for every layer: chosen by number, else by type, else by name, else the general one."""

    general: Value
    ranges: tuple[tuple[int, int, Value], ...] = ()
    types: tuple[tuple[str, Value], ...] = ()
    names: tuple[tuple[str, Value], ...] = ()

    def of(self, layer: LayerKey) -> Value:
        """Return the value of one layer: of several matching ranges or patterns the first counts, of types the last."""
        for first, last, value in self.ranges:
            if first <= layer.number <= last:
                return value
        types = dict(self.types)
        for name in (layer.type.lower(), layer.method.lower()):
            if name and name in types:
                return types[name]
        for pattern, value in self.names:
            # match, not fullmatch: a pattern may name only the start of a layer's name
            if re.match(pattern, layer.name):
                return value
        return self.general


def parse_per_layer(text: str, kind: Kind) -> PerLayer:
    """Return the values of *text*; ValueError, with the problem, for a syntax error."""
    general, ampersand, rest = text.partition("&")
    ranges: list[tuple[int, int, Value]] = []
    types: list[tuple[str, Value]] = []
    names: list[tuple[str, Value]] = []
    if ampersand and not rest:
        raise ValueError("nothing stands after '&'")
    for scope, item in _scopes(rest):
        value = _value(item, kind)
        if found := RANGES.fullmatch(scope):
            for first, last in re.findall(r"\((\d+),(\d+)\)", found[1]):
                if int(first) > int(last):
                    raise ValueError(f"({first},{last}) is not a range of layers: the first number is above the last")
                ranges.append((int(first), int(last), value))
        elif found := TYPES.fullmatch(scope):
            types += [(name.lower(), value) for name in found[1].split(",")]
        elif scope.startswith("{") and scope.endswith("}"):
            names.append((_pattern(scope[1:-1]), value))
        else:
            raise ValueError(f"<{scope}:...> must be [(first,last)], [LayerType] or {{name pattern}}")
    return PerLayer(_value(general, kind), tuple(ranges), tuple(types), tuple(names))


def _scopes(text: str) -> list[tuple[str, str]]:
    """Return (scope, value) of every `<scope:value>`."""
    found = []
    while text:
        match = re.match(r"<(\{.*?\}|\[[^\[\]]*\]):([^<>]*)>", text)
        if match is None:
            raise ValueError(f"{text[:40]!r} must be <scope:value>")
        found.append((match[1], match[2]))
        text = text[match.end() :]
    return found


def _value(text: str, kind: Kind) -> Value:
    try:
        return kind.parse(text)
    except ValueError:
        raise ValueError(f"{text!r} must be {kind.legal}") from None


def _pattern(text: str) -> str:
    """Return a pattern of layer names; ValueError if it is invalid or could take exponential time."""
    # a repeated group, such as (a+)+ or (a|aa)+, backtracks exponentially, and so do many repetitions in a row
    repetitions = len(re.findall(r"[*+?{]", text))
    if len(text) > LONGEST_PATTERN or repetitions > MOST_REPETITIONS or re.search(r"[)*+?}][*+{]", text):
        raise ValueError(
            f"{{{text[:40]}}}: a name pattern repeats no group, has {MOST_REPETITIONS} repetitions (* + ? {{}}) and "
            f"{LONGEST_PATTERN} characters at most. Name the layers by several patterns."
        )
    try:
        re.compile(text)
    except re.error as err:
        raise ValueError(f"{{{text[:40]}}}: no pattern: {err}") from None
    return text
