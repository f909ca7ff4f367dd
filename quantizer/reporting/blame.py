"""The lines below the failures on a page's first screen: since which run an operator fails, and whose functions ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

from quantizer.core.facts import Facts
from quantizer.reporting.diff import Diff
from quantizer.reporting.history import Figures


@dataclass(frozen=True)
class Since:
    """The oldest run since which an operator has failed in every run."""

    first: str
    before: str = ""
    """The run before it, in which the operator passed; empty if the history has no such run."""

    @property
    def text(self) -> str:
        """The runs in a sentence: since when it fails, and when it last passed."""
        passed = f"passed in run {self.before}" if self.before else "no older run of it is in the history"
        return f"fails since run {self.first}; {passed}"


def since(rows: Iterable[tuple[str, str, Figures]]) -> dict[str, Since]:
    """Return operator -> since when it fails, for operators that fail in their newest run.

    rows: (operator, run, figures) by operator, the oldest run first, as `history.trend` gives them.
    """
    found: dict[str, Since] = {}
    for op, runs in groupby(rows, key=lambda row: row[0]):
        before, first = "", ""
        for _, name, figures in runs:
            if not figures.failed:
                # a run that passed ends an earlier series of failures
                before, first = name, ""
            elif not first:
                first = name
        if first:
            found[op] = Since(first, before)
    return found


def against(diff: Diff | None) -> dict[str, str]:
    """Return item -> how a new failure compares with the baseline; empty without a baseline."""
    return {} if diff is None else {change.id: "passed in the baseline" for change in diff.new_failures}


def notes(ops: Iterable[str], sinces: Mapping[str, Since], facts: Facts | None) -> list[tuple[str, str]]:
    """Return (operator, one line) for each of *ops* about which something is known.

    Since when it fails, and whose functions ran.
    """
    found = []
    for op in ops:
        said = [sinces[op].text] if op in sinces else []
        if (who := _who(op, facts)) is not None:
            said.append(who)
        if said:
            found.append((op, ". ".join(said)))
    return found


def _who(op: str, facts: Facts | None) -> str | None:
    """Return whose functions of the operator ran; None if the run does not record it."""
    if facts is None:
        return None
    own = [f"{one.name} ({one.origin})" for one in facts.functions if one.name.split(".")[0] == op and not one.by]
    if own:
        return f"Functions of plugins: {', '.join(own)}"
    return f"Engine: {facts.under_test}" if facts.under_test != "builtin" else "Functions: the built-in ones"
