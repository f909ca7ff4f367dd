"""A network as a list of calls, with the shapes that an example gives them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from quantizer.core.errors import GraphError
from quantizer.nn.fixed import Fixed, fixed_modules
from quantizer.nn.methods import QuantizeMethod


class _Tracer(fx.Tracer):
    """Keeps fixed-point modules whole."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, Fixed) or super().is_leaf_module(m, module_qualified_name)


class _Shapes(fx.Interpreter):
    """Runs the example and notes the shape of every tensor."""

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        n.meta["shape"] = tuple(result.shape) if isinstance(result, Tensor) else None
        return result


def frozen(module: nn.Module) -> nn.Module:
    """Return a copy for inference, with the stored scales and rounding to nearest."""
    copied = copy.deepcopy(module).eval()
    for _, inner in fixed_modules(copied):
        configs = inner.fix_configs()
        for name, config in configs.items():
            if config.method != QuantizeMethod.NONE:
                inner.set_datum_method(name, QuantizeMethod.FIXED)
                configs[name] = replace(configs[name], stochastic=False)
    return copied


def traced(module: nn.Module, examples: Sequence[Tensor]) -> fx.GraphModule:
    """Return *module* as a list of calls, each with the shape of its result in `meta["shape"]`.

    GraphError if its forward depends on values, or does not take the examples.
    """
    name = type(module).__name__
    try:
        graph = _Tracer().trace(module)
    except Exception as err:
        raise GraphError(f"{name}: its forward cannot be traced: {err}") from err
    made = fx.GraphModule(module, graph)
    # a placeholder with arguments has a default
    wanted = [node for node in graph.nodes if node.op == "placeholder" and not node.args]
    if len(wanted) != len(examples):
        raise GraphError(f"{name}: takes {len(wanted)} inputs, {len(examples)} examples are given.")
    with torch.no_grad():
        try:
            _Shapes(made).run(*examples)
        except Exception as err:
            raise GraphError(f"{name}: does not run on the examples: {err}") from err
    return made
