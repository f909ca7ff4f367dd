"""Instruction-set levels (avx2, avx512, ...) to which a real engine can be restricted, and the sets in each level."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from quantizer.core.errors import UnsupportedError
from quantizer.core.processor import INSTRUCTIONS, instructions
from quantizer.core.rooms import engines
from quantizer.core.wording import suggestion

_AVX2 = ("sse4_1", "avx", "f16c", "fma", "avx2")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl")
_VNNI = (*_AVX512, "avx512_vnni")
LEVELS: Mapping[str, tuple[str, ...]] = {
    "avx2": _AVX2,
    "avx512": _AVX512,
    "avx512_vnni": _VNNI,
    "amx": (*_VNNI, "avx512_bf16", "amx_int8", "amx_bf16"),
}
"""Level -> the instruction sets that a processor must have for it, as Linux names them; the lowest level first."""
DEFAULT = "avx2"
HOST = "host"
"""No limit: an engine uses every instruction set that the processor has and the environment variables allow."""
ALL = "all"
UNPINNED = "unpinned"
"""The label of runs of an engine that cannot be restricted."""


def offered(available: Collection[str] | None = None) -> tuple[str, ...]:
    """Return the levels that a processor with the instruction sets *available* has; by default, of this processor."""
    known = set(instructions() if available is None else available)
    return tuple(name for name, needed in LEVELS.items() if known.issuperset(needed))


def highest() -> str:
    """Return the name of the highest level that this processor has."""
    return offered()[-1] if offered() else f"below {DEFAULT}"


def asked(level: str, option: str = "--op-isa") -> tuple[str, ...]:
    """Return the levels that *level* names, in order.

    An empty *level* means the default, or `host` if the processor lacks it.

    UnsupportedError, which names *option*, for a name that is not a level and for a level that this processor lacks.
    """
    here = offered()
    if not level:
        return (DEFAULT,) if DEFAULT in here else (HOST,)
    if level == HOST:
        return (HOST,)
    if level == ALL:
        # a processor without any level still runs, unrestricted
        return here or (HOST,)
    if level not in LEVELS:
        raise UnsupportedError(f"{option}={level}: no such level.{suggestion(level, (*LEVELS, HOST, ALL), 'Known')}")
    if level not in here:
        lacking = [name for name in LEVELS[level] if name not in instructions()]
        has = f"It has the levels {', '.join(here)}." if here else f"It has no level: name {HOST}, which pins nothing."
        raise UnsupportedError(f"{option}={level}: this processor has no {', no '.join(lacking)}. {has}")
    return (level,)


def label(level: str) -> str:
    """Return the name of *level* in records and headers; without a restriction, with the level of this processor."""
    return f"{level}: {highest()}" if level in (HOST, UNPINNED) else level


def left_by(level: str, available: Collection[str]) -> frozenset[str]:
    """Return the instruction sets among *available* that an engine may use at *level*."""
    return frozenset(available) & frozenset(LEVELS.get(level, INSTRUCTIONS))


def known_sets(engine: str) -> tuple[str, ...]:
    """Return the instruction sets that a defect of *engine* (name, or name:variant) may name.

    Sets of its libraries carry the library's name (library.avx512_vnni), because the room limits each library
    separately.
    """
    room = engines().get(engine.partition(":")[0])
    libraries = () if room is None else tuple(pin.library for pin in room.pins.pins if pin.library)
    return (*INSTRUCTIONS, *(f"{library}.{name}" for library in libraries for name in INSTRUCTIONS))
