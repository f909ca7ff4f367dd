"""Cases of long sums, of sums of one product with whole vectors of outputs, and of many rows with uneven outputs.

Kernels of products work in blocks along the sum and along the outputs, and have separate code for one row. Each scheme
has its own kernel, so each target has these cases. Scales differ between channels, as in networks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from quantizer.conformance.generation.accumulator_ends import at_the_end
from quantizer.conformance.generation.builder import complete
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.datasets import materialise
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.near_sums import exact_sums, is_near_sum, provided_for
from quantizer.conformance.generation.ranges import unit_of
from quantizer.conformance.generation.room_sums import has_oracle
from quantizer.conformance.generation.units import (
    MOST_ELEMENTS,
    MOST_WORK,
    Unit,
    batch_of,
    beside_blocks,
    bound_with,
    is_ours,
    is_window,
)
from quantizer.conformance.target import Target
from quantizer.core.case import Case, Range
from quantizer.core.domains import draw_order
from quantizer.core.platform_settings import NARROW_BITS
from quantizer.core.spec import Spec
from quantizer.core.sum_bits import LONGEST, accumulator_bits, is_narrow, leaving_terms

DEPTHS = (65, 96, 100, 128, 130, 160, 192, 256, 257, 320)
OUTPUTS = (2, 3, 5, 8, 12, 16, 20)
VECTORS = (8, 16, 32, 64, 2)
"""Numbers of outputs in cases whose sums have one product: whole vectors, and two."""
BATCHES: Mapping[str, tuple[int, ...]] = {"one row": (1,), "rows": (2, 3, 5), "one product": (1, 2, 3, 5)}
"""The batches of each kind of case: long sums for one row, long sums for several rows, sums of one product."""
ROWS = (*BATCHES, "one product", "one product")
"""The cases of a target. `one product` occurs three times, because vectors have several sizes and the case is cheap."""
LONG = (1057, 1100)
"""Numbers of terms with which sums of products of the largest 8-bit codes exceed the whole numbers of float32."""
MATRIX, LONG_TIE, CANCELLING, FULL, LEFT = "matrix", "long tie", "cancelling", "full blocks", "left accumulator"
RETURNED = "returned to the accumulator"
OTHER_ROWS = (MATRIX, LONG_TIE, CANCELLING)
"""Further cases of a target.

matrix: more rows and more outputs than a kernel's block, neither a multiple of it. long tie: long sums next to a tie,
beyond the whole numbers of float32. cancelling: long sums whose parts are large and cancel, under a multiplier near 1.
full blocks: whole blocks of weights, all operands at an end of their range. left accumulator: the fewest terms whose
sum leaves the accumulator, if a case can have so many. returned to the accumulator: the first half of the terms leaves
it, and the second half brings the sum back; only if a room's oracle says what a saturating accumulator then holds.
"""
RESTS: Mapping[str, tuple[int, ...]] = {"batch": (17, 20, 24, 33), "outputs": (16, 48, 24, 80), "depth": (8, 16, 33)}
OF_KIND = {
    LONG_TIE: "near_ties",
    CANCELLING: "cancelling",
    FULL: "accumulator_limit",
    LEFT: "accumulator_limit",
    RETURNED: "returning",
}
"""The data set of a kind that needs one."""
RETURNING = 3
"""Factor for the terms of a sum that returns: each half leaves the accumulator for any zero point in the middle
half."""
ATTEMPTS = 16
WIDE = (4 * LONGEST, 4 * LONGEST)
"""Most elements and most terms of such a case: it has two or three outputs."""
FAR = 2.0**6
"""Factor of the output's range for ties beyond the whole numbers of float32."""
OF_BLOCKS = 3
"""Factor for the number of cases if weights have blocks: three depths that are not multiples of a block."""


def deep(target: Target) -> list[Case]:
    """Return the legal and small cases of ROWS, if the target's operator adds products."""
    spec = target.spec
    depth = _depth(spec)
    if depth is None or not is_ours(spec):
        return []
    count = len(ROWS) * (OF_BLOCKS if beside_blocks(target, depth) else 1)
    return [case for row in range(count) if (case := _case(target, depth, row)) is not None]


def cancelling_and_wide(target: Target) -> list[Case]:
    """Return the cases of OTHER_ROWS of such a target, and of full blocks where its weights have blocks."""
    depth = _depth(target.spec)
    if depth is None or not is_ours(target.spec):
        return []
    kinds = (*OTHER_ROWS, *((FULL,) if beside_blocks(target, depth) else ()))
    found = [case for kind in kinds if (case := _other(target, depth, kind)) is not None]
    return [*found, *_left(target, depth)] if leaves(target) else found


def _left(target: Target, depth: str) -> list[Case]:
    """Return the first case with a sum that leaves the accumulator, and those that show how it saturates.

    Several attempts are needed: a window may lie wholly in padding, or a zero point at an end of the codes.
    """
    found = [_first(target, depth, LEFT, _is_left)]
    if target.platform.accumulator.overflow != "saturate":
        return [case for case in found if case is not None]
    if has_oracle(target):
        found.append(_first(target, depth, RETURNED, _returns))
    elif target.scheme.grid != "blocks":  # each block has a sum of its own, so that no code shows the end of one
        # without an oracle, only sums that end beyond the accumulator are known to saturate
        found += [_end(target, depth, sign) for sign in (1, -1)]
    return [case for case in found if case is not None]


def _end(target: Target, depth: str, sign: int) -> Case | None:
    """Return the first case with sums beyond one end of the accumulator, under scales that show where it saturates."""
    limit = _limit(target)
    case = _first(target, depth, LEFT, lambda of, case: bool((_sums(of, case) * sign > limit).any()))
    return None if case is None else at_the_end(target, case, limit - 1 if sign > 0 else -limit)


def _first(target: Target, depth: str, kind: str, aim: Callable[[Target, Case], bool]) -> Case | None:
    drawn = (_other(target, depth, kind, attempt) for attempt in range(ATTEMPTS))
    return next((case for case in drawn if case is not None and aim(target, case)), None)


def _is_left(target: Target, case: Case) -> bool:
    return bool((abs(_sums(target, case)) > _limit(target)).any())


def _returns(target: Target, case: Case) -> bool:
    """Return whether a sum that ends in the accumulator is beyond its end after half of the terms."""
    (name, *_) = target.spec.activations
    half = _sums(target, case, first=name)
    return bool(((abs(half) > _limit(target)) & (abs(_sums(target, case)) < _limit(target))).any())


def _sums(target: Target, case: Case, first: str = "") -> NDArray[np.float64]:
    """Return the exact sums; if *first* is named, without the second half of that operand."""
    tensors = {name: values.double().numpy() for name, values in materialise(target, case).items()}
    parameters = provided_for(target, case, tensors)
    if first:
        flat = tensors[first].reshape(-1).copy()
        # zeros add nothing: what is left is the sum after the first half of the terms
        flat[flat.size // 2 :] = 0.0
        tensors[first] = flat.reshape(tensors[first].shape)
    return exact_sums(target, case, tensors, parameters)


def _limit(target: Target) -> int:
    return 1 << (accumulator_bits(target.platform, target.scheme) - 1)


def leaves(target: Target) -> bool:
    """Return whether the operator has long sums, and the platform an accumulator that 4,096 of their terms leave."""
    return _depth(target.spec) is not None and is_narrow(target.platform, target.spec, target.scheme)


def _depth(spec: Spec) -> str | None:
    """Return the last drawn dimension along which products are added up, other than the places of a window."""
    terms = spec.error_model.terms
    if spec.error_model.kind != "bilinear" or terms is None:
        return None
    found = [name for name in draw_order(spec) if name in terms.names and name in spec.dims]
    channels = [name for name in found if name not in ("kh", "kw", "kd")]
    return channels[-1] if channels else None


def _case(target: Target, depth: str, row: int) -> Case | None:
    spec, number = target.spec, key(row, target.id, "deep")
    kind = ROWS[row % len(ROWS)]
    chooser = HashChoices(number, {"data": "uneven_channels", "tiles": "untiled"})
    # sizes come as one below, equal to and one above each multiple: every round of rows takes one of the three kinds
    depths: Sequence[int] = beside_blocks(target, depth)[row // len(ROWS) :: OF_BLOCKS] or DEPTHS
    wanted = {depth: depths[number % len(depths)]}
    if kind == "one product":
        wanted = {depth: 1} | {name: 1 for name in spec.dims if is_window(spec, name)}
    # other digits of one hash for each size, so that sizes do not depend on each other
    outputs = VECTORS if kind == "one product" else OUTPUTS
    wanted |= {name: outputs[number // 16 % len(outputs)] for name in _outputs(spec) if name != depth}
    batch = batch_of(spec)
    if batch:
        batches = BATCHES[kind]
        wanted[batch] = batches[number // 256 % len(batches)]
    wanted |= _defaults(spec)
    bound = bound_with(spec, {name: Unit(name, size) for name, size in wanted.items()}, chooser)
    if bound is None:
        return None
    present = [name for name, item in spec.inputs.items() if not item.optional or number // 1024 % 2]
    return complete(target, bound, present, "uneven_channels", number % (1 << 32), chooser)


def _other(target: Target, depth: str, kind: str, attempt: int = 0) -> Case | None:
    spec, number = target.spec, key(attempt, target.id, kind)
    if kind == LONG_TIE and not (is_near_sum(target) and target.scheme.activation.bits == NARROW_BITS):
        return None
    data = OF_KIND.get(kind, "uneven_channels")
    chooser = HashChoices(number, {"data": data, "tiles": "untiled", "activation": "none"})
    batch, outputs = batch_of(spec), _outputs(spec)
    if kind == MATRIX:
        if any(is_window(spec, name) for name in spec.dims):  # each place of an image is a row of the matrix product
            return None
        sizes = {depth: RESTS["depth"], batch: RESTS["batch"], **dict.fromkeys(outputs, RESTS["outputs"])}
    else:
        depths = tuple(beside_blocks(target, depth)[1::3]) if kind == FULL else LONG
        least = leaving_terms(target.platform, target.scheme)
        depths = {LEFT: (least,), RETURNED: (RETURNING * least,)}.get(kind, depths)
        sizes = {depth: depths, batch: (1,), **dict.fromkeys(outputs, (2, 3))}
        sizes |= {name: (1,) for name in spec.dims if is_window(spec, name)}
    wanted = {name: of[number // 16**i % len(of)] for i, (name, of) in enumerate(sizes.items()) if name}
    wanted |= _defaults(spec)
    most = {LEFT: WIDE, RETURNED: (RETURNING * WIDE[0], RETURNING * WIDE[1])}.get(kind, (MOST_ELEMENTS, MOST_WORK))
    bound = bound_with(spec, {name: Unit(name, size) for name, size in wanted.items()}, chooser, most)
    if bound is None:
        return None
    # a bias would hide what is left of sums that cancel or return
    present = [name for name, item in spec.inputs.items() if not item.optional or kind not in (CANCELLING, RETURNED)]
    case = complete(target, bound, present, data, number % (1 << 32), chooser)
    if kind == LONG_TIE:
        return case.but(ranges={**case.ranges, **_times(case, spec.outputs, FAR)})
    return case.but(ranges={**case.ranges, **_of_units(target, case)}) if kind == CANCELLING else case


def _times(case: Case, names: Iterable[str], factor: float) -> dict[str, Range]:
    return {name: (case.ranges[name][0] * factor, case.ranges[name][1] * factor) for name in names}


def _of_units(target: Target, case: Case) -> dict[str, Range]:
    """Return an output range whose step is the product of the operands' steps."""
    # half of all codes on either side of 0, one step for each unit of the sum
    half = unit_of(target, case) * 2 ** (target.scheme.activation.bits - 1)
    return dict.fromkeys(target.spec.outputs, (-half, half))


def _defaults(spec: Spec) -> dict[str, int]:
    """Return the default of each attribute that is one number: a depth of 1 leaves no room for groups."""
    numbers = {name: domain.default for name, domain in spec.attrs.items() if domain.type == "int"}
    return {name: value for name, value in numbers.items() if isinstance(value, int)}


def _outputs(spec: Spec) -> list[str]:
    """Return the dimension of the last operand's channels: filters of a weight, columns of a second activation."""
    held = [item for item in spec.inputs.values() if item.role == "weight" and isinstance(item.axes, list)]
    second = [item for item in spec.inputs.values() if item.role == "activation" and isinstance(item.axes, list)][1:]
    names = [item.axes[item.channel_axis or 0].text for item in held if isinstance(item.axes, list)]
    names += [item.axes[-1].text for item in second if isinstance(item.axes, list)]
    return [name for name in names[:1] if name in spec.dims]
