"""Effects of reported bugs that are not in the catalogue of faults: which codes go wrong, and how.

Where only the place matters, wrong codes are off by one, which is less than in any report.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from quantizer.conformance.faults.changes import kernel, output_codes
from quantizer.conformance.faults.fault import Wrap
from quantizer.conformance.faults.number_changes import accumulator, sums
from quantizer.conformance.real.wrong_codes import (
    along,
    below_zero,
    bounded_by_zero,
    clipped_early,
    edges,
    far,
    filled,
    flat_last,
    flat_tail,
    line,
    mirrored,
    moved,
    of_channel,
    shifted_after_clip,
    span_of,
    tail,
    wrapped,
)
from quantizer.numerics.qparams import Parameters
from quantizer.ops.registry import Function

Where = Callable[[Tensor], Tensor]


def _where(chosen: Callable[..., Tensor]) -> Callable[..., Wrap]:
    def made(*numbers: int) -> Wrap:
        # raises TypeError for a wrong number of arguments now, not when the fault runs
        inspect.signature(chosen).bind(None, *numbers)
        return output_codes(lambda codes, p: moved(codes, p, chosen(codes, *numbers)))

    return made


def _every(axis: int, step: int) -> Wrap:
    """Set every element along an axis to the zero point, except each *step*-th one."""
    return output_codes(
        lambda codes, p: torch.where(along(codes, axis) % step == 0, codes, int(p.outputs["y"].zero_point))
    )


def _without_last(axis: int) -> Wrap:
    return output_codes(lambda codes, _: codes.narrow(axis, 0, max(codes.shape[axis] - 1, 1)))


def _rolled(axis: int, by: int) -> Wrap:
    return output_codes(lambda codes, _: codes.roll(by, axis))


def _by_first(change: Callable[[Tensor, Parameters, Tensor], Tensor]) -> Wrap:
    """Change the results depending on the first operand: change(codes, parameters, operand)."""

    def wrap(original: Function) -> Function:
        def faulty(*operands: Tensor, parameters: Parameters, **named: Any) -> Any:
            first = next(v for v in (*operands, *named.values()) if isinstance(v, Tensor))
            changed = output_codes(lambda codes, p: change(codes, p, first))
            return changed(original)(*operands, parameters=parameters, **named)

        return faulty

    return wrap


def _input_codes(modulus: int, remainder: int) -> Wrap:
    """Change the results for some codes of the first operand."""
    return _by_first(lambda codes, p, first: moved(codes, p, first % modulus == remainder))


def _at_zero() -> Wrap:
    """Change the results where the first operand is its zero point."""
    return _by_first(lambda codes, p, first: moved(codes, p, first == next(iter(p.inputs.values())).zero_point))


def _raises(original: Function) -> Function:
    def faulty(*operands: Tensor, **named: Any) -> Any:
        original(*operands, **named)
        raise RuntimeError("Failed to prepare the operator.")

    return faulty


def _attribute(name: str, by: int) -> Wrap:
    """Compute with an integer attribute increased by *by*."""
    return lambda original: lambda *operands, **named: original(*operands, **{**named, name: named[name] + by})


def _replaced(name: str, by: str) -> Wrap:
    """Compute with another value of an attribute that is a text."""
    return lambda original: lambda *operands, **named: original(*operands, **{**named, name: by})


def _last_code(codes: Tensor, p: Parameters, first: Tensor) -> Tensor:
    return torch.where(first == next(iter(p.inputs.values())).qmax, p.outputs["y"].qmin, codes)


def _between(low: int, high: int) -> Wrap:
    """Change the results of operands whose real values lie between *low* and *high* tenths."""

    def change(codes: Tensor, p: Parameters, first: Tensor) -> Tensor:
        x = next(iter(p.inputs.values()))
        tenths = (first - x.zero_point).double() * x.scale * 10
        return moved(codes, p, (tenths > low) & (tenths < high))

    return _by_first(change)


def _stale_tail(axis: int, block: int) -> Wrap:
    """Keep the codes of the previous run in the tail, which is zero in the first run."""

    def wrap(original: Function) -> Function:
        # by shape, since a kernel's buffer is reused for results of the same shape
        kept: dict[tuple[int, ...], Tensor] = {}

        def change(codes: Tensor, p: Parameters) -> Tensor:  # noqa: ARG001
            shape = tuple(codes.shape)
            before = kept.get(shape, torch.zeros_like(codes))
            kept[shape] = codes.clone()
            return torch.where(tail(codes, axis, block), before, codes)

        return output_codes(change)(original)

    return wrap


def _storage_order(original: Function) -> Function:
    """Read each operand in the order in which its elements lie in memory."""

    def dense(values: Any) -> Any:
        if not isinstance(values, Tensor) or values.is_contiguous():
            return values
        # the elements in the order of memory, as if strides did not exist
        return torch.as_strided(values, (values.numel(),), (1,)).reshape(values.shape)

    return lambda *operands, **named: original(
        *(dense(values) for values in operands), **{name: dense(values) for name, values in named.items()}
    )


def _fused_product(original: Function) -> Function:
    """Round the product of sum and float32 multiplier only to a code, not to float32 before, as fused operations do."""

    def faulty(*operands: Tensor, parameters: Parameters, **named: Any) -> Any:
        ratio = parameters.rescale
        exact = parameters if ratio is None else replace(parameters, rescale=replace(ratio, variant="exact"))
        return original(*operands, parameters=exact, **named)

    return faulty


def _steps(values: Tensor, p: Parameters) -> Tensor:
    return values.double() / p.outputs["y"].scale


def _of_reals(chosen: Callable[[Tensor, Parameters], Tensor], end: str = "qmin") -> Wrap:
    """Give the code at one end where *chosen* holds for the real values of the first operand."""
    return _by_first(lambda codes, p, first: torch.where(chosen(first, p), getattr(p.outputs["y"], end), codes))


def _infinite_low() -> Wrap:
    return _of_reals(lambda values, _: values == torch.inf)


def _overflow_low(block: int) -> Wrap:
    """Give the first code for results beyond 2**31 steps in the elements after the last whole block."""

    def chosen(values: Tensor, p: Parameters) -> Tensor:
        order = torch.arange(values.numel()).reshape(values.shape)
        return (order >= values.numel() - values.numel() % block) & (_steps(values, p) >= 1 << 31)

    return _of_reals(chosen)


def _quotient_overflows() -> Wrap:
    """Give the last code for a finite value whose quotient by the scale lies below all float32 numbers."""
    lowest = torch.finfo(torch.float32).min
    return _of_reals(lambda values, p: (values > -torch.inf) & (_steps(values, p) < lowest), "qmax")


def _of_operand(place: int, change: Callable[[Tensor, Parameters], Tensor]) -> Wrap:
    """Compute with changed codes of one operand."""

    def wrap(original: Function) -> Function:
        def faulty(*operands: Tensor, parameters: Parameters, **named: Any) -> Any:
            # operands may be passed by position or by name
            given = [*operands, *(name for name, values in named.items() if isinstance(values, Tensor))]
            chosen = given[place]
            if isinstance(chosen, str):
                return original(
                    *operands, parameters=parameters, **{**named, chosen: change(named[chosen], parameters)}
                )
            changed = [change(v, parameters) if i == place else v for i, v in enumerate(operands)]
            return original(*changed, parameters=parameters, **named)

        return faulty

    return wrap


def _not_below_zero(codes: Tensor, p: Parameters) -> Tensor:
    """Read values below 0 as 0, as a kernel that fills its lanes with 0 before it compares."""
    return codes.clamp(min=int(next(iter(p.inputs.values())).zero_point))


def _difference_wraps(codes: Tensor, p: Parameters) -> Tensor:
    """Subtract the zero point in the width of the codes."""
    x = next(iter(p.inputs.values()))
    # modulo 2**bits, as a subtraction in the type of the codes
    half = 1 << (x.bits - 1)
    return (codes.long() - x.zero_point + half) % (2 * half) - half + x.zero_point


def _lane_wraps(block: int) -> Wrap:
    """Change results of a matrix product in which two products of lowest codes lie half a block apart in one block.

    Kernels add such pairs of products in 16 bits, where (-128) * (-128) * 2 does not fit.
    """

    def wrap(original: Function) -> Function:
        def faulty(a: Tensor, b: Tensor, *, parameters: Parameters, **named: Any) -> Any:
            first, second = (
                (codes == p.qmin).double() for codes, p in zip((a, b), parameters.inputs.values(), strict=True)
            )
            where = torch.zeros(())
            for start in range(0, a.shape[-1] - block + 1, block):
                for low in range(start, start + block // 2):
                    pair = [low, low + block // 2]
                    # a product of masks counts the positions of the pair at which both codes are the lowest
                    where = where + (first[..., pair] @ second[..., pair, :] == len(pair))
            change = output_codes(lambda codes, p: moved(codes, p, where.expand(codes.shape) > 0))
            return change(original)(a, b, parameters=parameters, **named)

        return faulty

    return wrap


def _rescaled_beyond(bits: int) -> Wrap:
    """Flip the sign of a sum whose product with the multiplier needs more than *bits* bits beside its sign."""

    def changed(found: Tensor, _: Mapping[str, Tensor], p: Parameters) -> Tensor:
        ratio = p.rescale
        if ratio is None or ratio.mantissa.numel() != 1:
            return found
        factor = float(ratio.mantissa.double() * torch.exp2(-ratio.shift.double()) / ratio.divisor)
        return torch.where(found.double() * factor >= 2.0**bits, -found, found)

    return sums(changed)


def _correction_in_float32(found: Tensor, operands: Mapping[str, Tensor], p: Parameters) -> Tensor:
    """Add products and the zero-point correction in float32, with codes counted from the first one.

    *operands*: the first operand [..., K], and the second one, a weight [N, K] or a matrix [..., K, N].
    """
    x, (name, second) = next(iter(p.inputs.values())), list(operands.items())[1]
    held = p.constants.get(name)
    zero = (p.inputs[name] if held is None else held.params).zero_point
    totals = (second - zero).sum(dim=-2 if held is None else -1).to(found.dtype)
    correction = (int(x.zero_point) - x.qmin) * (totals.unsqueeze(-2) if held is None else totals)
    added = (found + correction).float() - correction.float()
    return added.round().to(found.dtype)


EFFECTS: Mapping[str, Callable[..., Wrap]] = {
    "everywhere": _where(lambda codes: torch.ones_like(codes, dtype=torch.bool)),
    "tail": _where(tail),
    "flat_tail": _where(flat_tail),
    "past": _where(lambda codes, axis, start: along(codes, axis) >= start),
    "block": _where(span_of),
    "line": _where(line),
    "edges": _where(edges),
    "flat_last": _where(flat_last),
    "of_channel": _where(of_channel),
    "slope_side": lambda: output_codes(below_zero),
    "wrap_top": lambda: output_codes(wrapped),
    "mirror_low": lambda: output_codes(mirrored),
    "early_clip": lambda: output_codes(clipped_early),
    "shifted_after_clip": lambda: output_codes(shifted_after_clip),
    "far": lambda distance: output_codes(lambda codes, p: far(codes, p, distance)),
    "accumulator": lambda bits: kernel(accumulator(bits)),
    "clip_half": lambda: output_codes(lambda codes, p: codes.clamp(max=(p.outputs["y"].qmax + 1) // 2 - 1)),
    "clamp_top": lambda top: output_codes(lambda codes, _: codes.clamp(max=top)),
    "clamp_low": lambda low: output_codes(lambda codes, _: codes.clamp(min=low)),
    "clamp_zero": lambda: output_codes(lambda codes, p: codes.clamp(min=max(0, p.outputs["y"].qmin))),
    "not_below_zero": lambda: output_codes(lambda codes, p: bounded_by_zero(codes, p, "below")),
    "not_above_zero": lambda: output_codes(lambda codes, p: bounded_by_zero(codes, p, "above")),
    "at_zero": _at_zero,
    "to_first": lambda: output_codes(lambda codes, p: filled(codes, p, "first")),
    "to_zero": lambda: output_codes(lambda codes, p: filled(codes, p, "zero")),
    "every": _every,
    "roll": _rolled,
    "drop_last": _without_last,
    "input_codes": _input_codes,
    "attribute": _attribute,
    "replaced": _replaced,
    "reals": _between,
    "last_code": lambda: _by_first(_last_code),
    "magnitude": lambda: _of_operand(0, lambda values, _: values.abs()),
    "reads_not_below_zero": lambda: _of_operand(0, _not_below_zero),
    "raises": lambda: _raises,
    "stale_tail": _stale_tail,
    "storage_order": lambda: _storage_order,
    "fused_product": lambda: _fused_product,
    "infinite_low": _infinite_low,
    "overflow_low": _overflow_low,
    "quotient_overflows": _quotient_overflows,
    "difference_wraps": lambda: _of_operand(0, _difference_wraps),
    "weights_even": lambda: _of_operand(1, lambda codes, _: codes // 2 * 2),
    "weights_unsigned": lambda: _of_operand(1, lambda codes, _: codes.clamp(min=0)),
    "lane_wraps": _lane_wraps,
}
SUMS: Mapping[str, Callable[..., Wrap]] = {
    "rescaled_beyond": _rescaled_beyond,
    "correction_in_float32": lambda: sums(_correction_in_float32),
}
"""Effects on exact sums before they become codes."""
STATES = ("stale_tail",)
"""Effects that keep state between runs."""
