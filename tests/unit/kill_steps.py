"""What the writers that are killed write, and what must stand there afterwards."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from hashlib import sha256
from pathlib import Path

from quantizer.cli import main
from quantizer.conformance.campaign.journal import JOURNAL, Journal
from quantizer.conformance.campaign.plan import Plan
from quantizer.conformance.campaign.work import Tally
from quantizer.conformance.vectors.reading import opened
from quantizer.core.errors import QuantizerError
from quantizer.core.facts import Facts, SpecFacts, UnfinishedError
from quantizer.core.files import create_files, is_taken, replace_files
from quantizer.core.record import CheckRecord, Record
from quantizer.core.vectors import DIGESTS
from quantizer.reporting import history
from quantizer.reporting.store import FACTS, RECORDS, SUMMARY, read_run, read_run_facts, write_run
from quantizer.reporting.tally import summary_of

PLAN = Plan(("relu-a8-ideal",), 100, 1)
OLD, NEW = "old", "new"
HISTORIES = ("a history", "a history's end")
STEPS = 40
"""Steps of SQLite's machine between two of ours."""
SET = ("a.txt", "b.bin", "c.json")
NEW_SET = ("a.txt", "below/b.bin", "below/c.bin", "d.json")


def _records(word: str) -> list[Record]:
    checks = {"float": CheckRecord(passed=3, ratio=0.25 if word == OLD else 0.5)}
    return [
        Record(
            f"add-a{bits}-ideal", "add", "cases", "passed", scheme=f"a{bits}", platform="ideal", cases=3, checks=checks
        )
        for bits in (16, 8)
    ]


def _facts(word: str, shard: str = "") -> Facts:
    """Return run facts that identify these records: their digest stands for the arguments of the run."""
    digest = sha256("".join(one.to_json() for one in _records(word)).encode()).hexdigest()
    return Facts(
        quantizer="1",
        python="3.11",
        packages={},
        engine="builtin",
        profile="gate",
        seed=None,
        checks=["float"],
        selection=[],
        arguments=digest,
        files={},
        specs={"add": SpecFacts(version="1", path="op_specs/add.yaml", sha256="0" * 64, lines={})},
        shard=shard,
        items=sorted(one.id for one in _records(word)),
        exit=0,
    )


def _run(folder: Path, word: str, shard: str = "") -> None:
    write_run(folder, _records(word), summary_of(_records(word)), _facts(word, shard))


def _command(*words: str) -> None:
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        main([*words])


def watch_databases(step: Callable[..., int], number: int) -> None:
    """Call *step* at each statement of SQLite and between its steps, which it makes without our `os`.

    Steps at its end, where it writes the file, cannot be counted: a timer ends the process there, later each time.
    """
    connect = sqlite3.connect

    def said(text: str) -> None:
        if ENDING and text == "COMMIT":
            signal.setitimer(signal.ITIMER_REAL, 20e-6 * number)
        elif not ENDING:
            step()

    def watched(*args: object, **named: object) -> sqlite3.Connection:
        made = connect(*args, **named)  # type: ignore[call-overload]
        made.set_trace_callback(said)
        if not ENDING:
            made.set_progress_handler(step, STEPS)
        return made  # type: ignore[no-any-return]

    sqlite3.connect = watched  # type: ignore[assignment]


ENDING: list[str] = []
"""Not empty where the end of a transaction is what is killed."""


def after(what: str, step: int) -> int:
    """Return the step that is next: of a timer's, a later one by a quarter."""
    return step + 1 + (step // 4 if what == HISTORIES[1] else 0)


def prepare(what: str, folder: Path) -> None:
    """Make the old content the only content of *folder*."""
    shutil.rmtree(folder)
    folder.mkdir()
    os.chdir(folder)
    ENDING[:] = [what] if what == HISTORIES[1] else []
    if what in HISTORIES:
        _run(folder / "run", NEW)
        history.append(folder / "history", OLD, history.figures_of(_records(OLD), {}, {}))
    elif what in ("a run", "a merge"):
        _run(folder / "run", OLD)
        _run(folder / "shard", NEW, "1/1")
    elif what in ("a statement", "a page", "junit"):
        _run(folder / "run", OLD)
        write(what, folder)
        _run(folder / "run", NEW)
    elif what == "a journal":
        Journal(folder, PLAN).append(Tally(0, PLAN.targets[0]).to_json())
    elif what not in ("a new file", "new files", "an operator", "a bundle"):
        for name in SET if what == "a set" else SET[:1]:
            (folder / name).write_text(OLD)


def write(what: str, folder: Path) -> None:
    """Write the new content: the process is killed in this."""
    match what:
        case "one file":
            replace_files({folder / SET[0]: NEW})
        case "a new file":
            create_files({folder / SET[0]: NEW})
        case "new files":
            create_files(dict.fromkeys((folder / name for name in NEW_SET), NEW))
        case "a bundle":
            _command("vectors", "export", "--op", "relu", "--cases", "1", "-o", str(folder / "bundle"))
        case "a set":
            replace_files(dict.fromkeys((folder / name for name in SET), NEW))
        case "a run":
            _run(folder / "run", NEW)
        case "a merge":
            _command("report", "merge", str(folder / "shard"), "-o", str(folder / "run"))
        case "a statement":
            _command("report", "statement", str(folder / "run"), "-o", str(folder / "statement"))
        case "a page":
            _command("report", "html", str(folder / "run"), "-o", str(folder / "page.html"))
        case "junit":
            _command("report", "junit", str(folder / "run"), "-o", str(folder / "junit.xml"))
        case "an operator":
            _command("spec", "new", "my_op", "--kind", "elementwise")
        case "a history" | "a history's end":
            _command("report", "history", "add", str(folder / "history"), str(folder / "run"), "--name", NEW)
        case "a journal":
            Journal(folder, PLAN).append(Tally(1, PLAN.targets[0]).to_json())


def check(what: str, folder: Path) -> None:
    """Fail unless the content of *folder* is old, new, or recognisably incomplete."""
    match what:
        case "one file" | "a set":
            names = SET if what == "a set" else SET[:1]
            found = [(folder / name).read_text() if (folder / name).exists() else None for name in names]
            assert found[-1] is None or found in ([OLD] * len(names), [NEW] * len(names)), found
        case "new files":
            whole = [folder / name for name in NEW_SET if (folder / name).exists()]
            assert is_taken(folder) == (len(whole) == len(NEW_SET))
            assert is_taken(folder) or not list(folder.iterdir())
        case "a bundle":
            _check_bundle(folder / "bundle")
        case "a new file":
            assert not (folder / SET[0]).exists() or (folder / SET[0]).read_text() == NEW
        case "a run" | "a merge":
            _check_run(folder / "run")
        case "a statement":
            data, text = folder / "statement.json", folder / "statement.md"
            digest = json.loads(data.read_text())["records_sha256"]
            assert not text.exists() or digest in text.read_text()
        case "a page":
            assert (folder / "page.html").read_text().rstrip().endswith("</html>")
        case "junit":
            assert (folder / "junit.xml").read_text().rstrip().endswith("</testsuites>")
        case "an operator":
            made = sorted(path for path in folder.rglob("*.*") if path.is_file() and path.name[0] != ".")
            assert all(path.read_text().endswith("\n") for path in made), made
            if "my_op.yaml" not in {path.name for path in made}:
                write(what, folder)  # what a killed one left is no obstacle
                made = [path for path in folder.rglob("*.*") if path.is_file() and path.name[0] != "."]
            assert {path.name for path in made} == {"my_op.yaml", "my_op.py", "operator.schema.json"}
        case "a history" | "a history's end":
            _check_history(folder / "history")
        case "a journal":
            units = [entry["unit"] for entry in Journal(folder, PLAN).entries()]
            assert units in ([0], [0, 1]), units


def _check_history(file: Path) -> None:
    known = history.runs(file)
    assert known in ([OLD], [OLD, NEW]), known
    for name in known:
        assert history.of_run(file, name) == history.figures_of(_records(name), {}, {})


def _check_bundle(folder: Path) -> None:
    """Fail unless the bundle is whole, or one of other cases can be written in its place."""
    if not (folder / DIGESTS).exists():
        _command("vectors", "export", "--op", "abs", "--cases", "1", "-o", str(folder))
        assert not list(folder.rglob("relu*")), "parts of two bundles"
    with opened(folder):
        pass
    shutil.rmtree(folder)


def _check_run(folder: Path) -> None:
    try:
        facts = read_run_facts(folder) if (folder / FACTS).exists() else None
    except UnfinishedError:
        return  # it says itself that it is not whole
    if facts is None:
        return  # a folder without run.json is not a whole run
    records = "".join(one.to_json() for one in read_run(folder))
    assert facts.arguments == sha256(records.encode()).hexdigest(), "records and run.json are of two runs"
    summary = json.loads((folder / SUMMARY).read_text())
    assert summary == json.loads(json.dumps(summary_of(read_run(folder))))
    assert (folder / RECORDS).exists()


def check_new(what: str, folder: Path) -> None:
    """Fail unless the writer that was not killed left the new content."""
    check(what, folder)
    if what in ("one file", "a set", "a new file"):
        assert (folder / SET[0]).read_text() == NEW
    if what in ("a run", "a merge"):
        assert [one.to_json() for one in read_run(folder / "run")] == [one.to_json() for one in _records(NEW)]
    if what in HISTORIES:
        assert history.runs(folder / "history") == [OLD, NEW]
    if what == "an operator":
        assert {path.suffix for path in folder.rglob("my_op.*")} == {".yaml", ".py"}
    left = [path.name for path in folder.rglob(".*") if path.name != ".lock"]
    assert not left, left
    if what == "a journal":
        assert len((folder / JOURNAL).read_text().splitlines()) == 2


if __name__ == "__main__":
    try:
        write(sys.argv[1], Path(sys.argv[2]))
    except QuantizerError as err:
        sys.exit(str(err))
