"""Pools over windows; with kernel None a window covers all spatial axes."""

from __future__ import annotations

from collections.abc import Sequence

from quantizer.ir.graph import AttrValue
from quantizer.lang import arguments as a
from quantizer.lang.current import get_default_graph, operator
from quantizer.lang.errors import LangError
from quantizer.lang.graph import Result
from quantizer.lang.tensor import Tensor

GROUP = "pool"
Sizes = Sequence[int] | None
SizesOrOne = Sequence[int] | int | None
Scales = Sequence[float] | None
Zeros = Sequence[int] | None


def _repeated(value: SizesOrOne, count: int) -> Sizes:
    if isinstance(value, int) and not isinstance(value, bool):
        return [value] * count
    return value  # type: ignore[return-value]


def _window(rank: int, kernel: Sizes, stride: Sizes, pad: Sizes, ceil_mode: bool) -> dict[str, AttrValue]:
    """Return the attributes of a window; pad lists all begins, then all ends, each smaller than the kernel."""
    sizes = () if kernel is None or len(kernel) == 0 else a.integers("kernel", kernel, rank, least=1)
    pads = a.integers("pad", pad, 2 * rank, (0,) * (2 * rank), least=0)
    if sizes and any(max(pads[i], pads[i + rank]) >= size for i, size in enumerate(sizes)):
        raise LangError(f"pad={list(pads)}: must be below kernel={list(sizes)}, or a window lies outside.")
    if not sizes and any(pads):
        raise LangError(f"pad={list(pads)} without kernel: must be 0.")
    return {
        "kernel_shape": sizes,
        "strides": a.integers("stride", stride, rank, (1,) * rank, least=1),
        "pads": pads,
        "ceil_mode": a.boolean("ceil_mode", ceil_mode),
        "keepdims": True,
        "pad_value": 0,
        "count_include_pad": False,
        "do_relu": False,
        "relu_limit": -1.0,
    }


def _pool(
    top: str, x: Tensor, rank: int, attrs: dict[str, AttrValue], scale: Scales, zero_point: Zeros, out_name: str | None
) -> Tensor:
    a.tensor("input", x, a.FLOATS_AND_CODES, rank + 2)
    scales, zeros = a.pairs(scale, zero_point, 2)
    graph, result = get_default_graph(), Result(x.dtype)
    if scales is not None and zeros is not None:
        graph.quantize(x, scales[0], zeros[0])
        result = Result(x.dtype, "", scales[1], zeros[1])
    return graph.add(top, [x], attrs, result, out_name=out_name)[0]


@operator(GROUP)
def maxpool2d(
    input: Tensor,
    kernel: Sizes = None,
    stride: Sizes = None,
    pad: Sizes = None,
    ceil_mode: bool = False,
    scale: Scales = None,
    zero_point: Zeros = None,
    out_name: str | None = None,
    round_mode: str = "half_away_from_zero",
) -> Tensor:
    """Return the largest of each window; pad is [top, left, bottom, right]."""
    attrs = _window(2, kernel, stride, pad, ceil_mode) | {"round_mode": a.rounding("round_mode", round_mode)}
    return _pool("top.MaxPool", input, 2, attrs, scale, zero_point, out_name)


@operator(GROUP)
def maxpool3d(
    input: Tensor,
    kernel: SizesOrOne = None,
    stride: SizesOrOne = None,
    pad: SizesOrOne = None,
    ceil_mode: bool = False,
    scale: Scales = None,
    zero_point: Zeros = None,
    out_name: str | None = None,
    round_mode: str = "half_away_from_zero",
) -> Tensor:
    """Return the largest element of each window of three axes; one number means the same for each axis."""
    attrs = _window(3, _repeated(kernel, 3), _repeated(stride, 3), _repeated(pad, 6), ceil_mode)
    attrs["round_mode"] = a.rounding("round_mode", round_mode)
    return _pool("top.MaxPool", input, 3, attrs, scale, zero_point, out_name)


@operator(GROUP)
def maxpool2d_with_mask(
    input: Tensor,
    kernel: Sizes = None,
    stride: Sizes = None,
    pad: Sizes = None,
    ceil_mode: bool = False,
    out_name: str | None = None,
    mask_name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the largest element of each float32 window, and its index in its own image (int32), rows first.

    The mask is named mask_name, by default the result's name with `_mask` appended.
    """
    a.tensor("input", input, ("float32",), 4)
    attrs = _window(2, kernel, stride, pad, ceil_mode)
    results = (Result("float32"), Result("int32", "_mask", name=mask_name))
    found, mask = get_default_graph().add("top.MaxPoolWithMask", [input], attrs, *results, out_name=out_name)
    return found, mask


@operator(GROUP)
def avgpool2d(
    input: Tensor,
    kernel: Sizes = None,
    stride: Sizes = None,
    pad: Sizes = None,
    ceil_mode: bool = False,
    scale: Scales = None,
    zero_point: Zeros = None,
    out_name: str | None = None,
    count_include_pad: bool = False,
    round_mode: str = "half_away_from_zero",
    first_round_mode: str = "half_away_from_zero",
) -> Tensor:
    """Return the mean of each window over its elements inside; with count_include_pad, over the padding, too."""
    attrs = _window(2, kernel, stride, pad, ceil_mode) | _mean(count_include_pad, round_mode, first_round_mode)
    return _pool("top.AvgPool", input, 2, attrs, scale, zero_point, out_name)


@operator(GROUP)
def avgpool3d(
    input: Tensor,
    kernel: SizesOrOne = None,
    stride: SizesOrOne = None,
    pad: SizesOrOne = None,
    ceil_mode: bool = False,
    scale: Scales = None,
    zero_point: Zeros = None,
    out_name: str | None = None,
    count_include_pad: bool = False,
    round_mode: str = "half_away_from_zero",
    first_round_mode: str = "half_away_from_zero",
) -> Tensor:
    """Do the same as `avgpool2d` over three axes; one number means the same for each axis."""
    attrs = _window(3, _repeated(kernel, 3), _repeated(stride, 3), _repeated(pad, 6), ceil_mode)
    attrs |= _mean(count_include_pad, round_mode, first_round_mode)
    return _pool("top.AvgPool", input, 3, attrs, scale, zero_point, out_name)


def _mean(counted: bool, round_mode: str, first: str) -> dict[str, AttrValue]:
    return {
        "count_include_pad": a.boolean("count_include_pad", counted),
        "round_mode": a.rounding("round_mode", round_mode),
        "first_round_mode": a.rounding("first_round_mode", first),
    }
