"""Prints the speed of reports at a large vendor's size: 150 operators x 8 schemes x 6 platforms, 1,000 past runs."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path

from msgspec.structs import replace
from tabulate import tabulate

from quantizer import __version__
from quantizer.core.facts import Facts, SpecFacts
from quantizer.core.record import CheckRecord, Record
from quantizer.core.verdict import EVERY, ITEM_CHECKS
from quantizer.reporting import history
from quantizer.reporting.diff import compare
from quantizer.reporting.diff_views import render as render_diff
from quantizer.reporting.page import render
from quantizer.reporting.store import read_run, write_run
from quantizer.reporting.tally import summary_of

OPERATORS, RUNS, WRITERS = 150, 1_000, 20
SCHEMES = ("w4a8", "w8a8", "w8pta8", "w8a16", "w16a16", "w4a16", "w8a8s", "w8a8_pow2")
PLATFORMS = ("ideal", "compass", "ort", "tflite_ref", "xnnpack", "tosa")
LOADS = 5
LARGE = 1_500
"""The number of operators of the larger run, which has 78,000 records."""
MOVED = 100
"""One item in this many differs between a run and the next one."""


def records(seed: int = 0, operators: int = OPERATORS) -> list[Record]:
    """Return the records of such a run: every check has a result, some items have gaps, two in a thousand fail."""
    found = []
    for op in range(operators):
        name = f"operator_{op:03}"
        for scheme in SCHEMES:
            found += [_item(name, scheme, platform, seed) for platform in PLATFORMS]
        found += [Record(f"{name}-{kind}", name, kind, "passed") for kind in ITEM_CHECKS]
    return found


def _item(op: str, scheme: str, platform: str, seed: int) -> Record:
    name = f"{op}-{scheme}-{platform}"
    mixed = hash_of(f"{name} {seed}")
    fails = mixed % 500 == 0
    checks = {
        check: CheckRecord(passed=40, elements=1200, ratio=round((mixed >> n) % 1000 / 1000, 3), width=1.0)
        for n, check in enumerate(EVERY)
    }
    checks["round_trip"] = CheckRecord(passed=30, inconclusive=10, reasons=("no file format holds this",))
    if fails:
        checks["arithmetic"] = replace(checks["arithmetic"], failed=1, ratio=2.0)
    return Record(
        name,
        op,
        "cases",
        "failed" if fails else "passed",
        scheme=scheme,
        platform=platform,
        engine="builtin",
        cases=40,
        checks=checks,
        coverage=("data=random", "tiles=whole"),
        gaps=("data=ties",) if mixed % 7 == 0 else (),
        metrics={"sqnr_db": mixed % 90, "error_lsb": mixed % 700 / 1000},
        failure="one code off [0123456789ab]" if fails else "",
    )


def hash_of(text: str) -> int:
    """Return a number that depends on *text* alone."""
    # hash() of a text differs from process to process
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for seed, name in enumerate(("base", "run")):
            write_run(root / name, records(seed), summary_of(records(seed)))
        base, other = records(0, LARGE), records(1, LARGE)
        next_run = [
            new if place % MOVED == 0 else old for place, (old, new) in enumerate(zip(base, other, strict=True))
        ]
        for name, found in {"large base": base, "large run": other, "large next": next_run}.items():
            write_run(root / name, found, summary_of(found), _facts(found))
        rows = [*_page(root), *_diff(root), *_history(root), *_large(root)]
    sys.stdout.write(tabulate(rows, headers=["what", "measured", "target"]) + "\n")


def _page(root: Path) -> list[tuple[str, str, str]]:
    file = root / "report.html"
    seconds = _seconds(lambda: file.write_text(render(read_run(root / "run"), title="a run"), encoding="utf-8"))
    size = f"{OPERATORS} x {len(SCHEMES)} x {len(PLATFORMS)}"
    return [
        (f"report html of {size}, records read", seconds, "<= 3 s"),
        ("the page", f"{file.stat().st_size / 1e6:.2f} MB", "<= 3 MB"),
        ("opened in Chromium, until drawn", _opened(file), "<= 1.5 s"),
    ]


def _opened(file: Path) -> str:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return "playwright is not installed"
    browser_path = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
    if not browser_path.exists():
        return "chromium is not installed"
    with sync_playwright() as playwright:
        # a container has neither the sandbox's rights nor a graphics card
        browser = playwright.chromium.launch(executable_path=str(browser_path), args=["--no-sandbox", "--disable-gpu"])
        found = []
        for _ in range(LOADS):
            page = browser.new_page(viewport={"width": 1200, "height": 900})
            start = time.perf_counter()
            page.goto(file.as_uri(), wait_until="load")
            # a second frame begins only after the first one was drawn
            page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
            found.append(time.perf_counter() - start)
            page.close()
        browser.close()
    return f"{statistics.median(found):.2f} s"


def _diff(root: Path) -> list[tuple[str, str, str]]:
    def diff() -> str:
        return render_diff(compare(read_run(root / "base"), read_run(root / "run")), "markdown")

    return [("report diff of two such runs", _seconds(diff), "<= 1 s")]


def _facts(found: list[Record]) -> Facts:
    """Return the facts (run.json) of a whole run with the records *found*; reports refuse a folder without them."""
    spec = SpecFacts(version="1", path="op_specs/operator.yaml", sha256="0" * 64, lines={"op": 2})
    return Facts(
        quantizer=__version__,
        python="3.11",
        packages={},
        engine="builtin",
        profile="gate",
        checks=list(EVERY),
        files={},
        specs={record.op: spec for record in found},
        items=sorted(record.id for record in found),
        exit=1,
    )


def _large(root: Path) -> list[tuple[str, str, str]]:
    """Measure the commands on ten times the records, each in a separate process, as a user starts it."""
    page = root / "large.html"
    base, run, next_run = (str(root / name) for name in ("large base", "large run", "large next"))
    count = f"{(LARGE * (len(SCHEMES) * len(PLATFORMS) + len(ITEM_CHECKS))):,} records"
    return [
        (f"report show of {count}", _verb("show", run), "<= 3 s"),
        (
            f"report diff with the next run, of which one item in {MOVED} differs",
            _verb("diff", base, next_run),
            "<= 3 s",
        ),
        ("report diff with a run of which every item differs", _verb("diff", base, run), "<= 3 s"),
        (f"report html of {count}", _verb("html", run, "--output", str(page)), "<= 10 s"),
        ("the page", f"{page.stat().st_size / 1e6:.2f} MB", "<= 10 MB"),
    ]


def _verb(*words: str) -> str:
    """Return the elapsed time and the processor time of one command, as text."""
    before, start = os.times(), time.perf_counter()
    command = [sys.executable, "-m", "quantizer", "report", *words]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    clock, after = time.perf_counter() - start, os.times()
    busy = after.children_user + after.children_system - before.children_user - before.children_system
    return f"{clock:.2f} s ({busy:.2f} s busy)"


def _history(root: Path) -> list[tuple[str, str, str]]:
    file = root / "history.sqlite"
    figures = history.figures_of(records(), {}, {})
    history.append(file, "run 0", figures)
    with closing(sqlite3.connect(file)) as database, database:  # the database as that many appends would leave it
        database.executemany("INSERT INTO runs (name) VALUES (?)", ((f"run {number}",) for number in range(1, RUNS)))
        columns = ", ".join(history.COLUMNS)
        database.execute(
            f"INSERT INTO figures SELECT runs.position, op, {columns} FROM runs, figures WHERE runs.position > 1"  # noqa: S608
        )
    one = _seconds(lambda: history.trend(file, op="operator_007"))
    everything = _seconds(lambda: history.ratios(file))
    start = time.perf_counter()
    few = {op: figures[op] for op in sorted(figures)[:5]}
    context = get_context("fork" if "fork" in get_all_start_methods() else "spawn")
    jobs = [context.Process(target=history.append, args=(file, f"job {n}", few)) for n in range(WRITERS)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    lost = WRITERS - sum(name.startswith("job") for name in history.runs(file))
    return [
        (f"history of {RUNS} runs, one operator's trend", one, "<= 200 ms"),
        ("the same, all operators of the newest 100 runs", everything, "<= 200 ms"),
        (f"{WRITERS} processes append at once", f"{lost} lost, {time.perf_counter() - start:.1f} s", "0 lost"),
    ]


def _seconds(function: Callable[[], object]) -> str:
    """Return the shortest elapsed time and processor time of three runs; other work disturbs the latter less."""
    clock, busy = [], []
    for _ in range(3):
        start, before = time.perf_counter(), time.process_time()
        function()
        clock.append(time.perf_counter() - start)
        busy.append(time.process_time() - before)
    return f"{min(clock):.3f} s ({min(busy):.3f} s busy)"


if __name__ == "__main__":
    main()
