"""The built-in engine: runs registered functions, as the executor runs a node of a graph."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from quantizer.core.platforms import Platform
from quantizer.core.schemes import Scheme
from quantizer.core.shapes import infer_shapes
from quantizer.core.spec import Spec
from quantizer.core.verdict import CHECKS
from quantizer.ir.graph import Node
from quantizer.numerics.parameters import Request, default_parameters
from quantizer.numerics.qparams import Parameters, Staged
from quantizer.numerics.split_outputs import concatenate_outputs
from quantizer.ops import BUILT_IN, REGISTRY, TARGET_NAMES
from quantizer.runtime.engines.protocol import Call
from quantizer.runtime.executor import run_node, to_node_order, to_operator_order


def target_values(scheme: Scheme, platform: Platform) -> dict[str, object]:
    """Return what `unsupported` may name of a scheme and a platform."""
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

    def identity(self, platform: str) -> str:  # noqa: ARG002 - the protocol's
        """Return `own`, whatever the platform."""
        return self.name

    def supports(self, spec: Spec, scheme: Scheme, platform: Platform) -> str | None:
        """Return None if a quantized function is registered, and none declares not to compute under *scheme*."""
        if REGISTRY.find(spec.op, "quantized", platform.places) is None:
            return f"{spec.op} has no quantized function for {platform.platform}"
        return REGISTRY.unsupported(spec.op, platform.places, target_values(scheme, platform))

    @np.errstate(all="ignore")
    def quantize(self, request: Request) -> Parameters:
        """Return the parameters from the registered rule, or those that the spec alone decides."""
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
        """Return the registered exact sum, if the operator has one; a plugin's integer forward shows only its own."""
        op, platform = call.spec.op, parameters.platform.places
        entry, forward = (REGISTRY.find(op, kind, platform) for kind in ("accumulate", "quantized"))
        if entry is None or (entry.origin == BUILT_IN and forward is not None and forward.origin != BUILT_IN):
            return None
        result: Tensor = entry.function(**codes, parameters=parameters, **call.attrs)
        return result

    def _execute(self, call: Call, operands: Mapping[str, Tensor], parameters: Parameters | None) -> Staged:
        """Run the operator as the executor runs a node: operands in the node's order, the result turned back."""
        spec = call.spec
        inputs = tuple(name if name in operands else None for name in spec.inputs)
        node = Node(
            spec.op, spec.op, inputs, ("y",), call.attrs, call.order, parameters=parameters, activation=call.activation
        )
        arranged = {
            name: to_node_order(values, call.order, spatial=spec.inputs[name].spatial).contiguous()
            for name, values in operands.items()
        }
        outcome = run_node(spec, node, arranged, call.places)
        spatial = next(iter(spec.outputs.values())).spatial
        tensors = [to_operator_order(values, call.order, spatial=spatial) for values in outcome.tensors]
        shapes = {name: tuple(values.shape) for name, values in operands.items()}
        return Staged(concatenate_outputs(spec, tensors, shapes, call.attrs), outcome.stages)
