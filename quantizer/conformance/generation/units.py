"""Sizes that kernels treat specially: near a vector, block or table, past a counter, or with one more axis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from quantizer.conformance.generation.choice_sources import ChoiceSource
from quantizer.conformance.generation.domains import draw
from quantizer.conformance.target import Target
from quantizer.core.case import AttrValue
from quantizer.core.domains import ENTRY, draw_order
from quantizer.core.errors import QuantizerError
from quantizer.core.shapes import check, evaluate, infer_shapes, variables
from quantizer.core.spec import Domain, Spec
from quantizer.ops import REGISTRY
from quantizer.ops.registry import BUILT_IN

BATCH = 2
"""The smallest batch, if a batch is requested."""
BLOCKS = (4, 8, 16, 32, 64, 256)
"""Sizes that kernels process at once: lanes of a vector, rows and columns of a block, codes of a byte."""
SIZES = tuple(sorted({1, *(size for v in BLOCKS for size in (v - 1, v, v + 1, v + v // 2, 2 * v + 1))}))
"""Sizes around a block: one less, equal, one more, one and a half blocks, two blocks plus one."""
REST = 16
"""Places of the largest vector of 8-bit codes: a size of one and a half blocks takes any rest of it, by a hash."""
FEW = tuple(size for size in SIZES if 4 <= size <= 17)
"""Window sizes. No kernel has code for large values of these."""
LISTED, COUNTED = (4, 5, 7), (4, 5, 8, 16)
"""Values that are tried for attributes that are lists (strides, paddings), and for numbers (groups)."""
RANKS = (5, 6)
"""Numbers of axes above those that are drawn. Those below the smallest one that is drawn are tried as well."""
SUM_BITS = (15, 16, 23, 24, 31, 32)
"""Bits of sums at which an accumulator, or float32, ends."""
MOST_TERMS = 1100
NEIGHBOUR = 2.0**-7
"""The distance of the requested value of a real attribute from its default, as a share of the default."""
MOST_FACTORS = 9
"""The largest number of factors in a product: with more, it leaves every format."""
MOST_ELEMENTS, MOST_WORK = 1 << 13, 1 << 17
"""The largest numbers of elements (of all operands and the output) and of terms (of all sums) in a case."""
ROOM = (1 << 14, 1 << 19)
"""The same for cases with several long sizes, or one past every block."""
ILLEGAL = (QuantizerError, ArithmeticError, IndexError, TypeError, ValueError)
"""Errors of expressions for a value that the operator does not accept, or for a missing axis."""
SPREADS = (2, 1, 0)
"""How much larger than the minimum other sizes may be. It is reduced if there would be too many elements."""


@dataclass(frozen=True)
class Unit:
    """One size, or one value of an attribute, that a case must have."""

    name: str
    value: int | float
    place: int | None = None
    """The entry of a list or the axis of a shape: 0 is the first, 1 an inner one, 2 the last.

    None for the whole value, which is the number of axes of a shape.
    """
    is_full: bool = False
    """The sum is so long that it reaches the end of an accumulator. The data must be as large as possible."""
    is_blocks: bool = False
    """The size is not a whole number of blocks of weights that share a scale."""
    before: int | None = field(default=None, repr=False)
    """For a shape: the requested size of the axis before that one. It does not influence the order of units."""

    @property
    def kind(self) -> tuple[str, int | None, bool, bool]:
        """Key by which conditions are distributed evenly over cases: the name, and a part of it."""
        return self.name, self.place, self.is_full, self.is_blocks


def units(target: Target) -> tuple[Unit, ...]:
    """Return the units of an operator, ordered by dimension or attribute."""
    spec, found = target.spec, list[Unit]()
    for name in draw_order(spec):
        domain = spec.dims.get(name) or spec.attrs[name]
        found += _of_attribute(name, domain) if name in spec.attrs else _of_size(target, name, domain)
    return tuple(unit for unit in found if is_ours(spec) or _is_in_rank(unit, spec))


def with_rest(unit: Unit, number: int) -> Unit:
    """Return a size of one and a half blocks with a rest that *number* chooses; any other unit as it is.

    A block of 8 or 16 is followed by a rest alone, larger ones by half a block and a rest.
    """
    block = unit.value * 2 // 3
    if block not in BLOCKS[1:] or unit.value != block + block // 2 or unit.is_full or unit.is_blocks:
        return unit
    size = block + 1 + number % (block - 1) if block <= REST else int(unit.value) + number % REST
    return replace(unit, value=size)


def is_ours(spec: Spec) -> bool:
    """Return whether our own reference computes the operator. Then its constraints reject everything that is illegal.

    For an operator of a plugin, only values inside its domains are known to be legal.
    """
    entry = REGISTRY.built_in(spec.op, "reference")
    return entry is not None and entry.origin == BUILT_IN


def _is_in_rank(unit: Unit, spec: Spec) -> bool:
    domain = spec.dims.get(unit.name)
    is_rank = domain is not None and domain.type == "shape" and unit.place is None
    return not is_rank or (domain is not None and unit.value <= (domain.rank or (1, 4))[1])


def _of_size(target: Target, name: str, domain: Domain) -> Iterator[Unit]:
    terms = target.spec.error_model.terms
    sums = _past_sums(target) if terms is not None and name in terms.names else []
    if domain.type == "shape":
        if any((domain.product, domain.sum, domain.broadcasts_to, domain.like)):
            return
        least, most = domain.rank or (1, 4)
        yield from (Unit(name, rank) for rank in (*range(1, least), *RANKS) if least < most)
        yield from (Unit(name, size, place) for place in (0, 1, 2) for size in SIZES[1:])
        yield from (Unit(name, size, place, is_full=True) for place in (0, 2) for size in sums)
    elif domain.type == "int" and domain.choices is None:
        few = is_window(target.spec, name)
        yield from (Unit(name, size) for size in (FEW if few else SIZES[1:]))
        yield from (Unit(name, size, is_full=True) for size in sums if not few)
        yield from (Unit(name, size, is_blocks=True) for size in beside_blocks(target, name))


def beside_blocks(target: Target, name: str) -> list[int]:
    """Return sizes next to multiples of the weight block along the summed axis; no sizes without blocks."""
    block = block_along(target, name)
    if block is None:
        return []
    return sorted({size for many in (1, 2, 3) for size in (many * block - 1, many * block, many * block + 1)})


def block_along(target: Target, name: str) -> int | None:
    """Return the size of the weight's blocks if sums run along dimension *name*, else None."""
    block = target.scheme.weight.block if target.scheme.weight is not None else None
    terms = target.spec.error_model.terms
    return block if terms is not None and name in terms.names else None


def is_window(spec: Spec, name: str) -> bool:
    """Return whether a dimension is the size of a window: it occurs only in weights and is not a channel."""
    spread = [item for item in spec.inputs.values() if isinstance(item.axes, list)]
    held = [item for item in spread if item.role == "weight"]
    channels = {str(item.axes[item.channel_axis or 0]) for item in held if isinstance(item.axes, list)}
    others = [
        axis for item in spread if item.role != "weight" for axis in (item.axes if isinstance(item.axes, list) else ())
    ]
    return bool(held) and not any(name in axis.names for axis in others) and name not in channels


def _of_attribute(name: str, domain: Domain) -> Iterator[Unit]:
    if domain.type == "int" and domain.choices is None:
        if domain.length is None:
            yield from (Unit(name, size) for size in COUNTED)
        else:
            yield from (Unit(name, size, place) for place in (0, 2) for size in LISTED)
    elif domain.type == "float" and domain.choices is None and isinstance(domain.default, int | float):
        step = abs(domain.default) * NEIGHBOUR or NEIGHBOUR
        yield from (Unit(name, domain.default + side * step) for side in (-1, 1))


def _past_sums(target: Target) -> list[int]:
    """Return how many products of the largest codes, or of half as large ones, just exceed this many bits."""
    kind = target.spec.error_model.kind
    if kind not in ("linear", "bilinear", "mean") or target.spec.error_model.terms is None:
        return []
    # the largest magnitude of a centred code: with a free zero point, the whole span of the codes
    part = target.scheme.activation
    is_symmetric = part.symmetry == "symmetric" or part.bits > target.platform.parameters.symmetric_above_bits
    other = part.bits if len(target.spec.activations) > 1 else 1 if target.weight is None else target.weight.bits
    largest = 2.0 ** (part.bits - is_symmetric) - 1.0
    # without a second factor `other` is 1, and the product is the code itself
    largest *= (2.0 ** (other - 1) - 1.0 or 1.0) if kind == "bilinear" else 1.0
    found = {math.ceil(half * 2.0**limit / largest) + 1 for limit in SUM_BITS for half in (1, 2)}
    return sorted(size for size in found if 2 < size <= MOST_TERMS)


def bound_with(
    spec: Spec, asked: Mapping[str, Unit], chooser: ChoiceSource, most: tuple[int, int] = (MOST_ELEMENTS, MOST_WORK)
) -> dict[str, Any] | None:
    """Return the requested dimensions and attributes, with small values for the rest; None if no case can have them.

    *most*: elements of all operands and the output, and terms of all sums.
    """
    # begins at a drawn spread, and goes on to smaller sizes if the case would be too large
    for spread in SPREADS[chooser.integer("spread", 0, len(SPREADS) - 1) :]:
        try:
            bound = _bound(spec, asked, _Lean(chooser, spec, spread))
        except ILLEGAL:
            return None
        if bound is not None and is_cheap(spec, bound, most):
            return bound
    return None


def _bound(spec: Spec, asked: Mapping[str, Unit], chooser: _Lean) -> dict[str, Any] | None:
    bound: dict[str, Any] = {}
    for name in draw_order(spec):
        domain = spec.dims.get(name) or spec.attrs[name]
        value: AttrValue | None = draw(name, domain, chooser, bound)
        if (
            name not in asked
            and chooser.is_usual
            and domain.type == "float"
            and isinstance(domain.default, int | float)
        ):
            value = float(domain.default)
        if name in asked and value is not None:
            value = _with(asked[name], domain, value, bound, chooser, limited=not is_ours(spec))
        if value is None:
            return None
        bound[name] = value
    return bound


def _with(
    unit: Unit, domain: Domain, drawn: AttrValue, bound: Mapping[str, Any], chooser: ChoiceSource, *, limited: bool
) -> AttrValue | None:
    """Return the draw with the unit's value; None if the value is outside the domain."""
    if domain.type == "float":
        low, high = (None if end is None else float(end(bound)) for end in (domain.min, domain.max))
        inside = (low is None or low <= unit.value) and (high is None or unit.value <= high)
        return float(unit.value) if inside else None
    # bounds may depend on the place of an entry
    size, here = int(unit.value), {**bound, ENTRY: unit.place or 0}
    if domain.type == "shape" and unit.place is None:
        return tuple(chooser.integer(f"{unit.name}[{i}]", 1, 3) for i in range(size))
    if domain.min is not None and size < int(domain.min(here)):
        return None
    if limited and (domain.max is None or size > int(domain.max(here))):
        return None
    if domain.multiple_of is not None:
        # rounded up, so that the size still exceeds the block
        step = int(domain.multiple_of(bound))
        size = -(-size // step) * step
    if unit.place is None:
        return size
    values = list(drawn) if isinstance(drawn, tuple) else []
    if not values:
        return None
    place = (0, len(values) // 2, len(values) - 1)[unit.place]
    values[place] = size
    if unit.before is not None:
        if not place:
            return None
        values[place - 1] = unit.before
    return tuple(values)


def is_cheap(spec: Spec, bound: Mapping[str, Any], most: tuple[int, int]) -> bool:
    """Return whether the sizes are legal and the case small enough."""
    try:
        shapes = {name: evaluate(item.axes, bound) for name, item in spec.inputs.items()}
        attrs = {name: bound[name] for name in spec.attrs}
        known = variables(spec, shapes, attrs)
        check(spec, known)
        outputs = infer_shapes(spec, shapes, attrs)
        terms = spec.error_model.terms
        each = int(terms(known)) if terms is not None else math.prod(known.get("kernel", (1,)))
    except ILLEGAL:
        return False
    # work is counted in terms: each output element is a sum of `each` of them
    made = sum(math.prod(shape) for shape in outputs.values())
    elements = made + sum(math.prod(shape) for shape in shapes.values())
    if spec.error_model.kind == "product" and each > MOST_FACTORS:
        return False
    return made > 0 and elements <= most[0] and made * max(each, 1) <= most[1]


def batch_of(spec: Spec) -> str:
    """Return the dimension of the first activation's first axis; empty if its axes are one shape, without a batch."""
    axes = spec.inputs[next(iter(spec.activations))].axes if spec.activations else ()
    name = axes[0].text if isinstance(axes, list) and axes else ""
    return name if name in spec.dims and spec.dims[name].type == "int" else ""


class _Lean:
    """The choices of another source, but with sizes at most *spread* above their smallest values.

    Four properties hold for half of the cases each, drawn independently. All entries of a list, and all sizes of one
    domain, are equal, as in networks. Real attributes keep their exact defaults. A shape has its largest rank, because
    otherwise no large size would ever meet several axes if the operator has one shape as its only dimension. There is
    a batch, even if a large size leaves room only for minimal sizes elsewhere.
    """

    def __init__(self, chooser: ChoiceSource, spec: Spec, spread: int) -> None:
        self._chooser, self._spread = chooser, spread
        self._dims = frozenset(spec.dims)
        self._alike = chooser.integer("alike", 0, 1) == 1
        self.is_usual = chooser.integer("usual", 0, 1) == 1
        """Whether real attributes have their defaults."""
        self._is_deep = chooser.integer("deep", 0, 1) == 1
        self._batch = batch_of(spec) if chooser.integer("batched", 0, 1) == 1 else ""
        self._first: dict[str, str] = {}
        for name, domain in spec.dims.items():
            # dimensions of one domain are drawn under the name of the first of them, which gives them one value
            like = (first for other, first in self._first.items() if spec.dims[other] == domain)
            self._first[name] = next(like, name) if self._alike else name

    def integer(self, name: str, low: int, high: int) -> int:
        """Return an integer in [low, high]; a size is at most *spread* above the smallest."""
        if name in self._dims:
            name = self._first.get(name, name)
        elif self._alike:
            # entries of a list are drawn under the name of the list, which gives them one value
            name = name.split("[")[0]
        if name.endswith(".rank") and self._is_deep:
            return high
        if name == self._batch and low < BATCH <= high:
            low = BATCH
        is_size = name.split("[")[0] in self._dims and not name.endswith(".rank")
        return self._chooser.integer(name, low, min(high, low + self._spread) if is_size else high)

    def option(self, name: str, options: Any) -> Any:
        """Return one of *options*."""
        return self._chooser.option(name, options)

    def bin(self, factor: str) -> str | None:
        """Return the requested bin, unless it is a bin of a size."""
        return None if factor in self._dims else self._chooser.bin(factor)
