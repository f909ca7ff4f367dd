"""Campaigns: deterministic cases, no unit lost or counted twice, one shrunk failure per cause."""

from __future__ import annotations

import concurrent.futures as cf
import errno
import itertools
import json
import os
from pathlib import Path

import pytest

from quantizer.conformance.campaign import control, work
from quantizer.conformance.campaign.control import run_campaign, store_failures
from quantizer.conformance.campaign.journal import JOURNAL, Journal
from quantizer.conformance.campaign.plan import BATCH, UNIT, Plan
from quantizer.conformance.campaign.record import Totals, markdown
from quantizer.conformance.campaign.work import Tally
from quantizer.core.case import Case
from quantizer.core.errors import CaseError, UnsupportedError
from quantizer.ops import REGISTRY, load_built_ins

PLAN = Plan(("relu-a8-ideal", "add-a8-ort"), examples=2 * UNIT + 30, seed=3)


class AtOnce(cf.Executor):
    """An executor that runs each call immediately."""

    def submit(self, function, /, *args, **kwargs):
        future: cf.Future = cf.Future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as err:  # noqa: BLE001 - as an executor
            future.set_exception(err)
        return future


class Falls(AtOnce):
    """Breaks whenever one unit is among its tasks, as a pool of processes does: with all that are under way."""

    deadly = 1

    def __init__(self) -> None:
        self.broken = False

    def submit(self, function, /, *args, **kwargs):
        if self.broken:
            raise cf.BrokenExecutor
        if function is work.run_unit and args[1] == self.deadly:
            self.broken = True
            future: cf.Future = cf.Future()
            future.set_exception(cf.BrokenExecutor())
            return future
        return super().submit(function, *args, **kwargs)


def record(plan: Plan, folder: Path, start=AtOnce, workers: int = 2) -> dict:
    totals = run_campaign(plan, Journal(folder, plan), start, workers)
    return totals.record(plan, "tree")


def test_units_distribute_examples_over_all_targets() -> None:
    units = list(PLAN.units())
    assert [unit.examples for unit in units] == [UNIT, UNIT, 30]
    assert [unit.target for unit in units] == ["relu-a8-ideal", "add-a8-ort", "relu-a8-ideal"]
    assert [unit.examples for unit in Plan(PLAN.targets, 100).units()] == [BATCH, 100 - BATCH], (
        "each has its share of few"
    )
    endless = Plan(PLAN.targets, None).units()
    assert [unit.number for unit in itertools.islice(endless, 4)] == [0, 1, 2, 3]
    assert Plan.from_json(PLAN.to_json(), "here") == PLAN


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"targets": 3}', "null"])
def test_an_invalid_plan_is_refused(text: str) -> None:
    with pytest.raises(CaseError, match="not the plan of a campaign"):
        Plan.from_json(text, "here")


def test_the_record_is_the_same_for_any_number_of_workers(tmp_path: Path) -> None:
    found = [record(PLAN, tmp_path / str(n), workers=n) for n in (1, 2, 5)]
    assert found[0] == found[1] == found[2]
    assert found[0]["examples"] == PLAN.examples
    assert found[0]["alarms"] == 0
    assert sum(found[0]["checks"]["relu"]["arithmetic"].values()) == UNIT + 30
    assert "| relu" in markdown(found[0])


def test_an_interrupted_campaign_resumes(tmp_path: Path) -> None:
    whole = record(PLAN, tmp_path / "whole")
    journal = Journal(tmp_path / "cut", PLAN)
    first = next(iter(PLAN.units()))
    journal.append(work.run_unit(PLAN.to_json(), first.number, first.target, first.examples))
    with (tmp_path / "cut" / JOURNAL).open("ab") as stream:
        stream.write(b'{"unit": 1, "exam')
    assert record(PLAN, tmp_path / "cut") == whole
    assert record(PLAN, tmp_path / "cut") == whole, "a finished campaign runs nothing"


def test_a_campaign_resumes_after_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run_campaign(PLAN, Journal(tmp_path / "whole", PLAN), AtOnce, 1)
    folder = tmp_path / "full"
    lines = [Tally(0, "relu-a8-ideal").to_json()]
    journal = Journal(folder, PLAN)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(CaseError, match="journal.jsonl: cannot be written: no space left on device. Make room"):
            journal.append(lines[0])
    (folder / JOURNAL).write_text(lines[0][:20])  # what a full disk leaves of a line
    assert run_campaign(PLAN, Journal(folder, PLAN), AtOnce, 1).record(PLAN, "t") == whole.record(PLAN, "t")


def test_a_repeated_journal_line_counts_once(tmp_path: Path) -> None:
    whole = record(PLAN, tmp_path)
    lines = (tmp_path / JOURNAL).read_text().splitlines()
    (tmp_path / JOURNAL).write_text("\n".join([*lines, lines[0]]) + "\n")
    assert record(PLAN, tmp_path) == whole


def test_a_folder_of_another_campaign_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path, PLAN)
    with pytest.raises(
        UnsupportedError, match=rf"holds another campaign \(seed 3, {PLAN.examples} examples of 2 targets\)"
    ):
        Journal(tmp_path, Plan(PLAN.targets, PLAN.examples, seed=4))


def test_a_campaign_folder_of_another_seed_scheme_is_refused(tmp_path: Path) -> None:
    old = {name: value for name, value in json.loads(PLAN.to_json()).items() if name != "version"}
    (tmp_path / "plan.json").write_text(json.dumps(old))
    with pytest.raises(UnsupportedError, match="holds another campaign"):
        Journal(tmp_path, PLAN)


def test_a_damaged_journal_is_named_with_its_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path, PLAN)
    (tmp_path / JOURNAL).write_text(Tally(0, "relu-a8-ideal").to_json() + "\nnonsense\n")
    with pytest.raises(CaseError, match=rf"{JOURNAL}:2: not JSON.*: this is not an entry of a journal"):
        list(journal.entries())
    (tmp_path / JOURNAL).write_text('{"unit": 0, "target": "relu-a8-ideal"}\n')
    with pytest.raises(CaseError, match=rf"{JOURNAL}:1: not an entry of a journal: .*missing"):
        list(journal.entries())


def test_one_failure_is_kept_per_cause_with_its_smallest_case(tmp_path: Path) -> None:
    load_built_ins()
    honest = REGISTRY.get("relu", "quantized", "ideal")

    def wrong(x, *, parameters):
        return (honest(x, parameters=parameters) + 1).clamp(max=parameters.outputs["y"].qmax)

    with REGISTRY.overridden("relu", "quantized", wrong, "ideal"):
        totals = run_campaign(PLAN, Journal(tmp_path, PLAN), AtOnce, 2)
    (cause,) = totals.failures
    assert cause == "relu ideal arithmetic: y"
    failure = totals.failures[cause]
    assert failure.count > UNIT
    assert failure.is_shrunk
    smallest, first = (Case.from_json(text, "here") for text in (failure.smallest, failure.case))
    assert max(smallest.shapes["x"]) == 1 <= max(first.shapes["x"])
    (path,) = store_failures(totals, tmp_path / "failures")
    assert json.loads(path.read_text())["case"] == smallest.to_dict()
    again = Totals()
    for entry in reversed(list(Journal(tmp_path, PLAN).entries())):
        if "shrunk" not in entry:
            again.add(entry)
    assert again.failures[cause].case == failure.case, "the earliest failure, in whatever order units end"


def test_a_unit_that_crashes_its_process_is_named(tmp_path: Path) -> None:
    totals = run_campaign(PLAN, Journal(tmp_path, PLAN), Falls, 4)
    assert totals.units == {0, 1, 2}
    assert totals.examples == UNIT + 30
    assert list(totals.failures) == ["add-a8-ort: the process that ran it ended 3 times: BrokenExecutor"]


def test_units_of_lost_workers_are_run_again(tmp_path: Path) -> None:
    tries = itertools.count()

    class Unreliable(AtOnce):
        def submit(self, function, /, *args, **kwargs):
            if next(tries) % 2 == 0:
                future: cf.Future = cf.Future()
                future.set_exception(RuntimeError("worker lost"))
                return future
            return super().submit(function, *args, **kwargs)

    assert record(PLAN, tmp_path / "a", Unreliable) == record(PLAN, tmp_path / "b")


def test_a_case_that_cannot_be_built_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> Case:
        raise ValueError("no such shape")

    monkeypatch.setattr(work, "member", breaks)
    totals = run_campaign(PLAN, Journal(tmp_path, PLAN), AtOnce, 1)
    assert set(totals.failures) == {
        f"{target}: no case could be built: ValueError: no such shape" for target in PLAN.targets
    }
    assert store_failures(totals, tmp_path / "failures") == []


def test_no_unit_starts_after_the_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()
    monkeypatch.setattr(control.time, "monotonic", lambda: next(clock))
    endless = Plan(PLAN.targets, None)
    totals = run_campaign(endless, Journal(tmp_path, endless), AtOnce, 1, seconds=4)
    assert 0 < len(totals.units) < 6
