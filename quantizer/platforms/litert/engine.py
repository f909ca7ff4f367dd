"""LiteRT: lowers a case to a model of one operator, if necessary with a padding before it or a crop after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from quantizer.core.platforms import Platform
from quantizer.core.schemes import Scheme
from quantizer.core.spec import Spec
from quantizer.numerics.qparams import Parameters
from quantizer.platforms.litert import joined, others, products
from quantizer.platforms.litert.part import Lower
from quantizer.runtime.engines.frames import Job
from quantizer.runtime.engines.lowering import Lowered, Wires
from quantizer.runtime.engines.protocol import Call

CHECKS = ("float", "arithmetic", "accuracy", "tiled", "properties", "repeat", "engine")
LOWERINGS: Mapping[str, Lower] = {**products.LOWERINGS, **others.LOWERINGS}
"""Operator -> how it becomes a model."""


def supports(spec: Spec, scheme: Scheme, platform: Platform, variant: str) -> str | None:
    """Return None for an operator that has a lowering."""
    # the formats of codes are refused case by case, in the lowering
    return None if spec.op in LOWERINGS else f"litert has no quantized kernel for {spec.op}"


def lower(call: Call, codes: Mapping[str, Tensor], parameters: Parameters, variant: str) -> Lowered:
    """Return the model of the quantized operator; *variant* is the resolver that finds its kernel."""
    return LOWERINGS[call.spec.op](call, codes, parameters, variant)


def lower_float(call: Call, operands: Mapping[str, Tensor], variant: str) -> Lowered:
    """Return the model of the float operator, on float32."""
    return LOWERINGS[call.spec.op](call, operands, None, variant)


def lower_sums(
    call: Call,
    codes: Mapping[str, Tensor],
    parameters: Parameters,
    variant: str,
) -> Lowered | None:
    """Return None: no kernel shows its sums."""
    return None


def join(jobs: Sequence[Job], wires: Wires, outputs: Sequence[int]) -> Job:
    """Return one model of all operators. An interpreter with a delegate may fuse them."""
    return joined.join(jobs, wires, outputs)
