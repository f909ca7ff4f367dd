"""Statistics of an earlier run, written by `save_statistic_info`. They replace the statistics of this run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from quantizer.calibration.statistics import Statistics
from quantizer.core.errors import FormatError
from quantizer.core.wording import shown_path, suggestion
from quantizer.ir.formats.npz import read_npz
from quantizer.optimize.gathering import Gathered

ENDS = ("low", "high", "running_low", "running_high")
MORE = ("mean", "deviation", "absolute_deviation", "histogram")


def read_statistics(path: Path) -> dict[str, Statistics]:
    """Return the statistics of each tensor in *path*.

    FormatError if it is not an archive, an entry is not called `<tensor>/<what>`, or a tensor lacks an end.
    """
    found: dict[str, dict[str, Any]] = {}
    for key, values in read_npz(path).items():
        name, _, what = key.rpartition("/")
        if not name or what not in (*ENDS, *MORE):
            raise FormatError(
                f"{shown_path(path)}: {key!r}: must be a tensor's name, '/', and one of {', '.join((*ENDS, *MORE))}."
            )
        if values.dtype.kind != "f":
            raise FormatError(f"{shown_path(path)}: {key!r}: holds {values.dtype}, must hold floats.")
        # a copy, because from_numpy shares memory that may be read-only
        found.setdefault(name, {})[what] = torch.from_numpy(values.copy()).float()
    for name, own in found.items():
        lacking = [what for what in ENDS if what not in own]
        if lacking:
            raise FormatError(f"{shown_path(path)}: tensor {name!r} has no {', '.join(lacking)}.")
        if not all(bool(torch.isfinite(own[what]).all()) for what in ENDS):
            raise FormatError(f"{shown_path(path)}: tensor {name!r}: an end is not finite.")
    return {name: Statistics(**own) for name, own in found.items()}


def with_kept(gathered: Gathered, kept: Mapping[str, Statistics], path: Path, *, lenient: bool) -> Gathered:
    """Return *gathered* with its numbers replaced by those of *kept*, tensor by tensor.

    Statistics that a strategy needs but the file lacks are taken from this run. FormatError for a tensor that the
    file does not name, unless *lenient*.
    """
    missing = [name for name in gathered.tensors if name not in kept]
    if missing and not lenient:
        raise FormatError(
            f"{shown_path(path)}: no statistics of {', '.join(map(repr, missing[:5]))}"
            f"{f' and {len(missing) - 5} more' if len(missing) > 5 else ''}.{suggestion(missing[0], kept, 'It has')} "
            "Set ignore_missing_statistic = true to observe them."
        )
    tensors = {name: _merged(own, kept.get(name)) for name, own in gathered.tensors.items()}
    return replace(gathered, tensors=tensors)


def _merged(own: Statistics, kept: Statistics | None) -> Statistics:
    if kept is None:
        return own
    more = {what: getattr(own, what) if getattr(kept, what) is None else getattr(kept, what) for what in MORE}
    return replace(kept, batches=own.batches, **more)
