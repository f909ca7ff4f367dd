"""Layers that have two names in Compass IR: activations (as layer types or as methods), and three more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from quantizer.ir.graph import Node

OWN_TYPE = "compass.own_type"
"""Node.extra of a native node: the layer type of its file, if it differs from the specs' name."""
METHODS: Mapping[str, str] = {
    "CELU": "CELU",
    "Clip": "CLIP",
    "ELU": "ELU",
    "GELU": "GELU",
    "HardSigmoid": "HARDSIGMOID",
    "Hardswish": "HARDSWISH",
    "LeakyRELU": "LEAKYRELU",
    "MISH": "MISH",
    "RELU": "RELU",
    "RELU6": "RELU6",
    "SELU": "SELU",
    "Sigmoid": "SIGMOID",
    "Silu": "SILU",
    "Softplus": "SOFTPLUS",
    "Softsign": "SOFTSIGN",
    "Tanh": "TANH",
    "THRESHOLDEDRELU": "THRESHOLDEDRELU",
}
"""Layer type -> the method of an Activation that computes the same."""
SAME: Mapping[str, str] = {"Interp": "Resize", "Permute": "Transpose", "StridedSlice": "Slice"}
"""Layer type -> another type with the same keys and the same computation."""
ACTIVATION, METHOD = "Activation", "method"


def as_named(node: Node) -> Node:
    """Rename a layer to the type that specs use for the same function, and remember its own type.

    Other layers are unchanged.
    """
    if node.op in SAME:
        return replace(node, op=SAME[node.op], extra={**node.extra, OWN_TYPE: node.op})
    if node.op not in METHODS:
        return node
    attrs = {METHOD: METHODS[node.op], **node.attrs}
    return replace(node, op=ACTIVATION, attrs=attrs, extra={**node.extra, OWN_TYPE: node.op})


def as_own_type(node: Node) -> Node:
    """Return a layer that remembers its original type as a layer of that type; any other layer unchanged."""
    if OWN_TYPE not in node.extra:
        return node
    said = node.extra[OWN_TYPE] in METHODS
    attrs = {key: value for key, value in node.attrs.items() if not (said and key == METHOD)}
    extra = {key: value for key, value in node.extra.items() if key != OWN_TYPE}
    return replace(node, op=str(node.extra[OWN_TYPE]), attrs=attrs, extra=extra)
