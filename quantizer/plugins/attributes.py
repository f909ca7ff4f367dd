"""Attributes that a quantized layer stores as integers under Compass's keys, and our names for these numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quantizer.ir.formats.compass_mapping import FORMAT
from quantizer.numerics.fused_activations import RELAY_BITS
from quantizer.numerics.qparams import Parameters
from quantizer.plugins.aipu.node import PyNode
from quantizer.plugins.layer import Layer

NORMAL = {"variance_shift": "var_shift_value", "norm_multiplier": "norm_scale_value", "norm_shift": "norm_shift_value"}
"""Our name for a number of a normalisation -> its name in the layer's parameters."""


def float_keys(layer: Layer) -> dict[str, str]:
    """Return float attribute -> its key in the layer, for attributes that have one key."""
    form = layer.spec.formats.get(FORMAT)
    keys = {name: form.attrs.get(name, name) if form else name for name in layer.spec.attrs}
    return {name: key for name, key in keys.items() if layer.spec.attrs[name].type == "float" and isinstance(key, str)}


def attribute_numbers(node: PyNode, layer: Layer, before: Mapping[str, Any]) -> dict[str, int]:
    """Return the integers that a quantize function put in place of float attributes, and their binary places.

    The places are in `<key without _value>_shift`, or the output's bits if that is missing, as in Compass. Limits of a
    clamping layer have eight more bits than an output of up to eight bits. The numbers of a normalisation are included.
    """
    found: dict[str, int] = {name: int(node.params[key]) for name, key in NORMAL.items() if key in node.params}
    bits = int(node.outputs[0].qbits or 0)
    for name, key in float_keys(layer).items():
        value: Any = node.params.get(key)
        # unchanged in value and type: still the float attribute. A 0 may be either, and is 0 in any unit
        kept = key in before and value == before[key] and type(value) is type(before[key]) and value != 0
        if kept or isinstance(value, bool) or not _is_whole(value):
            continue
        found[name] = int(value)
        found[f"{name}_shift"] = int(node.params.get(_shift_key(key), bits))
    if "low" in found and layer.spec.quantization.family == "clamping":
        found["relay_bits"] = RELAY_BITS if bits <= RELAY_BITS else 0
    return found


def put_attributes(node: PyNode, layer: Layer, parameters: Parameters) -> None:
    """Write the numbers of a rule outside the plugin as Compass's own quantize functions write them."""
    numbers = parameters.numbers
    for name, key in float_keys(layer).items():
        if name in numbers:
            node.params[key] = numbers[name]
            if numbers.get(f"{name}_shift", node.outputs[0].qbits) != node.outputs[0].qbits:
                node.params[_shift_key(key)] = numbers[f"{name}_shift"]
    for name, key in NORMAL.items():
        if name in numbers:
            node.params.setdefault(key, numbers[name])


def _shift_key(key: str) -> str:
    return f"{key.removesuffix('_value')}_shift"


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | float) and float(value).is_integer()
