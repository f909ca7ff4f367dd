"""Figures and pictures are those of the pages and functions that they come from."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from quantizer.core.library import load_library
from quantizer.core.rooms import engines

ROOT = Path(__file__).parents[2]
FIGURES = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
NUMBER = r"[\d,]+"


def stated(sentence: str) -> list[int]:
    """Return the numbers of the one row of the table that matches *sentence*, where N stands for a number."""
    found = re.findall(re.sub(r"\bN\b", lambda _: f"({NUMBER})", re.escape(sentence)), FIGURES)
    assert len(found) == 1, f"figures.md has no row like: {sentence}"
    return [int(number.replace(",", "")) for number in (found[0] if isinstance(found[0], tuple) else found)]


def numbers(page: str, expression: str) -> list[int]:
    """Return the numbers that a page states."""
    found = re.search(expression, (ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert found, f"{page}: nothing matches {expression}"
    return [int(number) for number in found.groups()]


def test_figures_count_operators_and_platforms_as_the_library_does() -> None:
    library = load_library()
    assert stated("N operators on N platforms") == [len(library.specs), len(library.platforms)]
    own = {platform for engine in engines().values() if not engine.guest for platform in engine.variant_of_platform}
    assert stated("N of the platforms are compared with the running engine") == [len(own)]


def test_the_page_of_tasks_lists_every_platform() -> None:
    table = (ROOT / "docs" / "use.md").read_text(encoding="utf-8").split("## Which platforms there are")[1]
    rows = [row for row in table.splitlines() if row.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(load_library().platforms)


def test_figures_count_faults_as_their_page_does() -> None:
    faults, pairs, found, _, without = numbers(
        "faults.md", r"(\d+) faults in \d+ operators: (\d+) pairs, (\d+) found, (\d+) survivors, (\d+) without effect"
    )
    planted = stated("N planted faults give N pairs of fault and operator. N have no observable effect")
    assert planted == [faults, pairs, without]
    assert stated("finds the other N.") == [found]
    close, compared = numbers("faults.md", r"atol 1e-3 rtol 1e-2 .*?\| (\d+) of (\d+)")
    cosine, _ = numbers("faults.md", r"cosine 0.99 .*?\| (\d+) of (\d+)")
    others = stated("Of the N pairs with an output to compare, `atol=1e-3 rtol=1e-2` finds N and cosine 0.99 finds N |")
    assert others == [compared, close, cosine]


def test_recorded_runs_and_node_tests() -> None:
    recorded = [
        path for path in (ROOT / "cases" / "reference").rglob("opt.cfg") if (path.parent / "quant.txt").exists()
    ]
    runs, equal, nearly = (
        *stated("of N recorded runs of the Compass"),
        *stated("N are reproduced to the byte. N differ in"),
    )
    assert (runs, equal + nearly) == (len(recorded), len(recorded))
    tests, passed = numbers("onnx.md", r"all: (\d+) tests, (\d+) passed")
    assert stated("N of N official node tests of ONNX") == [passed, tests]


def test_pictures_are_up_to_date() -> None:
    drawn = runpy.run_path(str(ROOT / "docs" / "site" / "pictures.py"))
    for name, draw in drawn["PICTURES"].items():
        assert (drawn["FOLDER"] / f"{name}.svg").read_text(encoding="utf-8") == draw(), name
