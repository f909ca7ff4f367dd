"""Oracles: public functions of torch, numpy, scipy or onnx that judge the reference of a new operator."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantizer.core.errors import SpecError
from quantizer.core.spec import Spec
from quantizer.core.wording import suggestion

HOLDERS = ("torch", "torch.nn.functional", "torch.special", "torch.linalg", "numpy", "numpy.linalg", "scipy.special")
"""The modules whose functions may be oracles; those of their submodules may not."""
ONNX = "onnx"
NONE = "none"
"""The value of `oracle` in a spec for which none exists; its summary says why."""
_REFUSED = (
    "load",
    "save",
    "from",
    "open",
    "set",
    "get",
    "gen",
    "mem",
    "compile",
    "manual",
    "seed",
    "rand",
    "use",
    "init",
)
"""Prefixes of functions that read files, keep state or draw random numbers, which cannot be oracles."""


def oracle_function(spec: Spec) -> Callable[..., Tensor] | None:
    """Return a function with the signature of the operator's reference, or None without an oracle.

    The oracle gets operands in the spec's order and in their own type, and attributes under their names. SpecError for
    a name outside the public functions of torch, numpy and scipy.special and the operators of onnx.
    """
    if spec.oracle is None or spec.oracle == NONE:
        return None
    return functools.partial(_call, spec, _resolved(spec.oracle, spec.op))


def _call(spec: Spec, function: Callable[..., Any], **values: Any) -> Tensor:
    operands = [values[name] for name in spec.inputs if values.get(name) is not None]
    attrs = {name: values[name] for name in spec.attrs if name in values}
    result: Tensor = function(operands, attrs)
    return result


@functools.cache
def _resolved(name: str, op: str) -> Callable[..., Any]:
    holder, _, last = name.rpartition(".")
    if holder == ONNX:
        return functools.partial(_onnx, last)
    if holder not in HOLDERS:
        raise SpecError(f"{op}: oracle {name!r}: {holder!r} holds no oracles.{suggestion(holder, HOLDERS, 'Known')}")
    try:
        module = importlib.import_module(holder)
    except ImportError as err:
        raise SpecError(f"{op}: oracle {name!r}: {holder} cannot be imported: {err}. Install it.") from None
    found = None if last.startswith(("_", *_REFUSED)) else getattr(module, last, None)
    if found is None or not callable(found) or inspect.isclass(found):
        names = [key for key, value in vars(module).items() if callable(value) and not key.startswith(("_", *_REFUSED))]
        raise SpecError(f"{op}: oracle {name!r}: no such function.{suggestion(last, names, 'Known')}")
    return functools.partial(_torch if holder.startswith("torch") else _numpy, found)


def _torch(function: Callable[..., Any], operands: list[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    result = function(*operands, **attrs)
    # functions such as torch.max return values and indices
    return torch.as_tensor(result[0] if isinstance(result, tuple) else result)


def _numpy(function: Callable[..., Any], operands: list[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    # operands outside a function's domain are cases, too: NaN and infinities are answers, not warnings
    with np.errstate(all="ignore"):
        result = function(*(values.numpy() for values in operands), **attrs)
    # np.array: a numpy function may return a scalar
    return torch.from_numpy(np.array(result))


def _onnx(op_type: str, operands: list[Tensor], attrs: Mapping[str, Any]) -> Tensor:
    """Run one onnx operator in onnx's own reference evaluator."""
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    names = [f"x{i}" for i in range(len(operands))]
    node = helper.make_node(op_type, names, ["y"])
    for key, value in attrs.items():
        node.attribute.append(helper.make_attribute(key, list(value) if isinstance(value, tuple) else value))
    graph = helper.make_graph(
        [node],
        "oracle",
        [helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in names],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, None)],
    )
    feeds = {name: values.numpy() for name, values in zip(names, operands, strict=True)}
    outputs: Any = ReferenceEvaluator(helper.make_model(graph)).run(None, feeds)
    return torch.from_numpy(np.array(outputs[0]))
