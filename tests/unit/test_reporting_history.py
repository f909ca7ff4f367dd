"""The history: appended by many at once, whole or not at all, never overwritten where it is damaged."""

from __future__ import annotations

import csv
import io
import json
import math
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from reporting_facts import written

from quantizer.cli import main
from quantizer.core.errors import CaseError
from quantizer.core.record import CheckRecord, Record
from quantizer.reporting.history import Figures, append, figures_of, merge, of_run, prune, ratios, runs, trend
from quantizer.reporting.store import write_timings

FIGURES = Figures(0.5, 30.0, 1.5, 10, 0, 2, 7, 8)
WRITERS = 20


@pytest.fixture
def file(tmp_path) -> Path:
    return tmp_path / "history.sqlite"


def test_appended_runs_are_read_back_in_order(file):
    for name, ratio in (("b", 0.5), ("a", math.inf)):
        append(file, name, {"add": Figures(ratio, None, None, 1, 0, 0, None, None), "relu": FIGURES})
    assert runs(file) == ["b", "a"]
    assert of_run(file, "b") == {"add": Figures(0.5, None, None, 1, 0, 0, None, None), "relu": FIGURES}
    assert [(op, name, f.ratio) for op, name, f in trend(file, op="add")] == [("add", "b", 0.5), ("add", "a", math.inf)]


def test_the_figures_of_a_run_are_its_worst():
    checks = {"accuracy": CheckRecord(passed=1, ratio=0.3), "arithmetic": CheckRecord(passed=1, ratio=1.0)}
    records = [
        Record("add-1", "add", "cases", "passed", cases=4, checks=checks, metrics={"sqnr_db": 20.0}),
        Record("add-2", "add", "cases", "failed", cases=5, checks=checks, metrics={"sqnr_db": 10.0}, gaps=("x",)),
        Record("add-golden", "add", "golden", "passed"),
    ]
    assert figures_of(records, {"add-1": 1.0, "add-2": 0.25, "relu-1": 9.0}, {"add": (5, 6)}) == {
        "add": Figures(0.3, 10.0, 1.25, 9, 1, 1, 5, 6)
    }
    assert figures_of(records[2:], {}, {})["add"] == Figures(0.0, None, None, 0, 0, 0, None, None)


def test_concurrent_appends_lose_nothing(file):
    code = (
        "import sys; from pathlib import Path; from quantizer.reporting.history import Figures, append;"
        "append(Path(sys.argv[1]), sys.argv[2], {'add': Figures(0.5, None, None, 1, 0, 0, None, None)})"
    )
    started = [subprocess.Popen([sys.executable, "-c", code, str(file), f"run{i}"]) for i in range(WRITERS)]
    assert [process.wait() for process in started] == [0] * WRITERS
    assert sorted(runs(file)) == sorted(f"run{i}" for i in range(WRITERS))
    assert len(trend(file)) == WRITERS


def test_a_killed_writer_leaves_the_old_history(file):
    append(file, "before", {"add": FIGURES})
    code = (
        "import os, signal, sys; from pathlib import Path; from quantizer.reporting import history as h\n"
        "with h._writing(Path(sys.argv[1])) as database:\n"
        "    database.execute('PRAGMA cache_size = 1')\n"
        "    figures = {f'op{i}': h.Figures(0.5, None, None, 1, 0, 0, None, None) for i in range(5000)}\n"
        "    h._add(database, 'half', figures, Path(sys.argv[1]))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    size = file.stat().st_size
    killed = subprocess.run([sys.executable, "-c", code, str(file)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert file.stat().st_size > size, "the writer never reached the file: the test shows nothing"
    assert runs(file) == ["before"]
    append(file, "after", {"add": FIGURES})
    assert runs(file) == ["before", "after"]


@pytest.mark.parametrize("place", [0, 20, 100, 4096 + 3])
def test_a_damaged_history_is_refused_and_not_changed(file, place):
    append(file, "r", {f"op{i}": FIGURES for i in range(200)})
    damaged = bytearray(file.read_bytes())
    damaged[place : place + 64] = b"\xa5" * 64
    file.write_bytes(damaged)
    with pytest.raises(CaseError, match="left as it is|Use the quantizer"):
        append(file, "s", {"add": FIGURES})
    with pytest.raises(CaseError):
        runs(file)
    assert file.read_bytes() == bytes(damaged)


def test_a_file_of_something_else_is_refused(tmp_path, file):
    text = tmp_path / "notes.txt"
    text.write_text("notes")
    with pytest.raises(CaseError, match="is not a SQLite file"):
        append(text, "r", {"add": FIGURES})
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE other (x)")
    database.close()
    with pytest.raises(CaseError, match="of something else"):
        append(file, "r", {"add": FIGURES})
    with pytest.raises(CaseError, match="no such file"):
        runs(tmp_path / "none.sqlite")


def test_the_same_run_twice_is_refused_whole(file):
    append(file, "r", {"add": FIGURES})
    with pytest.raises(CaseError, match="'r' holds 'add' already"):
        append(file, "r", {"relu": FIGURES, "add": FIGURES})
    assert list(of_run(file, "r")) == ["add"]


def test_shards_of_one_name_merge_into_one_run(tmp_path, file):
    shards = [tmp_path / "1.sqlite", tmp_path / "2.sqlite"]
    for shard, op in zip(shards, ("add", "relu"), strict=True):
        append(shard, "commit", {op: FIGURES})
    merge(file, shards)
    assert runs(file) == ["commit"]
    assert list(of_run(file, "commit")) == ["add", "relu"]
    with pytest.raises(CaseError, match="already"):
        merge(file, shards[:1])


def test_pruning_keeps_the_newest(file):
    for name in "abcde":
        append(file, name, {"add": FIGURES})
    assert prune(file, 2) == 3
    assert (runs(file), prune(file, 2)) == (["d", "e"], 0)
    assert [name for _, name, _ in trend(file)] == ["d", "e"]


def test_an_operator_that_did_not_run_is_a_gap(file):
    for name, ops in (("a", ["add", "relu"]), ("b", ["add"]), ("c", ["add", "relu"])):
        append(file, name, dict.fromkeys(ops, FIGURES))
    assert ratios(file) == {"add": [0.5, 0.5, 0.5], "relu": [0.5, None, 0.5]}
    assert ratios(file, last=2)["relu"] == [None, 0.5]


def test_the_commands_add_and_export(tmp_path, file, capsys):
    run = [Record("add-a8", "add", "cases", "passed", cases=3, checks={"accuracy": CheckRecord(passed=3, ratio=0.25)})]
    written(tmp_path / "run", run)
    write_timings(tmp_path / "run", {"add-a8": 2.0})
    assert main(["report", "history", "add", str(file), str(tmp_path / "run"), "--name", "one"]) == 0
    capsys.readouterr()
    assert main(["report", "history", "trend", str(file), "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["op"], row["run"], row["ratio"], row["seconds"]) == ("add", "one", 0.25, 2.0)
    assert main(["report", "history", "trend", str(file), "--format", "csv"]) == 0
    (line,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (line["ratio"], line["killed"]) == ("0.25", "")
    append(file, "two", {"add": replace(FIGURES, ratio=1.0000004, seconds=0.1 + 0.2)})
    assert main(["report", "history", "trend", str(file)]) == 0
    rows = [line.split()[1:5] for line in capsys.readouterr().out.splitlines()[2:]]
    assert rows == [["one", "0.25", "-", "2"], ["two", "1.01", "30", "0.3"]]
    assert main(["report", "history", "trend", str(file), "--op", "conv"]) == 2
    assert "no run of" in capsys.readouterr().err
    assert main(["report", "html", str(tmp_path / "run"), "--history", str(file), "-o", str(tmp_path / "r.html")]) == 0
    assert "worst ratio, run by run" in (tmp_path / "r.html").read_text()
