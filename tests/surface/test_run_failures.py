"""Failures around a run are reported in one line, and the rest is written, judged and compared."""

import json
import re

import pytest

from conftest import RIGHT

RAISES = "1 // 0"


def records(vendor):
    return [json.loads(line) for line in (vendor.root / "reports/out/records.jsonl").read_text().splitlines()]


def test_an_unwritable_report_is_reported_with_status_4(vendor):
    vendor.write()
    (vendor.root / "taken").write_text("a file")
    result = vendor.run("-k", "a8-ideal", "--op-report", "taken")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: *taken: cannot be written: *"])
    result.stdout.no_fnmatch_line("*Traceback*")
    assert (vendor.root / "taken").read_text() == "a file"


def test_only_a_numeric_hypothesis_seed_is_recorded(vendor):
    """Hypothesis takes any word as a seed."""
    vendor.write()
    assert vendor.run("-k", "a8-ideal", "--op-profile", "dev", "--hypothesis-seed", "abc").ret == 0
    facts = json.loads((vendor.root / "reports/out/run.json").read_text())
    assert facts.get("seed") is None
    assert vendor.run("-k", "a8-ideal", "--op-profile", "dev", "--hypothesis-seed", "7").ret == 0
    assert json.loads((vendor.root / "reports/out/run.json").read_text())["seed"] == 7


def test_a_subfolder_run_compares_only_its_items_with_the_baseline(vendor):
    vendor.write()
    vendor.write("twice")
    assert vendor.run("--op-golden-update", "first").ret == 0
    baseline = vendor.root / "base.jsonl"
    baseline.write_bytes((vendor.root / "reports/out/records.jsonl").read_bytes())
    (vendor.root / "pytest.ini").write_text("[pytest]\nop_plugins = my_plugins\nop_specs = my_specs\n")
    words = ("-p", "no:cacheprovider", "double.yaml", "--op-baseline", "../base.jsonl")
    inside = vendor.warmed.run("pytest", *words, cwd=vendor.root / "my_specs")
    assert inside.returncode == 0, inside.stdout
    assert {record["op"] for record in records(vendor)} == {"double"}
    assert not re.search(r"^baseline: .*twice", inside.stdout, re.MULTILINE)


def test_a_golden_item_whose_forward_raises_fails_in_one_line(vendor):
    vendor.write()
    assert vendor.run("--op-golden-update", "first").ret == 0
    vendor.write(result=RAISES)
    result = vendor.run("-k", "golden")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*double-golden: *ZeroDivisionError*", "*the process of plugins*"])
    result.stdout.no_fnmatch_line("*quantizer/conformance/*")


def test_the_parameters_check_alone_runs_no_forward(vendor):
    vendor.write(result=RAISES)
    assert vendor.run("-k", "ideal", "--op-check", "parameters").ret == 0
    found = [record for record in records(vendor) if record["kind"] == "cases"]
    assert found
    for record in found:
        assert set(record["checks"]) == {"parameters"}
        assert "metrics" not in record


def test_a_plugin_with_shape_inference_is_referred_to_the_spec(vendor):
    vendor.write()
    plugin = vendor.root / "my_plugins" / "double.py"
    plugin.write_text(
        plugin.read_text() + '\n\n@operator("double")\ndef infer_shape(x):\n    """Return it."""\n    return x\n'
    )
    result = vendor.run()
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*double.py*infer_shape*"])


@pytest.mark.parametrize(
    ("does", "status", "says"),
    [
        ("(out / 'records.jsonl').mkdir()", 4, "*records.jsonl: cannot be written: is a directory*"),
        ("shutil.rmtree(out)", 1, "not whole: *out: was removed or replaced while the run was under way.*"),
        ("shutil.rmtree(out); out.write_text('x')", 4, "*cannot be written: *"),
        ("out.rename(out.with_name('away')); out.mkdir()", 1, "not whole: *out: was removed or replaced *"),
        ("(out / 'run.json').unlink(); (out / 'run.json').mkdir()", 4, "*run.json: cannot be written: is a directory*"),
    ],
)
def test_a_plugin_that_damages_the_run_folder_gives_one_line(vendor, does, status, says):
    vendor.write(result=RIGHT)
    plugin = vendor.root / "my_plugins" / "double.py"
    out = vendor.root / "reports/out"
    damage = f"import pathlib, shutil\nout = pathlib.Path({str(out)!r})\nif not out.with_name('done').exists():\n"
    damage += f"    out.with_name('done').touch()\n    {does}\n"
    plugin.write_text(plugin.read_text().replace("    return 2 * x", f"    exec({damage!r})\n    return 2 * x"))
    result = vendor.run("-k", "a8-ideal")
    result.stdout.no_fnmatch_line("*INTERNALERROR*")
    result.stdout.fnmatch_lines([says])
    assert result.ret == status


def test_an_empty_session_without_its_folder_gives_one_line(vendor):
    vendor.write()
    (vendor.root / "conftest.py").write_text(
        "import pathlib\ndef pytest_collection_finish(session):\n"
        "    run = pathlib.Path('reports/out/run.json')\n    run.unlink(missing_ok=True)\n    run.mkdir(parents=True)\n"
    )
    result = vendor.run("-k", "nothing_is_called_so")
    result.stdout.no_fnmatch_line("*INTERNALERROR*")
    result.stdout.fnmatch_lines(["*run.json: cannot be written: is a directory*"])
    assert result.ret == 4
