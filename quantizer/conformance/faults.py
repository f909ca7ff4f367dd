"""A catalogue of faults: small declared changes at a named place, applied through the registry, never by editing code.

What the gate is worth is what it kills of these: see `kill`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from quantizer.conformance.generation.builder import build_case, rows
from quantizer.conformance.generation.choosers import HashChooser
from quantizer.conformance.generation.examples import example_case
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.judge import judge
from quantizer.conformance.session import Session
from quantizer.conformance.target import Target
from quantizer.conformance.trial import Trial
from quantizer.core.case import Case, TilePlan
from quantizer.core.platforms import RoundingMode
from quantizer.core.spec import Spec
from quantizer.numerics.parameters import Request, default_parameters
from quantizer.numerics.qparams import Constant, Parameters, QParams, Staged, Table
from quantizer.ops import REGISTRY, Function, FunctionKind
from quantizer.tiling.windows import Tile, tiles

Wrap = Callable[[Function], Function]
ALL = ("conv2d", "add", "softmax", "argmax", "reshape")
CODES = ("conv2d", "add", "softmax")


@dataclass(frozen=True)
class Fault:
    """One fault: what it changes, in which operators, and how each function under test is wrapped."""

    id: str
    place: str
    ops: tuple[str, ...]
    kind: FunctionKind
    wrap: Wrap


@dataclass(frozen=True)
class Kill:
    """How a fault was found: the target and check that failed first, after how many cases."""

    target: str
    check: str
    cases: int


def _kernel(change: Callable[[Parameters], Parameters]) -> Wrap:
    """Make the integer forward use changed parameters, while those that were handed stay as they are."""

    def wrap(original: Function) -> Function:
        def faulty(*operands: Tensor, parameters: Parameters, **named: Any) -> Tensor | Staged:
            result: Tensor | Staged = original(*operands, parameters=change(parameters), **named)
            return result

        return faulty

    return wrap


def _handed(change: Callable[[Parameters], Parameters]) -> Wrap:
    """Make the quantize rule hand changed parameters."""

    def wrap(original: Function) -> Function:
        return lambda request: change(original(request))

    return wrap


def _output(change: Callable[[Tensor, Parameters], Tensor]) -> Wrap:
    """Change output codes after a right forward."""

    def wrap(original: Function) -> Function:
        def faulty(*operands: Tensor, parameters: Parameters, **named: Any) -> Tensor | Staged:
            result = original(*operands, parameters=parameters, **named)
            if isinstance(result, Staged):
                return replace(result, codes=change(result.codes, parameters))
            return change(result, parameters)

        return faulty

    return wrap


def _rounding(mode: RoundingMode) -> Wrap:
    return _kernel(lambda p: replace(p, platform=p.platform.model_copy(update={"rounding": mode})))


def _input_zero(p: Parameters) -> Parameters:
    name = next(iter(p.inputs))
    moved = replace(p.inputs[name], zero_point=p.inputs[name].zero_point + 1)
    return replace(p, inputs={**p.inputs, name: moved})


def _output_zero(p: Parameters) -> Parameters:
    return _with_output(p, lambda q: replace(q, zero_point=q.zero_point + 1))


def _with_output(p: Parameters, change: Callable[[QParams], QParams]) -> Parameters:
    return replace(p, outputs={**p.outputs, "y": change(p.outputs["y"])})


def _scaled_output(factor: float) -> Callable[[Parameters], Parameters]:
    def change(q: QParams) -> QParams:
        return replace(q, scale=q.scale * factor, steps=None if q.steps is None else q.steps / factor)

    return lambda p: _with_output(p, change)


def _mantissa(change: Callable[[Tensor], Tensor]) -> Callable[[Parameters], Parameters]:
    def changed(p: Parameters) -> Parameters:
        if p.rescale is None:
            return replace(p, numbers={k: v + (k == "shift") for k, v in p.numbers.items()})
        return replace(p, rescale=replace(p.rescale, mantissa=change(p.rescale.mantissa)))

    return changed


def _bits(count: int) -> Callable[[Tensor], Tensor]:
    """Keep *count* significant bits of a multiplier."""

    def change(mantissa: Tensor) -> Tensor:
        fraction, exponent = torch.frexp(mantissa)
        return torch.ldexp(torch.round(fraction * 2.0**count) / 2.0**count, exponent)

    return change


def _constant(name: str, change: Callable[[Tensor], Tensor]) -> Callable[[Parameters], Parameters]:
    def changed(p: Parameters) -> Parameters:
        if name not in p.constants:
            return p
        constant = p.constants[name]
        return replace(p, constants={**p.constants, name: Constant(change(constant.codes), constant.params)})

    return changed


def _first_plus_one(codes: Tensor) -> Tensor:
    changed = codes.clone()
    flat = changed.view(-1)
    flat[0] += torch.where(flat[0] > 0, -1, 1)
    return changed


def _narrow(p: Parameters) -> Parameters:
    accumulator = p.platform.accumulator.model_copy(update={"overflow": "wrap"})
    return replace(p, platform=p.platform.model_copy(update={"accumulator": accumulator}), accumulator_bits=16)


def _table(change: Callable[[Table], Table]) -> Callable[[Parameters], Parameters]:
    return lambda p: replace(p, tables={name: change(table) for name, table in p.tables.items()})


def _one_entry(table: Table) -> Table:
    entries = table.entries.clone()
    entries[entries.numel() // 2 :] += 1
    return replace(table, entries=entries)


def _without_bias(original: Function) -> Function:
    return lambda x, weight, bias=None, **named: original(x, weight, None, **named)  # noqa: ARG005


def _raw_zero_padding(original: Function) -> Function:
    """Pad with code 0 instead of the zero point."""

    def faulty(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, padding: Any, **named: Any) -> Tensor:
        top, left, bottom, right = padding
        result: Tensor = original(F.pad(x, (left, right, top, bottom)), weight, bias, padding=(0, 0, 0, 0), **named)
        return result

    return faulty


def _attribute(name: str, change: Callable[[Any], Any]) -> Wrap:
    def wrap(original: Function) -> Function:
        return lambda *operands, **named: original(*operands, **{**named, name: change(named[name])})

    return wrap


def _weights_swapped_groups(original: Function) -> Function:
    def faulty(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, groups: int, **named: Any) -> Tensor:
        shuffled = x.unflatten(1, (groups, -1)).flip(1).flatten(1, 2) if groups > 1 else x
        result: Tensor = original(shuffled, weight, bias, groups=groups, **named)
        return result

    return faulty


def _without_max(original: Function) -> Function:
    """Look exponentials up from the largest code that exists instead of the largest one present."""

    def faulty(x: Tensor, *, parameters: Parameters, axis: int) -> Tensor | Staged:
        top = parameters.inputs["x"].qmax
        padded = torch.cat([x, torch.full_like(x.narrow(axis, 0, 1), top)], dim=axis)
        result = original(padded, parameters=parameters, axis=axis)
        codes = result.codes if isinstance(result, Staged) else result
        return codes.narrow(axis, 0, x.shape[axis])

    return faulty


def _other_tie(original: Function) -> Function:
    return lambda x, *, select_last, **named: original(x, select_last=not select_last, **named)


def _column_major(original: Function) -> Function:
    del original
    return lambda x, *, parameters, shape: x.permute(*reversed(range(x.dim()))).reshape(shape)  # noqa: ARG005


def _stale(original: Function) -> Function:
    """Return the result of the run before where the shape allows it."""
    kept: dict[tuple[int, ...], Tensor | Staged] = {}

    def faulty(*operands: Tensor, **named: Any) -> Tensor | Staged:
        first = next(iter((*operands, *(v for v in named.values() if isinstance(v, Tensor)))))
        result = original(*operands, **named)
        return kept.pop(tuple(first.shape), None) or kept.setdefault(tuple(first.shape), result)

    return faulty


def _batch_statistic(original: Function) -> Function:
    """Let one code of the output depend on how many rows come in one run."""

    def faulty(*operands: Tensor, parameters: Parameters, **named: Any) -> Tensor | Staged:
        result = original(*operands, parameters=parameters, **named)
        codes = result.codes if isinstance(result, Staged) else result
        if codes.dim() and codes.shape[0] > 1:
            codes = codes.clone()
            codes[1:] = torch.where(codes[1:] > parameters.outputs["y"].qmin, codes[1:] - 1, codes[1:])
        return replace(result, codes=codes) if isinstance(result, Staged) else codes

    return faulty


def _in_place(original: Function) -> Function:
    def faulty(*operands: Tensor, **named: Any) -> Tensor | Staged:
        result: Tensor | Staged = original(*operands, **named)
        values = (*operands, *named.values())
        next(v for v in values if isinstance(v, Tensor)).add_(1)
        return result

    return faulty


def _four(padding: Any) -> tuple[int, int, int, int]:
    top, left, bottom, right = padding
    return top, left, bottom, right


def _no_halo(original: Function) -> Function:
    """Cut input windows where the output tile ends: what lies beyond becomes padding."""
    del original

    def faulty(spec: Spec, shapes: Any, attrs: Any, plan: TilePlan) -> list[Tile]:
        found: list[Tile] = []
        for tile in tiles(spec, shapes, attrs, plan):
            low, high = tile.inputs["x"][2]
            if high - low > 1 and high < shapes["x"][2]:
                box = (*tile.inputs["x"][:2], (low, high - 1), *tile.inputs["x"][3:])
                top, left, bottom, right = _four(tile.attrs["padding"])
                attrs = {**tile.attrs, "padding": (top, left, bottom + 1, right)}
                found.append(replace(tile, inputs={**tile.inputs, "x": box}, attrs=attrs))
            else:
                found.append(tile)
        return found

    return faulty


def _last_tile_dropped(original: Function) -> Function:
    del original
    return lambda spec, shapes, attrs, plan: tiles(spec, shapes, attrs, plan)[:-1] or tiles(spec, shapes, attrs, plan)


def _swapped_factors(p: Parameters) -> Parameters:
    if p.rescale is None:
        return p
    names, values = list(p.rescale.factors), list(p.rescale.factors.values())
    return replace(p, rescale=replace(p.rescale, factors=dict(zip(names, reversed(values), strict=True))))


def _rolled(p: Parameters) -> Parameters:
    if p.rescale is None or p.rescale.mantissa.dim() == 0:
        return p
    return replace(p, rescale=replace(p.rescale, mantissa=p.rescale.mantissa.roll(1), shift=p.rescale.shift.roll(1)))


def _clipped(low: int, high: int) -> Callable[[Tensor, Parameters], Tensor]:
    return lambda codes, p: codes.clamp(p.outputs["y"].qmin + low, p.outputs["y"].qmax - high)


def _mod(codes: Tensor, p: Parameters) -> Tensor:
    """Turn codes at the upper end into the lower end, as a missing clip wraps."""
    output = p.outputs["y"]
    return torch.where(codes == output.qmax, output.qmin, codes)


def _half_precision(original: Function) -> Function:
    return lambda *operands, **named: original(
        *(v.half() for v in operands), **{k: v.half() if isinstance(v, Tensor) else v for k, v in named.items()}
    ).float()


def _swapped(pair: tuple[int, int]) -> tuple[int, int]:
    return pair[1], pair[0]


def _mirrored(padding: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    top, left, bottom, right = padding
    return bottom, right, top, left


def _fault(name: str, place: str, ops: tuple[str, ...], kind: FunctionKind, wrap: Wrap) -> Fault:
    return Fault(name, place, ops, kind, wrap)


CATALOGUE: tuple[Fault, ...] = (
    *(
        _fault(f"rounding_{mode}", "requantize", ("conv2d", "add"), "quantized", _rounding(mode))
        for mode in ("half_up", "half_down", "half_away", "half_toward_zero", "up", "down", "toward_zero")
    ),
    _fault("truncated_quotient", "softmax division", ("softmax",), "quantized", _rounding("toward_zero")),
    _fault("multiplier_7_bits", "kernel multiplier", ("conv2d",), "quantized", _kernel(_mantissa(_bits(7)))),
    _fault("multiplier_half", "kernel multiplier", CODES, "quantized", _kernel(_mantissa(lambda m: m / 2))),
    _fault("multiplier_next", "handed multiplier", ("conv2d", "add"), "quantize", _handed(_mantissa(lambda m: m + m * 2.0**-9))),
    _fault("input_zero_point", "kernel zero point", ("conv2d", "add"), "quantized", _kernel(_input_zero)),
    _fault("input_zero_point_handed", "handed zero point", ALL, "quantize", _handed(_input_zero)),
    _fault("output_zero_point", "kernel zero point", CODES, "quantized", _kernel(_output_zero)),
    _fault("output_zero_point_handed", "handed zero point", CODES, "quantize", _handed(_output_zero)),
    _fault("output_scale_x2", "handed scale", CODES, "quantize", _handed(_scaled_output(2.0))),
    _fault("output_scale_x1.02", "handed scale", CODES, "quantize", _handed(_scaled_output(1.02))),
    _fault("padding_raw_zero", "padding", ("conv2d",), "quantized", _raw_zero_padding),
    _fault("bias_missing", "bias", ("conv2d",), "quantized", _without_bias),
    _fault("bias_code", "handed bias", ("conv2d",), "quantize", _handed(_constant("bias", _first_plus_one))),
    _fault("bias_halved", "handed bias", ("conv2d",), "quantize", _handed(_constant("bias", lambda c: c // 2))),
    _fault("weight_code", "handed weight", ("conv2d",), "quantize", _handed(_constant("weight", _first_plus_one))),
    _fault("channel_scales_rolled", "kernel multiplier", ("conv2d",), "quantized", _kernel(_rolled)),
    _fault("clip_low", "clip", CODES, "quantized", _output(_clipped(1, 0))),
    _fault("clip_high", "clip", CODES, "quantized", _output(_clipped(0, 1))),
    _fault("clip_missing", "clip", CODES, "quantized", _output(_mod)),
    _fault("accumulator_int16", "accumulator", ("conv2d",), "quantized", _kernel(_narrow)),
    _fault("stride_swapped", "attribute", ("conv2d",), "quantized", _attribute("stride", _swapped)),
    _fault("dilation_swapped", "attribute", ("conv2d",), "quantized", _attribute("dilation", _swapped)),
    _fault("padding_mirrored", "attribute", ("conv2d",), "quantized", _attribute("padding", _mirrored)),
    _fault("groups_reversed", "attribute", ("conv2d",), "quantized", _weights_swapped_groups),
    _fault("halo_missing", "tile", ("conv2d",), "tile", _no_halo),
    _fault("last_tile_dropped", "tile", ("conv2d", "add", "softmax", "argmax"), "tile", _last_tile_dropped),
    _fault("factors_swapped", "kernel factors", ("add",), "quantized", _kernel(_swapped_factors)),
    _fault("table_index", "kernel table", ("softmax",), "quantized", _kernel(_table(lambda t: replace(t, entries=t.entries.roll(1))))),
    _fault("table_entries", "handed table", ("softmax",), "quantize", _handed(_table(_one_entry))),
    _fault("softmax_without_max", "softmax", ("softmax",), "quantized", _without_max),
    _fault("argmax_other_tie", "index", ("argmax",), "quantized", _other_tie),
    _fault("reshape_column_major", "movement", ("reshape",), "quantized", _column_major),
    _fault("one_code_up", "output", ("conv2d", "add", "softmax", "reshape"), "quantized", _output(lambda c, p: (c + 1).clamp(max=p.outputs["y"].qmax))),
    _fault("stale_second_run", "state", ALL, "quantized", _stale),
    _fault("batch_statistic", "state", CODES, "quantized", _batch_statistic),
    _fault("operand_in_place", "state", ALL, "quantized", _in_place),
    _fault("float16_reference", "float path", ("conv2d", "add", "softmax"), "reference", _half_precision),
)  # fmt: skip


@contextmanager
def applied(fault: Fault, op: str, platforms: Mapping[str, object]) -> Iterator[None]:
    """Run a block with *fault* in every function of *op* that it concerns, on every platform."""
    entered = []
    for platform in (None, *platforms):
        if platform is not None and not _own(op, fault.kind, platform):
            continue
        original = _original(fault.kind, op, platform)
        manager = REGISTRY.overridden(op, fault.kind, fault.wrap(original), platform)
        manager.__enter__()
        entered.append(manager)
    try:
        yield
    finally:
        for manager in reversed(entered):
            manager.__exit__(None, None, None)


def _own(op: str, kind: FunctionKind, platform: str) -> bool:
    return bool(REGISTRY.entries.get((op, kind, platform)))


def _original(kind: FunctionKind, op: str, platform: str | None) -> Function:
    entry = REGISTRY.find(op, kind, platform)
    if entry is not None:
        return entry.function
    return _default_quantize if kind == "quantize" else tiles


def _default_quantize(request: Request) -> Parameters:
    return default_parameters(request)


def gate_cases(session: Session, op: str) -> Iterator[tuple[Target, Case]]:
    """Yield the explicit cases of the gate profile, interleaved over the targets of *op*."""
    spec = session.library.spec(op)
    targets = session.all_targets(spec)
    names = [target.id for target in targets]
    waiting = []
    for target in targets:
        own = [example_case(target, e) for e in spec.examples]
        own += [
            build_case(target, HashChooser(key(i, target.id), row))
            for i, row in enumerate(rows(spec, names, target.id))
        ]
        waiting.append((target, own))
    for turn in range(max(len(own) for _, own in waiting)):
        for target, own in waiting:
            if turn < len(own):
                yield target, own[turn]


def kill(session: Session, fault: Fault, op: str, cases: list[tuple[Target, Case]]) -> Kill | None:
    """Return how *fault* in *op* is found over *cases*, or None where it survives them."""
    with applied(fault, op, session.library.platforms):
        for count, (target, case) in enumerate(cases, start=1):
            for verdict in judge(Trial(target, case, session.engine)):
                if verdict.failing:
                    return Kill(target.id, verdict.check, count)
    return None
