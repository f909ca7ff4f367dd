"""Exact kernels against plain int64 loops over explicit windows."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from quantizer.core.errors import GraphError, QuantizerError
from quantizer.numerics import kernels
from quantizer.numerics.kernels import choose, conv, conv_transpose, limit, linear, matmul, pool_sum
from quantizer.ops.depthwise_conv2d import reference as depthwise

RANGES = {
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-32768, 32767),
    "int32": (-255, 255),
    "int64": (-65535, 65535),
}
DATA = ("min_min", "min_max", "alternating", "random")


def fill(shape: Sequence[int], kind: str, data: str, which: int) -> Tensor:
    low, high = RANGES[kind]
    if data == "random":
        generator = torch.Generator().manual_seed(17 + which + sum(shape))
        values = torch.randint(low, high + 1, tuple(shape), generator=generator)
    elif data == "alternating":
        flat = torch.arange(int(np.prod(shape)))
        values = torch.where((flat + which) % 2 == 0, low, high).reshape(tuple(shape))
    else:
        values = torch.full(tuple(shape), low if data == "min_min" or which == 0 else high)
    return values.to(getattr(torch, kind))


def places(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*(range(size) for size in sizes))


def plain_conv(x: Any, w: Any, stride: Sequence[int], padding: Any, dilation: Sequence[int], groups: int) -> Any:
    rank = x.ndim - 2
    out = [
        (x.shape[2 + i] + sum(padding[i]) - dilation[i] * (w.shape[2 + i] - 1) - 1) // stride[i] + 1
        for i in range(rank)
    ]
    y: Any = np.zeros((x.shape[0], w.shape[0], *out), np.int64)
    per_input, per_output = w.shape[1], w.shape[0] // groups
    for o in range(w.shape[0]):
        first = o // per_output * per_input
        for at in places(out):
            for tap in places(w.shape[2:]):
                point = tuple(at[i] * stride[i] + tap[i] * dilation[i] - padding[i][0] for i in range(rank))
                if all(0 <= p < size for p, size in zip(point, x.shape[2:], strict=True)):
                    for c in range(per_input):
                        y[(slice(None), o, *at)] += x[(slice(None), first + c, *point)] * w[(o, c, *tap)]
    return y


def plain_transpose(x: Any, w: Any, stride: Sequence[int], padding: Any, extra: Any, dilation: Any, groups: int) -> Any:
    rank = x.ndim - 2
    out = [
        (x.shape[2 + i] - 1) * stride[i] - sum(padding[i]) + dilation[i] * (w.shape[2 + i] - 1) + extra[i] + 1
        for i in range(rank)
    ]
    y: Any = np.zeros((x.shape[0], w.shape[1] * groups, *out), np.int64)
    for c in range(x.shape[1]):
        first = c // (x.shape[1] // groups) * w.shape[1]
        for at in places(x.shape[2:]):
            for tap in places(w.shape[2:]):
                point = tuple(at[i] * stride[i] + tap[i] * dilation[i] - padding[i][0] for i in range(rank))
                if all(0 <= p < size for p, size in zip(point, out, strict=True)):
                    for o in range(w.shape[1]):
                        y[(slice(None), first + o, *point)] += x[(slice(None), c, *at)] * w[(c, o, *tap)]
    return y


CONVS = [
    # input, weights, stride, padding, dilation, groups
    ((1, 3, 7), (4, 3, 3), (2,), ((1, 2),), (1,), 1),
    ((2, 4, 5, 6), (6, 4, 3, 2), (1, 2), ((1, 1), (0, 0)), (1, 1), 1),
    ((1, 4, 6, 5), (4, 2, 3, 3), (2, 1), ((2, 0), (1, 3)), (1, 2), 2),
    ((1, 6, 5, 5), (6, 1, 3, 3), (1, 1), ((1, 1), (1, 1)), (2, 2), 6),
    ((1, 2, 3, 4, 3), (2, 2, 2, 2, 3), (1, 2, 1), ((1, 0), (0, 1), (1, 1)), (1, 1, 1), 1),
    ((1, 3, 4, 4), (5, 3, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    ((1, 1, 1, 1), (1, 1, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    ((2, 3, 0, 4), (2, 3, 2, 3), (1, 1), ((3, 0), (1, 1)), (1, 1), 1),
    ((1, 2, 0, 0), (3, 2, 1, 2), (2, 1), ((1, 2), (2, 2)), (1, 1), 1),
]
DTYPE_PAIRS = [("int8", "int8"), ("uint8", "int8"), ("int32", "int8"), ("int16", "int16"), ("int64", "int64")]


@pytest.mark.parametrize("kinds", DTYPE_PAIRS, ids="-".join)
@pytest.mark.parametrize("data", DATA)
def test_conv_is_the_plain_sum(kinds: tuple[str, str], data: str) -> None:
    for x_shape, w_shape, stride, padding, dilation, groups in CONVS:
        x, w = fill(x_shape, kinds[0], data, 0), fill(w_shape, kinds[1], data, 1)
        found = conv(x, w, stride=stride, padding=padding, dilation=dilation, groups=groups)
        expected = plain_conv(x.numpy().astype(np.int64), w.numpy().astype(np.int64), stride, padding, dilation, groups)
        assert found.dtype == torch.int64
        assert np.array_equal(found.numpy(), expected)


TRANSPOSED = [
    # input, weights, stride, padding, output padding, dilation, groups
    ((1, 3, 5), (3, 2, 3), (2,), ((1, 0),), (1,), (1,), 1),
    ((2, 4, 3, 4), (4, 3, 3, 2), (2, 1), ((1, 1), (0, 1)), (1, 0), (1, 2), 1),
    ((1, 4, 3, 3), (4, 2, 3, 3), (3, 2), ((0, 0), (2, 1)), (2, 1), (1, 1), 2),
    ((1, 2, 2, 3, 2), (2, 2, 2, 1, 2), (1, 2, 2), ((0, 0), (0, 0), (1, 0)), (0, 1, 0), (2, 1, 1), 1),
]


@pytest.mark.parametrize("kinds", DTYPE_PAIRS, ids="-".join)
@pytest.mark.parametrize("data", DATA)
def test_transposed_conv_is_the_plain_sum(kinds: tuple[str, str], data: str) -> None:
    for x_shape, w_shape, stride, padding, extra, dilation, groups in TRANSPOSED:
        x, w = fill(x_shape, kinds[0], data, 0), fill(w_shape, kinds[1], data, 1)
        found = conv_transpose(
            x, w, stride=stride, padding=padding, output_padding=extra, dilation=dilation, groups=groups
        )
        expected = plain_transpose(
            x.numpy().astype(np.int64), w.numpy().astype(np.int64), stride, padding, extra, dilation, groups
        )
        assert np.array_equal(found.numpy(), expected)


def test_padding_may_crop_all_but_the_output_padding() -> None:
    found = conv_transpose(torch.ones(1, 1, 1), torch.ones(1, 1, 1), stride=[3], padding=[(2, 0)], output_padding=[2])
    assert found.tolist() == [[[0]]]


@pytest.mark.parametrize("multiplier", [1, 2])
@pytest.mark.parametrize(
    ("stride", "padding", "dilation"), [((1, 1), (0, 0, 0, 0), (1, 1)), ((2, 1), (1, 0, 2, 1), (1, 2))]
)
def test_many_channels_are_summed_like_few(multiplier: int, stride: Any, padding: Any, dilation: Any) -> None:
    """Many channels run in a way of their own, which gives what each block of fewer channels gives."""
    channels, half = kernels.MANY_CHANNELS, kernels.MANY_CHANNELS // 2
    draw = torch.Generator().manual_seed(multiplier)
    x = torch.randint(-128, 128, (2, channels, 4, 5), generator=draw)
    w = torch.randint(-128, 128, (channels * multiplier, 1, 2, 3), generator=draw)
    bias = torch.randint(-999, 999, (channels * multiplier,), generator=draw)
    pairs, named = [padding[::2], padding[1::2]], {"stride": stride, "dilation": dilation}
    whole = conv(x, w, padding=pairs, groups=channels, **named)
    blocks = zip(x.split(half, 1), w.split(half * multiplier), strict=True)
    assert torch.equal(whole, torch.cat([conv(a, b, padding=pairs, groups=half, **named) for a, b in blocks], 1))
    # integers stay exact in float64, so that the reference gives the same sums
    real = depthwise(x.double(), w.double(), bias.double(), padding=padding, **named)
    assert torch.equal(real, (whole + bias.reshape(-1, 1, 1)).double())


def test_transposed_conv_of_an_empty_input_is_zero() -> None:
    found = conv_transpose(torch.zeros(1, 2, 0, 3), torch.ones(2, 3, 4, 2), output_padding=(0, 0))
    assert found.shape == (1, 3, 3, 4)
    assert not found.any()


@pytest.mark.parametrize("kinds", DTYPE_PAIRS, ids="-".join)
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("inner", [1, 3, 64, 3000])
def test_products_are_the_plain_sum(kinds: tuple[str, str], data: str, inner: int) -> None:
    x, w = fill((2, 3, inner), kinds[0], data, 0), fill((4, inner), kinds[1], data, 1)
    wide = [t.numpy().astype(np.int64) for t in (x, w)]
    assert np.array_equal(linear(x, w).numpy(), np.einsum("abk,ok->abo", *wide))
    batched = fill((2, 1, inner, 5), kinds[1], data, 1)
    expected = np.einsum("bmk,bckn->bcmn", wide[0], batched.numpy().astype(np.int64))
    assert np.array_equal(matmul(x[:, None], batched).numpy(), expected)


FAST = [
    # conv shapes above the threshold of the integer matrix product
    ((1, 32, 60, 60), (40, 32, 1, 1), (1, 1), ((0, 0), (0, 0))),
    ((2, 16, 40, 41), (24, 16, 3, 3), (1, 2), ((1, 1), (2, 0))),
    ((2, 64, 40, 40), (32, 64, 1, 1), (1, 1), ((0, 0), (0, 0))),
    ((1, 1, 300, 300), (64, 1, 1, 1), (1, 1), ((0, 0), (0, 0))),
    ((3, 1, 300, 300), (64, 1, 1, 1), (1, 1), ((0, 0), (0, 0))),
    ((1, 130, 16, 16), (16, 130, 3, 3), (1, 1), ((1, 1), (1, 1))),
]


@pytest.mark.parametrize(
    ("kind", "data"), [*(("int8", data) for data in DATA), ("int64", "min_min"), ("int64", "random")]
)
def test_integer_matrix_product_is_used_and_exact(kind: str, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[str] = []

    def noted(*args: Any, **named: Any) -> str:
        chosen.append(choose(*args, **named))
        return chosen[-1]

    monkeypatch.setattr(kernels, "choose", noted)
    for x_shape, w_shape, stride, padding in FAST:
        x = fill(x_shape, "int8", data, 0).to(getattr(torch, kind))
        w = fill(w_shape, "int8", data, 1).to(getattr(torch, kind))
        found = conv(x, w, stride=stride, padding=padding)
        x64 = torch.nn.functional.pad(x.double(), [n for pair in reversed(padding) for n in pair])
        assert torch.equal(found, torch.nn.functional.conv2d(x64, w.double(), stride=stride).long())
        assert found.is_contiguous()
    for inner in (1, 512, 9000):
        a, b = (
            fill((400, inner), "int8", data, 0),
            fill((12_000, inner) if inner == 1 else (40, inner), "int8", data, 1),
        )
        assert torch.equal(
            linear(a.to(getattr(torch, kind)), b.to(getattr(torch, kind))), (a.double() @ b.double().t()).long()
        )
    assert (set(chosen) == {"int_mm"}) if kernels.int_mm_is_exact() else ("int_mm" not in chosen)


WINDOWS = [
    # (input, weights, stride, padding, dilation): windows as wide as the image, whose rows overlap in memory
    ((1, 4, 20), (3, 4, 3), (1,), ((0, 0),), (1,)),
    ((1, 1, 12), (5, 1, 3), (1,), ((1, 1),), (2,)),
    ((2, 4, 20), (3, 4, 3), (2,), ((1, 0),), (1,)),
    ((1, 4, 9, 3), (3, 4, 3, 3), (1, 1), ((0, 0), (0, 0)), (1, 1)),
    ((1, 4, 9, 3), (1, 4, 3, 3), (2, 1), ((1, 1), (0, 0)), (1, 1)),
    ((1, 2, 7, 1), (1, 2, 3, 2), (1, 1), ((1, 0), (1, 0)), (1, 1)),
    # as many elements between rows as in them; none; runs over two of three axes
    ((2, 3, 6, 2), (4, 3, 2, 2), (1, 1), ((1, 1), (1, 1)), (1, 2)),
    ((3, 5, 8, 8), (4, 5, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1)),
    ((2, 3, 5, 6, 7), (4, 3, 2, 3, 3), (1, 1, 1), ((1, 0), (1, 1), (1, 1)), (2, 1, 1)),
    ((1, 1, 6, 6), (1, 1, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1)),
]


@pytest.mark.parametrize(("x_shape", "w_shape", "stride", "padding", "dilation"), WINDOWS)
def test_integer_matrix_product_of_any_windows(
    x_shape: Any, w_shape: Any, stride: Any, padding: Any, dilation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """oneDNN takes rows that overlap for a matrix, and gives wrong sums without an error."""
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", True)  # a session turns it off
    if not kernels.int_mm_is_exact():
        pytest.skip("this processor's int8 products saturate, so that no kernel uses them")
    x, w = fill(x_shape, "int8", "random", 0), fill(w_shape, "int8", "random", 1)
    monkeypatch.setattr(kernels, "choose", lambda *_, **__: "int_mm")
    found = conv(x, w, stride=stride, padding=padding, dilation=dilation)
    assert np.array_equal(found.numpy(), plain_conv(x.long().numpy(), w.long().numpy(), stride, padding, dilation, 1))
    assert found.is_contiguous()


WIDE = """
import torch
from quantizer.numerics.kernels import INT_MM_WORK, linear

draw = torch.Generator().manual_seed(1)
a, b = (torch.randint(-128, 128, (256, 300), dtype=torch.int8, generator=draw) for _ in range(2))
assert a.numel() * len(b) >= INT_MM_WORK
assert torch.equal(linear(a, b), a.long() @ b.long().t())
"""


@pytest.mark.parametrize("level", ["AVX2", "AVX512_CORE"])
def test_products_are_exact_on_a_processor_whose_int8_products_saturate(level: str) -> None:
    """oneDNN adds two products in 16 bits below VNNI, and reads the level when it is loaded: in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", WIDE], env=os.environ | {"ONEDNN_MAX_CPU_ISA": level}, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def test_plus_128_is_not_an_int8() -> None:
    x = torch.full((128, 512), 128)
    assert set(linear(x, x // 128).flatten().tolist()) == {512 * 128}


def test_int8_reaches_minus_128() -> None:
    """An odd sum just above 2**24, where 127 * 127 a product would still lie below."""
    x = torch.full((1, 1040), -128, dtype=torch.int8)
    x[0, 0] = -127
    assert linear(x, x).tolist() == [[1039 * 16384 + 16129]]


def test_the_cheapest_exact_kernel_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    work = kernels.INT_MM_WORK
    assert choose(1 << 24) == "float32"
    assert choose((1 << 24) + 1) == "float64"
    assert choose((1 << 24) + 1, pieces=kernels.MOST_PIECES) == "chunked"
    assert choose((1 << 24) + 1, pieces=kernels.MOST_PIECES + 1) == "float64"
    assert choose((1 << 53) - 1) == "float64"
    assert choose(1 << 53, pieces=2) == "int64"
    assert choose((1 << 63) - 1) == "int64"
    assert choose(100, int8=True, work=work - 1) == "float32"
    assert choose(1 << 31, int8=True, work=work) == "float64"
    with pytest.raises(GraphError, match="must stay in int64"):
        choose(1 << 63)
    monkeypatch.setattr(kernels, "int_mm_is_exact", lambda: True)
    assert choose((1 << 31) - 1, int8=True, work=work) == "int_mm"
    monkeypatch.setattr(kernels, "int_mm_is_exact", lambda: False)
    assert choose(100, int8=True, work=work) == "float32"


def test_every_kernel_gives_the_same_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """One convolution, product and transposed convolution through each kernel that can hold it."""
    x, w = fill((2, 40, 9, 9), "int8", "random", 0), fill((6, 40, 3, 3), "int8", "random", 1)
    t = fill((40, 6, 3, 3), "int8", "random", 1)
    around = [(1, 2), (0, 1)]
    results = []
    for kernel in ("float32", "chunked", "float64", "int64", *(["int_mm"] if kernels.int_mm_is_exact() else [])):
        monkeypatch.setattr(kernels, "choose", lambda *args, kernel=kernel, **named: kernel)
        results.append(
            [conv(x, w, stride=(2, 1), padding=around), linear(x.flatten(1), w.repeat(1, 9, 1, 1).flatten(1))]
        )
        if kernel in ("float32", "float64", "int64"):
            results[-1].append(conv_transpose(x, t, stride=(2, 1), padding=around, dilation=(1, 2)))
    for found in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], found, strict=False))


def test_sums_beyond_each_mantissa_are_exact() -> None:
    """16-bit times 16-bit leaves 2**24 at once; 32-bit operands leave 2**53; beyond int64 there is an error."""
    odd = torch.tensor([[32767, 32767, 1]], dtype=torch.int16)
    assert linear(odd, odd).tolist() == [[2 * 32767**2 + 1]]
    wide = torch.tensor([[(1 << 27) + 1, 1, 1]])
    assert linear(wide, wide).tolist() == [[((1 << 27) + 1) ** 2 + 2]]
    x = wide.reshape(1, 1, 3)
    assert conv(x, x).tolist() == [[[((1 << 27) + 1) ** 2 + 2]]]
    found = conv_transpose(x, x, stride=(2,))
    assert np.array_equal(found.numpy(), plain_transpose(x.numpy(), x.numpy(), (2,), ((0, 0),), (0,), (1,), 1))
    huge = torch.full((1, 4), 1 << 31)
    with pytest.raises(GraphError, match="must stay in int64"):
        linear(huge, huge)


@pytest.mark.parametrize(
    ("shape", "kernel", "stride", "padding", "dilation"),
    [
        ((1, 2, 7), (3,), (2,), ((1, 1),), (1,)),
        ((2, 3, 6, 5), (2, 3), (2, 1), ((0, 1), (2, 1)), (1, 1)),
        ((1, 2, 6, 6), (6, 6), (1, 1), ((0, 0), (0, 0)), (1, 1)),
        ((1, 1, 7, 7), (3, 2), (1, 3), ((1, 0), (0, 0)), (2, 3)),
        ((1, 2, 3, 4, 5), (2, 2, 3), (1, 2, 2), ((1, 1), (0, 0), (1, 0)), (1, 1, 1)),
        ((1, 1, 0, 3), (2, 2), (1, 1), ((1, 1), (0, 0)), (1, 1)),
    ],
)
@pytest.mark.parametrize("kind", ["int8", "int16", "int64"])
def test_pool_sum_is_a_convolution_with_ones(
    shape: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, kind: str
) -> None:
    for data in DATA:
        x = fill(shape, kind, data, 0)
        ones = np.ones((shape[1], 1, *kernel), np.int64)
        expected = plain_conv(x.numpy().astype(np.int64), ones, stride, padding, dilation, shape[1])
        found = pool_sum(x, kernel, stride=stride, padding=padding, dilation=dilation)
        assert found.dtype == torch.int64
        assert np.array_equal(found.numpy(), expected)


def test_pool_sum_beyond_int32() -> None:
    x = torch.full((1, 1, 4), (1 << 31) - 1)
    assert pool_sum(x, [4]).tolist() == [[[4 * ((1 << 31) - 1)]]]


def test_operands_are_not_modified_and_may_be_strided() -> None:
    x, w = fill((2, 6, 8, 8), "int8", "random", 0), fill((4, 6, 3, 3), "int8", "random", 1)
    kept = x.clone(), w.clone()
    last = x.to(memory_format=torch.channels_last)
    assert torch.equal(conv(last, w, padding=[(1, 1), (1, 1)]), conv(x, w, padding=[(1, 1), (1, 1)]))
    assert torch.equal(x, kept[0])
    assert torch.equal(w, kept[1])


def test_an_accumulator_wraps_saturates_or_refuses_at_its_limit() -> None:
    acc = torch.tensor([127, 128, -128, -129, 300, 1 << 40])
    assert limit(acc, 8, "wrap").tolist() == [127, -128, -128, 127, 44, 0]
    assert limit(acc, 8, "saturate").tolist() == [127, 127, -128, -128, 127, 127]
    assert limit(acc, 8, "unbounded") is acc
    assert limit(acc[:1], 8, "forbidden").tolist() == [127]
    assert limit(acc, 64, "wrap").tolist() == acc.tolist()
    with pytest.raises(QuantizerError, match=r"accumulator 1099511627776: leaves 8 bits \[-128, 127\]"):
        limit(acc, 8, "forbidden")
    with pytest.raises(QuantizerError, match="accumulator -129"):
        limit(torch.tensor([-129, 5]), 8, "forbidden")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: conv(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 3, 1)), "window of 3 on spatial axis 0"),
        (lambda: conv(torch.ones(1, 1, 4), torch.ones(1, 1, 1), padding=[(-1, 0)]), "must not be negative"),
        (lambda: conv(torch.ones(1, 3, 4), torch.ones(2, 1, 1), groups=2), "3 input channels in 2 groups"),
        (lambda: conv_transpose(torch.ones(1, 1, 1), torch.ones(1, 1, 1), padding=[(1, 1)]), "crops all"),
        (lambda: matmul(torch.ones(2, 3), torch.ones(2, 3)), "inner sizes must be equal"),
    ],
)
def test_invalid_arguments_are_refused_by_name(call: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        call()


def test_a_convolution_of_many_images_does_not_use_winograd(monkeypatch) -> None:
    """NNPACK's transforms miss sums of products that float32 holds exactly."""
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    x = torch.randint(-128, 128, (16, 8, 8, 8), generator=torch.Generator().manual_seed(1)).float()
    w = torch.randint(-128, 128, (8, 8, 3, 3), generator=torch.Generator().manual_seed(2)).float()
    wide = torch.nn.functional.conv2d(x.double(), w.double(), padding=1)
    assert torch.equal(torch.nn.functional.conv2d(x, w, padding=1).double(), wide)


def test_float32_is_pinned_and_exact_on_this_machine() -> None:
    """Importing the module turned bfloat16 and TF32 off; sums of 24 bits prove it."""
    assert torch.get_float32_matmul_precision() == "highest"
    assert torch.backends.mkldnn.conv.fp32_precision == "ieee"  # type: ignore[attr-defined]
    assert torch.backends.mkldnn.matmul.fp32_precision == "ieee"  # type: ignore[attr-defined]
    x = torch.full((1, 257, 8, 8), 255)
    w = torch.full((8, 257, 1, 1), 255)
    w[:, ::2] = 254
    assert set(conv(x, w).flatten().tolist()) == {255 * (129 * 254 + 128 * 255)}
    assert set(linear(x[0, :, 0, :].t(), w[:, :, 0, 0]).flatten().tolist()) == {255 * (129 * 254 + 128 * 255)}
