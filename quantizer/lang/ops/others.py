"""Image sizes and the fused tail operators."""

from __future__ import annotations

from collections.abc import Sequence

from quantizer.ir.graph import AttrValue
from quantizer.lang import arguments as a
from quantizer.lang.current import get_default_graph, operator
from quantizer.lang.errors import LangError
from quantizer.lang.graph import Result
from quantizer.lang.ops.matrices import matmul_int
from quantizer.lang.ops.quantization import Integers, requant_int
from quantizer.lang.tensor import TENSOR_DTYPES, Tensor

COORDINATES = ("align_corners", "pytorch_half_pixel", "half_pixel", "asymmetric")
METHODS = ("nearest", "linear")


@operator("vision")
def interpolate(
    input: Tensor,
    scale_h: float,
    scale_w: float,
    method: str = "nearest",
    coord_mode: str = "pytorch_half_pixel",
    out_name: str | None = None,
) -> Tensor:
    """Return an image in another size, by factors of height and width."""
    scales = [a.number("scale_h", scale_h, above=0.0), a.number("scale_w", scale_w, above=0.0)]
    return _resized(input, None, scales, method, coord_mode, out_name)


@operator("vision")
def interpolate_v2(
    input: Tensor,
    roi: Tensor | None = None,
    sizes: Tensor | None = None,
    scale: Sequence[float] | None = None,
    method: str = "nearest",
    coord_mode: str = "pytorch_half_pixel",
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    nearest_mode: str = "round_prefer_floor",
    out_name: str | None = None,
) -> Tensor:
    """Return the last two axes in another size: by two factors, or to two sizes in a coefficient of int32.

    As in the original, arguments that ONNX's Resize also has accept only their defaults.
    """
    fixed = {
        "roi": (roi, None),
        "antialias": (antialias, 0),
        "axes": (axes, None),
        "cubic_coeff_a": (cubic_coeff_a, -0.75),
        "exclude_outside": (exclude_outside, 0),
        "extrapolation_value": (extrapolation_value, 0.0),
        "keep_aspect_ratio_policy": (keep_aspect_ratio_policy, "stretch"),
        "nearest_mode": (nearest_mode, "round_prefer_floor"),
    }
    # named in a table, so that each is refused with its own name
    for argument, (value, only) in fixed.items():
        if value != only:
            raise LangError(f"{argument}={value!r}: must be {only!r}.")
    return _resized(input, sizes, scale, method, coord_mode, out_name)


def _resized(
    x: Tensor, sizes: Tensor | None, scale: Sequence[float] | None, method: str, coord_mode: str, out_name: str | None
) -> Tensor:
    """Add a change of the last two axes' sizes, by two factors or to two sizes."""
    a.tensor("input", x, a.FLOATS, range(2, 6))
    attrs: dict[str, AttrValue] = {
        "mode": a.one_of("method", method, METHODS),
        "coord_mode": a.one_of("coord_mode", coord_mode, COORDINATES),
        "scale_h": 0.0,
        "scale_w": 0.0,
    }
    if (sizes is None) == (scale is None):
        raise LangError("sizes and scale: exactly one must be given.")
    if scale is not None:
        height, width = a.numbers("scale", scale, 2)
        attrs |= {"scale_h": a.number("scale[0]", height, above=0.0), "scale_w": a.number("scale[1]", width, above=0.0)}
        if min(int(height * x.shape[-2]), int(width * x.shape[-1])) < 1:
            raise LangError(f"scale={[height, width]} of {list(x.shape)}: must leave at least one row and column.")
    elif a.coefficient("sizes", sizes, ("int32",)).shape != (2,):
        raise LangError("sizes: must hold height and width.")
    return get_default_graph().add("top.Interp", [x, sizes], attrs, Result(x.dtype), out_name=out_name)[0]


@operator("tail")
def mean_std_scale(
    input: Tensor,
    std: Sequence[float],
    mean: Sequence[float],
    scale: Sequence[float] | None = None,
    zero_points: Sequence[int] | None = None,
    out_name: str | None = None,
    odtype: str = "float16",
    round_mode: str = "half_away_from_zero",
) -> Tensor:
    """Return (x - mean) / std for each channel; an integer result is on the grid of the last scale and zero point."""
    a.tensor("input", input, (*a.FLOATS_AND_CODES, "int32"), (4, 5))
    kind = a.one_of("odtype", odtype, TENSOR_DTYPES)
    channels = input.shape[1]
    deviations = a.numbers("std", std, channels)
    if 0.0 in deviations:
        raise LangError(f"std={list(deviations)}: must not be 0.")
    grid = [1.0] if scale is None else a.numbers("scale", scale)
    if not grid or min(grid) <= 0:
        raise LangError(f"scale={list(grid)}: must be above 0.")
    attrs: dict[str, AttrValue] = {
        "std": deviations,
        "mean": a.numbers("mean", mean, channels),
        "scale": tuple(grid),
        # Top's attribute is an array of floats
        "zero_points": tuple(map(float, a.integers("zero_points", zero_points, default=(0,)))) or (0.0,),
        "channel_order": "nchw",
        # the size that the image has: nothing is resized
        "resize_dims": input.shape[-2:],
        "customization_format": "RGB",
        "quant_mode": "MultiplierShift",
        "rounding_mode": a.rounding("round_mode", round_mode),
    }
    return get_default_graph().add("top.MeanStdScale", [input], attrs, Result(kind), out_name=out_name)[0]


@operator("tail")
def matmulrq_int_op(
    input: Tensor,
    right: Tensor,
    bias: Tensor | None = None,
    input_transpose: bool = False,
    right_transpose: bool = False,
    output_transpose: bool = False,
    keep_dims: bool = True,
    out_dtype: str = "int8",
    out_name: str | None = None,
    multiplier: Integers = 1,
    shift: Integers = 0,
    offset: Integers = 0,
    requant_mode: int = 2,
    round_mode: str = "half_away_from_zero",
    rq_axis: int = -1,
) -> Tensor:
    """Return requant_int of matmul_int over the last axis. A positive shift is to the right, unlike in requant_int.

    input_transpose and output_transpose must be False, as in the original.
    """
    for argument, value in {"input_transpose": input_transpose, "output_transpose": output_transpose}.items():
        if value is not False:
            raise LangError(f"{argument}={value!r}: must be False.")
    a.one_of("out_dtype", out_dtype, ("int8", "int16"))
    sums = matmul_int(input, right, bias, right_transpose=right_transpose, keep_dims=keep_dims, input_zp=0, right_zp=0)
    if a.axis("rq_axis", rq_axis, len(sums.shape)) != len(sums.shape) - 1:
        raise LangError(f"rq_axis={rq_axis}: must be the last.")
    right_shifts = a.integers("shift", [shift] if isinstance(shift, int) else shift)
    return requant_int(
        sums,
        multiplier,
        [-value for value in right_shifts],
        offset,
        requant_mode,
        out_dtype,
        out_name,
        round_mode,
        len(sums.shape) - 1,
        fuse_rq_to_matmul=True,
    )
