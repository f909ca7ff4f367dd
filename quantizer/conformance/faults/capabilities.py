"""Which operators a fault concerns, read off their specs: so that a new operator gets its faults without being named."""

from __future__ import annotations

from collections.abc import Callable

from quantizer.core.domains import constant
from quantizer.core.spec import NoTiling, Spec

Capability = Callable[[Spec], bool]
"""What an operator must have for a fault to concern it."""

_MOVES = ("movement", "index")
_SUMS = ("linear", "bilinear", "mean", "selection")


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


def paired(spec: Spec) -> bool:
    """It has two activations or more with parameters of their own."""
    return calibrated(spec) and len(spec.activations) > 1


def tabulated(spec: Spec) -> bool:
    """It maps one input by a table, where the platform has tables."""
    return calibrated(spec) and spec.error_model.kind == "monotone"


def windowed(spec: Spec) -> bool:
    """It slides windows over padded spatial axes."""
    return "padding" in spec.attrs and _halo(spec) and spec.inputs["x"].spatial


def padded(spec: Spec) -> bool:
    """It has padding with two entries for each of several axes."""
    return "padding" in spec.attrs


def strided(spec: Spec) -> bool:
    """It has a stride for each of several axes."""
    return "stride" in spec.attrs and constant(spec.attrs["stride"].length) not in (None, 1)


def dilated(spec: Spec) -> bool:
    """It has a dilation for each of several axes."""
    return "dilation" in spec.attrs and constant(spec.attrs["dilation"].length) not in (None, 1)


def fusing(spec: Spec) -> bool:
    """A graph may fuse an activation into it."""
    return bool(spec.fuses)


def reducing(spec: Spec) -> bool:
    """It adds up elements of one activation."""
    return calibrated(spec) and spec.error_model.kind in ("linear", "mean") and list(spec.inputs) == ["x"]


def _halo(spec: Spec) -> bool:
    return not isinstance(spec.tiling, NoTiling) and any(rule.rule == "halo" for rule in spec.tiling.values())


def cut(spec: Spec) -> bool:
    """It can be tiled."""
    return not isinstance(spec.tiling, NoTiling)
