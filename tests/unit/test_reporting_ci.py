"""Annotations, JUnit and the facts of a run: what a CI system reads."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from reporting_facts import facts, written

from quantizer.cli import main
from quantizer.core.errors import CaseError
from quantizer.core.facts import read_facts
from quantizer.core.record import CheckRecord, Record
from quantizer.reporting.annotations import annotate, of_messages
from quantizer.reporting.junit import render
from quantizer.reporting.store import write_run

COMMAND = re.compile(r"::(?P<level>error|warning|notice) (?P<properties>[^:]*)::(?P<data>[^\r\n]*)")


def failing(name: str, op: str = "conv2d", check: str = "arithmetic", failure: str = "one code off") -> Record:
    checks = {check: CheckRecord(passed=3, failed=1, ratio=2.0)} if check else {}
    return Record(name, op, "cases", "failed", scheme="w8a8", platform="ort", cases=4, checks=checks, failure=failure)


def parsed(command: str) -> dict[str, str]:
    """Read a command as GitHub's runner does: properties split at commas, then both unescaped."""
    found = COMMAND.fullmatch(command)
    assert found, command
    pairs = dict(part.split("=", 1) for part in found["properties"].split(","))

    def plain(text: str, codes: dict[str, str]) -> str:
        for code, sign in codes.items():
            text = text.replace(code, sign)
        return text

    data = {"%0D": "\r", "%0A": "\n", "%25": "%"}
    named = {name: plain(text, {"%3A": ":", "%2C": ",", **data}) for name, text in pairs.items()}
    return named | {"level": found["level"], "data": plain(found["data"], data)}


def test_a_failure_is_annotated_on_the_line_that_states_what_failed() -> None:
    run = [
        failing("conv2d-w8a8-ort", failure="100% wrong: a, b"),
        failing("relu-a8-ort", "relu", "tiled"),
        Record("relu-reject", "relu", "reject", "failed", failure="no error"),
        Record("relu-spec", "relu", "spec", "failed", failure="my_specs/relu.yaml:17:3: tiling: no such axis"),
        Record("conv2d-golden", "conv2d", "golden", "failed", failure="codes differ"),
        Record("conv2d-spec", "conv2d", "spec", "passed"),
    ]
    found = {item["data"].split(":")[0]: item for item in map(parsed, annotate(run, facts(arguments="--op-plugins=p")))}
    places = {name: (item["file"], item["line"]) for name, item in found.items()}
    assert places == {
        "conv2d-w8a8-ort": ("my_specs/conv2d.yaml", "30"),
        "relu-a8-ort": ("my_specs/relu.yaml", "40"),
        "relu-reject": ("my_specs/relu.yaml", "20"),
        "relu-spec": ("my_specs/relu.yaml", "17"),
        "conv2d-golden": ("my_specs/conv2d.yaml", "2"),
    }
    first = found["conv2d-w8a8-ort"]
    assert first["level"] == "error"
    assert first["title"] == "conv2d: arithmetic fails"
    assert first["data"].splitlines() == [
        "conv2d-w8a8-ort: 100% wrong: a, b",
        "rerun: pytest 'my_specs/conv2d.yaml::conv2d-w8a8-ort' --op-plugins=p",
    ]


def test_items_of_one_cause_share_an_annotation() -> None:
    run = [failing(f"conv2d-{n:02}") for n in range(20)] + [failing(f"{chr(97 + n)}-x", chr(97 + n)) for n in range(15)]
    found = [*map(parsed, annotate(run, facts()))]
    assert len(found) == 10
    assert found[0]["title"] == "conv2d: arithmetic fails on 20 targets"
    assert "conv2d-12 and 7 more" in found[0]["data"]
    assert found[-1]["title"] == "7 more failing items in 7 more places"
    assert found[-1]["data"].split() == [f"{chr(97 + n)}-x" for n in range(8, 15)]


def test_a_prefix_leads_from_the_repository_to_the_run() -> None:
    assert parsed(annotate([failing("x")], prefix="ops/qa")[0])["file"] == "ops/qa/op_specs/conv2d.yaml"


def test_errors_of_specs_are_annotations_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("op: bad\nversion: 1\n")
    assert main(["spec", "lint", str(file), "--format", "github"]) == 2
    found = [*map(parsed, capsys.readouterr().out.splitlines())]
    assert {item["file"] for item in found} == {str(file)}
    assert ('version: must be text, got 1. Write "1" in quotes.', "2") in {(i["data"], i["line"]) for i in found}
    assert parsed(of_messages("no place, only words")[0])["data"] == "no place, only words"


def test_junit_has_every_item_with_its_properties() -> None:
    run = [
        failing("conv2d-w8a8-ort", failure="a <b> & \x00"),
        Record("relu-golden", "relu", "golden", "passed"),
        Record("relu-x", "relu", "cases", "xfailed", failure="known"),
    ]
    suite = ET.fromstring(render(run, facts())).find("testsuite")
    assert suite is not None
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "3",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
    }
    case = suite.findall("testcase")[0]
    assert (case.get("classname"), case.get("name")) == ("my_specs/conv2d.yaml", "conv2d-w8a8-ort")
    assert {p.get("name"): p.get("value") for p in case.iter("property")} == {
        "op": "conv2d",
        "scheme": "w8a8",
        "platform": "ort",
        "cases": "4",
        "ratio": "2",
        "rerun": "pytest 'my_specs/conv2d.yaml::conv2d-w8a8-ort'",
    }
    failure = case.find("failure")
    assert failure is not None
    assert failure.get("message") == "a <b> & \\x00"
    assert [suite.findall("testcase")[n].find("skipped") is None for n in (1, 2)] == [True, False]
    assert "time" not in render(run, facts())


def test_the_commands_read_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path / "run", [failing("conv2d-w8a8-ort")])
    assert main(["report", "annotate", str(tmp_path / "run"), "--prefix", "sub"]) == 0
    assert parsed(capsys.readouterr().out.strip())["file"] == "sub/my_specs/conv2d.yaml"
    assert main(["report", "junit", str(tmp_path / "run"), "-o", str(tmp_path / "j.xml")]) == 0
    assert ET.parse(tmp_path / "j.xml").getroot().tag == "testsuites"


def test_facts_are_read_back_and_damaged_ones_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert read_facts(facts().to_json(), "x") == facts()
    with pytest.raises(CaseError, match=r"run.json: not JSON.*"):
        read_facts("{", "run.json")
    with pytest.raises(CaseError, match=r"run.json: version 2 .* up to version 1"):
        read_facts(facts().to_json().replace('"version": 1\n', '"version": 2\n'), "run.json")
    write_run(tmp_path, [failing("a")], {}, facts())
    (tmp_path / "run.json").write_bytes(b"\xff")
    assert main(["report", "annotate", str(tmp_path)]) == 2
    assert "run.json: byte 0 is not UTF-8" in capsys.readouterr().err


def test_a_blank_engine_of_a_record_gives_the_plain_command() -> None:
    from quantizer.reporting.items import rerun

    assert "--op-engine" not in rerun(Record("relu-a8-ideal", "relu", "cases", "passed", engine=" "))
    assert rerun(Record("relu-a8-ort", "relu", "cases", "passed", engine="ort x86")).endswith(" --op-engine=ort")


def test_an_item_command_names_a_platform_foreign_to_its_engine() -> None:
    from quantizer.reporting.items import rerun

    run = facts(selection=["--op-platform=chip"], arguments="--op-engine=python:sim.py")
    item, own = (
        Record("conv2d-a8-chip", "conv2d", "cases", "failed", platform="chip", engine=engine)
        for engine in ("python:sim.py", "builtin")
    )
    assert rerun(item, run).endswith(" --op-platform=chip --op-engine=python:sim.py")
    assert "--op-platform" not in rerun(own, run)


def test_an_engine_failure_names_a_platform_foreign_to_it(tmp_path) -> None:
    from quantizer.conformance.setup.options import Options

    (tmp_path / "sim.py").write_text('NAME, VERSION, FORM = "sim", "0.1", "npz"\n')
    guest = Options(root=tmp_path, engine=f"python:{tmp_path / 'sim.py'}")
    assert guest.naming("ort") == " --op-platform=ort"
    assert guest.naming("float32_any_order") == Options(root=tmp_path).naming("ort") == guest.naming("") == ""
