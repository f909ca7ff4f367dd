"""The range of a layer's weights under the weight strategy of its settings."""

from __future__ import annotations

from typing import cast

import torch

from quantizer.calibration.statistics import UNTRIMMED, observe
from quantizer.calibration.strategies import calibrated
from quantizer.core.errors import GraphError
from quantizer.core.platforms import Platform
from quantizer.core.spec import Spec
from quantizer.ir.formats.compass_mapping import FORMAT
from quantizer.ir.formats.compass_text import format_loosely
from quantizer.ir.graph import AttrValue, Node
from quantizer.numerics.rules import Ends, weight_part
from quantizer.optimize.settings import Settings


def weight_ends(
    spec: Spec, node: Node, key: str, values: torch.Tensor, settings: Settings, platform: Platform
) -> Ends | None:
    """Return the range of a constant under the weight strategy; None for extrema.

    in_ir takes `<constant>_range` of the layer: a pair of numbers, or of lists of one number for each slice.
    """
    strategy, scheme = settings.weight_strategy, settings.scheme()
    untrimmed = settings["trim_infinity_before_statistic"] == UNTRIMMED
    given = node.extra.get(f"{_file_key(spec, key)}_range") if strategy.name == "in_ir" else None
    plain = strategy.name in ("extrema", "mean", "in_ir") and given is None and untrimmed
    # None: the quantize rule finds extrema itself; for one batch, the mean and a missing in_ir are extrema too
    if plain or spec.inputs[key].role != "weight" or scheme.weight is None:
        return None
    part = weight_part(scheme.weight, platform, spec.quantization.family)
    wanted, axis = settings.wanted(strategy), spec.inputs[key].channel_axis or 0
    whole, slices = observe(None, values, wanted), observe(None, values, wanted, axis)
    if given is not None:
        low, high = _ends_of_the_ir(f"layer {node.name!r}: {_file_key(spec, key)}_range", given, slices.low.numel())
        whole, slices = whole.with_ends(low.min(), high.max()), slices.with_ends(low, high)
    symmetric = part.symmetry == "symmetric"
    low, high = calibrated(strategy, whole, bits=part.bits, symmetric=symmetric)
    lows, highs = calibrated(strategy, slices, bits=part.bits, symmetric=symmetric)
    return Ends(low, high, lows, highs)


def _ends_of_the_ir(place: str, given: object, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the smallest and largest values that the IR gives a constant of *count* slices, one or one for each."""
    ends = given if isinstance(given, tuple) and len(given) == 2 else ()
    rows = [end if isinstance(end, tuple) else (end,) for end in ends]
    if rows and all(len(row) in (1, count) and all(type(item) in (int, float) for item in row) for row in rows):
        low, high = (torch.tensor(row, dtype=torch.float32) for row in rows)
        if bool((low.isfinite() & high.isfinite() & (low <= high)).all()):
            return low, high
    shown = format_loosely(cast("AttrValue", given))[:60]
    raise GraphError(
        f"{place}: got {shown}: must be a pair [smallest,largest] of finite numbers, or of lists of one for each of"
        f" {count} slices."
    )


def extrema(spec: Spec, values: torch.Tensor) -> Ends:
    """Return the range of a constant's values, widened to contain 0."""
    rows = values.movedim(spec.inputs["weight"].channel_axis or 0, 0).flatten(1)
    low, high = rows.amin(1).clamp(max=0.0), rows.amax(1).clamp(min=0.0)
    return Ends(low.min(), high.max(), low, high)


def _file_key(spec: Spec, key: str) -> str:
    return spec.formats[FORMAT].inputs.get(key, key) if FORMAT in spec.formats else key
