"""docs/reference says what schemas and parsers say; that each page is fresh is asked by `quantizer docs --check` in `tox -e lint`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from quantizer.conformance.run.command_line import OTHERS
from quantizer.core.schema import SCHEMAS, schema_text

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reference"


@pytest.mark.parametrize(("page", "schema"), [("spec", "operator"), ("schemes", "schemes"), ("platforms", "platform")])
def test_every_key_of_the_schema_has_a_row_with_a_meaning(page, schema):
    model = SCHEMAS[f"{schema}.schema.json"]
    found = json.loads(schema_text(model))
    sections = (FOLDER / f"{page}.md").read_text(encoding="utf-8").split("\n## ")[1:]
    rows = {
        (section.split("\n")[0], key): meaning
        for section in sections
        if not section.startswith(("Requantizations\n", "Families\n"))  # values of one key
        for key, meaning in re.findall(
            r"^\| `(\w+)` \|(?:[^|]|\\\|)*\|[^|]*\|((?:[^|]|\\\|)*)\|", section, re.MULTILINE
        )
    }
    named = {(model.__name__, key) for key in found["properties"]}
    named |= {(name, key) for name, inner in found.get("$defs", {}).items() for key in inner["properties"]}
    assert rows.keys() == named
    assert {place for place, meaning in rows.items() if not meaning.strip()} == set()


def test_docs_check_names_a_stale_page_and_writes_nothing(tmp_path, capsys):
    from quantizer.cli import main

    assert main(["docs", "--dir", str(tmp_path)]) == 0
    assert main(["docs", "--dir", str(tmp_path), "--check"]) == 0
    page = tmp_path / "spec.md"
    page.write_text("old")
    capsys.readouterr()
    assert main(["docs", "--dir", str(tmp_path), "--check"]) == 1
    assert "spec.md: is stale. Run `quantizer docs`." in capsys.readouterr().err
    assert page.read_text() == "old"


def test_option_pages_mark_flags_and_missing_ini_keys(pytestconfig):
    """A flag was `--op-in-process=None`; with pytest 9.0 there was a traceback."""
    text = (FOLDER / "options.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(--op-[\w-]+)(=[^`]+)?` \|", text.split("\n## quantizer\n")[0], re.MULTILINE)
    assert {name: bool(value) for name, value in rows} == {
        f"--{action.replace('_', '-')}": action != "op_in_process"
        for action in vars(pytestconfig.option)
        if action.startswith("op_")
    }
    named = re.findall(r"`(--op-[\w-]+)`", text.split("is also an ini key")[0])
    assert [name.removeprefix("--").replace("-", "_") for name in named] == [*OTHERS]
