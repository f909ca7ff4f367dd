"""The pictures of the page of a run, docs/report.png and docs/report-phone.png: python docs/site/screenshots.py writes them.

The page is that of a run of examples/fused with its wrong plugin, so that it shows a failure:

    cd examples/fused
    pytest op_specs --op-plugins=op_plugins --op-plugins=wrong/one_lsb_off.py -k a8-ideal --op-report=/tmp/run
    quantizer report html /tmp/run -o /tmp/page.html
    python ../../docs/site/screenshots.py /tmp/page.html

Needs playwright and Chromium, as `tox -e browser` does.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).parents[1]
SIZES = {"report": (1200, 1100), "report-phone": (390, 844)}
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


def draw(page: Path) -> None:
    """Write one picture for each size of *page*, an HTML file."""
    with sync_playwright() as playwright:
        path = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        for name, (width, height) in SIZES.items():
            shown = browser.new_page(color_scheme="light", viewport={"width": width, "height": height})
            shown.goto(page.resolve().as_uri())
            shown.screenshot(path=FOLDER / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Write python docs/site/screenshots.py PAGE, where `quantizer report html RUN -o PAGE` wrote PAGE.")
    draw(Path(sys.argv[1]))
