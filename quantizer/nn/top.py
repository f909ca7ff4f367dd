"""Configurations of a whole network: read, written, printed, and methods set for many data at once."""

from __future__ import annotations

import sys
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from torch import Tensor, nn

from quantizer.core.errors import FixError
from quantizer.core.wording import suggestion
from quantizer.ir.graph import Graph
from quantizer.nn.config import parse
from quantizer.nn.convert import to_graph
from quantizer.nn.fixed import Fixed, LiveConfig, fixed_modules
from quantizer.nn.methods import QuantizeMethod

Method: TypeAlias = "int | Tensor | Mapping[str, int | Tensor | None]"
"""One method for all data of a module, or one for each named datum."""
_Change: TypeAlias = "tuple[Fixed, str, QuantizeMethod]"


class FixTopModule(nn.Module):
    """A network whose fixed-point modules are configured together; each method also takes any other module as self."""

    def fix_state_dict(
        self: nn.Module, destination: dict[str, Any] | None = None, prefix: str = "", *, keep_vars: bool = False
    ) -> dict[str, Any]:
        """Return `state_dict()` with the values that fixed-point modules last used, instead of their float masters.

        Before its first forward a module shows its masters. ConvBN_fix shows `weight` and `bias` of the folded
        convolution in addition to its masters.
        """
        found: dict[str, Any] = self.state_dict(prefix=prefix, keep_vars=keep_vars)
        for path, module in fixed_modules(self):
            for name, value in module.last_fixed.items():
                found[prefix + (f"{path}." if path else "") + name] = value
        if destination is None:
            return found
        destination.update(found)
        return destination

    def get_fix_configs(self: nn.Module, grad: bool = False, data_only: bool = False) -> OrderedDict[str, Any]:
        """Return configurations by module and datum, nested as the modules are.

        grad: those of gradients. data_only: numbers and words, which YAML and JSON keep exactly; else live ones, in
        which a change takes effect from the next forward on. Modules without fixed-point modules inside are left out.
        """
        found: OrderedDict[str, Any] = OrderedDict()
        for name, child in self.named_children():
            # called on the class, because a child need not be a FixTopModule
            inner = FixTopModule.get_fix_configs(child, grad, data_only)
            if isinstance(child, Fixed):
                live = child.nf_fix_params_grad if grad else child.nf_fix_params
                found[name] = (
                    OrderedDict((key, value.plain() if data_only else value) for key, value in live.items()) | inner
                )
            elif inner:
                found[name] = inner
        return found

    def load_fix_configs(self: nn.Module, cfgs: Mapping[str, Any], grad: bool = False) -> None:
        """Replace configurations, scales included, by *cfgs*: what `get_fix_configs` returns, data_only or not.

        FixError, and nothing changed, for a name that is not a module of this one or for an illegal configuration. A
        fixed-point module that *cfgs* does not name keeps its configuration, with a warning.
        """
        plan: list[tuple[Fixed, dict[str, Any]]] = []
        _plan(self, cfgs, "", plan, grad=grad)
        for module, given in plan:
            module.check_fixes(given, grad=grad)
        for module, given in plan:
            module.configure_fixes({name: dict(each) for name, each in given.items()}, grad=grad)

    def print_fix_configs(
        self: nn.Module,
        data_fix_cfg: Mapping[str, Any] | None = None,
        grad_fix_cfg: Mapping[str, Any] | None = None,
        prefix_spaces: int = 0,
    ) -> None:
        """Print bits, scale and method of every datum (d) and its gradient (g), from *cfgs* or from this module."""
        data = FixTopModule.get_fix_configs(self) if data_fix_cfg is None else data_fix_cfg
        grad = FixTopModule.get_fix_configs(self, grad=True) if grad_fix_cfg is None else grad_fix_cfg
        for line in _lines(data, grad):
            sys.stdout.write(" " * prefix_spaces + line + "\n")

    def set_fix_method(
        self: nn.Module,
        method: int | Tensor | None = None,
        method_by_type: Mapping[str | type[nn.Module], Method] | None = None,
        method_by_name: Mapping[str, Method] | None = None,
        grad: bool = False,
    ) -> None:
        """Set methods: for a module named in *method_by_name* from there, else by its type, else *method*.

        Names are paths such as `block.conv`, or the last part of them; they reach nested modules as well. FixError,
        without a change, for an unknown name or datum, and for FIXED before a scale was chosen.
        """
        by_name, by_type = dict(method_by_name or {}), dict(method_by_type or {})
        modules = dict(fixed_modules(self))
        known = [*modules, *(path.rpartition(".")[2] for path in modules)]
        for name in by_name:
            if name not in known:
                raise FixError(f"method_by_name: {name!r}: no fixed-point module.{suggestion(name, known, 'Known')}")
        changes: list[_Change] = []
        for path, module in modules.items():
            last, kind = path.rpartition(".")[2], type(module)
            chosen: Method | None = by_name.get(path, by_name.get(last))
            if chosen is None:
                chosen = by_type.get(kind.__name__, by_type.get(kind, method))
            if chosen is not None:
                changes += _changes(path, module, chosen, grad=grad)
        for module, name, wanted in changes:
            module.check_datum_method(name, wanted, grad=grad)
        for module, name, wanted in changes:
            module.set_datum_method(name, wanted, grad=grad)

    def to_graph(self: nn.Module, *examples: Tensor, **keys: Any) -> Graph:
        """Return the network as a quantized graph: `quantizer.nn.to_graph` of it."""
        return to_graph(self, *examples, **keys)


def _changes(path: str, module: Fixed, chosen: Method, *, grad: bool) -> Iterator[_Change]:
    configs = module.fix_configs(grad=grad)
    each = chosen if isinstance(chosen, Mapping) else dict.fromkeys(configs, chosen)
    for name, method in each.items():
        if name not in configs:
            raise FixError(f"module {path!r}: {name!r} is not configured.{suggestion(name, configs, 'Known')}")
        if method is not None:
            # scale 1, so that parse accepts FIXED; check_datum_method looks at the real scale
            yield module, name, parse(f"module {path!r}: {name!r}", {"method": method, "scale": 1.0})[0].method


def _plan(
    module: nn.Module, cfgs: Mapping[str, Any], path: str, plan: list[tuple[Fixed, dict[str, Any]]], *, grad: bool
) -> None:
    """Collect, for each module below *module*, its configurations."""
    where = path or "the network"
    if not isinstance(cfgs, Mapping):
        raise FixError(f"{where}: must be a mapping of modules to configurations, got {type(cfgs).__name__}.")
    children = dict(module.named_children())
    own = set(module.fixable_names(grad=grad)) if isinstance(module, Fixed) and path else set()
    for name in cfgs:
        if name not in children and name not in own:
            raise FixError(f"{where}: {name!r}: no such module.{suggestion(name, [*children, *own], 'Known')}")
    for name, child in children.items():
        inner = f"{path}.{name}" if path else name
        below = list(fixed_modules(child))
        if name not in cfgs:
            if below:
                warnings.warn(f"{inner}: not in the configurations; it keeps what it has.", stacklevel=3)
            continue
        if isinstance(child, Fixed):
            names = child.fixable_names(grad=grad)
            # other keys belong to modules inside this one
            plan.append((child, {key: value for key, value in cfgs[name].items() if key in names}))
        _plan(child, cfgs[name], inner, plan, grad=grad)


def _lines(data: Mapping[str, Any], grad: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys((*data, *grad)):
        d, g = data.get(name, {}), grad.get(name, {})
        if _is_config(d) or _is_config(g):
            yield f"{name:<12} d: {_words(d)}"
            yield f"{'':<12} g: {_words(g)}"
        else:
            yield name
            for line in _lines(d, g):
                yield f"  {line}"


def _is_config(value: Mapping[str, Any]) -> bool:
    return isinstance(value, LiveConfig) or "bitwidth" in value


def _words(value: Mapping[str, Any]) -> str:
    if not value:
        return "float"
    config, scale = parse("configuration", dict(value))
    numbers = ", ".join(f"{number:g}" for number in scale.flatten().tolist())
    return f"bitwidth: {config.bitwidth:2}; scale: {numbers}; method: {config.method.value} ({config.method.name})"
