"""The commands of the how-to pages, as a reader follows them in an empty folder."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from warmed import Warmed

ROOT = Path(__file__).parents[2]
PROGRAMS = ("quantizer", "pytest", "cc", "./")
LEFT_OUT = ("CI", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "AIPUPLUGIN_PATH")
COMPILER = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
with_compiler = pytest.mark.skipif(COMPILER is None or os.name == "nt", reason="no compiler of C")


def section(page: str, heading: str) -> str:
    """Return the part of a page under a heading, which begins with *heading*."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(heading)}.*?\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    assert found, f"{page}: no heading {heading}"
    return found[1]


def commands(page: str, heading: str) -> list[str]:
    """Return the indented lines of a section that start a program."""
    lines = re.findall(r"^ {4}(.+)$", section(page, heading), re.MULTILINE)
    return [line for line in lines if line.startswith(PROGRAMS)]


def run(command: str, folder: Path, warmed: Warmed | None = None, status: int = 0) -> str:
    """Run a command, which must end with *status*, and return its output; ours runs in a child of a warmed process."""
    env = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    env["PYTHONPATH"] = os.pathsep.join(map(str, (folder, ROOT)))
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    program, *words = shlex.split(command)
    quiet = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist") if program == "pytest" else ()
    if program in ("pytest", "quantizer") and warmed is not None:
        done = warmed.run(program, *quiet, *words, cwd=folder, env=env, merged=True)
    else:
        started = {"cc": [str(COMPILER)], "./judge_relu": ["./judge_relu"]}.get(
            program, [sys.executable, "-m", program]
        )
        done = subprocess.run(
            [*started, *quiet, *words],
            cwd=folder,
            env=env,
            text=True,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    assert done.returncode == status, f"{command}\n{done.stdout}"
    return done.stdout


def test_the_start_in_five_minutes_is_green_then_red_as_its_page_says(tmp_path: Path, warmed: Warmed) -> None:
    writing, judging = commands("README.md", "Start in five minutes")
    run(writing, tmp_path, warmed)
    assert "1 passed" in run(judging, tmp_path, warmed)
    said = section("README.md", "Start in five minutes")
    module = tmp_path / "op_plugins" / "my_op.py"
    before, _, after = module.read_text().rpartition("return x.clone()")
    module.write_text(before + re.findall(r"`(return .*?)`", said)[0] + after)
    shown = re.findall(r"```\n(.*?)```", said, re.DOTALL)[0]
    assert shown in run(judging, tmp_path, warmed, status=1)


def test_a_worker_as_it_is_written_is_green(tmp_path: Path, warmed: Warmed) -> None:
    run(commands("engines.md", "1. Write the worker")[0], tmp_path, warmed)
    assert "1 passed" in run(commands("engines.md", "2. Judge it")[0], tmp_path, warmed)


@with_compiler
def test_the_simulator_in_c_is_green(tmp_path: Path, warmed: Warmed) -> None:
    shutil.copytree(ROOT / "examples" / "engine_in_c", tmp_path, dirs_exist_ok=True)
    compiling, judging = commands("engines.md", "5. A simulator in C")
    run(compiling, tmp_path, warmed)
    assert "2 passed" in run(f"{judging} --op-scheme=w8a8 --op-scheme=a8", tmp_path, warmed)


@with_compiler
def test_vectors_are_judged_in_c(tmp_path: Path, warmed: Warmed) -> None:
    shutil.copytree(ROOT / "examples" / "vectors_in_c", tmp_path, dirs_exist_ok=True)
    said = [run(command, tmp_path, warmed) for command in commands("vectors.md", "3. Judge in C")]
    assert said[-1].strip() == "64 passed, 0 failed, 0 open"


def test_a_fused_operator_as_it_is_written_is_green(tmp_path: Path, warmed: Warmed) -> None:
    page = (ROOT / "docs" / "fused.md").read_text(encoding="utf-8")
    writing, judging = re.findall(r"^ {4}((?:quantizer|pytest) .*my_gate.*)$", page, re.MULTILINE)
    run(writing, tmp_path, warmed)
    assert "1 passed" in run(judging, tmp_path, warmed)


def test_an_operator_of_a_plugin_lacks_its_golden_alone_and_no_fault_survives(tmp_path: Path, warmed: Warmed) -> None:
    text = section("plugins.md", "2. One operator")
    writing, linting, judging, storing, planting = re.findall(r"^\$ (.*)$", text, re.MULTILINE)
    shown = re.findall(r"^```\n\$ quantizer spec new .*\n((?:.+\n)+?)```", text, re.MULTILINE)[0]
    assert run(writing, tmp_path, warmed) == shown
    assert run(linting, tmp_path, warmed) == "1 spec ok\n"
    red = run(judging, tmp_path, warmed, status=1)
    assert re.findall(r"^FAILED \S+::(\S+)", red, re.MULTILINE) == ["log_sigmoid-golden"]
    assert storing.removesuffix(" --op-plugins=op_plugins") in red.replace(
        "'op_specs/log_sigmoid.yaml::log_sigmoid-golden'", storing.split()[1]
    )
    run(storing, tmp_path, warmed)
    run(judging, tmp_path, warmed)
    assert " 0 survivors" in run(planting, tmp_path, warmed)


@pytest.mark.parametrize("place", range(3))
def test_the_functions_that_the_page_of_plugins_shows_are_registered(
    tmp_path: Path, warmed: Warmed, place: int
) -> None:
    text = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    body = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[place]
    (tmp_path / "shown.py").write_text(
        f"import torch\nfrom quantizer.ops import operator\n\n\n{body}", encoding="utf-8"
    )
    op = re.findall(r'operator\("(\w+)"', body)[0]
    said = run(f"pytest --op-shipped={op} --op-plugins=shown.py --collect-only", tmp_path, warmed)
    assert f"{op}-" in said


def test_the_smallest_platform_in_a_wheel_is_green(tmp_path: Path) -> None:
    text = section("platforms.md", "A platform in five minutes")
    project, room, platform = re.findall(r"^```(?:toml|python|yaml)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    package = tmp_path / "my_npu"
    package.mkdir()
    (tmp_path / "pyproject.toml").write_text(project)
    (package / "__init__.py").touch()
    (package / "room.py").write_text(room)
    (package / "my_npu.yaml").write_text(platform)
    # Stands for `pip install .`: the metadata of the distribution, with the entry point of pyproject.toml.
    entry = re.search(r'^(\[project\.entry-points\."(.*)"\]\n)(\w+ = )"(.*)"', project, re.MULTILINE)
    assert entry is not None
    metadata = tmp_path / "my_npu-0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-npu\nVersion: 0.1\n")
    (metadata / "entry_points.txt").write_text(f"[{entry[2]}]\n{entry[3]}{entry[4]}\n")
    _, judging = commands("platforms.md", "A platform in five minutes")
    said = run(judging.replace("--op-shipped=conv2d ", ""), tmp_path)
    assert "1 passed" in said, said
