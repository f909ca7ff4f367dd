"""Validation of tile rules: axes and attributes must exist, and each kind of rule has fixed keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from quantizer.core.domains import constant
from quantizer.core.expressions import Expression
from quantizer.core.model_errors import Finding
from quantizer.core.shapes import plain_name
from quantizer.core.spec import Input, NoTiling, Output, Spec, TileRule
from quantizer.core.wording import got, suggestion, unknown
from quantizer.core.yaml_source import Location


def check_tiling(spec: Spec) -> Iterator[Finding]:
    """Yield a finding for each tile rule that names something undefined, or has keys of another kind of rule."""
    if isinstance(spec.tiling, NoTiling):
        if not spec.tiling.none.strip():
            yield Finding(("tiling", "none"), "must give the reason.")
        return
    if not spec.tiling:
        yield Finding(("tiling",), "names no axis. Name one, or write none: and the reason.")
    outputs, inputs = axis_names(spec.outputs), axis_names(spec.inputs)
    for axis, rule in spec.tiling.items():
        location = ("tiling", axis)
        legal = inputs if rule.rule == "accumulate" else [*outputs, "*"]
        if axis not in legal:
            side = "an input" if rule.rule == "accumulate" else "an output"
            yield Finding(location, f"no axis of {side} has that name.{suggestion(axis, legal, 'Known')}", key=True)
        yield from _check_tile_keys(rule, location)
        for name in rule.input_axis if isinstance(rule.input_axis, dict) else ():
            if name not in spec.inputs:
                yield Finding((*location, "input_axis", name), unknown(name, spec.inputs, "input"), key=True)
        if rule.axis is not None and rule.axis not in inputs:
            yield Finding((*location, "axis"), unknown(rule.axis, inputs, "axis of an input"))
        if rule.rule == "accumulate" and rule.axis is not None and rule.axis != axis:
            yield Finding((*location, "axis"), f"must be {axis}, the axis that is cut, got {rule.axis!r}.")
        for key in ("before", "after"):
            if (pair := getattr(rule, key)) is not None:
                yield from _check_padding(spec, pair, (*location, key))


_TILE_KEYS = {
    "independent": ((), ("input_axis",)),
    "halo": (("stride", "window", "before", "after"), ("axis",)),
    "accumulate": (("axis",), ()),
}


def _check_tile_keys(rule: TileRule, location: Location) -> Iterator[Finding]:
    must, may = _TILE_KEYS[rule.rule]
    given = rule.model_fields_set - {"rule", "when"}
    for key in must:
        if key not in given:
            yield Finding((*location, key), f"must be given for rule {rule.rule}.")
    for key in sorted(given - {*must, *may}):
        yield Finding((*location, key), f"does not apply to rule {rule.rule}. Remove it.", key=True)
    # a rule for one output axis names its input axis; "*" has them by position
    if rule.rule == "halo" and ("axis" in given) == (location[-1] == "*"):
        text = "does not apply to the axis '*'. Remove it." if "axis" in given else "must be given for rule halo."
        yield Finding((*location, "axis"), text, key="axis" in given)
    if "input_axis" in given and location[-1] != "*":
        yield Finding((*location, "input_axis"), "applies to the axis '*' only. Remove it.", key=True)


def _check_padding(spec: Spec, pair: list[Expression], location: Location) -> Iterator[Finding]:
    name, index = plain_name(pair[0]), constant(pair[1])
    if name is None or (index is None and not pair[1].names):
        shown = [part.text if (number := constant(part)) is None else number for part in pair]
        yield Finding(location, f"must be [attr, index], as in [padding, 0], got {got(shown)}.")
    elif name not in spec.attrs:
        yield Finding((*location, 0), unknown(name, spec.attrs, "attr"))
    elif spec.attrs[name].length is None:
        yield Finding((*location, 1), f"{name} has no index {pair[1].text}: it is not a list.")
    elif index is not None and (length := constant(spec.attrs[name].length)) is not None and not 0 <= index < length:
        yield Finding((*location, 1), f"{name} has no index {index}: its length is {length}.")


def axis_names(operands: Mapping[str, Input] | Mapping[str, Output]) -> list[str]:
    """Return the names of axes in order; for an output, expressions count as names too."""
    found: list[str] = []
    for item in operands.values():
        for axis in item.axes if isinstance(item.axes, list) else []:
            named = [] if isinstance(item, Input) else sorted(axis.names)
            found += [name] if (name := plain_name(axis)) is not None else named
    return list(dict.fromkeys(found))
