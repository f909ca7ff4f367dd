"""Platform `ort` against ONNX Runtime's kernels on shapes and attributes beyond the specs' domains."""

from __future__ import annotations

from typing import Any

import pytest
from ort_cases import (
    TARGETS,
    assert_agrees,
    assert_float_within_bound,
    both,
    one_thread,  # noqa: F401 - used by every test
    target_of,
)

from quantizer.conformance.generation.builder import complete
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.trials.trial import Trial
from quantizer.runtime.engines.builtin import BuiltinEngine

Beyond = tuple[str, dict[str, Any]]
AXES = {"conv1d": "w", "conv2d": "hw", "conv3d": "dhw", "depthwise_conv2d": "hw"}


def convolution(op: str, sizes: tuple[int, ...], c_out: int, kernel: tuple[int, ...], **attrs: Any) -> Beyond:
    """Return a convolution of *sizes* (n, c_in, spatial ...) without padding, stride and dilation but as *attrs* say."""
    axes, rank = AXES[op], len(kernel)
    names = ("n", "c_in", *axes, "c_out", *(f"k{axis}" for axis in axes))
    plain = {"stride": (1,) * rank, "padding": (0,) * 2 * rank, "dilation": (1,) * rank}
    groups = {} if op == "depthwise_conv2d" else {"groups": 1}
    return op, {**dict(zip(names, (*sizes, c_out, *kernel), strict=True)), **plain, **groups, **attrs}


def pool(op: str, sizes: tuple[int, ...], kernel: tuple[int, int], **attrs: Any) -> Beyond:
    """Return a pool of *sizes*; no padding unless *attrs* say so."""
    plain = {"stride": (1, 1), "padding": (0, 0, 0, 0), "ceil_mode": False, "kernel": kernel}
    counted = {"count_include_pad": True} if op == "avg_pool2d" else {}
    return op, {**dict(zip("nchw", sizes, strict=True)), **plain, **counted, **attrs}


def product(batch: tuple[int, ...], other: tuple[int, ...], *sizes: int) -> Beyond:
    """Return a matrix product of leading axes and m, k, p."""
    return "matmul", {"batch": batch, "other": other, **dict(zip("mkp", sizes, strict=True))}


def concat(axis: int, *shapes: tuple[int, ...]) -> Beyond:
    """Return a concatenation of four tensors."""
    return "concat", {"axis": axis, **{f"{name}_shape": shape for name, shape in zip("abcd", shapes, strict=True)}}


BEYOND = [
    convolution("conv1d", (2, 48, 1000), 40, (9,), stride=(2,), padding=(4, 3), dilation=(3,), groups=4),
    convolution("conv1d", (3, 7, 64), 14, (5,), padding=(11, 0), groups=7),
    convolution("conv2d", (1, 64, 56, 56), 64, (3, 3), padding=(1, 1, 1, 1)),
    convolution("conv2d", (2, 32, 29, 28), 32, (3, 3), padding=(0, 1, 1, 0), stride=(2, 2), groups=32),
    convolution("conv2d", (1, 3, 40, 41), 16, (7, 7), padding=(3, 3, 2, 1), stride=(2, 3)),
    convolution("conv2d", (5, 256, 7, 7), 24, (1, 1)),
    convolution("conv2d", (1, 8, 11, 9), 12, (5, 2), padding=(8, 0, 7, 5), dilation=(4, 3), groups=4),
    convolution("conv3d", (1, 16, 9, 14, 15), 24, (3, 3, 3), padding=(1, 1, 1, 1, 1, 1)),
    convolution("conv3d", (2, 6, 7, 8, 5), 9, (2, 4, 3), padding=(5, 0, 2, 1, 3, 0), dilation=(3, 1, 2), groups=3),
    convolution("depthwise_conv2d", (2, 37, 30, 31), 37, (3, 3), padding=(1, 1, 1, 1)),
    convolution("depthwise_conv2d", (1, 16, 30, 31), 48, (5, 5), padding=(4, 2, 3, 5), stride=(2, 3), dilation=(2, 2)),
    ("fully_connected", {"n": 33, "c_in": 1000, "c_out": 130}),
    ("fully_connected", {"n": 1, "c_in": 4096, "c_out": 37}),
    product((2, 1, 3), (4, 1), 17, 70, 33),
    product((), (5,), 1, 2000, 9),
    product((6,), (), 64, 64, 64),
    ("mul", {"shape": (2, 3, 4, 5, 6), "other": (3, 1, 5, 1)}),
    ("mul", {"shape": (2, 1, 3, 1, 1), "other": (7, 1, 5, 129)}),
    ("mul", {"shape": (4099,), "other": (3, 1)}),
    ("add", {"shape": (2, 3, 4, 5, 6), "other": (3, 1, 5, 1)}),
    ("add", {"shape": (2, 1, 3, 1, 1), "other": (7, 1, 5, 129)}),
    ("add", {"shape": (4099,), "other": (3, 1)}),
    ("softmax", {"shape": (2, 3, 4, 5, 6), "axis": 2}),
    ("softmax", {"shape": (2, 3, 4, 5, 6), "axis": -5}),
    ("softmax", {"shape": (5, 1000), "axis": -1}),
    ("softmax", {"shape": (2048, 3), "axis": 0}),
    ("softmax", {"shape": (3, 512), "axis": 1}),
    ("softmax", {"shape": (3, 1, 2), "axis": 1}),
    ("sigmoid", {"shape": (2, 3, 4, 5, 600)}),
    ("leaky_relu", {"shape": (2, 3, 4, 5, 600), "slope": 7.3}),
    pool("max_pool2d", (2, 19, 40, 41), (7, 5), stride=(4, 6), padding=(6, 4, 3, 2), ceil_mode=True),
    pool("avg_pool2d", (2, 19, 40, 41), (7, 5), stride=(4, 6), padding=(6, 4, 3, 2), ceil_mode=True),
    pool("avg_pool2d", (2, 19, 40, 41), (7, 5), stride=(5, 4), padding=(3, 4, 6, 2), count_include_pad=False),
    pool("avg_pool2d", (3, 33, 14, 15), (14, 15)),
    pool("avg_pool2d", (3, 33, 14, 15), (14, 14)),
    ("global_avg_pool2d", {"n": 3, "c": 130, "h": 56, "w": 57}),
    concat(-4, (2, 3, 4, 5, 6), (2, 1, 4, 5, 6), (2, 9, 4, 5, 6), (2, 40, 4, 5, 6)),
    concat(1, (64, 1), (64, 129), (64, 2), (64, 64)),
    ("transpose", {"shape": (2, 3, 4, 5, 6, 7), "perm": (5, 0, 3, 1, 4, 2)}),
    ("transpose", {"shape": (64, 129), "perm": (1, 0)}),
    ("pad", {"shape": (2, 3, 4, 5, 6), "padding": (0, 7, 1, 0, 9, 3, 0, 11, 2, 0), "value": 1e6}),
    ("pad", {"shape": (3, 1000), "padding": (5, 17, 0, 64), "value": -0.375}),
    ("argmax", {"shape": (2, 3, 4, 5, 6), "axis": -2, "keepdims": False, "select_last": True}),
    ("argmax", {"shape": (3, 1000), "axis": 1, "keepdims": True, "select_last": False}),
    ("reshape", {"from_shape": (2, 3, 4, 5, 6), "shape": (8, 1, 90)}),
    ("gather", {"shape": (3, 1000, 2), "indices_shape": (40, 1, 3), "axis": -2, "batch_dims": 0}),
    ("gather", {"shape": (5, 2, 70), "indices_shape": (), "axis": 2, "batch_dims": 0}),
    ("gather_elements", {"shape": (3, 1000, 2), "indices_shape": (3, 40, 2), "axis": -2}),
    ("where", {"shape": (2, 3, 4, 5, 6), "other": (4, 1, 6), "mask": (3, 1, 5, 1)}),
    ("where", {"shape": (3, 1000), "other": (1,), "mask": (1000,)}),
]


@pytest.mark.parametrize("data", ["random", "ties", "corners"])
@pytest.mark.parametrize("structure", range(len(BEYOND)))
def test_shapes_beyond_the_domains(structure: int, data: str) -> None:
    op, bound = BEYOND[structure]
    for target in (target_of(item) for item in TARGETS if item.startswith(f"{op}-")):
        case = complete(target, bound, list(target.spec.inputs), data, structure, HashChoices(structure, {}))
        found = [both(Trial(target, case, BuiltinEngine()))]
        assert assert_agrees(found) > 0
        assert_float_within_bound(found)
