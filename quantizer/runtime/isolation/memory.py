"""What an integer forward does with memory: it reads its operands where they are, and leaves nothing behind.

A function that writes into what it reads, that gives the same memory to each call, that knows its operands by their address
or takes every tensor to be contiguous is right in one call of a test, and wrong in a program.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from quantizer.core.errors import FunctionError
from quantizer.numerics.qparams import Staged
from quantizer.runtime.engines.frames import Array

Call = Callable[[Mapping[str, Tensor]], Any]
EVERY = 4
"""One call in so many is made in other memory too; which, the operands' values say."""
POISON, MARGIN = 85, 5
"""What stands around an operand in a larger buffer, and how many elements on either side."""
LARGEST = 1 << 16
"""Elements of the operands of such a call, at most."""


def require_unchanged(tensors: Sequence[tuple[Tensor, Array]], names: Mapping[int, str]) -> None:
    """Raise FunctionError where a tensor no longer holds what it was provided with; names: id of a tensor -> its name."""
    for tensor, held in tensors:
        if not _same_bytes(tensor, held):
            name = names.get(id(tensor))
            raise FunctionError(f"wrote into {f'operand {name!r}' if name else 'what it was given'}. Work on a copy.")


def is_due(operands: Mapping[str, Tensor]) -> bool:
    """Return whether a call with these operands is made in other memory too."""
    if not operands or sum(values.numel() for values in operands.values()) > LARGEST:
        return False
    digest = 0
    for values in operands.values():
        digest = zlib.crc32(values.contiguous().numpy().tobytes(), digest)
    return digest % EVERY == 0


def require_same_elsewhere(call: Call, operands: Mapping[str, Tensor], made: Any) -> None:
    """Raise FunctionError where *call* gives other codes for the same operands in other memory.

    A function may refuse operands that do not lie in memory of their own, by any exception. made: what it gave for *operands*, in
    memory that nobody used before.
    """
    known = [values.clone() for values in _tensors(made)]
    buffers = {name: values.flatten().flip(0).reshape(values.shape).contiguous() for name, values in operands.items()}
    with contextlib.suppress(Exception):  # other operands, which need not be legal: they only fill the memory
        call(buffers)
    if any(not _equal(before, now) for before, now in zip(known, _tensors(made), strict=True)):
        raise FunctionError("wrote into what it returned before. Return memory that nothing else uses.")
    for name, values in operands.items():
        buffers[name].copy_(values)
    if (found := _difference(known, call(buffers))) is not None:
        raise FunctionError(
            f"gave {found} where the same operands stand in memory that other operands were read from."
            " Keep nothing by the address of a tensor."
        )
    for layout, (said, place) in LAYOUTS.items():
        _require_same_in(call, known, {name: place(values) for name, values in operands.items()}, layout, said)


def _require_same_in(
    call: Call, known: Sequence[Tensor], placed: Mapping[str, tuple[Tensor, Tensor]], layout: str, said: str
) -> None:
    """Raise FunctionError where *call* gives other codes for operands so placed, or writes beside one of them.

    placed: operand -> where it stands, and the whole buffer around it.
    """
    before = {name: room.clone() for name, (_, room) in placed.items()}
    try:
        given = call({name: values for name, (values, _) in placed.items()})
    except Exception:  # noqa: BLE001 - a function that refuses such operands aloud gives no wrong code
        return
    for name, (_, room) in placed.items():
        if not torch.equal(before[name], room):
            raise FunctionError(
                f"wrote beside operand {name!r}, which stands inside a larger buffer. Write into no operand."
            )
    if (found := _difference(known, given)) is not None:
        raise FunctionError(f"gave {found} where its operands {layout}. {said}")


def _strided(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same values, one element of others between each two along the last axis."""
    if not values.dim():
        return values.clone(), values
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
    """Return the same values at an odd offset in a larger buffer, other values before and behind."""
    room = torch.full((values.numel() + 2 * MARGIN,), POISON).to(values.dtype)
    found = room[MARGIN : MARGIN + values.numel()].view(values.shape)
    found.copy_(values)
    return found, room


LAYOUTS: Mapping[str, tuple[str, Callable[[Tensor], tuple[Tensor, Tensor]]]] = {
    "are not contiguous": ("Read them by their strides.", _strided),
    "have their axes in the reverse order in memory": ("Read them by their strides.", _turned),
    "stand inside larger buffers": ("Read them from their offset, and no further than their size.", _inside),
}
"""Where operands may stand -> what to do about it, and what puts them there."""


def _tensors(made: Any) -> list[Tensor]:
    if isinstance(made, Staged):
        return [*_tensors(made.codes), *made.stages.values()]
    if isinstance(made, tuple | list):
        return [values for item in made for values in _tensors(item)]
    return [made] if isinstance(made, Tensor) else []


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
    values = tensor.view(torch.int16) if tensor.dtype is torch.bfloat16 else tensor
    return values.contiguous().numpy().tobytes() == held.tobytes()
