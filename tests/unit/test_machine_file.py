"""machine.json: facts that differ on other machines are stored next to the records, and baselines are compared with them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from reporting_facts import written as whole_run

from quantizer.cli import main
from quantizer.core.errors import CaseError
from quantizer.core.machine import Machine, read_machine
from quantizer.core.record import CheckRecord, Record
from quantizer.reporting.machine import MACHINE, Pair, machine_of, merged, paired, split, write_machine
from quantizer.reporting.store import read_run, write_run

HERE, THERE = "x86_64: avx2", "x86_64: avx2 avx512f"


def item(ratio: float = 0.5, **changes: object) -> Record:
    checks = {name: CheckRecord(passed=3, ratio=ratio) for name in ("accuracy", "float", "tiled")}
    return replace(Record("a", "relu", "cases", "passed", cases=3, engine="builtin", checks=checks), **changes)


def written(folder: Path, ratio: float, processor: str) -> Path:
    """Write a run as pytest does, and return its folder."""
    records, figures = split([item(ratio, processor=processor)])
    write_run(folder, records, {})
    write_machine(folder, Machine(processor=processor, figures=figures))
    return folder


def test_records_of_two_machines_are_the_same_bytes(tmp_path: Path) -> None:
    here, there = written(tmp_path / "a", 0.5, HERE), written(tmp_path / "b", 0.5, THERE)
    text = (here / "records.jsonl").read_text()
    assert text == (there / "records.jsonl").read_text()
    assert "processor" not in text
    (record,) = read_run(here)
    assert {name: check.ratio for name, check in record.checks.items()} == {"accuracy": 0.5, "float": 0.0, "tiled": 0.0}
    found = machine_of(here)
    assert found is not None
    assert (found.processor, found.figures) == (HERE, {"a": {"float": 0.5, "tiled": 0.5}})


def test_a_failing_ratio_stays() -> None:
    records, figures = split([item(2.0)])
    assert records[0].checks["float"].ratio == 2.0
    assert figures == {}


def test_ratios_of_float_kernels_are_compared_on_one_processor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, same, other = (
        written(tmp_path / name, ratio, processor)
        for name, ratio, processor in (("base", 0.2, HERE), ("same", 0.9, HERE), ("other", 0.9, THERE))
    )
    for run, expected in ((same, 1), (other, 0)):
        for folder in (base, run):
            record = read_run(folder)[0]
            kept = {name: replace(check, ratio=0.0) for name, check in record.checks.items()}
            whole_run(folder, [replace(record, checks=kept)])
        code = main(["report", "diff", str(base), str(run), "--fail-on", "regression"])
        assert code == expected, capsys.readouterr()


def test_a_baseline_has_its_machine_under_its_stem(tmp_path: Path) -> None:
    folder, baseline = written(tmp_path / "run", 0.5, HERE), tmp_path / "baselines" / "torch.jsonl"
    baseline.parent.mkdir()
    baseline.write_bytes((folder / "records.jsonl").read_bytes())
    assert machine_of(baseline) is None
    assert paired(baseline, read_run(baseline), folder, read_run(folder)).elsewhere
    (tmp_path / "baselines" / MACHINE).write_text(Machine(processor=THERE).to_json())
    assert machine_of(baseline) is None, "of a folder of baselines it would be anyone's"
    baseline.with_name("torch.machine.json").write_bytes((folder / MACHINE).read_bytes())
    pair = paired(baseline, read_run(baseline), folder / "records.jsonl", read_run(folder))
    assert pair == Pair([item()], [item()], elsewhere=False)


def test_merged_shards_list_all_machines(tmp_path: Path) -> None:
    a, b, c = (written(tmp_path / name, 0.5, p) for name, p in (("a", HERE), ("b", HERE), ("c", THERE)))
    assert merged([a, b]) == Machine(processor=HERE, figures={"a": {"float": 0.5, "tiled": 0.5}})
    together = merged([a, c])
    assert together is not None
    assert together.processor == f"{HERE}; {THERE}"
    (b / MACHINE).unlink()
    assert merged([a, b]) is None


@pytest.mark.parametrize("text", ["{", "[1]", '{"version": 1}', '{"version": 1, "processor": 3}'])
def test_a_damaged_machine_file_is_one_error(tmp_path: Path, text: str) -> None:
    (tmp_path / MACHINE).write_text(text)
    with pytest.raises(CaseError, match=re.escape(f"{tmp_path / MACHINE}: ")):
        machine_of(tmp_path)
    assert read_machine(Machine(processor=HERE).to_json(), "here").processor == HERE
