"""Makes a fault of a report, which changes results only under the report's condition, and a twin that changes none."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from quantizer.conformance.faults import catalogue
from quantizer.conformance.faults.fault import Fault, Kind, Wrap
from quantizer.conformance.faults.kills import STATE
from quantizer.conformance.real.effects import EFFECTS, STATES, SUMS
from quantizer.conformance.real.facts import facts, holds
from quantizer.conformance.real.reports import Report
from quantizer.conformance.real.rule_effects import RULES
from quantizer.core.errors import CaseError, QuantizerError
from quantizer.core.spec import Spec
from quantizer.core.wording import suggestion
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.request import Request
from quantizer.ops.registry import Function
from quantizer.runtime.isolation.memory import is_due, require_same_elsewhere


@functools.cache
def _faults() -> Mapping[str, Fault]:
    return {fault.id: fault for fault in catalogue()}


def bug(report: Report, spec: Spec) -> Fault:
    """Return the report as a fault of one operator; CaseError if it names no such change."""
    kind, place, wrap = _change(report, spec)
    return Fault(report.ref, place, (spec.op,), kind, lambda original: _under(report, spec, kind, original, wrap))


def twin(report: Report, spec: Spec) -> Fault:
    """Return a correct function with the same condition: it takes another path there and computes the same result."""
    kind, place, _ = _change(report, spec)
    return Fault(
        f"{report.ref} twin", place, (spec.op,), kind, lambda original: _under(report, spec, kind, original, _elsewhere)
    )


def _change(report: Report, spec: Spec) -> tuple[Kind, str, Wrap]:
    if isinstance(report.does, str):
        known = _faults().get(report.does)
        if known is None:
            raise CaseError(
                f"{report.ref}: no fault {report.does!r}.{suggestion(report.does, sorted(_faults()), 'Known')}"
            )
        if not known.concerns(spec) or known.kind not in ("quantized", "quantize", "accumulate"):
            raise CaseError(f"{report.ref}: the fault {report.does} does not concern {spec.op}. Name another one.")
        return known.kind, known.place, known.wrap
    name, *numbers = report.does
    known_effects = {**EFFECTS, **SUMS, **RULES}
    made = known_effects.get(str(name))
    if made is None:
        raise CaseError(f"{report.ref}: no effect {name!r}.{suggestion(str(name), sorted(known_effects), 'Known')}")
    try:
        # a wrong number of arguments is found here, when reports are read
        wrap = made(*numbers)
    except TypeError:
        raise CaseError(f"{report.ref}: effect {name!r} does not take {numbers}. See real/effects.py.") from None
    kind: Kind = "quantize" if name in RULES else "accumulate" if name in SUMS else "quantized"
    return kind, (STATE if name in STATES else "real"), wrap


def _under(report: Report, spec: Spec, kind: Kind, original: Function, wrap: Wrap) -> Function:
    changed = wrap(original)
    if kind == "quantize":

        def rule(request: Request) -> Parameters:
            right: Parameters = original(request)
            # conditions may name the numbers that the rule provides, so the right ones come first
            known = facts(spec, request.shapes, request.attrs, right, request.ranges)
            return changed(request) if holds(report.when, known) else right

        return rule

    def forward(*operands: Tensor, parameters: Parameters, **named: Any) -> Any:
        given = {**dict(zip(spec.inputs, operands, strict=False)), **named}
        shapes = {n: tuple(given[n].shape) for n in spec.inputs if isinstance(given.get(n), Tensor)}
        attrs = {name: given[name] for name in spec.attrs if name in given}
        try:
            known = facts(spec, shapes, attrs, parameters)
        # operands that do not fit together: the right function says so
        except QuantizerError:
            known = None
        if known is None or not holds(report.when, known):
            return original(*operands, parameters=parameters, **named)
        made = changed(*operands, parameters=parameters, **named)
        tensors = {name: value for name, value in given.items() if isinstance(value, Tensor)}
        if is_due(tensors):  # the process of plugins makes this check
            require_same_elsewhere(lambda other: _again(changed, other, operands, parameters, named), tensors, made)
        return made

    return forward


def _again(
    function: Function,
    other: Mapping[str, Tensor],
    operands: tuple[Tensor, ...],
    parameters: Parameters,
    named: Mapping[str, Any],
) -> Any:
    """Call *function* with other operands, positional ones first."""
    values = list(other.values())
    by_name = {name: value for name, value in other.items() if name in named}
    return function(*values[: len(operands)], parameters=parameters, **{**named, **by_name})


def _elsewhere(original: Function) -> Function:
    """Compute from copies of the operands whose axes lie in memory in reverse order."""

    def moved(values: Any) -> Any:
        if not isinstance(values, Tensor) or values.dim() < 2:
            return values.clone() if isinstance(values, Tensor) else values
        turned = tuple(reversed(range(values.dim())))
        return values.permute(turned).contiguous().permute(turned)

    return lambda *operands, **named: original(
        *(moved(values) for values in operands), **{name: moved(values) for name, values in named.items()}
    )
