"""The cases of a target beside its examples and rows, which neither a spec nor the covering array asks for."""

from __future__ import annotations

from collections.abc import Callable

from quantizer.conformance.generation.near_ties import near_ties
from quantizer.conformance.generation.neighbours import neighbours
from quantizer.conformance.generation.scaled import one_sided, scaled
from quantizer.conformance.generation.whole import whole
from quantizer.conformance.target import Target
from quantizer.core.case import Case

BESIDE: tuple[Callable[[Target], list[Case]], ...] = (neighbours, near_ties, scaled, one_sided, whole)
