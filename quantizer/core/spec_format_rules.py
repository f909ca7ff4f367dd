"""Validation of the key `formats` of a spec: attributes, constants and axes must exist."""

from __future__ import annotations

from collections.abc import Iterator

from quantizer.core.domains import constant
from quantizer.core.model_errors import Finding
from quantizer.core.spec import CompassFormat, Spec
from quantizer.core.spec_tile_rules import axis_names
from quantizer.core.wording import counted, unknown


def check_formats(spec: Spec) -> Iterator[Finding]:
    """Yield a finding for each key of `formats` that names an unknown attribute, constant or axis of the operator."""
    compass = spec.formats.compass
    if compass is None:
        return
    for rule in (_check_keys, _check_trailing, _check_consumed, _check_sized, _check_layers):
        yield from rule(spec, compass)


def _check_keys(spec: Spec, compass: CompassFormat) -> Iterator[Finding]:
    location = ("formats", "compass")
    for name in compass.inputs:
        if name not in spec.inputs:
            yield Finding((*location, "inputs", name), unknown(name, spec.inputs, "input"), key=True)
    for name, keys in compass.attrs.items():
        if name not in spec.attrs:
            yield Finding((*location, "attrs", name), unknown(name, spec.attrs, "attr"), key=True)
        elif (
            isinstance(keys, list)
            and constant(length := spec.attrs[name].length) != len(keys)
            and not (length is not None and length.names)
        ):
            text = f"names {counted(len(keys), 'key')}; {name} has {constant(spec.attrs[name].length) or 'no'} entries."
            yield Finding((*location, "attrs", name), text)
    for index, name in enumerate(compass.pairs):
        if name not in compass.attrs:
            yield Finding((*location, "pairs", index), unknown(name, compass.attrs, "attr with a key of its own"))
    fuses = [*spec.fuses, *compass.fuses]
    if (compass.activation is None) != (not fuses):
        text = "must be given: the key of the fused activation." if fuses else "does not apply: nothing is fused."
        yield Finding((*location, "activation"), text, key=not fuses)


def _check_sized(spec: Spec, compass: CompassFormat) -> Iterator[Finding]:
    location = ("formats", "compass", "sized")
    for name, axes in compass.sized.items():
        if name not in spec.attrs:
            yield Finding((*location, name), unknown(name, spec.attrs, "attr"), key=True)
        for index, axis in enumerate(axes):
            if axis not in (known := axis_names(spec.outputs)):
                yield Finding((*location, name, index), unknown(axis, known, "axis of an output"))


def _check_layers(spec: Spec, compass: CompassFormat) -> Iterator[Finding]:
    location = ("formats", "compass")
    for name, axes in compass.layouts.items():
        declared = spec.inputs[name].axes if name in spec.inputs else None
        if name not in compass.inputs:
            yield Finding((*location, "layouts", name), unknown(name, compass.inputs, "constant"), key=True)
        elif not isinstance(declared, list) or sorted(axes) != sorted(axis.text for axis in declared):
            yield Finding((*location, "layouts", name), f"must name every axis of {name} once, as inputs does.")
    optional = [name for name in compass.inputs if name in spec.inputs and spec.inputs[name].optional]
    for index, name in enumerate(compass.zeros):
        if name not in optional:
            yield Finding((*location, "zeros", index), unknown(name, optional, "optional constant"))
    for index, name in enumerate(compass.from_front):
        if name not in compass.attrs:
            yield Finding((*location, "from_front", index), unknown(name, compass.attrs, "attr with a key of its own"))
    mapped = [key for keys in compass.attrs.values() for key in ([keys] if isinstance(keys, str) else keys)]
    for key in compass.absent:
        if key not in (*compass.fixed, *mapped):
            known = unknown(key, [*compass.fixed, *mapped], "key of attrs or fixed")
            yield Finding((*location, "absent", key), known, key=True)


def _check_trailing(spec: Spec, compass: CompassFormat) -> Iterator[Finding]:
    for name in compass.trailing_axes:
        location = ("formats", "compass", "trailing_axes", name)
        if name not in spec.attrs:
            yield Finding(location, unknown(name, spec.attrs, "attr"), key=True)
        elif spec.attrs[name].type != "int" or spec.attrs[name].length is not None:
            yield Finding(location, f"{name} must be one integer.")


def _check_consumed(spec: Spec, compass: CompassFormat) -> Iterator[Finding]:
    known = [name for name in compass.attrs if name in spec.attrs and spec.attrs[name].default is not None]
    for index, name in enumerate(compass.consumed):
        if name not in known:
            text = unknown(name, known, "attr with a key and a default")
            yield Finding(("formats", "compass", "consumed", index), text)
