"""The built-in engine: runs registered functions, as the executor runs a node of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from quantizer.core.platforms import Platform
from quantizer.core.schemes import Scheme
from quantizer.core.shapes import infer_shapes
from quantizer.core.spec import Spec
from quantizer.core.verdict import CHECKS
from quantizer.ir.graph import Node
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.qparams import Parameters, Staged
from quantizer.numerics.request import Request
from quantizer.numerics.split_outputs import concatenate_outputs
from quantizer.ops import REGISTRY, TARGET_NAMES
from quantizer.ops.registry import BUILT_IN
from quantizer.runtime.engines.protocol import Call
from quantizer.runtime.executor import Outcome, run_node, run_together, to_node_order, to_operator_order


def target_values(scheme: Scheme, platform: Platform) -> dict[str, object]:
    """Return the names that the `unsupported` condition of a function may use, with their values."""
    bits = scheme.activation.bits, 0 if scheme.weight is None else scheme.weight.bits
    return dict(zip(TARGET_NAMES, (scheme.name, platform.platform, *bits), strict=True))


class BuiltinEngine:
    """Runs the functions in the registry.

    numpy's floating-point warnings are off: torch gives the same infinities silently, and results are judged anyway.
    """

    name = "builtin"
    version = ""
    checks = tuple(name for name in CHECKS if name != "engine")
    isa = ""
    instructions: frozenset[str] = frozenset()
    threads: tuple[int, ...] = ()

    def identity(self, platform: str) -> str:  # noqa: ARG002 - the protocol has this argument
        """Return `own` for every platform."""
        return self.name

    def supports(self, spec: Spec, scheme: Scheme, platform: Platform) -> str | None:
        """Return None if a quantized function is registered and supports *scheme*, else the reason."""
        if REGISTRY.find(spec.op, "quantized", platform.places) is None:
            return f"{spec.op} has no quantized function for {platform.platform}"
        return REGISTRY.unsupported(spec.op, platform.places, target_values(scheme, platform))

    @np.errstate(all="ignore")
    def quantize(self, request: Request) -> Parameters:
        """Return the parameters from the registered rule, or from the spec without a rule."""
        # only to refuse an illegal request, before a rule works on it
        infer_shapes(request.spec, request.shapes, request.attrs)
        entry = REGISTRY.find(request.spec.op, "quantize", request.platform.places)
        parameters: Parameters = entry.function(request) if entry else default_parameters(request)
        return parameters

    @np.errstate(all="ignore")
    def run_float(self, call: Call, operands: Mapping[str, Tensor]) -> Tensor:
        """Return the registered reference in the operands' type."""
        return self._execute(call, operands, None).codes

    @np.errstate(all="ignore")
    def run(self, call: Call, codes: Mapping[str, Tensor], parameters: Parameters) -> Staged:
        """Return the registered integer forward."""
        return self._execute(call, codes, parameters)

    @np.errstate(all="ignore")
    def accumulate(self, call: Call, codes: Mapping[str, Tensor], parameters: Parameters) -> Tensor | None:
        """Return the registered exact sum, or None.

        For a plugin's integer forward, only the plugin's own sum counts.
        """
        op, platform = call.spec.op, parameters.platform.places
        entry, forward = (REGISTRY.find(op, kind, platform) for kind in ("accumulate", "quantized"))
        # a built-in sum says nothing about the sums inside a plugin's forward
        if entry is None or (entry.origin == BUILT_IN and forward is not None and forward.origin != BUILT_IN):
            return None
        result: Tensor = entry.function(**codes, parameters=parameters, **call.attrs)
        return result

    def batches(self, call: Call, platform: Platform) -> bool:
        """Return whether the function takes several trials of one structure in one call."""
        entry = REGISTRY.find(call.spec.op, "quantized", platform.places)
        return entry is not None and entry.batched

    @np.errstate(all="ignore")
    def run_together(
        self, call: Call, several: Sequence[Mapping[str, Tensor]], parameters: Sequence[Parameters]
    ) -> list[Staged]:
        """Return the integer forwards of several trials of one structure, in one call of a function that `batches`."""
        node = _node(call, several[0], None)
        arranged = [_arranged(call, codes) for codes in several]
        outcomes = run_together(call.spec, node, arranged, parameters)
        return [_turned_back(call, codes, made) for codes, made in zip(several, outcomes, strict=True)]

    def _execute(self, call: Call, operands: Mapping[str, Tensor], parameters: Parameters | None) -> Staged:
        """Run the operator as the executor runs a node, with operands in the node's axis order, and convert back."""
        outcome = run_node(call.spec, _node(call, operands, parameters), _arranged(call, operands), call.places)
        return _turned_back(call, operands, outcome)


def _node(call: Call, operands: Mapping[str, Tensor], parameters: Parameters | None) -> Node:
    op, inputs = call.spec.op, tuple(name if name in operands else None for name in call.spec.inputs)
    return Node(op, op, inputs, ("y",), call.attrs, call.order, parameters=parameters, activation=call.activation)


def _arranged(call: Call, operands: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return operands in the node's axis order."""
    return {
        name: to_node_order(values, call.order, spatial=call.spec.inputs[name].spatial).contiguous()
        for name, values in operands.items()
    }


def _turned_back(call: Call, operands: Mapping[str, Tensor], outcome: Outcome) -> Staged:
    """Return the result of a node in the operator's own axis order, several outputs joined."""
    spatial = next(iter(call.spec.outputs.values())).spatial
    tensors = [to_operator_order(values, call.order, spatial=spatial) for values in outcome.tensors]
    shapes = {name: tuple(values.shape) for name, values in operands.items()}
    return Staged(concatenate_outputs(call.spec, tensors, shapes, call.attrs), outcome.stages)
