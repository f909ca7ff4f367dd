"""Cases whose ranges give extreme parameters: an empty range, equal ranges, a multiplier below a power of two.

Rules and kernels often have separate code for such parameters. Ranges drawn one by one seldom give one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.case_classes.scaled import is_near
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.datasets import materialise
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.near_sums import provided_for
from quantizer.conformance.generation.ranges import unit_of
from quantizer.conformance.target import Target
from quantizer.core.case import Case, Range
from quantizer.core.errors import QuantizerError

NOTHING: Range = (0.0, 0.0)
BELOW = 1.0 - 2.0**-17
"""A multiplier relative to the power of two above it: with up to 16 bits, it is rounded up to that power."""
FAR_BITS = 30.75
"""Bits of the largest bias in units of the sum, which are also the output's steps: the scaled sum needs 32 bits."""
UNEVEN: Range = (-0.375, 0.625)
"""Ends of equal ranges, as shares of their width: the zero point is neither 0 nor an end."""


def edge_numbers(target: Target) -> list[Case]:
    """Return a case for each edge that the target's ranges can give."""
    spec = target.spec
    values = [n for n in spec.activations if spec.inputs[n].kind == "value" and not spec.inputs[n].domain]
    free = [n for n in spec.outputs if spec.quantization.outputs.get(n, "calibrated") == "calibrated"]
    if not values:
        return []
    return [case for case in _cases(target, values, free) if case is not None and is_near(case)]


def _cases(target: Target, values: list[str], free: list[str]) -> Iterator[Case | None]:
    nothing = _drawn(target, "nothing", "zeros")
    # an empty range of the operand alone, or of the outputs as well
    of_outputs = free if key(0, target.id, "outputs") % 2 else []
    yield nothing.but(ranges={**nothing.ranges, **dict.fromkeys((values[0], *of_outputs), NOTHING)})
    if free:
        yield _equal(_drawn(target, "equal", "random"), values[0], free)
        yield _below_power(target, _drawn(target, "below", "random"), free)
        yield _far(target, _drawn(target, "far", "corners"), free)


def _drawn(target: Target, salt: str, data: str) -> Case:
    spec = target.spec
    row = {"data": data if data in spec.data else spec.data[0], "tiles": "untiled"}
    row |= {f"with_{name}": "yes" for name, item in spec.inputs.items() if item.optional}
    return build_case(target, HashChoices(key(0, target.id, salt), row))


def _equal(case: Case, value: str, outputs: list[str]) -> Case:
    """Return the case with one range for the operand and the outputs."""
    width = case.ranges[value][1] - case.ranges[value][0]
    shared = dict.fromkeys((value, *outputs), (UNEVEN[0] * width, UNEVEN[1] * width))
    return case.but(ranges={**case.ranges, **shared})


def _far(target: Target, case: Case, outputs: list[str]) -> Case | None:
    """Return the case with all operands at their ends and biases near the end of 32 bits, with a multiplier of 1."""
    biases = [name for name in case.shapes if target.spec.inputs[name].role == "bias"]
    if not biases or target.weight is None or target.spec.error_model.kind != "bilinear":
        return None
    if target.scheme.grid != "uniform" or target.spec.quantization.family == "norm":
        return None
    # output steps equal to the unit of the sum give a multiplier of 1
    half, far = (unit_of(target, case) * 2.0**bits for bits in (target.scheme.activation.bits - 1, FAR_BITS))
    return case.but(
        ranges={**case.ranges, **dict.fromkeys(outputs, (-half, half)), **dict.fromkeys(biases, (-far, far))}
    )


def _below_power(target: Target, case: Case, outputs: list[str]) -> Case | None:
    """Return the case with a wider output, so that its largest multiplier is BELOW of a power of two."""
    try:
        tensors = {name: values.numpy() for name, values in materialise(target, case).items()}
        rescale = provided_for(target, case, tensors).rescale
    except QuantizerError:
        return None
    if rescale is None:
        return None
    largest = float((rescale.mantissa.double() * (-rescale.shift.double()).exp2() / rescale.divisor).max())
    if not 0.0 < largest < math.inf:
        return None
    # divided by `wider`, the largest multiplier is BELOW times a power of two
    fraction, _ = math.frexp(largest)
    wider = fraction / (BELOW / 2)
    ranges = {n: (low * wider, high * wider) for n, (low, high) in case.ranges.items() if n in outputs}
    return case.but(ranges={**case.ranges, **ranges})
