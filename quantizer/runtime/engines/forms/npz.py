"""The form `npz`: the case as JSON, its codes as arrays; for simulators, which compute with the numbers themselves.

The model is a JSON text: operator, attributes, fused activation; for each operand and the output: type, scale, zero
point, smallest and largest code, axis; the multiplier with its shift, tables, further numbers. Arrays are fed by the
names of the operands.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from quantizer.core.errors import UnsupportedError
from quantizer.core.platforms import Platform
from quantizer.core.schemes import Scheme
from quantizer.core.shapes import infer_shapes
from quantizer.core.spec import Spec
from quantizer.numerics.qparams import Parameters, QParams, Rescale
from quantizer.runtime.engines.frames import Array, Job
from quantizer.runtime.engines.lowering import Lowered
from quantizer.runtime.engines.protocol import Call

CHECKS = ("float", "arithmetic", "accuracy", "tiled", "properties", "repeat", "engine")
CONTAINERS = ("int8", "uint8", "int16", "uint16", "int32", "int64")
"""Types of arrays. Codes are stored in the first type that holds them."""


# the protocol's arguments
def supports(spec: Spec, scheme: Scheme, platform: Platform, variant: str) -> str | None:
    """Return None: the form can express every operator. A worker names the operators that it supports."""
    return None


def lower(call: Call, codes: Mapping[str, Tensor], parameters: Parameters, variant: str) -> Lowered:
    """Return the case with all its parameters."""
    spec, output = call.spec, parameters.outputs["y"]
    known: dict[str, QParams] = {**parameters.inputs, **{n: c.params for n, c in parameters.constants.items()}}
    feeds = {name: _array(values.numpy(), known.get(name)) for name, values in codes.items()}
    tables = parameters.tables
    feeds |= {f"table {name}": table.entries.numpy() for name, table in tables.items()}
    kind = "int64" if spec.outputs["y"].kind == "index" else container(output)
    shape = infer_shapes(spec, {name: tuple(values.shape) for name, values in codes.items()}, call.attrs)["y"]
    case: dict[str, Any] = {
        "form": "npz",
        "version": 1,
        "op": spec.op,
        "attrs": dict(call.attrs),
        "activation": call.activation,
        "platform": parameters.platform.platform,
        "inputs": {name: _tensor(known[name]) for name in codes if name in known},
        "output": {**_tensor(output), "type": kind, "shape": list(shape)},
        "rescale": None if parameters.rescale is None else _rescale(parameters.rescale),
        "tables": {n: {"first": t.first, "step": t.step, "unit": t.unit, "bits": t.bits} for n, t in tables.items()},
        "numbers": dict(parameters.numbers),
    }
    return Lowered(Job(json.dumps(case, sort_keys=True).encode(), feeds, {}, [(kind, shape)]))


def lower_float(call: Call, operands: Mapping[str, Tensor], variant: str) -> Lowered:
    """Return the operator on float32 operands: a case without parameters."""
    shapes = {name: tuple(values.shape) for name, values in operands.items()}
    shape = infer_shapes(call.spec, shapes, call.attrs)["y"]
    kind = "int64" if call.spec.outputs["y"].kind == "index" else "float32"
    case = {
        "form": "npz",
        "version": 1,
        "op": call.spec.op,
        "attrs": dict(call.attrs),
        "activation": call.activation,
        "platform": None,
        "inputs": {},
        "output": {"type": kind, "shape": list(shape)},
    }
    feeds = {name: values.numpy() for name, values in operands.items()}
    return Lowered(Job(json.dumps(case, sort_keys=True).encode(), feeds, {}, [(kind, shape)]))


def lower_sums(
    call: Call,
    codes: Mapping[str, Tensor],
    parameters: Parameters,
    variant: str,
) -> Lowered | None:
    """Return None: a worker returns codes."""
    return None


def container(params: QParams) -> str:
    """Return the type of the array that holds codes of *params*."""
    signed = params.dtype.min < 0
    for kind in CONTAINERS:
        ends = np.iinfo(kind)
        # the narrowest container of the same signedness
        if (ends.min < 0) == signed and ends.min <= params.dtype.min and params.dtype.max <= ends.max:
            return kind
    return "int64"


def _array(values: Array, params: QParams | None) -> Array:
    if params is None:
        return values
    return values.astype(container(params))


def _tensor(params: QParams) -> dict[str, Any]:
    if params.blocks is not None or params.dtype.kind == "float":
        held = "a scale for each block" if params.blocks is not None else f"codes of {params.dtype}"
        raise UnsupportedError(f"form npz: a tensor with {held} cannot be written. Use a scheme of integers.")
    along = params.axis if params.scale.dim() else None
    return {
        "type": container(params),
        "scale": params.scale.tolist(),
        "zero_point": params.zero_point.tolist(),
        "lowest": params.qmin,
        "highest": params.qmax,
        "axis": along,
    }


def _rescale(rescale: Rescale) -> dict[str, Any]:
    return {
        "variant": rescale.variant,
        "multiplier": rescale.mantissa.tolist(),
        "shift": rescale.shift.tolist(),
        "divisor": rescale.divisor,
        "factors": dict(rescale.factors),
    }
