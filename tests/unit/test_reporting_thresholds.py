"""Thresholds of a project: read from tox.ini or pyproject.toml, wrong keys refused; errors in LSB."""

from __future__ import annotations

from pathlib import Path

import pytest
from reporting_facts import written

from quantizer.cli import main
from quantizer.core.errors import SpecError
from quantizer.core.record import CheckRecord, Record
from quantizer.reporting.diff import compare
from quantizer.reporting.diff_views import render
from quantizer.reporting.gate import gate
from quantizer.reporting.thresholds import Thresholds, read_thresholds


def item(error: float | None, ratio: float = 0.999, name: str = "add-a8-ideal") -> Record:
    metrics = {} if error is None else {"error_lsb": error}
    return Record(
        name,
        "add",
        "cases",
        "passed",
        cases=9,
        metrics=metrics,
        checks={"accuracy": CheckRecord(passed=9, ratio=ratio, elements=90)},
    )


def test_an_error_in_lsb_may_grow_without_the_ratio() -> None:
    found = compare(
        [item(0.5), item(0.7, name="b"), item(None, name="c")], [item(0.8), item(0.6, name="b"), item(0.9, name="c")]
    )
    (grown,), (shrunk,) = found.grown, found.shrunk
    assert (grown.id, grown.factor, round(grown.grown_lsb, 9)) == ("add-a8-ideal", 1.0, 0.3)
    assert (shrunk.id, round(shrunk.grown_lsb, 9)) == ("b", -0.1)
    text = render(found, "terminal")
    assert "LSB before  LSB now  LSB grown" in text
    assert "0.5      0.8       +0.3" in text
    assert '"grown_lsb": 0.3' in render(found, "json")


def test_growth_in_lsb_over_its_threshold_is_a_regression() -> None:
    base, run = [item(0.5)], [item(0.8)]
    assert gate(base, run, {"regression"}) == []
    assert gate(base, run, {"regression"}, lsb=0.31) == []
    assert gate(base, run, {"regression"}, lsb=0.25) == [
        "add-a8-ideal: the worst error grew from 0.5 to 0.8 LSB, by more than 0.25."
    ]
    assert gate(base, [item(0.9, ratio=0.5)], {"regression"}, lsb=0.25) != []
    assert gate(base, run, {"new-failure", "coverage"}, lsb=0.25) == []


TOX = "[quantizer]\nfail_on =\n    new-failure\n    regression\nfactor = 1.5\nlsb = 0.25\n"
TOML = '[tool.quantizer]\nfail_on = ["new-failure", "regression"]\nfactor = 1.5\nlsb = 0.25\n'
BOTH = Thresholds(frozenset({"new-failure", "regression"}), 1.5, 0.25)


@pytest.mark.parametrize(("name", "text"), [("tox.ini", TOX), ("pyproject.toml", TOML)])
def test_thresholds_are_read_from_tox_ini_or_pyproject(tmp_path: Path, name: str, text: str) -> None:
    assert read_thresholds(tmp_path) == Thresholds()
    (tmp_path / "tox.ini").write_text("[tox]\n")
    (tmp_path / "pyproject.toml").write_text("[tool.other]\n")
    (tmp_path / name).write_text(text)
    assert read_thresholds(tmp_path) == BOTH
    assert Thresholds(factor=2.0).over(BOTH) == Thresholds(BOTH.fail_on, 2.0, 0.25)


def test_thresholds_in_two_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "tox.ini").write_text(TOX)
    (tmp_path / "pyproject.toml").write_text(TOML)
    with pytest.raises(SpecError, match=r"pyproject.toml: \[tool.quantizer\]: thresholds are also in .*tox.ini"):
        read_thresholds(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("tox.ini", "[quantizer]\nfactr = 2\n", r"tox.ini: \[quantizer\]: factr: no such key. Did you mean 'factor'"),
        ("tox.ini", "[quantizer]\nfactor = 0.5\n", "factor: must be a number of 1 or more, got '0.5'"),
        ("tox.ini", "[quantizer]\nlsb = x\n", "lsb: must be a number of 0 or more, got 'x'"),
        (
            "tox.ini",
            "[quantizer]\nfail_on = speed\n",
            "fail_on: 'speed' is not a reason to fail. Choose from new-failure",
        ),
        ("tox.ini", "[quantizer]\nfail_on =\n", "fail_on: names no reason to fail"),
        ("tox.ini", "[quantizer\n", r"tox.ini: thresholds cannot be read: File contains no section headers"),
        ("pyproject.toml", "[tool.quantizer]\nlsb = true\n", "lsb: must be a number of 0 or more, got True"),
        ("pyproject.toml", "[tool.quantizer]\nfail_on = 3\n", "fail_on: must be words, got 3"),
        ("pyproject.toml", "[tool]\nquantizer = 3\n", "must be a table, got 3"),
        ("pyproject.toml", "tool = 3\n", "must be a table, got 3"),
        ("pyproject.toml", "tool = [\n", "pyproject.toml: not TOML: "),
    ],
)
def test_an_invalid_threshold_is_one_error_with_its_place(tmp_path: Path, name: str, text: str, says: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(SpecError, match=says):
        read_thresholds(tmp_path)


def test_the_command_heeds_the_project_and_its_options_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path / "base", [item(0.5)])
    written(tmp_path / "run", [item(0.8)])
    monkeypatch.chdir(tmp_path)
    words = ["report", "diff", "base", "run"]
    assert main(words) == 0
    Path("tox.ini").write_text(TOX)
    assert main(words) == 1
    assert "by more than 0.25" in capsys.readouterr().err
    assert main([*words, "--lsb", "0.5"]) == 0
    assert main([*words, "--fail-on", "none"]) == 0
    Path("tox.ini").write_text("[quantizer]\nlbs = 1\n")
    assert main(words) == 2
    assert "lbs: no such key. Did you mean 'lsb'?" in capsys.readouterr().err
