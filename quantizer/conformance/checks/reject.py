"""reject: break exactly one constraint; the engine must raise its declared error and give no output."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from quantizer.conformance.findings import Findings
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.target import Target
from quantizer.core.errors import ConstraintError, QuantizerError
from quantizer.core.shapes import evaluate, named_axes, plain_name, spread_name, variables
from quantizer.core.spec import Spec
from quantizer.runtime.engines.protocol import Call, Engine

SEEDS = 8
MAX_SIZE = 1 << 12


def reject_problems(target: Target, engine: Engine) -> Findings:
    """Find a sentence for every constraint that cannot be broken alone, or that the engine does not refuse."""
    every = Findings()
    for index, constraint in enumerate(target.spec.constraints):
        text = constraint.require.text
        found = next(_breaking(target, index), None)
        if found is None:
            every.compare([f"constraint {index} ({text}): no graph breaks it alone. Remove it, or widen a domain."])
            continue
        shapes, attrs = found
        outcome = _outcome(target.spec, engine, shapes, attrs)
        named = isinstance(outcome, ConstraintError) and outcome.index == index
        said = (
            f"constraint {index} ({text}): shapes {_shown(shapes)}, attributes {_shown(attrs)} must raise "
            f"{constraint.error!r}; {_said(outcome)}."
        )
        every.compare([] if named else [said])
    return every


def _said(outcome: object) -> str:
    if isinstance(outcome, Exception):
        return f"raised {type(outcome).__name__}: {outcome}"
    return "an output was given"


def _shown(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={list(v) if isinstance(v, tuple) else v}" for name, v in values.items())


def _breaking(target: Target, index: int) -> Iterator[tuple[dict[str, tuple[int, ...]], dict[str, Any]]]:
    """Yield shapes and attributes that break constraint *index* and keep all others: one value changed, then two."""
    spec = target.spec
    # two values change only if no single change breaks this constraint alone
    for count, seed in itertools.product((1, 2), range(SEEDS)):
        case = build_case(target, HashChoices(key(seed, "reject", target.id), {}))
        bound = variables(spec, case.shapes, case.attrs)
        # a dimension of absent operands has no tensor to change
        absent = {plain_name(item.axes) for name, item in spec.inputs.items() if name not in case.shapes}
        names = [name for name in bound if name in spec.constraints[index].require.names and name not in absent]
        for chosen in itertools.combinations(names, count):
            for values in itertools.product(*(_candidates(bound[name]) for name in chosen)):
                changed = {**bound, **dict(zip(chosen, values, strict=True))}
                shapes = _shapes(spec, changed, case.shapes)
                if shapes is not None and _broken(spec, changed) == [index]:
                    yield shapes, {name: changed[name] for name in spec.attrs}


def _candidates(value: Any) -> Iterator[Any]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        # zero, a negative number, neighbours, and numbers far away on both sides
        yield from (v for v in dict.fromkeys((0, -1, value - 1, value + 1, value + 7, -value - 9)) if v != value)
    elif isinstance(value, float):
        yield from (v for v in dict.fromkeys((0.0, -1.0, value - 1, value + 1, value + 7, -value - 9)) if v != value)
    elif isinstance(value, tuple):
        yield from (value[:-1], (*value, 0))
        for i, item in enumerate(value):
            yield from ((*value[:i], other, *value[i + 1 :]) for other in (item + 1, 0, -1, item + 9) if other != item)


def _broken(spec: Spec, bound: Mapping[str, Any]) -> list[int]:
    found = []
    for index, constraint in enumerate(spec.constraints):
        try:
            if not constraint.require(bound):
                found.append(index)
        except QuantizerError:
            # without the value of every constraint nobody knows which of them the engine would name
            return []
    return found


def _shapes(
    spec: Spec, bound: Mapping[str, Any], present: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]] | None:
    """Return operand shapes for *bound*; an axis without a value (a division by zero) keeps its old size."""
    shapes: dict[str, tuple[int, ...]] = {}
    for operand, old in present.items():
        axes = spec.inputs[operand].axes
        try:
            if isinstance(axes, list):
                places = named_axes(axes, len(old)) or {}
                sizes = [
                    bound[name] if (name := plain_name(axis)) else _size(axis, bound, old[place])
                    for place, axis in places.items()
                ]
                leading = bound[spread] if (spread := spread_name(axes[0])) else ()
                shape = (*leading, *(int(size) for size in sizes))
            else:
                shape = evaluate(axes, bound)
        except (QuantizerError, KeyError, TypeError):
            return None
        if any(size < 0 for size in shape) or torch.Size(shape).numel() > MAX_SIZE:
            return None
        shapes[operand] = shape
    return shapes


def _size(axis: Any, bound: Mapping[str, Any], old: int) -> int:
    try:
        return int(axis(bound))
    except QuantizerError:
        return old


def _outcome(spec: Spec, engine: Engine, shapes: Mapping[str, tuple[int, ...]], attrs: Mapping[str, Any]) -> object:
    operands = {name: torch.zeros(shape) for name, shape in shapes.items()}
    try:
        return engine.run_float(Call(spec, attrs), operands)
    except Exception as err:  # noqa: BLE001 - the kind of error is what is judged
        return err
