"""The page of a run: complete, self-contained, escaped, and deterministic."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from quantizer.core.errors import CaseError
from quantizer.core.facts import Facts
from quantizer.core.record import CheckRecord, Record
from quantizer.reporting import page as page_module
from quantizer.reporting import page_operators
from quantizer.reporting.blame import since
from quantizer.reporting.charts import BINS, histogram, scatter, sparkline
from quantizer.reporting.diff import compare
from quantizer.reporting.history import Figures
from quantizer.reporting.page import render
from quantizer.reporting.page_operators import SHOWN

UNCLOSED = {"meta", "input", "br", "rect", "line", "circle", "path", "td"}
"""What HTML lets stand without an end, and what SVG closes at once."""
REPLAY = next(
    (Path(__file__).parents[2] / "quantizer/platforms/compass/cases/defects").glob("compass-equal_scales*.json")
)


class Parsed(HTMLParser):
    """The page as a browser reads it: ids, links, texts, and whether every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.links += [value for name in ("href", "src") if (value := found.get(name))]
        if tag not in UNCLOSED:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in UNCLOSED:
            return
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def record(item: str, **changes: object) -> Record:
    op, scheme, platform = item.split("-")
    checks = {"arithmetic": CheckRecord(passed=9, ratio=0.9, elements=90), "accuracy": CheckRecord(passed=9, ratio=0.4)}
    fields: dict[str, object] = {
        "id": item,
        "op": op,
        "kind": "cases",
        "outcome": "passed",
        "scheme": scheme,
        "platform": platform,
        "engine": "builtin",
        "cases": 9,
        "checks": checks,
        "metrics": {"sqnr_db": 31.0},
    }
    return Record(**(fields | changes))  # type: ignore[arg-type]


RUN = [
    record("add-a8-ideal"),
    record("add-a16-ideal"),
    record("relu-a8-ort"),
    Record("add-golden", "add", "golden", "passed"),
]
BROKEN = {"accuracy": CheckRecord(passed=8, failed=1, ratio=1.3, elements=90)}


def test_every_link_is_internal_and_every_element_closed():
    page = Parsed(render(RUN, title="a run"))
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert page.links
    assert {link for link in page.links if link[0] != "#" or link[1:] not in page.ids} == set()
    assert {item.id for item in RUN} <= set(page.ids)


def test_the_page_fetches_nothing():
    text = render(RUN, title="a run")
    assert "default-src 'none'" in text
    assert not {"link", "img", "iframe", "object"} & set(Parsed(text).tags)
    assert "http://" not in text
    assert "https://" not in text


def test_foreign_text_is_escaped_on_the_page():
    evil = record("add-a8-ideal", outcome="failed", failure="</td><script>alert(1)</script>", checks=BROKEN)
    page = Parsed(render([evil], title="<b>"))
    assert page.tags.count("script") == 1
    assert "b" not in page.tags[: page.tags.index("h1") + 1]
    assert "</td><script>alert(1)</script>" in page.text


def test_a_failing_item_shows_its_graph_and_commands(tmp_path):
    failing = record("add-a8-ideal", outcome="failed", checks=BROKEN, failure="accuracy: 1 of 90 (0123456789ab)")
    (tmp_path / "add-a8-ideal-000000000000.json").write_text("not the smallest")
    (tmp_path / "add-a8-ideal-0123456789ab.json").write_text(REPLAY.read_text())
    text = render([failing, *RUN[1:]], title="a run", failures=tmp_path)
    case = json.loads(REPLAY.read_text())["case"]
    for name, shape in case["shapes"].items():
        assert f"<span>{name}: {' x '.join(map(str, shape)) or 'scalar'}</span>" in text
    assert "pytest &#39;op_specs/add.yaml::add-a8-ideal&#39;" in text
    assert f"quantizer case replay {tmp_path.name}/add-a8-ideal-0123456789ab.json" in text
    assert '<a class="failed" href="#add-a8-ideal">' in text
    assert "<td>1.30<td>" in text


def test_the_first_screen_links_failures_and_cases_show_output(tmp_path):
    failing = record("add-a8-ideal", outcome="failed", checks=BROKEN, failure="accuracy: 1 of 90 [0123456789ab]")
    raw = json.loads(REPLAY.read_text()) | {
        "text": "worst  y[0]\n  got  3\n  suspect  the rule\n  accumulator -508 = 3*-12 <b>\n"
    }
    (tmp_path / "add-a8-ideal-0123456789ab.json").write_text(json.dumps(raw))
    text = render([failing, *RUN[1:]], title="a run", failures=tmp_path)
    assert (
        '<li><a href="#case-add-a8-ideal">add-a8-ideal</a>: accuracy: 1 of 90 [0123456789ab]; worst y[0]; got 3; suspect the rule</li>'
        in text
    )
    assert text.index("What broke") < text.index('id="tools"')
    assert "suspect  the rule\n  accumulator -508 = 3*-12 &lt;b&gt;</pre>" in text
    assert "What broke" not in render(RUN, title="a run")


def figures(*failed: int) -> list[tuple[str, str, Figures]]:
    return [
        ("add", f"run{number}", Figures(0.5, None, None, 9, count, 0, None, None))
        for number, count in enumerate(failed)
    ]


@pytest.mark.parametrize(
    ("failed", "said"),
    [
        ((0, 0, 1, 2), "fails since run run2; passed in run run1"),
        ((0, 1, 0, 3), "fails since run run3; passed in run run2"),
        ((1, 1), "fails since run run0; no older run of it is in the history"),
        ((1, 0), None),
    ],
)
def test_since_when_an_operator_fails(failed, said):
    found = since(figures(*failed))
    assert ({op: one.text for op, one in found.items()}) == ({"add": said} if said else {})


def test_the_first_screen_shows_since_when_and_whose_function():
    failing = record("add-a8-ideal", outcome="failed", checks=BROKEN, failure="accuracy: 1 of 90")
    facts = Facts.model_validate(
        {
            "quantizer": "1",
            "python": "3",
            "packages": {},
            "engine": "builtin",
            "profile": "gate",
            "checks": [],
            "files": {},
            "functions": [
                {"name": "add.quantized on ideal 2", "origin": "kernels/add.py", "standing": "judged"},
                {"name": "mul.quantized on ideal 2", "origin": "kernels/mul.py", "standing": "judged"},
            ],
        }
    )
    text = render([failing], title="a run", facts=facts, sinces=since(figures(0, 1)), diff=compare([RUN[0]], [failing]))
    assert (
        '<p><a href="#op-add">add</a>: fails since run run1; passed in run run0. '
        "Functions of plugins: add.quantized on ideal 2 (kernels/add.py).</p>" in text
    )
    assert "accuracy: 1 of 90 <small>(passed in the baseline)</small></li>" in text
    assert text.index("What broke") < text.index('<div class="tiles">')
    assert text.index("1 of 1 item failed, all of add.") < text.index("fails since run") < text.index('<li><a href="#')


def test_the_first_screen_counts_failing_items_and_operators():
    failing = [record(f"{op}-a8-ideal", outcome="failed", op=op, checks=BROKEN) for op in ("add", "sub")]
    text = render([*failing, record("mul-a8-ideal", op="mul")], title="a run")
    assert "<p><b>2 of 3 items failed, in 2 of 3 operators.</b></p>" in text


def test_failure_commands_name_the_run_and_its_plugins(tmp_path):
    failing = record("add-a8-ideal", outcome="failed", checks=BROKEN, failure="accuracy: 1 of 90 [0123456789ab]")
    (tmp_path / "failures").mkdir()
    (tmp_path / "failures" / "add-a8-ideal-0123456789ab.json").write_text(REPLAY.read_text())
    facts = Facts.model_validate(
        {
            "quantizer": "1",
            "python": "3",
            "packages": {},
            "engine": "builtin",
            "profile": "gate",
            "checks": [],
            "files": {},
            "arguments": "--op-plugins=kernels",
            "specs": {
                "add": {"version": "1.0", "path": "op_specs/add.yaml", "sha256": "0", "lines": {}, "shipped": True}
            },
        }
    )
    text = render([failing], title="a run", facts=facts, failures=tmp_path / "failures", run="reports/out")
    assert "case replay reports/out/failures/add-a8-ideal-0123456789ab.json --op-plugins=kernels</code>" in text
    assert "<code>pytest -k add-a8-ideal --op-shipped=add --op-plugins=kernels</code>" in text


@pytest.mark.parametrize("clean", [True, False])
def test_the_head_names_engine_plugins_and_commit(clean):
    facts = Facts.model_validate(
        {
            "quantizer": "0.1.0",
            "python": "3",
            "packages": {},
            "engine": "real 1.2",
            "profile": "gate",
            "checks": [],
            "files": {},
            "plugins": [{"name": "acme", "origin": "acme.py"}],
            "tree": {"commit": "0123456789abcdef", "tree": "f", "date": "2026-11-23", "clean": clean},
        }
    )
    changed = "" if clean else ", with changes that no commit holds"
    said = f"engine real 1.2; plugins acme; commit 0123456789ab of 2026-11-23{changed}; profile gate"
    assert said in render(RUN, title="a run", facts=facts)


@pytest.mark.parametrize("damage", ["", "[1]", '{"case": {}}', "[" * 100_000])
def test_a_damaged_replay_file_is_named(tmp_path, damage):
    (tmp_path / "add-a8-ideal-0123456789ab.json").write_text(damage)
    with pytest.raises(CaseError, match="0123456789ab.json"):
        render([record("add-a8-ideal", outcome="failed", checks=BROKEN)], title="a run", failures=tmp_path)


def test_the_page_shows_the_diff_with_its_factor():
    grown = record("add-a8-ideal", checks={"accuracy": CheckRecord(passed=9, ratio=0.7)})
    text = render([grown], title="a run", diff=compare([RUN[0]], [grown]))
    assert "1 error grown" in text
    assert ">x1.75</td>" in text


def test_kill_rates_and_trends_are_shown():
    text = render(RUN, title="a run", kills={"add": (3, 4)}, trends={"add": [0.2, None, 0.4]})
    assert "<b>3 of 4</b><span>faults killed</span>" in text
    assert "faults killed 3 of 4</small>" in text
    assert text.count("worst ratio, run by run") == 1


def test_the_same_run_gives_the_same_page_in_any_order():
    assert render(RUN, title="t") == render(RUN[::-1], title="t")


def test_a_histogram_separates_ratios_beyond_one():
    assert histogram([0.01, 0.02, 0.99, 1.0]).count("M") == 2
    assert histogram([1.0]).count("bad") == 0
    assert histogram([1.0000001, math.inf]).count('class="bars bad"') == 1
    assert histogram([i / BINS for i in range(BINS)]).count("M") == BINS


def test_charts_plot_decibels_upwards_and_break_at_gaps():
    low, high = (float(re.search(r"M\S+ ([\d.]+)h0", scatter([(8, decibel)]))[1]) for decibel in (10.0, 60.0))
    assert low > high
    assert sparkline([0.1, 0.2, None, 0.3, 0.4]).count("M") == 2
    assert sparkline([None, math.inf]) == ""


def test_a_large_run_shows_failures_and_the_worst_items(monkeypatch):
    monkeypatch.setattr(page_module, "WHOLE", 20)
    schemes = [f"a{number}" for number in range(30)]
    run = [record(f"{op}-{scheme}-ideal") for op in ("add", "relu") for scheme in schemes]
    run[17] = record(run[17].id, outcome="failed", checks=BROKEN)
    text = render(run, title="a run", run="reports/out")
    page = Parsed(text)
    assert page.open == []
    assert {link for link in page.links if link[0] != "#" or link[1:] not in page.ids} == set()
    shown = {item.id for item in run} & set(page.ids)
    assert run[17].id in shown
    assert 2 * SHOWN <= len(shown) <= 2 * SHOWN + 1
    assert "26 more targets passed or are like these" in text
    assert "quantizer report html reports/out --op add" in text


def test_a_large_run_of_only_failures_stays_within_its_size(monkeypatch):
    monkeypatch.setattr(page_module, "WHOLE", 20)
    for module in (page_module, page_operators):
        monkeypatch.setattr(module, "MOST", 5)
    run = [record(f"add-a{number}-ideal", outcome="failed", checks=BROKEN, failure="one off") for number in range(300)]
    text = render(run, title="a run")
    assert text.count("<tr id=") == 5
    assert "The first 5 of 300" in text
    assert "295 more targets" in text


def test_a_scheme_of_endless_digits_has_bits_to_sort_by() -> None:
    from quantizer.reporting.page_operators import _activation_bits

    assert _activation_bits("w8a16") == 16
    assert _activation_bits("a" + "9" * 5000) == 999
