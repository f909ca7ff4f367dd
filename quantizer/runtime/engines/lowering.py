"""Interface of modules that lower cases to the form of a real system."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

from torch import Tensor

from quantizer.core.errors import UnsupportedError
from quantizer.core.platforms import Platform
from quantizer.core.schemes import Scheme
from quantizer.core.spec import Spec
from quantizer.core.wording import to_install
from quantizer.numerics.qparams import Parameters
from quantizer.runtime.engines.frames import Array, Job
from quantizer.runtime.engines.protocol import Call


def first(outputs: tuple[Array, ...]) -> Array:
    """Return the first output unchanged."""
    return outputs[0]


@dataclass(frozen=True)
class Lowered:
    """A case in a system's own form, and the conversion of its outputs to the operator's result in its axis order."""

    job: Job
    result: Callable[[tuple[Array, ...]], Array] = first
    operands: Mapping[str, str] = field(default_factory=dict)
    """Fed tensor -> the operand that it holds, where the two have different names."""
    reshapes: bool = False
    """Whether `join` must reshape results for their readers, whose feeds have other axes of size 1."""


Wires = Mapping[tuple[int, str], int]
"""(Number of a job, name of a feed) -> number of the earlier job whose result it is."""
Join = Callable[[Sequence[Job], Wires, Sequence[int]], Job]
"""Joins the models of several operators into one model; the `join` of a lowering whose form can hold several operators.

The last argument lists the jobs whose results are the outputs. RefusedError if two models do not fit together.
"""


class Lowering(Protocol):
    """A module that an engine of a room names (quantizer.core.rooms.Engine); *variant* is one of its variants.

    Each function raises RefusedError, with the reason, if the system cannot express the case.
    """

    CHECKS: tuple[str, ...]
    """The checks that the system's interface makes possible."""

    @staticmethod
    def supports(spec: Spec, scheme: Scheme, platform: Platform, variant: str) -> str | None:
        """Return None if the system supports the operator, else the reason."""

    @staticmethod
    def lower(call: Call, codes: Mapping[str, Tensor], parameters: Parameters, variant: str) -> Lowered:
        """Return the integer forward: codes in, codes out; constants are part of the model."""

    @staticmethod
    def lower_float(call: Call, operands: Mapping[str, Tensor], variant: str) -> Lowered:
        """Return the float forward; called only where CHECKS has `float`."""

    @staticmethod
    def lower_sums(call: Call, codes: Mapping[str, Tensor], parameters: Parameters, variant: str) -> Lowered | None:
        """Return the sums before requantization, None if they are hidden; called only if CHECKS has `exact`."""


def load_lowering(module: str) -> Lowering:
    """Return the lowering called *module*; UnsupportedError names the package that it lacks."""
    try:
        return cast("Lowering", importlib.import_module(module))
    except ModuleNotFoundError as err:
        # a module of this package that is missing is a bug, not a missing extra
        if not err.name or err.name.partition(".")[0] == __name__.partition(".")[0]:
            raise
        raise UnsupportedError(f"{err.name} is not installed: {to_install('engines')}.") from None
