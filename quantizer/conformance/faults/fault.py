"""A fault: its change, its place, and the operators that it concerns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from quantizer.conformance.faults.capabilities import Capability
from quantizer.core.spec import Spec
from quantizer.ops.registry import Function, FunctionKind

Wrap = Callable[[Function], Function]
FileKind = Literal["convert", "write", "read"]
"""The three steps of a file format: translate a graph into its vocabulary, write it, and read it."""
Kind = FunctionKind | FileKind
FILE_KINDS: tuple[FileKind, ...] = ("convert", "write", "read")
Change = Callable[..., Any]


@dataclass(frozen=True)
class Fault:
    """One fault: its place, the operators that it concerns, and the wrapper of each function that it changes."""

    id: str
    place: str
    where: tuple[str, ...] | Capability
    """Names of operators, for faults in their own code; otherwise the `capabilities` that an operator must have."""
    kind: Kind
    wrap: Wrap
    form: str = ""
    """The name of the file format whose functions it changes, if *kind* is one of FILE_KINDS."""

    def concerns(self, spec: Spec) -> bool:
        """Return whether the fault is planted in the operator."""
        return spec.op in self.where if isinstance(self.where, tuple) else self.where(spec)
