"""A request with fixed grids, which training or a model file provides; only multipliers and tables are derived."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from quantizer.numerics.qparams import Constant, QParams
from quantizer.numerics.request import Request


@dataclass(frozen=True)
class ProvidedRequest(Request):
    """A request with fixed scales, zero points and codes: the platform's rule derives multipliers and tables only."""

    output_params: QParams | None = None
    weights: Mapping[str, Constant] = field(default_factory=dict)

    def output(self, name: str = "y") -> QParams:  # noqa: ARG002 - one output
        """Return the fixed parameters of the output instead of deriving them from a range."""
        assert self.output_params is not None
        return self.output_params

    def weight(self, name: str, group: int | None = None) -> Constant:  # noqa: ARG002 - scales are what they are
        """Return the given codes."""
        return self.weights[name]

    def bias(self, name: str, factors: list[QParams], weights: Mapping[str, Constant] | None = None) -> Constant:
        """Return the given codes, in units of the sum; a float bias gets its codes from the platform's rule."""
        return self.weights[name] if name in self.weights else super().bias(name, factors, weights)
