"""Validation of the examples of a spec: values, activation, omitted inputs and ranges."""

from __future__ import annotations

from collections.abc import Iterator

from quantizer.core.domains import domains_of, fits, wanted
from quantizer.core.model_errors import Finding
from quantizer.core.spec import Example, Spec
from quantizer.core.wording import got, unknown
from quantizer.core.yaml_source import Location


def check_examples(spec: Spec) -> Iterator[Finding]:
    """Yield the errors of examples: they must give legal values for known names, and every value without a default."""
    domains = domains_of(spec)
    optional = [name for name, item in spec.inputs.items() if item.optional]
    ids: set[str] = set()
    for index, example in enumerate(spec.examples):
        location = ("examples", index)
        if example.id in ids:
            yield Finding((*location, "id"), f"another example is called {example.id!r}.")
        ids.add(example.id)
        for name, value in example.values.items():
            if name not in domains:
                yield Finding((*location, "values", name), unknown(name, domains, "dim or attr"), key=True)
            elif not fits(value, domains[name]):
                text = f"must be {wanted(domains[name])}, got {got(value)}."
                yield Finding((*location, "values", name), text)
        missing = [n for n, domain in domains.items() if n not in example.values and domain.default is None]
        if missing:
            yield Finding((*location, "values"), f"must give {', '.join(missing)}: there is no default.")
        if example.activation not in ("none", *spec.fuses):
            yield Finding(
                (*location, "activation"), f"must be one that the operator fuses, got {example.activation!r}."
            )
        for place, name in enumerate(example.omit):
            if name not in optional:
                yield Finding((*location, "omit", place), unknown(name, optional, "optional input"))
        yield from _check_ranges(spec, example, (*location, "ranges"))


def _check_ranges(spec: Spec, example: Example, location: Location) -> Iterator[Finding]:
    tensors = (*spec.inputs, *spec.outputs)
    for name, (low, high) in example.ranges.items():
        if name not in tensors:
            yield Finding((*location, name), unknown(name, tensors, "input or output"), key=True)
        elif low > high:
            text = f"must be [smallest, largest], got {got([low, high])}. Write {got([high, low])}."
            yield Finding((*location, name), text)
