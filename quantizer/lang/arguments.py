"""Rules for arguments: each function returns the checked value, or raises an error that names argument and rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from quantizer.lang.errors import LangError
from quantizer.lang.tensor import Scalar, Tensor

FLOATS = ("float32", "float16")
CODES = ("int8", "uint8")
FLOATS_AND_CODES = (*FLOATS, *CODES)
WORDS = ("int16", "uint16", "int32", "uint32")
MOVED = (*FLOATS_AND_CODES, "int16", "uint16")
ROUND_MODES = {
    "half_away_from_zero": "HalfAwayFromZero",
    "half_up": "HalfUp",
    "half_down": "HalfDown",
    "half_to_even": "HalfToEven",
    "towards_zero": "TowardsZero",
    "up": "Up",
    "down": "Down",
}
"""TpuLang's rounding modes -> Top's."""


def one_of(argument: str, value: Any, allowed: Sequence[Any]) -> Any:
    """Return *value* if it is one of *allowed*."""
    if value not in allowed:
        raise LangError(f"{argument}={value!r}: must be one of {', '.join(map(str, allowed))}.")
    return value


def tensor(argument: str, value: object, dtypes: Sequence[str] = (), rank: int | Sequence[int] | None = None) -> Tensor:
    """Return *value* if it is a Tensor of one of *dtypes* and of the requested rank, or one of the requested ranks."""
    if not isinstance(value, Tensor):
        raise LangError(f"{argument}={value!r}: must be a Tensor.")
    if dtypes and value.dtype not in dtypes:
        raise LangError(f"{argument} is {value.dtype}: must be {' or '.join(dtypes)}.")
    ranks = (rank,) if isinstance(rank, int) else rank
    if ranks is not None and len(value.shape) not in ranks:
        wanted = " or ".join(map(str, ranks))
        raise LangError(f"{argument} has shape {list(value.shape)}: must have {wanted} axes.")
    return value


def optional(argument: str, value: object, dtypes: Sequence[str] = ()) -> Tensor | None:
    """Return *value* if it is None or a Tensor of one of *dtypes*; else raise LangError."""
    return None if value is None else tensor(argument, value, dtypes)


def coefficient(argument: str, value: object, dtypes: Sequence[str] = ()) -> Tensor:
    """Return *value* if it is a Tensor of constants."""
    found = tensor(argument, value, dtypes)
    if found.buffer is None:
        raise LangError(f"{argument} {found.label}: must be a coefficient, a Tensor with data.")
    return found


def scalar(argument: str, value: object, like: Tensor) -> Scalar:
    """Return a number as a Scalar; a whole number used with a float tensor takes the tensor's type."""
    if isinstance(value, Scalar):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise LangError(f"{argument}={value!r}: must be a Tensor, a Scalar or a number.")
    floats = isinstance(value, float) or like.dtype in FLOATS
    return Scalar(value, like.dtype if like.dtype in FLOATS else "float32" if floats else "int32")


def integer(argument: str, value: object, least: int | None = None, most: int | None = None) -> int:
    """Return *value* if it is a whole number from *least* to *most*."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise LangError(f"{argument}={value!r}: must be a whole number.")
    if (least is not None and value < least) or (most is not None and value > most):
        span = (
            f"at least {least}" if most is None else f"at most {most}" if least is None else f"from {least} to {most}"
        )
        raise LangError(f"{argument}={value}: must be {span}.")
    return value


def number(argument: str, value: object, *, above: float | None = None, least: float | None = None) -> float:
    """Return *value* as a float if it is a finite number, above *above* and at least *least*."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise LangError(f"{argument}={value!r}: must be a finite number.")
    if above is not None and value <= above:
        raise LangError(f"{argument}={value}: must be above {above:g}.")
    if least is not None and value < least:
        raise LangError(f"{argument}={value}: must be at least {least:g}.")
    return float(value)


def boolean(argument: str, value: object) -> bool:
    """Return *value* if it is a truth value."""
    if not isinstance(value, bool):
        raise LangError(f"{argument}={value!r}: must be True or False.")
    return value


def integers(
    argument: str,
    value: object,
    count: int | None = None,
    default: Sequence[int] | None = None,
    least: int | None = None,
) -> tuple[int, ...]:
    """Return a sequence of *count* integers; None gives *default*."""
    if value is None and default is not None:
        return tuple(default)
    if not isinstance(value, list | tuple) or any(isinstance(v, bool) or not isinstance(v, int) for v in value):
        raise LangError(f"{argument}={value!r}: must be a list of whole numbers.")
    if count is not None and len(value) != count:
        raise LangError(f"{argument}={list(value)}: must have {count} numbers, it has {len(value)}.")
    if least is not None and any(v < least for v in value):
        raise LangError(f"{argument}={list(value)}: every number must be at least {least}.")
    return tuple(value)


def numbers(argument: str, value: object, count: int | None = None) -> tuple[float, ...]:
    """Return a sequence of *count* finite numbers as floats."""
    if not isinstance(value, list | tuple):
        raise LangError(f"{argument}={value!r}: must be a list of numbers.")
    if count is not None and len(value) != count:
        raise LangError(f"{argument}={list(value)}: must have {count} numbers, it has {len(value)}.")
    return tuple(number(f"{argument}[{i}]", item) for i, item in enumerate(value))


def axis(argument: str, value: object, rank: int) -> int:
    """Return an axis of *rank* axes, counted from 0; a negative number counts from the end."""
    found = integer(argument, value)
    if not -rank <= found < rank:
        raise LangError(f"{argument}={found}: must lie in [{-rank}, {rank - 1}].")
    return found % rank


def axes(argument: str, value: object, rank: int) -> tuple[int, ...]:
    """Return distinct axes counted from 0; one number means a list of one."""
    listed = integers(argument, [value] if isinstance(value, int) else value)
    found = tuple(axis(argument, item, rank) for item in listed)
    if len(set(found)) != len(found) or not found:
        raise LangError(f"{argument}={list(listed)}: must be one or more different axes.")
    return found


def rounding(argument: str, value: object, *, without: Sequence[str] = ()) -> str:
    """Return Top's name of a rounding mode; *without*: modes that the operator does not have."""
    allowed = [name for name in ROUND_MODES if name not in without]
    return ROUND_MODES[one_of(argument, value, allowed)]


def pairs(scale: object, zero_point: object, count: int) -> tuple[tuple[float, ...] | None, tuple[int, ...] | None]:
    """Return *count* scales and zero points; the zero points are 0 if only scales are given."""
    if scale is None:
        if zero_point is not None:
            raise LangError(f"zero_point={zero_point!r} without scale: must be given with scale.")
        return None, None
    return numbers("scale", scale, count), integers("zero_point", zero_point, count, default=(0,) * count)


def single(argument: str, value: object) -> None:
    """Refuse a list of more than one number."""
    if isinstance(value, list | tuple) and len(value) > 1:
        raise LangError(f"{argument}={value!r}: must be one number for the whole tensor.")
