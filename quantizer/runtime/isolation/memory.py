"""Checks how an integer forward uses memory: it must not modify its operands, or depend on where they lie.

Some functions are right in a single call of a test and wrong in a program. They write into operands, return the same
memory from each call, recognize operands by address, assume contiguous tensors, or split work wrongly among threads.
"""

from __future__ import annotations

import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantizer.core.errors import FunctionError, UnsupportedError
from quantizer.numerics.pinned import is_within
from quantizer.numerics.qparams import Staged
from quantizer.runtime.engines.frames import Array
from quantizer.runtime.isolation.wire import plain

Call = Callable[[Mapping[str, Tensor]], Any]
EVERY = 4
"""One in this many calls is repeated in other memory; the operands' values decide which."""
# 85 is 0b01010101, a value of every integer type; an odd margin breaks any alignment
POISON, MARGIN = 85, 5
"""The value that surrounds an operand in a larger buffer, and the number of such elements on each side."""
BY_ADDRESS = "Keep nothing by the address of a tensor."
LARGEST = 1 << 16
"""The largest number of elements of the operands of a repeated call."""
SETTLED = 0.25
"""The number of seconds for which operands and results of a call are watched."""
HELD = 1 << 25
"""The largest number of bytes that are watched."""
THREADS = (3, 2, 4)
"""The numbers of torch's threads under which a call is repeated. Each call gets one; the operands' values decide
which."""


def require_unchanged(tensors: Sequence[tuple[Tensor, Array]], names: Mapping[int, str]) -> None:
    """Raise FunctionError if a tensor was modified since it was passed; names: id of a tensor -> its name."""
    for tensor, held in tensors:
        if not _same_bytes(tensor, held):
            name = names.get(id(tensor))
            raise FunctionError(f"wrote into {f'operand {name!r}' if name else 'what it was given'}. Work on a copy.")


class Settling:
    """Operands and results of recent calls. Nothing may write into them after the call."""

    def __init__(self) -> None:
        self._held: deque[tuple[float, int, int, list[tuple[Array, Array]]]] = deque()
        self._bytes = 0

    def hold(self, function: int, given: Sequence[tuple[Tensor, Array]], gave: Sequence[Array]) -> None:
        """Remember a call of function number *function*, unless its tensors are too large."""
        pairs = [(_numpy(tensor), held) for tensor, held in given] + [(values, values.copy()) for values in gave]
        size = sum(values.nbytes for _, values in pairs)
        if size <= LARGEST * 8:
            # monotonic: the clock of the day may be set back
            self._held.append((time.monotonic(), function, size, pairs))
            self._bytes += size

    def written(self, *, now: bool = False) -> Iterator[int]:
        """Yield the functions that wrote after their call.

        Only calls that were held long enough are checked; *now*: all calls.
        """
        until = time.monotonic() - SETTLED
        while self._held and (now or self._held[0][0] < until or self._bytes > HELD):
            _, function, size, pairs = self._held.popleft()
            self._bytes -= size
            if any(values.tobytes() != known.tobytes() for values, known in pairs):
                yield function


def is_due(operands: Mapping[str, Tensor]) -> bool:
    """Return whether a call with these operands is repeated in other memory."""
    if not operands or sum(values.numel() for values in operands.values()) > LARGEST:
        return False
    return _digest(operands) % EVERY == 0


def _digest(operands: Mapping[str, Tensor]) -> int:
    """Return a digest of the values, so that a replay of the case makes the same calls."""
    digest = 0
    for values in operands.values():
        digest = zlib.crc32(values.contiguous().numpy().tobytes(), digest)
    return digest


def require_same_elsewhere(
    call: Call, operands: Mapping[str, Tensor], made: Any, anew: Call | None = None, *, layouts: bool = True
) -> None:
    """Raise FunctionError if *call* gives other codes for the same operands in other memory.

    A function may refuse operands in shared memory by any exception. made: its result for *operands*, in memory that
    was not used before; anew: the same call with attributes and parameters that were made anew; layouts: False if the
    order of float32 sums may depend on the memory of the operands.
    """
    # copies: the function may return the same memory from the next call
    known = [values.clone() for values in _tensors(made)]
    # other values in memory of the same shape, which the real operands then overwrite
    buffers = {name: _in_other_places(values) for name, values in operands.items()}
    found = _difference_of_parameters(call, anew, buffers)
    if any(not _equal(before, now) for before, now in zip(known, _tensors(made), strict=True)):
        raise FunctionError("wrote into what it returned before. Return memory that nothing else uses.")
    if found is not None:
        raise FunctionError(
            f"gave {found} for the same operands with parameters that were made anew."
            " Keep nothing by the address of parameters."
        )
    for name, values in operands.items():
        buffers[name].copy_(values)
    if (found := _difference(known, call(buffers))) is not None:
        raise FunctionError(
            f"gave {found} if the same operands are stored where other operands were before. {BY_ADDRESS}"
        )
    if not layouts:
        return
    for layout, (said, place) in LAYOUTS.items():
        _require_same_in(call, known, {name: place(values) for name, values in operands.items()}, layout, said)
    # one of three checks for each call, chosen by its values: all three would take too long
    further = (_require_same_in_threads, _require_same_of_one, _require_same_of_repeated)
    further[_digest(operands) // EVERY % len(further)](call, known, operands)


def _in_other_places(values: Tensor) -> Tensor:
    """Return the same values in another order in new memory: reversed, or moved by one if that changes nothing."""
    flat = values.flatten()
    other = flat.flip(0)
    return (flat.roll(1) if torch.equal(other, flat) else other).reshape(values.shape).contiguous()


def _difference_of_parameters(call: Call, anew: Call | None, operands: Mapping[str, Tensor]) -> str | None:
    """Return how the codes of *anew* differ from those of *call*; None if they do not.

    Also None if *call* refuses the operands: they differ from the earlier ones and need not be legal. They also fill
    memory. FunctionError if only the memory of the operands decides.
    """
    try:
        made = [values.clone() for values in _tensors(call(operands))]
    except Exception:  # noqa: BLE001 - whatever a function raises on operands that need not be legal
        return None
    if anew is None:
        return None
    copies = _copied(operands)
    try:
        again = anew(copies)
    except Exception as err:  # noqa: BLE001 - see above
        return f"{type(err).__name__} where it gave codes"
    found = _difference(made, again)
    # the parameters from before and these very copies: only the memory of the operands is another
    if found is not None and _difference(made, call(copies)) is not None:
        raise FunctionError(f"gave {found} for the same operands in other memory. {BY_ADDRESS}")
    return found


def _copied(operands: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: values.clone() for name, values in operands.items()}


def _require_same_in_threads(call: Call, known: Sequence[Tensor], operands: Mapping[str, Tensor]) -> None:
    """Raise FunctionError if *call* gives other codes in another thread of Python, under several of torch's threads."""
    # pinned code runs on one thread
    if is_within():
        return
    count = THREADS[_digest(operands) // EVERY // len(THREADS) % len(THREADS)]
    copies = _copied(operands)
    if (found := _difference(known, _in_another_thread(call, copies, count))) is None:
        return
    if _difference(known, call(copies)) is not None:
        raise FunctionError(f"gave {found} for the same operands in other memory. {BY_ADDRESS}")
    if _difference(known, _in_threads(call, copies, count)) is None:
        raise FunctionError(f"gave {found} in another thread of Python. Keep no state that belongs to one thread.")
    raise FunctionError(f"gave {found} under {count} threads. Give the same codes under any number of threads.")


def _in_another_thread(call: Call, operands: Mapping[str, Tensor], count: int) -> Any:
    """Return what *call* gives in a new thread of Python; in this one if it raises there, because it may be bound."""
    with ThreadPoolExecutor(1) as one:
        made = one.submit(_quietly, lambda: _in_threads(call, operands, count))
        try:
            return made.result()
        except Exception:  # noqa: BLE001 - whatever it raises gives no wrong code
            return _in_threads(call, operands, count)


def _quietly(made: Callable[[], Any]) -> Any:
    # each thread has its own settings of numpy's warnings
    with np.errstate(all="ignore"):
        return made()


def _in_threads(call: Call, operands: Mapping[str, Tensor], count: int) -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        return call(operands)
    finally:
        torch.set_num_threads(threads)


def _require_same_of_one(call: Call, _: Sequence[Tensor], operands: Mapping[str, Tensor]) -> None:
    """Raise FunctionError if *call* gives other codes for two operands in one tensor than for equal copies."""
    alike: dict[tuple[torch.dtype, torch.Size], list[str]] = {}
    for name, values in operands.items():
        alike.setdefault((values.dtype, values.shape), []).append(name)
    one: dict[str, Tensor] = {}
    for names in (names for names in alike.values() if len(names) > 1 and operands[names[0]].numel()):
        low, high = max(operands[n].min() for n in names), min(operands[n].max() for n in names)
        if low <= high:  # the codes that each element may have
            one |= dict.fromkeys(names, operands[names[0]].clamp(low, high))
    if one:
        _require_as_apart(call, {**operands, **one}, "where two operands are one tensor. Read each by itself.")


def _require_same_of_repeated(call: Call, _: Sequence[Tensor], operands: Mapping[str, Tensor]) -> None:
    """Raise FunctionError if *call* gives other codes for operands whose slices share their memory."""
    given = {name: _repeated(v) if v.dim() and v.numel() else v for name, v in operands.items()}
    said = "where an axis of an operand has the stride 0, as a broadcast one. Read it by its strides."
    _require_as_apart(call, given, said)


def _repeated(values: Tensor) -> Tensor:
    return _shared(values)[0]


def _shared(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first slice, repeated by a stride of 0, and its buffer, which is as large as for separate slices."""
    # a function that ignores the stride of 0 reads these values
    room = torch.full(values.shape, POISON).to(values.dtype)
    room[:1] = values[:1]
    return room[:1].expand(values.shape), room


def _require_as_apart(call: Call, given: Mapping[str, Tensor], said: str) -> None:
    """Raise FunctionError if *call* gives other codes for *given* than for separate copies."""
    apart = {name: values.contiguous().clone() for name, values in given.items()}
    try:
        known = [values.clone() for values in _tensors(call(apart))]
        made = call(given)
        if (found := _difference(known, made)) is None:
            return
        moved = _differs_elsewhere(call, apart, known) or _differs_elsewhere(call, given, made)
    except Exception:  # noqa: BLE001 - a function that refuses such operands aloud gives no wrong code
        return
    if moved:
        raise FunctionError(f"gave {found} for the same operands in other memory. {BY_ADDRESS}")
    raise FunctionError(f"gave {found} {said}")


def _require_same_in(
    call: Call, known: Sequence[Tensor], placed: Mapping[str, tuple[Tensor, Tensor]], layout: str, said: str
) -> None:
    """Raise FunctionError if *call* gives other codes for operands in these buffers, or writes outside one.

    placed: operand -> its view, and the whole buffer around it.
    """
    try:
        given = _made_of(call, placed)
    except UnsupportedError:  # a function that raises an error for such operands gives no wrong codes
        return
    if (found := _difference(known, given)) is None:
        return
    if _differs_elsewhere(call, {name: view for name, (view, _) in placed.items()}, given):
        raise FunctionError(f"gave {found} for the same operands in other memory. {BY_ADDRESS}")
    raise FunctionError(f"gave {found} where its operands {layout}. {said}")


def _differs_elsewhere(call: Call, operands: Mapping[str, Tensor], made: Any) -> bool:
    """Return whether *call* gives other codes than *made* for operands of the same layout at other addresses.

    A function that reads a layout wrongly gives the same wrong codes there. A refusal is no code.
    """
    known = [values.clone() for values in _tensors(made)]
    try:
        return _difference(known, call(_moved(operands))) is not None
    except Exception:  # noqa: BLE001 - whatever a function raises
        return False


def _moved(operands: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the same views of copies of the whole buffers; operands of one buffer share its copy."""
    copies = {values.untyped_storage().data_ptr(): values.untyped_storage().clone() for values in operands.values()}
    return {
        name: values.new_empty(0).set_(
            copies[values.untyped_storage().data_ptr()], values.storage_offset(), values.shape, values.stride()
        )
        for name, values in operands.items()
    }


def made_in(call: Call, operands: Mapping[str, Tensor], place: str) -> Any:
    """Return what *call* gives for *operands* in a place of PLACES; UnsupportedError if it refuses them there."""
    if place == THREADED:
        return _in_threads(call, _copied(operands), THREADS[0])
    lay = _shared if place == SHARED else LAYOUTS[place][1]
    return _made_of(call, {name: lay(values) for name, values in operands.items()})


def _made_of(call: Call, placed: Mapping[str, tuple[Tensor, Tensor]]) -> Any:
    """Return the result for operands in buffers; FunctionError if *call* writes into one.

    Any exception of *call* becomes an UnsupportedError: it refuses operands in such memory.
    """
    before = {name: room.clone() for name, (_, room) in placed.items()}
    try:
        given = call({name: values for name, (values, _) in placed.items()})
    except Exception as err:
        raise UnsupportedError(type(err).__name__) from err
    for name, (_, room) in placed.items():
        if not torch.equal(before[name], room):
            raise FunctionError(
                f"wrote outside operand {name!r}, which is part of a larger buffer. Write into no operand."
            )
    return given


def _strided(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same values with one foreign element between neighbours along the last axis."""
    if not values.dim():
        return values.clone(), values
    # foreign elements between neighbours, so that reading without strides gives wrong codes
    room = torch.full((*values.shape[:-1], 2 * values.shape[-1]), POISON).to(values.dtype)
    found = room[..., ::2]
    found.copy_(values)
    return found, room


def _turned(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same values with their axes in the reverse order in memory, as channels last."""
    axes = tuple(reversed(range(values.dim())))
    room = values.permute(axes).contiguous().clone()
    return room.permute(axes), room


def _inside(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same values at an odd offset in a larger buffer, with other values before and after them."""
    room = torch.full((values.numel() + 2 * MARGIN,), POISON).to(values.dtype)
    found = room[MARGIN : MARGIN + values.numel()].view(values.shape)
    found.copy_(values)
    return found, room


LAYOUTS: Mapping[str, tuple[str, Callable[[Tensor], tuple[Tensor, Tensor]]]] = {
    "are not contiguous": ("Read them by their strides.", _strided),
    "have their axes in the reverse order in memory": ("Read them by their strides.", _turned),
    "stand inside larger buffers": ("Read them from their offset, and no further than their size.", _inside),
}
"""Layout of operands -> the advice in the message, and the function that makes the layout."""


THREADED = "are read by several threads"
SHARED = "repeat a slice by a stride of 0"
PLACES = (*LAYOUTS, THREADED, SHARED)
"""Where the judge may ask for operands to lie; in SHARED, all slices along the first axis are equal."""


def _tensors(made: Any) -> list[Tensor]:
    if isinstance(made, Staged):
        return [*_tensors(made.codes), *(plain(values) for values in made.stages.values())]
    if isinstance(made, tuple | list):
        return [values for item in made for values in _tensors(item)]
    return [plain(made)] if isinstance(made, Tensor) else []


def _difference(known: Sequence[Tensor], made: Any) -> str | None:
    found = _tensors(made)
    if len(found) != len(known):
        return f"{len(found)} tensors, {len(known)} before,"
    for before, now in zip(known, found, strict=True):
        if before.shape != now.shape:
            return f"shape {list(now.shape)}, {list(before.shape)} before,"
        if not _equal(before, now):
            return f"{int((before != now).sum())} other codes of {before.numel()}"
    return None


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a, b)


def _same_bytes(tensor: Tensor, held: Array) -> bool:
    if tuple(tensor.shape) != held.shape:
        return False
    return _numpy(tensor).tobytes() == held.tobytes()  # compares bytes, because NaN is not equal to itself


def _numpy(tensor: Tensor) -> Array:
    """Return the contents of a tensor as an array; numpy has no bfloat16."""
    return (tensor.view(torch.int16) if tensor.dtype is torch.bfloat16 else tensor).detach().numpy()
