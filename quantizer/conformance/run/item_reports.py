"""Adds an item's record to its pytest report, so that the record reaches the main process of xdist."""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from quantizer.conformance.run.stash_keys import CANARY, STATE

if TYPE_CHECKING:
    from quantizer.conformance.run.collection import ItemState
    from quantizer.core.record import Record


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Add the item's record to the report, which crosses process borders, and its figures to JUnit.

    Setup and teardown make a record only if they fail or skip, because only the gate itself may leave an item out.
    """
    if STATE not in item.stash or (call.when != "call" and call.excinfo is None):
        return (yield)
    state = item.stash[STATE]
    record = _record(state, call)
    ended = None if call.excinfo else state.ended(record)
    if ended is not None:
        record = state.record(*ended)
    figures = {"op": record.op, "scheme": record.scheme, "platform": record.platform, "cases": record.cases}
    item.user_properties += [(name, value) for name, value in figures.items() if value]
    item.user_properties.append(("rerun", state.rerun))
    if record.checks:
        worst = max(check.ratio for check in record.checks.values())
        item.user_properties.append(("ratio", f"{worst:.6g}"))
    report = yield
    if report.failed and (told := _told()):
        report.sections.append(("the process of plugins", told))
    # pytest counts the item as passed, but its record says otherwise
    if ended is not None:
        text = f"{state.name}: {record.failure}"
        report.outcome = ended[0]
        report.longrepr = text if report.failed else (str(item.path), 0, f"Skipped: {text}")
    report.op_record = record.to_json()
    report.op_replaced = state.replaced()
    report.op_changes = state.changes()
    report.op_spec = (record.op, state.facts.model_dump())
    if report.passed and state.kind == "cases":
        report.op_witnessed = _offer(item, state)
    return report


def _told() -> str:
    """Return the last traceback of the process of plugins, and what it printed."""
    plugins = sys.modules.get("quantizer.runtime.isolation.plugins")
    return "" if plugins is None else "\n".join(filter(None, (one.host.told() for one in plugins.CURRENT)))


def _record(state: ItemState, call: pytest.CallInfo[None]) -> Record:
    """Return the item's record; its outcome is "skipped" only if the engine or a declaration leaves the item out."""
    if call.excinfo is None:
        return state.record("passed")
    said = (str(call.excinfo.value).splitlines() or [""])[0]
    if call.when != "call":
        return state.record("failed", f"{call.when}: {call.excinfo.typename}: {said}")
    if not call.excinfo.errisinstance((pytest.skip.Exception, pytest.xfail.Exception)):
        return state.record("failed", f"{call.excinfo.typename}: {said}")
    if state.left_out is not None:
        return state.record("skipped")
    return state.record("failed", f"was skipped by something else than the gate: {said}")


def _offer(item: pytest.Item, state: ItemState) -> bool:
    """Remember an item that passed, for the canary at the end; return whether a fault can be planted in it."""
    from quantizer.conformance.run.canary import Canary
    from quantizer.conformance.run.collection import State

    assert isinstance(state, State), "only operators have items of cases"
    item.config.stash.setdefault(CANARY, Canary()).offer(item, state)
    return state.runner.witness is not None
