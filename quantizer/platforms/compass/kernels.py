"""Integer forwards of the Compass Optimizer that differ from the generic arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from quantizer.numerics.fused_activations import below_zero, from_relay, relay
from quantizer.numerics.normalize import along_channels, normalize_by_table, root_mean_square_by_table
from quantizer.numerics.pinned import pinned
from quantizer.numerics.qparams import Bounds, Parameters, Slope, Staged, Table
from quantizer.numerics.quantize import centred
from quantizer.numerics.quotient import floor_divide
from quantizer.numerics.requantize_accumulator import requantize_accumulator, requantize_terms
from quantizer.numerics.resize import float32_index, float32_places, float32_weights
from quantizer.numerics.rounding import round_tensor
from quantizer.numerics.tables import lookup
from quantizer.ops import operator
from quantizer.platforms.compass import float24, logarithm_tables, periods, powers_of_two

Pair = tuple[int, int]


@operator("batch_norm", kind="accumulate", platform="compass")
def batch_norm(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, parameters: Parameters, axis: int) -> Tensor:
    """Multiply raw codes and add a constant that has absorbed the zero point, each rounded to float32.

    Source: the Compass Optimizer's forward, bit for bit on its recorded runs (cases/reference/compass/batchnorm).
    """
    along = [-1 if i == axis % x.dim() else 1 for i in range(x.dim())]
    factors = centred(weight, parameters.constants["weight"].params)
    # w * (x - z) + b = w * x + (b - w * z): codes are multiplied raw
    constant = -parameters.inputs["x"].zero_point * factors
    constant = constant if bias is None else bias + constant
    return (x.float() * factors.reshape(along).float() + constant.reshape(along).float()).long()


@operator("clip", kind="quantized", platform="compass")
def clip(x: Tensor, *, parameters: Parameters, low: float, high: float) -> Staged:
    """Compute eight more bits than the output has, round, clamp, drop the eight bits, and round again.

    Source: the Compass Optimizer's Clip.
    """
    numbers, output, mode = parameters.numbers, parameters.outputs["y"], parameters.platform.rounding
    assert parameters.rescale is not None
    bounds = Bounds(numbers["low"], numbers["high"], numbers["relay_bits"])
    relayed = relay(centred(x, parameters.inputs["x"]), bounds, parameters.rescale, mode, None)
    return Staged(from_relay(relayed, bounds, output, mode), {"relay": relayed})


@operator("cosine", kind="quantized", platform="compass")
def cosine(x: Tensor, *, parameters: Parameters) -> Tensor:
    """Look up the code, or its position within the period."""
    return periods.quantized(x, parameters)


@operator("div", kind="quantized", platform="compass")
def div(a: Tensor, b: Tensor, *, parameters: Parameters) -> Staged:
    """Multiply by the table's inverse of the divisor, with the divisor's sign; a division by zero gives 0."""
    top, bottom = centred(a, parameters.inputs["a"]), centred(b, parameters.inputs["b"])
    # the table holds only divisors of one sign
    inverse = lookup(bottom.abs(), parameters.tables["inverse"])
    return Staged(
        requantize_accumulator(torch.where(bottom < 0, -top, top) * inverse, parameters), {"inverse": inverse}
    )


@operator("group_norm", kind="quantized", platform="compass")
def group_norm(
    x: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    parameters: Parameters,
    num_groups: int,
    epsilon: float,
) -> Staged:
    """Normalise each group of channels as Compass does, without epsilon."""
    return normalize_by_table(
        x,
        along_channels(gamma),
        along_channels(beta),
        parameters,
        math.prod(x.shape[1:]) // num_groups,
        "group_normalization",
        channel_axis=1,
    )


@operator("instance_norm", kind="quantized", platform="compass")
def instance_norm(
    x: Tensor, gamma: Tensor | None = None, beta: Tensor | None = None, *, parameters: Parameters, epsilon: float
) -> Staged:
    """Normalise the elements of each channel as Compass does, without epsilon."""
    return normalize_by_table(
        x,
        along_channels(gamma),
        along_channels(beta),
        parameters,
        math.prod(x.shape[2:]),
        "normalization",
        channel_axis=1,
    )


@operator("layer_norm", kind="quantized", platform="compass")
def layer_norm(
    x: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    parameters: Parameters,
    axis: int,
    epsilon: float,
) -> Staged:
    """Normalise the elements of the axes from *axis* on as Compass does; no epsilon."""
    return normalize_by_table(x, gamma, beta, parameters, math.prod(x.shape[axis:]), "normalization")


@operator("leaky_relu", kind="quantized", platform="compass")
def leaky_relu(x: Tensor, *, parameters: Parameters, slope: float) -> Staged:
    """Multiply negative codes by the slope and round, then rescale all codes to the output's scale and round.

    Source: the Compass Optimizer's LeakyRELU.
    """
    c = centred(x, parameters.inputs["x"])
    held = Slope(torch.tensor(parameters.numbers["slope"]), parameters.numbers["slope_shift"])
    below = below_zero(c, held, parameters.platform.rounding)
    return Staged(requantize_terms({"x": c.clamp(min=0) + below}, parameters), {"negative": below})


@operator("log_softmax", kind="quantized", platform="compass")
def log_softmax(x: Tensor, *, parameters: Parameters, axis: int) -> Staged:
    """Interpolate exponentials, add them in float32, convert distance and logarithm to output steps, round once."""
    if "log" in parameters.tables:
        return logarithm_tables.looked_up(x, parameters, axis)
    inp, output, table = parameters.inputs["x"], parameters.outputs["y"], parameters.tables["exp"]
    x = x.contiguous()  # torch adds in an order that depends on the memory layout
    distance = x - x.amax(dim=axis, keepdim=True)
    exponentials = _chord(distance - table.first, table)
    with pinned():
        logarithm = torch.log(exponentials.sum(dim=axis, keepdim=True))
    steps = output.float32_steps
    codes = torch.round(distance.float() * (steps / inp.float32_steps) - logarithm * steps).long()
    return Staged((codes + output.zero_point).clamp(output.qmin, output.qmax), {})


@operator("resize_bilinear", kind="reference", platform="compass")
def resize_bilinear_of_floats(x: Tensor, *, size: Pair, mode: str) -> Tensor:
    """Add the four elements times the products of their float32 weights, row by row, as Compass does."""
    total = x.new_zeros(())
    for part, weight in _neighbours(x, size, mode):
        total = total + part * weight
    return total


@operator("resize_bilinear", kind="quantized", platform="compass")
def resize_bilinear(x: Tensor, *, parameters: Parameters, size: Pair, mode: str) -> Staged:
    """Add raw codes times 13-bit weights in float32, divide, round half to even; weights need not add up to 1.

    Stage `weights`: the weights of the four neighbours, row by row, rounded half up [4, rows, columns].
    """
    params, unit = parameters.outputs["y"], 2.0 ** parameters.numbers["weight_bits"]
    total, weights = torch.zeros(()), []
    for part, product in _neighbours(x, size, mode):
        weight = torch.floor(product * unit + 0.5)
        weights.append(weight.long())
        # 8 or 16-bit codes times weights up to 2**13: sums above 2**24 are rounded in float32, as in the original
        total = total + part.float() * weight
    codes = round_tensor((total / unit).double(), parameters.platform.rounding).long()
    return Staged(codes.clamp(params.qmin, params.qmax), {"weights": torch.stack(weights)})


@operator("resize_nearest", kind="quantized", platform="compass")
def resize_nearest(x: Tensor, *, parameters: Parameters, size: Pair, mode: str, rounding: str) -> Tensor:
    """Move codes by positions in float32."""
    rows, columns = (
        float32_index(float32_places(x.shape[axis], size[axis - 2], mode), rounding, x.shape[axis]) for axis in (2, 3)
    )
    return x[:, :, rows[:, None], columns]


@operator("rms_norm", kind="quantized", platform="compass")
def rms_norm(
    x: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    parameters: Parameters,
    axis: int,
    epsilon: float,
) -> Staged:
    """Normalise the elements of the axes from *axis* on as Compass does; no epsilon."""
    return root_mean_square_by_table(x, gamma, beta, parameters, math.prod(x.shape[axis:]))


@operator("sine", kind="quantized", platform="compass")
def sine(x: Tensor, *, parameters: Parameters) -> Tensor:
    """Look up the code, or its position within the period."""
    return periods.quantized(x, parameters)


@operator("softmax", kind="quantized", platform="compass")
def softmax(x: Tensor, *, parameters: Parameters, axis: int) -> Staged:
    """Look up exponentials, add, take one integer reciprocal per row, multiply, round half to even.

    With 8 bits, a short axis and many rows, the quotient comes first and the multiplier second, as in the original.
    """
    if "halves" in parameters.numbers:
        return powers_of_two.quantized(x, parameters, axis)
    if "powers" in parameters.tables:
        return float24.softmax(x, parameters, axis)
    output, table, numbers = parameters.outputs["y"], parameters.tables["exp"], parameters.numbers
    exponentials = lookup(x - x.amax(dim=axis, keepdim=True), table)
    total = exponentials.sum(dim=axis, keepdim=True).clamp(min=1)
    # the numerator is enlarged to so many bits; 30 if the largest entry is 1, as in the original
    base = 30 if int(table.entries.max()) == 1 else 31
    size, bits = x.shape[axis], parameters.inputs["x"].dtype.bits
    # the shapes and widths for which the original has its other method
    if size < 8 and (x.numel() // size) % 128 == 0 and bits <= 8:
        enlarge = base - math.ceil(math.log2(max(int(table.entries.max()), 1)))
        stage = torch.div((exponentials << enlarge) + (total >> 1), total, rounding_mode="floor")
        name, value, shift = "quotient", stage.double() * numbers["multiplier"], numbers["shift"] + enlarge
    else:
        enlarge = base - math.ceil(math.log2(max(numbers["multiplier"], 1)))
        stage = floor_divide(numbers["multiplier"] << enlarge, total)
        name, value, shift = "reciprocal", (exponentials * stage).double(), numbers["shift"] + enlarge
    # float64 holds the product exactly below 2**53, and a power of two does not round
    codes = torch.round(value * 2.0**-shift).to(torch.int64) + output.zero_point
    return Staged(codes.clamp(output.qmin, output.qmax), {"exp": exponentials, name: stage})


def _chord(place: Tensor, table: Table) -> Tensor:
    """Return float32 entries at *place*, interpolated linearly; the last entry repeats."""
    entries = torch.cat([table.entries, table.entries[-1:]])
    # *step* places lie between two entries
    index = place // table.step
    return entries[index] + (entries[index + 1] - entries[index]) * (place % table.step) / table.step


def _neighbours(x: Tensor, size: Pair, mode: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the four neighbours of each place of the output, row by row, and their float32 weights [rows, columns]."""
    top, bottom, upper, lower = float32_weights(float32_places(x.shape[2], size[0], mode), x.shape[2])
    left, right, before, after = float32_weights(float32_places(x.shape[3], size[1], mode), x.shape[3])
    # the order of the terms is the original's: float32 sums in another order may differ
    for row, height in ((top, upper), (bottom, lower)):
        for column, width in ((left, before), (right, after)):
            yield x[:, :, row[:, None], column], height[:, None] * width
