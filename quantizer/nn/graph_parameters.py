"""Makes parameters of a quantized graph from trained grids: the same scales, zero points and codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from quantizer.core.case import AttrValue
from quantizer.core.dtypes import integer
from quantizer.core.errors import GraphError
from quantizer.core.platforms import Platform
from quantizer.core.schemes import ActivationPart, Scheme, WeightPart
from quantizer.core.spec import Spec
from quantizer.nn.config import FixConfig
from quantizer.nn.datum import grid_for
from quantizer.nn.fixed import Fixed
from quantizer.nn.grid import Grid
from quantizer.nn.methods import QuantizeMethod
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.provided_request import ProvidedRequest
from quantizer.numerics.qparams import Constant, Parameters, QParams
from quantizer.ops import REGISTRY

BIAS_BITS = 32


def activation_params(module: Fixed, where: str) -> QParams:
    """Return the parameters of an Activation_fix; GraphError if it has scales per slice."""
    name = module.fixable_names()[0]
    config = checked(module, name, where)
    if config.group is not None:
        raise GraphError(f"{where}: group {config.group!r}: an activation of a graph has one scale. Use group None.")
    scale = module.fix_state(name, "fp_scale", grad=False)
    # one scale fits data of any shape, so any data will do
    return params_of(grid_for(torch.zeros(1), scale, config), None)


def constant(module: Fixed, name: str, data: Tensor, where: str) -> Constant:
    """Return codes and parameters of a weight or a bias as the module's forward uses it."""
    config = checked(module, name, where)
    if config.group == "channel":
        raise GraphError(f"{where}: {name!r} has group channel: scales of inputs cannot leave a sum. Use group batch.")
    grid = grid_for(data, module.fix_state(name, "fp_scale", grad=False), config)
    params = params_of(grid, 0)
    value = module.fixed_value(name, data).detach().double()
    # the value lies on the grid; only its float32 product keeps the quotient from being whole
    codes = torch.round(value / grid.step.double()) + (0 if grid.zero is None else grid.zero.double())
    return Constant(codes.long(), params)


def checked(module: Fixed, name: str, where: str) -> FixConfig:
    """Return a configuration that has codes; GraphError for a float one and for the original's grid."""
    config = module.fix_configs().get(name)
    if config is None or config.method == QuantizeMethod.NONE:
        raise GraphError(f"{where}: {name!r} is float: configure it with method AUTO and train, then convert.")
    if config.compat is not None:
        raise GraphError(f"{where}: {name!r}: compat {config.compat} has 2**bits + 1 values: its largest has no code.")
    return config


def params_of(grid: Grid, axis: int | None) -> QParams:
    """Return the parameters of *grid*: single numbers, or one for each slice along *axis*."""
    step = grid.step.detach().double().reshape(-1)
    zero = torch.zeros_like(step).long() if grid.zero is None else grid.zero.reshape(-1).long()
    bits = (grid.qmax - grid.qmin).bit_length()
    shape = (-1,) if step.numel() > 1 else ()
    return QParams(
        integer(bits, signed=True),
        step.reshape(shape),
        zero.reshape(shape),
        grid.qmin,
        grid.qmax,
        axis=axis if step.numel() > 1 else None,
    )


def bias_in_sums(bias: Constant, x: QParams, weight: Constant, where: str, *, nearest: bool) -> Constant:
    """Return a bias as codes in the unit of the sum to which it is added: the product of the scales.

    GraphError if the bias lies between two units, unless *nearest* permits rounding (half to even).
    """
    unit = (x.scale * weight.params.scale).expand(len(bias.codes))
    real = (bias.codes - bias.params.zero_point) * bias.params.scale
    # whole for powers of two of enough bits; with other scales only by chance
    exact = real / unit
    codes = torch.round(exact)
    if not nearest and not torch.equal(codes, exact):
        place = int((codes != exact).nonzero()[0])
        raise GraphError(
            f"{where}: bias {float(real[place])} of channel {place} is {float(exact[place])} units of the sum "
            f"({float(unit[place])}): no code. Train with a bias of fewer bits or a larger FIXED scale, or pass "
            "bias='nearest' to round it, by at most half a unit."
        )
    limit = 1 << (BIAS_BITS - 1)
    if bool((codes.abs() >= limit).any()):
        raise GraphError(f"{where}: bias of {int(codes.abs().max())} units of the sum leaves {BIAS_BITS} bits.")
    grouped = weight.params.scale.dim() > 0
    scale = unit.clone() if grouped else x.scale * weight.params.scale
    params = QParams(
        integer(BIAS_BITS, signed=True),
        scale,
        torch.zeros_like(scale).long(),
        -limit,
        limit - 1,
        0 if grouped else None,
    )
    return Constant(codes.long(), params)


def parameters(
    spec: Spec,
    platform: Platform,
    shapes: Mapping[str, tuple[int, ...]],
    attrs: Mapping[str, AttrValue],
    inputs: Mapping[str, QParams],
    output: QParams,
    constants: Mapping[str, Constant],
    activation: str,
) -> Parameters:
    """Return the parameters for the integer forward of *spec* on *platform* with these grids and codes."""
    bits = output.dtype.bits
    weight = next((c.params.dtype.bits for c in constants.values()), None)
    scheme = Scheme(
        name=f"w{weight}a{bits}_pow2" if weight else f"a{bits}_pow2",
        activation=ActivationPart(bits=bits, symmetry="symmetric", rule="power_of_two", lut_bits=min(bits, 16)),
        weight=None
        if weight is None
        else WeightPart(bits=weight, granularity="tensor", range="full", rule="power_of_two"),
    )
    request = ProvidedRequest(
        spec,
        scheme,
        platform,
        shapes,
        attrs,
        {},
        {name: c.codes.float() for name, c in constants.items()},
        inputs,
        activation,
        output_params=output,
        weights=constants,
    )
    rule = REGISTRY.find(spec.op, "quantize", platform.places)
    made: Parameters = rule.function(request) if rule else default_parameters(request)
    return replace(made, constants=dict(constants))
