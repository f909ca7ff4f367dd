"""A platform from another distribution: a wheel with its own room, in an environment without this checkout."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from warmed import Warmed

from quantizer.core.rooms import declared_platforms

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "third_party_platform"
FUSED = ROOT / "examples" / "fused"
OPERATORS = ("conv2d", "add", "mul", "relu", "softmax", "avg_pool2d", "sigmoid")
ROOM = """
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "NAME-room"
version = "1.0"

[project.entry-points."quantizer.platforms"]
NAME = "NAME_room.room:ROOM"

[tool.hatch.build.targets.wheel]
packages = ["NAME_room"]
"""


def unpacked(project: Path, site: Path, folder: Path) -> None:
    """Build the wheel of *project* and unpack it into *site*, as an installer does."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=project, check=True
    )
    for wheel in folder.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(site)


def inherited() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k not in ("CI", "AIPUPLUGIN_PATH", "PYTEST_ADDOPTS")}


class Customer:
    """Runs programs of the installed wheels."""

    def __init__(self, site: Path, programs: Warmed) -> None:
        self.site, self.programs = site, programs

    def run(self, folder: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        return self.programs.run(program, *words, cwd=folder, env=inherited())

    def judged(self, folder: Path, *options: str, operators: Sequence[str] = OPERATORS):
        specs = [str(self.site / f"quantizer/op_specs/{op}.yaml") for op in operators]
        chip = ("-p", "no:cacheprovider", "-q", "-k", "tiny_chip", "--op-platform=tiny_chip")
        return self.run(folder, "pytest", *specs, *chip, *options)


@pytest.fixture(scope="module")
def customer(tmp_path_factory):
    site = tmp_path_factory.mktemp("site")
    unpacked(ROOT, site, tmp_path_factory.mktemp("wheel"))
    unpacked(EXAMPLE, site, tmp_path_factory.mktemp("chip_wheel"))
    with Warmed(site) as programs:
        yield Customer(site, programs)


def ids(records: bytes) -> list[str]:
    return [json.loads(line)["id"] for line in records.splitlines()]


def test_shipped_operators_are_green_on_the_chip(customer, tmp_path):
    done = customer.judged(tmp_path)
    assert done.returncode == 0 and f"{len(OPERATORS)} passed" in done.stdout, done.stdout


def test_one_wrong_code_fails_every_operator(customer, tmp_path):
    shutil.copytree(EXAMPLE / "faulty", tmp_path / "faulty")
    done = customer.judged(tmp_path, "--op-plugins=faulty")
    assert done.returncode == 1 and f"{len(OPERATORS)} failed" in done.stdout, done.stdout
    for op in OPERATORS:
        assert f"{op}.yaml::{op}-" in done.stdout


def test_a_user_operator_with_stages_runs_on_the_third_party_chip(customer, tmp_path):
    specs = tmp_path / "op_specs"
    shutil.copytree(FUSED / "op_specs", specs)
    chip = (EXAMPLE / "src/tiny_chip/tiny_chip.yaml").read_text().replace("sigmoid]", "sigmoid, swiglu]")
    (specs / "platforms").mkdir()
    named = chip.replace("platform: tiny_chip\n", "platform: newer_chip\nfunctions: tiny_chip\n")
    (specs / "platforms/newer_chip.yaml").write_text(named)
    asked = (
        "pytest",
        "--op-specs=op_specs",
        "-p",
        "no:cacheprovider",
        "-q",
        "-k",
        "swiglu-a8s",
        "--op-platform=newer_chip",
    )
    plugins = f"--op-plugins={FUSED / 'op_plugins'}"
    done = customer.run(tmp_path, *asked, plugins)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout
    done = customer.run(tmp_path, *asked, plugins, f"--op-plugins={FUSED / 'wrong/one_lsb_off.py'}")
    assert done.returncode == 1 and "1 failed" in done.stdout, done.stdout


def test_the_simulator_is_an_engine_and_is_judged(customer, tmp_path):
    assert "tiny_chip" in customer.run(tmp_path, "quantizer", "engine", "list").stdout
    done = customer.judged(tmp_path, "--op-engine=tiny_chip", operators=("relu",))
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout


@pytest.mark.nightly  # two runs with a process of plugins; the tests above judge the same operators
def test_page_commands_pass_and_the_wrong_kernel_fails(customer, tmp_path):
    page = (ROOT / "docs/platforms.md").read_text(encoding="utf-8").split("## 7. Run")[1].split("\n## ")[0]
    (line,) = re.findall(r"^ {4}pytest (.*)$", page, re.MULTILINE)
    (wrong,) = re.findall(r"`(--op-plugins=\w+)`", page)
    shutil.copytree(EXAMPLE / "faulty", tmp_path / "faulty")
    for options, said in (((), " passed"), ((wrong, "-k", "relu"), "1 failed")):
        done = customer.run(tmp_path, "pytest", "-p", "no:cacheprovider", "-q", *line.split(), *options)
        assert said in done.stdout and (options or done.returncode == 0), done.stdout


def test_linting_finds_the_room(customer, tmp_path):
    done = customer.run(tmp_path, "quantizer", "spec", "lint")
    wanted = f"{len(declared_platforms()) + 1} platforms ok"
    assert done.returncode == 0 and wanted in done.stdout, done.stdout + done.stderr


@pytest.mark.nightly  # tests/unit/test_rooms.py tests each part separately
@pytest.mark.parametrize("name", ["tpulang", "tosa", "compass"])
def test_a_shipped_room_in_its_own_wheel_gives_the_same_records(name, tmp_path):
    home, site, room = tmp_path / "home", tmp_path / "site", tmp_path / "room"
    home.mkdir()
    for folder in ("quantizer", "op_specs", "cases"):
        shutil.copytree(ROOT / folder, home / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("conftest.py", "tox.ini", "pyproject.toml", "quantizer_conformance.py"):
        shutil.copy(ROOT / file, home / file)
    specs = [f"op_specs/{op}.yaml" for op in ("add", "fully_connected")]
    # the room has stored failures of fully_connected
    command = ("pytest", *specs, "-p", "no:cacheprovider", "-q", "-k", f"{name} or golden or regressions or ideal")

    def records(path: str) -> tuple[str, bytes]:
        words = [sys.executable, "-m", *command, "--op-report=out"]
        env = inherited() | {"PYTHONPATH": path}
        done = subprocess.run(words, cwd=home, capture_output=True, text=True, check=False, env=env)
        assert done.returncode == 0, done.stdout
        return done.stdout, (home / "out/records.jsonl").read_bytes()

    shipped, before = records(str(home))
    assert before.count(name.encode()) > 4

    room.mkdir()
    package = f"{name}_room"
    shutil.move(home / "quantizer/platforms" / name, room / package)
    for module in (room / package).glob("*.py"):
        module.write_text(module.read_text().replace(f"quantizer.platforms.{name}", package))
    (room / "pyproject.toml").write_text(ROOM.replace("NAME", name))
    text = (home / "pyproject.toml").read_text()
    line = f'{name} = "quantizer.platforms.{name}.room:ROOM"\n'
    assert line in text
    (home / "pyproject.toml").write_text(text.replace(line, ""))

    _, without = records(str(home))
    assert ids(without) == [item for item in ids(before) if not item.endswith(f"-{name}")]
    kept = [line for line in before.splitlines() if b"-ideal" in line]
    assert kept and set(kept) <= set(without.splitlines())

    unpacked(room, site, tmp_path / "dist")
    again, after = records(f"{home}{os.pathsep}{site}")
    assert after == before, again
