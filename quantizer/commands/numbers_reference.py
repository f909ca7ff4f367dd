"""Writes the page of the numbers that a quantized function gets: what the built-in rules provide on each platform."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.kinds import kind_of
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import Session, open_session
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.library import shipped_folder, shipped_platforms
from quantizer.core.model import written
from quantizer.core.spec import Spec
from quantizer.core.wording import in_markdown
from quantizer.numerics.qparams import Bounds, Constant, Parameters, QParams, Rescale, Slope, Table

WIDTHS = (("a8", "w8a8"), ("a16", "w8a16"))
"""The schemes whose numbers the page shows: of 8 and of 16 bits, each without and with weights."""
DOCUMENTED = (Parameters, QParams, Constant, Rescale, Table, Slope, Bounds)
NONE = "–"
_INTRO = """\
# Numbers of a quantized function

Written by `quantizer docs` from the types and from what the built-in rules provide. A quantized function gets the
numbers of its case as `parameters`, a `Parameters` of `quantizer.numerics`. Scales, zero points and codes of constants
are the same on every platform with the same parameter rules. The multiplier, the tables and the further integers follow
from the platform's arithmetic: [by operator](#by-operator) says which. A rule of yours on a platform provides all of
these, under these names, or none ([plugins.md](../plugins.md))."""
_OPERATORS = """\
## By operator

*multiplier (X)*: `rescale`, whose variant is X ([what each computes](platforms.md#requantizations)). *table X*:
`tables["X"]`. Other names are keys of `numbers`. A table that is *read between two* entries has fewer entries than
codes. Cases without a fused activation.

| operator | platforms | 8 bits | 16 bits |
|---|---|---|---|"""


def numbers_document() -> str:
    """Return the page: the fields of each type, then the numbers of each operator on each shipped platform."""
    return "\n\n".join((_INTRO, *map(_fields, DOCUMENTED), _operators())) + "\n"


def _fields(kind: type) -> str:
    meant = written(kind)
    rows = (f"| `{item.name}` | {in_markdown(meant.get(item.name, ''))} |" for item in dataclasses.fields(kind))
    said = in_markdown((kind.__doc__ or "").split("\n\n")[0])
    return "\n".join((f"## {kind.__name__}", "", said, "", "| field | meaning |", "|---|---|", *rows))


def _operators() -> str:
    session = open_session(Options(root=shipped_folder()))
    specs = session.library.specs
    return "\n".join((_OPERATORS, *(row for op in sorted(specs) for row in _rows(session, specs[op]))))


def _rows(session: Session, spec: Spec) -> Iterator[str]:
    """Yield a row for each group of platforms whose rules provide the same kinds of numbers for the operator."""
    found: dict[str, dict[str, Target]] = {path.stem: {} for path in shipped_platforms()}
    for target in session.all_targets(spec):
        if target.platform.platform in found:
            found[target.platform.platform][target.scheme.name] = target
    alike: dict[tuple[str, ...], list[str]] = {}
    for platform, targets in found.items():
        # platforms with equal numbers share a row
        alike.setdefault(tuple(_provided(session, targets, names) for names in WIDTHS), []).append(platform)
    for kinds, platforms in alike.items():
        if set(kinds) != {NONE}:
            yield f"| {spec.op} | {', '.join(platforms)} | {' | '.join(kinds)} |"


def _provided(session: Session, targets: dict[str, Target], names: tuple[str, ...]) -> str:
    """Return the kind of the platform's numbers for a case of the first of these schemes that the operator has."""
    for target in (targets[name] for name in names if name in targets):
        # one fixed case, without a fused activation, which would add numbers of its own
        chooser = HashChoices(key(0, target.id, "numbers"), {"data": "random", "activation": "none"})
        return str(kind_of(Trial(target, build_case(target, chooser), session.engine).declared))
    return NONE
