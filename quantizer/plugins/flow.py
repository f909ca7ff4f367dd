"""The steps of Compass's flow around a layer's functions: trial runs, calibration, clones and checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from quantizer.core.case import Range
from quantizer.core.errors import PluginError
from quantizer.core.wording import shown_path
from quantizer.ir.graph import difference
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.request import Request
from quantizer.plugins.aipu.modules import answering
from quantizer.plugins.aipu.node import PyNode
from quantizer.plugins.aipu.registration import LayerFunction
from quantizer.plugins.aipu.tensor import PyTensor
from quantizer.plugins.layer import Layer, layer_attrs
from quantizer.plugins.layer_parameters import LAYER_ATTRS, apply, plain, read, require_decided
from quantizer.plugins.loading import explain, place

Forward = Callable[[PyNode], None]
"""A function that runs a layer: it writes `betensor` of its outputs."""
TRIAL_CLONES = 2
"""The number of copies on which the original runs a quantize function before it runs it on the layer."""


@dataclass(frozen=True)
class PluginForward:
    """A plugin's forward, with the steps of the original flow before and after each run."""

    function: LayerFunction

    def __call__(self, node: PyNode) -> None:
        """Run the forward. The inputs are restored afterwards, and every output must have been written."""
        inputs = [tensor.betensor for tensor in node.inputs]
        for tensor in node.inputs:
            tensor.betensor = tensor.betensor.clone()
        # `_version` counts in-place writes: an output may be assigned anew or written in place
        before = [(tensor.betensor, tensor.betensor._version) for tensor in node.outputs]
        call(self.function, node)
        for tensor, values in zip(node.inputs, inputs, strict=True):
            tensor.betensor = values
        for tensor, (old, writes) in zip(node.outputs, before, strict=True):
            if tensor.betensor is old and old._version == writes:
                raise PluginError(
                    f"{_where(self.function)}: {self.function} wrote no output. Assign self.outputs[i].betensor."
                )
            tensor.betensor = without_axes(tensor.betensor, old.dim())


def without_axes(values: Tensor, rank: int) -> Tensor:
    """Remove the axis from a single value of *rank* 0, which it gets from a flat scale or zerop."""
    return values.reshape(()) if rank == 0 and values.numel() == 1 else values


def call(function: LayerFunction, node: PyNode) -> None:
    """Call a plugin's function on *node*; any exception becomes a PluginError with file and line."""
    with answering():
        try:
            function.function(node)
        # a plugin that calls sys.exit must not end the run
        except (Exception, SystemExit) as err:
            raise PluginError(f"{place(err, function.file)}: {function}: {explain(err)}") from err


def _where(function: LayerFunction) -> str:
    return f"{shown_path(Path(function.file))}:{function.function.__code__.co_firstlineno}"


def quantize(request: Request, layer: Layer, forward: Forward, function: LayerFunction) -> Parameters:
    """Return the parameters that *function* provides for *request*, after every forward has run.

    A trial run on zeros and a run on the samples come first. Then the function runs on two clones and on the layer, and
    must give the same result each time.
    """
    attrs = layer_attrs(request.scheme, request.platform, layer.type)
    node = _calibrated(request, layer, forward, attrs)
    before = node.params.clone()
    decide(node, function)
    provided = read(node, layer, request, before)
    return replace(provided, extra={**provided.extra, LAYER_ATTRS: attrs})


def decide(node: PyNode, function: LayerFunction) -> None:
    """Run a quantize function on two clones of a calibrated layer and on the layer itself.

    PluginError if it raises an error, leaves something undecided, or gives another result on a clone.
    """
    clones = [node.clone(node.name) for _ in range(TRIAL_CLONES)]
    states = []
    for item in (*clones, node):
        decided = [*item.outputs, *item.constants.values(), *item.placeholders]
        floats = [tensor for tensor in item.constants.values() if tensor.ir_dtype is not None]
        for tensor in decided:
            # undecided, so that a field which the function does not set is noticed
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


def _calibrated(request: Request, layer: Layer, forward: Forward, attrs: Mapping[str, Any]) -> PyNode:
    """Return the float layer after its forwards, with the ranges of all tensors and the parameters of its inputs."""
    constants = {name: request.constants[name] for name in layer.constants if name in request.constants}
    present = [name for name in layer.activations if name in request.shapes]
    zeros = {name: torch.zeros(request.shapes[name]) for name in present}
    node = layer.node({**zeros, **constants}, request.attrs, attrs, request.activation)
    # the original runs every forward on zeros first, where placeholders are created
    forward(node)
    free(node)
    sampled = bool(present) and all(name in request.samples for name in present)
    if sampled:
        filled = layer.node(
            {**{n: request.samples[n] for n in present}, **constants}, request.attrs, attrs, request.activation
        )
        for tensor, sample in zip(node.inputs, filled.inputs, strict=True):
            tensor.betensor = sample.betensor
        forward(node)
    _calibrate(node, layer, request, sampled=sampled)
    free(node)
    for name, tensor in zip(present, node.inputs, strict=True):
        apply(tensor, request.inputs[name])
    return node


def _calibrate(node: PyNode, layer: Layer, request: Request, *, sampled: bool) -> None:
    present = [name for name in layer.activations if name in request.shapes]
    named = [*zip(present, node.inputs, strict=True), *layer.spec.keys_of(node.outputs)]
    for name, tensor in named:
        set_range(tensor, request.ranges.get(name) or extrema(tensor.betensor))
    for tensor in node.constants.values():
        set_range(tensor, extrema(tensor.betensor))
        set_channel_ranges(tensor)
    for tensor in node.placeholders:
        if not sampled:
            raise PluginError(f"placeholder {tensor.name!r} has no calibrated range: the request brings no samples.")
        if not tensor.betensor.numel():
            raise PluginError(
                f"placeholder {tensor.name!r} is empty after a forward: its content is freed after every run, so that"
                " each forward must write its betensor."
            )
        set_range(tensor, extrema(tensor.betensor))
        set_channel_ranges(tensor)


def extrema(values: Tensor) -> Range:
    """Return the smallest and the largest value; zeros for an empty tensor."""
    if not values.numel():
        return 0.0, 0.0
    low, high = values.double().aminmax()
    return float(low), float(high)


def set_range(tensor: PyTensor, span: Range) -> None:
    """Set the calibrated range, widened to contain 0."""
    low, high = min(span[0], 0.0), max(span[1], 0.0)
    tensor.min, tensor.max = low, high
    tensor.extrema_min, tensor.extrema_max = torch.tensor(low), torch.tensor(high)


def set_channel_ranges(tensor: PyTensor) -> None:
    """Set a range for each slice along the key axis, widened to contain 0."""
    if tensor.key_axis is None or not tensor.betensor.dim() or not tensor.betensor.numel():
        return
    flat = tensor.betensor.movedim(tensor.key_axis, 0)
    flat = flat.reshape(flat.shape[0], -1)
    tensor.min_key_axis, tensor.max_key_axis = flat.amin(1).clamp(max=0.0), flat.amax(1).clamp(min=0.0)
    tensor.extrema_min_key_axis, tensor.extrema_max_key_axis = tensor.min_key_axis, tensor.max_key_axis


def free(node: PyNode) -> None:
    """Free the content of placeholders but keep the placeholders, as the original does after every run of the graph."""
    for tensor in node.placeholders:
        tensor.betensor = torch.zeros(0)


def _state(node: PyNode) -> dict[str, object]:
    """Return everything that a quantize function decided, for comparison."""

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
