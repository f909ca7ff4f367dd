"""Cases of products whose sizes all exceed a block. With windows: small kernels, many channels and several places.

Kernels work in blocks along rows, outputs and sums, and each has a loop for the rest. Cases in which one size exceeds a
block never reach the code where two such loops meet. An operator with an example of that kind has no further case.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from quantizer.conformance.generation.builder import complete
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.dealing import dealt
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.units import Unit, batch_of, bound_with, is_ours, is_window
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.domains import draw_order
from quantizer.core.errors import QuantizerError
from quantizer.core.shapes import Shape, evaluate, infer_shapes
from quantizer.core.spec import Example, Spec

ROWS, OUTPUTS, DEPTH = 4, 8, 64
"""Sizes of blocks. A case has more rows, more outputs and longer sums than these."""
SIZES: Mapping[str, tuple[int, ...]] = {
    "rows": (5, 6, 7, 9),
    "outputs": (9, 10, 11, 12, 13, 14, 15, 17),
    "depth": (65, 67, 68, 70, 72, 77, 78, 96),
}
KERNEL = 3
FACTORS = 2
TRIES = 16
"""Choices that may be too large, or leave one place of the output."""
WHOLE, RESTS = (16, 32), tuple(size for size in range(9, 24) if size % 8)
"""Sizes of a product of matrices of which one has a rest and the others are whole blocks. A platform's targets share
the three cases."""


def past_blocks(target: Target) -> list[Case]:
    """Return a case without a bias of a target whose operator adds products.

    There is none if an example of its spec already is such a case.
    """
    spec = target.spec
    if not _is_product(spec) or not is_ours(spec) or any(_is_shown(spec, example) for example in spec.examples):
        return []
    for step in range(TRIES):
        number = key(step, target.id, "past_blocks")
        data = "uneven_channels" if any(item.role == "weight" for item in spec.inputs.values()) else "random"
        chooser = HashChoices(number, {"data": data, "tiles": "untiled"})
        bound = bound_with(spec, {name: Unit(name, size) for name, size in _wanted(spec, number).items()}, chooser)
        if bound is not None and is_past_blocks(spec, *_shapes(spec, bound)):
            present = [name for name, item in spec.inputs.items() if not item.optional]
            return [complete(target, bound, present, data, number % (1 << 32), chooser)]
    return []


def one_rest(everything: Sequence[Target], target: Target) -> list[Case]:
    """Return the target's share of the products of matrices in which only one size leaves a rest after whole blocks."""
    spec = target.spec
    if not _is_product(spec) or not is_ours(spec) or _windows(spec):
        return []
    cases = [_with_rest(target, name) for name in dealt(everything, target, list(SIZES), "one_rest")]
    return [case for case in cases if case is not None]


def _with_rest(target: Target, rest: str) -> Case | None:
    for step in range(TRIES):
        number = key(step, target.id, "one_rest", rest)
        chooser = HashChoices(number, {"data": "random", "tiles": "untiled"})
        sizes = {name: RESTS if name == rest else WHOLE for name in SIZES}
        units = {name: Unit(name, size) for name, size in _wanted(target.spec, number, sizes).items()}
        if (bound := bound_with(target.spec, units, chooser)) is not None:
            return complete(target, bound, list(target.spec.inputs), "random", number % (1 << 32), chooser)
    return None


def is_past_blocks(spec: Spec, shapes: Mapping[str, Shape], out: Shape) -> bool:
    """Return whether all sizes of a product exceed a block; for a convolution, channels and output positions."""
    first, second = [shapes[name] for name, item in spec.inputs.items() if item.role != "bias"][:2]
    if _windows(spec):
        places = math.prod(out[2:])
        return first[1] > DEPTH and places > 1 and all(size == KERNEL for size in second[2:])
    return math.prod(out[:-1]) > ROWS and out[-2] > ROWS and out[-1] > OUTPUTS and first[-1] > DEPTH


def _is_product(spec: Spec) -> bool:
    """Return whether two operands of at least two axes each are multiplied: matrices, or an image and filters."""
    factors = [item for item in spec.inputs.values() if item.role != "bias"]
    return (
        spec.error_model.kind == "bilinear"
        and len(factors) == FACTORS
        and all(isinstance(item.axes, list) and len(item.axes) > 1 for item in factors)
    )


def _is_shown(spec: Spec, example: Example) -> bool:
    """Return whether the example is such a case, without a bias if the product is one of matrices."""
    asked = {name: (spec.dims.get(name) or spec.attrs[name]).default for name in draw_order(spec)} | example.values
    bound = {name: tuple(value) if isinstance(value, list) else value for name, value in asked.items()}
    try:
        shown = is_past_blocks(spec, *_shapes(spec, bound))
    except (QuantizerError, TypeError, ArithmeticError, IndexError):
        return False
    optional = {name for name, item in spec.inputs.items() if item.optional}
    return shown and (bool(_windows(spec)) or optional <= set(example.omit))


def _shapes(spec: Spec, bound: Mapping[str, Any]) -> tuple[dict[str, Shape], Shape]:
    shapes = {name: evaluate(item.axes, bound) for name, item in spec.inputs.items()}
    return shapes, next(iter(infer_shapes(spec, shapes, {name: bound[name] for name in spec.attrs}).values()))


def _windows(spec: Spec) -> list[str]:
    return [name for name in spec.dims if is_window(spec, name)]


def _wanted(spec: Spec, number: int, sizes: Mapping[str, tuple[int, ...]] = SIZES) -> dict[str, int]:
    """Return the requested sizes, and the defaults of attributes that are one number."""
    numbers = {name: domain.default for name, domain in spec.attrs.items() if domain.type == "int"}
    found = {name: value for name, value in numbers.items() if isinstance(value, int)}
    # one digit of the hash, in base 16, for each size
    rows, outputs, depth = (of[number // 16**i % len(of)] for i, of in enumerate(sizes.values()))
    axes = [item.axes for item in spec.inputs.values() if item.role != "bias" and isinstance(item.axes, list)]
    if windows := _windows(spec):
        channels = axes[0][1].text
        return found | dict.fromkeys(windows, KERNEL) | {channels: depth}
    held = [item for item in spec.inputs.values() if item.role == "weight"]
    # a weight names its output channels; of a second activation they are the last axis
    last = axes[1][held[0].channel_axis or 0].text if held else axes[1][-1].text
    names = {batch_of(spec) or axes[0][-2].text: rows, last: outputs, axes[0][-1].text: depth}
    return found | {name: size for name, size in names.items() if name in spec.dims}
