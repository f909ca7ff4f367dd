"""Float32 operations of torch with equal bits on every processor, for code that decides parameters or codes.

Six kinds of float32 operations are replaced. For all other operations torch gives the same bits on every processor.

* Functions of torch's vector kernels (sigmoid, softmax ...): the same IEEE steps, or rounded from float64.
* Small products in batches, and transposed convolutions: added in an order that is defined here.
* Sums and means: torch's own on x86-64, where every instruction-set level adds in the same order; on other processors,
  code here adds in that order.
* Functions and products of MKL: MKL's, on the branch that every processor has. Without MKL they are rounded from
  float64 and added in order.
* Functions in which MKL starts from an approximation by the processor: the square root is correctly rounded; log10,
  asin, acos and atan are rounded from float64.
* Functions of torch's mkldnn, and normalizations: in float64, rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils._pytree import tree_map

from quantizer.numerics import cascade, lanes, mkl, ordered
from quantizer.numerics.exponential import exp

Kernel = Callable[..., Any]
Function = Callable[[Tensor], Tensor]
EXACT_POWERS = (-2, -1, 0, 1, 2, 3)
"""Exponents for which torch computes the power by multiplications."""
TANH_SLOPE, TANH_CUBIC = math.sqrt(2.0 / math.pi), 0.044715
"""GELU by tanh."""
ROOT = 0.5
"""The exponent for which the power is the square root."""


@contextmanager
def pinned() -> Iterator[None]:
    """Run torch's float32 operations in one thread with equal bits everywhere; context manager and decorator.

    One thread, because the number of threads would choose the order of sums. It may be nested.
    """
    if is_within():
        yield
        return
    threads = torch.get_num_threads()
    if threads > 1:
        torch.set_num_threads(1)
    try:
        with _Pinned():  # type: ignore[no-untyped-call]
            yield
    finally:
        if threads > 1:
            torch.set_num_threads(threads)


def is_within() -> bool:
    """Return whether the caller runs under `pinned`."""
    return isinstance(_get_current_dispatch_mode(), _Pinned)


class _Pinned(TorchDispatchMode):
    """Replaces operations as the module says, in place and with `out` too."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False.

        Nothing here is compiled, and skipping would load torch's compiler, which takes seconds in each process.
        """
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the result of *func*, computed by the kernel of this module if it has one."""
        given = dict(kwargs or {})
        name: str = func.overloadpacket.__name__
        kernel = KERNELS.get(name) or KERNELS.get(name.removesuffix("_"))
        if kernel is None or not _is_float32(args):
            return func(*args, **given)
        # an operation in place (`sigmoid_`) is found by the name without underscore and writes to its first argument
        into = given.pop("out", args[0] if name not in KERNELS else None)
        made = kernel(func, *args, **given)
        return made if into is None else into.copy_(made)


def _is_float32(args: tuple[Any, ...]) -> bool:
    """Return whether the first tensor among *args* holds float32 numbers, in memory."""
    first = next((arg for arg in args if isinstance(arg, Tensor)), None)
    return first is not None and first.dtype == torch.float32 and first.device.type == "cpu"


def _wide(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Compute in float64, and round every result to float32."""
    up = tree_map(lambda v: v.double() if isinstance(v, Tensor) and v.dtype == torch.float32 else v, (args, kwargs))
    made = _functional(func)(*up[0], **up[1])
    return tree_map(lambda v: v.float() if isinstance(v, Tensor) and v.dtype == torch.float64 else v, made)


def _functional(func: Any) -> Any:
    """Return the overload of *func* that returns a new tensor."""
    packet = func.overloadpacket
    if func._schema.is_mutable:
        return getattr(torch.ops.aten, packet.__name__.removesuffix("_"))
    return func


def _of_mkl(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Compute by MKL if its branch is pinned, else in float64."""
    return (_functional(func) if mkl.is_pinned() else _wide_of(func))(*args, **kwargs)


@np.errstate(invalid="ignore")
def _root(x: Tensor) -> Tensor:
    """Return the correctly rounded square root.

    numpy uses the processor's instruction, and IEEE 754 requires it to round correctly. MKL's root refines the
    processor's approximation (`rsqrtps`), which differs between vendors.
    """
    return torch.from_numpy(np.asarray(np.sqrt(x.detach().numpy())))


def _wide_of(func: Any) -> Kernel:
    return lambda *args, **kwargs: _wide(func, *args, **kwargs)


def _product(func: Any, a: Tensor, b: Tensor) -> Tensor:
    if mkl.is_pinned():
        return _functional(func)(a, b)  # type: ignore[no-any-return]
    made = ordered.matmul(a.unsqueeze(0) if a.dim() == 1 else a, b.unsqueeze(-1) if b.dim() == 1 else b)
    made = made.squeeze(-1) if b.dim() == 1 else made
    return made.squeeze(-1) if a.dim() == 1 else made


def _sum_and_product(func: Any, c: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    if mkl.is_pinned():
        return _functional(func)(c, a, b, beta=beta, alpha=alpha)  # type: ignore[no-any-return]
    return beta * c + alpha * _product(func, a, b)


def _batched_sum_and_product(_: Any, c: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return beta * c + alpha * ordered.matmul(a, b)


def _logistic(x: Tensor) -> Tensor:
    return 1.0 / (1.0 + exp(-x))


def _silu(x: Tensor) -> Tensor:
    return x / (1.0 + exp(-x))


def _rounded(function: Function) -> Function:
    """Return *function* as a float32 function: computed in float64, then rounded."""
    return lambda x: function(x.double()).float()


_expm1, _log1p, _tanh, _erf = (_rounded(f) for f in (torch.expm1, torch.log1p, torch.tanh, torch.erf))


def _softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    return torch.where(x * beta > threshold, x, _log1p(exp(x * beta)) / beta)


def _elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    return torch.where(x > 0, x * scale, _expm1(x * input_scale) * (alpha * scale))


def _celu(x: Tensor, alpha: float = 1) -> Tensor:
    return _elu(x, alpha, 1.0, 1.0 / alpha)


def _mish(x: Tensor) -> Tensor:
    return x * _tanh(_log1p(exp(x)))


def _gelu(_: Any, x: Tensor, *, approximate: str = "none") -> Any:
    if approximate != "none":
        wide = x.double()
        return (wide * 0.5 * (1.0 + torch.tanh(TANH_SLOPE * (wide + TANH_CUBIC * wide**3)))).float()
    return x * 0.5 * (1.0 + _erf(x * 2.0**-0.5))


def _power(func: Any, x: Any, exponent: Any) -> Any:
    # an exponent may be a tensor, with which `in` would compare elements
    if exponent in EXACT_POWERS if isinstance(exponent, int | float) else False:
        return _functional(func)(x, exponent)
    if exponent == ROOT if isinstance(exponent, float) else False:
        return _root(x)
    # a float32 power takes its exponent as a float32 number
    return _wide(
        func, x, float(torch.tensor(exponent, dtype=torch.float32)) if isinstance(exponent, float) else exponent
    )


def _convolution(
    func: Any,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,  # noqa: FBT001
    output_padding: list[int],
    groups: int,
) -> Any:
    if not transposed:
        return _wide(func, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    return ordered.conv_transpose(
        x, weight, bias, stride=stride, padding=padding, dilation=dilation, output_padding=output_padding, groups=groups
    )


def _batch_norm(
    func: Any,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    training: bool,  # noqa: FBT001
    momentum: float,
    epsilon: float,
) -> Any:
    """Normalise in float64 by the given statistics; in training, torch normalises by the statistics of the batch."""
    if training or mean is None or variance is None:
        return func(x, weight, bias, mean, variance, training, momentum, epsilon)
    shape = [1, -1, *[1] * (x.dim() - 2)]
    made = (x.double() - mean.double().reshape(shape)) / (variance.double() + epsilon).sqrt().reshape(shape)
    made = made if weight is None else made * weight.double().reshape(shape)
    made = made if bias is None else made + bias.double().reshape(shape)
    return made.float(), x.new_empty(0), x.new_empty(0)


def _bilinear(
    _: Any,
    x: Tensor,
    size: list[int],
    align_corners: bool,  # noqa: FBT001 - the operator's own
    *scales: float | None,
) -> Tensor:
    """Interpolate rows, then columns, in float64."""
    made = x.double()
    for axis, count in zip((2, 3), size, strict=True):
        before = made.shape[axis]
        scale = scales[axis - 2] if len(scales) == 2 else None
        place = torch.arange(count, dtype=torch.float64)
        if align_corners:
            place = place * ((before - 1) / (count - 1) if count > 1 else 0.0)
        else:
            place = ((place + 0.5) * (1.0 / scale if scale else before / count) - 0.5).clamp(min=0.0)
        low = place.long().clamp(max=before - 1)
        weight = (place - low).reshape([-1 if i == axis else 1 for i in range(4)])
        first, last = made.index_select(axis, low), made.index_select(axis, (low + 1).clamp(max=before - 1))
        made = first * (1.0 - weight) + last * weight
    return made.float()


def _sum(func: Any, x: Tensor, *args: Any, **named: Any) -> Tensor:
    """Sum along the axes in the first of *args* (all axes if empty). The second one says whether the axes are kept."""
    if cascade.IS_OWN_ORDER or named.get("dtype") not in (None, torch.float32):
        return _functional(func)(x, *args, **named)  # type: ignore[no-any-return]
    axes = args[0] if args else None
    keepdim = len(args) > 1 and bool(args[1])
    return cascade.total(x, [axes] if isinstance(axes, int) else list(axes or ()), keepdim=keepdim)


def _mean(func: Any, x: Tensor, *args: Any, **named: Any) -> Tensor:
    if cascade.IS_OWN_ORDER or named.get("dtype") not in (None, torch.float32):
        return _functional(func)(x, *args, **named)  # type: ignore[no-any-return]
    summed = _sum(func, x, *args, **named)
    return summed / (x.numel() / summed.numel())


def _alone(function: Callable[..., Tensor]) -> Kernel:
    return lambda func, *args, **kwargs: function(*args, **kwargs)  # noqa: ARG005 - as every kernel


KERNELS: Mapping[str, Kernel] = {
    "sigmoid": _alone(_logistic),
    "silu": _alone(_silu),
    "softplus": _alone(_softplus),
    "elu": _alone(_elu),
    "celu": _alone(_celu),
    "mish": _alone(_mish),
    "gelu": _gelu,
    "pow": _power,
    "_softmax": lambda func, x, dim, *rest: lanes.softmax(x, dim),  # noqa: ARG005
    "bmm": _alone(ordered.matmul),
    "_log_softmax": lambda func, x, dim, *rest: lanes.log_softmax(x, dim),  # noqa: ARG005
    "sqrt": _alone(_root),
    "sum": _sum,
    "mean": _mean,
    "upsample_bilinear2d": _bilinear,
    "native_batch_norm": _batch_norm,
    "baddbmm": _batched_sum_and_product,
    "convolution": _convolution,
    **dict.fromkeys(("mm", "mv", "dot"), _product),
    **dict.fromkeys(("addmm", "addmv"), _sum_and_product),
    **dict.fromkeys(
        ("exp", "erf", "erfc", "log", "log2", "tan", "tanh"),
        _of_mkl,
    ),
    **dict.fromkeys(
        (
            "log10",
            "asin",
            "acos",
            "atan",
            "expm1",
            "log1p",
            "exp2",
            "sinh",
            "cosh",
            "asinh",
            "acosh",
            "atanh",
            "atan2",
            "lgamma",
            "log_sigmoid_forward",
            "convolution_backward",
            "native_layer_norm",
            "native_group_norm",
            "logsumexp",
            "lerp",
        ),
        _wide,
    ),
}
"""Operation of ATen -> kernel, called with the operation and its arguments."""
