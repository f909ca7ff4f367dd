"""The operators, one module each, and the decorator that registers their functions."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType
from typing import TypeVar

from quantizer.core.errors import PluginError, SpecError
from quantizer.core.expressions import parse
from quantizer.core.rooms import Room, rooms
from quantizer.core.version_numbers import parse_version
from quantizer.numerics.batched import of_batches
from quantizer.ops.registry import BUILT_IN, KINDS, REGISTRY, Function, FunctionKind, Place, Registration, Registry

__all__ = ["REGISTRY", "Place", "Registration", "Registry", "load_built_ins", "operator"]

F = TypeVar("F", bound=Function)
TARGET_NAMES = ("scheme", "platform", "activation_bits", "weight_bits")
DECLARED_NAMES = (*TARGET_NAMES, "activation")
"""Names that `unsupported` may use in addition to dimensions and attributes; activation: the fused one."""
_FOLDER = str(Path(__file__).resolve().parent)


def operator(
    op: str,
    *,
    kind: FunctionKind | None = None,
    version: str = "1.0",
    platform: str | tuple[str, ...] | None = None,
    unsupported: Mapping[str, str] | None = None,
    batched: bool = False,
) -> Callable[[F], F]:
    """Register the decorated function as one of *op*'s functions: as *kind*, by default its own name.

    A function's name that gives the kind may end in the platform's name, or in one word for several platforms.
    *unsupported*: predicate -> reason for the cases that it does not compute, such as {"groups > 1": "no grouped
    kernel"}; predicates use the names of the spec and DECLARED_NAMES. *batched*: a quantized function that takes K
    trials in one call: each operand and the result have a first axis of K, and `parameters` is a tuple of K.
    """
    platforms = platform if isinstance(platform, tuple) else (platform,)
    declared = dict(unsupported or {})

    def register(function: F) -> F:
        found = kind or _kind_of(op, function.__name__, platforms)
        for predicate, reason in declared.items():
            try:
                parse(predicate)
            except SpecError as err:
                raise PluginError(f"{op}.{found}: unsupported: {err}") from None
            if not str(reason).strip():
                raise PluginError(f"{op}.{found}: unsupported: {predicate}: gives no reason. Add one.")
        if batched and found != "quantized":
            raise PluginError(f"{op}.{found}: batched: must be a quantized function. Leave batched out.")
        where, runs = (
            BUILT_IN if _is_built_in(function) else function.__module__,
            of_batches(function) if batched else function,
        )
        for name in platforms:
            number = parse_version(version)
            REGISTRY.add(Registration(op, found, runs, number, name, where, unsupported=declared, batched=batched))
        return function

    return register


def _kind_of(op: str, name: str, platforms: tuple[str | None, ...]) -> FunctionKind:
    """Return the kind that the *name* of a function gives, without the platform at its end."""
    first, said = platforms[0], name
    if first is not None:
        said = name.rpartition("_")[0] if len(platforms) > 1 else name.removesuffix(f"_{first}")
    kind = next((known for known in KINDS if known == said), None)
    if kind is None:
        raise PluginError(f"{op}: function {name!r} must be called one of {', '.join(KINDS)}, or say its kind.")
    return kind


def _is_built_in(function: Function) -> bool:
    """Return whether *function* is of a module of this package, or of one that a room names, in any order of imports.

    Python's table of modules decides, by the namespace in which the function runs, and not the function's own
    attributes.
    """
    module = sys.modules.get(str(getattr(function, "__module__", "")))
    # a plugin could set __module__; it cannot exchange the namespace in which its function runs
    if module is None or type(function) is not FunctionType or function.__globals__ is not vars(module):
        return False
    name, file = module.__name__, Path(function.__code__.co_filename).resolve()
    if name.startswith(f"{__name__}."):
        return str(file.parent) == _FOLDER
    origin = getattr(module.__spec__, "origin", None)
    return origin is not None and file == Path(origin).resolve() and any(name in room.functions for room in rooms())


def load_built_ins() -> None:
    """Import every module of this package, so that its functions are registered."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    for room in rooms():
        _load_room(room)
    # whatever is registered from here on comes from outside
    REGISTRY.sealed = True


def _load_room(room: Room) -> None:
    """Import what *room* registers as built-in; PluginError if the import fails or registers for another platform."""
    before = {id(entry) for entry in REGISTRY.all()}
    with REGISTRY.loading(BUILT_IN):
        for module in room.functions:
            try:
                importlib.import_module(module)
            except Exception as err:
                raise PluginError(
                    f"room {room.name}: {module}: cannot be imported: {type(err).__name__}: {err}"
                ) from err
        for entry in REGISTRY.all():
            own = id(entry) not in before or (entry.origin == BUILT_IN and entry.function.__module__ in room.functions)
            if own and entry.platform not in room.platforms:
                names = ", ".join(room.platforms)
                raise PluginError(f"room {room.name}: {entry}: a room registers for its own platforms only: {names}.")
