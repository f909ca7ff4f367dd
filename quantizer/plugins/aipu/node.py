"""The layer that an operator plugin sees as `self`."""

from __future__ import annotations

import copy
from typing import Any

from quantizer.plugins.aipu.log import OPT_FATAL
from quantizer.plugins.aipu.optypes import OpTypeValue
from quantizer.plugins.aipu.tensor import PyTensor


class Fields(dict[str, Any]):
    """Parameters or attributes by name."""

    def clone(self) -> Fields:
        """Return an independent copy."""
        return Fields(copy.deepcopy(dict(self)))


class PyGraph:
    """The facts about the surrounding graph that a layer may read."""

    def __init__(self, name: str, taken: set[str], batch_size: int) -> None:
        self.name = name
        self.current_batch_size = batch_size
        self.current_batch_idx = 0
        self._taken = taken

    def get_valid_tensor_name(self, prefix: str) -> str:
        """Return *prefix*, with a number appended if a tensor of that name exists."""
        name, number = prefix, 0
        while name in self._taken:
            number += 1
            name = f"{prefix}_{number}"
        self._taken.add(name)
        return name


class PyNode:
    """One layer: its inputs and outputs, constants, IR parameters, attributes of this run, and placeholders."""

    def __init__(self, name: str, type: OpTypeValue) -> None:  # noqa: A002 - as in Compass
        self.name = name
        self.type = type
        self.inputs: list[PyTensor] = []
        self.outputs: list[PyTensor] = []
        self.constants: dict[str, PyTensor] = {}
        self.params = Fields()
        self.attrs = Fields()
        self.placeholders: list[PyTensor] = []
        self.parents: tuple[PyNode, ...] = ()
        self.children: tuple[PyNode, ...] = ()
        self.graph: PyGraph | None = None
        self.quantized = False

    def __repr__(self) -> str:
        return f"PyNode({self.name!r}, {self.type})"

    @property
    def current_batch_size(self) -> int:
        """The number of samples that the tensors hold now."""
        return self.graph.current_batch_size if self.graph else 1

    @property
    def force_dtype_int(self) -> bool:
        """Whether every code is signed."""
        return bool(self.attrs.get("force_dtype_int", False))

    @property
    def force_shift_positive(self) -> bool:
        """Whether a shift must not be negative."""
        return bool(self.attrs.get("force_shift_positive", False))

    def get_param(self, key: str, *, optional: bool = False, default_value: Any = None) -> Any:
        """Return an IR parameter. It is fatal if it is missing and not optional."""
        return self._get(self.params, "param", key, default_value, optional=optional)

    def get_attrs(self, key: str, *, optional: bool = False, default_value: Any = None) -> Any:
        """Return an attribute of this run. It is fatal if it is missing and not optional."""
        return self._get(self.attrs, "attribute", key, default_value, optional=optional)

    def get_constant(self, key: str) -> PyTensor:
        """Return a constant. It is fatal if it is missing."""
        found: PyTensor = self._get(self.constants, "constant", key, None, optional=False)
        return found

    def _get(self, known: dict[str, Any], what: str, key: str, default: Any, *, optional: bool) -> Any:
        if key not in known and not optional:
            names = ", ".join(known) or "none"
            OPT_FATAL(f"layer {self.name!r} of type {self.type.name}: no {what} {key!r}. It has: {names}.")
        return known.get(key, default)

    def clone(self, name: str | None = None) -> PyNode:
        """Return a copy that shares only the graph with this layer."""
        other = type(self)(name or f"{self.name}_clone", self.type)
        other.params, other.attrs = self.params.clone(), self.attrs.clone()
        other.constants = {key: tensor.clone(tensor.name) for key, tensor in self.constants.items()}
        other.inputs = [tensor.clone(tensor.name) for tensor in self.inputs]
        other.outputs = [tensor.clone(tensor.name) for tensor in self.outputs]
        other.placeholders = [tensor.clone(tensor.name) for tensor in self.placeholders]
        other.graph, other.quantized = self.graph, self.quantized
        return other
