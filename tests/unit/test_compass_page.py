"""docs/compass.md names every field that the flow refuses, and none that it acts on."""

from __future__ import annotations

import re
from pathlib import Path

from quantizer.optimize.fields import FIELDS
from quantizer.optimize.global_methods import DEFAULTS

PAGE = (Path(__file__).parents[2] / "docs" / "compass.md").read_text(encoding="utf-8")
REFUSED = PAGE.partition("## Fields that are refused")[2].partition("## Values")[0]


def test_every_refused_field_has_a_reason() -> None:
    fields = FIELDS.values() if isinstance(FIELDS, dict) else FIELDS
    named = {
        name for row in re.findall(r"^\| (`.*?) \|", REFUSED, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    assert named == {field.name for field in fields if field.status == "refused"}


def test_implemented_methods_are_not_listed_as_refused() -> None:
    assert {"mvn_correction", "smooth_quant_zy", "gptq_zy", "adaround", "adaquant_zy"} <= set(DEFAULTS)
    assert "easy_quant" not in DEFAULTS
