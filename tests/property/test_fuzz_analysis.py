"""Random single ONNX nodes as models: an engine that computes in float32 lies inside the enclosure of `model check`.

Our float32 always does. ONNX Runtime does for all operators but those whose algorithm loses more than the definition.
What has no analysis is named.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from node_values import TABLE, Draw
from qdq_graphs import session
from test_fuzz_nodes import model_of

from quantizer.conformance.models.bounds import enclosures
from quantizer.core.errors import QuantizerError
from quantizer.ir.formats.onnx import from_model
from quantizer.runtime.models.engines import OwnFloat
from quantizer.runtime.models.parts import parts_of

NODES = 1
"""Nodes of each operator in a block of the gate; a nightly run has thirty times as many."""
NIGHTLY = 30
OTHERWISE = {
    "LRN": "slides a sum along the channels: adds a square and subtracts another",
    "RNN": "its hyperbolic tangent loses more than four ulps",
    "MeanVarianceNormalization": "gives NaN where all numbers are equal",
    "Resize": "align_corners of one size",
    "Upsample": "as Resize",
    "Shrink": "computes float64 in float32",
}
"""Operators of ONNX Runtime whose results may lie outside, and why."""
JUDGED = 0.75
"""Share of the float32 results that must have an enclosure."""


def judged(op: str, seed: int, found: Counter[str]) -> None:
    """Count the results of one node; AssertionError names operator and seed of a false alarm."""
    model, fed = model_of(TABLE[op](Draw(seed), op))
    feeds = {name: torch.from_numpy(np.array(values)) for name, values in fed.items()}
    try:
        parts = parts_of(from_model(model))
        values = OwnFloat().whole(parts, feeds)
    except QuantizerError:
        found["refused"] += 1
        return
    try:
        theirs = dict(
            zip([o.name for o in model.graph.output], session(model, optimized=False).run(None, fed), strict=True)
        )
    except Exception:  # noqa: BLE001 - what it raises has no class of its own; it has no kernel for some types
        theirs = {}
    for part in parts.parts:
        enclosed = enclosures(part, parts.graph, {**feeds, **values})
        for edge in part.results:
            if values[edge].dtype != torch.float32:
                found["not float32"] += 1
            elif isinstance(enclosed, str):
                found["named"] += 1
            else:
                found["judged"] += 1
                assert not enclosed[edge].outside(values[edge]).outside, f"{op}, seed {seed}: our float32"
                if edge in theirs and op not in OTHERWISE and theirs[edge].dtype == np.float32:
                    got = torch.from_numpy(np.array(theirs[edge]))
                    assert not enclosed[edge].outside(got).outside, f"{op}, seed {seed}: ONNX Runtime"


@pytest.mark.parametrize("block", range(4))
def test_float32_engines_lie_inside_the_enclosure_of_every_operator(block: int, request: pytest.FixtureRequest) -> None:
    nightly = request.config.getoption("--op-profile", None) == "nightly"
    count = NODES * (NIGHTLY if nightly else 1)
    found: Counter[str] = Counter()
    for op in sorted(TABLE):
        for seed in range(3_000_000 + block * count, 3_000_000 + (block + 1) * count):
            judged(op, seed, found)
    assert found["judged"] >= JUDGED * (found["judged"] + found["named"]), found
