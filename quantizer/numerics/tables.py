"""Functions of one input as lookup tables: full, or a power of two of entries with linear interpolation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from quantizer.core.errors import GraphError
from quantizer.core.rounding_modes import RoundingMode
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.pinned import pinned
from quantizer.numerics.qparams import Parameters, QParams, Table
from quantizer.numerics.request import Request
from quantizer.numerics.rounding import round_tensor

Function = Callable[[Tensor], Tensor]
Alignment = Literal["stride", "linspace"]

FULL_TABLE_BITS = 16


def full_table(
    f: Function,
    inp: QParams,
    out: QParams,
    rounding: RoundingMode = "half_even",
    *,
    float32: bool = False,
    before: bool = False,
) -> Table:
    """Return the code of f, rounded once from float64 (or float32), for every input code in [inp.qmin, inp.qmax].

    *before*: the zero point is added before rounding, in the same format.
    Infinities saturate, NaN becomes code 0 clamped to the output's codes. GraphError above 16 bits of input.
    """
    _per_tensor(inp, out)
    if inp.dtype.bits > FULL_TABLE_BITS:
        raise GraphError(
            f"table of {inp.dtype}: {FULL_TABLE_BITS} bits of input at most. Use an interpolated table (lut_bits)."
        )
    codes = torch.arange(inp.qmin, inp.qmax + 1)
    entries = (_float32_entries if float32 else _entries)(f, codes, inp, out, rounding, before=before)
    return Table(entries, inp.qmin, 1, float(out.scale), out.dtype.bits)


def interpolated_table(
    f: Function,
    inp: QParams,
    out: QParams,
    lut_bits: int,
    rounding: RoundingMode = "half_even",
    *,
    alignment: Alignment = "stride",
    repeated: bool = True,
    before: bool = False,
) -> Table:
    """Return a table of 2**lut_bits entries (2**bits if that is fewer), read with stride 2**(bits - lut_bits).

    stride: entry i is f at the code that reads it, first + i * stride. linspace: f at points spread evenly from qmin to
    qmax, in its float32 arithmetic (f too is evaluated in float32, the zero point added before rounding); these points
    are codes only if the table is full. Both start at the smallest code of the format even if a restricted range leaves
    it out, so that the stride stays the same; its entry repeats that of qmin. Without *repeated*, the table starts at
    qmin.
    """
    _per_tensor(inp, out)
    bits = inp.bits
    size = 1 << min(bits, lut_bits)
    step = 1 << (bits - min(bits, lut_bits))
    first = inp.first if repeated else inp.qmin
    if alignment == "stride":
        codes = first + step * torch.arange(size)
        entries = _entries(f, codes, inp, out, rounding, before=before)
    else:
        entries = _linspace_entries(f, size, first, inp, out, rounding)
    return Table(entries, first, step, float(out.scale), out.dtype.bits)


def segment_ends(
    f: Function, inp: QParams, out: QParams, segments: int, rounding: RoundingMode, *, before: bool = False
) -> Table:
    """Return codes of f at the `segments + 1` ends of equal parts of the code range; the last is one past the range."""
    _per_tensor(inp, out)
    step = (1 << inp.bits) // segments
    codes = inp.first + step * torch.arange(segments + 1)
    entries = _entries(f, codes, inp, out, rounding, before=before)
    return Table(entries, inp.first, step, float(out.scale), out.dtype.bits)


def tabulated(request: Request, f: Function) -> Parameters:
    """Return the default parameters plus the table `lut` of *f* (real to real), built as the platform declares."""
    parameters = default_parameters(request)
    (x,), (y,) = parameters.inputs.values(), parameters.outputs.values()
    rule, before = request.platform.tables, request.platform.quantizer.zero_point == "before"
    if (segments := rule.segments_of(request.scheme.activation.bits)) is not None:
        entries = segment_ends(f, x, y, segments, request.platform.rounding, before=before)
        table = replace(entries, interpolation=rule.interpolation)
    elif rule.entries == "full":
        float32 = rule.arithmetic == "float32"
        table = full_table(f, x, y, request.platform.rounding, float32=float32, before=before)
    else:
        bits = request.scheme.activation.lut_bits
        repeated = request.spec.quantization.family not in rule.no_guard_entry
        table = interpolated_table(
            f, x, y, bits, request.platform.rounding, alignment=rule.alignment, repeated=repeated, before=before
        )
    return replace(parameters, tables={"lut": table})


def lookup(codes: Tensor, table: Table) -> Tensor:
    """Return int64 entries at *codes*, interpolated: `T[i] + ((T[i+1] - T[i]) * rest >> shift)`, floored (or half up).

    The last entry also serves as the one after it, so that the last segment is flat. Codes outside take the end
    entries.
    """
    shift = table.step.bit_length() - 1
    if table.step != 1 << shift:
        raise GraphError(f"table step {table.step}: must be a power of two.")
    place = (codes.to(torch.int64) - table.first).clamp(0, table.entries.numel() * table.step - 1)
    if shift == 0:
        return table.entries[place]
    index = place >> shift
    rest = place & (table.step - 1)
    entries = torch.cat([table.entries, table.entries[-1:]])
    low = entries[index]
    half = 1 << (shift - 1) if table.interpolation == "half_up" else 0
    return low + ((entries[index + 1] - low) * rest + half >> shift)


def _entries(
    f: Function, codes: Tensor, inp: QParams, out: QParams, rounding: RoundingMode, *, before: bool = False
) -> Tensor:
    """Return `round(f(scale * (code - zero_point)) / out.scale) + out.zero_point` in float64, clamped.

    *before*: the zero point is added before rounding.
    """
    real = (codes - inp.zero_point).to(torch.float64) * inp.scale
    value = f(real).to(torch.float64) / out.scale
    rounded = _rounded(value, out, rounding, before=before)
    # NaN (a function outside its domain) becomes code 0; infinities become finite here and saturate
    return rounded.nan_to_num(nan=0.0).clamp(out.qmin, out.qmax).to(torch.int64)


@pinned()
def _float32_entries(
    f: Function, codes: Tensor, inp: QParams, out: QParams, rounding: RoundingMode, *, before: bool = False
) -> Tensor:
    """Return the same as `_entries`, but with each step in float32."""
    real = (codes - inp.zero_point).to(torch.float32) * inp.scale.to(torch.float32)
    rounded = _rounded(f(real) / out.scale.to(torch.float32), out, rounding, before=before)
    return rounded.nan_to_num(nan=0.0).clamp(out.qmin, out.qmax).to(torch.int64)


def _rounded(value: Tensor, out: QParams, rounding: RoundingMode, *, before: bool) -> Tensor:
    """Return float64 codes of *value*, the zero point added in its format before rounding, or after."""
    if before:
        return round_tensor((value + out.zero_point).to(torch.float64), rounding)
    return round_tensor(value.to(torch.float64), rounding) + out.zero_point


@pinned()
def _linspace_entries(f: Function, size: int, first: int, inp: QParams, out: QParams, rounding: RoundingMode) -> Tensor:
    """Return the entries f at `linspace(qmin, qmax)`; if the table starts below qmin, the entry of qmin comes twice.

    They are float32, and the zero point is added before rounding, as in the recorded tables.
    """
    lacking = first < inp.qmin
    points = linspace(inp.qmin, inp.qmax, size - lacking)
    if lacking:
        points = torch.cat([points[:1], points])
    # as recorded: a product with the inverse steps, which rounds differently from a quotient
    real = (points - inp.zero_point.to(torch.float32)) * (1 / _steps(inp))
    rounded = _rounded(f(real).to(torch.float32) * _steps(out), out, rounding, before=True)
    return rounded.nan_to_num(nan=0.0).clamp(out.qmin, out.qmax).to(torch.int64)


def linspace(first: float, last: float, count: int) -> Tensor:
    """Return *count* float32 points from *first* to *last*, each one fused multiply-add from the nearer end.

    The result of torch.linspace on a processor with fused multiply-add (AVX2, AVX-512), on which the tables were
    recorded.
    """
    # float64 holds the float32 product exactly, so the last rounding is that of a fused multiply-add
    step = torch.tensor(last - first, dtype=torch.float32).div(count - 1).double()
    place = torch.arange(count)
    return torch.where(place < count // 2, first + step * place, last - step * (count - 1 - place)).float()


def _steps(params: QParams) -> Tensor:
    """Return float32 codes per unit."""
    return params.steps if params.steps is not None else (1.0 / params.scale).to(torch.float32)


def _per_tensor(*params: QParams) -> None:
    for given in params:
        if given.scale.dim():
            raise GraphError(
                f"{given.scale.numel()} scales: a table has one input and one output scale. Use per tensor."
            )
