"""Solves for biases that put sums of products next to a tie, where similar arithmetics round differently."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quantizer.conformance.generation.hashing import key
from quantizer.conformance.generation.room_sums import Biased, beside_steps, has_oracle, has_own_rule
from quantizer.conformance.target import Target
from quantizer.core.case import Case
from quantizer.core.shapes import channel_axis, variables
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.qparams import Parameters
from quantizer.numerics.quantize import dequantize, quantize
from quantizer.numerics.requantize_accumulator import requantize_accumulator
from quantizer.ops import REGISTRY
from quantizer.ops.registry import BUILT_IN

Array = NDArray[Any]
FIXED_BITS = 31
TWICE = "multiplier_shift"
"""The requantization that rounds twice where a platform declares a first rounding."""
MOST_TIES = 512
"""The largest number of ties that are tried, spread from the first code to the last."""
BESIDE = (-1, 0, 1, 2)
"""The sums that are tried next to each tie, relative to the whole number below it."""


def is_near_sum(target: Target) -> bool:
    """Return whether a bias can place the operator's sums next to a tie: products with weights and a bias on one grid.

    False if the platform has its own integer function, whose sums may have another unit, and no oracle to ask about it.
    """
    roles = [item.role for item in target.spec.inputs.values()]
    if has_own_rule(target) and not has_oracle(target):
        return False
    if target.scheme.grid != "uniform":  # no single unit of the sum brings it next to a tie
        return False
    return target.spec.error_model.kind == "bilinear" and "weight" in roles and "bias" in roles


def on_grid(target: Target, case: Case, tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Return *tensors* rounded to values of codes, so that no platform's quantizer rounds them again."""
    parameters = provided_for(target, case, tensors)
    found = {}
    for name, values in tensors.items():
        params = parameters.inputs.get(name) or parameters.constants[name].params
        codes = quantize(torch.from_numpy(values).float(), params, target.platform.quantizer)
        found[name] = dequantize(codes, params).numpy()
    return found


def solved_near_bias(target: Target, case: Case, name: str, tensors: Mapping[str, Array]) -> Array:
    """Return a bias per channel that moves one sum of the channel to a value for which a rival gives another code.

    *tensors*: the other operands, as real values of their codes. The channels take `RIVALS` in turn, beginning with the
    rival that differs from the platform's arithmetic in the fewest sums. A channel for which no sum is found gets a
    bias of 0.
    """
    parameters = provided_for(target, case, {**tensors, name: np.zeros(case.shapes[name])})
    sums = exact_sums(target, case, tensors, parameters)
    bound = variables(target.spec, case.shapes, case.attrs)
    axis = channel_axis(target.spec, bound, sums.ndim) or 0
    flat = np.moveaxis(sums, axis, 0).reshape(sums.shape[axis], -1)
    # one element of each channel is solved for; the bias moves the others along
    elements = np.array([key(case.data.seed, name, str(c)) % row.size for c, row in enumerate(flat)])
    picked = flat[np.arange(len(flat)), elements]
    # a room's rule has no formula here: its oracle is asked, first about sums alone, then about whole cases
    if has_own_rule(target):
        multipliers = ratios(parameters, flat.shape[0])
        near = beside_steps(target, case, parameters, multipliers)
        if not near.shape[1]:
            biased = Biased(target, case, parameters, name, tensors, sums, axis, elements)
            near = biased.beside_steps(multipliers)
        chosen = [row[key(case.data.seed, name, "step", str(c)) % row.size] for c, row in enumerate(near) if row.size]
        return as_bias(parameters, case, name, np.array(chosen) - picked if chosen else np.zeros(picked.shape))
    near = near_sums(parameters, flat.shape[0])
    inner = torch.from_numpy(picked).long()
    own = declared(parameters, near, inner)
    # codes by rival, channel and sum
    unlike = rivals(parameters, near) != own
    if rounds_twice(parameters):
        # one more rival: the same two roundings with a multiplier that is one unit too small
        unlike = np.concatenate([unlike, (declared(_one_less(parameters), near, inner) != own)[None]])
    codes = np.zeros(flat.shape[0])
    for channel in range(flat.shape[0]):
        places = [np.flatnonzero(found) for found in unlike[:, channel] if found.any()]
        if places:
            # rivals that differ in few sums come first, because random data find the others
            rare = sorted(places, key=len)[channel % len(places)]
            codes[channel] = near[channel, rare[key(case.data.seed, name, "place", str(channel)) % rare.size]]
            codes[channel] -= picked[channel]
    return as_bias(parameters, case, name, codes)


def as_bias(parameters: Parameters, case: Case, name: str, codes: Array) -> Array:
    """Return the real values of the bias *name* with these *codes*."""
    scale = parameters.constants[name].params.scale.numpy()
    return np.asarray(codes * scale).reshape(case.shapes[name])


def near_sums(parameters: Parameters, channels: int) -> Array:
    """Return [channels, n] integer sums that the provided multipliers put next to half a code.

    If the sum is rounded to binary places first, codes also change half a place beside the tie. Sums there are
    included.
    """
    out = parameters.outputs["y"]
    step = max((out.qmax - out.qmin) // MOST_TIES, 1)
    halves = np.arange(out.qmin, out.qmax, step) - int(out.zero_point) + 0.5
    if (first := parameters.platform.first_rounding) is not None and rounds_twice(parameters):
        halves = np.concatenate([halves + side * 2.0**-first.fraction_bits for side in (-0.5, 0.0, 0.5)])
    ties = np.floor(halves / factors_of_sums(parameters, channels)[:, None])
    return np.asarray((ties[..., None] + BESIDE).reshape(channels, -1))


def rounds_twice(parameters: Parameters) -> bool:
    """Return whether the platform rounds scaled sums to binary places before it rounds them to codes."""
    rescale = parameters.rescale
    return parameters.platform.first_rounding is not None and rescale is not None and rescale.variant == TWICE


def _one_less(parameters: Parameters) -> Parameters:
    """Return *parameters* with multipliers that are one unit smaller."""
    assert parameters.rescale is not None
    return replace(parameters, rescale=replace(parameters.rescale, mantissa=parameters.rescale.mantissa - 1))


def declared(parameters: Parameters, sums: Array, inner: Tensor) -> Array:
    """Return the codes that the platform declares for [channels, n] *sums*; *inner*: their parts without the bias."""
    channels, count = sums.shape
    rescale, constants = parameters.rescale, dict(parameters.constants)
    assert rescale is not None
    # in lanes, the rounding depends on a channel's place, which these sums do not have
    variant = "q31_half_up" if rescale.variant == "q31_half_up_in_8_lanes" else rescale.variant
    # all sums form one axis; each has its channel's numbers
    axis = 0 if rescale.mantissa.dim() else None
    numbers = replace(
        rescale,
        variant=variant,
        axis=axis,
        mantissa=_repeated(rescale.mantissa, count),
        shift=_repeated(rescale.shift, count),
    )
    flat = torch.from_numpy(sums).long().reshape(-1)
    if "bias" in constants:
        bias = constants["bias"]
        scale = bias.params.scale if bias.params.scale.dim() else bias.params.scale.expand(channels)
        # some requantizations add the bias as a real number, apart from the rest of the sum
        params = replace(
            bias.params,
            scale=_repeated(scale, count),
            zero_point=torch.zeros(channels * count).long(),
            axis=0,
            steps=None,
        )
        constants["bias"] = replace(bias, codes=flat - inner.repeat_interleave(count), params=params)
    made = requantize_accumulator(flat, replace(parameters, rescale=numbers, constants=constants), channel_axis=0)
    return made.reshape(channels, count).numpy()


def rivals(parameters: Parameters, sums: Array) -> Array:
    """Return [rivals, channels, n] codes that other arithmetics give for *sums*."""
    out, multipliers = parameters.outputs["y"], factors_of_sums(parameters, len(sums))[:, None]
    zero = int(out.zero_point)
    return np.stack([np.clip(rival(sums, multipliers, zero), out.qmin, out.qmax) for rival in RIVALS.values()])


def _single(sums: Array, multipliers: Array, zero: int) -> Array:
    return np.asarray(np.rint(sums.astype(np.float32) * multipliers.astype(np.float32)) + zero)


def _double(sums: Array, multipliers: Array, zero: int) -> Array:
    return np.asarray(np.rint(sums * multipliers) + zero)


def _away(sums: Array, multipliers: Array, zero: int) -> Array:
    scaled = sums.astype(np.float32) * multipliers.astype(np.float32)
    return np.asarray(np.sign(scaled) * np.floor(np.abs(scaled) + np.float32(0.5)) + zero)


def _fused(sums: Array, multipliers: Array, zero: int) -> Array:
    """Round product plus zero point once to float32, as a fused multiply-add does; float64 holds the sum exactly."""
    return np.asarray(np.rint((sums * multipliers.astype(np.float32) + zero).astype(np.float32)))


def _zero_inside(sums: Array, multipliers: Array, zero: int) -> Array:
    return np.asarray(np.rint(sums.astype(np.float32) * multipliers.astype(np.float32) + np.float32(zero)))


def _beside(sums: Array, multipliers: Array, zero: int) -> Array:
    """Take a float32 multiplier one unit smaller or larger, as rounding each operation on the scales gives."""
    right = _single(sums, multipliers, zero)
    smaller, larger = (
        _single(sums, np.nextafter(multipliers.astype(np.float32), np.float32(end)), zero) for end in (-np.inf, np.inf)
    )
    return np.where(smaller != right, smaller, larger)


def _once(sums: Array, multipliers: Array, zero: int) -> Array:
    mantissa, shift = _fixed(multipliers)
    # int64 holds the product of a sum of 32 bits and a mantissa of 31
    return np.asarray(((sums.astype(np.int64) * mantissa + (1 << (shift - 1))) >> shift) + zero)


def _twice(sums: Array, multipliers: Array, zero: int) -> Array:
    mantissa, shift = _fixed(multipliers)
    left = np.maximum(shift - FIXED_BITS, 1)
    first = (sums.astype(np.int64) * mantissa + (1 << (FIXED_BITS - 1))) >> FIXED_BITS
    return np.asarray(((first + (1 << (left - 1))) >> left) + zero)


def _fixed(multipliers: Array) -> tuple[Array, Array]:
    fraction, exponent = np.frexp(multipliers)
    # frexp gives a fraction in [0.5, 1), so a mantissa has its highest bit set
    return np.rint(fraction * 2.0**FIXED_BITS).astype(np.int64), FIXED_BITS - exponent.astype(np.int64)


RIVALS: Mapping[str, Callable[[Array, Array, int], Array]] = {
    "float32": _single,
    "float64": _double,
    "a unit beside": _beside,
    "fused": _fused,
    "zero point inside": _zero_inside,
    "half away": _away,
    "rounded once": _once,
    "rounded twice": _twice,
}
"""Rival arithmetics that a kernel may use instead of the declared one. Most of them differ only next to ties."""


def factors_of_sums(parameters: Parameters, channels: int) -> Array:
    """Return the factor of each channel's sums, from all provided numbers."""
    rescale = parameters.rescale
    assert rescale is not None
    factor = next(iter(rescale.factors.values()), 1.0) / rescale.divisor
    found = rescale.mantissa * torch.exp2(-rescale.shift.double()) * factor
    return np.broadcast_to(found.numpy(), (channels,))


def ratios(parameters: Parameters, channels: int) -> Array:
    """Return the factor of each channel's sums; only the scales decide it."""
    scales = [float(params.scale) for params in parameters.inputs.values()]
    bias = parameters.constants.get("bias")
    unit = np.asarray(scales[0] if bias is None else bias.params.scale.numpy())
    return np.broadcast_to(unit / float(parameters.outputs["y"].scale), (channels,))


def _repeated(numbers: Tensor, count: int) -> Tensor:
    return numbers.repeat_interleave(count) if numbers.dim() else numbers


def provided_for(target: Target, case: Case, tensors: Mapping[str, Array]) -> Parameters:
    """Return the parameters that the platform's own rule provides for *tensors*."""
    constants = {
        name: torch.from_numpy(np.array(values)).float()
        for name, values in tensors.items()
        if target.spec.inputs[name].role != "activation"
    }
    shapes = {name: case.shapes[name] for name in tensors}
    request = target.request(case.but(shapes=shapes), constants)
    entry = REGISTRY.built_in(target.spec.op, "quantize", target.platform.places)
    # never a plugin's rule: what is tested must not decide the data
    rule = entry.function if entry is not None and entry.origin == BUILT_IN else default_parameters
    found: Parameters = rule(request)
    return found


def exact_sums(target: Target, case: Case, tensors: Mapping[str, Array], parameters: Parameters) -> Array:
    """Return the exact sums without a bias."""
    found: Array = target.reference(centred_codes(target, tensors, parameters), case).numpy()
    return found


def centred_codes(target: Target, tensors: Mapping[str, Array], parameters: Parameters) -> dict[str, Tensor]:
    """Return the codes of *tensors* minus their zero points."""
    centred = {}
    for name, values in tensors.items():
        params = parameters.inputs.get(name) or parameters.constants[name].params
        codes = quantize(torch.from_numpy(values).float(), params, target.platform.quantizer)
        centred[name] = (codes - params.spread(params.zero_point, codes.shape)).double()
    return centred
