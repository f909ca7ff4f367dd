"""The plugin process: loads plugins and calls their functions for the judge."""

from __future__ import annotations

import contextlib
import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from quantizer import __version__
from quantizer.core.errors import FormatError, FunctionError, QuantizerError, UnsupportedError
from quantizer.core.model import Model
from quantizer.core.rooms import loaded
from quantizer.core.shield import is_from_shielded
from quantizer.numerics.pinned import pinned
from quantizer.ops import REGISTRY, Registration
from quantizer.ops.registry import BUILT_IN, Function
from quantizer.plugins.bridge import connect
from quantizer.plugins.discovery import load_plugins
from quantizer.plugins.loading import LAYERS
from quantizer.runtime.engines.frames import Frame, receive, send
from quantizer.runtime.isolation.memory import (
    PLACES,
    Call,
    Settling,
    is_due,
    made_in,
    require_same_elsewhere,
    require_unchanged,
)
from quantizer.runtime.isolation.placement import ANYHOW
from quantizer.runtime.isolation.wire import Reader, Writer, read_model
from quantizer.runtime.raised import raised

TRACE = 1 << 13
"""The number of characters of a traceback that are kept, from its end."""
INTEGER = ("quantized", "accumulate")
"""Kinds of functions whose results must have the same bits in any memory."""


def _writes() -> Function:
    """Return a function that writes into its operand."""
    return lambda *, x: x.add_(1)


def _keeps() -> Function:
    """Return a function that caches its results by the address of its operand."""
    kept: dict[int, Tensor] = {}
    return lambda *, x: kept.setdefault(x.data_ptr(), 2 * x)


FORBIDDEN: Mapping[str, Callable[[], Function]] = {"writes": _writes, "keeps": _keeps}
"""A forbidden action -> a function that does it."""


class Served:
    """The state of the process.

    The functions of plugins, the objects that the judge named, and the values that stay here.
    """

    def __init__(self) -> None:
        self._functions: list[Registration] = []
        self._models: dict[int, Model] = {}
        self._numbers: dict[int, int] = {}
        self._kept: dict[int, Any] = {}
        self._generation = 0
        self._count = 0
        self._settling = Settling()
        self._late: dict[int, str] = {}
        self._untold: set[int] = set()
        self._failed: set[int] = set()

    def answer(self, frame: Frame) -> Frame:
        """Return the answer to one message of the judge: to load plugins, or to run a function or a layer."""
        header = frame.header
        kinds = {
            "load": self._load,
            "connect": self._connect,
            "call": self._call,
            "flow": self._flow,
            "probe": self._probe,
        }
        kind = kinds[header["kind"]]
        try:
            for number, data in header.get("define", ()):
                self._models[number] = read_model(data)
                self._numbers[id(self._models[number])] = number
            for number in header.get("drop", ()):
                self._kept.pop(number, None)
            return kind(header, frame)
        except BaseException as err:  # noqa: BLE001 - whatever is raised is the answer; Ctrl-C goes to the judge
            text = traceback.format_exc()[-TRACE:]
            # errors of a function under test carry its place; ours are sentences already
            plain = str(err) if isinstance(err, QuantizerError) and header["kind"] != "call" else raised(err)
            from_us = isinstance(err, UnsupportedError) and not is_from_shielded(err)
            # only our own code may say that a case is unsupported: a plugin could skip its failures so
            ours = from_us and (header["kind"] == "flow" or header.get("place") in PLACES)
            return Frame({"error": plain or type(err).__name__, "trace": text, "unsupported": ours})

    def _load(self, header: Mapping[str, Any], _: Frame) -> Frame:
        """Load plugins; answer with their descriptions and the functions that they registered."""
        self._generation = header["generation"]
        loaded = load_plugins([Path(path) for path in header["paths"]])
        plugins = [{**asdict(plugin), "specs": [str(path.resolve()) for path in plugin.specs]} for plugin in loaded]
        layers = sorted({function.type.name for function in LAYERS})
        return Frame({"version": __version__, "plugins": plugins, "layers": layers, "functions": self._new()})

    def _connect(self, header: Mapping[str, Any], _: Frame) -> Frame:
        """Give layer functions to the operators of specs; answer with the functions that this adds."""
        specs: dict[str, Any] = {op: self._models[number] for op, number in header["specs"].items()}
        connect(specs)
        return Frame({"functions": self._new()})

    def _new(self) -> list[dict[str, Any]]:
        """Return the newly registered functions of plugins as plain data; the position of a function is its number."""
        # by identity: two registrations may be equal
        known = {id(entry) for entry in self._functions}
        added = [entry for entry in REGISTRY.all() if entry.origin != BUILT_IN and id(entry) not in known]
        self._functions += added
        return [_described(entry) for entry in added]

    def _call(self, header: Mapping[str, Any], frame: Frame) -> Frame:
        """Call a function of a plugin."""
        number = header["function"]
        entry = self._functions[number]
        self._look()
        if number in self._late:
            self._untold.discard(number)
            raise FunctionError(self._late[number])
        try:
            again = entry.kind in INTEGER
            return self._called(entry.function, header, frame, again=again, number=number, place=header["place"])
        except FunctionError:
            self._failed.add(number)
            raise

    def _look(self, *, now: bool = False) -> None:
        """Note the functions that wrote into memory after their call."""
        for number in self._settling.written(now=now):
            if number not in self._late and number not in self._failed:  # its item has already failed
                self._untold.add(number)
            self._late[number] = (
                f"{self._functions[number]}: wrote into what it was given, or gave, after it had returned."
                " End your threads first. Return memory that nothing else uses."
            )

    def _flow(self, header: Mapping[str, Any], frame: Frame) -> Frame:
        """Call one of our functions that calls functions of plugins."""
        return self._called(loaded(header["function"]), header, frame)

    def _probe(self, header: Mapping[str, Any], frame: Frame) -> Frame:
        """Call one of the FORBIDDEN functions as a plugin's; the call must be reported as failing."""
        self._look(now=True)
        if self._untold:
            return Frame({"late": self._late[min(self._untold)]})
        if self._new():
            late = f"{self._functions[-1]}: was registered after plugins were loaded, and nothing judges it."
            return Frame({"late": f"{late} Register it while its module is imported."})
        return self._called(FORBIDDEN[header["function"]](), header, frame, again=True)

    def _called(
        self,
        function: Function,
        header: Mapping[str, Any],
        frame: Frame,
        *,
        again: bool = False,
        number: int | None = None,
        place: str = "",
    ) -> Frame:
        """Call a function, and check its use of memory.

        again: some calls are repeated in other memory; number: the function's number, to watch its memory; place: how
        operands lie (`placement.py`).
        """
        reader = self._reader(frame)
        args, named = reader.read(header["args"]), reader.read(header["named"])
        tensors = {name: value for name, value in named.items() if isinstance(value, torch.Tensor)}
        names = {id(value): name for name, value in tensors.items()}
        # the judge's context decides whether torch's shortcuts are pinned off
        with np.errstate(all="ignore"), pinned() if header["pinned"] else contextlib.nullcontext():
            if place in PLACES:
                return self._answered(made_in(_with(function, named), tensors, place))
            made = function(*args, **named)
            require_unchanged(reader.tensors, names)
            if again and not args and is_due(tensors):
                # read again: attributes and parameters at other addresses
                others = self._reader(frame).read(header["named"])
                anew = _with(function, others)
                require_same_elsewhere(_with(function, named), tensors, made, anew, layouts=place != ANYHOW)
        answer = self._answered(made)
        if number is not None:
            self._settling.hold(number, reader.tensors, answer.arrays)
        return answer

    def _answered(self, made: Any) -> Frame:
        writer = Writer(self._number, self._keep)
        return Frame({"result": writer.write(made)}, arrays=writer.arrays)

    def _reader(self, frame: Frame) -> Reader:
        return Reader(frame.arrays, self._models.__getitem__, self._held, checked=False)

    def _number(self, model: Model) -> int | None:
        """Return the number of a spec, scheme or platform that the judge sent."""
        if (found := self._numbers.get(id(model))) is not None:
            return found
        # a model that a function copied has another address, but equals one that was sent
        return next(
            (number for number, known in self._models.items() if type(known) is type(model) and known == model), None
        )

    def _keep(self, value: Any) -> tuple[int, int]:
        self._count += 1
        self._kept[self._count] = value
        return self._generation, self._count

    def _held(self, handle: tuple[int, int], _: str) -> Any:
        generation, number = handle
        if generation != self._generation or number not in self._kept:
            raise FunctionError("what its quantize rule left in `extra` is lost: the process ended since then.")
        return self._kept[number]


def _with(function: Function, named: Mapping[str, Any]) -> Call:
    """Return the call with other operands in place of those in *named*."""
    return lambda operands: function(**{**named, **operands})


def _described(entry: Registration) -> dict[str, Any]:
    """Return the facts about a function that the judge gets."""
    accepted: Sequence[inspect.Parameter] = ()
    with contextlib.suppress(TypeError, ValueError):
        accepted = [*inspect.signature(entry.function).parameters.values()]
    return {
        "op": entry.op,
        "kind": entry.kind,
        "version": list(entry.version),
        "platform": entry.platform,
        "origin": entry.origin,
        "fuses": entry.fuses,
        "activates": entry.activates,
        "unsupported": dict(entry.unsupported),
        "batched": entry.batched,
        "accepts": [[item.name, item.kind.name] for item in accepted],
    }


def serve(questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer messages until they end."""
    torch.set_num_threads(1)  # float sums are split among threads, so that the number of threads would choose the order
    # as in the judge: creating a kernel for every new shape is expensive
    setattr(torch.backends.mkldnn, "enabled", False)  # noqa: B010
    served = Served()
    try:
        while (frame := receive(questions)) is not None:
            send(answers, served.answer(frame))
    # the judge ended, perhaps in the middle of a message: nobody is left to answer
    except (FormatError, BrokenPipeError):
        return
