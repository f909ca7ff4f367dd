"""Reads the result of a layer's quantize function, in Compass's names and conventions, as our Parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantizer.core.dtypes import DType, integer
from quantizer.core.errors import GraphError, PluginError
from quantizer.core.spec import Input
from quantizer.ir.graph import Tensor as GraphTensor
from quantizer.ir.graph import container
from quantizer.numerics.bitwise import bitwise_equal
from quantizer.numerics.qparams import Constant, Parameters, QParams
from quantizer.numerics.request import Request
from quantizer.numerics.rules import weight_part
from quantizer.plugins.aipu.dtypes import Dtype, bits2dtype, is_float, is_signed, ours
from quantizer.plugins.aipu.node import PyNode
from quantizer.plugins.aipu.tensor import PyTensor
from quantizer.plugins.layer import FLOAT32_INTEGERS, Layer, layer_axis
from quantizer.plugins.layer_multipliers import rescale_of, tables_of, whole_numbers

DECIDED = ("dtype", "scale", "zerop", "qbits", "qinvariant")
"""Attributes that a quantize function must set on every output, constant and placeholder."""
FLOAT32_CODES = 2.0**-22
"""The relative error of a code that was computed in float32."""
ABSORBED = "compass.absorbed"
"""Key of Parameters.extra: whether bias codes include the term of the input's zero point, as in Compass."""
LAYER_ATTRS = "compass.attrs"
"""Key of Parameters.extra: the attributes of the flow under which the layer was quantized."""


def _outputs(node: PyNode, layer: Layer) -> dict[str, QParams]:
    """Return the parameters of every output; PluginError if the tensors of one output have different ones."""
    found: dict[str, QParams] = {}
    for name, tensor in layer.spec.keys_of(node.outputs):
        own = quantization(tensor)
        if name in found and not bitwise_equal(found[name], own):
            raise PluginError(
                f"{layer.spec.op}: output {tensor.name!r} has other parameters than the one before it. "
                "They are parts of one result: give each the same scale, zero point and bits."
            )
        found[name] = own
    return found


def read(node: PyNode, layer: Layer, request: Request, before: Mapping[str, Any]) -> Parameters:
    """Return the parameters that *node* has after its quantize function; *before*: its IR parameters before that."""
    outputs = _outputs(node, layer)
    constants = _constants(node, layer, request)
    _check_absent_biases(node, layer, request)
    bits = request.platform.accumulator.bits
    output = next(iter(outputs.values()))
    return Parameters(
        platform=request.platform,
        inputs=request.inputs,
        outputs=outputs,
        constants=constants,
        rescale=rescale_of(node, layer, constants, request),
        tables=tables_of(node, layer, request, output),
        numbers=whole_numbers(node, layer, before),
        activation=request.activation,
        accumulator_bits=request.scheme.activation.accumulator_bits if bits == "scheme" else bits,
        extra=_extra(node, layer, before) | ({} if _absorbs(node, layer, request) else {ABSORBED: False}),
    )


def require_decided(node: PyNode, tensors: Sequence[PyTensor]) -> None:
    """Raise PluginError for the first field that the quantize function left undecided; qmin and qmax get defaults."""
    for tensor in tensors:
        missing = [name for name in DECIDED if getattr(tensor, name) is None]
        if missing:
            kind = "output" if tensor in node.outputs else "placeholder" if tensor in node.placeholders else "constant"
            raise PluginError(
                f"quantize of {node.type.name} left {' and '.join(missing)} of {kind} {tensor.name!r} undecided."
                f" Set {kind}.{missing[0]} = ..."
            )
        signed, bits = is_signed(tensor.dtype or Dtype.INT8), int(tensor.qbits or 0)
        tensor.qmin = (-(1 << (bits - 1)) if signed else 0) if tensor.qmin is None else tensor.qmin
        tensor.qmax = ((1 << (bits - 1)) - 1 if signed else (1 << bits) - 1) if tensor.qmax is None else tensor.qmax


def quantization(tensor: PyTensor, axis: int | None = None, *, per_channel: bool = False) -> QParams:
    """Return the parameters of *tensor*: scale = 1 / steps, zero_point = -zerop; the float32 steps are kept.

    *axis*: the axis of several numbers, in the operator's order. *per_channel*: whether even a single number belongs to
    a slice.
    """
    scale, zerop = tensor.scale, tensor.zerop
    assert scale is not None
    assert zerop is not None
    # Compass rounds scale * value - zerop, so the sign is opposite to ours
    zero = -zerop.long()
    zero = zero.expand(scale.shape).clone() if zero.numel() == 1 else zero
    several = scale.numel() > 1 or per_channel
    if zero.numel() != scale.numel() or (several and axis is None):
        rule = "Set as many zero points as scales." if axis is not None else "One scale holds for the whole tensor."
        raise PluginError(f"{tensor.name}: {scale.numel()} scales and {zerop.numel()} zero points. {rule}")
    if not several:
        scale, zero = scale.reshape(()), zero.reshape(())
    try:
        return QParams(
            _format(tensor),
            1.0 / scale.double(),
            zero,
            int(tensor.qmin or 0),
            int(tensor.qmax or 0),
            axis=axis if several else None,
            steps=scale,
        )
    except GraphError as err:
        raise PluginError(f"{tensor.name}: {err}") from None


def apply(tensor: PyTensor, params: QParams, *, invariant: bool = False) -> None:
    """Write the parameters of codes into the fields of *tensor*."""
    tensor.scale = params.steps if params.steps is not None else (1.0 / params.scale).float()
    tensor.zerop = -params.zero_point
    tensor.qmin, tensor.qmax, tensor.qbits = params.qmin, params.qmax, params.dtype.bits
    tensor.dtype = bits2dtype(params.dtype.bits, is_signed=params.dtype.kind == "int")
    tensor.qinvariant = invariant


def _format(tensor: PyTensor) -> DType:
    """Return the format of the codes: of qbits bits if Compass stores these in the same format, else the latter."""
    dtype, bits = tensor.dtype, int(tensor.qbits or 0)
    assert dtype is not None
    if is_float(dtype):
        raise PluginError(f"{tensor.name}: {dtype} holds no codes. A layer that stays float is not judged here.")
    return (
        integer(bits, signed=is_signed(dtype)) if bits and bits2dtype(bits, is_signed(dtype)) is dtype else ours(dtype)
    )


def codes_of(tensor: PyTensor, what: str) -> Tensor:
    """Return the values of *tensor* as int64; PluginError for the first value that is not an integer."""
    values = tensor.betensor
    if not values.is_floating_point():
        return values.long()
    wrong = (~torch.isfinite(values) | (values != values.round())).nonzero()
    if len(wrong):
        index = tuple(int(i) for i in wrong[0])
        raise PluginError(
            f"{what} {tensor.name!r}{list(index)} holds {float(values[index])!r}: codes must be integers."
        )
    return values.long()


def _constants(node: PyNode, layer: Layer, request: Request) -> dict[str, Constant]:
    """Return the codes of weights and biases, without the input zero point that biases have absorbed."""
    found: dict[str, Constant] = {}
    for name, key in layer.constants.items():
        item = layer.spec.inputs[name]
        if name in request.constants and item.role != "bias":
            tensor = _stored(node, key)
            found[name] = Constant(
                layer.restored(name, codes_of(tensor, "constant")), _weight_params(tensor, item, request)
            )
    # biases after weights: what they absorbed is computed from the weights' codes
    for name, key in layer.constants.items():
        item = layer.spec.inputs[name]
        if name in request.constants and item.role == "bias":
            tensor = _stored(node, key)
            params = quantization(tensor, item.channel_axis or 0)
            found[name] = Constant(_released(tensor, _taken_in(node, layer, request)), params)
    return found


def _taken_in(node: PyNode, layer: Layer, request: Request) -> Tensor:
    """Return the terms that bias codes have absorbed, as in Compass; zero if the plugin did not add them."""
    return absorbed(node, layer) if _absorbs(node, layer, request) else torch.zeros((), dtype=torch.int64)


def _absorbs(node: PyNode, layer: Layer, request: Request) -> bool:
    """Return whether bias codes have absorbed the zero point: whether that explains at least as many biases as not."""
    for name, key in layer.constants.items():
        if layer.spec.inputs[name].role == "bias" and key in node.constants and absorbed(node, layer).any():
            held = node.constants[key]
            scale = 1.0 if held.scale is None else held.scale.double()
            real = request.constants[name].double() * scale if name in request.constants else torch.zeros(())
            real = real.clamp(int(held.qmin or 0), int(held.qmax or 0)).expand(held.shape)
            # half a code of rounding, and the error of a float32 product
            slack = 0.5 + real.abs() * FLOAT32_CODES
            near = [
                int(((_released(held, taken) - real).abs() <= slack).sum())
                for taken in (absorbed(node, layer), torch.zeros((), dtype=torch.int64))
            ]
            return near[0] >= near[1]
    return True


def _released(tensor: PyTensor, taken_in: Tensor) -> Tensor:
    """Return bias codes without the absorbed zero point.

    Compass keeps them in float32 and clamps them after the absorption. That may move codes at the ends of the range by
    a few units. Such codes count as the end.
    """
    held = codes_of(tensor, "constant")
    codes = held - taken_in
    low, high = int(tensor.qmin or 0), int(tensor.qmax or 0)
    # float32 holds all these codes exactly
    if high <= FLOAT32_INTEGERS:
        return codes
    # two float32 units at the magnitude of the code
    loss = 2 * torch.exp2(torch.log2(held.abs().clamp(min=1).double()).floor() - 23).long()
    codes = torch.where((held >= high) | ((codes > high) & (codes <= high + loss)), high, codes)
    return torch.where((held <= low) | ((codes < low) & (codes >= low - loss)), low, codes)


def _weight_params(tensor: PyTensor, item: Input, request: Request) -> QParams:
    """Return the parameters of a weight: per channel if the platform declares it, even for a single channel.

    If only one scale was written, it applies to all channels.
    """
    platform, family, scale = request.platform, request.spec.quantization.family, tensor.scale
    assert scale is not None
    if item.channel_axis is None:
        return quantization(tensor)
    channels = tensor.shape[layer_axis(item)]
    if scale.numel() not in (1, channels):
        raise PluginError(f"{tensor.name}: {scale.numel()} scales for {channels} channels. Set one, or one each.")
    part = None if request.scheme.weight is None else weight_part(request.scheme.weight, platform, family)
    grouped = request.attrs.get(platform.parameters.weight_groups or "", 1) != 1
    grained = part is not None and (part.granularity == "channel" or grouped)
    if grained and scale.numel() < channels:
        tensor = tensor.clone(tensor.name)
        tensor.scale = scale.expand(channels)
    return quantization(tensor, item.channel_axis, per_channel=grained)


def absorbed(node: PyNode, layer: Layer) -> Tensor:
    """Return the term that Compass adds to bias codes: the input's zerop times the sum of a channel's weight codes.

    If all groups share weights (as in a transposed convolution), the biases of every group get the same terms.
    """
    zerop = node.inputs[0].zerop if node.inputs else None
    biases = [
        node.constants[key].betensor.numel()
        for name, key in layer.constants.items()
        if layer.spec.inputs[name].role == "bias" and key in node.constants
    ]
    for name, key in layer.constants.items() if layer.spec.error_model.kind == "bilinear" else ():
        item = layer.spec.inputs[name]
        if item.role == "weight" and key in node.constants and zerop is not None:
            codes = codes_of(node.constants[key], "constant").movedim(layer_axis(item), 0)
            added = int(zerop) * codes.reshape(codes.shape[0], -1).sum(1)
            groups, rest = divmod(max(biases, default=0), max(1, added.numel()))
            return added.repeat(groups) if groups > 1 and not rest else added
    return torch.zeros((), dtype=torch.int64)


def _check_absent_biases(node: PyNode, layer: Layer, request: Request) -> None:
    """Raise PluginError if biases of a case without biases hold more than the absorbed zero point."""
    for name in layer.missing_biases(request.shapes, request.attrs):
        tensor = _stored(node, layer.constants[name])
        held = codes_of(tensor, "constant").flatten()
        rest = held - _taken_in(node, layer, request).expand(held.shape)
        if rest.numel() and int(rest.abs().max()):
            index = int(rest.abs().argmax())
            raise PluginError(
                f"{tensor.name}[{index}] holds {int(held[index])}, must be {int(held[index] - rest[index])}: a layer"
                " without a bias holds only zerop * sum(weights)."
            )


def _stored(node: PyNode, key: str) -> PyTensor:
    if key not in node.constants:
        raise PluginError(f"quantize of {node.type.name} removed constant {key!r}. Leave it, under that name.")
    return node.constants[key]


def _extra(node: PyNode, layer: Layer, before: Mapping[str, Any]) -> dict[str, object]:
    """Return the parameters and constants that the function added or changed, in the form of the node's file."""
    operands = set(layer.constants.values())
    found: dict[str, object] = {}
    for key, value in node.params.items():
        held = plain(value, f"params[{key!r}]")
        if key not in before or plain(before[key], key) != held:
            found[key] = held
    for key, tensor in node.constants.items():
        if key not in operands:
            if tensor.dtype is None:
                raise PluginError(
                    f"quantize of {node.type.name} left dtype of constant {key!r} undecided. Set its dtype."
                )
            found[key] = file_tensor(key, tensor)
    return found


def file_tensor(key: str, tensor: PyTensor) -> GraphTensor:
    """Return a constant in its format's container type; PluginError if a value does not fit."""
    assert tensor.dtype is not None
    kind, values = ours(tensor.dtype), tensor.betensor
    if kind.is_integer:
        codes = codes_of(tensor, "constant")
        if codes.numel() and not (kind.min <= int(codes.min()) and int(codes.max()) <= kind.max):
            span = f"[{int(codes.min())}, {int(codes.max())}]"
            raise PluginError(f"constant {key!r}: values {span} do not fit {tensor.dtype} [{kind.min}, {kind.max}].")
        values = codes
    return GraphTensor(key, tuple(values.shape), kind, values.to(container(kind)))


def plain(value: Any, where: str) -> Any:
    """Return a parameter in types that IR can hold: numbers, text, number formats, and tuples of them."""
    if isinstance(value, Dtype):
        return ours(value)
    if isinstance(value, bool | int | str) or (isinstance(value, float) and not math.isnan(value)):
        return value
    if isinstance(value, Tensor | np.ndarray | np.generic):
        return plain(value.tolist(), where)
    if isinstance(value, list | tuple):
        return tuple(plain(item, where) for item in value)
    raise PluginError(
        f"{where} holds {value!r} ({type(value).__name__}): must be a number, text, a Dtype, or a list of them."
    )
