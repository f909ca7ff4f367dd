"""Results of `quantizer model check`: one finding per part of the network, and their summary."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Verdict = Literal["inside", "outside", "inconclusive", "not shown"]


@dataclass(frozen=True)
class Local:
    """Result of one engine for one part of the network; all engines get the same operands."""

    engine: str
    verdict: Verdict
    """inside, outside: relative to its own enclosure; inconclusive: no enclosure; not shown: the engine hides that
    edge."""
    outside: int = 0
    """The number of elements outside the enclosure."""
    error: float = 0.0
    """The largest distance from the exact result, in steps where the result is quantized."""
    ratio: float = 0.0
    """The largest error divided by the allowed error."""
    worst: tuple[int, ...] = ()
    how: str = ""
    """Why the engine did not compute the part in the way that its name promises."""


@dataclass(frozen=True)
class PartFinding:
    """What two engines computed for one part of the model: an operator with its quantizations."""

    name: str
    op: str
    edge: str
    shape: tuple[int, ...]
    quantized: bool
    """Whether the edge carries codes; distances are then in steps."""
    arrived_equal: bool
    """Whether both engines had the same operands in the run of the whole model."""
    differ: int
    """The number of elements of the edge that differ between the engines in the run of the whole model."""
    apart: float
    """The largest of these differences."""
    alone: int
    """The number of elements that differ where both engines get the same operands."""
    locals: tuple[Local, ...] = ()
    reason: str = ""
    """The reason if there is no enclosure."""

    @property
    def parts_here(self) -> bool:
        """Whether the engines differ here: equal operands, different results."""
        return self.arrived_equal and self.differ > 0

    @property
    def blamed(self) -> tuple[str, ...]:
        """The engines that lie outside the enclosure here."""
        return tuple(local.engine for local in self.locals if local.verdict == "outside")


@dataclass(frozen=True)
class ModelFindings:
    """The result of `model check`: two engines compared on one model, part by part."""

    model: str
    platform: str
    engines: tuple[str, str]
    float_edges: bool
    """Whether the first engine is the float model: differences are then real numbers in steps of the other's edges."""
    parts: tuple[PartFinding, ...]
    cuts: tuple[str, ...] = field(default=())
    """Folders of cut-out parts."""

    @property
    def first(self) -> PartFinding | None:
        """The first part in which the engines differ."""
        return next((part for part in self.parts if part.parts_here), None)

    @property
    def outside(self) -> tuple[PartFinding, ...]:
        """Parts at which an engine lies outside its enclosure."""
        return tuple(part for part in self.parts if part.blamed)

    @property
    def inconclusive(self) -> tuple[PartFinding, ...]:
        """Parts without an enclosure."""
        return tuple(part for part in self.parts if part.reason)

    def plain(self) -> dict[str, Any]:
        """Return the findings as JSON values."""
        return asdict(self)
