"""Results of items without generated cases (spec, golden, reject): comparisons, refusals, problems."""

from __future__ import annotations

from dataclasses import dataclass, field

from quantizer.core.record import CheckRecord


@dataclass
class Findings:
    """Counts of one item. An item without a comparison never passes."""

    problems: list[str] = field(default_factory=list)
    """Findings, each with the next step."""
    passed: int = 0
    """The number of comparisons that passed."""
    elements: int = 0
    """The number of codes and numbers that were compared."""
    refused: list[str] = field(default_factory=list)
    """One reason for each comparison that could not be made."""

    def compare(self, problems: list[str], elements: int = 0) -> None:
        """Count one comparison, which found *problems*."""
        self.problems += problems
        self.passed += not problems
        self.elements += elements

    def check(self) -> CheckRecord:
        """Return the counts as the record of the item's own check."""
        failed, reasons = len(self.problems), tuple(sorted(set(self.refused)))
        ratio = float("inf") if failed else 0.0
        return CheckRecord(
            self.passed, failed, inconclusive=len(self.refused), elements=self.elements, ratio=ratio, reasons=reasons
        )
