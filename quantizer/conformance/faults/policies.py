"""Tolerances by which published test harnesses compare an operator with its reference, each with its source.

Each policy compares the real outputs of the changed operator with those of the unchanged one, like a test that runs
the quantized model twice. No policy looks at parameters, tiles, files or a second run. Rooms add the tolerances of
their systems' tests.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.core.rooms import loaded, rooms

Array = NDArray[Any]
Accepts = Callable[[Array, Array, float], bool]
"""accepts(wanted, got, step): whether the test passes; *step* is one code of the output, or 0 for a float forward."""


@dataclass(frozen=True)
class Policy:
    """The errors that one test harness accepts, and the source for that."""

    name: str
    source: str
    accepts: Accepts
    in_codes: bool = False
    """Whether its unit is a code, so that it cannot judge a float forward."""


def close(atol: float, rtol: float) -> Accepts:
    """Accept elements within `atol + rtol * |wanted|`."""
    return lambda wanted, got, step: bool((np.abs(got - wanted) <= atol + rtol * np.abs(wanted)).all())  # noqa: ARG005


def within_codes(count: float, atol: float = 0.0) -> Accepts:
    """Accept elements that differ by at most this many codes."""
    # a little more than the codes, since differences of real values are rounded
    return lambda wanted, got, step: bool((np.abs(got - wanted) <= atol + count * step * (1 + 1e-9)).all())


def cosine(least: float) -> Accepts:
    """Accept results whose cosine similarity is at least *least*. Two zero vectors count as equal."""

    def accepts(wanted: Array, got: Array, step: float) -> bool:  # noqa: ARG001
        length = float(np.linalg.norm(wanted)) * float(np.linalg.norm(got))
        return bool(np.array_equal(wanted, got)) if length == 0.0 else float((wanted * got).sum()) >= least * length

    return accepts


def frobenius(most: float, least_cosine: float) -> Accepts:
    """Accept a relative error in the Frobenius norm, and a cosine."""
    direction = cosine(least_cosine)

    def accepts(wanted: Array, got: Array, step: float) -> bool:
        size, error = float(np.linalg.norm(wanted)), float(np.linalg.norm(got - wanted))
        return error <= most * size and direction(wanted, got, step)

    return accepts


def sqnr(least: float) -> Accepts:
    """Accept a ratio of signal to error of at least this many dB."""

    def accepts(wanted: Array, got: Array, step: float) -> bool:  # noqa: ARG001
        error = float(((got - wanted) ** 2).sum())
        return error == 0.0 or float((wanted**2).sum()) >= error * 10 ** (least / 10)

    return accepts


def bias_and_mse(codes: float, bias: float, mse: float) -> Accepts:
    """Accept elements within *codes*, their mean error within *bias* and its mean square within *mse*, all in codes."""

    def accepts(wanted: Array, got: Array, step: float) -> bool:
        away = (got - wanted) / step
        if not away.size:
            return True
        return bool(np.abs(away).max() <= codes) and abs(float(away.mean())) <= bias and float((away**2).mean()) <= mse

    return accepts


_SHARED: tuple[Policy, ...] = (
    Policy("atol 1e-3 rtol 1e-2", "NNSmith (difftest.py)", close(1e-3, 1e-2)),
    Policy("atol 1e-7 rtol 1e-3", "ONNX backend node tests, all of them", close(1e-7, 1e-3)),
    Policy("SQNR 20 dB", "a usual gate on quantized layers", sqnr(20.0)),
    Policy(
        "NNAPI 10 LSB",
        "NNAPI CTS random graphs, quant8: 10 codes, bias 1.5, mse 1.5",
        bias_and_mse(10, 1.5, 1.5),
        in_codes=True,
    ),
)


@functools.cache
def policies() -> tuple[Policy, ...]:
    """Return every policy. Those that belong to no room come first."""
    return (*_SHARED, *(policy for room in rooms() if room.policies for policy in loaded(room.policies)))


@dataclass(frozen=True)
class Share:
    """The number of cases that a fault changes, and how many of them a policy rejects."""

    found: int
    cases: int


def shares(compared: list[tuple[Array, Array | None, float]]) -> Mapping[str, Share]:
    """Return, for each policy, how many of *compared* it rejects.

    An entry is (wanted, got or None if it raised, step).
    """
    found = {}
    for policy in policies():
        seen = [row for row in compared if row[2] > 0.0 or not policy.in_codes]
        failing = sum(not _accepted(policy, *row) for row in seen)
        found[policy.name] = Share(failing, len(seen))
    return found


def _accepted(policy: Policy, wanted: Array, got: Array | None, step: float) -> bool:
    # every test sees an exception, another shape, and NaN or infinity
    if got is None or got.shape != wanted.shape or not np.isfinite(got).all():
        return False
    return policy.accepts(wanted, got, step)
