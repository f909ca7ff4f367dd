"""The option --op-isa, which limits a real engine to a level of instructions, as a user sees it."""

import json
from pathlib import Path

import pytest

from quantizer.core.levels import highest, offered

SPECS = Path(__file__).parents[2] / "op_specs"
ONLY_AVX2 = """\
from pathlib import Path
from quantizer.core import processor

processor.CPUINFO = Path(__file__).parent / "cpuinfo"
processor.instructions.cache_clear()
"""


@pytest.fixture
def run(pytester, nested):
    (pytester.path / "add.yaml").write_bytes((SPECS / "add.yaml").read_bytes())

    def run(engine, *args):
        options = ("-k", "a8-ort or a8-torch_qnnpack", "-p", "no:cacheprovider", f"--op-engine={engine}")
        return nested("add.yaml", *options, *args)

    return run


def records(pytester):
    return [json.loads(line) for line in (pytester.path / "reports/out/records.jsonl").read_text().splitlines()]


def test_op_isa_all_runs_every_level_of_the_processor(run, pytester):
    levels = offered() or ("host",)
    result = run("torch", "--op-isa=all")
    assert result.ret == 0
    shown = ", ".join(levels) if offered() else f"host: {highest()}"
    result.stdout.fnmatch_lines([f"quantizer: profile gate, engine torch *, instructions {shown}"])
    cases = {record["id"]: record["isa"] for record in records(pytester) if record["kind"] == "cases"}
    names = ["add-a8-torch_qnnpack", *(f"add-a8-torch_qnnpack-{level}" for level in levels[1:])]
    assert list(cases) == names
    assert [isa.partition(":")[0] for isa in cases.values()] == list(levels)
    facts = json.loads((pytester.path / "reports/out/run.json").read_text())
    assert facts["isa"] == list(levels)


def test_an_engine_without_isa_switch_runs_unpinned(run, pytester):
    (pytester.path / "pytest.ini").write_text("[pytest]\nop_isa = all\n")
    result = run("onnxruntime")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [f"quantizer: profile gate, engine onnxruntime 1.*, instructions unpinned: {highest()}"]
    )
    (cases,) = [record for record in records(pytester) if record["kind"] == "cases"]
    assert cases["isa"] == "unpinned"
    assert json.loads((pytester.path / "reports/out/run.json").read_text())["isa"] == ["unpinned"]


@pytest.mark.parametrize(
    ("level", "text"),
    [
        ("avx512", "--op-isa=avx512: this processor has no avx512f, *It has the levels avx2."),
        ("avx3", "--op-isa=avx3: no such level.*avx2*"),
    ],
)
@pytest.mark.parametrize("engine", ["torch", "onnxruntime"])
def test_an_unknown_or_missing_level_is_a_usage_error(run, pytester, engine, level, text):
    (pytester.path / "cpuinfo").write_text("flags : sse4_1 avx f16c fma avx2\n")
    pytester.makeconftest(ONLY_AVX2)
    result = run(engine, f"--op-isa={level}")
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"ERROR: {text}"])
    assert not (pytester.path / "reports").exists()
