"""What a quantize rule provided: tensors that it lacks, the names of the others, and copies of operands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quantizer.core.spec import Spec
from quantizer.numerics.qparams import Parameters

Array = NDArray[Any]


def lacking(spec: Spec, operands: Iterable[str], found: Parameters) -> list[str]:
    """Return the operands and outputs that *found* has no parameters for; real operands have none."""
    absent = []
    for name in operands:
        item = spec.inputs[name]
        if item.kind != "real" and name not in (found.inputs if item.role == "activation" else found.constants):
            absent.append(name)
    return absent + [name for name in spec.outputs if name not in found.outputs]


def provided_tensors(parameters: Parameters) -> dict[str, Tensor]:
    """Return every tensor that a rule provides, by the words with which a failure names it."""
    found = {f"table {name}": table.entries for name, table in parameters.tables.items()}
    found |= {f"constant {name}": constant.codes for name, constant in parameters.constants.items()}
    constants = {name: constant.params for name, constant in parameters.constants.items()}
    for name, params in {**parameters.inputs, **parameters.outputs, **constants}.items():
        found |= {f"the scale of {name}": params.scale, f"the zero point of {name}": params.zero_point}
    if parameters.rescale is not None:
        found |= {"the multiplier": parameters.rescale.mantissa, "its shift": parameters.rescale.shift}
    return found


def copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a copy of each tensor, by name."""
    return {name: values.clone() for name, values in tensors.items()}


def as_torch(values: Array) -> Tensor:
    """Return *values* as a tensor that shares memory."""
    return torch.from_numpy(np.asarray(values, order="C"))  # np.ascontiguousarray gives a scalar an axis
