"""The protocol of engines, and the type of a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from torch import Tensor

from quantizer.core.case import AttrValue, AxisOrder
from quantizer.core.platforms import Platform
from quantizer.core.schemes import Scheme
from quantizer.core.spec import Spec
from quantizer.numerics.qparams import Parameters, Staged
from quantizer.numerics.request import Request


@dataclass(frozen=True)
class Call:
    """One operator with its attributes and axis order; operands are in the order of the spec."""

    spec: Spec
    attrs: Mapping[str, AttrValue]
    order: AxisOrder = "channels_first"
    activation: str = "none"
    places: tuple[str, ...] = ()
    """The names of the platform (`Platform.places`), its own first. A plugin may have replaced functions under each of
    them."""

    def but(self, **changes: Any) -> Call:
        """Return this call with some fields changed."""
        return replace(self, **changes)


@dataclass(frozen=True)
class Asked:
    """One run that is requested of an engine, on exactly these tensors."""

    call: Call
    operands: Mapping[str, Tensor]
    parameters: Parameters | None
    """Those of an integer forward; None asks for the float forward."""
    threads: int = 1
    """The number of threads on which the engine computes: one of the numbers in its `threads`."""


class Engine(Protocol):
    """Runs single operators. Every operand and result is in the operator's own axis order."""

    name: str
    version: str
    """The version of the real system; empty for the built-in engine."""
    checks: tuple[str, ...]
    """The checks that its interface makes possible."""
    isa: str
    """The instruction-set level that it is limited to, `host`, or `unpinned`; empty for the built-in engine."""
    instructions: frozenset[str]
    """The instruction sets that select its kernels and those of its libraries (`library.set`)."""

    threads: tuple[int, ...]
    """The numbers of threads, besides 1, on which `repeat` runs a case again."""

    def identity(self, platform: str) -> str:
        """Return the name of the implementation for *platform*: `builtin`, or the real engine and its variant."""

    def supports(self, spec: Spec, scheme: Scheme, platform: Platform) -> str | None:
        """Return None if the engine runs the operator, else the reason.

        A single case may still be refused: `run` then raises RefusedError with the reason.
        """

    def quantize(self, request: Request) -> Parameters:
        """Return the parameters of the engine's quantize rule."""

    def run_float(self, call: Call, operands: Mapping[str, Tensor]) -> Tensor:
        """Return the float forward, in the operands' type."""

    def run(self, call: Call, codes: Mapping[str, Tensor], parameters: Parameters) -> Staged:
        """Return the integer forward on codes (int64), constants included; EngineError if a real engine failed."""

    def accumulate(self, call: Call, codes: Mapping[str, Tensor], parameters: Parameters) -> Tensor | None:
        """Return the exact sum before requantization, or None if it is hidden."""
