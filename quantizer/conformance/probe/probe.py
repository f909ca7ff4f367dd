"""A probe of one engine: for each operator that the probe can test, the hypotheses that remain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tabulate import tabulate

from quantizer.conformance.probe.drafts import DRAFTS
from quantizer.conformance.probe.elimination import Found, eliminate
from quantizer.conformance.probe.words import answer, meaning, same_everywhere, shown, told_apart
from quantizer.conformance.setup.session import Session
from quantizer.conformance.target import Target
from quantizer.core.platforms import Platform
from quantizer.core.spec import Spec

BITS = 8
"""Bit widths of activations and weights in the questions."""
MANY = 100
"""More remaining hypotheses than this are possible only if an operator never rounds."""
MOST_NAMED = 6
"""The number of hypotheses of a class that are printed besides the first."""
WIDTH = 76


@dataclass(frozen=True)
class Probe:
    """A probe of the session's engine; the platform gives the formats and the lowering."""

    session: Session
    platform: Platform

    def operators(self) -> list[Spec]:
        """Return the operators for which there are questions."""
        return [self.session.library.specs[op] for op in DRAFTS if self.targets(self.session.library.specs[op])]

    def targets(self, spec: Spec) -> tuple[Target, ...]:
        """Return *spec* under the platform's 8-bit schemes, at most one for each granularity of weights."""
        library = self.session.library
        found: dict[str, Target] = {}
        for name in library.schemes_for(spec, self.platform):
            scheme = library.scheme(name)
            part = scheme.weight
            if scheme.activation.bits != BITS or scheme.activation.fast or scheme.activation.symmetry == "symmetric":
                continue
            if part is not None and (part.bits != BITS or part.symmetry != "symmetric" or part.rule != "linear"):
                continue
            found.setdefault("" if part is None else part.granularity, Target(spec, scheme, self.platform))
        return tuple(
            target
            for target in found.values()
            if self.session.engine.supports(spec, target.scheme, self.platform) is None
        )

    def found(self, specs: Iterable[Spec]) -> Iterator[Found]:
        """Yield the remaining hypotheses, operator by operator."""
        for spec in specs:
            yield eliminate(self.targets(spec), self.session.engine, self.session.library)


def table(found: Iterable[Found], home: str) -> str:
    """Return the findings as a table, one operator a row."""
    rows = []
    for one in found:
        best = answer(one, home)
        if one.refused:
            text = f"not asked: {one.refused}"
        elif best is None:
            text = _nothing(one, home)
        else:
            text = "\n".join(filter(None, (str(best), meaning(best), _others(one, home))))
        rows.append((one.target.spec.op, text, one.questions, one.elements))
    headers = ("operator", "found", "questions", "elements")
    return tabulate(rows, headers=headers, maxcolwidths=[None, WIDTH, None, None], disable_numparse=True)


def evidence(found: Iterable[Found], home: str) -> str:
    """Return, for each operator, the elements that distinguish the hypothesis found from the next best one."""
    lines = []
    for one in found:
        best = answer(one, home)
        told = told_apart(one, best) if best is not None else one.rejected[-1:]
        if told and not one.refused:
            lines.append(f"{one.target.spec.op}:")
            lines += [f"  {shown(each)}" for each in told]
    return "\n".join(lines)


def _nothing(one: Found, home: str) -> str:
    """Return a text: no hypothesis explains the operator; and which one does as long as sums are small."""
    defects = one.target.platform.defects
    known = [
        defect.id for defect in defects if one.target.spec.op in (defect.ops or ()) and defect.engine == one.engine
    ]
    text = "none of the declared arithmetics"
    if one.before:
        small = Found(one.targets, kept=one.before)
        text = f"{text}; sums of up to 15 bits: {answer(small, home)}"
    return f"{text}\nknown defects: {', '.join(known)}" if known else text


def _others(one: Found, home: str) -> str:
    best = answer(one, home)
    if best is None:
        return ""
    if len(one.kept) > MANY:
        return f"the grid of the input: {len(one.kept) - 1} more give the same codes, for nothing is rounded"
    named = same_everywhere(one.kept, best, one.target.spec.op)
    platforms = [each.shipped for each in one.kept if each.shipped and each is not best]
    lines = [f"platform {', '.join(platforms)}"] if platforms else []
    if one.far:
        lines.append("results far beyond the codes (24 bits and more): no hypothesis explains them")
    if named:
        more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        lines.append(f"not told apart from: {'; '.join(named[:MOST_NAMED])}{more}")
    return "\n".join(lines)
