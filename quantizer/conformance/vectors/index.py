"""Writes index.txt: the manifest as lines of words and numbers, for readers without JSON.

It has the line `quantizer-vectors 1 CASES`, then for each case its lines from `case` to `end`. docs/vectors.md names
the words of each line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from quantizer.core.errors import CaseError
from quantizer.core.vectors import VERSION, VectorCase, VectorGrid


def index_text(cases: Sequence[VectorCase]) -> str:
    """Return the index; CaseError if a word of it would be empty or contain spaces."""
    lines = [f"quantizer-vectors {VERSION} {len(cases)}"]
    for case in cases:
        lines += [" ".join(map(_word, line)) for line in _lines(case)]
    return "".join(f"{line}\n" for line in lines)


def _lines(vector: VectorCase) -> Iterator[Sequence[object]]:
    case, output, allowed = vector.case, vector.output, vector.allowed
    yield "case", vector.id, case.op, case.scheme, case.platform, case.activation
    for name, value in case.attrs.items():
        values = value if isinstance(value, list) else [value]
        # counts come before lists, so that a reader needs no other separator than spaces
        yield "attribute", name, len(values), *values
    for operand in vector.operands:
        array = operand.values
        yield "operand", operand.name, array.dtype, array.file, *_shape(array.shape), *_grid(operand.grid)
    if (scaled := vector.multiplier) is not None:
        yield (
            "multiplier",
            scaled.variant,
            scaled.divisor,
            len(scaled.multiplier),
            *scaled.multiplier,
            len(scaled.shift),
            *scaled.shift,
        )
        yield from (("factor", name, factor) for name, factor in scaled.factors.items())
    for table in vector.tables:
        entries = table.entries
        yield (
            "table",
            table.name,
            entries.dtype,
            entries.file,
            *_shape(entries.shape),
            table.first,
            table.step,
            table.unit,
        )
    yield from (("number", name, number) for name, number in vector.numbers.items())
    for model in (one for one in vector.models if not one.refused):
        yield "model", model.form, model.file, *_shape(model.shape), *model.axes
        for feed in model.feeds:
            fed = feed.values
            yield "feed", feed.name, fed.dtype, fed.file, *_shape(fed.shape), feed.operand
    yield "output", "y", output.dtype, "-", *_shape(output.shape), *_grid(output.grid)
    if allowed is not None:
        yield "allowed", allowed.low.file, allowed.high.file, allowed.conclusive
    yield ("end",)


def _shape(shape: Sequence[int]) -> tuple[int, ...]:
    return len(shape), *shape


def _grid(grid: VectorGrid | None) -> tuple[object, ...]:
    """Return the smallest and largest code, the axis (-1: none), the number of scales, the scales, the zero points."""
    if grid is None:
        return 0, 0, -1, 0
    axis = -1 if grid.axis is None else grid.axis
    return grid.lowest, grid.highest, axis, len(grid.scale), *grid.scale, *grid.zero_point


def _word(value: object) -> str:
    text = str(int(value)) if isinstance(value, bool) else str(value)
    if not text or any(letter.isspace() for letter in text):
        raise CaseError(f"{text!r}: a word of index.txt has no spaces.")
    return text
