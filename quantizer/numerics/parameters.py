"""The default quantize rule: the parameters that follow from spec, scheme and platform."""

from __future__ import annotations

from dataclasses import replace

from quantizer.core.shapes import variables
from quantizer.numerics.blocks import product_ratio
from quantizer.numerics.qparams import Constant, Parameters, QParams, Rescale
from quantizer.numerics.ratio_to_multiplier import rescale
from quantizer.numerics.request import Request
from quantizer.numerics.rules import weight_part
from quantizer.numerics.stage_formats import formats_of, stage_params
from quantizer.numerics.sums import rescale_sum


def default_parameters(request: Request) -> Parameters:
    """Return the default parameters of an operator: inputs, weights, biases, outputs and the multiplier of its sums.

    The error model decides the multiplier: of an activation times a weight (bilinear), of a sum, mean or selection of
    activations, or none.
    """
    spec, platform = request.spec, request.platform
    outputs = {name: request.output(name) for name in spec.outputs}
    constants, ratio = _weights_and_ratio(request, next(iter(outputs.values())))
    weights = list(constants)
    factors = [*request.inputs.values(), *(c.params.coarsest().repeated(request.channels) for c in constants.values())]
    for name, item in spec.inputs.items():
        if item.role == "bias" and name in request.constants:
            constants[name] = request.bias(name, factors, {n: c for n, c in constants.items() if n in weights})
    bits = platform.accumulator.bits
    return Parameters(
        platform=platform,
        inputs=request.inputs,
        outputs=outputs,
        constants=constants,
        rescale=ratio,
        activation=request.activation,
        variant=request.variant,
        fused=request.fused(next(iter(outputs))),
        accumulator_bits=request.scheme.activation.accumulator_bits if bits == "scheme" else bits,
        stages=stage_params(
            formats_of(
                spec,
                platform,
                variables(spec, request.shapes, request.attrs),
                request.scheme.activation.bits,
                request.inputs,
            )
        ),
    )


def _weights_and_ratio(request: Request, output: QParams) -> tuple[dict[str, Constant], Rescale | None]:
    names = [n for n, item in request.spec.inputs.items() if item.role == "weight" and n in request.constants]
    if request.spec.error_model.kind != "bilinear":
        return {name: request.weight(name) for name in names}, _sum_ratio(request, output)
    if not names:
        return {}, _product_ratio(request, [], output)
    weights: dict[str, Constant] = {}
    ratio: Rescale | None = None
    # one shift for all channels truncates small multipliers to 0: try larger groups until none is 0
    for group in group_sizes(request, names[0]):
        weights = {name: request.weight(name, group) for name in names}
        ratio = _product_ratio(request, [c.params for c in weights.values()], output)
        if not request.platform.multiplier.unify_shifts or bool((ratio.mantissa > 0).all()):
            break
    return weights, ratio


def group_sizes(request: Request, name: str) -> list[int | None]:
    """Return the numbers of channels that may share a weight scale, in the order in which they are tried.

    The number of groups is halved, rounding down; each group has the rounded-up share of channels, the last one the
    rest.
    """
    item = request.spec.inputs[name]
    if item.channel_axis is None or request.scheme.weight is None:
        return [None]
    part = weight_part(request.scheme.weight, request.platform, request.spec.quantization.family)
    channels = request.shapes[name][item.channel_axis]
    attribute = request.platform.parameters.weight_groups
    groups = request.attrs.get(attribute, 1) if attribute else 1
    if part.granularity == "channel":
        count = channels
    elif isinstance(groups, int) and groups > 1:
        count = groups
    else:
        return [None]
    # all groups of a transposed convolution share the weight's channel axis, which is shorter than the output's
    if channels < request.channels:
        count = min(count, 1) if part.granularity != "channel" else count
    sizes: list[int | None] = [-(-channels // (count >> halvings)) for halvings in range(count.bit_length())]
    return sizes if request.platform.multiplier.unify_shifts else sizes[:1]


def _product_ratio(request: Request, weights: list[QParams], output: QParams) -> Rescale:
    if weights and weights[0].blocks is not None:
        ((x, *_), (own, *_)) = request.inputs.values(), weights
        return replace(product_ratio(x.step, own, output), axis=request.channel_axis)
    factors = [*request.inputs.values(), *(params.repeated(request.channels) for params in weights)]
    # multipliers are computed from float32 steps only if every factor has them
    steps = [params.steps for params in factors if params.steps is not None]
    numbers = rescale(
        request.platform,
        request.spec.quantization.family,
        [params.step for params in factors],
        float(output.scale),
        request.scheme.activation.bits,
        steps=steps if len(steps) == len(factors) else None,
        output_steps=output.steps,
        ratio=request.platform.multiplier.ratio.get(request.spec.quantization.family, "float64"),
        variant=request.variant,
    )
    return replace(numbers, axis=request.channel_axis)


def _sum_ratio(request: Request, output: QParams) -> Rescale | None:
    """Return the multipliers of a sum, mean or selection.

    The multiplier of a mean includes the number of terms, if that is fixed.
    """
    spec = request.spec
    if spec.error_model.kind not in ("linear", "mean", "selection"):
        return None
    count = 1
    if spec.error_model.kind == "mean" and spec.error_model.terms is not None:
        count = int(spec.error_model.terms(variables(spec, request.shapes, request.attrs)))
    family, bits = spec.quantization.family, request.scheme.activation.bits
    scaled = {name: params for name, params in request.inputs.items() if spec.inputs[name].kind == "value"}
    found = rescale_sum(
        request.platform,
        family,
        scaled,
        output,
        bits,
        shapes=request.shapes,
        count=count,
        variant=request.variant,
    )
    images = next(iter(spec.inputs.values())).spatial
    return replace(found, axis=1 if images else request.channel_axis) if spec.error_model.kind == "mean" else found
