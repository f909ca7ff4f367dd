"""Tells for every function of every plugin whether it was judged, not judged, or shadowed by a higher version."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from quantizer.conformance.run.facts import shown
from quantizer.core.facts import FunctionFacts
from quantizer.core.record import Record
from quantizer.ops import REGISTRY, Registration
from quantizer.ops.registry import BUILT_IN, OVERRIDE, FunctionKind

JUDGES: Mapping[FunctionKind, frozenset[str]] = {
    "reference": frozenset({"float", "tiled"}),
    "quantize": frozenset({"parameters"}),
    "quantized": frozenset({"arithmetic", "accuracy", "engine"}),
    "accumulate": frozenset({"exact", "tiled", "arithmetic", "accuracy"}),
    "function": frozenset({"parameters", "arithmetic", "accuracy"}),
    "tile": frozenset({"tiled"}),
}
"""Kind of function -> the checks that can pass or fail its results."""
SUMS_ALONE = frozenset({"exact"})


def account(records: Iterable[Record], platforms: Collection[str], root: Path) -> list[FunctionFacts]:
    """Return every registered function that is not built in, with how the run's items judged it."""
    judged: dict[tuple[str, str], set[str]] = {}
    for record in records:
        if record.kind == "cases":
            # inconclusive checks compared nothing
            said = {name for name, check in record.checks.items() if check.passed or check.failed}
            judged.setdefault((record.op, record.platform), set()).update(said)
    entries = [entry for entry in REGISTRY.all() if entry.origin not in (BUILT_IN, OVERRIDE)]
    found = [_function(entry, platforms, judged, root) for entry in entries]
    return sorted(found, key=lambda one: (one.name, one.origin))


def _function(
    entry: Registration, platforms: Collection[str], judged: Mapping[tuple[str, str], set[str]], root: Path
) -> FunctionFacts:
    name, origin = _name(entry), _origin(entry, root)
    where = [*platforms] if entry.platform is None else [entry.platform]
    runs = [platform for platform in where if _runs(entry, platform)]
    if not runs:
        winner = REGISTRY.find(entry.op, entry.kind, where[0]) if where else None
        by = f"{_name(winner)} ({_origin(winner, root)})" if winner is not None else "another function"
        return FunctionFacts(name=name, origin=origin, standing="shadowed", by=by)
    seen = any(not _judges(entry, platform).isdisjoint(judged.get((entry.op, platform), ())) for platform in runs)
    return FunctionFacts(name=name, origin=origin, standing="judged" if seen else "unjudged")


def _judges(entry: Registration, platform: str) -> frozenset[str]:
    """Return the checks that judge *entry*; exact sums that no integer forward uses are judged only by `exact`."""
    forward = REGISTRY.find(entry.op, "quantized", platform) if entry.kind == "accumulate" else None
    return JUDGES[entry.kind] if forward is None or forward is entry.finished else SUMS_ALONE


def _runs(entry: Registration, platform: str) -> bool:
    """Return whether *entry* runs on *platform*. A function of one input runs as the forward derived from it."""
    if entry.kind != "function":
        return REGISTRY.find(entry.op, entry.kind, platform) is entry
    made = (REGISTRY.find(entry.op, kind, platform) for kind in ("quantize", "quantized"))
    return any(one is not None and one in (entry.tabulated, entry.looked_up) for one in made)


def _name(entry: Registration) -> str:
    return str(entry).rpartition(" (")[0]


def _origin(entry: Registration, root: Path) -> str:
    path = Path(entry.origin)
    return shown(path, root) if path.suffix == ".py" else entry.origin


def line(one: FunctionFacts, ran: Collection[str], replacing: Collection[str]) -> str | None:
    """Return the terminal's line about a plugin function that no item judged; None for a judged one.

    *ran*: operators with an item that ran. *replacing*: built-in operators for which a plugin has a function.
    """
    op = one.name.partition(".")[0]
    said = f"{one.name} ({one.origin})"
    if one.standing == "judged":
        return None
    if one.standing == "shadowed":
        return f"not judged: {said} never runs: {one.by} runs in its place. Raise its version."
    if op in ran:
        return f"not judged: {said}: no check that ran covers it."
    if op in replacing:
        return f"not judged: {said} replaces a built-in, and no item of it ran. Add --op-shipped={op}."
    return f"not judged: {said}: no item of {op} ran."
