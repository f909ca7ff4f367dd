"""Runs a case through the Compass flow: its files, every step that quantizes, and the quantized IR read back.

It runs in the process of the functions under test (for a plugin, the plugin process), and reads neither cases nor
verdicts.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from quantizer.core.case import AttrValue
from quantizer.core.library import Library
from quantizer.core.platforms import Platform
from quantizer.core.spec import Spec
from quantizer.ir.formats import compass
from quantizer.ir.formats.compass_read_back import with_parameters
from quantizer.ir.graph import Graph
from quantizer.numerics.split_outputs import concatenate_outputs
from quantizer.ops import REGISTRY
from quantizer.ops.registry import BUILT_IN
from quantizer.optimize.cfg import Options, parse_cfg
from quantizer.optimize.float_ir import with_graph
from quantizer.optimize.steps import STEPS
from quantizer.optimize.work import PLATFORM, Work
from quantizer.platforms.compass.names import CFG
from quantizer.runtime.executor import to_operator_order


@dataclass(frozen=True)
class _Samples:
    """The case's own data, as calibration."""

    feeds: Mapping[str, Tensor]

    def batches(self) -> Iterator[tuple[dict[str, Tensor], Any]]:
        """Yield all data as one batch."""
        yield dict(self.feeds), None

    def sized(self, size: int) -> _Samples:  # noqa: ARG002 - the protocol's
        """Return the operands unchanged, because the IR has the same sizes."""
        return self


def codes(
    spec: Spec,
    platform: Platform,
    *,
    text: str,
    blob: Tensor,
    feeds: Mapping[str, Tensor],
    cfg: str,
    shapes: Mapping[str, tuple[int, ...]],
    attrs: Mapping[str, AttrValue],
) -> Tensor:
    """Return the output codes that the flow's quantized graph gives, in the operator's axis order.

    The other arguments are what `exporting.written_case` wrote. UnsupportedError if Compass IR cannot hold the
    quantized graph.
    """
    library = _library(spec, platform)
    work = Work(_options(cfg), library)
    work = with_graph(work, compass.from_bytes(text, blob.numpy().tobytes()))
    work = replace(work, calibration=_Samples(feeds))
    # the first step reads files and the last two write and report: text and constants are passed in memory
    for step in STEPS[1:-2]:
        work = step(work)
    # the graph is written and read back, so that the result also covers the file
    graph = _written(work, library) if _built_in(spec) else work.quantized_graph
    output = next(iter(spec.outputs.values()))
    made = [
        to_operator_order(values, "channels_last", spatial=output.spatial) for values in work.runs.outputs(graph, feeds)
    ]
    return concatenate_outputs(spec, made, shapes, attrs)


@functools.lru_cache(maxsize=16)
def _options(cfg: str) -> Options:
    """Return the options of a cfg's text, which all cases of a scheme share; read, never written."""
    return parse_cfg(cfg, Path(CFG))


def _written(work: Work, library: Library) -> Graph:
    text, blob = compass.to_bytes(compass.foreign(work.quantized_graph, library.specs))
    graph = compass.native(compass.from_bytes(text, blob), library.specs)
    return with_parameters(graph, library.specs, library.platform(PLATFORM))


def _built_in(spec: Spec) -> bool:
    """Return whether both functions are built-in: only a plugin's own forward may read its rule's results."""
    # a plugin may leave values in `extra`, which no file holds
    entries = [REGISTRY.find(spec.op, kind, PLATFORM) for kind in ("quantize", "quantized")]
    return all(entry is None or entry.origin == BUILT_IN for entry in entries)


def _library(spec: Spec, platform: Platform) -> Library:
    """Return a library of only this operator and this platform."""
    return Library({spec.op: spec}, {}, {}, {}, {PLATFORM: platform}, {}, {})
