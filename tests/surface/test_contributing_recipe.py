"""The recipe "add an operator" of CONTRIBUTING.md, run as written in a copy of the repository."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from warmed import Warmed

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("quantizer", "op_specs", "cases", "conftest.py", "tox.ini", "pyproject.toml", "CONTRIBUTING.md")
LEFT_OUT = ("CI", "PYTEST_ADDOPTS", "AIPUPLUGIN_PATH")
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```\n", re.DOTALL | re.MULTILINE)


Done = subprocess.CompletedProcess[str]


def run(command: str, folder: Path, programs: Warmed) -> Done:
    """Run a line of the recipe in *folder*."""
    program, *arguments = shlex.split(command)
    added = ("-p", "no:cacheprovider") if program == "pytest" else ()
    env = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    return programs.run(program, *added, *arguments, cwd=folder, env=env)


class Newcomer:
    """Follows the recipe step by step in a separate folder."""

    def __init__(self, folder: Path, programs: Warmed) -> None:
        self.folder, self.programs = folder, programs
        text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
        recipe = text[text.index("\n## Add an operator\n") :]
        recipe = recipe[: recipe.index("\n## ", 1)]
        parts = re.split(r"^\d+\. ", recipe, flags=re.MULTILINE)
        self.prose = parts[0]
        self.steps = [[(kind, textwrap.dedent(body)) for kind, body in BLOCK.findall(part)] for part in parts[1:]]
        self.said = parts[1:]
        self.op = re.search(r"quantizer spec new (\w+)", recipe)[1]  # type: ignore[index]

    def commands(self, step: int) -> list[str]:
        """Return the commands of a step, in order."""
        return [line for kind, body in self.steps[step] if not kind for line in body.splitlines()]

    def run(self, command: str) -> Done:
        return run(command, self.folder, self.programs)

    def write(self, step: int, kind: str, path: Path) -> None:
        """Put the code block of a step where the text says."""
        assert f"`{path.as_posix()}`" in self.said[step] or kind == "python"
        (body,) = [body for name, body in self.steps[step] if name == kind]
        (self.folder / path).write_text(body, encoding="utf-8")


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    folder = tmp_path_factory.mktemp("checkout")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "reference", "models"))
        else:
            shutil.copy(source, folder / name)
    with Warmed(folder) as programs:
        yield Newcomer(folder, programs)


def failures(done: Done) -> list[str]:
    return re.findall(r"^FAILED \S+::(\S+)", done.stdout, re.MULTILINE)


def test_the_recipe_ends_green_with_every_fault_found(newcomer: Newcomer) -> None:
    op, golden = newcomer.op, f"{newcomer.op}-golden"
    spec, module = Path("op_specs") / f"{op}.yaml", Path("quantizer/ops") / f"{op}.py"
    new, first = newcomer.commands(0)
    done = newcomer.run(new)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"wrote {spec}\nwrote {module}\nnext: pytest {spec}\n"

    done = newcomer.run(first)
    assert failures(done) == [golden], done.stdout
    last = f"Run pytest '{spec}::{golden}' --op-golden-update 'first goldens'."
    assert (
        f"{golden}: cases/golden/{op}.jsonl: there is no golden. Once the operator's other items are green"
        in done.stdout
    )
    assert last in done.stdout

    newcomer.write(1, "yaml", spec)
    newcomer.write(2, "python", module)
    assert newcomer.run("quantizer spec lint").returncode == 0
    (again,) = newcomer.commands(3)
    done = newcomer.run(again)
    assert failures(done) == [golden], done.stdout
    assert last in done.stdout

    store, green = newcomer.commands(4)
    assert newcomer.run(store).returncode == 0
    assert (newcomer.folder / f"cases/golden/{op}.jsonl").is_file()
    done = newcomer.run(green)
    assert done.returncode == 0, done.stdout
    assert f"{op} " in done.stdout

    (plant,) = newcomer.commands(5)
    done = newcomer.run(plant)
    assert done.returncode == 0, done.stdout
    assert re.search(r" \d\d pairs, \d\d found, 0 survivors, .* 0 alarms", done.stdout), done.stdout


def test_the_recipe_is_short(newcomer: Newcomer) -> None:
    """Fifteen minutes: six steps, nine commands at most, and fewer than 1,000 words around them."""
    assert len(newcomer.steps) == 6
    assert sum(len(newcomer.commands(step)) for step in range(6)) <= 9
    prose = BLOCK.sub("", " ".join(newcomer.said))
    assert len(prose.split()) < 1000


@pytest.mark.parametrize("kind", ["elementwise", "table", "custom"])
def test_a_new_operator_fails_one_check_naming_the_next_step(tmp_path: Path, kind: str, warmed: Warmed) -> None:
    done = run(f"quantizer spec new my_op --kind {kind}", tmp_path, warmed)
    following = done.stdout.splitlines()[-1].removeprefix("next: ")
    done = run(following, tmp_path, warmed)
    assert failures(done) == ["my_op-golden"]
    step = re.search(r"Run (pytest '.*')?.*--op-golden-update '.*' --op-plugins=op_plugins\.", done.stdout)
    assert step is not None
    assert run(step[0].removeprefix("Run ").rstrip("."), tmp_path, warmed).returncode == 0
    assert run(following, tmp_path, warmed).returncode == 0
    done = run("quantizer faults --op my_op --op-specs op_specs --op-plugins op_plugins", tmp_path, warmed)
    assert done.returncode == 0
    assert ", 0 survivors, " in done.stdout.splitlines()[-1]
