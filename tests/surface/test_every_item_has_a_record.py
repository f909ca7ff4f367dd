"""Each collected item has a record, and none passes without a verdict, whatever the functions under test do."""

import json
import shutil

import pytest

from conftest import OFF_BY_ONE, RIGHT
from quantizer.cli import main

STEERS = {
    "skip": ("import pytest", 'pytest.skip("not here")', "Skipped: not here"),
    "xfail": ("import pytest", 'pytest.xfail("known")', "known"),
    "pytest_exit": ("import pytest", 'pytest.exit("done")', "done"),
    "system_exit": ("import sys", "sys.exit(0)", "SystemExit"),
    "assume": ("import hypothesis", "hypothesis.assume(False)", "UnsatisfiedAssumption"),
    "refused": (
        "from quantizer.core.errors import RefusedError",
        "raise_(RefusedError('no kernel'))",
        "refused the case",
    ),
    "base": ("class Odd(BaseException): pass", "raise_(Odd())", "Odd"),
}
GUARD = '''

def raise_(err):
    """Raise it."""
    raise err


CALLS = []


def steer(after, right):
    """Do what the test says from the call *after* on; before that, give what is right."""
    CALLS.append(1)
    return {action} if len(CALLS) > after else right
'''


def records(root, where="reports/out"):
    lines = (root / where / "records.jsonl").read_text().splitlines()
    return {record["id"]: record for record in map(json.loads, lines)}


def facts(root, where="reports/out"):
    return json.loads((root / where / "run.json").read_text())


def steering(vendor, name, after):
    setup, action, said = STEERS[name]
    vendor.write(result=f"steer({after}, {RIGHT})")
    plugin = vendor.root / "my_plugins/double.py"
    head, _, rest = plugin.read_text().partition("\n\n\n")
    plugin.write_text(f"{head}\n{setup}\n{GUARD.format(action=action)}\n\n{rest}")
    return said


@pytest.mark.parametrize("name", STEERS)
def test_a_kernel_that_steers_the_run_fails(vendor, name):
    said = steering(vendor, name, 60 if name in ("skip", "refused") else 0)
    result = vendor.run("-k", "a8-ideal", "-p", "no:xdist")
    assert result.ret == 1, result.stdout.str()
    (record,) = records(vendor.root).values()
    assert record["outcome"] == "failed"
    assert said in record["failure"]
    assert not any(check.get("inconclusive") for name, check in record["checks"].items() if name != "round_trip")


def test_a_kernel_that_ends_the_process_leaves_an_unreadable_run(vendor, capsys):
    vendor.write()
    assert vendor.run("-k", "a8-ideal or a16-ideal").ret == 0
    before = (vendor.root / "reports/out/records.jsonl").read_text()
    vendor.write(result=f"{RIGHT} if x.numel() else None")
    plugin = vendor.root / "my_plugins/double.py"
    plugin.write_text(plugin.read_text().replace('"""Double, then round once."""', "import os; os._exit(0)"))
    assert vendor.run("-k", "a8-ideal or a16-ideal", "-p", "no:xdist", "--op-in-process").ret == 0
    assert (vendor.root / "reports/out/records.jsonl").read_text() in ("", before)
    refused(vendor.root, capsys, "the session that writes it has not ended, or was killed.")


def refused(root, capsys, text, where="reports/out"):
    """Return whether each command that uses a run refuses this one and writes nothing."""
    out = root / where
    capsys.readouterr()
    for words in (
        ("show", out, "--check"),
        ("diff", out, out),
        ("statement", out, "-o", root / "s"),
        ("junit", out, "-o", root / "j.xml"),
        ("annotate", out),
        ("html", out, "-o", root / "h.html"),
        ("history", "add", root / "h.sqlite", out, "--name", "a"),
        ("merge", out, "-o", root / "m"),
        ("show", out / "records.jsonl", "--check"),
        ("diff", out / "records.jsonl", out),
    ):
        assert main(["report", *map(str, words)]) == 2, words
        said = capsys.readouterr()
        assert said.out == "", words
        assert text in said.err, words
        assert len(said.err.splitlines()) == 1, words
    assert not {"s.json", "s.md", "j.xml", "h.html", "h.sqlite", "m"} & {path.name for path in root.iterdir()}


def test_an_interrupted_item_fails_and_the_run_is_incomplete(vendor, capsys):
    vendor.write(result=f"steer(0, {RIGHT})")
    plugin = vendor.root / "my_plugins/double.py"
    head, _, rest = plugin.read_text().partition("\n\n\n")
    plugin.write_text(f"{head}\n{GUARD.format(action='raise_(KeyboardInterrupt())')}\n\n{rest}")
    assert vendor.run("-k", "ideal", "-p", "no:xdist", "--op-in-process").ret == 2
    assert {record["outcome"] for record in records(vendor.root).values()} == {"failed"}
    assert len(records(vendor.root)) == len(facts(vendor.root)["items"]) > 2
    assert facts(vendor.root)["exit"] == 2
    refused(vendor.root, capsys, "pytest ended with exit status 2.")


def test_a_session_stopped_at_the_first_failure_is_incomplete(vendor, capsys):
    vendor.write(result=OFF_BY_ONE)
    result = vendor.run("-k", "ideal", "-x", "-p", "no:xdist")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["not whole: * items of * did not run to the end, such as double-*"])
    refused(vendor.root, capsys, "did not run to the end, such as double-")


def test_a_crash_of_a_worker_is_a_failure_with_a_record(vendor, capsys):
    vendor.write()
    plugin = vendor.root / "my_plugins/double.py"
    crash = "import ctypes; ctypes.string_at(0) if x.dim() == 3 else None"
    plugin.write_text(plugin.read_text().replace('"""Double, then round once."""', crash))
    result = vendor.run("-k", "double-a8-ideal or double-spec", "-n", "2", "--max-worker-restart=9")
    assert result.ret == 1
    found = records(vendor.root)
    assert set(found) == set(facts(vendor.root)["items"]) == {"double-a8-ideal", "double-spec"}
    assert "its process was killed by SIGSEGV" in found["double-a8-ideal"]["failure"]
    out = vendor.root / "reports/out"
    assert main(["report", "show", str(out), "--check"]) == 1
    assert main(["report", "junit", str(out), "-o", str(vendor.root / "j.xml")]) == 0
    assert ' failures="1"' in (vendor.root / "j.xml").read_text()
    assert main(["report", "statement", str(out), "-o", str(vendor.root / "s")]) == 0
    assert json.loads((vendor.root / "s.json").read_text())["result"] == "does not conform"


def test_a_crash_of_a_worker_of_xdist_is_a_failure_with_a_record(vendor):
    vendor.write()
    plugin = vendor.root / "my_plugins/double.py"
    plugin.write_text(
        plugin.read_text().replace('"""Double, then round once."""', "import ctypes; ctypes.string_at(0)")
    )
    result = vendor.run("-k", "double-a8-ideal or double-spec", "-n", "2", "--max-worker-restart=9", "--op-in-process")
    assert result.ret == 1
    found = records(vendor.root)
    assert set(found) == set(facts(vendor.root)["items"]) == {"double-a8-ideal", "double-spec"}
    assert "crashed while running" in found["double-a8-ideal"]["failure"]


def test_an_item_skipped_by_a_fixture_fails(vendor):
    vendor.write()
    (vendor.root / "my_specs/conftest.py").write_text(
        "import pytest\n\n\n@pytest.fixture(autouse=True)\ndef away(): pytest.skip('today')\n"
    )
    assert vendor.run("-k", "a8-ideal").ret == 1
    (record,) = records(vendor.root).values()
    assert (record["outcome"], record["failure"]) == ("failed", "setup: Skipped: today")


def test_each_kind_of_item_counts_its_comparisons(vendor):
    vendor.write()
    assert vendor.run("--op-golden-update", "first").ret == 0
    found = records(vendor.root)
    assert "double-regressions" not in found
    assert "double-reject" not in found
    for kind in ("golden", "spec"):
        assert found[f"double-{kind}"]["checks"][kind]["passed"] > 0, kind
    assert found["double-golden"]["checks"]["golden"]["elements"] > 8
    assert set(facts(vendor.root)["items"]) == set(found)


def test_an_item_without_comparisons_does_not_pass(vendor):
    """Only `exact` compares sums over windows, and this operator has none."""
    vendor.write()
    result = vendor.run("-k", "a8-ideal", "--op-check=properties")
    result.assert_outcomes(skipped=1, deselected=7)
    (record,) = records(vendor.root).values()
    assert record["outcome"] == "skipped"


def test_declared_refusals_are_gaps_and_wrong_declarations_errors(vendor):
    vendor.write(result=f"steer(0, {RIGHT}) if x.dim() == 3 else {RIGHT}")
    steering_plugin = vendor.root / "my_plugins/double.py"
    text = steering_plugin.read_text()
    head, _, rest = text.partition("\n\n\n")
    refuses = GUARD.format(action="raise_(RefusedError('no'))")
    text = f"{head}\nfrom quantizer.core.errors import RefusedError\n{refuses}\n\n{rest}"
    steering_plugin.write_text(text)
    assert vendor.run("-k", "a8-ideal").ret == 1
    declared = '@operator("double", unsupported={"len(shape) == 3": "no cubes"})\ndef quantized'
    steering_plugin.write_text(text.replace('@operator("double")\ndef quantized', declared))
    done = vendor.run("-k", "a8-ideal", "-q")
    assert done.ret == 0
    (record,) = records(vendor.root).values()
    assert record["checks"]["engine"]["inconclusive"] > 0
    done.stdout.fnmatch_lines(["not judged: * of * cases (*%) of double: declared: no cubes"])
    assert record["checks"]["engine"]["reasons"] == ["declared: no cubes"]
    everything = declared.replace("len(shape) == 3", "activation_bits == 8")
    steering_plugin.write_text(text.replace('@operator("double")\ndef quantized', everything))
    vendor.run("-k", "a8-ideal").assert_outcomes(skipped=1, deselected=7)
    for wrong, said in (("rank == 3", "name 'rank' is unknown"), ("shape ===", "unsupported: ")):
        steering_plugin.write_text(
            text.replace('@operator("double")\ndef quantized', declared.replace("len(shape) == 3", wrong))
        )
        result = vendor.run("-k", "a8-ideal")
        assert result.ret != 0
        assert said in result.stdout.str() + result.stderr.str()


def test_two_writers_in_one_folder_are_refused_and_drafts_swept(vendor):
    from quantizer.reporting.folder import RunFolder

    vendor.write()
    out = vendor.root / "reports/out"
    first = RunFolder(out)
    first.claim()
    result = vendor.run("-k", "a8-ideal", "--op-report", "reports/out")
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        ["ERROR: *out: another run writes into this folder. Wait for it, or name another folder."]
    )
    first.release()
    for name in (".records.jsonl.abcd_123", ".run.json.abcd_123~"):
        (out / name).write_text("half")
    assert vendor.run("-k", "a8-ideal").ret == 0
    assert sorted(path.name for path in out.iterdir()) == [
        ".lock",
        "machine.json",
        "records.jsonl",
        "run.json",
        "summary.json",
        "timings.jsonl",
    ]


def test_mixed_files_of_two_runs_are_refused(vendor, capsys):
    vendor.write()
    assert vendor.run("-k", "a8-ideal", "--op-report", "one").ret == 0
    assert vendor.run("-k", "a16-ideal", "--op-report", "two").ret == 0
    for name in ("records.jsonl", "summary.json"):
        shutil.copytree(vendor.root / "one", vendor.root / "mixed")
        shutil.copy(vendor.root / "two" / name, vendor.root / "mixed")
        refused(vendor.root, capsys, f"{name} is not the one that run.json was written with.", "mixed")
        shutil.rmtree(vendor.root / "mixed")


def test_a_session_without_quantizer_items_keeps_the_last_run(vendor):
    vendor.write()
    assert vendor.run("-k", "a8-ideal").ret == 0
    before = (vendor.root / "reports/out/run.json").read_bytes()
    (vendor.root / "pytest.ini").write_text("[pytest]\nop_plugins = my_plugins\nop_specs = my_specs\n")
    (vendor.root / "test_mine.py").write_text("def test_mine(): pass\n")
    done = vendor.pytest("test_mine.py", "-p", "no:cacheprovider")
    assert done.ret == 0
    assert (vendor.root / "reports/out/run.json").read_bytes() == before
