"""Which schemes fit an operator, and the roles of its operands under a scheme."""

from __future__ import annotations

import functools

from quantizer.core.expressions import parse
from quantizer.core.formats import format_of
from quantizer.core.platforms import Platform
from quantizer.core.schemes import Scheme
from quantizer.core.spec import Spec

EXACT_KINDS = ("linear", "selection", "bilinear")
"""Error models whose exact result is a sum of terms, or one term. It is rounded once, in any format."""
PRODUCT_BITS = 48
"""The width of a product of two values, in units of a format. It leaves room for 2**14 terms in the accumulator."""


def applies(spec: Spec, scheme: Scheme, platform: Platform) -> bool:
    """Return whether *platform* may run *spec* under *scheme*, from the family and the kinds of operands."""
    families = platform.scheme_families.get(scheme.name)
    if families is not None and spec.quantization.family not in families:
        return False
    if scheme.grid == "uniform":
        return (scheme.weight is not None) == spec.has_weights
    if families is None:
        return False
    if scheme.grid == "blocks":
        return any(item.block_axis is not None for item in under(spec, scheme).inputs.values() if item.role == "weight")
    if spec.error_model.kind == "bilinear" and 2 * format_of(scheme.grid).span_bits > PRODUCT_BITS:
        return False
    return not spec.has_weights and spec.error_model.kind in EXACT_KINDS


def under(spec: Spec, scheme: Scheme) -> Spec:
    """Return the operator under *scheme*. With weights in blocks, an activation that may be a weight is one."""
    if scheme.grid != "blocks" or spec.has_weights:
        return spec
    return _with_weights(spec)


@functools.lru_cache(maxsize=256)
def _with_weights(spec: Spec) -> Spec:
    """Return a copy where operands that may be weights are weights, with channels along the output's last axis."""
    inputs = dict(spec.inputs)
    for name, item in spec.inputs.items():
        if (axes := item.weight_in_blocks) is not None:
            own = {"channel_axis": axes.channel_axis, "block_axis": axes.block_axis}
            inputs[name] = item.model_copy(update={"role": "weight", **own})
    if inputs == spec.inputs:
        return spec
    outputs = {name: item.model_copy(update={"channel_axis": parse("-1")}) for name, item in spec.outputs.items()}
    return spec.model_copy(update={"inputs": inputs, "outputs": outputs})
