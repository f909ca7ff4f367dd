"""Faults of Compass IR files: the order, width and layout of constants, and lines read in place of others."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from quantizer.conformance.faults.capabilities import filtered, fusing, strided
from quantizer.conformance.faults.fault import Fault
from quantizer.core.spec import Spec
from quantizer.ir.formats.compass_mapping import FORMAT
from quantizer.ir.graph import Graph
from quantizer.ops.registry import Function

_OFFSET = re.compile(r"^(\w+_offset)=(\d+)$", re.MULTILINE)


def blob_change(change: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]) -> Callable[[Function], Function]:
    """Change the float32 numbers of the constants on their way into the file."""

    def wrap(original: Function) -> Function:
        def faulty(graph: Graph) -> tuple[str, bytes]:
            text, blob = original(graph)
            values = np.frombuffer(blob[: len(blob) // 4 * 4], "<f4")
            return text, change(values).tobytes() + blob[len(values) * 4 :]

        return faulty

    return wrap


def in_half_precision(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Keep constants in float16."""
    with np.errstate(over="ignore"):
        return values.astype("<f2").astype("<f4")


def last_bit_cleared(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Clear the last bit of every constant."""
    cleared: np.ndarray[Any, Any] = values.view("<u4") & np.uint32(0xFFFFFFFE)
    return cleared


def bytes_swapped(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Write constants big end first."""
    return values.byteswap()


def offsets_rolled(original: Function) -> Function:
    """Shift the offsets of constants: each gets the offset of the previous one."""

    def faulty(graph: Graph) -> tuple[str, bytes]:
        text, blob = original(graph)
        places = [found.group(2) for found in _OFFSET.finditer(text)]
        turned = iter([*places[-1:], *places[:-1]])
        return _OFFSET.sub(lambda found: f"{found.group(1)}={next(turned)}", text), blob

    return faulty


def lines_swapped(first: str, second: str) -> Callable[[Function], Function]:
    """Exchange the values of two kinds of lines."""

    def wrap(original: Function) -> Function:
        def faulty(graph: Graph) -> tuple[str, bytes]:
            text, blob = original(graph)
            turned = {first: second, second: first}
            pattern = re.compile(rf"^(\w*)(?:({first})|({second}))=", re.MULTILINE)
            return pattern.sub(lambda m: f"{m.group(1)}{turned[m.group(2) or m.group(3)]}=", text), blob

        return faulty

    return wrap


def line_value(key: str, change: Callable[[str], str]) -> Callable[[Function], Function]:
    """Change the value of lines with *key*."""

    def wrap(original: Function) -> Function:
        def faulty(text: str, blob: bytes, name: str = "graph") -> Graph:
            found: Graph = original(
                re.sub(rf"^{key}=(.*)$", lambda m: f"{key}={change(m.group(1))}", text, flags=re.MULTILINE), blob, name
            )
            return found

        return faulty

    return wrap


def layout_channels_first(original: Function) -> Function:
    """Keep constants in the order of channels first under the shape of channels last."""

    def faulty(graph: Graph, specs: Any) -> Graph:
        found: Graph = original(graph, specs)
        tensors = dict(found.tensors)
        for name, tensor in found.tensors.items():
            if tensor.data is not None and tensor.data.dim() >= 2:
                moved = tensor.data.movedim(-1, 1).contiguous().reshape(tensor.data.shape)
                tensors[name] = replace(tensor, data=moved)
        return replace(found, tensors=tensors)

    return faulty


def reversed_shape(text: str) -> str:
    """Turn the sizes of a shape around."""
    return re.sub(r"\[([\d,]+)\]", lambda m: f"[{','.join(reversed(m.group(1).split(',')))}]", text)


def filed(spec: Spec) -> bool:
    """Compass IR holds it."""
    return FORMAT in spec.formats


def filed_constants(spec: Spec) -> bool:
    """Compass IR holds it with constants."""
    return filed(spec) and any(item.role != "activation" for item in spec.inputs.values())


def filed_several(spec: Spec) -> bool:
    """Compass IR holds it with several constants."""
    return filed(spec) and sum(item.role != "activation" for item in spec.inputs.values()) > 1


def filed_strides(spec: Spec) -> bool:
    """Compass IR holds it with a stride for each of several axes."""
    return filed(spec) and strided(spec)


def filed_filters(spec: Spec) -> bool:
    """Compass IR holds it with filters, whose axes have another order in the file."""
    return filed(spec) and filtered(spec)


def filed_fusing(spec: Spec) -> bool:
    """Compass IR holds it with a fused activation."""
    return filed(spec) and fusing(spec)


FAULTS: tuple[Fault, ...] = (
    Fault("file_order", "file", filed_several, "write", offsets_rolled, form=FORMAT),
    Fault("file_float16", "file", filed_constants, "write", blob_change(in_half_precision), form=FORMAT),
    Fault("file_last_bit", "file", filed_constants, "write", blob_change(last_bit_cleared), form=FORMAT),
    Fault("file_bytes_swapped", "file", filed_constants, "write", blob_change(bytes_swapped), form=FORMAT),
    Fault("file_layout", "file", filed_filters, "convert", layout_channels_first, form=FORMAT),
    Fault("file_strides_swapped", "file", filed_strides, "write", lines_swapped("stride_x", "stride_y"), form=FORMAT),
    Fault(
        "file_width_read",
        "file",
        filed_constants,
        "read",
        line_value(r"(?:weights|biases)_type", lambda _: "float16"),
        form=FORMAT,
    ),
    Fault("file_shape_read", "file", filed, "read", line_value("layer_top_shape", reversed_shape), form=FORMAT),
    Fault(
        "file_activation", "file", filed_fusing, "read", line_value("with_activation", lambda _: "NONE"), form=FORMAT
    ),
)
