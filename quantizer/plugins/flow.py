"""What Compass's flow does around a layer's functions: trial runs, calibration, clones, checks, and nodes rebuilt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from quantizer.core.case import Range
from quantizer.core.errors import PluginError
from quantizer.ir.graph import Tensor as GraphTensor
from quantizer.ir.graph import difference
from quantizer.numerics.parameters import Request
from quantizer.numerics.qparams import Parameters
from quantizer.plugins.aipu.dtypes import bits2dtype, bits2range, from_ours, is_float, working_type
from quantizer.plugins.aipu.modules import answering
from quantizer.plugins.aipu.node import PyNode
from quantizer.plugins.aipu.registration import LayerFunction
from quantizer.plugins.aipu.tensor import PyTensor
from quantizer.plugins.handed import (
    LAYER_ATTRS,
    LUT,
    SCALE,
    SHIFT,
    absorbed,
    apply,
    numbers_of,
    plain,
    read,
    require_decided,
)  # fmt: skip
from quantizer.plugins.layer import Layer, held_codes, layer_attrs, theirs
from quantizer.plugins.loading import explain, place

Forward = Callable[[PyNode], None]
"""Runs a layer: writes `betensor` of its outputs."""
TRIAL_CLONES = 2
"""How often the original runs a quantize function on a copy before it runs it on the layer."""


@dataclass(frozen=True)
class PluginForward:
    """A plugin's forward, with what the original's flow does around each run of it."""

    function: LayerFunction

    def __call__(self, node: PyNode) -> None:
        """Run it: inputs come back as they were, every output must be written, placeholders lose their content."""
        inputs = [tensor.betensor.clone() for tensor in node.inputs]
        before = [(tensor.betensor, tensor.betensor._version) for tensor in node.outputs]
        call(self.function, node)
        for tensor, values in zip(node.inputs, inputs, strict=True):
            tensor.betensor = values
        for tensor, (old, writes) in zip(node.outputs, before, strict=True):
            if tensor.betensor is old and old._version == writes:
                raise PluginError(
                    f"{_where(self.function)}: {self.function} wrote no output. Assign self.outputs[i].betensor."
                )


def call(function: LayerFunction, node: PyNode) -> None:
    """Call a plugin's function on *node*; PluginError with file and line for whatever it raises."""
    with answering():
        try:
            function.function(node)
        except (Exception, SystemExit) as err:
            raise PluginError(f"{place(err, function.file)}: {function}: {explain(err)}") from err


def _where(function: LayerFunction) -> str:
    from quantizer.core.yaml_source import shown_path

    return f"{shown_path(Path(function.file))}:{function.function.__code__.co_firstlineno}"


def quantize(request: Request, layer: Layer, forward: Forward, function: LayerFunction) -> Parameters:
    """Return what *function* hands for *request*, after every forward has run.

    The all-zero trial run and the run on the samples come first; then the function runs on two clones and on the layer,
    and must leave the same each time.
    """
    attrs = layer_attrs(request.scheme, request.platform, layer.type)
    node = _calibrated(request, layer, forward, attrs)
    clones = [node.clone(node.name) for _ in range(TRIAL_CLONES)]
    before = node.params.clone()
    states = []
    for item in (*clones, node):
        decided = [*item.outputs, *item.constants.values(), *item.placeholders]
        floats = [tensor for tensor in item.constants.values() if tensor.ir_dtype is not None]
        for tensor in decided:
            tensor.dtype = tensor.scale = tensor.zerop = tensor.qbits = None
            tensor.qmin = tensor.qmax = tensor.qinvariant = None
        call(function, item)
        kept = [*item.constants.values(), *item.outputs, *item.placeholders]
        require_decided(item, [tensor for tensor in decided if any(tensor is other for other in kept)])
        for tensor in floats:
            tensor.betensor = tensor.betensor.float()
        states.append(_state(item))
    for state in states[:-1]:
        if found := difference("quantize", state, states[-1]):
            raise PluginError(
                f"{_where(function)}: {function}: a run on a copy of the layer gave another result: {found}"
                " Change nothing outside the layer."
            )
    handed = read(node, layer, request, before)
    return replace(handed, extra={**handed.extra, LAYER_ATTRS: attrs})


def _calibrated(request: Request, layer: Layer, forward: Forward, attrs: Mapping[str, Any]) -> PyNode:
    """Return the float layer after its forwards, every tensor with its range, inputs with their parameters."""
    constants = {name: request.constants[name] for name in layer.constants if name in request.constants}
    present = [name for name in layer.activations if name in request.shapes]
    zeros = {name: torch.zeros(request.shapes[name]) for name in present}
    node = layer.node({**zeros, **constants}, request.attrs, attrs)
    forward(node)
    _free(node)
    sampled = bool(present) and all(name in request.samples for name in present)
    if sampled:
        filled = layer.node({**{n: request.samples[n] for n in present}, **constants}, request.attrs, attrs)
        for tensor, sample in zip(node.inputs, filled.inputs, strict=True):
            tensor.betensor = sample.betensor
        forward(node)
    _calibrate(node, layer, request, sampled=sampled)
    _free(node)
    for name, tensor in zip(present, node.inputs, strict=True):
        apply(tensor, request.inputs[name])
    return node


def _calibrate(node: PyNode, layer: Layer, request: Request, *, sampled: bool) -> None:
    present = [name for name in layer.activations if name in request.shapes]
    named = [*zip(present, node.inputs, strict=True), *zip(layer.spec.outputs, node.outputs, strict=True)]
    for name, tensor in named:
        _set_range(tensor, request.ranges.get(name) or _extrema(tensor.betensor))
    for tensor in node.constants.values():
        _set_range(tensor, _extrema(tensor.betensor))
        _set_channel_ranges(tensor)
    for tensor in node.placeholders:
        if not sampled:
            raise PluginError(f"placeholder {tensor.name!r} has no calibrated range: the request brings no samples.")
        if not tensor.betensor.numel():
            raise PluginError(
                f"placeholder {tensor.name!r} is empty after a forward: its content is freed after every run, so that"
                " each forward must write its betensor."
            )
        _set_range(tensor, _extrema(tensor.betensor))
        _set_channel_ranges(tensor)


def _extrema(values: Tensor) -> Range:
    if not values.numel():
        return 0.0, 0.0
    low, high = values.double().aminmax()
    return float(low), float(high)


def _set_range(tensor: PyTensor, span: Range) -> None:
    """Set the calibrated range, widened to contain 0."""
    low, high = min(span[0], 0.0), max(span[1], 0.0)
    tensor.min, tensor.max = low, high
    tensor.extrema_min, tensor.extrema_max = torch.tensor(low), torch.tensor(high)


def _set_channel_ranges(tensor: PyTensor) -> None:
    """Set a range for each slice along the key axis, widened to contain 0."""
    if tensor.key_axis is None or not tensor.betensor.dim() or not tensor.betensor.numel():
        return
    flat = tensor.betensor.movedim(tensor.key_axis, 0)
    flat = flat.reshape(flat.shape[0], -1)
    tensor.min_key_axis, tensor.max_key_axis = flat.amin(1).clamp(max=0.0), flat.amax(1).clamp(min=0.0)
    tensor.extrema_min_key_axis, tensor.extrema_max_key_axis = tensor.min_key_axis, tensor.max_key_axis  # type: ignore[attr-defined]


def _free(node: PyNode) -> None:
    """Drop the content of placeholders, as the original does after every run of the graph; the list stays."""
    for tensor in node.placeholders:
        tensor.betensor = torch.zeros(0)


def _state(node: PyNode) -> dict[str, object]:
    """Return what a quantize function left, for comparison."""

    def fields(tensor: PyTensor) -> dict[str, object]:
        names = ("scale", "zerop", "qbits", "qmin", "qmax", "qinvariant", "dtype")
        found = {name: getattr(tensor, name) for name in names}
        return {key: float(v) if isinstance(v, int) else str(v) if key == "dtype" else v for key, v in found.items()}

    stored = {key: {**fields(t), "codes": t.betensor} for key, t in node.constants.items()}
    return {
        "params": {key: plain(value, f"params[{key!r}]") for key, value in node.params.items()},
        "constants": stored,
        "outputs": [fields(tensor) for tensor in node.outputs],
        "placeholders": [fields(tensor) for tensor in node.placeholders],
    }


def rebuilt(layer: Layer, codes: Mapping[str, Tensor], parameters: Parameters, attrs: Mapping[str, Any]) -> PyNode:
    """Return the quantized layer as it is read back from its file: nothing but fields, parameters and constants.

    *codes*: int64 operands in the operator's order. Numbers that a case changes (a tile's channels, say) are taken from
    *parameters*, the rest from what the quantize function left.
    """
    known: Any = parameters.extra.get(LAYER_ATTRS, {})
    node = layer.node({name: held_codes(values) for name, values in codes.items()}, attrs, known or _bits(parameters))
    node.quantized = True
    for tensor, name in zip(node.inputs, [n for n in layer.activations if n in codes], strict=True):
        apply(tensor, parameters.inputs[name])
    for name, tensor in zip(layer.spec.outputs, node.outputs, strict=True):
        apply(tensor, parameters.outputs[name], invariant=layer.spec.outputs[name].kind == "index")
    for name, key in layer.constants.items():
        if name in parameters.constants and key in node.constants:
            apply(node.constants[key], parameters.constants[name].params)
        if layer.spec.inputs[name].role == "bias" and key in node.constants:
            _absorb(node, layer, node.constants[key], stored=name in parameters.constants)
    for key, value in parameters.extra.items():
        if key.startswith("compass."):
            continue
        if isinstance(value, GraphTensor) and value.data is not None:
            node.constants[key] = _read_back(key, value)
        elif not isinstance(value, GraphTensor):
            node.params[key] = theirs(value)
    _set_numbers(node, layer, parameters)
    return node


def _absorb(node: PyNode, layer: Layer, biases: PyTensor, *, stored: bool) -> None:
    """Add what Compass adds to bias codes; give biases that the case leaves out the fields of others."""
    biases.betensor = held_codes(biases.betensor.long() + absorbed(node, layer))
    if not stored:
        biases.dtype, biases.qbits, biases.zerop, biases.qinvariant = bits2dtype(32, is_signed=True), 32, 0, False
        biases.qmin, biases.qmax = bits2range(32, is_signed=True)


def _read_back(key: str, stored: GraphTensor) -> PyTensor:
    """Return a constant as a file gives it: integers in the type that arithmetic needs."""
    assert stored.data is not None
    dtype = from_ours(stored.dtype)
    tensor = PyTensor(key, stored.data.to(torch.int64) if not is_float(dtype) else stored.data, dtype)
    tensor.betensor = tensor.betensor.to(working_type(dtype))
    return tensor


def _bits(parameters: Parameters) -> dict[str, Any]:
    """Return the attributes that handed parameters imply, where another rule than a plugin's chose them."""
    output = next(iter(parameters.outputs.values()))
    found: dict[str, Any] = {"q_bits_activation": output.dtype.bits, "lut_items_in_bits": 8}
    for constant in parameters.constants.values():
        found.setdefault("q_bits_weight", constant.params.dtype.bits)
    return found


def _set_numbers(node: PyNode, layer: Layer, parameters: Parameters) -> None:
    """Write multiplier, shift, factors and table of *parameters* under Compass's names, in the form the layer has them."""
    rescale = parameters.rescale
    if rescale is not None and layer.spec.error_model.kind == "linear":
        _put_sum(node, [rescale.factors.get(t.name, 1.0) for t in node.inputs], rescale.mantissa, rescale.shift)
    elif rescale is not None:
        _put(node, SCALE, rescale.mantissa)
        _put(node, SHIFT, rescale.shift)
    table = next((parameters.tables[name] for name in (LUT, "exp") if name in parameters.tables), None)
    if table is not None and LUT not in node.constants:
        node.constants[LUT] = PyTensor(LUT, table.entries)


def _put_sum(node: PyNode, factors: list[float], mantissa: Tensor, shift: Tensor) -> None:
    """Write the numbers of a sum: one, [m, k_a, k_b] (Eltwise; what a layer without any gets), or a pair for each input."""
    given, shifts = numbers_of(node, SCALE), numbers_of(node, SHIFT)
    count, one = len(factors), all(factor == 1.0 for factor in factors)
    if one and (count == 1 if given is None else given.numel() == 1):
        numbers = mantissa.reshape(1)
    elif count > 1 and given is not None and shifts is not None and given.numel() == shifts.numel() == count:
        wanted = torch.tensor(factors, dtype=torch.float64) * mantissa
        if torch.equal(given * torch.exp2(-shifts), wanted * torch.exp2(-shift.double())):
            return
        numbers, shift = wanted, shift.expand(count)
    else:
        numbers = torch.cat([mantissa.reshape(1).double(), torch.tensor(factors, dtype=torch.float64)])
    _put(node, SCALE, numbers)
    _put(node, SHIFT, shift)


def _put(node: PyNode, name: str, numbers: Tensor) -> None:
    """Write numbers as `<name>_value` or as constant *name*, wherever the layer has them; several of a new one there."""
    key, given = f"{name}_value", numbers_of(node, name)
    flat = [int(v) if v == int(v) else v for v in numbers.reshape(-1).tolist()]
    if given is not None and given.numel() == 1 and len(set(flat)) == 1:
        flat = flat[:1]
    if key in node.params or (name not in node.constants and numbers.dim() == 0):
        node.params[key] = flat if isinstance(node.params.get(key), list) or len(flat) > 1 else flat[0]
        return
    stored = node.constants.setdefault(name, PyTensor(name, torch.zeros(0, dtype=torch.int32)))
    fitting = stored.shape if stored.betensor.numel() == len(flat) else (-1,)
    stored.betensor = torch.tensor(flat).to(stored.betensor.dtype).reshape(fitting)
