"""Explains why a platform's rule gives a model's tensor other parameters than the model file has."""

from __future__ import annotations

from quantizer.core.platform_settings import NARROW_BITS
from quantizer.numerics.qparams import QParams
from quantizer.numerics.request import Request
from quantizer.numerics.rules import same_numbers


def other_parameters(request: Request, output: QParams, name: str) -> str | None:
    """Return why the platform's rule has other parameters than the file; None if it leaves them open or has the same.

    name: the tensor of the result, as messages call it.
    """
    rule = request.spec.quantization.outputs.get("y", "calibrated")
    family, op, platform = request.spec.quantization.family, request.spec.op, request.platform
    fixed = (
        rule not in ("calibrated", "index")
        or family in platform.same_as_input
        or family in platform.ones_complement_outputs
        or op in platform.fixed_outputs
        or family in platform.same_as_equal_inputs
        or (family in platform.unit_range_above_8_bits and output.dtype.bits > NARROW_BITS)
    )
    if family in platform.shared_parameters and len({id(p) for p in request.given.values()}) > 1:
        first, *rest = request.given.values()
        if not all(same_numbers(first, other) for other in rest):
            return f"platform {platform.platform!r} needs one scale and one zero point for all operands of {op}"
    if fixed and not same_numbers(wanted := request.output(), output):
        return refusal_of_fixed(platform.platform, name, wanted, output)
    return None


def refusal_of_fixed(platform: str, name: str, wanted: QParams, found: QParams) -> str:
    """Return the refusal of a result whose parameters the platform fixes."""
    return f"platform {platform!r} gives {name!r} {_shown(wanted)}; the file has {_shown(found)}"


def _shown(params: QParams) -> str:
    return f"{params.dtype} scale {float(params.scale.max()):.9g} zero point {int(params.zero_point.max())}"
