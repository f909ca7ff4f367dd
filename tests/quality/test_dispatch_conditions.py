"""Cases meet the conditions by which kernel libraries choose one of their kernels.

The conditions are facts about public sources, each with the file that has it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from quantizer.conformance.generation.case_classes.axes_of_images import axes_of_images
from quantizer.conformance.generation.case_classes.broadcast_axes import broadcast_axes
from quantizer.conformance.generation.case_classes.layers import layers
from quantizer.conformance.generation.case_classes.matrices import matrices
from quantizer.conformance.generation.case_classes.resized_channels import resized_channels
from quantizer.conformance.real.facts import holds
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.core.expressions import parse
from quantizer.core.shapes import variables

ROOT = Path(__file__).parents[2]
POINT, SQUARE, BIG = "kh == 1 and kw == 1", "kh == 3 and kw == 3", "kh == 5 and kw == 5"
ONE, TWO, DENSE = "max(stride) == 1", "min(stride) == 2", "max(dilation) == 1"
BARE, SAME = "max(padding) == 0", "min(padding) == 1 and max(padding) == 1"
MIXES, IMAGE = "groups == 1", "len(shape) == 4 and axes == "
NCNN, ESP = "ncnn src/layer/arm/convolution_arm.cpp", "esp-nn src/convolution"
CMSIS, MLAS = "CMSIS-NN Source/ConvolutionFunctions", "onnxruntime core/mlas/lib/convsym.cpp"
TFLITE, FBGEMM = "tensorflow lite/kernels/internal", "FBGEMM src/FbgemmConv.cc"
ONEDNN, XNNPACK, QNNPACK = "oneDNN jit_avx512_core_x8s8s32x", "XNNPACK src/operators", "QNNPACK src/convolution.c"

CONDITIONS = {
    "conv2d": [
        (CMSIS, POINT, BARE, ONE, DENSE),
        (CMSIS, POINT, BARE, "max(stride) > 1"),
        (CMSIS, "h == 1", "kh == 1", "kw > 1", "dilation[1] == 1"),
        (ESP, POINT, BARE, ONE, "c_in % 8 == 0", "h * w % 8 == 0"),
        (ESP, POINT, BARE, ONE, "c_in % 8 == 0", "h * w % 8 >= 2", "h * w > 8"),
        (ESP, "kw * c_in < 16", "kh * kw * c_in >= 16", MIXES, "kh * kw > 1"),
        (ESP, "kw * c_in >= 16", "kw * c_in % 16 == 0", MIXES, "kh * kw > 1", BARE),
        (ESP, "padding[0] + padding[1] == 0", "padding[2] > 0 and padding[3] > 0", "kw * c_in >= 16"),
        *(
            (NCNN, *window, DENSE, inputs, outputs, MIXES)
            for window in ((POINT, ONE), (POINT, TWO), (SQUARE, ONE), (SQUARE, TWO))
            for inputs in ("c_in % 8 == 0", "c_in % 8 > 0")
            for outputs in ("c_out % 4 == 0", "c_out % 4 > 0")
        ),
        (NCNN, "kh == 7 and kw == 7", TWO, "c_in % 8 > 0", "c_out % 4 == 0"),
        (XNNPACK, POINT, ONE, "max(padding) > 0"),
        (XNNPACK, "groups > 1", "c_in == groups", "c_out == groups", "kh * kw > 1"),
        (QNNPACK, "groups > 1", "c_in == groups", "c_out == groups", "kh * kw == 9", "kh != kw"),
        (MLAS, MIXES, "kh * kw > 1", "c_in >= 64", "c_in % 4 == 0", "c_out % 16 == 0"),
        (MLAS, MIXES, "kh * kw > 1", "c_in >= 64", "c_in % 4 > 0", "c_out % 16 == 0"),
        (ONEDNN, "groups > 1", "c_in // groups % 16 == 0", "c_out // groups % 16 == 0", "kh * kw > 1"),
        (ONEDNN, "groups > 1", "c_in // groups % 16 == 8", "c_out // groups % 8 == 0", "kh * kw > 1"),
        (ONEDNN, "groups > 1", "c_in // groups % 8 == 4", "c_out // groups % 4 == 0", "kh * kw > 1"),
        (FBGEMM, "groups % 8 == 0", "c_in == c_out", "c_in == 8 * groups", SQUARE, SAME, ONE, DENSE),
        (FBGEMM, "groups >= 16", "c_in == c_out", "c_in == 4 * groups", SQUARE, SAME, ONE, DENSE),
    ],
    "depthwise_conv2d": [
        (CMSIS, "c_in == 1", "c_out > 8"),
        (CMSIS, "c_in == c_out", "n == 1", DENSE, SQUARE, "max(padding) <= 1", "c_in % 4 > 0"),
        (CMSIS, "c_in > 1", "c_out // c_in % 4 == 0", "n == 1", DENSE),
        (ESP, "c_in == c_out", "c_in % 16 == 0", SQUARE, SAME, ONE),
        (ESP, "c_in == c_out", "c_in % 16 == 0", SQUARE, BARE, TWO),
        (ESP, "c_in == c_out", "c_in % 16 == 8", "c_in > 8", SQUARE, SAME),
        (ESP, "c_in == c_out", "c_in == 8", SQUARE, TWO),
        *(
            (f"{TFLITE}/optimized/depthwiseconv_3x3_filter_common.h", "c_in == c_out", "c_in % 8 == 0", *window, DENSE)
            for window in ((SQUARE, ONE, SAME), (SQUARE, ONE, BARE), (SQUARE, TWO, SAME), (SQUARE, TWO, BARE))
        ),
        *(
            (f"{TFLITE}/optimized/depthwiseconv_uint8.h", f"c_in == {inputs}", f"c_out == {inputs * each}")
            for inputs, each in ((4, 4), (2, 8), (12, 1), (8, 2), (1, 16))
        ),
        (MLAS, "c_in == c_out", "c_in % 16 == 0", "kh * kw == 9", "kh != kw"),
        (MLAS, "c_in == c_out", "c_in % 16 == 0", BIG, TWO),
        (ONEDNN, "c_in == c_out", "c_in % 64 == 0", "kh * kw > 1"),
        (ONEDNN, "c_in == c_out", "c_in % 32 == 16", "c_in > 16", "kh * kw > 1"),
        *(
            (FBGEMM, f"c_out == {each} * c_in", "c_in % 8 == 0", BIG, "min(padding) == 2 and max(padding) == 2", steps)
            for each, steps in ((1, ONE), (1, TWO), (2, ONE), (2, TWO))
        ),
    ],
    "conv_transpose2d": [
        (f"{XNNPACK}/deconvolution-nhwc.c", TWO, "kh % 2 == 0 and kw % 2 == 0", "c_in % 8 == 0", MIXES),
        (f"{XNNPACK}/deconvolution-nhwc.c", TWO, "kh % 2 == 1 and kw % 2 == 1", "kh > 1", "c_in % 8 == 0"),
        (f"{CMSIS}/arm_transpose_conv_s8.c", TWO, "padding[0] % 2 == 1", "kh > 2", "c_in > 16"),
    ],
    "avg_pool2d": [
        (XNNPACK, "kernel[0] * kernel[1] > 9", "c % 8 == 0", "max(padding) > 0"),
        (XNNPACK, "kernel[0] * kernel[1] == 9", "c % 8 > 0", "c > 8"),
        ("ncnn src/layer/arm/pooling_arm.cpp", "min(kernel) == 2 and max(kernel) == 2", TWO, "c % 8 == 0"),
    ],
    "reduce_mean": [
        (f"{TFLITE}/optimized/integer_ops/mean.h", f"{IMAGE}(1, 2)", "keepdims", "shape[3] % 16 == 0"),
        (f"{TFLITE}/optimized/integer_ops/mean.h", f"{IMAGE}(1, 2)", "keepdims", "shape[3] % 16 > 0"),
        (f"{XNNPACK}/reduce-nd.c", f"{IMAGE}(0, 2, 3)", "shape[1] >= 8"),
    ],
    "pad": [
        (f"{TFLITE}/optimized/optimized_ops.h", "len(shape) == 4", "padding == (0, 1, 1, 0, 0, 1, 1, 0)"),
        (f"{TFLITE}/optimized/optimized_ops.h", "len(shape) == 4", "padding == (0, 0, 0, 0, 0, 1, 1, 0)"),
    ],
    "add": [
        (f"{TFLITE}/reference/process_broadcast_shapes.h", "len(shape) == 3", "shape[0] == 1", "other[2] == 1"),
        (f"{TFLITE}/reference/process_broadcast_shapes.h", "len(shape) == 3", "shape[2] == 1", "other[0] == 1"),
    ],
    "resize_bilinear": [
        (
            f"{TFLITE}/optimized/resize_bilinear.h",
            "mode == 'asymmetric'",
            "size[0] == 2 * h",
            "size[1] == 2 * w",
            "c >= 8",
        ),
        (f"{TFLITE}/optimized/resize_bilinear.h", "mode == 'half_pixel'", "size[0] == 8 * h", "c % 8 == 0"),
    ],
    "fully_connected": [
        (f"{TFLITE}/optimized/optimized_ops.h", "n == 4", "c_in % 16 == 0", "c_out % 4 == 0"),
        ("onnxruntime core/mlas/lib/qgemm.h", "c_in > 384", "c_out % 16 > 0", "n > 1"),
    ],
}
"""For each operator, the conditions that a source combines."""
CLASSES = (layers, axes_of_images, broadcast_axes, resized_channels, matrices)


@pytest.fixture(scope="module")
def session():
    return open_session(Options(root=ROOT))


@pytest.mark.parametrize("op", CONDITIONS)
def test_cases_meet_the_conditions_of_kernels(session, op: str) -> None:
    """Every part of the conjunction holds for a case, and every part but one for another case."""
    spec = session.library.spec(op)
    targets = session.all_targets(spec)
    known = [
        variables(spec, case.shapes, case.attrs)
        for target in targets
        for made in CLASSES
        for case in made(targets, target)
    ]
    held = {
        part: [holds(parse(part), each) for each in known]
        for part in dict.fromkeys(part for _, *parts in CONDITIONS[op] for part in parts)
    }
    for source, *parts in CONDITIONS[op]:
        false = {row.count(False) for row in zip(*(held[part] for part in parts), strict=True)}
        assert {0, 1} <= false, (source, parts)
