"""Plants a fault by replacing the functions that it concerns while a with-block runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from quantizer.conformance.faults.fault import Fault
from quantizer.conformance.faults.joined_outputs import OnJoinedOutputs
from quantizer.core.spec import Spec
from quantizer.ir.formats.layer_files import layer_files
from quantizer.numerics.parameters import default_parameters
from quantizer.ops import REGISTRY, load_built_ins
from quantizer.ops.registry import Function, FunctionKind
from quantizer.tiling.windows import tiles

_IN_FILES: Mapping[str, str] = {"convert": "foreign", "write": "to_bytes", "read": "from_bytes"}


class Planting:
    """A context manager that plants a fault in an operator's functions on every platform. It can be entered repeatedly.

    State that a changed function keeps between runs lives as long as this object.
    """

    def __init__(self, fault: Fault, spec: Spec, platforms: Iterable[str]) -> None:
        load_built_ins()
        self._fault, self._op = fault, spec.op
        self._in_file = _IN_FILES.get(fault.kind)
        self._changed: list[tuple[str | None, Function]] = []
        self._stack = ExitStack()
        if self._in_file is not None:
            self._file = layer_files(spec)[fault.form]
            self._changed.append((None, fault.wrap(getattr(self._file, self._in_file))))
            return
        # None: the function of all platforms that have none of their own
        for place in (None, *platforms):
            original = _original(fault.kind, spec.op, place)  # type: ignore[arg-type]
            if original is not None:
                self._changed.append((place, _changed(fault, spec, original)))

    def __enter__(self) -> Self:
        if self._in_file is not None:
            # the function is replaced in the file format itself, and the stack puts it back
            own, (_, changed) = getattr(self._file, self._in_file), self._changed[0]
            setattr(self._file, self._in_file, changed)
            self._stack.callback(setattr, self._file, self._in_file, own)
            return self
        for place, changed in self._changed:
            planted = REGISTRY.overridden(self._op, self._fault.kind, changed, place)  # type: ignore[arg-type]
            self._stack.enter_context(planted)
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()


def _changed(fault: Fault, spec: Spec, original: Function) -> Function:
    """Return the function with the fault in it; a fault of many operators sees split outputs as one tensor."""
    in_pieces = next(iter(spec.outputs.values())).pieces is not None and fault.kind in ("reference", "quantized")
    return OnJoinedOutputs(spec, original, fault.wrap) if in_pieces and callable(fault.where) else fault.wrap(original)


def _original(kind: FunctionKind, op: str, platform: str | None) -> Function | None:
    """Return the function that runs on *platform* (None: the function of platforms without their own).

    None if there is no such function.
    """
    own = REGISTRY.entries.get((op, kind, platform))
    if kind == "quantized":
        # an operator that gives sums has its integer forward by way of `accumulate`
        own = own or REGISTRY.entries.get((op, "accumulate", platform))
    if platform is not None and not own:
        return None
    entry = REGISTRY.find(op, kind, platform)
    defaults: Mapping[FunctionKind, Function] = {"quantize": default_parameters, "tile": tiles}
    return entry.function if entry is not None else defaults.get(kind)
