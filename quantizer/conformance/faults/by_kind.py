"""Faults in one kind of number (multiplier, scale, slope, limit), whatever its name and format on a platform.

Each fault changes the numbers that an arithmetic reads. An arithmetic without multipliers reads scales. If an
arithmetic does not round by the platform's mode, a finer result is computed and rounded again. `conformance/kinds.py`
says which names belong to which kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from quantizer.conformance.faults.changes import Wrap, kernel, rounding_mode, scaled_output, with_output
from quantizer.conformance.faults.number_changes import WIDE, finer, times
from quantizer.conformance.kinds import LIMITS, MULTIPLIERS, SLOPES, looked_up
from quantizer.core.rounding_modes import RoundingMode
from quantizer.numerics.qparams import Parameters, QParams, Staged
from quantizer.numerics.rounding import divide
from quantizer.ops.registry import Function

Change = Callable[[Parameters], Parameters]
PLACES = 10
"""Binary places of a code to which an arithmetic is computed before another mode rounds it: a tie stays a tie."""


def multipliers(change: Callable[[Tensor], Tensor], *, factors: bool = False) -> Change:
    """Change every multiplier of a rescale, or a rule's integer multipliers; *factors*: also factors of operands."""

    def changed(p: Parameters) -> Parameters:
        if p.rescale is not None:
            terms = p.rescale.factors
            if factors:
                terms = {n: float(change(torch.tensor(f, dtype=torch.float64))) for n, f in terms.items()}
            return replace(p, rescale=replace(p.rescale, mantissa=change(p.rescale.mantissa), factors=terms))
        held = {name: p.numbers[name] for name in MULTIPLIERS if name in p.numbers}
        return replace(p, numbers={**p.numbers, **{name: _whole(change, value) for name, value in held.items()}})

    return changed


def _whole(change: Callable[[Tensor], Tensor], value: int) -> int:
    return int(change(torch.tensor(float(value), dtype=torch.float64)).round())


def shifts(by: int) -> Change:
    """Shift by *by* more places than provided, in every multiplier."""

    def changed(p: Parameters) -> Parameters:
        if p.rescale is not None:
            held = bool((p.rescale.shift != 0).any())  # a float multiplier has no integer part to change
            pairs = {name: (multiplier, shift + by) for name, (multiplier, shift) in p.rescale.pairs.items()}
            return replace(p, rescale=replace(p.rescale, shift=p.rescale.shift + by * held, pairs=pairs))
        names = {shift for name, shift in MULTIPLIERS.items() if name in p.numbers}
        return replace(p, numbers={name: value + by * (name in names) for name, value in p.numbers.items()})

    return changed


def slope(by: int) -> Change:
    """Add *by* to the slope. If it is part of a multiplier, the unit is the last of its nine leading bits."""

    def changed(p: Parameters) -> Parameters:
        own = {name: value + by * _last_of_nine(name, value) for name, value in p.numbers.items() if name in SLOPES}
        return replace(p, numbers={**p.numbers, **own})

    return changed


def _last_of_nine(name: str, value: int) -> int:
    # one unit of a multiplier of 31 bits would change no code
    return 1 << max(value.bit_length() - 9, 0) if name in MULTIPLIERS else 1


def limit(by: int) -> Change:
    """Add to the upper limit of codes."""
    return lambda p: replace(p, numbers={n: v + by * (n in LIMITS) for n, v in p.numbers.items()})


def halved(original: Function) -> Function:
    """Halve a result: halve the multiplier, or the factors, or double the step of the output.

    The first of these that changes the codes is used.
    """
    return _first_that_tells(original, kernel(multipliers_halved), kernel(_factors_halved), kernel(scaled_output(2.0)))


def multipliers_halved(p: Parameters) -> Parameters:
    """Halve every multiplier. If it is an integer with a shift, the shift changes."""
    return multipliers(lambda m: m / 2)(p) if p.rescale is not None else shifts(1)(p)


def _factors_halved(p: Parameters) -> Parameters:
    return p if p.rescale is None else replace(p, rescale=replace(p.rescale, factors=times(p.rescale.factors, 0.5)))


def coarser(change: Callable[[Tensor], Tensor]) -> Wrap:
    """Change every multiplier and factor; if that changes no code, the output's step, by which a kernel divides."""

    def scale(p: Parameters) -> Parameters:
        return with_output(p, lambda q: replace(q, scale=change(q.scale)))

    def wrap(original: Function) -> Function:
        return _first_that_tells(original, kernel(multipliers(change, factors=True)), kernel(scale))

    return wrap


def _first_that_tells(original: Function, *wraps: Wrap) -> Function:
    """Return a forward that uses the first of *wraps* that changes the codes."""

    def faulty(*operands: Tensor, parameters: Parameters, **named: Any) -> Tensor | Staged:
        right: Tensor | Staged = original(*operands, parameters=parameters, **named)
        for wrap in wraps:
            found: Tensor | Staged = wrap(original)(*operands, parameters=parameters, **named)
            if not torch.equal(_codes(found), _codes(right)):
                return found
        return right

    return faulty


def rounded(mode: RoundingMode) -> Wrap:
    """Round in another mode than the platform declares or the arithmetic has."""

    def wrap(original: Function) -> Function:
        def faulty(*operands: Tensor, parameters: Parameters, **named: Any) -> Tensor | Staged:
            def under(way: RoundingMode) -> Tensor | Staged:
                found: Tensor | Staged = rounding_mode(way)(original)(*operands, parameters=parameters, **named)
                return found

            # the arithmetic follows the platform's rounding mode: no other way to round is needed
            if not torch.equal(_codes(under("up")), _codes(under("down"))):
                return under(mode)
            right: Tensor | Staged = original(*operands, parameters=parameters, **named)
            exact = None if looked_up(parameters) else _unrounded(right, original, operands, parameters, named)
            if exact is None:
                return right
            output = parameters.outputs["y"]
            # results in units of 2**-PLACES are rounded as a kernel of that mode would
            codes = divide(exact, 1 << PLACES, mode) + output.along(output.zero_point, exact.dim())
            codes = codes.clamp(output.qmin, output.qmax)
            return replace(right, codes=codes) if isinstance(right, Staged) else codes

        return faulty

    return wrap


def _unrounded(
    right: Tensor | Staged, original: Function, operands: tuple[Tensor, ...], p: Parameters, named: dict[str, Any]
) -> Tensor | None:
    """Return centred results in units of 2**-PLACES of a code; None if finer numbers do not give the right results."""
    output = p.outputs["y"]
    for numbers in _finer_numbers(p):
        found = _tried(original, operands, numbers, named, right, output)
        if found is not None:
            return found
    # last try: larger operands, for arithmetics that are linear in them
    seen = {name: _enlarged(value, p.inputs.get(name)) for name, value in named.items()}
    return _tried(original, operands, _enlarged_inputs(finer(p, 0)), seen, right, output)


def _tried(
    original: Function,
    operands: tuple[Tensor, ...],
    p: Parameters,
    named: dict[str, Any],
    right: Tensor | Staged,
    output: QParams,
) -> Tensor | None:
    try:
        found = _codes(original(*operands, parameters=p, **named))
    except Exception:  # noqa: BLE001 - an arithmetic that has no such numbers
        return None
    codes, unit = _codes(right), 1 << PLACES
    # results below half a code are all rounded to 0 and show no mode
    if found.shape != codes.shape or not found.numel() or int(found.abs().max()) < unit >> 1:
        return None
    near = divide(found, unit, "half_even") + output.along(output.zero_point, found.dim())
    # accepted only if it has binary places and, rounded, is within one code of the right result
    is_finer = bool((found % unit != 0).any()) and not torch.equal(found, codes)
    return found if is_finer and bool(((near.clamp(output.qmin, output.qmax) - codes).abs() <= 1).all()) else None


def _enlarged(value: Any, params: QParams | None) -> Any:
    """Return centred codes of an activation multiplied by 2**PLACES; any other operand or attribute unchanged."""
    if params is None or not isinstance(value, Tensor):
        return value
    return (value - params.along(params.zero_point, value.dim())) << PLACES


def _enlarged_inputs(p: Parameters) -> Parameters:
    inputs = {
        name: replace(q, dtype=WIDE, qmin=WIDE.min, qmax=WIDE.max, zero_point=torch.zeros_like(q.zero_point))
        for name, q in p.inputs.items()
    }
    return replace(p, inputs=inputs)


def _finer_numbers(p: Parameters) -> Iterator[Parameters]:
    """Yield parameters under which each kind of arithmetic gives units of 2**-PLACES of a code, unclipped."""
    if p.rescale is not None:
        yield finer(p, PLACES)
        yield finer(replace(p, rescale=replace(p.rescale, factors=times(p.rescale.factors, 1 << PLACES))), 0)
    elif p.numbers.keys() & MULTIPLIERS.keys():
        yield shifts(-PLACES)(finer(p, 0))
    yield scaled_output(2.0**-PLACES)(finer(p, 0))


def _codes(result: Tensor | Staged) -> Tensor:
    return result.codes if isinstance(result, Staged) else result
