"""Custom operators: defined by other operator functions, written as top.Custom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from quantizer.ir.graph import AttrValue
from quantizer.lang import arguments as a
from quantizer.lang.current import get_default_graph, operator
from quantizer.lang.definitions import definition
from quantizer.lang.errors import LangError
from quantizer.lang.graph import Result
from quantizer.lang.tensor import TENSOR_DTYPES, Tensor


@operator("custom")
def custom(
    tensors_in: Sequence[Tensor],
    op_name: str,
    out_dtypes: Sequence[str],
    out_names: Sequence[str] | None = None,
    params: Mapping[str, Any] | None = None,
) -> list[Tensor]:
    """Return the results of a custom operator, which `define_custom` defines by other operator functions.

    params: whole numbers, floats (as float32), truth values, lists of one of these. The original runs a compiled
    library in its place (libplugin_custom.so); the file that is written is the same.
    """
    definition(op_name)
    kinds = [a.one_of(f"out_dtypes[{i}]", kind, TENSOR_DTYPES) for i, kind in enumerate(out_dtypes)]
    if not kinds or not tensors_in:
        raise LangError("tensors_in, out_dtypes: must hold at least one each.")
    names = list(out_names or [])
    if len(names) > len(kinds):
        raise LangError(f"out_names={names}: must not be more than the {len(kinds)} out_dtypes.")
    graph = get_default_graph()
    base = graph.fresh_name()
    results = [
        Result(kind, name=names[i] if i < len(names) else f"{base}_{op_name}_{i}") for i, kind in enumerate(kinds)
    ]
    attrs: dict[str, AttrValue] = {
        "name": op_name,
        "params": tuple((str(key), _plain(key, value)) for key, value in (params or {}).items()),
    }
    given = [a.tensor(f"tensors_in[{i}]", tensor) for i, tensor in enumerate(tensors_in)]
    return graph.add("top.Custom", given, attrs, *results)


def _plain(key: str, value: Any) -> AttrValue:
    """Return a parameter in the form in which the file stores it."""
    if not isinstance(key, str) or not key.isidentifier():
        raise LangError(f"params: {key!r}: must be a name.")
    if isinstance(value, list | tuple):
        items = tuple(_plain(key, item) for item in value)
        if not items or len({type(item) for item in items}) > 1 or isinstance(items[0], tuple | bool):
            raise LangError(f"params: {key}={value!r}: a list must hold only whole numbers, or only floats.")
        return items
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        # Top stores a custom operator's floats as f32
        return float(np.float32(value))
    raise LangError(f"params: {key}={value!r}: must be a number, a truth value or a list of numbers.")
