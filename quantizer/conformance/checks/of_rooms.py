"""arithmetic by the oracle of a room: the codes that its own statement gives, no other."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable

from quantizer.conformance.checks.litert_stages import judged
from quantizer.conformance.oracle import Array, Asked, Entries, Grid, Ratio
from quantizer.conformance.trial import Trial
from quantizer.core.errors import PluginError
from quantizer.core.rooms import oracle_of
from quantizer.core.verdict import Verdict
from quantizer.numerics.qparams import QParams


def judged_by_room(trial: Trial) -> Verdict | None:
    """Return the verdict of the oracle that the platform's room has for the family; None where it has none, or none of the case."""
    oracle = oracle_of(trial.spec.quantization.family, trial.target.platform.platform)
    wanted = None if oracle is None else _loaded(oracle.codes)(asked(trial))
    return (
        None if wanted is None else judged(trial, wanted, "the declared stages: the statement of the platform's room")
    )


@functools.cache
def _loaded(place: str) -> Callable[[Asked], Array | None]:
    module, _, name = place.partition(":")
    try:
        found: Callable[[Asked], Array | None] = getattr(importlib.import_module(module), name)
    except Exception as err:
        raise PluginError(f"oracle {place}: cannot be imported: {type(err).__name__}: {err}") from err
    return found


def asked(trial: Trial) -> Asked:
    """Return what an oracle may know of *trial*."""
    parameters, rescale = trial.parameters, trial.parameters.rescale
    return Asked(
        trial.spec.op, trial.target.platform, trial.target.scheme, trial.variant, trial.bound, trial.output_shape,
        {name: codes.numpy() for name, codes in trial.codes.items()},
        {name: _grid(trial.qparams(name)) for name in trial.codes if trial.spec.inputs[name].kind != "real"},
        _grid(trial.output),
        None if rescale is None else Ratio(
            rescale.mantissa.numpy(), rescale.shift.numpy(), rescale.divisor, rescale.factors
        ),
        {name: Entries(table.entries.numpy(), table.first, table.step, table.unit) for name, table in parameters.tables.items()},
        parameters.numbers,
        None if trial.spec.error_model.axis is None else trial.axis,
    )  # fmt: skip


def _grid(params: QParams) -> Grid:
    return Grid(params.scale.numpy(), params.zero_point.numpy(), params.qmin, params.qmax)
