"""Decides from their specs which operators a fault concerns, so that a new operator need not be named."""

from __future__ import annotations

from collections.abc import Callable

from quantizer.core.domains import constant
from quantizer.core.spec import NoTiling, Spec

Capability = Callable[[Spec], bool]
"""A condition that an operator must meet for a fault to concern it."""

_MOVES = ("movement", "index")
_SUMS = ("linear", "bilinear", "mean", "selection")
_FOLDS = ("product", "euclidean")


def every(spec: Spec) -> bool:  # noqa: ARG001 - a capability is asked of a spec
    """Any operator."""
    return True


def valued(spec: Spec) -> bool:
    """Its outputs are real values, not indices, masks or sizes."""
    return all(output.kind == "value" for output in spec.outputs.values())


def calibrated(spec: Spec) -> bool:
    """Its outputs have their own ranges, which decide scale and zero point; codes are rounded and clipped."""
    rules = spec.quantization.outputs
    return valued(spec) and all(rules.get(name, "calibrated") == "calibrated" for name in spec.outputs)


def coded(spec: Spec) -> bool:
    """It reads codes."""
    return bool(spec.coded)


def fed_reals(spec: Spec) -> bool:
    """It reads real numbers, so that the platform's quantizer runs in it."""
    return spec.coded != spec.activations


def recoded(spec: Spec) -> bool:
    """It reads codes and makes codes with another range."""
    return calibrated(spec) and coded(spec)


def summed(spec: Spec) -> bool:
    """It requantizes sums with a multiplier."""
    return calibrated(spec) and spec.error_model.kind in _SUMS


def computed(spec: Spec) -> bool:
    """It neither moves nor adds codes: its quantize rule provides tables or other numbers."""
    return calibrated(spec) and spec.error_model.kind not in (*_MOVES, *_SUMS, *_FOLDS, "piecewise_bilinear")


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
    """It has at least two activations with their own parameters."""
    return calibrated(spec) and len(spec.activations) > 1


def paired_to_the_last(spec: Spec) -> bool:
    """It has several activations, and the last one has its own parameters."""
    return paired(spec) and spec.inputs[spec.activations[-1]].kind == "value"


def tabulated(spec: Spec) -> bool:
    """It maps one input by a table, where the platform has tables."""
    kinds = ("monotone", "piecewise_monotone", "poles")
    return calibrated(spec) and spec.error_model.kind in kinds and list(spec.inputs) == ["x"]


def windowed(spec: Spec) -> bool:
    """It slides windows over padded spatial axes."""
    return "padding" in spec.attrs and _halo(spec) and spec.inputs["x"].spatial


def padded(spec: Spec) -> bool:
    """It has padding with two entries for each of several axes."""
    return "padding" in spec.attrs


def strided(spec: Spec) -> bool:
    """It has a stride for each of several axes."""
    # with one axis there is nothing to swap
    return "stride" in spec.attrs and constant(spec.attrs["stride"].length) not in (None, 1)


def dilated(spec: Spec) -> bool:
    """It has a dilation for each of several axes."""
    return "dilation" in spec.attrs and constant(spec.attrs["dilation"].length) not in (None, 1)


def comparing(spec: Spec) -> bool:
    """It compares two operands, each with its own scale."""
    return spec.error_model.kind == "comparison"


def ordering(spec: Spec) -> bool:
    """It says which of two operands is the larger."""
    return comparing(spec) and spec.error_model.relation != "equal"


def fusing(spec: Spec) -> bool:
    """A graph may fuse an activation into it."""
    return bool(spec.fuses)


def reducing(spec: Spec) -> bool:
    """It reduces several elements of an activation to one: their sum, mean, product or root of squares."""
    return calibrated(spec) and spec.error_model.kind in ("linear", "mean", *_FOLDS) and list(spec.inputs) == ["x"]


def _halo(spec: Spec) -> bool:
    return not isinstance(spec.tiling, NoTiling) and any(rule.rule == "halo" for rule in spec.tiling.values())


def cut(spec: Spec) -> bool:
    """It can be tiled."""
    return not isinstance(spec.tiling, NoTiling)


def sums_products(spec: Spec) -> bool:
    """It adds up products."""
    return calibrated(spec) and spec.error_model.kind == "bilinear"


def multiplies_activations(spec: Spec) -> bool:
    """It multiplies two activations."""
    return sums_products(spec) and len(spec.activations) > 1


def two_operands(spec: Spec) -> bool:
    """It has activations a and b."""
    return spec.activations[:2] == ["a", "b"]


def factored(spec: Spec) -> bool:
    """It rescales activations of different scales to the output's scale, each by its own factor."""
    return paired(spec) and spec.error_model.kind in ("linear", "selection")


def grouped(spec: Spec) -> bool:
    """Its channels lie in groups."""
    return "groups" in spec.attrs and weighted(spec)


def filtered(spec: Spec) -> bool:
    """It slides filters over spatial axes."""
    return weighted(spec) and "stride" in spec.attrs


def channelwise(spec: Spec) -> bool:
    """Each channel of its output sees one channel of its input, in windows."""
    return windowed(spec) and "groups" not in spec.attrs


def multiplying_channels(spec: Spec) -> bool:
    """It has several filters for each channel."""
    return filtered(spec) and channelwise(spec)


def picking_windows(spec: Spec) -> bool:
    """It takes one element of each window."""
    return windowed(spec) and spec.error_model.kind in _MOVES


def rounding_up(spec: Spec) -> bool:
    """It may round up the number of its windows."""
    return "ceil_mode" in spec.attrs


def counting(spec: Spec) -> bool:
    """It divides by the number of elements in a window."""
    return "count_include_pad" in spec.attrs


def along_axis(spec: Spec) -> bool:
    """It has an axis."""
    return "axis" in spec.attrs


def along_channels(spec: Spec) -> bool:
    """It adds up products with weights that have one row per channel, without windows."""
    return sums_products(spec) and weighted(spec) and "stride" not in spec.attrs


def blocked(spec: Spec) -> bool:
    """It moves blocks of places to channels, or back."""
    return "block" in spec.attrs


def resizing(spec: Spec) -> bool:
    """It gives images another size."""
    return "mode" in spec.attrs and "size" in spec.attrs


def picking(spec: Spec) -> bool:
    """It picks the largest or the smallest element along one axis or several."""
    return spec.error_model.kind in _MOVES and "keepdims" in spec.attrs


def indexing(spec: Spec) -> bool:
    """It returns indices."""
    return any(output.kind == "index" for output in spec.outputs.values())


def splitting(spec: Spec) -> bool:
    """Its sums can be split over tiles."""
    return not isinstance(spec.tiling, NoTiling) and any(rule.rule == "accumulate" for rule in spec.tiling.values())


def spatial_cut(spec: Spec) -> bool:
    """Its windows can be cut, and it pads its input itself."""
    return windowed(spec) and cut(spec)


def pointing(spec: Spec) -> bool:
    """It reads indices, which point along one of its axes."""
    return "axis" in spec.attrs and any(item.kind == "index" for item in spec.inputs.values())


def pairing(spec: Spec) -> bool:
    """Its indices share axes with the tensor that they index."""
    return pointing(spec) and "batch_dims" in spec.attrs


def channelled(spec: Spec) -> bool:
    """It adds up products, and its channel axis may be another than the last."""
    return sums_products(spec) and weighted(spec) and ("stride" in spec.attrs or "axis" in spec.attrs)


def summing_with_bias(spec: Spec) -> bool:
    """It adds a bias to sums of products."""
    return sums_products(spec) and biased(spec)


def normalizing(spec: Spec) -> bool:
    """It divides rows by the root of their mean square."""
    return spec.error_model.kind == "normalization"


def centring(spec: Spec) -> bool:
    """It subtracts the mean of each row before it divides."""
    return normalizing(spec) and spec.error_model.centred


def exponential(spec: Spec) -> bool:
    """It divides exponentials by their sum."""
    return spec.error_model.kind == "softmax"
