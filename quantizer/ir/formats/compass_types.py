"""Activations that Compass IR has as layer types of their own, and as methods of an Activation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from quantizer.ir.graph import Node

OWN_TYPE = "compass.own_type"
"""Node.extra of a native node: the layer type that its file has instead of Activation."""
METHODS: Mapping[str, str] = {
    "CELU": "CELU", "Clip": "CLIP", "ELU": "ELU", "GELU": "GELU", "HardSigmoid": "HARDSIGMOID", "Hardswish": "HARDSWISH",
    "LeakyRELU": "LEAKYRELU", "MISH": "MISH", "RELU": "RELU", "RELU6": "RELU6", "SELU": "SELU", "Sigmoid": "SIGMOID",
    "Silu": "SILU", "Softplus": "SOFTPLUS", "Softsign": "SOFTSIGN", "Tanh": "TANH", "THRESHOLDEDRELU": "THRESHOLDEDRELU",
}  # fmt: skip
"""Layer type -> the method of an Activation that computes the same."""
ACTIVATION, METHOD = "Activation", "method"


def as_activation(node: Node) -> Node:
    """Return a layer of an activation's own type as an Activation that remembers it; any other layer as it is."""
    if node.op not in METHODS:
        return node
    attrs = {METHOD: METHODS[node.op], **node.attrs}
    return replace(node, op=ACTIVATION, attrs=attrs, extra={**node.extra, OWN_TYPE: node.op})


def as_own_type(node: Node) -> Node:
    """Return an Activation that remembers a type of its own as a layer of that type; any other layer as it is."""
    if OWN_TYPE not in node.extra:
        return node
    attrs = {key: value for key, value in node.attrs.items() if key != METHOD}
    extra = {key: value for key, value in node.extra.items() if key != OWN_TYPE}
    return replace(node, op=str(node.extra[OWN_TYPE]), attrs=attrs, extra=extra)
