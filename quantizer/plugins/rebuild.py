"""Rebuilds a quantized layer as if it were read from its file: tensor fields, IR parameters and constants only."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from quantizer.core.families import SEPARATE
from quantizer.ir.graph import Tensor as GraphTensor
from quantizer.numerics.qparams import Parameters
from quantizer.plugins.aipu.dtypes import bits2dtype, bits2range, from_ours, is_float, working_type
from quantizer.plugins.aipu.node import PyNode
from quantizer.plugins.aipu.tensor import PyTensor
from quantizer.plugins.attributes import put_attributes
from quantizer.plugins.layer import Layer, held_codes, theirs
from quantizer.plugins.layer_multipliers import LUT, SCALE, SHIFT, SUMS, numbers_of
from quantizer.plugins.layer_parameters import ABSORBED, LAYER_ATTRS, absorbed, apply

TABLES = (LUT, "exp", "inverse_root")
"""Our names for a layer's `lut`."""


def rebuilt(layer: Layer, codes: Mapping[str, Tensor], parameters: Parameters, attrs: Mapping[str, Any]) -> PyNode:
    """Return the quantized layer as if it were read from its file.

    *codes*: int64 operands in the operator's order. Numbers that depend on the case, such as those of a tile's
    channels, are taken from *parameters*, all others from the quantize function's result.
    """
    known: Any = parameters.extra.get(LAYER_ATTRS, {})
    operands = {name: held_codes(values) for name, values in codes.items()}
    node = layer.node(operands, attrs, known or _bits(parameters), parameters.activation)
    node.quantized = True
    for tensor, name in zip(node.inputs, [n for n in layer.activations if n in codes], strict=True):
        apply(tensor, parameters.inputs[name])
    for name, tensor in layer.spec.keys_of(node.outputs):
        apply(tensor, parameters.outputs[name], invariant=layer.spec.outputs[name].kind == "index")
    for name, key in layer.constants.items():
        if name in parameters.constants and key in node.constants:
            apply(node.constants[key], parameters.constants[name].params)
        if layer.spec.inputs[name].role == "bias" and key in node.constants:
            absorbs = bool(parameters.extra.get(ABSORBED, True))
            _fill(node, layer, node.constants[key], absorbs=absorbs, stored=name in parameters.constants)
    for key, value in parameters.extra.items():
        # our own notes (LAYER_ATTRS, ABSORBED), which no file holds
        if key.startswith("compass."):
            continue
        if isinstance(value, GraphTensor) and value.data is not None:
            node.constants[key] = _read_back(key, value)
        elif not isinstance(value, GraphTensor):
            node.params[key] = theirs(value)
    _set_numbers(node, layer, parameters)
    return node


def _fill(node: PyNode, layer: Layer, biases: PyTensor, *, absorbs: bool, stored: bool) -> None:
    """Add the absorbed terms to bias codes, as in Compass, and give biases that were not stored the usual fields."""
    biases.betensor = held_codes(biases.betensor.long() + (absorbed(node, layer) if absorbs else 0))
    if not stored:
        biases.dtype, biases.qbits, biases.zerop, biases.qinvariant = bits2dtype(32, is_signed=True), 32, 0, False
        biases.qmin, biases.qmax = bits2range(32, is_signed=True)


def _read_back(key: str, stored: GraphTensor) -> PyTensor:
    """Return a constant as it is read from a file, with integers in the type that arithmetic needs."""
    assert stored.data is not None
    dtype = from_ours(stored.dtype)
    tensor = PyTensor(key, stored.data.to(torch.int64) if not is_float(dtype) else stored.data, dtype)
    tensor.betensor = tensor.betensor.to(working_type(dtype))
    return tensor


def _bits(parameters: Parameters) -> dict[str, Any]:
    """Return the attributes that follow from parameters of a rule outside the plugin."""
    output = next(iter(parameters.outputs.values()))
    found: dict[str, Any] = {"q_bits_activation": output.dtype.bits, "lut_items_in_bits": 8}
    for constant in parameters.constants.values():
        found.setdefault("q_bits_weight", constant.params.dtype.bits)
    return found


def _set_numbers(node: PyNode, layer: Layer, parameters: Parameters) -> None:
    """Write the multiplier, shift, factors and table of *parameters* under Compass's names, in the layer's form."""
    rescale = parameters.rescale
    own = LAYER_ATTRS in parameters.extra
    # a rule outside the plugin knows nothing of Compass's keys
    if not own:
        put_attributes(node, layer, parameters)
    if rescale is not None and (rescale.variant == "area_multiplier" or (own and numbers_of(node, SCALE) is None)):
        rescale = None
    if rescale is not None and layer.spec.error_model.kind in SUMS:
        factors = [rescale.factors.get(t.name, 1.0) for t in node.inputs]
        if layer.spec.quantization.family in SEPARATE and numbers_of(node, SCALE) is None:
            _put_each(node, factors, rescale.mantissa, rescale.shift)
        else:
            _put_sum(node, factors, rescale.mantissa, rescale.shift)
    elif rescale is not None:
        _put(node, SCALE, rescale.mantissa)
        _put(node, SHIFT, rescale.shift)
    table = next((parameters.tables[name] for name in TABLES if name in parameters.tables), None)
    if table is not None and LUT not in node.constants:
        node.constants[LUT] = PyTensor(LUT, table.entries)


def _put_each(node: PyNode, factors: list[float], mantissa: Tensor, shift: Tensor) -> None:
    """Write an integer multiplier and a shift for each input."""
    wanted = [Fraction(factor) * Fraction(float(mantissa)) / Fraction(2) ** int(shift) for factor in factors]
    node.params[f"{SCALE}_value"] = [number.numerator for number in wanted]
    # floats are whole numbers over powers of two, so the denominator is 2**shift
    node.params[f"{SHIFT}_value"] = [number.denominator.bit_length() - 1 for number in wanted]


def _put_sum(node: PyNode, factors: list[float], mantissa: Tensor, shift: Tensor) -> None:
    """Write the numbers of a sum: m alone; [m, k_a, k_b], as in Eltwise; or a multiplier and a shift for each input."""
    given, shifts = numbers_of(node, SCALE), numbers_of(node, SHIFT)
    count, one = len(factors), all(factor == 1.0 for factor in factors)
    if one and (count == 1 if given is None else given.numel() == 1):
        numbers = mantissa.reshape(1)
    elif count > 1 and given is not None and shifts is not None and given.numel() == shifts.numel() == count:
        wanted = torch.tensor(factors, dtype=torch.float64) * mantissa
        # equal in value: the plugin's own way to write them is kept
        if torch.equal(given * torch.exp2(-shifts), wanted * torch.exp2(-shift.double())):
            return
        numbers, shift = wanted, shift.expand(count)
    else:
        numbers = torch.cat([mantissa.reshape(1).double(), torch.tensor(factors, dtype=torch.float64)])
    _put(node, SCALE, numbers, listed=True)
    _put(node, SHIFT, shift, listed=True)


def _put(node: PyNode, name: str, numbers: Tensor, *, listed: bool = False) -> None:
    """Write numbers as parameter `<name>_value` or as constant *name*, whichever the layer uses.

    If it uses neither, a single number becomes a parameter, and several become a constant or, with *listed*, a list.
    """
    key, given = f"{name}_value", numbers_of(node, name)
    flat = [int(v) if v == int(v) else v for v in numbers.reshape(-1).tolist()]
    if given is not None and given.numel() == 1 and len(set(flat)) == 1:
        flat = flat[:1]
    if key in node.params or (name not in node.constants and (listed or numbers.dim() == 0)):
        node.params[key] = flat if isinstance(node.params.get(key), list) or len(flat) > 1 else flat[0]
        return
    stored = node.constants.setdefault(name, PyTensor(name, torch.zeros(0, dtype=torch.int32)))
    fitting = stored.shape if stored.betensor.numel() == len(flat) else (-1,)
    stored.betensor = torch.tensor(flat).to(stored.betensor.dtype).reshape(fitting)
