"""Draws values from the domains of a spec, valid by construction, and tells in which bins a value is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quantizer.conformance.generation.choice_sources import ChoiceSource
from quantizer.core.case import AttrValue
from quantizer.core.domains import ENTRY
from quantizer.core.spec import Bin, Domain

DRAWS, ALONE, ALL_BUT_ONE = 6, (0, 1), 2
"""Of so many draws of a list of axes, those in which it holds one axis, and the one in which it leaves one out."""


def draw(name: str, domain: Domain, chooser: ChoiceSource, bound: Mapping[str, Any]) -> AttrValue:
    """Return one value of *domain*, inside the bin that the chooser requests unless that bin is empty here."""
    asked = chooser.bin(name)
    chosen = domain.bins.get(asked) if asked else None
    match domain.type:
        case "bool":
            return bool(chosen.value) if chosen and chosen.value is not None else bool(chooser.integer(name, 0, 1))
        case "enum":
            options = [chosen.value] if chosen and chosen.value is not None else list(domain.choices or [])
            return chooser.option(name, options)  # type: ignore[return-value]
        case "float":
            return _real(name, domain, chosen, chooser, bound)
        case "shape":
            return _shape(name, domain, chosen, chooser, bound)
        case "axes" | "permutation":
            return _axes(name, domain, chosen, chooser, bound)
        case _:
            return _integers(name, domain, chosen, chooser, bound)


def _real(name: str, domain: Domain, chosen: Bin | None, chooser: ChoiceSource, bound: Mapping[str, Any]) -> float:
    if domain.choices:
        return float(str(chooser.option(name, _choices(domain.choices, chosen, bound))))
    low, high = float(_value(domain.min, bound, 0)), float(_value(domain.max, bound, 1))
    if chosen is not None:
        asked = chosen.value
        first = max(low, float(str(asked)) if asked is not None else float(_value(chosen.min, bound, low)))
        last = min(high, float(str(asked)) if asked is not None else float(_value(chosen.max, bound, high)))
        low, high = (first, last) if first <= last else (low, high)
    # 64 steps: an integer is the only choice that all sources can make, and that Hypothesis can shrink
    return low + (high - low) * chooser.integer(name, 0, 64) / 64


def _choices(choices: Sequence[Any], chosen: Bin | None, bound: Mapping[str, Any]) -> list[Any]:
    """Return the choices in the bin, or all choices if none is in it."""
    return [c for c in choices if chosen is not None and _inside(chosen, c, bound)] or list(choices)


def _integers(
    name: str, domain: Domain, chosen: Bin | None, chooser: ChoiceSource, bound: Mapping[str, Any]
) -> int | tuple[int, ...]:
    if domain.length is None:
        return _integer(name, domain, chosen, chooser, bound)
    count = int(_value(domain.length, bound, 1))
    asked = chosen.value if chosen is not None else None
    if isinstance(asked, list) and _within(domain, asked, count, bound):
        return tuple(asked)
    # the bin is a list that is not legal here, for example for another number of axes
    if isinstance(asked, list):
        chosen = None
    places = [(f"{name}[{i}]", {**bound, ENTRY: i}) for i in range(count)]
    return tuple(_integer(entry, domain, chosen, chooser, values) for entry, values in places)


def _within(domain: Domain, asked: list[int], count: int, bound: Mapping[str, Any]) -> bool:
    """Return whether a list is a legal value: every entry lies within its bounds."""
    if domain.choices is not None:
        return len(asked) == count and set(asked) <= set(domain.choices)
    spans = [_ends(domain, None, {**bound, ENTRY: i}) for i in range(len(asked))]
    return len(asked) == count and all(low <= item <= high for item, (low, high) in zip(asked, spans, strict=True))


def _integer(name: str, domain: Domain, chosen: Bin | None, chooser: ChoiceSource, bound: Mapping[str, Any]) -> int:
    if domain.choices is not None:
        return int(str(chooser.option(name, _choices(domain.choices, chosen, bound))))
    low, high = _ends(domain, chosen, bound)
    if chosen is not None and isinstance(chosen.value, int) and low <= chosen.value <= high:
        return int(chosen.value)
    step = int(_value(domain.multiple_of, bound, 1))
    # a multiple is drawn by its number of steps: from low / step, rounded up
    first = -(-low // step)
    return chooser.integer(name, first, max(first, high // step)) * step


def _ends(domain: Domain, chosen: Bin | None, bound: Mapping[str, Any]) -> tuple[int, int]:
    low, high = int(_value(domain.min, bound, 0)), int(_value(domain.max, bound, 8))
    high = max(high, low)
    if chosen is not None:
        narrow_low = max(low, int(_value(chosen.min, bound, low)))
        narrow_high = min(high, int(_value(chosen.max, bound, high)))
        step = int(_value(domain.multiple_of, bound, 1))
        # only if the bin holds a legal multiple here
        if -(-narrow_low // step) * step <= narrow_high:
            return narrow_low, narrow_high
    return low, high


def _axes(
    name: str, domain: Domain, chosen: Bin | None, chooser: ChoiceSource, bound: Mapping[str, Any]
) -> tuple[int, ...]:
    """Return all axes in a drawn order; or some of them in increasing order, often one alone or all but one."""
    left = list(range(int(_value(domain.axes_of, bound, 1))))
    asked = chosen.value if chosen is not None and isinstance(chosen.value, list) else []
    if asked and set(asked) <= set(left) and (domain.type == "axes" or len(asked) == len(left)):
        return tuple(asked)
    if domain.type == "permutation":
        return tuple(left.pop(chooser.integer(f"{name}[{i}]", 0, len(left) - 1)) for i in range(len(left)))
    taken = [axis for axis in left if chooser.integer(f"{name}[{axis}]", 0, 1)]
    kind = chooser.integer(f"{name} kind", 0, DRAWS - 1)
    if not left or (taken and kind not in (*ALONE, ALL_BUT_ONE)):
        return tuple(taken)
    one = left[chooser.integer(name, 0, len(left) - 1)]
    return tuple(axis for axis in left if axis != one) if kind == ALL_BUT_ONE and len(left) > 1 else (one,)


def _shape(
    name: str, domain: Domain, chosen: Bin | None, chooser: ChoiceSource, bound: Mapping[str, Any]
) -> tuple[int, ...]:
    if (
        chosen is not None
        and isinstance(chosen.value, list)
        and domain.product is None
        and domain.sum is None
        and domain.broadcasts_to is None
    ):
        return tuple(chosen.value)
    if domain.broadcasts_to is not None:
        target: tuple[int, ...] = bound[domain.broadcasts_to]
        # the full number of axes first, because earlier options count as simpler
        rank = chooser.option(f"{name}.rank", [len(target), *range(len(target) - 1, 0, -1)])
        # one axis in four is broadcast
        return tuple(
            size if chooser.integer(f"{name}[{i}]", 0, 3) else 1 for i, size in enumerate(target[len(target) - rank :])
        )
    if domain.like is not None:
        shape = list(bound[domain.like])
        low, high = int(_value(domain.min, bound, 1)), int(_value(domain.max, bound, 6))
        shape[int(_value(domain.but_for, bound, 0))] = chooser.integer(f"{name}.size", low, high)
        return tuple(shape)
    low, high = domain.rank or [1, 4]
    if domain.sum is not None:
        return _parts(name, int(_value(domain.sum, bound, 1)), range(low, high + 1), chosen, chooser, bound)
    rank = chooser.integer(f"{name}.rank", low, high)
    if domain.product is not None:
        return _factors(name, int(_value(domain.product, bound, 1)), rank, chooser)
    spans = [_ends(domain, chosen, {**bound, ENTRY: i}) for i in range(rank)]
    return tuple(chooser.integer(f"{name}[{i}]", smallest, largest) for i, (smallest, largest) in enumerate(spans))


def _factors(name: str, total: int, rank: int, chooser: ChoiceSource) -> tuple[int, ...]:
    sizes = []
    for i in range(rank - 1):
        divisors = [d for d in range(1, total + 1) if total % d == 0]
        size = chooser.option(f"{name}[{i}]", divisors)
        # the other sizes must divide what is left
        sizes.append(size)
        total //= size
    return (*sizes, total)


def _parts(
    name: str, total: int, counts: Sequence[int], chosen: Bin | None, chooser: ChoiceSource, bound: Mapping[str, Any]
) -> tuple[int, ...]:
    """Return sizes that add up to *total*.

    Their number is taken from *counts* and the bin if possible, else it is smaller.
    """
    ends = (1, total) if chosen is None else (int(_value(chosen.min, bound, 1)), int(_value(chosen.max, bound, total)))
    legal = [n for n in counts if n * ends[0] <= total <= n * ends[1]]
    least, most = ends if legal else (1, total)
    count = chooser.option(f"{name}.rank", legal or [n for n in counts if n <= total] or [1])
    sizes: list[int] = []
    for i in reversed(range(count)):
        left = total - sum(sizes)
        # i sizes are still to come: what is left for them must be neither too little nor too much
        sizes.append(chooser.integer(f"{name}[{i}]", max(least, left - i * most), min(most, left - i * least)))
    return tuple(sizes)


def _value(expression: Any, bound: Mapping[str, Any], default: float) -> Any:
    return default if expression is None else expression(bound)


def bins_of(name: str, domain: Domain, value: AttrValue, bound: Mapping[str, Any]) -> list[str]:
    """Return the names of the bins that *value* lies in, as `name=bin`."""
    return [f"{name}={bin_name}" for bin_name, item in domain.bins.items() if _inside(item, value, bound)]


def _inside(item: Bin, value: AttrValue, bound: Mapping[str, Any]) -> bool:
    if item.value is not None:
        wanted = tuple(item.value) if isinstance(item.value, list) else item.value
        return value == wanted or (isinstance(value, tuple) and isinstance(wanted, int) and set(value) == {wanted})
    values = value if isinstance(value, tuple) else (value,)
    low, high = _value(item.min, bound, float("-inf")), _value(item.max, bound, float("inf"))
    return bool(values) and all(not isinstance(v, str) and low <= v <= high for v in values)
