"""The platform's own functions for an operator, whether or not a plugin replaced them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from torch import Tensor

from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.platforms import Platform
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.request import Request
from quantizer.ops import REGISTRY
from quantizer.ops.registry import BUILT_IN, OVERRIDE
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.engines.protocol import Call


def own_parameters(request: Request) -> Parameters | None:
    """Return what the built-in rule provides, or what follows from the spec without a rule.

    None if the only rule is a plugin's.
    """
    rule = REGISTRY.built_in(request.spec.op, "quantize", request.platform.places)
    if rule is None:
        return default_parameters(request)
    if rule.origin != BUILT_IN:
        return None
    found: Parameters = rule.function(request)
    return found


@np.errstate(all="ignore")
def own_codes(target: Target, case: Case, tensors: Mapping[str, Tensor]) -> Tensor:
    """Return the codes of the output; those of a plugin's function only where the platform has none."""
    engine, request = BuiltinEngine(), target.request_on(case, tensors)
    parameters = own_parameters(request) or engine.quantize(request)
    call = Call(target.spec, case.attrs, case.order, case.activation, target.platform.places)
    with _own_forward(target.spec.op, target.platform):
        return engine.run(call, target.codes(tensors, parameters), parameters).codes


@contextmanager
def _own_forward(op: str, platform: Platform) -> Iterator[None]:
    """Run a block with the built-in integer forward, also where a plugin replaced it."""
    running, own = (find(op, "quantized", platform.places) for find in (REGISTRY.find, REGISTRY.built_in))
    if own is None or own.origin != BUILT_IN or (running is not None and running.origin == BUILT_IN):
        yield
        return
    first = replace(own, origin=OVERRIDE)  # a built-in would come after a plugin of its version
    with REGISTRY.overridden(op, "quantized", own.function, platform.platform, like=first):
        yield
