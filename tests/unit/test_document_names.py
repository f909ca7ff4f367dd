"""Files, modules, names and imports that the documents mention exist."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HISTORY = ("CHANGELOG.md", "docs/mutation.md")
"""They name what was: files of earlier versions, and the commit that was measured."""
MADE = {
    "CONTRIBUTING.md": {"op_specs/soft_shrink.yaml", "quantizer/ops/soft_shrink.py"},
    "docs/adr/0028-what-a-processor-decides.md": {"x.jsonl"},
    "docs/engines.md": {"my_sim_worker.py"},
    "docs/platforms.md": {"platforms/my_npu.yaml", "cases/defects"},
    "docs/plugins.md": {"plugin", "cover.sh", "x.yaml"},
    "docs/tutorials/model_engineer.md": {"layers.py", "make_model.py"},
    "docs/tutorials/operator_author.md": {"op_specs/weighted_sum.yaml"},
}
"""Page -> what its reader makes while reading."""
RUN = re.compile(r"reports/(?!baselines)")  # a run makes it
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
]
READ = [page for page in PAGES if page not in HISTORY]
GROUPS = set(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]) | {
    "quantizer.operators"
}
FOLDERS = {path.name for base in (ROOT, ROOT / "quantizer") for path in base.iterdir() if path.is_dir()}
PACKAGES = {path.name for path in (ROOT / "quantizer").iterdir() if (path / "__init__.py").exists()}
NAMES = {path.name for folder in FOLDERS - {".venv", ".tox"} for path in (ROOT / folder).rglob("*") if path.is_file()}
NAMES |= {path.name for path in (ROOT / "quantizer").rglob("*")} | {path.name for path in ROOT.iterdir()}
SUFFIX = re.compile(r"[\w-]+\.(?:py|yaml|yml|md|toml|jsonl|sh)")


def quoted(text: str) -> set[str]:
    """Return the words between back quotes, without those that stand for many."""
    words = {
        word.rstrip("./") for code in re.findall(r"`([^`\n]+)`", text) for word in re.findall(r"[^\s,;:()='\"]+", code)
    }
    return {word for word in words if re.fullmatch(r"[\w./-]+", word)}


def missing_files(page: str, words: set[str]) -> list[str]:
    """Return the paths and names of files among *words* that are nowhere: from the root, the package, or the page."""
    bases = (ROOT, ROOT / "quantizer", (ROOT / page).parent)
    paths = {word for word in words if "/" in word and word.split("/")[0] in FOLDERS and not RUN.match(word)}
    lost = {path for path in paths if not any((base / path).exists() for base in bases)}
    return sorted(
        (lost | {word for word in words if SUFFIX.fullmatch(word) and word not in NAMES}) - MADE.get(page, set())
    )


def exists(name: str) -> bool:
    """Return whether a dotted name is a module, or an attribute of one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def dotted(words: set[str]) -> set[str]:
    """Return the names of the package among *words*, from `quantizer` or from one of its packages on."""
    names = {word for word in words if re.fullmatch(r"\w+(?:\.\w+)+", word) and not SUFFIX.fullmatch(word)} - GROUPS
    return {
        word if word.startswith("quantizer.") else f"quantizer.{word}"
        for word in names
        if word.split(".")[0] in {"quantizer", *PACKAGES}
    }


def imported(text: str) -> set[str]:
    """Return the names that Python blocks import from the package."""
    found = re.findall(r"^\s*(?:>>> )?from (quantizer[\w.]*) import ([\w, ]+)", text, re.MULTILINE)
    return {
        f"{module}.{name.split(' as ')[0].strip()}"
        for module, names in found
        for name in names.split(",")
        if name.strip()
    }


@pytest.mark.parametrize("page", READ)
def test_files_that_a_page_names_exist(page: str) -> None:
    assert missing_files(page, quoted((ROOT / page).read_text("utf-8"))) == []


@pytest.mark.parametrize("page", READ)
def test_names_of_the_package_on_a_page_exist(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    assert sorted(name for name in dotted(quoted(text)) | imported(text) if not exists(name)) == []


def test_missing_files_and_names_are_found() -> None:
    words = quoted("`quantizer/ops/no_such.py`, `runtime/gone.py`, `gone.py`, `quantizer.ops.gone`, `ops/*.py`, `ops`")
    assert missing_files("README.md", words) == ["gone.py", "quantizer/ops/no_such.py", "runtime/gone.py"]
    assert [
        name for name in dotted(words) | imported("from quantizer.ops import operator, gone\n") if not exists(name)
    ] == ["quantizer.ops.gone"]
