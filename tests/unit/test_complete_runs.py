"""Completeness of runs: missing parts are named, and a folder has one writer at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from reporting_facts import facts, written

from quantizer import __version__
from quantizer.cli import main
from quantizer.conformance.run.finish import complete
from quantizer.conformance.run.state import Run
from quantizer.conformance.setup.options import Options
from quantizer.core.errors import CaseError
from quantizer.core.facts import FunctionFacts, PluginFacts
from quantizer.core.record import CheckRecord, Record
from quantizer.reporting.complete_run import IncompleteRunError, read_complete_run, read_either, unaccounted
from quantizer.reporting.folder import LOCK, RunFolder
from quantizer.reporting.statement import state
from quantizer.reporting.store import write_run
from quantizer.reporting.tally import summary_of

PASSED = Record("relu-a8-ideal", "relu", "cases", "passed", cases=1, checks={"arithmetic": CheckRecord(passed=1)})
OTHER = Record("conv2d-spec", "conv2d", "spec", "passed", checks={"spec": CheckRecord(passed=1)})
HOLDER = """
import sys
from pathlib import Path
from quantizer.reporting.folder import RunFolder
folder = RunFolder(Path(sys.argv[1]))
folder.claim()
print("has it", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"exit": 2}, "pytest ended with exit status 2."),
        ({"lacks": ["3 items did not run."]}, "3 items did not run."),
        (
            {"items": ["conv2d-spec", "relu-a8-ideal", "relu-golden"]},
            "1 item is without a record, such as relu-golden.",
        ),
        ({"items": ["conv2d-spec"]}, "1 item is of the records not collected, such as relu-a8-ideal."),
        ({"items": []}, "2 items are of the records not collected, such as conv2d-spec."),
    ],
)
def test_an_incomplete_run_names_what_is_missing(tmp_path: Path, changes: dict[str, object], says: str) -> None:
    folder = written(tmp_path / "run", [PASSED, OTHER], **changes)
    with pytest.raises(IncompleteRunError) as err:
        read_complete_run(folder)
    assert str(err.value) == f"{folder}: is not whole: {says} Run again."
    with pytest.raises(IncompleteRunError):
        read_either(folder / "records.jsonl")
    assert main(["report", "show", str(folder)]) == 0


def test_a_summary_that_contradicts_its_records_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    known = facts(items=["conv2d-spec", "relu-a8-ideal"], quantizer=__version__)
    write_run(folder, [PASSED, OTHER], summary_of([PASSED, OTHER]), known)
    assert len(read_complete_run(folder)[0]) == 2
    write_run(folder, [PASSED, OTHER], summary_of([PASSED, replace(OTHER, outcome="failed")]), known)
    with pytest.raises(IncompleteRunError, match="summary.json does not sum up records.jsonl"):
        read_complete_run(folder)


def test_a_records_file_changed_after_the_run_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", [PASSED, OTHER])
    assert [record.id for record in read_complete_run(folder)[0]] == ["conv2d-spec", "relu-a8-ideal"]
    file = folder / "records.jsonl"
    file.write_text(file.read_text().replace('"passed":1', '"passed":2'))
    with pytest.raises(IncompleteRunError, match="records.jsonl is not the one that run.json was written with"):
        read_complete_run(folder)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"checks": {"arithmetic": CheckRecord(passed=3, failed=1)}}, "arithmetic: passed, and 1 failed"),
        ({"checks": {"arithmetic": CheckRecord(inconclusive=4)}}, "passed, and no check passed"),
        ({"checks": {"arithmetic": CheckRecord(passed=9)}}, "arithmetic: 9 verdicts of 4 cases"),
        (
            {"checks": {"arithmetic": CheckRecord(passed=4, elements=2, vacuous=3)}},
            "arithmetic: 3 vacuous elements of 2",
        ),
        (
            {"checks": {"arithmetic": CheckRecord(passed=4, ratio=1.5)}},
            "arithmetic: a ratio of 1.5, and none failed",
        ),
        (
            {"checks": {"arithmetic": CheckRecord(passed=4), "float": CheckRecord(elements=2)}},
            "float: 2 elements, and no verdict",
        ),
        ({"data_sets": 3}, "4 cases, and 3 data sets"),
    ],
)
def test_a_self_contradictory_record_is_refused(tmp_path: Path, changes: dict[str, object], says: str) -> None:
    record = Record(
        "relu-a8-ideal", "relu", "cases", "passed", cases=4, checks={"arithmetic": CheckRecord(passed=4, ratio=1.0)}
    )
    assert read_complete_run(written(tmp_path / "right", [record]))
    folder = written(tmp_path / "run", [replace(record, **changes)])
    with pytest.raises(IncompleteRunError) as err:
        read_complete_run(folder)
    assert str(err.value) == f"{folder}: is not whole: record relu-a8-ideal contradicts itself: {says}. Run again."


def test_a_records_file_can_be_compared_but_not_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path / "run", [PASSED])
    (tmp_path / "base.jsonl").write_bytes((folder / "records.jsonl").read_bytes())
    assert main(["report", "diff", str(tmp_path / "base.jsonl"), str(folder)]) == 0
    assert main(["report", "show", str(folder), "--check"]) == 0
    assert main(["report", "show", str(tmp_path / "base.jsonl"), "--check"]) == 2
    assert "whether its run is whole cannot be told" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("records", "status", "says"),
    [
        ([PASSED], 1, "pytest ended with exit status 1, and no item fails: something else did."),
        ([Record("relu-a8-ideal", "relu", "cases", "skipped")], 0, "No item passed: nothing was judged."),
        ([Record("relu-a8-ideal", "relu", "cases", "failed"), OTHER], 1, "1 of 2 items fail, such as relu-a8-ideal."),
    ],
)
def test_a_complete_run_may_fail_its_check(
    tmp_path: Path, records: list[Record], status: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path / "run", records, exit=status)
    assert main(["report", "show", str(folder), "--check"]) == 1
    assert capsys.readouterr().err == f"check: {says}\n"
    assert state(*read_complete_run(folder)).result == "does not conform"


def test_an_unjudged_plugin_fails_and_is_not_in_the_statement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = [
        FunctionFacts(name="relu.quantized 2", origin="good.py", standing="judged"),
        FunctionFacts(
            name="relu.quantized 1.5", origin="good.py", standing="shadowed", by="relu.quantized 2 (good.py)"
        ),
        FunctionFacts(name="relu.quantized 0.5", origin="old.py", standing="shadowed", by="relu.quantized 2 (good.py)"),
        FunctionFacts(name="add.quantized 2", origin="odd.py", standing="unjudged"),
    ]
    plugins = [PluginFacts(name=name, origin=f"{name}.py", operators=["relu"]) for name in ("good", "old", "odd")]
    folder = written(tmp_path / "run", [PASSED], functions=told, plugins=plugins)
    wanted = [
        "relu.quantized 0.5 (old.py): relu.quantized 2 (good.py) runs in its place.",
        "add.quantized 2 (odd.py): no item of the run judged it.",
    ]
    assert unaccounted(facts(functions=told)) == wanted
    assert main(["report", "show", str(folder), "--check"]) == 1
    assert capsys.readouterr().err == "".join(f"check: not judged: {text}\n" for text in wanted)
    found = state(*read_complete_run(folder))
    assert found.result == "does not conform"
    assert [plugin.name for plugin in found.plugins] == ["good"]
    assert [gap.reason for gap in found.gaps if gap.what == "plugin"] == [f"not judged: {text}" for text in wanted]


def test_a_folder_is_invalid_while_a_run_owns_it(tmp_path: Path) -> None:
    path = written(tmp_path / "run", [PASSED])
    before = (path / "run.json").read_bytes()
    folder = RunFolder(path)
    folder.claim()
    with pytest.raises(IncompleteRunError, match="the session that writes it has not ended, or was killed. Run again."):
        read_complete_run(path)
    folder.restore()
    folder.release()
    assert (path / "run.json").read_bytes() == before
    read_complete_run(path)


def test_a_full_disk_invalidates_the_older_run(tmp_path: Path) -> None:
    path = written(tmp_path / "run", [PASSED])
    script = (  # a limit on the size of files stands for a full disk: every write fails, removing does not
        "import resource, signal, sys; from pathlib import Path; from quantizer.reporting.folder import RunFolder\n"
        "folder = RunFolder(Path(sys.argv[1])); signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); folder.claim()\n"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False)
    assert "cannot be written" in ended.stderr
    assert "The older run there is no longer whole" in ended.stderr
    with pytest.raises(IncompleteRunError, match="holds no run.json"):
        read_complete_run(path)


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "has it\n"
        with pytest.raises(CaseError, match="run: another run writes into this folder"):
            RunFolder(path).claim()
        holder.kill()
    folder = RunFolder(path)
    folder.claim()
    folder.release()
    assert {file.name for file in path.iterdir()} <= {LOCK, "run.json"}


def test_records_survive_a_killed_session(tmp_path: Path) -> None:
    path = written(tmp_path / "run", [OTHER])
    folder = RunFolder(path)
    folder.claim()
    folder.note(PASSED.to_json())
    assert [json.loads(line)["id"] for line in (path / "records.jsonl").read_text().splitlines()] == ["relu-a8-ideal"]
    assert main(["report", "show", str(path)]) == 0
    assert main(["report", "show", str(path), "--check"]) == 2
    folder.release()


def test_a_file_without_a_record_is_not_a_run(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    file.touch()
    with pytest.raises(CaseError, match="holds no record"):
        read_either(file)


def test_records_of_workers_are_sorted_by_id(tmp_path: Path) -> None:
    """Results derived from the order of records are therefore the same in every process."""
    names = [f"relu-{scheme}-{platform}" for scheme in ("a8", "a8s", "a16") for platform in ("ort", "tosa", "ideal")]
    for brought in (names, names[::-1]):
        run = Run()
        for name in brought:
            run.items[f"relu.yaml::{name}"] = None
            run.records[f"relu.yaml::{name}"] = replace(PASSED, id=name).to_json()
        found = complete(run, Options(root=tmp_path), [], pytest.ExitCode.OK)
        assert [record.id for record in found] == sorted(names)
