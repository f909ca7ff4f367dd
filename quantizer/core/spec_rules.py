"""Validation of specs beyond the schema: names must exist, tile axes must fit, examples must be legal graphs."""

from __future__ import annotations

import keyword
import re
import string
from collections.abc import Collection, Iterator
from typing import Any

from quantizer.core.domains import ENTRY, check_domain, check_order, constant, domains_of, expressions_of
from quantizer.core.expressions import FUNCTIONS, Expression
from quantizer.core.model_errors import Finding
from quantizer.core.shapes import plain_name, spread_name
from quantizer.core.spec import Input, NoTiling, Pieces, Spec
from quantizer.core.spec_example_rules import check_examples
from quantizer.core.spec_format_rules import check_formats
from quantizer.core.spec_tile_rules import axis_names, check_tiling
from quantizer.core.spec_trial import try_values
from quantizer.core.stage_rules import check_stages
from quantizer.core.wording import got, near, suggestion, unknown
from quantizer.core.yaml_source import Location

MAX_NAMES = 40
RESERVED = frozenset({*FUNCTIONS, *keyword.kwlist, "true", "false", "i", "parameters"})
_SAME_AS = re.compile(r"same_as\(([a-z0-9_]+)\)")
_ORACLE = re.compile(r"(torch|numpy|scipy\.special|onnx)(\.[A-Za-z_][A-Za-z0-9_]*)+")


def check_spec(spec: Spec, stem: str) -> list[Finding]:
    """Return everything that is wrong with *spec*, read from a file called *stem*.yaml."""
    rules = (
        _check_names,
        _check_domain_names,
        _check_expressions,
        _check_domains,
        _check_operands,
        _check_shapes,
        _check_constraints,
        check_tiling,
        _check_error_model,
        _check_quantization,
        check_examples,
        _check_properties,
        check_formats,
        _check_the_rest,
        _check_stages,
    )
    findings = [finding for rule in rules for finding in rule(spec)]
    if spec.op != stem:
        findings.append(
            Finding(
                ("op",),
                f"must equal the file's name, got {spec.op!r}. Write op: {stem} or rename the file to {spec.op}.yaml.",
            )
        )
    # values are tried only where the names in expressions are right
    return findings or list(try_values(spec))


def _check_names(spec: Spec) -> Iterator[Finding]:
    groups: dict[str, Collection[str]] = {
        "dims": spec.dims,
        "attrs": spec.attrs,
        "inputs": spec.inputs,
        "outputs": spec.outputs,
    }
    first: dict[str, str] = {}
    for group, names in groups.items():
        for name in names:
            if name in RESERVED:
                yield Finding((group, name), "is a word of the language. Choose another name.", key=True)
            elif name in first:
                yield Finding((group, name), f"is declared in {first[name]} too. Choose another name.", key=True)
            first.setdefault(name, group)
    if len(spec.dims) + len(spec.attrs) > MAX_NAMES:
        count = len(spec.dims) + len(spec.attrs)
        yield Finding(("dims",), f"{count} dims and attrs; at most {MAX_NAMES} are read.", key=True)
    # an operator may be called like a function of the language, but not like the file of schemes
    if spec.op in RESERVED - set(FUNCTIONS) or spec.op == "schemes":
        yield Finding(("op",), f"{spec.op!r} is a reserved word. Choose another name.")


def _expressions(spec: Spec) -> Iterator[tuple[Location, Expression]]:
    """Yield every expression with its location, except those in domains, tile rules and the axes of outputs."""
    for name, item in spec.inputs.items():
        yield from _listed(item.axes, ("inputs", name, "axes"))
        ends = ((place, end) for place, end in enumerate(item.domain or []) if isinstance(end, Expression))
        yield from ((("inputs", name, "domain", place), end) for place, end in ends)
    for name, rule in spec.shape.items():
        yield from _listed(rule, ("shape", name))
    for index, constraint in enumerate(spec.constraints):
        yield ("constraints", index, "require"), constraint.require
    yield from _single(spec)
    for index, relation in enumerate(spec.properties):
        if relation.when is not None:
            yield ("properties", index, "when"), relation.when
    for name, form in spec.formats.items():
        for key, expression in form.derived.items():
            yield ("formats", name, "derived", key), expression


def _single(spec: Spec) -> Iterator[tuple[Location, Expression]]:
    """Yield the expressions that are a single value, under outputs and the error model."""
    for location, model, keys in (
        *((("outputs", name), output, ("channel_axis", "min", "max")) for name, output in spec.outputs.items()),
        *((("outputs", name, "pieces"), cut, ("axis", "sizes")) for name, cut in _cuts(spec)),
        (("error_model",), spec.error_model, ("terms", "axis")),
    ):
        yield from (((*location, key), found) for key in keys if (found := getattr(model, key)) is not None)


def _cuts(spec: Spec) -> list[tuple[str, Pieces]]:
    """Return the outputs that are split into pieces, by name."""
    return [(name, output.pieces) for name, output in spec.outputs.items() if output.pieces is not None]


def _listed(rule: list[Expression] | Expression, location: Location) -> Iterator[tuple[Location, Expression]]:
    if isinstance(rule, list):
        yield from (((*location, index), item) for index, item in enumerate(rule))
    else:
        yield location, rule


def _check_domain_names(spec: Spec) -> Iterator[Finding]:
    known = domains_of(spec).keys()
    for group, domains in (("dims", spec.dims), ("attrs", spec.attrs)):
        for name, domain in domains.items():
            for location, expression in expressions_of(domain):
                kind = "a number" if domain.type == "float" else "an integer"
                listed = location in (("min",), ("max",)) and (domain.length is not None or domain.type == "shape")
                # bounds of a list or shape may use the index of the entry
                names = {*known, ENTRY} if listed else known
                yield from _check_known(expression, (group, name, *location), names, kind)
            for key in ("broadcasts_to", "like"):
                if (other := getattr(domain, key)) is None:
                    continue
                target = domains_of(spec).get(other)
                if target is None:
                    yield Finding((group, name, key), unknown(other, known, "dim or attr"))
                elif target.type != "shape":
                    yield Finding((group, name, key), f"must name a shape, got {other!r} of type {target.type}.")


def _check_expressions(spec: Spec) -> Iterator[Finding]:
    known = domains_of(spec).keys()
    for location, expression in _expressions(spec):
        yield from _check_known(expression, location, known)
    if not isinstance(spec.tiling, NoTiling):
        for axis, rule in spec.tiling.items():
            # "*" stands for every output axis, whose number is i
            names = {*known, "i"} if axis == "*" else known
            for key in ("when", "stride", "window"):
                if (found := getattr(rule, key)) is not None:
                    yield from _check_known(found, ("tiling", axis, key), names)
            for place, found in rule.input_axes:
                yield from _check_known(found, ("tiling", axis, *place), names)
            for key in ("before", "after"):
                if (pair := getattr(rule, key)) is not None:
                    yield from _check_known(pair[1], ("tiling", axis, key, 1), names)


def _check_known(
    expression: Expression, location: Location, known: Collection[str], kind: str = ""
) -> Iterator[Finding]:
    for name in sorted(expression.names - set(known)):
        hint = suggestion(name, known, "Known")
        if kind and name == expression.text:
            yield Finding(location, f"must be {kind}, got {name!r}: no dim and no attr has that name.{hint}")
        else:
            yield Finding(location, f"name {name!r} is neither a dim nor an attr.{hint}")


def _check_domains(spec: Spec) -> Iterator[Finding]:
    for group, domains in (("dims", spec.dims), ("attrs", spec.attrs)):
        for name, domain in domains.items():
            yield from check_domain(domain, (group, name))
    yield from check_order(spec)
    read = {
        plain_name(expression) or spread_name(expression)
        for item in spec.inputs.values()
        if not item.optional or not isinstance(item.axes, list)
        for _, expression in _listed(item.axes, ())
    }
    for name in spec.dims:
        if name not in read:
            text = (
                "is not an axis of a required input by itself, so its size cannot be read from shapes. Make it an attr."
            )
            yield Finding(("dims", name), text, key=True)


def _check_operands(spec: Spec) -> Iterator[Finding]:
    if not spec.activations:
        yield Finding(("inputs",), "must have an input of role activation.", key=True)
    for group, operands in (("inputs", spec.inputs), ("outputs", spec.outputs)):
        for name, item in operands.items():
            spread = isinstance(item.axes, list) and any(spread_name(axis) is not None for axis in item.axes)
            rank = len(item.axes) if isinstance(item.axes, list) and not spread else None
            yield from _check_spread(spec, item.axes, (group, name, "axes"))
            if isinstance(item, Input) and item.needs is not None:
                other = spec.inputs.get(item.needs)
                if not item.optional or other is None or not other.optional or item.needs == name:
                    yield Finding((group, name, "needs"), f"must name another optional input, got {item.needs!r}.")
            if (
                isinstance(item, Input)
                and item.channel_axis is not None
                and item.channel_axis not in (range(rank) if rank is not None else (-1,))
            ):
                text = f"must be the index of an axis of {name}, got {item.channel_axis}."
                yield Finding((group, name, "channel_axis"), text)
            if isinstance(item, Input) and item.block_axis not in (None, *range(rank or 0)):
                text = f"must be the index of an axis of {name} that is listed, got {item.block_axis}."
                yield Finding((group, name, "block_axis"), text)
            if item.spatial and (rank is None or rank < 3):
                yield Finding((group, name, "spatial"), f"{name} must list its axes, three or more, to be spatial.")
    for name, output in spec.outputs.items():
        rule = spec.shape.get(name)
        if output.axes is not None and isinstance(rule, list) and len(rule) != len(output.axes):
            text = f"{name} has {len(output.axes)} axes, its shape has {len(rule)}."
            yield Finding(("outputs", name, "axes"), text)


def _check_spread(spec: Spec, axes: Any, location: Location) -> Iterator[Finding]:
    """Yield the errors of "*name": it must come first and name a shape."""
    for place, axis in enumerate(axes if isinstance(axes, list) else [axes]):
        name = spread_name(axis)
        if name is None:
            continue
        where = (*location, place) if isinstance(axes, list) else location
        domain = domains_of(spec).get(name)
        if not isinstance(axes, list) or place:
            yield Finding(where, f"{axis.text!r} must be the first of a list of axes.")
        elif domain is not None and domain.type != "shape":
            yield Finding(where, f"{axis.text!r} must name a shape, got {name!r} of type {domain.type}.")


def _check_shapes(spec: Spec) -> Iterator[Finding]:
    for name, source in spec.inputs.items():
        ends = [constant(end) if isinstance(end, Expression) else end for end in source.domain or []]
        # out of order, or equal
        if None not in ends and sorted(set(ends), key=float) != ends:  # type: ignore[arg-type]
            text = f"must be [smallest, largest], got {got(ends)}."
            yield Finding(("inputs", name, "domain"), text)
        if source.kind == "index" and (
            source.domain is None or not all(isinstance(e, Expression) for e in source.domain)
        ):
            yield Finding(("inputs", name, "domain"), "must be given for an index: the smallest and the largest one.")
        if source.kind != "value" and source.role != "activation":
            kind = "an index" if source.kind == "index" else "real numbers"
            yield Finding(("inputs", name, "role"), f"must be activation for {kind}, got {source.role!r}.")
        if source.kind == "real" and (spec.error_model.kind != "movement" or len(spec.inputs) > 1):
            text = "real numbers are judged as the one input of error_model kind movement only."
            yield Finding(("inputs", name, "kind"), text)
    for name, _ in _cuts(spec) if len(spec.outputs) > 1 else ():
        yield Finding(("outputs", name, "pieces"), "a result in pieces must be the only output. Split the operator.")
    for name in spec.outputs.keys() - spec.shape.keys():
        yield Finding(("shape", name), "must be given: the shape of the output.")
    for name in spec.shape.keys() - spec.outputs.keys():
        yield Finding(("shape", name), unknown(name, spec.outputs, "output"), key=True)


def _check_constraints(spec: Spec) -> Iterator[Finding]:
    known = domains_of(spec).keys()
    for index, constraint in enumerate(spec.constraints):
        location = ("constraints", index, "require")
        if not constraint.require.names:
            yield Finding(location, "names no dim and no attr, so it says nothing about a graph.")
        elif constraint.require.settled is not None:
            word = "true" if constraint.require.settled else "false"
            yield Finding(location, f"is {word} whatever the graph. Remove it or correct it.")
        location = ("constraints", index, "error")
        try:
            fields = list(string.Formatter().parse(constraint.error))
        except ValueError as err:
            yield Finding(location, f"{str(err).lower()}. Write {{{{ and }}}} for braces.")
            continue
        for _, name, form, conversion in fields:
            if name is None:
                continue
            if form or conversion or not name.isidentifier():
                shown = name + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
                yield Finding(location, f"{{{shown}}} must be a plain name, as in {{stride}}.")
            elif name not in known:
                yield Finding(location, f"{{{name}}} is neither a dim nor an attr.{suggestion(name, known, 'Known')}")
        if not constraint.error.strip():
            yield Finding(location, "must say what is wrong.")


_PIECEWISE = ("piecewise_monotone", "piecewise_bilinear")
_FOLDS = ("product", "euclidean")
_OF_X = ("softmax", "normalization", "resize")


def _check_error_model(spec: Spec) -> Iterator[Finding]:
    model = spec.error_model
    if model.critical_points and model.kind not in (*_PIECEWISE, "selection", "poles"):
        yield Finding(("error_model", "critical_points"), f"do not apply to kind {model.kind}. Remove them.", key=True)
    if model.period is not None and model.kind not in ("piecewise_monotone", "poles"):
        yield Finding(("error_model", "period"), f"does not apply to kind {model.kind}. Remove it.", key=True)
    if model.logarithm and model.kind != "softmax":
        yield Finding(("error_model", "logarithm"), f"does not apply to kind {model.kind}. Remove it.", key=True)
    if model.cancels_below_zero is not None and model.kind not in ("monotone", "piecewise_monotone"):
        text = f"does not apply to kind {model.kind}. Remove it."
        yield Finding(("error_model", "cancels_below_zero"), text, key=True)
    if model.smallest and model.kind != "index":
        yield Finding(("error_model", "smallest"), f"does not apply to kind {model.kind}. Remove it.", key=True)
    if (model.relation is not None) != (model.kind == "comparison"):
        text = "must be given for comparison." if model.relation is None else f"does not apply to kind {model.kind}."
        yield Finding(("error_model", "relation"), text, key=model.relation is not None)
    if model.kind in _FOLDS and (len(spec.inputs) != 1 or "axes" not in spec.attrs or model.terms is None):
        text = f"{model.kind} is of one input along the attribute axes, with terms. Declare them."
        yield Finding(("error_model", "kind"), text)
    if model.kind in _OF_X and "x" not in spec.inputs:
        yield Finding(("error_model", "kind"), f"{model.kind} is of an operand named x. Name the operator's first so.")
    if model.kind in _PIECEWISE and not model.critical_points:
        text = f"must be given for {model.kind}: where the function turns."
        yield Finding(("error_model", "critical_points"), text)
    # both or neither: a quotient has its pole at a divisor of 0
    if model.kind == "poles" and bool(model.critical_points) != (model.period is not None):
        absent = "period" if model.critical_points else "critical_points"
        text = "must be given: poles other than that of a quotient are named by one of each kind and their period."
        yield Finding(("error_model", absent), text)


def _check_quantization(spec: Spec) -> Iterator[Finding]:
    for name, rule in spec.quantization.outputs.items():
        location = ("quantization", "outputs", name)
        if name not in spec.outputs:
            yield Finding(location, unknown(name, spec.outputs, "output"), key=True)
        if found := _SAME_AS.fullmatch(rule):
            if found[1] not in spec.coded:
                yield Finding(location, f"same_as: {unknown(found[1], spec.coded, 'activation')}")
        elif rule not in ("calibrated", "index"):
            hint = near(rule, ("calibrated", "index"))
            yield Finding(location, f"must be calibrated, index or same_as(<input>), got {rule!r}.{hint}")


def _check_properties(spec: Spec) -> Iterator[Finding]:
    shared = [axis for axis in axis_names(spec.outputs) if axis in axis_names(spec.inputs)]
    for index, item in enumerate(spec.properties):
        location = ("properties", index)
        if item.relation == "equivariant":
            if item.axis is None:
                yield Finding((*location, "axis"), "must be given for equivariant.")
            elif item.axis not in shared:
                yield Finding((*location, "axis"), unknown(item.axis, shared, "axis of an input and the output"))
        elif item.axis is not None:
            yield Finding((*location, "axis"), f"does not apply to {item.relation}. Remove it.", key=True)
        count = {"commutes": 2, "shift_invariant": 1}.get(item.relation, 0)
        if len(set(item.operands or [])) < count:
            yield Finding((*location, "operands"), f"must name {count} or more inputs for {item.relation}.")
        for place, name in enumerate(item.operands or []):
            if name not in spec.inputs:
                yield Finding((*location, "operands", place), unknown(name, spec.inputs, "input"))


def _check_stages(spec: Spec) -> Iterator[Finding]:
    yield from check_stages(spec, spec.stages)


def _check_the_rest(spec: Spec) -> Iterator[Finding]:
    for index, name in enumerate(spec.data):
        if name in spec.data[:index]:
            yield Finding(("data", index), f"{name!r} is listed before.")
    for index, item in enumerate(spec.excludes):
        if item.scheme is None and item.platform is None:
            yield Finding(("excludes", index), "must name a scheme, a platform or both.")
        if not item.reason.strip():
            yield Finding(("excludes", index, "reason"), "must say why.")
    if not spec.summary.strip():
        yield Finding(("summary",), "must say in one line what the operator computes.")
    if spec.oracle not in (None, "none") and not _ORACLE.fullmatch(spec.oracle):
        text = (
            f"must be the dotted name of a torch, numpy, scipy.special or onnx function, or none, got {spec.oracle!r}."
        )
        yield Finding(("oracle",), f"{text} Write torch.nn.functional.relu, say.")
