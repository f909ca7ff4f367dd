"""Cases in which each size has its own class: one, a quarter of a vector, whole vectors, or a vector with a rest.

A unit is one special size among small ones. Kernels of layers see none of that: whole vectors of channels beside an odd
width, many rows of a few columns, an axis of 1 between two long ones. No target has many such cases: each of an
operator's targets draws other classes, so that together they hold most pairs of classes of two sizes. The innermost
size takes each rest of a vector in turn, and so do channels: loops for rests take four, two or one at once.

Most examples that hashes choose have such sizes too, beside every class of attributes, data and operands. They meet
more conditions of three parts than sizes from the domains do, which are small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quantizer.conformance.generation.builder import complete, drawn
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.domains import draw
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.units import ILLEGAL, ROOM, batch_of, is_cheap, is_ours, is_window
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.domains import draw_order
from quantizer.core.spec import Domain, Spec

CLASSES = ((1,), (2, 3, 5, 6, 7), (4, 12, 20), (8, 16, 24), (32, 64), (9, 10, 11, 13, 14, 15, 17, 33, 35))
"""Sizes of a class: one, few, quarters of a vector, whole vectors, whole blocks, a vector and a rest."""
WINDOW = (1, 2, 3, 4, 5)
"""Sizes of a kernel along an axis."""
LONG, SEVERAL = 8, 2
"""A case has at least SEVERAL sizes of LONG or more."""
RANKS = (2, 5)
"""The fewest and the most axes of a shape, if its domain allows them: one axis has no other beside it."""
ENOUGH, NIGHTLY = 20, 16
"""Cases of an operator with attributes or several sizes, at least one a target; cases of a target in nightly runs."""
VECTOR, HALF = 16, 8
"""A size in turn is a whole vector and a rest: so many cases in a row have every rest of half a vector."""
KEPT = 4
"""One in so many cases keeps the classes of all its sizes, if the operator has at least VECTOR cases; one in so many
examples keeps the sizes of its domains."""
TRIES, OF_EXAMPLES = 64, 16
"""The number of attempts, and of those for an example: drawn sizes may be illegal, too large or too small."""


def mixed_sizes(everything: Sequence[Target], target: Target, *, strong: bool = False) -> list[Case]:
    """Return the cases of a target among *everything*, more of them if *strong*."""
    spec = target.spec
    if not is_ours(spec):
        return []
    least = -(-HALF // len(everything))
    rows = max(least, ENOUGH // len(everything)) if spec.attrs or len(spec.dims) > 1 else least
    rows = NIGHTLY if strong else rows
    first = [each.id for each in everything].index(target.id) * rows
    made = [_case(target, row, _in_turn(spec, first + row, len(everything) * rows)) for row in range(rows)]
    return [case for case in made if case is not None]


def seeded_choices(target: Target, index: int) -> HashChoices:
    """Return the choices of example *index* of a target: sizes of mixed classes; of their domains if those do not fit.

    The last of KEPT examples has sizes of its domains, since conditions also ask for small sizes. A plugin's operator
    has no others: its constraints need not reject them.
    """
    spec = target.spec
    for step in range(OF_EXAMPLES if is_ours(spec) and (index + 1) % KEPT else 0):
        mixed = _Mixed(key(step, target.id, "seeded", str(index)), {}, spec, {})
        try:
            bound, _, _ = drawn(target, mixed)
        except ILLEGAL:
            continue
        if is_cheap(spec, bound, ROOM):
            return mixed
    return HashChoices(key(index, target.id, "seeded"), {})


def _in_turn(spec: Spec, turn: int, many: int) -> dict[str, int]:
    """Return the sizes that the case at this place has: of innermost axes, and of others in every second half vector.

    The place of a shape's axis is counted from the end. Of *many* cases, one in KEPT has none.
    """
    if many >= VECTOR:
        if turn % KEPT == 0:
            return {}
        turn -= turn // KEPT + 1
    inner, others = _turned(spec)
    found: dict[str, int] = {}
    for index, name in enumerate((*inner, *others)):
        if name in inner or turn // HALF % 2 == index % 2:
            found[name] = VECTOR + (turn * (2 * index + 1) + index * (HALF // 2 + 1)) % VECTOR
    return found


def _turned(spec: Spec) -> tuple[list[str], list[str]]:
    """Return the sizes that are taken in turn: the innermost ones of operands, and those beside them.

    Beside them are the axis before the last one of a shape, and channels, which other layouts have innermost.
    """
    inner, others = list[str](), list[str]()
    for item in spec.inputs.values():
        if not isinstance(item.axes, list):
            inner += [f"{name}[-1]" for name in item.axes.names]
            others += [f"{name}[-2]" for name in item.axes.names]
        elif item.axes:
            inner.append(item.axes[-1].text)
            others += [axis.text for axis in (*item.axes[1:2], item.axes[item.channel_axis or 0])]
    inner = [name for name in dict.fromkeys(inner) if name not in spec.dims or not is_window(spec, name)]
    return inner, [name for name in dict.fromkeys(others) if name not in (*inner, batch_of(spec))]


def _case(target: Target, row: int, turned: Mapping[str, int]) -> Case | None:
    spec = target.spec
    data = "random" if "random" in spec.data else spec.data[0]
    for step in range(TRIES):
        number = key(step, target.id, "mixed_sizes", str(row))
        chooser = _Mixed(number, {"data": data, "tiles": "untiled"}, spec, turned)
        bound = _bound(spec, chooser)
        if bound is not None:
            present = [name for name, item in spec.inputs.items() if number % 4 or not item.optional]
            return complete(target, bound, present, data, number % (1 << 32), chooser)
    return None


def _bound(spec: Spec, chooser: HashChoices) -> dict[str, Any] | None:
    """Return sizes and attributes; None if they are illegal or too large, or if too few sizes are long."""
    bound: dict[str, Any] = {}
    try:
        for name in draw_order(spec):
            bound[name] = draw(name, spec.dims.get(name) or spec.attrs[name], chooser, bound)
    except ILLEGAL:
        return None
    bound |= _repeated(spec, bound, chooser)
    sizes = [size for name in spec.dims for size in _flat(bound[name])]
    return bound if sum(size >= LONG for size in sizes) >= SEVERAL and is_cheap(spec, bound, ROOM) else None


def _repeated(spec: Spec, bound: Mapping[str, Any], chooser: HashChoices) -> dict[str, tuple[int, ...]]:
    """Return the first operand's shape with size 1 on some axes; along these, the first operand is repeated."""
    others = {name: domain.broadcasts_to for name, domain in spec.dims.items() if domain.broadcasts_to}
    if len(others) != 1:
        return {}
    ((other, shape),) = others.items()
    aligned = (1,) * (len(bound[str(shape)]) - len(bound[other])) + bound[other]
    # where the second has size 1, the first keeps its size; elsewhere one axis in four becomes 1 and is repeated
    kept = (same == 1 or chooser.integer(f"{shape}[{i}] repeated", 0, 3) > 0 for i, same in enumerate(aligned))
    return {str(shape): tuple(size if keep else 1 for size, keep in zip(bound[str(shape)], kept, strict=True))}


def _flat(value: Any) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value,)


class _Mixed(HashChoices):
    """Choices by hash; every size that no other one decides is a given one, or belongs to a class of its own."""

    def __init__(self, seed: int, row: dict[str, str], spec: Spec, turned: Mapping[str, int]) -> None:
        super().__init__(seed, row)
        self._turned, self._ranks = turned, dict[str, int]()
        self._free = {name: domain for name, domain in spec.dims.items() if _is_free(domain)}
        self._windows = {n for n, domain in self._free.items() if domain.type == "int" and is_window(spec, n)}
        self._alike = {name for name, domain in spec.attrs.items() if domain.length is not None and seed // 4 % 2}
        """Lists whose entries are all equal, as in networks: half of the cases have them."""

    def integer(self, name: str, low: int, high: int) -> int:
        """Return an integer of at least *low*; a size may be larger than *high*."""
        size, _, of = name.partition(".")
        if size in self._free and of == "rank":
            least, most = RANKS
            rank = super().integer(name, max(low, least) if low else 0, max(high, most) if low < high else high)
            self._ranks[size] = rank
            return rank
        size, _, place = size.partition("[")
        if size not in self._free:
            return super().integer(size if size in self._alike else name, low, high)
        end = f"{size}[{int(place[:-1]) - self._ranks.get(size, 0)}]" if place[:-1].isdigit() else size
        given = self._turned.get(end)
        if given is not None:
            return max(low, given)
        sizes = WINDOW if size in self._windows else CLASSES[super().integer(f"{name} class", 0, len(CLASSES) - 1)]
        return max(low, self.option(f"{name} size", sizes))


def _is_free(domain: Domain) -> bool:
    """Return whether sizes are drawn one by one between a least and a largest one."""
    decided = (domain.choices, domain.product, domain.sum, domain.broadcasts_to, domain.like)
    return domain.type in ("int", "shape") and not any(decided)
