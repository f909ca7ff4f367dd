"""Accepts differences from a recorded run that are only float32 rounding, by error bounds on ranges and similarities.

A range that may differ is replaced by the recorded one, and everything that follows is computed again: it must then be
equal.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from quantizer.optimize.last_bits import distances, reach_of_ranges, reach_of_similarity
from quantizer.optimize.running import DEQUANTIZE, QUANTIZE
from quantizer.optimize.steps import AFTER_RANGES
from quantizer.optimize.work import Work, calibration_batches, ir_batches

SHOWN = "just_for_display"
BRIEF = re.compile(r"(?P<start>.*)similarity=(?P<similarity>[^=]*), MSE=(?P<mse>[^=]*)")
SPAN = re.compile(r"'(?P<name>[^']+)': \{[^{}]*?'fmin': '\[(?P<low>[^],]*)\]', 'fmax': '\[(?P<high>[^],]*)\]'")
Template = Mapping[str, Mapping[str, Any]]


class LastBits:
    """The allowed differences between a run and a recorded one. They are computed only if the two differ."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.listed: list[str] = []
        """The accepted differences: the place of each, its size, and the largest allowed size."""

    @cached_property
    def _ranges(self) -> dict[str, float]:
        return reach_of_ranges(self.work.runs, self.work.float_graph, calibration_batches(self.work))

    @cached_property
    def similarities(self) -> dict[str, tuple[float, float]]:
        """Tensor -> the allowed differences of its cosine and its mean squared error, over the compared batches."""
        work, found = self.work, dict[str, list[tuple[float, float]]]()
        loader = work.validation or work.calibration
        if loader is None or work.layered is None:
            return {}
        count = work.options.number("similarity_data_num")
        for _, feeds in zip(range(count), ir_batches(work, loader), strict=False):
            exact, quantized = (distances(work.runs, graph, feeds) for graph in (work.float_graph, work.layered))
            for name, own in quantized.items():
                node = work.layered.producers.get(name)
                # the float graph has no conversions: its tensor is the one before
                source = str(node.inputs[0]) if node is not None and node.op in (QUANTIZE, DEQUANTIZE) else name
                if source in exact:
                    found.setdefault(name, []).append(reach_of_similarity(exact[source], own))
        return {
            name: (math.fsum(c for c, _ in parts) / len(parts), math.fsum(m for _, m in parts) / len(parts))
            for name, parts in found.items()
        }

    def with_recorded_ranges(self, template: Template) -> Work:
        """Return the work with those recorded ranges that another machine may have computed, and their consequences."""
        ranges = dict(self.work.ranges)
        for name, low, high in _spans(template):
            own = ranges.get(name)
            if own is None or (own.low, own.high) == (low, high):
                continue
            reach, away = self._ranges.get(name, 0.0), max(abs(own.low - low), abs(own.high - high))
            # a range beyond its bound stays ours, so that the comparison reports it
            if away <= reach:
                ranges[name] = replace(own, low=low, high=high)
                self.listed.append(
                    f"range of {name}: {away:.2g} away, at most {reach:.2g} by its float32 sums and functions"
                )
        if ranges == self.work.ranges:
            return self.work
        work = replace(self.work, ranges=ranges)
        for step in AFTER_RANGES:
            work = step(work)
        self.work = work
        # the cached property was computed from the old ranges
        self.__dict__.pop("similarities", None)
        return work

    def forgives(self, layer: str, wanted: Any, got: Any) -> bool:
        """Return whether the entries of a layer in two templates differ only in similarities, each within its bound."""
        if not isinstance(wanted, dict) or not isinstance(got, dict) or wanted.keys() != got.keys():
            return False
        # brief_info alone holds similarities
        if any(wanted[key] != got[key] for key in wanted if key != "brief_info") or self.work.layered is None:
            return False
        theirs, ours = (BRIEF.fullmatch(str(entry["brief_info"])) for entry in (wanted, got))
        if theirs is None or ours is None or theirs["start"] != ours["start"]:
            return False
        if layer not in {node.name for node in self.work.layered.nodes}:
            return False  # an input: there is no bound on its similarities here
        names = self.work.layered.node(layer).outputs
        said = []
        for place, key in enumerate(("similarity", "mse")):
            pairs = list(zip(theirs[key].split(", "), ours[key].split(", "), strict=False))
            if len(pairs) != len(names):
                return False
            for name, (recorded, here) in zip(names, pairs, strict=True):
                if recorded == here:
                    continue
                away = _apart(recorded, here)
                reach = self.similarities.get(name, (0.0, 0.0))[place]
                # NaN is never within its bound
                if not away <= reach:
                    return False
                said.append(f"{key} of {name}: {away:.2g} away, at most {reach:.2g} by its float32 sums and functions")
        self.listed += said
        return True


def _apart(recorded: str, here: str) -> float:
    try:
        return abs(float(recorded) - float(here))
    except ValueError:
        return math.inf


def _spans(template: Template) -> Iterator[tuple[str, float, float]]:
    """Yield (tensor, smallest, largest) of the tensors in a template."""
    for entry in template.values():
        shown = entry.get(SHOWN)
        for match in SPAN.finditer(str(shown.get("quantization_info", ""))) if isinstance(shown, dict) else ():
            try:
                yield match["name"], float(match["low"]), float(match["high"])
            except ValueError:
                continue
