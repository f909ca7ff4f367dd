"""Validation of domains beyond the schema, and the order in which dimensions and attributes get their values."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

from quantizer.core.case import AttrValue
from quantizer.core.errors import SpecError
from quantizer.core.expressions import Expression
from quantizer.core.model_errors import Finding
from quantizer.core.spec import Bin, Domain, Spec
from quantizer.core.wording import got, near
from quantizer.core.yaml_source import Location

Number = int | float
MAX_LENGTH = 8
"""The largest number of numbers in an attribute that is a list."""
ENTRY = "i"
"""The index of a list entry, in the expressions for its bounds."""

_KEYS: dict[str, frozenset[str]] = {
    "int": frozenset({"min", "max", "multiple_of", "length", "choices"}),
    "bool": frozenset(),
    "float": frozenset({"min", "max", "choices"}),
    "enum": frozenset({"choices"}),
    "shape": frozenset({"rank", "min", "max", "product", "sum", "broadcasts_to", "like", "but_for"}),
    "axes": frozenset({"axes_of"}),
    "permutation": frozenset({"axes_of"}),
}
_WORDS = {
    "int": "an integer",
    "bool": "true or false",
    "float": "a number",
    "enum": "one of the choices",
    "shape": "a list of sizes",
    "axes": "a list of axes, increasing",
    "permutation": "a list of all axes",
}


def expressions_of(domain: Domain) -> Iterator[tuple[Location, Expression]]:
    """Yield each expression of *domain* with its location inside it."""
    for key in ("min", "max", "multiple_of", "product", "sum", "length", "but_for", "axes_of"):
        if (expression := getattr(domain, key)) is not None:
            yield (key,), expression
    for name, item in domain.bins.items():
        for key in ("min", "max"):
            if (expression := getattr(item, key)) is not None:
                yield ("bins", name, key), expression


def needs(domain: Domain) -> frozenset[str]:
    """Return the names whose values must be known before a value of *domain* is drawn."""
    names = frozenset[str]().union(*(expression.names for _, expression in expressions_of(domain)))
    return names - {ENTRY} | {other for other in (domain.broadcasts_to, domain.like) if other is not None}


def domains_of(spec: Spec) -> dict[str, Domain]:
    """Return the domains of dimensions and attributes, by name."""
    return {**spec.dims, **spec.attrs}


@functools.lru_cache(maxsize=256)
def draw_order(spec: Spec) -> tuple[str, ...]:
    """Order dims and attrs so that each follows the names in its domain; otherwise keep the order of the file.

    SpecError if names need each other's values.
    """
    domains = domains_of(spec)
    # the names whose values each domain waits for
    waiting = {name: needs(domain) & domains.keys() for name, domain in domains.items()}
    order: list[str] = []
    while waiting:
        ready = next((name for name, first in waiting.items() if first.isdisjoint(waiting)), None)
        if ready is None:
            raise SpecError(f"{spec.op}: {_circle(waiting)}.")
        order.append(ready)
        del waiting[ready]
    return tuple(order)


def _circle(waiting: Mapping[str, frozenset[str]]) -> str:
    """Return a sentence that names one cycle of dimensions and attributes that need each other's values."""
    path = [next(iter(waiting))]
    while path[-1] not in path[:-1]:
        # each waits for another that waits, so that this walk ends in a cycle; min, so that it is the same in each run
        path.append(min(name for name in waiting[path[-1]] if name in waiting))
    circle = path[path.index(path[-1]) :]
    if len(circle) == 2:
        return f"the domain of {circle[0]} names {circle[0]} itself"
    return "domains need each other: " + ", ".join(f"{a} needs {b}" for a, b in itertools.pairwise(circle))


def check_order(spec: Spec) -> Iterator[Finding]:
    """Yield a finding where domains need each other's values."""
    try:
        draw_order(spec)
    except SpecError as err:
        sentence = str(err).removeprefix(f"{spec.op}: ")
        name = next(name for name in domains_of(spec) if f" {name} " in sentence)
        yield Finding(("dims" if name in spec.dims else "attrs", name), f"{sentence} Break the circle.")


def constant(expression: Expression | None) -> Number | None:
    """Return the value of an expression without variables; None for other expressions."""
    value = _evaluated(expression)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _evaluated(expression: Expression | None) -> object:
    if expression is None or expression.names:
        return None
    try:
        found: object = expression({})
    except SpecError:
        return None
    return found


def fits(value: object, domain: Domain) -> bool:
    """Return whether *value* has the type of *domain* (it may lie outside its bounds)."""
    match domain.type:
        case "bool":
            return isinstance(value, bool)
        case "float":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "enum":
            # Python takes 1, 1.0 and True for equal
            return any(value == choice and type(value) is type(choice) for choice in domain.choices or [])
        case "shape":
            return isinstance(value, list) and all(size >= 0 for size in value)
        case "axes":
            return isinstance(value, list) and value == sorted(set(value)) and all(axis >= 0 for axis in value)
        case "permutation":
            return isinstance(value, list) and sorted(value) == list(range(len(value)))
    if domain.length is None:
        return type(value) is int
    return isinstance(value, list) and constant(domain.length) in (None, len(value))


def wanted(domain: Domain) -> str:
    """Return a description of the legal values of *domain*."""
    if domain.type == "enum":
        return f"one of {', '.join(got(choice) for choice in domain.choices or [])}"
    if domain.length is not None:
        return f"a list of {domain.length.text} integers"
    return _WORDS[domain.type]


def check_domain(domain: Domain, location: Location) -> Iterator[Finding]:
    """Yield the errors in the keys, bounds, default and bins of one domain."""
    given = domain.model_fields_set & frozenset().union(*_KEYS.values())
    for key in sorted(given - _KEYS[domain.type]):
        legal = ", ".join(sorted(_KEYS[domain.type])) or "default and bins only"
        yield Finding((*location, key), f"does not apply to type {domain.type}. Its keys: {legal}.", key=True)
    incomplete = [*_check_complete(domain, location), *_check_length(domain, location)]
    yield from incomplete
    # bounds of an incomplete domain would only give follow-up errors
    if incomplete:
        return
    yield from _check_bounds(domain, location)
    if domain.default is not None:
        if not fits(domain.default, domain):
            text = f"must be {wanted(domain)}, got {got(domain.default)}.{near(domain.default, domain.choices or [])}"
            yield Finding((*location, "default"), text)
        elif problem := _outside(domain.default, domain):
            yield Finding((*location, "default"), problem)
    for name, item in domain.bins.items():
        yield from _check_bin(item, domain, (*location, "bins", name))


def _check_length(domain: Domain, location: Location) -> Iterator[Finding]:
    length = constant(domain.length)
    if length is not None and not 1 <= length <= MAX_LENGTH:
        yield Finding((*location, "length"), f"must lie between 1 and {MAX_LENGTH}, got {length}.")


def _check_complete(domain: Domain, location: Location) -> Iterator[Finding]:
    kind = domain.type
    if kind == "enum" and domain.choices is None:
        yield Finding(location, "type enum must list its choices, as in choices: [nearest, linear].")
    elif kind in ("int", "float") and domain.choices is None and (domain.min is None or domain.max is None):
        yield Finding(location, f"type {kind} must have min and max, or choices.")
    elif kind == "shape":
        ways = [key for key in ("product", "sum", "broadcasts_to", "like") if getattr(domain, key) is not None]
        if len(ways) > 1:
            yield Finding(location, f"has {' and '.join(ways)}; a shape follows from one of them.")
        if not ways and not {"rank", "min", "max"} <= domain.model_fields_set:
            yield Finding(
                location, "type shape must have rank, min and max, or product, or sum, or broadcasts_to, or like."
            )
        if (domain.like is None) != (domain.but_for is None):
            yield Finding(
                location, "like and but_for go together: the shape, and the axis in which this one may differ."
            )
    elif kind in ("axes", "permutation") and domain.axes_of is None:
        yield Finding(location, f"type {kind} must have axes_of, as in axes_of: len(shape).")
    else:
        yield from _check_choices(domain, location)


def _check_choices(domain: Domain, location: Location) -> Iterator[Finding]:
    kind, choices = domain.type, domain.choices or []
    own = sorted(domain.model_fields_set & {"min", "max", "multiple_of"})
    if choices and own and kind in ("int", "float"):
        yield Finding((*location, own[0]), "does not go with choices. Remove one of the two.", key=True)
    for index, choice in enumerate(choices):
        if choice in choices[:index]:
            yield Finding((*location, "choices", index), f"{got(choice)} is listed before.")
        elif kind in ("int", "float") and not fits(choice, _entry(domain)):
            yield Finding((*location, "choices", index), f"must be {_WORDS[kind]}, got {got(choice)}.")


def _entry(domain: Domain) -> Domain:
    """Return the domain of one entry of a list, or *domain* itself."""
    return domain if domain.length is None else domain.model_copy(update={"length": None})


def _check_bounds(domain: Domain, location: Location) -> Iterator[Finding]:
    whole = domain.type != "float"
    wrong = False
    for key in ("min", "max", "multiple_of", "product", "sum", "length", "but_for", "axes_of"):
        value = _evaluated(getattr(domain, key))
        if value is not None and not _is_number(value, whole=whole):
            yield Finding((*location, key), f"must be {'an integer' if whole else 'a number'}, got {got(value)}.")
            wrong = True
    if wrong:
        return
    low, high, step = (constant(e) for e in (domain.min, domain.max, domain.multiple_of))
    if low is not None and high is not None and low > high:
        yield Finding((*location, "max"), f"must be at least min={low}, got {high}.")
    elif step is not None and step < 1:
        yield Finding((*location, "multiple_of"), f"must be at least 1, got {step}.")
    elif low is not None and high is not None and step is not None and -(-low // step) * step > high:
        yield Finding((*location, "multiple_of"), f"no multiple of {step} lies between {low} and {high}.")
    if domain.type == "shape" and low is not None and low < 0:
        yield Finding((*location, "min"), f"must be at least 0, got {low}.")
    if domain.rank is not None and not 0 <= domain.rank[0] <= domain.rank[1] <= 6:
        yield Finding((*location, "rank"), f"must be [smallest, largest] between 0 and 6, got {got(domain.rank)}.")


def _is_number(value: object, *, whole: bool) -> bool:
    return type(value) is int if whole else isinstance(value, int | float) and not isinstance(value, bool)


def _outside(value: object, domain: Domain) -> str:
    """Return a sentence about the constant bound that *value* violates, or None."""
    items: list[Any] = value if isinstance(value, list) else [value]
    low, high, step = (constant(e) for e in (domain.min, domain.max, domain.multiple_of))
    rule = ""
    if domain.choices is not None:
        rule = "" if all(item in domain.choices for item in items) else f"one of {', '.join(map(got, domain.choices))}"
    elif low is not None and any(item < low for item in items):
        rule = f"at least {low}"
    elif high is not None and any(item > high for item in items):
        rule = f"at most {high}"
    elif step is not None and step >= 1 and any(item % step for item in items):
        rule = f"a multiple of {step}"
    elif domain.type == "shape" and domain.rank is not None and not domain.rank[0] <= len(items) <= domain.rank[1]:
        rule = f"of a rank between {domain.rank[0]} and {domain.rank[1]}"
    return f"must be {rule}, got {got(value)}." if rule else ""


def _check_bin(item: Bin, domain: Domain, location: Location) -> Iterator[Finding]:
    if not item.model_fields_set:
        yield Finding(location, "must have min, max or value.")
    elif item.value is not None and len(item.model_fields_set) > 1:
        yield Finding(location, "has both value and min or max. Keep one of them.")
    elif item.value is not None:
        yield from _check_bin_value(item.value, domain, (*location, "value"))
    elif domain.type in ("bool", "enum"):
        yield Finding(location, f"a bin of type {domain.type} must have a value.")
    else:
        low, high = constant(item.min), constant(item.max)
        least, most = constant(domain.min), constant(domain.max)
        if low is not None and high is not None and low > high:
            yield Finding((*location, "max"), f"must be at least min={low}, got {high}.")
        elif low is not None and most is not None and low > most:
            yield Finding((*location, "min"), f"{low} is above the domain's max={most}: no value reaches this bin.")
        elif high is not None and least is not None and high < least:
            yield Finding((*location, "max"), f"{high} is below the domain's min={least}: no value reaches this bin.")
        elif domain.choices is not None and not any(
            (low is None or choice >= low) and (high is None or choice <= high)
            for choice in domain.choices
            if isinstance(choice, int | float)
        ):
            yield Finding(location, "no choice of the domain lies in this bin.")


def _check_bin_value(value: object, domain: Domain, location: Location) -> Iterator[Finding]:
    each = domain.length is not None and type(value) is int
    if not each and not fits(value, domain):
        words = f"{wanted(domain)}, or one integer for all of them" if domain.length is not None else wanted(domain)
        hint = near(value, domain.choices or [])
        if isinstance(value, str) and domain.type == "int":
            hint = " Write min and max for an expression."
        yield Finding(location, f"must be {words}, got {got(value)}.{hint}")
    elif problem := _outside(value, domain):
        yield Finding(location, f"{problem} No value reaches this bin.")


def ends(domain: Domain, bound: Mapping[str, Any], *, high: bool) -> AttrValue:
    """Return the smallest (or largest) value of *domain* for the values *bound* of the names that it uses.

    SpecError if a bound has no value, is not a number, or leaves the domain empty.
    """
    if domain.type == "bool":
        return high
    if domain.choices is not None:
        choice = domain.choices[-1 if high else 0]
        if domain.length is not None:
            return (int(str(choice)),) * _whole(domain.length, bound)
        return tuple(choice) if isinstance(choice, list) else choice
    if domain.type == "float":
        return _number(domain.max if high else domain.min, bound)
    if domain.axes_of is not None:
        axes = range(_whole(domain.axes_of, bound))
        return tuple(reversed(axes) if high and domain.type == "permutation" else axes if high else axes[:1] or axes)
    return (_shape_end if domain.type == "shape" else _integer_end)(domain, bound, high=high)


def _shape_end(domain: Domain, bound: Mapping[str, Any], *, high: bool) -> tuple[int, ...]:
    if (other := domain.broadcasts_to or domain.like) is not None:
        return tuple(bound[other])
    smallest, largest = domain.rank or [1, 4]
    rank = largest if high else smallest
    if domain.product is not None:
        # all elements along the first axis
        return (_whole(domain.product, bound), *(1,) * (rank - 1))
    if domain.sum is not None:
        total = _whole(domain.sum, bound)
        # as many parts as the rank allows, each of at least 1; the first takes the rest
        return (total - min(rank, total) + 1, *(1,) * (min(rank, total) - 1))
    return tuple(_whole(domain.max if high else domain.min, {**bound, ENTRY: i}) for i in range(rank))


def _integer_end(domain: Domain, bound: Mapping[str, Any], *, high: bool) -> int | tuple[int, ...]:
    if domain.length is None:
        return _one_end(domain, bound, high=high)
    return tuple(_one_end(domain, {**bound, ENTRY: i}, high=high) for i in range(_whole(domain.length, bound)))


def _one_end(domain: Domain, bound: Mapping[str, Any], *, high: bool) -> int:
    step = _whole(domain.multiple_of, bound) if domain.multiple_of is not None else 1
    low, top = _whole(domain.min, bound), _whole(domain.max, bound)
    # the bounds, moved inwards to multiples of the step; max() only until the check below refuses a step below 1
    first, last = -(-low // max(step, 1)) * step, top // max(step, 1) * step
    if step < 1 or first > last:
        raise SpecError(f"nothing lies in min={low}, max={top}" + (f", multiple_of={step}" if step != 1 else ""))
    return last if high else first


def _number(expression: Expression | None, bound: Mapping[str, Any]) -> Number:
    value = math.nan if expression is None else expression(bound)
    # True is an int in Python
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SpecError(f"expression {getattr(expression, 'text', '')!r}: must be a number, got {got(value)}")
    return value


def _whole(expression: Expression | None, bound: Mapping[str, Any]) -> int:
    value = _number(expression, bound)
    if not isinstance(value, int):
        raise SpecError(f"expression {getattr(expression, 'text', '')!r}: must be an integer, got {got(value)}")
    return value
