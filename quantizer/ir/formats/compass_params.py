"""Converts scales and zero points of Compass IR (codes per unit, negated zero point) to ours and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeGuard, TypeVar

import torch

from quantizer.core.dtypes import DType
from quantizer.ir.formats.compass_text import Section, format_loosely
from quantizer.ir.graph import AttrValue, Tensor
from quantizer.numerics.qparams import QParams

TOP_RANGE, TOP_SCALE, TOP_ZP = "layer_top_range", "layer_top_scale", "layer_top_zp"
WINOGRAD = "with_winograd"
"""Key of Node.extra and of the file: the convolution uses Winograd's algorithm, and its weights are transformed."""
AXES = "activation_quantization_axis"
_T = TypeVar("_T")
_Numbers: TypeAlias = "AttrValue | torch.Tensor"


def _is_real(value: AttrValue) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: AttrValue) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def steps_of(value: _Numbers) -> torch.Tensor:
    """Return Compass scales (codes per unit) as positive finite float32 numbers; ValueError otherwise."""
    if not isinstance(value, torch.Tensor):
        numbers = []
        for number in value if isinstance(value, tuple) else (value,):
            if not _is_real(number):
                raise ValueError(f"scale {format_loosely(number)!r}: must be a positive finite number")
            numbers.append(float(number))
        value = torch.tensor(numbers if isinstance(value, tuple) else numbers[0], dtype=torch.float64)
    steps = value.to(torch.float32)
    bad = ~torch.isfinite(steps) | (steps <= 0) | ~torch.isfinite(1.0 / steps.to(torch.float64))
    if bool(bad.any()):
        raise ValueError(f"scale {value[bad].tolist()[0]}: must be a positive finite number of float32")
    return steps


def zero_point_of(value: _Numbers, like: torch.Tensor, codes: tuple[int, int]) -> torch.Tensor:
    """Return Compass's negated zero points as ours (int64, shaped as *like*); ValueError if one is outside *codes*."""
    if isinstance(value, torch.Tensor):
        numbers: Sequence[AttrValue] = value.reshape(-1).tolist()
    else:
        numbers = value if isinstance(value, tuple) else (value,)
    found = []
    for number in numbers:
        if not _is_integer(number):
            raise ValueError(f"zero point {format_loosely(number)!r}: must be an integer")
        if not codes[0] <= -number <= codes[1]:
            raise ValueError(f"zero point {number}: its negative must be one of the codes {list(codes)}")
        found.append(-number)
    if len(found) not in (1, like.numel()):
        raise ValueError(f"{len(found)} zero points for {like.numel()} scales: write one, or one for each")
    # a copy: all elements of an expanded tensor are one number in memory
    return torch.tensor(found, dtype=torch.int64).expand(like.numel()).reshape(like.shape).clone()


def params_of(
    dtype: DType, steps: torch.Tensor, zero_point: torch.Tensor, axis: int | None, codes: tuple[int, int]
) -> QParams:
    """Return `real = scale * (code - zero_point)` with scale = 1 / steps in float64; the float32 steps are kept."""
    return QParams(dtype, 1.0 / steps.to(torch.float64), zero_point, *codes, axis=axis, steps=steps)


def scale_of(params: QParams) -> torch.Tensor:
    """Return Compass's float32 codes per unit: from the file if it has them, else 1 / scale."""
    return (1.0 / params.scale).to(torch.float32) if params.steps is None else params.steps


def constant_steps(shape: tuple[int, ...], scale: _Numbers) -> torch.Tensor | None:
    """Return the steps of a constant, 0-d or one for each slice of axis 0; None if they are per block."""
    steps = steps_of(scale)
    if steps.numel() == 1:
        return steps.reshape(())
    if steps.dim() > 1 or (shape and steps.numel() > shape[0] and steps.numel() % shape[0] == 0):
        return None
    if not shape or steps.numel() != shape[0]:
        raise ValueError(f"{steps.numel()} scales for shape {list(shape)}: write one, or one for each slice of axis 0")
    return steps


def constant_params(dtype: DType, shape: tuple[int, ...], scale: _Numbers, zero: _Numbers) -> QParams | None:
    """Return the parameters of a constant from its `<c>_scale` and `<c>_zp`; None if they are per block."""
    steps, codes = constant_steps(shape, scale), (dtype.min, dtype.max)
    if steps is None:
        return None
    return params_of(dtype, steps, zero_point_of(zero, steps, codes), 0 if steps.dim() else None, codes)


def quantized_constant(section: Section, key: str, tensor: Tensor, numbers: Mapping[str, _Numbers]) -> Tensor:
    """Return the constant *key* with the parameters that `<key>_scale` and `<key>_zp` among *numbers* give it."""
    if f"{key}_scale" not in numbers or not tensor.dtype.is_integer:
        return tensor
    scale, zero = numbers[f"{key}_scale"], numbers.get(f"{key}_zp", 0)
    _located(section, f"{key}_scale", lambda: constant_steps(tensor.shape, scale))
    params = _located(section, f"{key}_zp", lambda: constant_params(tensor.dtype, tensor.shape, scale, zero))
    return replace(tensor, qparams=params)


def _located(section: Section, key: str, read: Callable[[], _T]) -> _T:
    try:
        return read()
    except ValueError as err:
        raise section.error(key if key in section else f"{key}_offset", str(err)) from None


def quantized_tops(
    section: Section,
    tops: Sequence[Tensor],
    stored: Mapping[str, Sequence[torch.Tensor]],
    attrs: Mapping[str, AttrValue],
) -> tuple[list[Tensor], dict[str, object]]:
    """Return the outputs of a layer with their parameters, and the content of the lines that no parameter can hold.

    *stored* are the per-channel numbers of the .bin file, one tensor per output. A line is kept if an output has no
    integer codes, or a range is not that of the codes.
    """
    rest: dict[str, object] = {}
    scales, zeros = (_per_output(section, key, len(tops), stored) for key in (TOP_SCALE, TOP_ZP))
    pairs = _ranges(section, len(tops)) if TOP_RANGE in section else None
    if scales is None and zeros is not None:
        raise section.error(TOP_SCALE, "missing next to layer_top_zp: write layer_top_scale=[...]")
    # parameters hold what the lines say, unless an output has no integer codes; then the lines are kept
    absorbed = scales is not None and all(top.dtype.is_integer for top in tops)
    if pairs is not None:
        whole = [(lo, hi) for lo, hi in pairs if isinstance(lo, int) and isinstance(hi, int)]
        if not absorbed or len(whole) < len(pairs) or attrs.get("unquantifiable") is True:
            rest[TOP_RANGE] = section.items(TOP_RANGE)
    if scales is not None and not absorbed:
        if stored:
            raise section.error("layer_top_type", "scales per channel need a type with codes: write an integer type")
        rest |= {key: section.items(key) for key in (TOP_SCALE, TOP_ZP) if key in section}
    if scales is None:
        return list(tops), rest
    axes = attrs.get(AXES)
    quantized = list(tops)
    for i, top in enumerate(tops):
        if top.dtype.is_integer:
            codes = _codes(section, top, pairs[i] if pairs else None)
            axis = axes[i] if isinstance(axes, tuple) and i < len(axes) else None
            quantized[i] = _quantized_top(section, top, scales[i], zeros[i] if zeros else 0, axis, codes)
    return quantized, rest


def _per_output(
    section: Section, key: str, count: int, stored: Mapping[str, Sequence[torch.Tensor]]
) -> Sequence[_Numbers] | None:
    if key not in section and key not in stored:
        return None
    values: Sequence[_Numbers] = stored[key] if key in stored else section.items(key)
    if len(values) != count:
        named = key if key in section else f"{key}_offset"
        raise section.error(named, f"{len(values)} entries for the {count} tensors of layer_top: write one each")
    return values


def _ranges(section: Section, count: int) -> list[tuple[float, float]]:
    pairs = []
    values = section.items(TOP_RANGE)
    if len(values) != count:
        raise section.error(TOP_RANGE, f"{len(values)} entries for the {count} tensors of layer_top: write one each")
    for value in values:
        pair = value if isinstance(value, tuple) else ()
        numbers = [n for n in pair if isinstance(n, int | float) and not isinstance(n, bool)]
        if len(pair) != 2 or len(numbers) != 2 or numbers[0] > numbers[1]:
            raise section.error(TOP_RANGE, f"{format_loosely(value)}: must be a pair [smallest,largest]")
        pairs.append((numbers[0], numbers[1]))
    return pairs


def _codes(section: Section, top: Tensor, pair: tuple[float, float] | None) -> tuple[int, int]:
    """Return the codes that an integer output uses: its range, if both ends are integers."""
    if pair is None or not (isinstance(pair[0], int) and isinstance(pair[1], int)):
        return top.dtype.min, top.dtype.max
    if pair[0] < top.dtype.min or pair[1] > top.dtype.max:
        span = f"[{top.dtype.min}, {top.dtype.max}]"
        raise section.error(TOP_RANGE, f"{list(pair)} leaves the codes of {top.dtype}: write a part of {span}")
    return pair[0], pair[1]


def _quantized_top(
    section: Section, top: Tensor, scale: _Numbers, zero: _Numbers, axis: AttrValue | None, codes: tuple[int, int]
) -> Tensor:
    steps = _located(section, TOP_SCALE, lambda: steps_of(scale))
    # the file writes the text None for a tensor with one scale
    named = axis if isinstance(axis, int) and not isinstance(axis, bool) else None
    if steps.numel() == 1 and named is None:
        steps = steps.reshape(())
    along = None if steps.dim() == 0 else (-1 if named is None else named)
    if along is not None:
        rank = len(top.shape)
        if steps.dim() != 1 or not -rank <= along < rank or steps.numel() != top.shape[along]:
            what = f"{steps.numel()} scales along axis {along} of shape {list(top.shape)}: write one for each slice"
            raise section.error(TOP_SCALE if TOP_SCALE in section else f"{TOP_SCALE}_offset", what)
        along %= rank
    zero_point = _located(section, TOP_ZP, lambda: zero_point_of(zero, steps, codes))
    return replace(top, qparams=params_of(top.dtype, steps, zero_point, along, codes))
