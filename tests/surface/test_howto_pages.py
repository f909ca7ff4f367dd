"""The commands of the how-to pages, as a reader follows them in an empty folder."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from warmed import Warmed

from quantizer.core.library import load_library

ROOT = Path(__file__).parents[2]
PROGRAMS = ("quantizer", "pytest", "cc", "./")
LEFT_OUT = ("CI", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "AIPUPLUGIN_PATH")
COVERAGE = """
import runpy, sys

words = sys.argv[1:]
assert words.pop(0) == "run"
while words[0].startswith("--"):
    words.pop(0)
assert words.pop(0) == "-m", "coverage knows no options of Python"
open("measured", "w").close()
sys.argv = words
runpy.run_module(words[0], run_name="__main__", alter_sys=True)
"""
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


def run(
    command: str,
    folder: Path,
    warmed: Warmed | None = None,
    status: int = 0,
    variables: Mapping[str, str] | None = None,
) -> str:
    """Run a command, which must end with *status*, and return its output; ours runs in a child of a warmed process."""
    env = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    env["PYTHONPATH"] = os.pathsep.join(map(str, (folder, ROOT)))
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    env |= dict(variables or {})
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


def test_the_five_minute_start_passes_then_fails_as_shown(tmp_path: Path, warmed: Warmed) -> None:
    writing, judging = commands("README.md", "Start in five minutes")
    run(writing, tmp_path, warmed)
    assert "1 passed" in run(judging, tmp_path, warmed)
    said = section("README.md", "Start in five minutes")
    module = tmp_path / "op_plugins" / "my_op.py"
    before, _, after = module.read_text().rpartition("return x.clone()")
    module.write_text(before + re.findall(r"`(return .*?)`", said)[0] + after)
    shown = re.findall(r"```\n(.*?)```", said, re.DOTALL)[0]
    assert shown in run(judging, tmp_path, warmed, status=1)


def test_the_generated_worker_passes(tmp_path: Path, warmed: Warmed) -> None:
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


def test_the_generated_fused_operator_passes(tmp_path: Path, warmed: Warmed) -> None:
    page = (ROOT / "docs" / "fused.md").read_text(encoding="utf-8")
    writing, judging = re.findall(r"^ {4}((?:quantizer|pytest) .*my_gate.*)$", page, re.MULTILINE)
    run(writing, tmp_path, warmed)
    assert "1 passed" in run(judging, tmp_path, warmed)


def test_a_reference_unlike_its_oracle_fails_and_names_the_oracle(tmp_path: Path, warmed: Warmed) -> None:
    """If the function of a new table changes and its oracle does not, the failure names the oracle."""
    run("quantizer spec new my_cap --kind table", tmp_path, warmed)
    module = tmp_path / "op_plugins" / "my_cap.py"
    module.write_text(module.read_text().replace("torch.tanh(x)", "5 * torch.tanh(x / 5)"))
    asked = "pytest op_specs/my_cap.yaml --op-plugins op_plugins -k my_cap-a8-ideal"
    assert "half a unit of torch.tanh, the oracle of the spec," in run(asked, tmp_path, warmed, status=1)


def test_a_plugin_operator_lacks_only_its_golden_and_kills_all_faults(tmp_path: Path, warmed: Warmed) -> None:
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


@pytest.mark.nightly  # starts two processes, each of which imports torch anew
def test_coverage_is_measured_in_the_process_of_plugins(tmp_path: Path, warmed: Warmed) -> None:
    """A stand-in takes the words of `coverage run`: coverage itself is no dependency of these tests."""
    text = section("plugins.md", "Where your functions run")
    script = tmp_path / "cover.sh"
    script.write_text(re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[0])
    script.chmod(0o755)
    (tmp_path / "coverage").mkdir()
    (tmp_path / "coverage" / "__main__.py").write_text(COVERAGE)
    run("quantizer spec new log_sigmoid", tmp_path, warmed)
    (judging,) = re.findall(r"^\$ (pytest .*)$", text, re.MULTILINE)
    assert "1 passed" in run(f"{judging} -k log_sigmoid-a8-ideal", tmp_path, warmed)
    assert (tmp_path / "measured").exists()


@pytest.mark.nightly  # starts pytest twice, each with a process of plugins
def test_an_installed_operator_package_runs_without_options(tmp_path: Path) -> None:
    package = section("plugins.md", "3. A package")
    entry, settings = re.findall(
        r"^(\[.*?)(?:\n\n|\Z)", package.split("```toml\n")[1].split("\n```")[0], re.DOTALL | re.MULTILINE
    )
    run("quantizer spec new log_sigmoid", tmp_path)
    source = tmp_path / "src" / "vendor_ops"
    (source / "specs").mkdir(parents=True)
    shutil.move(tmp_path / "op_plugins" / "log_sigmoid.py", source)
    shutil.move(tmp_path / "op_specs" / "log_sigmoid.yaml", source / "specs")
    (source / "__init__.py").write_text(
        "from importlib.resources import files\n\nfrom vendor_ops import log_sigmoid\n\n"
        + re.findall(r"SPECS = [^\n]*", package)[0]
        + "\n"
    )
    (tmp_path / "pyproject.toml").write_text(settings)
    installed(tmp_path, tmp_path / "src", "vendor-ops", entry)
    env = {"PYTHONPATH": os.pathsep.join((str(tmp_path / "src"), str(ROOT)))}
    (judging,) = re.findall(r"^\$ (pytest) -n 2$", package, re.MULTILINE)
    few = f"{judging} -k log_sigmoid-a8-ideal"
    assert "1 passed" in run(few, tmp_path, variables=env)
    _, copying, _ = re.findall(r"^\$ (.*)$", section("plugins.md", "7. The gate"), re.MULTILINE)
    shutil.copy(*(tmp_path / word for word in copying.split()[1:]))
    (compared,) = re.findall(r"--op-baseline=\S+", section("plugins.md", "7. The gate"))
    assert "1 passed" in run(f"{few} {compared}", tmp_path, variables=env)


def installed(folder: Path, site: Path, name: str, entry: str) -> None:
    """Write the same metadata as `pip install .`: a distribution with the entry point of pyproject.toml."""
    group, line = re.findall(r'^\[project\.entry-points\."(.*)"\]\n(\w+ = ".*")', entry, re.MULTILINE)[0]
    metadata = site / f"{name.replace('-', '_')}-0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    key, value = line.split(" = ")
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{key} = {value.strip(chr(34))}\n")


def test_a_copy_of_a_platform_is_linted_and_judged(tmp_path: Path, warmed: Warmed) -> None:
    text = section("platforms.md", "3. The platform").split("### A copy of a platform")[1]
    (place,) = re.findall(r"`(platforms/\w+\.yaml)` in a folder", text)
    name = Path(place).stem
    copy = tmp_path / "own" / place
    copy.parent.mkdir(parents=True)
    shipped = load_library().platform_paths["tpulang"].read_text(encoding="utf-8")
    copy.write_text(re.sub(r"^platform: .*", f"platform: {name}", shipped, flags=re.MULTILINE))
    (linting,) = re.findall(r"^ {4}(quantizer .*)$", text, re.MULTILINE)
    assert run(linting.replace("FOLDER", "own"), tmp_path, warmed) == "1 platform ok\n"
    assert "2 passed" in run(f"pytest --op-shipped=add --op-specs=own --op-platform={name}", tmp_path, warmed)


def test_the_smallest_platform_in_a_wheel_is_green(tmp_path: Path) -> None:
    text = section("platforms.md", "A platform in five minutes")
    project, room, platform = re.findall(r"^```(?:toml|python|yaml)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    package = tmp_path / "my_npu"
    package.mkdir()
    (tmp_path / "pyproject.toml").write_text(project)
    (package / "__init__.py").touch()
    (package / "room.py").write_text(room)
    (package / "my_npu.yaml").write_text(platform)
    installed(tmp_path, tmp_path, "my-npu", project)
    _, judging = commands("platforms.md", "A platform in five minutes")
    said = run(judging.replace("--op-shipped=conv2d ", ""), tmp_path)
    assert "1 passed" in said, said
