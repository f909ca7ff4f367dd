"""Collects the registrations of a plugin file while it loads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, TypeVar

from quantizer.core.errors import PluginError
from quantizer.core.version_numbers import parse_version
from quantizer.plugins.aipu.optypes import OpTypeValue, forget_optypes, known_optypes

Kind = Literal["forward", "quantize"]
F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type[Any])


class PluginType(Enum):
    """The kind of a class plugin."""

    Dataset = "dataset"
    Metric = "metric"
    QConfig = "qconfig"
    Train = "train"


@dataclass(frozen=True)
class LayerFunction:
    """A forward or a quantize function of one layer type."""

    type: OpTypeValue
    kind: Kind
    function: Callable[..., Any]
    version: tuple[int, ...]
    file: str

    def __str__(self) -> str:
        return f"{self.function.__name__} ({self.type} {self.kind}, {'.'.join(map(str, self.version))})"


@dataclass(frozen=True)
class ClassPlugin:
    """A dataset, a metric or a configuration hook, named by its class; upper and lower case are equal."""

    kind: PluginType
    cls: type[Any]
    version: tuple[int, ...]
    file: str

    @property
    def name(self) -> str:
        """The name by which a cfg file requests it."""
        return self.cls.__name__


@dataclass
class Contributions:
    """Everything that the files of one load registered, in order."""

    functions: list[LayerFunction] = field(default_factory=list)
    classes: list[ClassPlugin] = field(default_factory=list)


# a stack, because a plugin file may import another plugin
_OPEN: list[Contributions] = []


@contextmanager
def collecting() -> Iterator[Contributions]:
    """Collect the registrations of the block. If it raises, none of them remain, layer types included."""
    known, found = known_optypes(), Contributions()
    _OPEN.append(found)
    try:
        yield found
    except BaseException:
        forget_optypes(known)
        raise
    finally:
        _OPEN.pop()


def _collector(what: str) -> Contributions:
    if not _OPEN:
        raise PluginError(f"{what}: works in a plugin file while quantizer loads it. Name the file with --op-plugins.")
    return _OPEN[-1]


def op_register(optypes: Any, version: Any = "1.0", *_: Any) -> Callable[[F], F]:
    """Register the decorated `forward(self, *args)`: the float forward, or the integer one if self.quantized."""
    return _layer_function("op_register", "forward", optypes, version)


def quant_register(optypes: Any, version: Any = "1.0", *_: Any) -> Callable[[F], F]:
    """Register the decorated `quantize(self, *args)`, which chooses parameters of outputs, constants, placeholders."""
    return _layer_function("quant_register", "quantize", optypes, version)


def approx_register(optypes: Any, version: Any = "1.0", *_: Any) -> Callable[[F], F]:
    """Accept the decorated approximation without using it: it runs only for layers that are not quantized."""
    _types("approx_register", optypes)
    parse_version(str(version))
    return lambda function: function


def register_plugin(type: PluginType, version: Any = "1.0") -> Callable[[C], C]:  # noqa: A002 - as in Compass
    """Register the decorated class: a dataset with __len__ and __getitem__, or a metric made from OptBaseMetric."""

    def register(cls: C) -> C:
        wanted = {PluginType.Dataset: ("__len__", "__getitem__")}.get(type, ())
        missing = [name for name in wanted if not callable(getattr(cls, name, None))]
        if type is PluginType.Metric and not issubclass(cls, OptBaseMetric):
            raise PluginError(f"metric {cls.__name__}: must inherit from OptBaseMetric.")
        if missing:
            raise PluginError(f"{type.value} {cls.__name__}: must define {' and '.join(missing)}.")
        found = ClassPlugin(type, cls, parse_version(str(version)), _file_of(cls.__module__))
        _collector("register_plugin").classes.append(found)
        return cls

    if not isinstance(type, PluginType):
        raise PluginError(f"register_plugin({type!r}): must be PluginType.Dataset, .Metric, .QConfig or .Train.")
    return register


class OptBaseMetric:
    """Base class of metrics: reset begins an epoch, __call__ takes each batch, compute ends it, report gives a text."""

    def __init__(self, *args: str) -> None:
        """*args*: texts from the cfg file, as in `TopKMetric(5)`."""

    def __call__(self, pred: list[Any], target: Any) -> None:
        """Take one batch: the graph's outputs in order, dequantized, and the labels of the dataset."""
        raise NotImplementedError

    def reset(self) -> None:
        """Forget all batches."""
        raise NotImplementedError

    def compute(self) -> Any:
        """Return the score over all batches so far."""
        raise NotImplementedError

    def report(self) -> str:
        """Return the score as a sentence."""
        raise NotImplementedError


def _layer_function(name: str, kind: Kind, optypes: Any, version: Any) -> Callable[[F], F]:
    types, parsed = _types(name, optypes), parse_version(str(version))

    def register(function: F) -> F:
        file = function.__code__.co_filename
        _collector(name).functions.extend(LayerFunction(item, kind, function, parsed, file) for item in types)
        return function

    return register


def _types(name: str, optypes: Any) -> list[OpTypeValue]:
    found = list(optypes) if isinstance(optypes, list | tuple) else [optypes]
    for item in found:
        if not isinstance(item, OpTypeValue):
            raise PluginError(f"{name}({item!r}): must be a layer type, such as OpType.Convolution.")
    return found


def _file_of(module: str) -> str:
    return str(getattr(sys.modules.get(module), "__file__", None) or module)
