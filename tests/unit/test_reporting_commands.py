"""`quantizer report`: what it prints where, and with which status it ends."""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from reporting_facts import written

from quantizer.cli import main
from quantizer.core.record import CheckRecord, Record
from quantizer.reporting import commands, diff_views, thresholds
from quantizer.reporting.store import record_lines

OK = CheckRecord(passed=10, ratio=0.5, elements=100)


def call(*argv: object) -> int:
    parser = argparse.ArgumentParser(prog="quantizer")
    commands.add_parser(parser.add_subparsers(dest="command", required=True))
    return commands.run(parser.parse_args(["report", *map(str, argv)]))


def item(name: str = "a", outcome: str = "passed", ratio: float = 0.5) -> Record:
    return Record(name, name, "cases", outcome, cases=10, checks={"accuracy": replace(OK, ratio=ratio)})


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a folder without project thresholds."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "base.jsonl").write_text(record_lines([item(), item("b")]))
    return tmp_path / "base.jsonl"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return written(tmp_path / "out", [item(outcome="failed"), item("b", ratio=0.7)])


def test_a_report_alone_never_fails(base: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("diff", base, run) == 0
    out, err = capsys.readouterr()
    assert out.startswith("2 items before, 2 now: 1 new failure, 1 error grown.\n")
    assert err == ""


def test_reasons_to_fail_go_to_stderr_with_status_1(base: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("diff", base, run, "--format", "json", "--fail-on", "new-failure,regression") == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["new_failures"][0]["id"] == "a"
    assert err == (
        "gate: a: failed, and passed in the baseline.\n"
        "gate: b: the worst accuracy ratio grew from 0.5 to 0.7, by more than 1.25 times.\n"
    )


def test_only_requested_reasons_fail_a_diff(base: Path, run: Path) -> None:
    assert call("diff", base, run, "--fail-on", "coverage") == 0
    assert call("diff", base, run, "--fail-on", "regression", "--factor", "1.5") == 0
    assert call("diff", base, run, "--fail-on", "regression", "--factor", "1.3") == 1
    assert call("diff", base, base, "--fail-on", "new-failure,regression,coverage") == 0


def test_a_selection_is_declared(base: Path, tmp_path: Path) -> None:
    written(tmp_path / "part", [item()])
    assert call("diff", base, tmp_path / "part", "--fail-on", "coverage") == 1
    assert call("diff", base, tmp_path / "part", "--fail-on", "coverage", "--filtered") == 0


def test_many_reasons_are_counted(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path / "bad", [item(f"x{n:03}", "failed") for n in range(60)])
    assert call("diff", base, tmp_path / "bad", "--fail-on", "new-failure") == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 51
    assert lines[-1] == "gate: and 10 more reasons"


@pytest.mark.parametrize("form", ["terminal", "markdown", "json"])
def test_the_same_runs_give_the_same_bytes(
    base: Path, run: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("diff", base, run, "--format", form) == 0
    first = capsys.readouterr().out
    assert call("diff", base, run / "records.jsonl", "--format", form) == 0
    assert capsys.readouterr().out == first
    assert first.endswith("\n")


def test_a_missing_file_is_one_line_and_status_2(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("diff", base, tmp_path / "nowhere") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        f"error: {tmp_path / 'nowhere'}: cannot be read: no such file or directory. Name the directory of a run, or a records file.\n"
    )


def test_a_broken_line_is_one_line_and_status_2(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text(base.read_text() + "{oops\n")
    assert call("diff", broken, base) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"error: {broken}:3: not JSON: ")
    broken.write_text('{"version":1,"id":3,"op":4,"kind":"cases","outcome":"passed"}\n')
    assert call("diff", base, broken) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith(f"error: {broken}:1: id: ")
    assert err.endswith("(1 more like it.)\n")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--fail-on", "speed"], "argument --fail-on: 'speed' is not a reason to fail. Choose from new-failure,"),
        (["--fail-on", ","], "argument --fail-on: names no reason to fail."),
        (["--factor", "0.5"], "argument --factor: must be a number of 1 or more, got '0.5'."),
        (["--factor", "nan"], "argument --factor: must be a number of 1 or more, got 'nan'."),
        (["--factor", "x"], "argument --factor: must be a number of 1 or more, got 'x'."),
        (["--lsb", "-0.1"], "argument --lsb: must be a number of 0 or more, got '-0.1'."),
        (["--format", "html"], "argument --format: invalid choice: 'html'"),
    ],
)
def test_a_bad_flag_is_status_2(argv: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        call("diff", "a", "b", *argv)
    assert stop.value.code == 2
    assert says in capsys.readouterr().err


def test_help_tells_statuses_and_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        call("diff", "--help")
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for word in ("BASE", "RUN", "--factor", "--filtered", "exit status: 0", "examples:", *thresholds.FAIL_ON):
        assert word in text


def test_report_options_match_the_gate_and_the_views(base: Path) -> None:
    parser = argparse.ArgumentParser()
    commands.add_parser(parser.add_subparsers())
    args = parser.parse_args(["report", "diff", "x", "y", "--fail-on", ",".join(thresholds.FAIL_ON)])
    assert args.fail_on == set(thresholds.FAIL_ON)
    assert (args.factor, args.lsb) == (None, None)
    for form in diff_views.FORMATS:
        assert parser.parse_args(["report", "diff", "x", "y", "--format", form]).format == form


def test_a_poor_encoding_gets_escapes(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "out", [replace(item(outcome="failed"), failure="\u00d7 off"), item("b")])
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    assert main(["report", "diff", str(base), str(tmp_path / "out")]) == 0
    assert b"\\xd7 off" in raw.getvalue()


def test_report_diff_imports_no_heavy_modules() -> None:
    probe = (
        "import sys, quantizer.reporting.commands as c, quantizer.reporting.diff, quantizer.reporting.gate\n"
        "import quantizer.reporting.diff_views, quantizer.reporting.store\n"
        "print(sorted({'torch', 'numpy', 'pydantic', 'yaml', 'pytest', 'hypothesis', '_pytest'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(("form", "begins"), [("terminal", "op  scheme"), ("markdown", "## Conformance\n")])
def test_one_run_is_shown_with_its_coverage(
    run: Path, capsys: pytest.CaptureFixture[str], form: str, begins: str
) -> None:
    assert call("show", run, "--format", form) == 0
    out, err = capsys.readouterr()
    assert out.startswith(begins)
    assert "overage" in out
    assert err == ""
