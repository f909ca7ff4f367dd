"""The page in a real browser: it draws, filters, sorts, leads, and says nothing on the console.

Run by `tox -e browser`; the environment variable CHROMIUM names the browser where it is not /usr/bin/chromium.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from playwright.sync_api import Page, sync_playwright

from quantizer.reporting.diff import compare
from quantizer.reporting.page import render
from quantizer.reporting.store import read_run

BASELINE = Path(__file__).parents[2] / "reports/baselines/gate.jsonl"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    written = tmp_path_factory.mktemp("page") / "report.html"
    written.write_text(render(read_run(BASELINE), title="a run"), encoding="utf-8")
    return written


@pytest.fixture(params=["light", "dark", "phone", "no script"])
def page(request: pytest.FixtureRequest, file: Path) -> Iterator[Page]:
    said: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=FLAGS
        )
        shown = browser.new_page(
            color_scheme="dark" if request.param == "dark" else "light",
            viewport={"width": 390 if request.param == "phone" else 1200, "height": 900},
            java_script_enabled=request.param != "no script",
        )
        shown.on("console", lambda message: said.append(message.text))
        shown.on("pageerror", lambda error: said.append(str(error)))
        shown.on("request", lambda request: said.append(request.url) if not request.url.startswith("file:") else None)
        shown.goto(file.as_uri())
        yield shown
        browser.close()
    assert said == []


def test_the_page_shows_every_operator_and_is_no_wider_than_the_screen(page: Page) -> None:
    operators = {record.op for record in read_run(BASELINE)}
    assert page.locator("details.op:visible").count() == len(operators)
    assert page.locator(".tile:visible").count() >= 8
    assert page.locator("html").evaluate("page => page.scrollWidth <= page.clientWidth")


def test_a_scheme_leads_to_its_line(page: Page) -> None:
    if not page.locator("#tools").is_visible():
        pytest.skip("a closed part is opened by the script")
    page.locator("#matrix tr[data-of=conv2d] summary").first.click()
    page.locator("#matrix tr[data-of=conv2d] details a:visible").first.click()
    assert page.locator("details#op-conv2d[open] tr:target").is_visible()


def test_a_regression_leads_to_its_line(file: Path, tmp_path: Path) -> None:
    base = [replace(one, metrics={"error_lsb": 0.5}) for one in read_run(BASELINE)]
    grown = [replace(one, metrics={"error_lsb": 0.8}) if one.id == "conv2d-w8a8-ort" else one for one in base]
    written = tmp_path / "diff.html"
    written.write_text(render(grown, title="a run", diff=compare(base, grown)), encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=FLAGS
        )
        shown = browser.new_page(viewport={"width": 1200, "height": 900})
        shown.goto(written.as_uri())
        row = shown.locator("#diff tbody tr")
        assert row.count() == 1
        assert "+0.3" in row.inner_text()
        row.locator("a").click()
        assert shown.locator("details#op-conv2d[open] tr:target").inner_text().startswith("w8a8-ort")
        browser.close()


def test_a_word_filters_and_a_head_sorts(page: Page) -> None:
    if not page.locator("#tools").is_visible():
        pytest.skip("there is no filter without a script")
    page.fill("#filter", "conv2d")
    names = page.locator("details.op:visible").evaluate_all("all => all.map(one => one.id)")
    assert names == ["op-conv2d", "op-depthwise_conv2d"]
    part = page.locator("details#op-conv2d")
    part.locator("summary").first.click()
    for expected in (True, False):
        part.locator("th button", has_text="SQNR").click()
        cells = part.locator("tbody tr td:nth-last-child(4)").all_inner_texts()
        values = [float(text) for text in cells]
        assert values == sorted(values, reverse=expected)
    page.check("#failing")
    assert page.locator("details.op:visible").count() == 0
