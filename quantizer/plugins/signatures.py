"""Checks a registered function against its operator's spec: its arguments, and its `unsupported` predicates."""

from __future__ import annotations

import inspect

from quantizer.core.errors import PluginError
from quantizer.core.expressions import parse
from quantizer.core.spec import Spec
from quantizer.core.wording import suggestion
from quantizer.ops import DECLARED_NAMES, Registration


def check_declared(spec: Spec, entry: Registration) -> None:
    """Raise PluginError for an `unsupported` predicate with a name that no case of the operator has."""
    known = [*spec.dims, *spec.attrs, *DECLARED_NAMES]
    for predicate in entry.unsupported:
        for name in sorted(parse(predicate).names.difference(known)):
            hint = suggestion(name, known, "Known")
            raise PluginError(f"{entry}: unsupported: {predicate}: name {name!r} is unknown.{hint}")


def check_signature(spec: Spec, entry: Registration) -> None:
    """Raise PluginError if a function's arguments are not the spec's inputs and attributes."""
    if entry.kind not in ("reference", "quantized", "accumulate", "function"):
        return
    accepted = inspect.signature(entry.function).parameters
    # **named takes whatever the spec names
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in accepted.values()):
        return
    real = entry.kind in ("reference", "function")
    wanted = set(spec.inputs) | set(spec.attrs) | (set() if real else {"parameters"})
    if missing := sorted(wanted - accepted.keys()):
        raise PluginError(f"{entry}: takes no argument {', '.join(missing)}, which the spec names.")
    if unknown := sorted(accepted.keys() - wanted):
        raise PluginError(f"{entry}: takes {', '.join(unknown)}, which the spec does not name.")
