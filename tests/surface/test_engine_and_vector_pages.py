"""The commands of docs/engines.md and docs/vectors.md run in the order of the page."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_howto_pages import ROOT, commands, installed, run, section, with_compiler
from warmed import Warmed

ENGINES, VECTORS = "engines.md", "vectors.md"
ELSEWHERE = {
    "quantizer engine install openvino": "tests/unit/test_engines.py",
    "pytest --op-shipped=conv2d --op-engine=openvino": "tests/unit/test_engines.py",
    "quantizer engine install openvino@2026.3.0": "tests/surface/test_engine_option.py",
    "quantizer engine install openvino@2026.4.1": "tests/surface/test_engine_option.py",
    "pytest --op-shipped=conv2d --op-engine=openvino@2026.3.0 --op-engine=openvino@2026.4.1": (
        "tests/surface/test_engine_option.py"
    ),
}
"""Commands that install engines from an index, or need one -> the test of what they do."""
HERE = {
    ENGINES: ("1. Write the worker", "2. Judge it", "5. A simulator in C", "6. Engines that", "9. Find out"),
    VECTORS: ("1. Write a bundle", "2. What is in it", "3. Judge in C", "4. Or bring", "5. A new version"),
}
"""The sections with commands, which the tests below follow."""
BRIEF = "--op-scheme=a8"


def lines(page: str) -> list[str]:
    """Return the indented lines of a page that start a program."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"^ {4}((?:quantizer|pytest|cc|\./).*)$", text, re.MULTILINE)


@pytest.mark.parametrize("page", HERE)
def test_each_command_of_a_page_is_in_a_tested_section(page: str) -> None:
    followed = [command for heading in HERE[page] for command in commands(page, heading)]
    assert followed == lines(page)
    assert all((ROOT / path).is_file() for path in ELSEWHERE.values())


def test_a_worker_started_by_another_command_is_judged(tmp_path: Path, warmed: Warmed) -> None:
    run(commands(ENGINES, "1. Write the worker")[0], tmp_path, warmed)
    _, elsewhere = commands(ENGINES, "2. Judge it")
    (served,) = re.findall(r"`serve.py` is `(\S+)`", section(ENGINES, "2. Judge it"))
    shutil.copy(ROOT / served, tmp_path)
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(f'#!/bin/sh\nshift\ncd {tmp_path}\nshift\nexec {sys.executable} "$@"\n')
    ssh.chmod(0o755)
    said = run(f"{elsewhere} {BRIEF}".replace('"ssh ', f'"{ssh} '), tmp_path, warmed)
    assert "1 passed" in said


@with_compiler
def test_probing_finds_rounding_toward_zero_of_the_faulty_simulator(tmp_path: Path, warmed: Warmed) -> None:
    shutil.copytree(ROOT / "examples" / "engine_in_c", tmp_path, dirs_exist_ok=True)
    compiling, judging = commands(ENGINES, "5. A simulator in C")
    run(compiling.replace("cc ", "cc -DFAULTY "), tmp_path, warmed)
    said = run(f"{judging} --op-scheme=w8a8 {BRIEF}", tmp_path, warmed, status=1)
    assert "2 failed" in said and "suspect     the integer forward" in said


def test_the_engine_list_has_every_engine_of_the_page(tmp_path: Path, warmed: Warmed) -> None:
    listing, *rest = commands(ENGINES, "6. Engines that")
    assert rest == [*ELSEWHERE]
    said = run(listing, tmp_path, warmed)
    (named,) = re.findall(r"The engines are (.*?)\. ", section(ENGINES, "6. Engines that"), re.DOTALL)
    for name in re.split(r",\s+|\s+and\s+", named):
        assert re.search(rf"^{name}\b", said, re.MULTILINE), name


@pytest.mark.nightly  # an entry point of its own: a process that imports torch anew
def test_an_engine_in_a_wheel_is_found_by_its_name(tmp_path: Path, warmed: Warmed) -> None:
    run(commands(ENGINES, "1. Write the worker")[0], tmp_path, warmed)
    entry, stated = re.findall(
        r"^ {4}(\[.*\n.*|ENGINE = .*)$", section(ENGINES, "7. An engine in a wheel"), re.MULTILINE
    )
    installed(tmp_path, tmp_path, "my-sim", entry.replace("\n    ", "\n"))
    module = stated.replace("/path/to/my_sim_worker.py", str(tmp_path / "my_sim_worker.py"))
    (tmp_path / "my_sim_engine.py").write_text(f"from quantizer.core import Engine\n\n{module}\n")
    assert "my_sim" in run("quantizer engine list", tmp_path)
    assert "1 passed" in run(f"pytest --op-shipped=relu --op-engine=my_sim {BRIEF}", tmp_path)


@pytest.mark.nightly  # minutes: it asks about every arithmetic
@with_compiler
def test_the_probe_prints_what_the_page_shows(tmp_path: Path, warmed: Warmed) -> None:
    shutil.copytree(ROOT / "examples" / "engine_in_c", tmp_path, dirs_exist_ok=True)
    run(commands(ENGINES, "5. A simulator in C")[0].replace("cc ", "cc -DFAULTY "), tmp_path, warmed)
    (tmp_path / "my_specs/platforms").mkdir(parents=True)
    text = section(ENGINES, "9. Find out")
    asking = re.findall(r"^ {4}(quantizer engine probe .*)$", text, re.MULTILINE)[0]
    said = " ".join(run(asking, tmp_path, warmed, status=1).split())
    blocks = re.findall(r"(?:^ {4}.*\n)+", text, re.MULTILINE)
    for block in blocks[1:]:
        shown = block.split("evidence\n    fully_connected:\n")[-1]
        assert " ".join(shown.split()) in said, said
    assert len(blocks) == 4 and "my_chip.yaml is not written" in said, "as for this simulator, the page says"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory, warmed: Warmed) -> Path:
    folder = tmp_path_factory.mktemp("vectors")
    run(commands(VECTORS, "1. Write a bundle")[0], folder, warmed)
    return folder / "bundle"


def manifest(bundle: Path) -> list[dict]:
    return json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))["cases"]


def right(bundle: Path, case: dict) -> np.ndarray:
    """Return the smallest right codes of a case, as the page says that files are read."""
    low = case["allowed"]["low"]
    return np.fromfile(bundle / low["file"], np.dtype(low["dtype"]).newbyteorder("<")).reshape(low["shape"])


def test_a_bundle_matches_its_page(bundle: Path) -> None:
    """Digests, the first line of the index, its words for each case, half of the cases solved for ties."""
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=bundle, check=True)
    cases = manifest(bundle)
    first, *rest = (bundle / "index.txt").read_text(encoding="utf-8").splitlines()
    assert first == f"quantizer-vectors 1 {len(cases)}"
    text = section(VECTORS, "2. What is in it")
    words = {word for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE) for word in re.findall(r"`(\w+)`", row)}
    assert {line.split()[0] for line in rest} <= words
    assert set().union(*cases) <= words
    counts = {op: [case for case in cases if case["case"]["op"] == op] for op in ("conv2d", "relu")}
    assert {op: len(found) for op, found in counts.items()} == {"conv2d": 64, "relu": 64}
    assert {case["case"]["scheme"] for case in counts["relu"]} == {"a8"}
    assert sum(case["case"]["data"]["set"] == "ties" for case in cases) * 2 >= len(cases)


def test_returned_codes_of_a_bundle_are_judged(bundle: Path, tmp_path: Path, warmed: Warmed) -> None:
    """Right ones pass and leave records; one of another value, a missing one and one of another size fail."""
    results = bundle.parent / "results"
    results.mkdir()
    for case in manifest(bundle):
        right(bundle, case).tofile(results / f"{case['id']}.bin")
    (judging,) = commands(VECTORS, "4. Or bring")
    run(judging, bundle.parent, warmed)
    assert (bundle.parent / "run" / "records.jsonl").is_file()
    run("quantizer report show run", bundle.parent, warmed)
    wrong, gone, short = manifest(bundle)[:3]
    codes = right(bundle, wrong).copy()
    codes.flat[0] += 1 if codes.flat[0] < 127 else -1
    codes.tofile(results / f"{wrong['id']}.bin")
    (results / f"{gone['id']}.bin").unlink()
    (results / f"{short['id']}.bin").write_bytes(b"")
    said = run(judging, bundle.parent, warmed, status=1)
    for case in (wrong, gone, short):
        assert case["id"] in said


def test_model_outputs_are_transposed_before_judging(tmp_path: Path, warmed: Warmed) -> None:
    """The output of a model, transposed by `axes` and reshaped, is the case's output."""
    pytest.importorskip("flatbuffers")
    writing, judging = commands(VECTORS, "2. What is in it")
    run(f"{writing} --cases 6", tmp_path, warmed)
    (tmp_path / "results").mkdir()
    held = 0
    for case in manifest(tmp_path / "bundle"):
        (model,) = case["models"]
        if "refused" in model:
            continue
        held += 1
        moved = [model["shape"][axis] for axis in model["axes"]]
        codes = right(tmp_path / "bundle", case).reshape(moved).transpose(np.argsort(model["axes"]))
        assert list(codes.shape) == model["shape"]
        np.ascontiguousarray(codes).tofile(tmp_path / "results" / f"{case['id']}.bin")
    assert held
    said = run(judging, tmp_path, warmed, status=int(held < 6))
    assert "fail:" not in said or held < 6, said


@with_compiler
def test_the_faulty_kernel_in_c_fails_with_the_line_of_the_page(tmp_path: Path, warmed: Warmed) -> None:
    shutil.copytree(ROOT / "examples" / "vectors_in_c", tmp_path, dirs_exist_ok=True)
    writing, compiling, judging = commands(VECTORS, "3. Judge in C")
    run(writing, tmp_path, warmed)
    run(compiling.replace("cc ", "cc -DFAULTY "), tmp_path, warmed)
    shown = re.findall(r"^ {4}(fail: .*)$", section(VECTORS, "3. Judge in C"), re.MULTILINE)
    assert shown[0] in run(judging, tmp_path, warmed, status=1).splitlines()


def test_bundles_of_other_cases_differ(tmp_path: Path, warmed: Warmed) -> None:
    for name, seed in (("old", 0), ("same", 0), ("new", 1)):
        run(f"quantizer vectors export --op relu --cases 4 --seed {seed} -o {name}", tmp_path, warmed)
    (comparing,) = commands(VECTORS, "5. A new version")
    assert run(comparing, tmp_path, warmed, status=1)
    run(comparing.replace(" new", " same"), tmp_path, warmed)


def test_a_bundle_of_an_operator_of_a_plugin(tmp_path: Path, warmed: Warmed) -> None:
    run("quantizer spec new my_gate --kind fused", tmp_path, warmed)
    named = "--op-specs op_specs --op-plugins op_plugins"
    run(f"quantizer vectors export --op my_gate {named} --cases 4 -o bundle", tmp_path, warmed)
    cases = manifest(tmp_path / "bundle")
    assert {case["case"]["op"] for case in cases} == {"my_gate"} and any("allowed" in case for case in cases)
