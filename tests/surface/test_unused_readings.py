"""A run reports readings that none of its items used."""

import json

import pytest


@pytest.mark.parametrize("asked", ["add/ideal:rounded_once"])
def test_an_unused_reading_is_reported(vendor, asked):
    done = vendor.pytest(
        "--op-shipped=relu", "-k", "relu-a8-ideal", f"--op-reading={asked}", "--op-reading=relu/ideal:rounded_once"
    )
    assert done.ret == 0, done.outlines
    done.stdout.fnmatch_lines([f"not used: reading {asked}: no item of the run is judged by it."])
    facts = json.loads((vendor.root / "reports/out/run.json").read_text())
    assert facts["readings"] == ["relu/ideal:rounded_once"]
