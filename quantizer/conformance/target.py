"""A target: an operator under one scheme on one platform."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from quantizer.conformance.model_cases import provided_request
from quantizer.core.case import Case
from quantizer.core.platforms import Platform
from quantizer.core.roles import under
from quantizer.core.schemes import Scheme, WeightPart
from quantizer.core.spec import Spec
from quantizer.numerics.activations import activate
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import quantize
from quantizer.numerics.request import Request
from quantizer.numerics.rules import weight_part
from quantizer.numerics.split_outputs import concatenate_outputs
from quantizer.ops import REGISTRY
from quantizer.ops.registry import BUILT_IN
from quantizer.plugins.oracle import oracle_function


@dataclass(frozen=True)
class Target:
    """Operator x scheme x platform. `platform` is the judge's; an engine may have been given another one.

    `spec` is the operator under the scheme: an operand that may be a weight is one if the scheme says so.
    """

    spec: Spec
    scheme: Scheme
    platform: Platform

    def __post_init__(self) -> None:
        object.__setattr__(self, "spec", under(self.spec, self.scheme))

    @property
    def deal(self) -> tuple[str, str]:
        """The key by which its generated cases are distributed: targets of one platform with the same kind of grid."""
        return self.platform.platform, self.scheme.grid

    @property
    def reading(self) -> str | None:
        """The reading of the platform's arithmetic that the owner of the run chose for the operator there."""
        return self.spec.readings.get(self.platform.platform)

    @property
    def id(self) -> str:
        """The name of the item: op-scheme-platform."""
        return f"{self.spec.op}-{self.scheme.name}-{self.platform.platform}"

    def request(
        self, case: Case, constants: Mapping[str, Tensor], samples: Mapping[str, Tensor] | None = None
    ) -> Request:
        """Return the request for a quantize rule for *case*."""
        if case.data.given:
            return provided_request(self.spec, self.scheme, self.platform, case, constants)
        return Request(
            self.spec,
            self.scheme,
            self.platform,
            case.shapes,
            case.attrs,
            case.ranges,
            constants,
            activation=case.activation,
            samples=samples or {},
        )

    def request_on(self, case: Case, tensors: Mapping[str, Tensor]) -> Request:
        """Return the request for *case* with all its operands: constants, and activations as samples."""
        samples = {name: values for name, values in tensors.items() if self.spec.inputs[name].role == "activation"}
        constants = {name: values for name, values in tensors.items() if name not in samples}
        return self.request(case, constants, samples)

    def codes(self, tensors: Mapping[str, Tensor], parameters: Parameters) -> dict[str, Tensor]:
        """Return all operands: activations quantized by *parameters*, constants as provided there, reals as they are.

        These are the operands of the integer forward.
        """
        found, quantizer = {}, self.platform.quantizer
        for name, values in tensors.items():
            constant = parameters.constants.get(name)
            if self.spec.inputs[name].kind == "real":
                found[name] = values
                continue
            found[name] = constant.codes if constant else quantize(values, parameters.inputs[name], quantizer)
        return found

    @property
    def weight(self) -> WeightPart | None:
        """The weight part of the scheme as the platform changes it for the operator's family."""
        part = self.scheme.weight
        return None if part is None else weight_part(part, self.platform, self.spec.quantization.family)

    def real(self, operands: Mapping[str, Tensor], case: Case) -> Tensor:
        """Return the real result of the graph: the reference, then the fused activation."""
        return activate(self.reference(operands, case), case.activation)

    @property
    def oracle(self) -> Callable[..., Tensor] | None:
        """The function that the spec names, where it judges instead of a reference: for a new operator."""
        entry = REGISTRY.built_in(self.spec.op, "reference")
        return oracle_function(self.spec) if entry is None or entry.origin != BUILT_IN else None

    @np.errstate(all="ignore")
    def reference(self, operands: Mapping[str, Tensor], case: Case) -> Tensor:
        """Return the built-in reference on *operands*, even if a plugin replaced it; for a new operator, its oracle."""
        entry = REGISTRY.built_in(self.spec.op, "reference")
        if (oracle := self.oracle) is not None:
            return oracle(**operands, **case.attrs)
        reference = REGISTRY.get(self.spec.op, "reference") if entry is None else entry.function
        return concatenate_outputs(self.spec, reference(**operands, **case.attrs), case.shapes, case.attrs)
