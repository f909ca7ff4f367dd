"""Finds declarations of a spec that no generated case of any target reaches: bins, conditions, excludes, attributes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from quantizer.conformance.generation.builder import (
    build_case,
    coverage,
    covering_rows_of,
    outline,
    single_bin_choices,
    wanted_coverage,
)
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.datasets import materialise
from quantizer.conformance.generation.domains import draw
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.domains import domains_of, needs
from quantizer.core.errors import QuantizerError
from quantizer.core.expressions import Expression
from quantizer.core.library import Library
from quantizer.core.shapes import infer_shapes, variables
from quantizer.core.spec import Domain, NoTiling, Spec
from quantizer.core.wording import suggestion
from quantizer.core.yaml_source import Location
from quantizer.ir.formats.layer_files import systems
from quantizer.numerics.bitwise import bitwise_equal
from quantizer.tiling.windows import tileable_axes

Problem = tuple[Location, str]
"""A location in the spec, and the problem there."""

PROBES = 16


def unmet(spec: Spec, targets: Sequence[Target], library: Library) -> Iterator[Problem]:
    """Yield a finding for each declaration of *spec* that no case of *targets* reaches."""
    yield from _idle_names(spec)
    yield from _idle_excludes(spec, library)
    open_ = _Open(spec)
    for target, case in outlines(targets):
        open_.show(target, case)
        if open_.is_met:
            break
    yield from _unreached(spec, targets, open_.entries)
    yield from open_.idle_conditions()
    yield from _idle_attributes(spec, targets[0])


def outlines(targets: Sequence[Target]) -> Iterator[tuple[Target, Case]]:
    """Yield the structure of every covering-array case of *targets*."""
    for target in targets:
        for index, row in enumerate(covering_rows_of(targets, target)):
            yield target, outline(target, HashChoices(key(index, target.id), row))


class _Open:
    """The declarations of a spec that no case has reached so far: bins, classes of tiles, and every `when`."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self.entries = {entry for entry in wanted_coverage(spec) if not entry.startswith("data=")}
        """Coverage entries without data sets, since a set that misses its aim is a gap, not a mistake in the spec."""
        self._relations = {index: item.when for index, item in enumerate(spec.properties) if item.when is not None}
        rules = {} if isinstance(spec.tiling, NoTiling) else spec.tiling
        self._named = frozenset(rules)
        self._axes = {axis for axis, rule in rules.items() if rule.when is not None}

    @property
    def is_met(self) -> bool:
        """Whether every declaration was reached."""
        return not (self.entries or self._relations or self._axes)

    def show(self, target: Target, case: Case) -> None:
        """Remove the declarations that *case* reaches."""
        spec = self._spec
        if self.entries:
            self.entries -= coverage(target, case)
        if self._relations:
            bound = variables(spec, case.shapes, case.attrs)
            self._relations = {index: when for index, when in self._relations.items() if not when(bound)}
        if self._axes:
            legal = set(tileable_axes(spec, case.shapes, case.attrs))
            self._axes -= legal
            # "*" is the rule of all axes that no other rule names
            if legal - self._named:
                self._axes.discard("*")

    def idle_conditions(self) -> Iterator[Problem]:
        """Yield every `when` that holds in no case, so that what depends on it is never judged."""
        for index in self._relations:
            yield ("properties", index, "when"), "holds in no generated case: the relation is never judged. Correct it."
        for axis in {} if isinstance(self._spec.tiling, NoTiling) else self._spec.tiling:
            if axis in self._axes:
                yield ("tiling", axis, "when"), "holds in no generated case: the axis is never cut. Correct it."


def _unreached(spec: Spec, targets: Sequence[Target], missing: Iterable[str]) -> Iterator[Problem]:
    """Yield every bin and class of tiles in *missing* that even a case drawn for it alone does not reach."""
    found = [entry for entry in sorted(missing) if not _reaches_alone(targets, entry)]
    for name, value in (entry.split("=", 1) for entry in found):
        if name in domains_of(spec):
            group = "dims" if name in spec.dims else "attrs"
            step = f"Widen the domain of {name}, or of what bounds it, or remove the bin"
            yield (group, name, "bins", value), f"no generated case of any target reaches this bin. {step}."
    if tiles := ", ".join(entry.removeprefix("tiles=") for entry in found if entry.startswith("tiles=")):
        step = "Check every `when`, and that sizes reach 3 or more"
        yield ("tiling",), f"no generated case of any target has tiles of these kinds: {tiles}. {step}."


def _reaches_alone(targets: Sequence[Target], entry: str) -> bool:
    return any(True for target in targets for _ in single_bin_choices(target, entry))


def _idle_names(spec: Spec) -> Iterator[Problem]:
    known = systems()
    for name in spec.names:
        if name not in known:
            yield ("names", name), f"nothing reads the names of that system.{suggestion(name, known, 'Known')}"


def _idle_excludes(spec: Spec, library: Library) -> Iterator[Problem]:
    """Yield every exclude without which the same schemes and platforms would apply."""
    for index in range(len(spec.excludes)):
        # each is left out in turn, since two excludes may leave out the same
        others = [item for place, item in enumerate(spec.excludes) if place != index]
        without = spec.model_copy(update={"excludes": others})
        platforms = library.platforms.values()
        if all(library.schemes_for(spec, p) == library.schemes_for(without, p) for p in platforms):
            yield ("excludes", index), "excludes nothing: without it the same schemes and platforms apply. Remove it."


def _idle_attributes(spec: Spec, target: Target) -> Iterator[Problem]:
    """Yield attributes that affect neither shapes, domains, tiles, axes nor values."""
    decisive = _decisive_names(spec)
    for name, domain in spec.attrs.items():
        if name not in decisive and not _changes_values(target, name, domain):
            text = "decides nothing: no expression outside the constraints names it, and the reference gives the same"
            yield ("attrs", name), f"{text} for every value. Use it, or remove it."


def _decisive_names(spec: Spec) -> set[str]:
    expressions: list[Any] = [item.axes for item in spec.inputs.values()]
    expressions += [end for item in spec.inputs.values() for end in item.domain or []]
    expressions += [*spec.shape.values(), spec.error_model.terms, spec.error_model.axis]
    cuts = (output.pieces for output in spec.outputs.values())
    expressions += [end for cut in cuts if cut is not None for end in (cut.axis, cut.sizes)]
    names: set[str] = set()
    for name, domain in domains_of(spec).items():
        names |= needs(domain) - {name}
    if not isinstance(spec.tiling, NoTiling):
        for rule in spec.tiling.values():
            expressions += [rule.when, rule.stride, rule.window, *(axis for _, axis in rule.input_axes)]
            names |= {str(pair[0]) for pair in (rule.before, rule.after) if pair is not None}
    flat = [e for item in expressions for e in (item if isinstance(item, list) else [item])]
    return names.union(*(e.names for e in flat if isinstance(e, Expression)))


def _changes_values(target: Target, name: str, domain: Domain) -> bool:
    """Return whether another value of an attribute changes the reference in some generated case of any data set."""
    spec = target.spec
    for probe in range(PROBES):
        row = {"data": spec.data[probe % len(spec.data)]}
        case = build_case(target, HashChoices(key(probe, "idle", target.id), row))
        operands = {operand: values.double() for operand, values in materialise(target, case).items()}
        for other in _other_values(name, domain, case, variables(spec, case.shapes, case.attrs)):
            changed = case.but(attrs={**case.attrs, name: other})
            try:
                infer_shapes(spec, changed.shapes, changed.attrs)
            except QuantizerError:
                continue
            if not bitwise_equal(target.reference(operands, case), target.reference(operands, changed)):
                return True
    return False


def _other_values(name: str, domain: Domain, case: Case, bound: Mapping[str, Any]) -> Iterator[Any]:
    drawn = (draw(name, domain, HashChoices(key(seed, "other", name), {}), bound) for seed in range(PROBES // 2))
    yield from dict.fromkeys(value for value in drawn if value != case.attrs[name])
