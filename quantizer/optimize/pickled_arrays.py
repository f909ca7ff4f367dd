"""Arrays of a dict that NumPy saved as an object array, taken apart without running it.

Such a file is a pickle. Its instructions are interpreted one by one as data, without imports or calls. Anything but a
dict of plain numeric arrays under text keys is refused.
"""

from __future__ import annotations

import pickletools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.core.errors import FormatError
from quantizer.core.reading import Readable, one_line, shown_value
from quantizer.core.wording import shown_path
from quantizer.ir.formats.npz import BAD_HEADERS

Array = NDArray[Any]
LARGEST = 4 << 30
PICKLED = Readable("a file of pickled arrays", LARGEST, FormatError, "Save the arrays with numpy.savez.")
MOST_STEPS = 1_000_000
"""The largest number of instructions in a pickle; a dict of a thousand arrays takes 30,000."""
# kinds of numpy: floating, signed, unsigned, bool
NUMBERS = "fiub"
# each name as numpy 2 and as earlier versions write it
RECONSTRUCT = (("numpy._core.multiarray", "_reconstruct"), ("numpy.core.multiarray", "_reconstruct"))
NDARRAY, DTYPE = ("numpy", "ndarray"), ("numpy", "dtype")
# protocol 5 saves an array as a call of _frombuffer
FROM_BUFFER = (("numpy._core.numeric", "_frombuffer"), ("numpy.core.numeric", "_frombuffer"))
# protocol 2 has no bytes: it saves them as text and a call that encodes it
PROTOCOL_2_BYTES = ("_codecs", "encode")


class RefusedError(ValueError):
    """The pickle contains something other than arrays."""


@dataclass
class _Mark:
    """The start of a tuple or of several items."""


@dataclass(frozen=True)
class _Name:
    """A name that the pickle would import."""

    module: str
    name: str


@dataclass
class _Built:
    """An array or a number format under construction."""

    kind: str
    state: Any = None


@dataclass
class _Machine:
    """The stack and the memory of a pickle."""

    stack: list[Any] = field(default_factory=list)
    memory: dict[int, Any] = field(default_factory=dict)

    def items(self) -> list[Any]:
        """Return the stack's elements above the last mark."""
        found: list[Any] = []
        while self.stack:
            item = self.stack.pop()
            if isinstance(item, _Mark):
                return found[::-1]
            found.append(item)
        raise RefusedError("ends in the middle")

    def pop(self, count: int) -> list[Any]:
        """Return the uppermost items in order."""
        if len(self.stack) < count:
            raise RefusedError("ends in the middle")
        found = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return found


def read_arrays(path: Path) -> dict[str, Array]:
    """Return key -> array of a .npy file that holds one dict of arrays; FormatError for anything else."""
    where = shown_path(path)
    try:
        with PICKLED.opened(path, where) as file:
            np.lib.format.read_magic(file)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # numpy warns about headers from Python 2
                shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            if not dtype.hasobject or shape != ():
                raise RefusedError("does not hold a dict of arrays")
            found = _followed(file.read())
    except (RefusedError, *BAD_HEADERS) as err:
        raise FormatError(
            f"{where}: pickled objects are refused, except a dict of plain numeric arrays: {one_line(err)}. Save the "
            "arrays with numpy.savez, or as one .npy file with allow_pickle=False."
        ) from None
    return found


def _followed(raw: bytes) -> dict[str, Array]:
    machine = _Machine()
    # genops only parses; the table of steps is the list of what is allowed
    for count, (opcode, argument, _) in enumerate(pickletools.genops(raw)):
        if count >= MOST_STEPS:
            raise RefusedError(f"more than {MOST_STEPS} instructions")
        step = _STEPS.get(opcode.name)
        if step is None:
            raise RefusedError(f"instruction {opcode.name}")
        step(machine, argument)
    outer = _content(machine.stack[-1])
    if not isinstance(outer, list) or len(outer) != 1 or not isinstance(outer[0], dict) or not outer[0]:
        raise RefusedError("does not hold a dict of arrays")
    return {_key(key): _array(value) for key, value in outer[0].items()}


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise RefusedError(f"a key is not text but a {type(key).__name__}")  # not its repr, which can take very long
    return key


def _content(built: object) -> object:
    """Return the content of the object array that holds everything."""
    if not isinstance(built, _Built) or built.kind != "array" or not isinstance(built.state, tuple):
        raise RefusedError("holds no array")
    return built.state[-1]


def _array(built: object) -> Array:
    if not isinstance(built, _Built) or built.kind != "array" or not isinstance(built.state, tuple):
        raise RefusedError(f"{type(built).__name__} where an array must be")
    # the state that ndarray.__setstate__ takes: version, shape, dtype, order, bytes
    _, shape, dtype, fortran, raw = built.state
    if not isinstance(raw, bytes) or not isinstance(dtype, _Built):
        raise RefusedError("an array of objects")
    kind = _dtype(dtype)
    values = np.frombuffer(raw, kind)
    return values.reshape(shape, order="F" if fortran else "C")


def _dtype(built: _Built) -> np.dtype[Any]:
    code, order = built.state
    kind = np.dtype(code if isinstance(code, str) else "O")
    if kind.kind not in NUMBERS:
        raise RefusedError(f"number format {shown_value(code)}")
    # "|" (single bytes) and "=" (no state was set) leave the order as it is
    return kind.newbyteorder(order) if order in ("<", ">") else kind


def _reduce(machine: _Machine, _: object) -> None:
    name, arguments = machine.pop(2)
    if not isinstance(name, _Name) or not isinstance(arguments, tuple):
        raise RefusedError("a call")
    called = (name.module, name.name)
    if called in RECONSTRUCT and arguments and arguments[0] == _Name(*NDARRAY):
        machine.stack.append(_Built("array"))
    elif called in FROM_BUFFER and len(arguments) == 4:
        raw, dtype, shape, order = arguments
        machine.stack.append(_Built("array", (1, shape, dtype, order == "F", raw)))
    elif called == DTYPE and arguments and isinstance(arguments[0], str):
        machine.stack.append(_Built("dtype", (arguments[0], "=")))
    elif called == PROTOCOL_2_BYTES and len(arguments) == 2 and arguments[1] == "latin1":
        machine.stack.append(_key(arguments[0]).encode("latin1"))
    else:
        raise RefusedError(f"a call of {shown_value(name.module)}.{shown_value(name.name)}")


def _build(machine: _Machine, _: object) -> None:
    target, state = machine.pop(2)
    if not isinstance(target, _Built) or not isinstance(state, tuple):
        raise RefusedError("an object with a state")
    if target.kind == "dtype":
        # the state of a dtype begins with version and byte order
        target.state = (target.state[0], state[1])
    else:
        target.state = state
    machine.stack.append(target)


def _global(machine: _Machine, argument: object) -> None:
    module, _, name = str(argument).partition(" ")
    machine.stack.append(_Name(module, name))


def _stack_global(machine: _Machine, _: object) -> None:
    module, name = machine.pop(2)
    if not isinstance(module, str) or not isinstance(name, str):
        raise RefusedError("an import without a name")
    machine.stack.append(_Name(module, name))


def _set_items(machine: _Machine, _: object) -> None:
    items = machine.items()
    target = machine.stack[-1]
    if not isinstance(target, dict):
        raise RefusedError("items for something that is not a dict")
    for key, value in zip(items[::2], items[1::2], strict=True):
        target[_key(key)] = value


def _set_item(machine: _Machine, _: object) -> None:
    key, value = machine.pop(2)
    if not isinstance(machine.stack[-1], dict):
        raise RefusedError("items for something that is not a dict")
    machine.stack[-1][_key(key)] = value


def _append(machine: _Machine, _: object) -> None:
    (value,) = machine.pop(1)
    if not isinstance(machine.stack[-1], list):
        raise RefusedError("items for something that is not a list")
    machine.stack[-1].append(value)


def _extend(machine: _Machine, _: object) -> None:
    values = machine.items()
    if not isinstance(machine.stack[-1], list):
        raise RefusedError("items for something that is not a list")
    machine.stack[-1].extend(values)


def _memoize(machine: _Machine, _: object) -> None:
    machine.memory[len(machine.memory)] = machine.stack[-1]


def _put(machine: _Machine, argument: object) -> None:
    machine.memory[int(str(argument))] = machine.stack[-1]


def _get(machine: _Machine, argument: object) -> None:
    machine.stack.append(machine.memory[int(str(argument))])


def _push(make: Callable[[Any], Any]) -> Callable[[_Machine, Any], None]:
    return lambda machine, argument: machine.stack.append(make(argument))


def _tuple(count: int) -> Callable[[_Machine, Any], None]:
    return lambda machine, _: machine.stack.append(tuple(machine.pop(count)))


_VALUES = (
    "BININT",
    "BININT1",
    "BININT2",
    "LONG1",
    "SHORT_BINUNICODE",
    "BINUNICODE",
    "BINUNICODE8",
    "SHORT_BINBYTES",
    "BINBYTES",
    "BINBYTES8",
    "BINFLOAT",
)
_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": lambda *_: None,
    "FRAME": lambda *_: None,
    "STOP": lambda *_: None,
    "MEMOIZE": _memoize,
    "BINPUT": _put,
    "LONG_BINPUT": _put,
    "BINGET": _get,
    "LONG_BINGET": _get,
    "MARK": _push(lambda _: _Mark()),
    "NONE": _push(lambda _: None),
    "NEWTRUE": _push(lambda _: True),
    "NEWFALSE": _push(lambda _: False),
    "EMPTY_TUPLE": _push(lambda _: ()),
    "EMPTY_LIST": _push(lambda _: []),
    "EMPTY_DICT": _push(lambda _: {}),
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.items())),
    "GLOBAL": _global,
    "STACK_GLOBAL": _stack_global,
    "REDUCE": _reduce,
    "BUILD": _build,
    "SETITEM": _set_item,
    "SETITEMS": _set_items,
    "APPEND": _append,
    "APPENDS": _extend,
    "BYTEARRAY8": _push(bytes),
    **{name: _push(lambda value: value) for name in _VALUES},
}
