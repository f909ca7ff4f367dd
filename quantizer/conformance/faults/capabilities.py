"""Which operators a fault concerns, read off their specs: so that a new operator gets its faults without being named."""

from __future__ import annotations

from collections.abc import Callable

from quantizer.core.spec import NoTiling, Spec

Capability = Callable[[Spec], bool]
"""What an operator must have for a fault to concern it."""

_MOVES = ("movement", "index")
_SUMS = ("linear", "bilinear")


def every(spec: Spec) -> bool:  # noqa: ARG001 - a capability is asked of a spec
    """Any operator."""
    return True


def valued(spec: Spec) -> bool:
    """Its outputs are real values, not indices, masks or sizes."""
    return all(output.kind == "value" for output in spec.outputs.values())


def calibrated(spec: Spec) -> bool:
    """Its outputs have ranges of their own: a scale and a zero point are chosen, and codes are rounded and clipped."""
    rules = spec.quantization.outputs
    return valued(spec) and all(rules.get(name, "calibrated") == "calibrated" for name in spec.outputs)


def summed(spec: Spec) -> bool:
    """It brings sums to codes by a multiplier."""
    return calibrated(spec) and spec.error_model.kind in _SUMS


def computed(spec: Spec) -> bool:
    """It neither moves codes nor adds them up: a quantize rule of its own hands tables or further numbers."""
    return calibrated(spec) and spec.error_model.kind not in (*_MOVES, *_SUMS)


def weighted(spec: Spec) -> bool:
    """It has weights."""
    return spec.has_weights


def biased(spec: Spec) -> bool:
    """It has a bias."""
    return any(item.role == "bias" for item in spec.inputs.values())


def added(spec: Spec) -> bool:
    """It adds activations of different scales."""
    return spec.error_model.kind == "linear" and len(spec.activations) > 1


def cut(spec: Spec) -> bool:
    """It can be tiled."""
    return not isinstance(spec.tiling, NoTiling)
