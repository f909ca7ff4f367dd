"""docs/reference/numbers.md: every field has a meaning, and an operator's rows say what its rules provide."""

import dataclasses

from quantizer.commands.numbers_reference import DOCUMENTED, numbers_document
from quantizer.core.model import written


def test_every_field_of_the_numbers_has_a_meaning():
    missing = [
        f"{kind.__name__}.{item.name}"
        for kind in DOCUMENTED
        for item in dataclasses.fields(kind)
        if item.name not in written(kind)
    ]
    assert missing == []


def test_rows_list_the_numbers_that_platform_rules_provide():
    rows = numbers_document().splitlines()
    assert "| argmin | compass, ideal | no numbers | no numbers |" in rows
    (own,) = [row for row in rows if row.startswith("| leaky_relu |") and "tflite_ref" in row]
    assert "negative, negative_shift, positive, positive_shift" in own
