"""Validation of what declared defects state (`computes`) against the specs of their operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from quantizer.core.defects import Computes, Defect
from quantizer.core.errors import SpecError
from quantizer.core.expressions import Expression, parse
from quantizer.core.model_errors import Finding
from quantizer.core.spec import Input, Spec
from quantizer.core.wording import suggestion
from quantizer.core.yaml_source import Location

OF_RESULTS = ("y", "code", "step", "largest", "infinity")
"""Names that `off_by` may use for every operator."""


def check_statement(defect: Defect, specs: Mapping[str, Spec], at: Location) -> Iterator[Finding]:
    """Yield findings on names in the statement of *defect*, declared at *at*, that one of its operators does not have.

    Operators that no spec declares are passed over: `quantizer spec lint` names them.
    """
    stated, several = defect.computes, [spec for op, spec in specs.items() if defect.concerns(op)]
    if stated is None or not several:
        return
    at = (*at, "computes")
    yield from _families(stated, several, at)
    yield from _off_by(stated.off_by, several, (*at, "off_by"))
    for spec in several:
        yield from _operands(stated, spec, at)
        yield from _pairs(stated, spec, (*at, "saturating_pairs"))
        for index, name in enumerate(stated.whole_codes):
            domain = spec.attrs.get(name)
            if domain is None:
                text = f"{spec.op} has no attribute {name!r}.{suggestion(name, spec.attrs, 'Known')}"
                yield Finding((*at, "whole_codes", index), text)
            elif domain.type not in ("int", "float") or domain.length is not None:
                yield Finding((*at, "whole_codes", index), f"{spec.op}: {name!r} is not one number. Name one that is.")


def _families(stated: Computes, several: Sequence[Spec], at: Location) -> Iterator[Finding]:
    known = {"default", *chain.from_iterable(_families_of(spec) for spec in several)}
    for key, names in (("requantize", stated.requantize), ("ratio", stated.ratio)):
        for name in names:
            if name not in known:
                text = f"none of its operators is of the family {name!r}.{suggestion(name, sorted(known), 'Known')}"
                yield Finding((*at, key, name), text, key=True)


def _families_of(spec: Spec) -> Iterator[str]:
    yield spec.quantization.family
    for form in spec.formats.values():
        yield from form.fuses


def _off_by(text: str, several: Sequence[Spec], at: Location) -> Iterator[Finding]:
    try:
        names = parse(text).names if text else frozenset[str]()
    except SpecError:
        return  # reported when the file itself is checked
    for spec in several:
        known = [*OF_RESULTS, *spec.attrs, *spec.inputs]
        for name in sorted(names.difference(known)):
            yield Finding(at, f"{spec.op} has no {name!r}.{suggestion(name, known, 'Known')}")


def _operands(stated: Computes, spec: Spec, at: Location) -> Iterator[Finding]:
    """Yield a finding for each statement about operands that names no operand of *spec*."""
    for key, names in (("multiples", stated.multiples), ("saturating_pairs", stated.saturating_pairs)):
        if names and not names.keys() & spec.inputs.keys():
            first = next(iter(names))
            text = f"{spec.op} has no operand {', '.join(map(repr, names))}.{suggestion(first, spec.inputs, 'Known')}"
            yield Finding((*at, key), text, key=True)


def _pairs(stated: Computes, spec: Spec, at: Location) -> Iterator[Finding]:
    """Yield findings on `saturating_pairs`: at most one operand of *spec* is named, and it has the named axis."""
    own = [name for name in stated.saturating_pairs if name in spec.inputs]
    if len(own) > 1:
        text = f"{', '.join(own)} are operands of {spec.op}: only one is moved to unsigned codes. Name that one."
        yield Finding(at, text, key=True)
    for name in own:
        axis, (low, high) = stated.saturating_pairs[name], _axes(spec.inputs[name])
        if not low <= axis < high:
            span = f"{low} to {high - 1}" if low < high else "none that every shape has"
            yield Finding((*at, name), f"{spec.op}: {name} has no axis {axis}. Known: {span}.")


def _axes(operand: Input) -> tuple[int, int]:
    """Return the range of axes that an operand has in every shape, the end excluded; (0, 0) if nothing is known."""
    if isinstance(operand.axes, Expression):
        return 0, 0
    # after a leading "*name" axes can only be counted from the end
    named = [axis for axis in operand.axes if not axis.text.startswith("*")]
    return -len(named), len(named) if len(named) == len(operand.axes) else 0
