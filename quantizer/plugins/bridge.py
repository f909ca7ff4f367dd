"""Registers layer functions in the style of AIPUBuilder as operator functions for the platform compass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from quantizer.core.errors import PluginError
from quantizer.core.reading import Readable
from quantizer.core.spec import Spec
from quantizer.core.wording import shown_path
from quantizer.ir.formats.compass_mapping import FORMAT
from quantizer.numerics.activations import activate
from quantizer.numerics.qparams import Parameters, Staged
from quantizer.numerics.request import Request
from quantizer.ops import REGISTRY, Registration
from quantizer.ops.registry import BUILT_IN, FunctionKind, unwrapped
from quantizer.plugins import flow
from quantizer.plugins.aipu.node import PyNode
from quantizer.plugins.aipu.registration import LayerFunction
from quantizer.plugins.flow import PluginForward
from quantizer.plugins.layer import Layer, layer_order, operator_order
from quantizer.plugins.layer_parameters import codes_of
from quantizer.plugins.loading import LAYERS
from quantizer.plugins.rebuild import rebuilt

SOURCE = Readable("a source file", 1 << 24, PluginError)

PLATFORM = "compass"
STAGE = "/stage/"
"""The part of a placeholder's name that precedes a stage's name."""
_CONNECTED: dict[tuple[str, int], Connection] = {}
"""(operator, layer function) -> its connection, so that connecting the same specs again changes nothing."""


@dataclass
class Connection:
    """A layer function that is registered for one of our operators."""

    layer: Layer
    function: LayerFunction

    @property
    def spec(self) -> Spec:
        """The operator's spec."""
        return self.layer.spec

    def split(self, values: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return operands and attributes of a call by name."""
        operands = {name: values[name] for name in self.spec.inputs if values.get(name) is not None}
        return operands, {name: values[name] for name in self.spec.attrs if name in values}

    def result(self, node: PyNode) -> Tensor | tuple[Tensor, ...]:
        """Return the first output's values in the operator's order, or those of all tensors if it is split."""
        output = next(iter(self.spec.outputs.values()))
        made = tuple(operator_order(tensor.betensor, output) for tensor in node.outputs)
        return made[0] if output.pieces is None else made

    def reference(self, *, activation: str = "none", **values: Any) -> Tensor | tuple[Tensor, ...]:
        """Run the float forward in the operands' own number type."""
        operands, attrs = self.split(values)
        node = self.layer.node(operands, attrs, {}, activation)
        PluginForward(self.function)(node)
        kind = next(iter(operands.values())).dtype
        wanted = torch.int64 if next(iter(self.spec.outputs.values())).kind == "index" else kind
        made = self.result(node)
        return made.to(wanted) if isinstance(made, Tensor) else tuple(piece.to(wanted) for piece in made)

    def quantized(self, *, parameters: Parameters, **values: Any) -> Tensor | Staged | tuple[Tensor, ...]:
        """Run the integer forward on a layer that is rebuilt from *parameters* alone.

        Placeholders that it adds under names `<anything>/stage/<name>` are the codes of rounding stages before the
        last.
        """
        operands, attrs = self.split(values)
        node = rebuilt(self.layer, operands, parameters, attrs)
        PluginForward(self.function)(node)
        for tensor in node.outputs:
            tensor.betensor = codes_of(tensor, "output")
        named = {tensor.name.rpartition(STAGE)[2]: tensor for tensor in node.placeholders if STAGE in tensor.name}
        made = self.result(node)
        if not named or not isinstance(made, Tensor):
            return made
        stages = {name: codes_of(tensor, "stage") for name, tensor in named.items()}
        return Staged(made, {name: flow.without_axes(codes, made.dim()) for name, codes in stages.items()})

    def quantize(self, request: Request) -> Parameters:
        """Run the quantize function together with the registered forward."""
        return flow.quantize(request, self.layer, self._forward(request), self.function)

    def _forward(self, request: Request) -> flow.Forward:
        """Return the forward that runs before the quantize function: the plugin's, or the registered reference."""
        entry = REGISTRY.find(self.spec.op, "reference", PLATFORM)
        owner = getattr(unwrapped(entry.function), "__self__", None) if entry else None
        if isinstance(owner, Connection):
            return PluginForward(owner.function)
        if entry is None:
            raise PluginError(f"{self.function}: no forward of {self.spec.op} is registered. Add one with op_register.")

        def run(node: PyNode) -> None:
            """Run the registered reference in place of a plugin's forward."""
            theirs = {self.layer.constants.get(n, n): n for n in self.spec.inputs}
            tensors = {theirs[t.name]: t for t in node.inputs}
            tensors |= {theirs[key]: tensor for key, tensor in node.constants.items() if key in theirs}
            operands = {n: self.layer.restored(n, t.betensor) for n, t in tensors.items()}
            output = next(iter(self.spec.outputs.values()))
            made = entry.function(**operands, **request.attrs)
            for tensor, real in zip(node.outputs, (made,) if isinstance(made, Tensor) else made, strict=True):
                tensor.betensor = layer_order(activate(real, request.activation), output)

        return run


def connect(
    specs: Mapping[str, Spec], functions: Sequence[LayerFunction] | None = None, *, alone: bool = False
) -> list[Registration]:
    """Register layer functions for every operator of their layer type; return the new registrations.

    *functions*: by default those of all loaded plugins. PluginError for a type that no spec names, unless *alone*
    allows such functions, which the flow runs on the IR (`layers_without_spec.py`).
    """
    added = []
    for function in LAYERS if functions is None else functions:
        owners = [spec for spec in specs.values() if function.type.name == layer_type(spec)]
        if not owners and alone:
            continue
        if not owners:
            name = function.type.name
            raise PluginError(
                f"{shown_path(Path(function.file))}: {function}: no spec is a Compass {name}. Write a spec with"
                f" `names: {{compass: {name}}}` and name its folder with --op-specs."
            )
        for spec in owners:
            key = (spec.op, id(function))
            layer = Layer(spec, function.type)
            if key in _CONNECTED:
                # the spec may have been read again
                _CONNECTED[key].layer = layer
            else:
                _CONNECTED[key] = Connection(layer, function)
                added += _register(_CONNECTED[key])
    return added


def layer_type(spec: Spec) -> str | None:
    """Return the Compass layer type of an operator."""
    return spec.formats[FORMAT].type if FORMAT in spec.formats else spec.names.get(PLATFORM)


def _reads_activation(connection: Connection) -> bool:
    """Return whether the plugin may fuse: its file contains RELU and the layer's key of the fused activation."""
    form = connection.spec.formats.get(FORMAT)
    if form is None or form.activation is None or not connection.spec.fuses:
        return True
    # a function cannot be asked which keys it reads, so its source is searched
    text = SOURCE.bytes_of(Path(connection.function.file)).decode("utf-8", "replace").casefold()
    return form.activation in text and "relu" in text


def _register(connection: Connection) -> list[Registration]:
    """Register a forward as reference and integer forward, or a quantize function as quantize rule.

    The float forward of a new operator is its reference on every platform. Only an oracle, if the spec names one,
    judges it independently.
    """
    op, function = connection.spec.op, connection.function
    kinds: list[tuple[FunctionKind, str | None, Any]] = [("quantize", PLATFORM, connection.quantize)]
    if function.kind == "forward":
        known = REGISTRY.built_in(op, "reference")
        # once: a second registration for platforms without an item of the operator would count as not judged
        where = PLATFORM if known is not None and known.origin == BUILT_IN else None
        kinds = [("reference", where, connection.reference), ("quantized", PLATFORM, connection.quantized)]
    origin = shown_path(Path(function.file))
    fuses = _reads_activation(connection)
    activates = fuses and FORMAT in connection.spec.formats and bool(connection.spec.fuses)
    entries = [
        Registration(op, kind, code, function.version, platform, origin, fuses, activates)
        for kind, platform, code in kinds
    ]
    with REGISTRY.loading(origin):
        for entry in entries:
            REGISTRY.add(entry)
    return entries
