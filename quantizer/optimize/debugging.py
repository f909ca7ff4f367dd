"""Layers that stay in floating point while metrics score the quantized graph, to find which one lowers the score."""

from __future__ import annotations

import re
from collections.abc import Mapping

from quantizer.core.dtypes import DTYPES
from quantizer.optimize.cfg import Options
from quantizer.optimize.per_layer import LayerKey

FLOAT32 = DTYPES["float32"]
SCOPES, TYPES = "fake_quant_scopes_for_debug", "fake_quant_operators_for_debug"


def faked_layers(options: Options, keys: Mapping[str, LayerKey]) -> tuple[str, ...]:
    """Return the layers that the two fields name: by number ranges in the float IR, or by types."""
    ends = [int(text) for text in re.findall(r"\d+", options.text(SCOPES))]
    scopes = list(zip(ends[::2], ends[1::2], strict=True))
    kinds = {kind.lower() for kind in re.split(r"[,\s]+", options.text(TYPES)) if kind}
    return tuple(
        name
        for name, key in keys.items()
        if any(first <= key.number <= last for first, last in scopes) or key.type.lower() in kinds
    )
