"""Tries a spec on the smallest and largest values of its domains and on its examples: each must give a legal graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from quantizer.core.domains import domains_of, draw_order, ends, expressions_of
from quantizer.core.errors import SpecError
from quantizer.core.expressions import Expression
from quantizer.core.model_errors import Finding
from quantizer.core.shapes import spread_name
from quantizer.core.spec import Domain, Input, NoTiling, Output, Spec
from quantizer.core.wording import got
from quantizer.core.yaml_source import Location


def try_values(spec: Spec) -> Iterator[Finding]:
    """Yield a finding for each expression without a value and each constraint that generated graphs would break."""
    seen: set[Location] = set()
    for high in (False, True):
        bound: dict[str, Any] = {}
        for name in draw_order(spec):
            try:
                bound[name] = ends(domains_of(spec)[name], bound, high=high)
            except SpecError as err:
                yield Finding(_place(spec, name), f"{str(err).rstrip('.')}{_where(bound, domains_of(spec)[name])}.")
                return
        where = f"with the {'largest' if high else 'smallest'} values of the domains"
        for finding in _try(spec, bound, where, ()):
            if finding.location not in seen:
                seen.add(finding.location)
                yield finding
    if seen:
        return
    domains = domains_of(spec)
    for index, example in enumerate(spec.examples):
        values = {name: example.values.get(name, domain.default) for name, domain in domains.items()}
        yield from _try(spec, values, f"with the values of example {example.id}", ("examples", index, "values"))


def _place(spec: Spec, name: str) -> Location:
    return ("dims" if name in spec.dims else "attrs", name)


def _where(bound: Mapping[str, Any], domain: Domain) -> str:
    names = sorted(frozenset[str]().union(*(e.names for _, e in expressions_of(domain))) & bound.keys())
    return f" with {', '.join(f'{n}={got(bound[n])}' for n in names)}" if names else ""


def _try(spec: Spec, bound: Mapping[str, Any], where: str, blame: Location) -> Iterator[Finding]:
    """Yield the errors for the values *bound*, located at *blame* or at the expression itself."""
    broken = False
    for index, constraint in enumerate(spec.constraints):
        location: Location = ("constraints", index, "require")
        try:
            holds = bool(constraint.require(bound))
        except SpecError as err:
            yield Finding(blame or location, f"{str(err).rstrip('.')} {where}{_values(constraint.require, bound)}.")
            broken = True
            continue
        if not holds:
            text = f"{constraint.require.text} is false {where}{_values(constraint.require, bound)}."
            yield Finding(blame or location, text if blame else f"{text} Narrow a domain so that it always holds.")
            broken = True
    if broken:
        return
    for location, expression, kind in _results(spec):
        try:
            # "*" rules of tiling name the axis i
            value = expression({"i": 0, **bound})
        except SpecError as err:
            yield Finding(blame or location, f"{str(err).rstrip('.')} {where}{_values(expression, bound)}.")
            continue
        if not _KINDS[kind](value):
            text = f"{expression.text} must be {kind}, got {got(value)} {where}{_values(expression, bound)}."
            yield Finding(blame or location, text)


def _is_size(value: object) -> bool:
    return type(value) is int and value >= 0


_KINDS: Mapping[str, Callable[[object], bool]] = {
    # having one at all is what is tried
    "a value": lambda _: True,
    "a size": _is_size,
    "a list of sizes": lambda value: isinstance(value, tuple) and all(map(_is_size, value)),
    "an integer": lambda value: type(value) is int,
    "a number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}


def _values(expression: Expression, bound: Mapping[str, Any]) -> str:
    shown = [f"{name}={got(bound[name])}" for name in sorted(expression.names) if name in bound]
    return f" ({', '.join(shown)})" if shown else ""


def _results(spec: Spec) -> Iterator[tuple[Location, Expression, str]]:
    """Yield each expression that must have a value, with its location and the rule for the value."""
    for name, item in spec.inputs.items():
        yield from _sizes(item.axes, ("inputs", name, "axes"))
        yield from _ends(item, ("inputs", name, "domain"))
    for name, rule in spec.shape.items():
        yield from _sizes(rule, ("shape", name))
    for name, output in spec.outputs.items():
        yield from _output_results(output, ("outputs", name))
    for key in ("terms", "axis"):
        if (expression := getattr(spec.error_model, key)) is not None:
            yield ("error_model", key), expression, "an integer"
    for index, relation in enumerate(spec.properties):
        if relation.when is not None:
            yield ("properties", index, "when"), relation.when, "a value"
    yield from _tile_results(spec)
    for name, form in spec.formats.items():
        for key, expression in form.derived.items():
            yield ("formats", name, "derived", key), expression, "a value"
    yield from _bin_results(spec)


def _output_results(output: Output, location: Location) -> Iterator[tuple[Location, Expression, str]]:
    for key, kind in (("channel_axis", "an integer"), ("min", "a number"), ("max", "a number")):
        if (expression := getattr(output, key)) is not None:
            yield (*location, key), expression, kind
    if output.pieces is not None:
        yield (*location, "pieces", "axis"), output.pieces.axis, "an integer"
        yield (*location, "pieces", "sizes"), output.pieces.sizes, "a list of sizes"


def _bin_results(spec: Spec) -> Iterator[tuple[Location, Expression, str]]:
    for group, domains in (("dims", spec.dims), ("attrs", spec.attrs)):
        for name, domain in domains.items():
            kind = "a number" if domain.type == "float" else "an integer"
            for location, expression in expressions_of(domain):
                if location[0] == "bins":
                    yield (group, name, *location), expression, kind


def _tile_results(spec: Spec) -> Iterator[tuple[Location, Expression, str]]:
    if isinstance(spec.tiling, NoTiling):
        return
    kinds = {"when": "a value", "stride": "an integer", "window": "an integer"}
    for axis, tile in spec.tiling.items():
        yield from ((("tiling", axis, *place), expression, "an integer") for place, expression in tile.input_axes)
        for key, kind in kinds.items():
            if (expression := getattr(tile, key)) is not None:
                yield ("tiling", axis, key), expression, kind


def _ends(item: Input, location: Location) -> Iterator[tuple[Location, Expression, str]]:
    kind = "an integer" if item.kind == "index" else "a number"
    ends = ((place, end) for place, end in enumerate(item.domain or []) if isinstance(end, Expression))
    yield from (((*location, place), end, kind) for place, end in ends)


def _sizes(rule: list[Expression] | Expression, location: Location) -> Iterator[tuple[Location, Expression, str]]:
    if isinstance(rule, list):
        for index, item in enumerate(rule):
            yield (*location, index), item, "a list of sizes" if spread_name(item) is not None else "a size"
    else:
        yield location, rule, "a list of sizes"
