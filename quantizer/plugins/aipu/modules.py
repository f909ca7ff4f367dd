"""The modules that `import AIPUBuilder...` finds, and the finder that serves them while a plugin loads or runs."""

from __future__ import annotations

import importlib.machinery
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

from quantizer.core.errors import PluginError
from quantizer.core.wording import suggestion
from quantizer.plugins.aipu import arithmetic, dtypes, log, node, optypes, registration, tensor

ROOT = "AIPUBuilder"
_OPTIMIZER = f"{ROOT}.Optimizer"


def _names(module: ModuleType, *names: str) -> dict[str, Any]:
    return {name: getattr(module, name) for name in names}


_LOG = _names(log, "OPT_DEBUG", "OPT_INFO", "OPT_WARN", "OPT_ERROR", "OPT_FATAL")
_TYPES = _names(dtypes, "Dtype") | _names(optypes, "OpType", "register_optype")
_TENSOR = _names(tensor, "PyTensor", "Tensor", "TensorShape")
_NODE = _names(node, "PyNode")
_REGISTER = _names(
    registration, "op_register", "quant_register", "approx_register", "PluginType", "register_plugin", "OptBaseMetric"
)
_DTYPES = _names(
    dtypes,
    "dtype2nptype",
    "nptype2dtype",
    "dtype2range",
    "dtype2bits",
    "dtype2bytes",
    "dtype2str",
    "str2dtype",
    "bits2dtype",
    "bits2range",
    "range2dtype",
    "range2bits",
    "is_signed",
    "is_float",
    "torch_type2dtype",
    "dtype2torch_type",
)
_SHAPES = _names(arithmetic, "nhwc2nchw", "nchw2nhwc")
_LOOKUP = _names(arithmetic, "lookup_lut_powerof2")
_QUANT = _names(
    arithmetic,
    "QuantMode",
    "get_linear_quant_params_from_tensor",
    "get_scale_approximation_params",
    "linear_quantize_clip",
    "linear_dequantize",
    "linear_requantize",
)
_FRAMEWORK = _TYPES | _TENSOR | _NODE | _REGISTER
_LIMITS = {
    "OPT_EPSILON": float(torch.finfo(torch.float32).eps),
    "OPT_INT_MIN": -(1 << 31),
    "OPT_INT_MAX": (1 << 31) - 1,
}
_UTILS = _FRAMEWORK | _LOG | _DTYPES | _SHAPES | _LOOKUP | _QUANT | _LIMITS | {"torch": torch}
"""Names that leak through the original's star imports. The example in its documentation uses torch and OPT_INFO from
them."""

EXPORTS: Mapping[str, Mapping[str, Any]] = {
    ROOT: {},
    _OPTIMIZER: {},
    f"{_OPTIMIZER}.framework": _FRAMEWORK,
    f"{_OPTIMIZER}.framework.opt_register": _REGISTER,
    f"{_OPTIMIZER}.framework.pycore": _TYPES | _TENSOR | _NODE,
    f"{_OPTIMIZER}.framework.pycore.pytensor": _TENSOR,
    f"{_OPTIMIZER}.framework.pycore.pynode": _NODE,
    f"{_OPTIMIZER}.framework.pycore.pytype": _TYPES,
    f"{_OPTIMIZER}.utils": _UTILS,
    f"{_OPTIMIZER}.utils.dtype_utils": _DTYPES | _SHAPES | _LIMITS | _TYPES,
    f"{_OPTIMIZER}.utils.quant_tool_utils": _QUANT | _DTYPES,
    f"{_OPTIMIZER}.utils.math_utils": _LOOKUP,
    f"{_OPTIMIZER}.logger": _LOG,
    f"{_OPTIMIZER}.ops": _UTILS,
}
"""Module -> the names that it exports."""


def _made(name: str, exports: Mapping[str, Any]) -> ModuleType:
    module = types.ModuleType(name, "Answered by quantizer.plugins.aipu.")
    module.__dict__.update(exports)
    module.__dict__["__all__"] = list(exports)
    # a module with a path is a package, so that its submodules can be imported
    module.__path__ = []
    return module


_MODULES = {name: _made(name, exports) for name, exports in EXPORTS.items()}
for _name, _module in _MODULES.items():
    _parent, _, _child = _name.rpartition(".")
    if _parent:
        setattr(_MODULES[_parent], _child, _module)


class _Finder:
    """Finds AIPUBuilder and everything below it."""

    def find_spec(
        self,
        name: str,
        _path: Sequence[str] | None = None,
        _target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the import spec of module *name*; ModuleNotFoundError if the layer does not have it."""
        if name != ROOT and not name.startswith(f"{ROOT}."):
            return None
        refuse_real()
        if name not in _MODULES:
            hint = suggestion(name, EXPORTS, "It has")
            raise ModuleNotFoundError(f"quantizer's AIPUBuilder layer has no module {name!r}.{hint}", name=name)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return the one module of that name, so that classes keep their identity."""
        return _MODULES[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module is filled already."""


_FINDER = _Finder()


def refuse_real() -> None:
    """Raise PluginError if a real AIPUBuilder is importable.

    Otherwise it would be unclear whose names a plugin gets.
    """
    loaded = sys.modules.get(ROOT)
    where: Any = None
    if loaded is not None and loaded is not _MODULES[ROOT]:
        where = getattr(loaded, "__file__", None) or list(getattr(loaded, "__path__", ()))
    elif loaded is None:
        spec = importlib.machinery.PathFinder.find_spec(ROOT)
        where = spec and (spec.origin or list(spec.submodule_search_locations or ()))
    if where:
        raise PluginError(
            f"AIPUBuilder: a real one is importable ({where}) beside quantizer's own layer ({__package__}). "
            "Run without it on sys.path, or in an environment without it."
        )


@contextmanager
def answering() -> Iterator[None]:
    """Serve imports of AIPUBuilder in the block. Afterwards finder and modules are removed."""
    # nested: the outer block removes finder and modules
    if _FINDER in sys.meta_path:
        yield
        return
    # first, so that no other finder is asked for these names
    sys.meta_path.insert(0, _FINDER)
    try:
        yield
    finally:
        sys.meta_path.remove(_FINDER)
        for name, module in _MODULES.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
