"""--op-xfails: known failures with a reason, an owner, an expiry and a stored case that must fail."""

import json
import subprocess

import pytest

from conftest import OFF_BY_ONE, RIGHT
from quantizer.cli import main

ENTRY = """\
xfails:
  - id: one_too_many
    ops: [double]
    platforms: [ideal]
    predicate: {predicate}
    checks: [arithmetic, accuracy]
    reason: the adder's carry is stuck
    owner: a.vendor
    expires: "{expires}"
    case: {case}
"""


@pytest.fixture
def repository(vendor):
    """Return a repository with one commit and a right operator."""
    vendor.write()
    (vendor.root / "stuck.json").write_text("{}")
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], [*author, "commit", "-q", "--allow-empty", "-m", "a"]):
        subprocess.run(["git", "-C", vendor.root, *command], check=True)
    return vendor


@pytest.fixture(scope="module")
def kept():
    """Return the stored case of the failure, once a test has made it."""
    return []


@pytest.fixture
def broken(repository, kept):
    """Make the operator one too high, and keep its failure."""
    repository.write(result=OFF_BY_ONE)
    if not kept:
        repository.run("-k", "a8-ideal")
        first = min((repository.root / "reports/out/failures").glob("double-a8-ideal-*.json"))
        kept.append(first.read_bytes())
    (repository.root / "stuck.json").write_bytes(kept[0])
    return repository


ONE = "a8-ideal or regressions"
"""Selects the item that fails and the item of stored cases."""


def run(vendor, *args, predicate="'true'", expires="9999-12-31", case="stuck.json", items=ONE):
    text = ENTRY.format(predicate=predicate, expires=expires, case=case)
    (vendor.root / "known.yaml").write_text(text)
    return vendor.run("-k", items, "--op-xfails", "known.yaml", *args)


def test_a_known_failure_is_green_and_counted(broken):
    assert run(broken, items="ideal or regressions").ret == 0
    lines = (broken.root / "reports/out/records.jsonl").read_text().splitlines()
    found = {record["id"]: record for record in map(json.loads, lines)}
    assert found["double-a8-ideal"]["checks"]["arithmetic"]["defects"] > 0
    reasons = found["double-a8-ideal"]["checks"]["arithmetic"]["reasons"]
    assert any(reason.startswith("one_too_many: the adder's carry is stuck") for reason in reasons)


@pytest.mark.parametrize(("predicate", "whole"), [("'true'", True), ("prod(shape) < 2", False)])
def test_a_statement_lists_xfails_that_excuse_every_case(broken, predicate, whole):
    """A failure that excuses only some cases (tensors of one element) is listed only among the exceptions."""
    broken.write(result=OFF_BY_ONE if whole else f"{RIGHT} + (x.numel() < 2)")
    assert run(broken, predicate=predicate, items=ONE if whole else "ideal or regressions").ret == (0 if whole else 1)
    stated = broken.root / "statement"
    assert main(["report", "statement", str(broken.root / "reports/out"), "-o", str(stated)]) == 0
    said = json.loads(stated.with_suffix(".json").read_text())
    assert said["exceptions"]
    reasons = [gap["reason"] for gap in said["gaps"]]
    assert ("known failure one_too_many excuses every case of a check" in reasons) == whole
    assert (said["counts"]["excused"] > 0) == whole
    assert (" a check has no case that passes)" in stated.with_suffix(".md").read_text()) == whole


def test_a_failure_outside_the_xfail_predicate_stays_red(broken):
    assert run(broken, predicate="prod(shape) > 2 and prod(shape) < 2").ret == 1


def test_an_xfail_whose_case_passes_fails(broken):
    broken.write(result=RIGHT)
    result = run(broken)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*ideal defect one_too_many: its stored case does not fail as declared.*"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"expires": "2001-01-01"}, "*known.yaml:9:*expires: 'one_too_many' expired on 2001-01-01, a.vendor owns it.*"),
        ({"expires": "soon"}, "*expires: must be a day, got 'soon'. Write it as 2027-01-31.*"),
        ({"case": "gone.json"}, "*case: no such file: gone.json. Keep the replay file of the failure.*"),
        ({"case": "x" * 300}, "*case: no such file: xxx*"),
        ({"predicate": "'1 +'"}, "*known.yaml:5:*predicate: *"),
        ({"predicate": "widht > 1"}, "*known.yaml:5:*predicate: *widht*"),
    ],
)
def test_an_invalid_xfail_ends_the_run(repository, change, says):
    result = run(repository, **change)
    assert result.ret == 4
    result.stderr.fnmatch_lines([says])


def test_an_xfail_for_an_unknown_operator_ends_the_run(repository):
    (repository.root / "known.yaml").write_text(
        ENTRY.format(predicate="'true'", expires="9999-12-31", case="stuck.json").replace("[double]", "[dubble]")
    )
    result = repository.run("--op-xfails", "known.yaml")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*'dubble': no such name. Did you mean 'double'?*"])


def test_xfails_without_a_commit_date_are_refused(vendor):
    vendor.write()
    (vendor.root / "known.yaml").write_text("xfails: []\n")
    result = vendor.run("--op-xfails", "known.yaml")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*has no commit, whose date would decide the expiry.*"])


def test_an_entry_names_only_platforms_on_which_its_case_fails(broken):
    only = OFF_BY_ONE.replace("+ 1", "+ (parameters.platform.platform == 'ideal')")
    broken.write(result=only)
    text = ENTRY.format(predicate="'true'", expires="9999-12-31", case="stuck.json")
    (broken.root / "known.yaml").write_text(text.replace("[ideal]", "[ideal, ort]"))
    result = broken.run("-k", "a8-ideal or a8-ort or regressions", "--op-xfails", "known.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*ort defect one_too_many: its stored case does not fail as declared.*"])


def test_an_xfail_with_an_invalid_id_ends_the_run(repository):
    text = ENTRY.format(predicate="'true'", expires="9999-12-31", case="stuck.json")
    (repository.root / "known.yaml").write_text(text.replace("one_too_many", "one-too-many"))
    result = repository.run("--op-xfails", "known.yaml")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*id: must be letters, digits and underscores, got 'one-too-many'.*"])


@pytest.mark.parametrize("since", ["soon", "9999-12-32"])
def test_an_xfail_with_an_invalid_since_ends_the_run(repository, since):
    result = run(repository, expires=f'9999-12-31"\n    since: "{since}')
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"*since: must be a day, got '{since}'. Write it as 2027-01-31.*"])
