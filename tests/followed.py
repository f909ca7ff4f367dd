"""Follows a page as a reader does: writes its files, runs its console blocks, compares what they print with what it shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from warmed import Warmed

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"(?:^`([\w./]+)`:\n\n)?^```(\w+)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
PROGRAMS = {
    "quantizer": f"{sys.executable} -m quantizer",
    "pytest": f"{sys.executable} -m pytest -p no:cacheprovider -p no:xdist",
    "python": sys.executable,
}
SHELL = set("&|;<>$*?`~()")
LEFT_OUT = ("CI", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "AIPUPLUGIN_PATH")


def environment() -> dict[str, str]:
    """Return the variables of a reader's terminal: 80 columns, nothing of this session's own run."""
    kept = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    return kept | {"PYTHONPATH": str(ROOT), "COLUMNS": "80"}


def run(command: str, folder: Path, warmed: Warmed, variables: Mapping[str, str] | None = None) -> str:
    """Run a line of a console block with this interpreter; return what it prints.

    A line that is one of our programs alone runs in a child of a warmed process; others are for the shell.
    variables: given besides those of `environment`.
    """
    env = environment() | dict(variables or {})
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
    """Return a regular expression for a page's output: `...` stands for any lines, times may differ."""
    lines = [
        r"(?:.*\n)*?" if line == "..." else re.sub(r"in\\ \d+\\\.\d+s", "in .*s.*", re.escape(line)) + r"[ ]*\n"
        for line in said.splitlines()
    ]
    return "".join(lines)


def follow(page: Path, folder: Path, warmed: Warmed, without: str | None = None) -> int:
    """Write the files and run the console blocks of *page* in *folder*; return how many commands ran.

    Commands that begin with *without* are left out.
    """
    count = 0
    for path, kind, body in BLOCK.findall(page.read_text(encoding="utf-8")):
        if path:
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(body, encoding="utf-8")
        if kind != "console":
            continue
        for step in re.split(r"^\$ ", body.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
            command, _, said = step.partition("\n")
            if without is not None and command.startswith(without):
                continue
            printed = run(command, folder, warmed)
            assert re.fullmatch(r"\s*" + pattern(said.strip("\n") + "\n" if said.strip() else "") + r"\s*", printed), (
                f"{page.name}: $ {command}\nprints\n{printed}\nand the page says\n{said}"
            )
            count += 1
    return count
