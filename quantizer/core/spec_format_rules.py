"""Validation of the key `formats` of a spec: attributes, constants and axes must exist."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from quantizer.core.domains import constant
from quantizer.core.layer_format import LayerFormat
from quantizer.core.model_errors import Finding
from quantizer.core.rooms import layer_formats
from quantizer.core.spec import Spec
from quantizer.core.spec_tile_rules import axis_names
from quantizer.core.wording import counted, suggestion, unknown


def check_formats(spec: Spec) -> Iterator[Finding]:
    """Yield a finding for each attribute, constant or axis under `formats` that the operator does not have."""
    known = layer_formats() if spec.formats else {}
    for name, form in spec.formats.items():
        if name not in known:
            yield Finding(("formats", name), f"no such file format.{suggestion(name, known, 'Known')}", key=True)
        for rule in (_check_keys, _check_trailing, _check_consumed, _check_sized, _check_layers):
            yield from (replace(finding, location=("formats", name, *finding.location)) for finding in rule(spec, form))


def _check_keys(spec: Spec, form: LayerFormat) -> Iterator[Finding]:
    for name in form.inputs:
        if name not in spec.inputs:
            yield Finding(("inputs", name), unknown(name, spec.inputs, "input"), key=True)
    for name, keys in form.attrs.items():
        if name not in spec.attrs:
            yield Finding(("attrs", name), unknown(name, spec.attrs, "attr"), key=True)
        elif (
            isinstance(keys, list)
            and constant(length := spec.attrs[name].length) != len(keys)
            and not (length is not None and length.names)
        ):
            text = f"names {counted(len(keys), 'key')}; {name} has {constant(spec.attrs[name].length) or 'no'} entries."
            yield Finding(("attrs", name), text)
    for index, name in enumerate(form.pairs):
        if name not in form.attrs:
            yield Finding(("pairs", index), unknown(name, form.attrs, "attr with a key of its own"))
    fuses = [*spec.fuses, *form.fuses]
    # both or neither
    if (form.activation is None) != (not fuses):
        text = "must be given: the key of the fused activation." if fuses else "does not apply: nothing is fused."
        yield Finding(("activation",), text, key=not fuses)


def _check_sized(spec: Spec, form: LayerFormat) -> Iterator[Finding]:
    for name, axes in form.sized.items():
        if name not in spec.attrs:
            yield Finding(("sized", name), unknown(name, spec.attrs, "attr"), key=True)
        for index, axis in enumerate(axes):
            if axis not in (known := axis_names(spec.outputs)):
                yield Finding(("sized", name, index), unknown(axis, known, "axis of an output"))


def _check_layers(spec: Spec, form: LayerFormat) -> Iterator[Finding]:
    for name, axes in form.layouts.items():
        declared = spec.inputs[name].axes if name in spec.inputs else None
        if name not in form.inputs:
            yield Finding(("layouts", name), unknown(name, form.inputs, "constant"), key=True)
        elif not isinstance(declared, list) or sorted(axes) != sorted(axis.text for axis in declared):
            yield Finding(("layouts", name), f"must name every axis of {name} once, as inputs does.")
    optional = [name for name in form.inputs if name in spec.inputs and spec.inputs[name].optional]
    for index, name in enumerate(form.zeros):
        if name not in optional:
            yield Finding(("zeros", index), unknown(name, optional, "optional constant"))
    for index, name in enumerate(form.from_front):
        if name not in form.attrs:
            yield Finding(("from_front", index), unknown(name, form.attrs, "attr with a key of its own"))
    mapped = [key for keys in form.attrs.values() for key in ([keys] if isinstance(keys, str) else keys)]
    for key in form.absent:
        if key not in (*form.fixed, *mapped):
            known = unknown(key, [*form.fixed, *mapped], "key of attrs or fixed")
            yield Finding(("absent", key), known, key=True)


def _check_trailing(spec: Spec, form: LayerFormat) -> Iterator[Finding]:
    for name in form.trailing_axes:
        location = ("trailing_axes", name)
        if name not in spec.attrs:
            yield Finding(location, unknown(name, spec.attrs, "attr"), key=True)
        elif spec.attrs[name].type != "int" or spec.attrs[name].length is not None:
            yield Finding(location, f"{name} must be one integer.")


def _check_consumed(spec: Spec, form: LayerFormat) -> Iterator[Finding]:
    known = [name for name in form.attrs if name in spec.attrs and spec.attrs[name].default is not None]
    for index, name in enumerate(form.consumed):
        if name not in known:
            text = unknown(name, known, "attr with a key and a default")
            yield Finding(("consumed", index), text)
