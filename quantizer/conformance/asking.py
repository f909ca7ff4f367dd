"""Converts provided parameters to numpy, the form in which a room's oracle takes them."""

from __future__ import annotations

from collections.abc import Mapping

from quantizer.conformance.oracle import Entries, Grid, Ratio
from quantizer.numerics.qparams import Parameters, QParams


def grid_of(params: QParams) -> Grid:
    """Return the grid of an operand or an output."""
    return Grid(params.scale.numpy(), params.zero_point.numpy(), params.qmin, params.qmax)


def ratio_of(parameters: Parameters) -> Ratio | None:
    """Return the multiplier of a sum; None if the rule provided none."""
    if (rescale := parameters.rescale) is None:
        return None
    return Ratio(rescale.mantissa.numpy(), rescale.shift.numpy(), rescale.divisor, rescale.factors)


def entries_of(parameters: Parameters) -> Mapping[str, Entries]:
    """Return the tables by name."""
    held = parameters.tables.items()
    return {name: Entries(table.entries.numpy(), table.first, table.step, table.unit) for name, table in held}
