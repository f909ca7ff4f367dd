"""The tutorials' files and console blocks, as a reader follows them: what they print is what the page says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from warmed import Warmed

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
BLOCK = re.compile(r"(?:^`([\w./]+)`:\n\n)?^```(\w+)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
PROGRAMS = {
    "quantizer": f"{sys.executable} -m quantizer",
    "pytest": f"{sys.executable} -m pytest -p no:cacheprovider -p no:xdist",
    "python": sys.executable,
}
SHELL = set("&|;<>$*?`~()")
LEFT_OUT = ("CI", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "AIPUPLUGIN_PATH")


def run(command: str, folder: Path, warmed: Warmed) -> str:
    """Run a line of a console block with this interpreter; return what it prints.

    A line that is one of our programs alone runs in a child of a warmed process; others are for the shell.
    """
    env = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    env |= {"PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    words = shlex.split(command)
    if words[0] in ("pytest", "quantizer") and not SHELL & set(command):
        added = ("-p", "no:cacheprovider", "-p", "no:xdist") if words[0] == "pytest" else ()
        return warmed.run(words[0], *added, *words[1:], cwd=folder, env=env, merged=True).stdout
    for name, program in PROGRAMS.items():
        command = re.sub(rf"(^|&& ){name} ", rf"\g<1>{program} ", command)
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        text=True,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=env,
    )
    return done.stdout


def pattern(said: str) -> str:
    """Return what matches the output that a page shows: `...` leaves out lines, times may be any."""
    lines = [
        r"(?:.*\n)*?" if line == "..." else re.sub(r"in\\ \d+\\\.\d+s", "in .*s.*", re.escape(line)) + r"[ ]*\n"
        for line in said.splitlines()
    ]
    return "".join(lines)


def follow(page: Path, folder: Path, warmed: Warmed) -> int:
    """Write the files and run the console blocks of *page* in *folder*; return how many commands ran."""
    count = 0
    for path, kind, body in BLOCK.findall(page.read_text(encoding="utf-8")):
        if path:
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(body, encoding="utf-8")
        if kind != "console":
            continue
        for step in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            command, _, said = step.partition("\n")
            printed = run(command, folder, warmed)
            assert re.fullmatch(r"\s*" + pattern(said.strip("\n") + "\n" if said.strip() else "") + r"\s*", printed), (
                f"{page.name}: $ {command}\nprints\n{printed}\nand the page says\n{said}"
            )
            count += 1
    return count


@pytest.mark.parametrize(("page", "least"), [("operator_author", 8), ("model_engineer", 5)])
def test_the_page_says_what_happens(tmp_path: Path, warmed: Warmed, page: str, least: int) -> None:
    if page == "model_engineer":
        pytest.importorskip("onnx")
        for path in (ROOT / "examples" / "model_test").iterdir():
            if path.is_file():
                (tmp_path / path.name).write_bytes(path.read_bytes())
    assert follow(TUTORIALS / f"{page}.md", tmp_path, warmed) >= least


def test_the_page_on_debugging_finds_the_cause(tmp_path: Path, warmed: Warmed) -> None:
    assert follow(ROOT / "docs" / "debugging.md", tmp_path, warmed) >= 4


def test_the_commands_that_judge_a_network_s_operators_find_items_in_any_folder(tmp_path: Path, warmed: Warmed) -> None:
    pytest.importorskip("onnxruntime")
    page = (TUTORIALS / "model_engineer.md").read_text(encoding="utf-8")
    judging = re.findall(r"^\$ (pytest .*)$", page, re.MULTILINE)
    found = [run(f"{command} --collect-only -q", tmp_path, warmed) for command in judging]
    assert [re.search(r"(\d+)/\d+ tests collected", said)[1] for said in found] == ["2", "1"], found  # type: ignore[index]


@pytest.mark.nightly  # plants every fault
def test_the_page_of_the_operator_says_what_planted_faults_are_found(tmp_path: Path, warmed: Warmed) -> None:
    page = TUTORIALS / "operator_author.md"
    follow(page, tmp_path, warmed)
    command, said = re.findall(
        r"^\$ (quantizer faults .*)\n((?:.+\n)+?)```", page.read_text(encoding="utf-8"), re.MULTILINE
    )[0]

    def cells(text: str) -> list[str]:
        return [re.sub(r" \(\d+\)|-{2,}| {2,}", " ", line).strip() for line in text.splitlines()]

    printed = cells(run(command, tmp_path, warmed))
    assert [line for line in cells(said) if line != "..." and line not in printed] == []
