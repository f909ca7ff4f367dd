"""Lint refuses contradicting platform settings in one line with a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from quantizer.core import library
from quantizer.core.linting import lint

CHIP = {
    "platform": "chip",
    "summary": "A chip of its own.",
    "schemes": "[w8a8, a8]",
    "ops": "[conv2d, sigmoid]",
    "requantize": "{default: multiplier_shift}",
    "multiplier": "{bits: 15}",
}


def linted(folder: Path, **keys: str) -> list[str]:
    (folder / "platforms").mkdir(exist_ok=True)
    text = "\n".join(f"{key}: {value}" for key, value in {**CHIP, **keys}.items())
    (folder / "platforms" / "chip.yaml").write_text(text + "\n")
    library._load_library.cache_clear()
    return lint([folder])[0]


@pytest.mark.parametrize(
    ("keys", "place", "said"),
    [
        (
            {"schemes": "[w8a8s, a8s]", "parameters": "{activation_sign: unsigned}"},
            "parameters.activation_sign",
            "hold no negative number",
        ),
        (
            {"parameters": "{activation_sign: unsigned, zero_point: negated}"},
            "parameters.zero_point",
            "as small as those of signed codes",
        ),
        (
            {"schemes": "[w16a16, a16]", "tables": "{segments: 100}"},
            "tables.segments",
            "power of two, got 100. Write 64 or 128",
        ),
        (
            {"tables": "{entries: lut_bits, alignment: linspace}", "schemes": "[w16a16, a16]"},
            "tables.alignment",
            "Write stride",
        ),
        (
            {"accumulator": "{bits: 16, overflow: forbidden}"},
            "accumulator.overflow",
            "conv2d under 'w8a8' needs 32 bits",
        ),
        (
            {"accumulator": "{bits: 16, overflow: wrap}", "ops": "[reduce_l2]", "multiplier": "{}"},
            "accumulator.overflow",
            "Write saturate",
        ),
        (
            {"fixed_outputs": "{sigmoid: {scale: 0.00390625, zero_point: 128}}"},
            "fixed_outputs.sigmoid.zero_point",
            "128 is not among the codes -128 to 127",
        ),
        ({"activations": "{relu6: relu}"}, "activations.relu6", "Write relu6"),
        (
            {"requantize": "{default: q31_single}", "multiplier": "{max_shift: 15}"},
            "multiplier.max_shift",
            "only multiplier_shift reads it",
        ),
        (
            {"multiplier": "{bits: 20, unify_shifts: true}"},
            "multiplier.unify_shifts",
            "15 bits at most, got bits: 20",
        ),
        ({"enclosing": "{format: float32}"}, "enclosing", "Write requantize: {default: exact}"),
        (
            {"requantize": "{default: exact}", "multiplier": "{}", "parameters": "{scale: float64}"},
            "requantize.default",
            "conv2d: it multiplies by the product of scales",
        ),
        (
            {"requantize": "{default: half_away}", "multiplier": "{shifts: [2, 62]}"},
            "requantize.default",
            "has no shifts of [2, 62]",
        ),
        (
            {"ops": "[add]", "requantize": "{default: q31_double}", "multiplier": "{sum_shift: 20}"},
            "requantize.default",
            "Write shifts: [2, 62] too",
        ),
        (
            {"parameters": "{zero_point: negated}"},
            "parameters.zero_point",
            "so that [0, max] loses a step (scheme 'w8a8'). Write range, or declare a defect",
        ),
        (
            {"ops": "[matmul]", "schemes": "[a16]", "requantize": "{default: q31_single}", "multiplier": "{}"},
            "requantize.default",
            "sums of 44 bits; times a multiplier of 31 bits they leave 64 bits",
        ),
        (
            {
                "ops": "[sub]",
                "rounding": "half_away",
                "requantize": "{default: q31_double}",
                "multiplier": "{left_shift: 24}",
            },
            "requantize.default",
            "operands of 34 bits after their shift",
        ),
        (
            {"ops": "[rms_norm]", "absorbs_zero_point": "[convolution, root_mean_square]"},
            "absorbs_zero_point.1",
            "rms_norm adds no products with weights",
        ),
        (
            {"ops": "[softmax]", "tables": "{exponential: power_of_two_table}"},
            "tables.exponential",
            "the shipped softmax has exact exponentials. Remove the key, or write a kernel and an oracle",
        ),
        (
            {"absorbs_zero_point": "[convolution]"},
            "absorbs_zero_point.0",
            "conv2d: a bias in float32 is a product of steps. Write parameters: {scale: float32_steps}",
        ),
        (
            {"padded_tiles": "{conv2d: 0}"},
            "padded_tiles.conv2d",
            "padding means 0, and the zero points of scheme 'w8a8' are other codes. Remove the key, or declare a defect",
        ),
        (
            {"tables": "{segments: 512, full_bits: 7}"},
            "tables.segments",
            "512 segments of 256 codes (8 bits): a segment has one code at least. Write 256 at most.",
        ),
    ],
)
def test_lint_refuses_settings_that_contradict_each_other(tmp_path: Path, keys: dict[str, str], place: str, said: str):
    problems = [line for line in linted(tmp_path, **keys) if f": {place}: " in line]
    assert problems
    assert said in problems[0]


def test_lint_accepts_the_suggested_settings(tmp_path: Path):
    assert linted(tmp_path) == []
    assert linted(tmp_path, parameters="{activation_sign: by_range}", schemes="[w8a8s, a8s]") == []
    assert linted(tmp_path, schemes="[w16a16, a16]", tables="{segments: 64}") == []
    assert linted(tmp_path, tables="{segments: 32, full_bits: 7}") == []
    assert linted(tmp_path, schemes="[w8a8s, a8s]", padded_tiles="{conv2d: 0}") == []
    assert linted(tmp_path, accumulator="{bits: 32, overflow: forbidden}") == []
    wraps = {"accumulator": "{bits: 32, overflow: wrap}", "requantize": "{default: q31_single}", "multiplier": "{}"}
    assert linted(tmp_path, ops="[matmul]", schemes="[a16]", **wraps) == []
    assert linted(tmp_path, parameters="{zero_point: negated}", schemes="[w8a8s, a8s]") == []


def test_weights_in_blocks_have_no_scale_per_tensor(tmp_path: Path):
    problems = linted(
        tmp_path,
        schemes="[w4g4a8]",
        scheme_families="{w4g4a8: [fully_connected]}",
        ops="[fully_connected]",
        requantize="{default: exact}",
        multiplier="{}",
        per_tensor_weights="[fully_connected]",
    )
    assert ["has a scale for each block" in line for line in problems] == [True]


def test_weights_in_blocks_need_activations_of_integers(tmp_path: Path):
    (tmp_path / "schemes.yaml").write_text("schemes: [w4g4a8e4m3]\n")
    problems = linted(
        tmp_path,
        schemes="[w4g4a8e4m3]",
        scheme_families="{w4g4a8e4m3: [fully_connected]}",
        ops="[fully_connected]",
        requantize="{default: exact}",
        multiplier="{}",
    )
    assert "weights in blocks, which need activations of integers, not float8_e4m3fn" in problems[0]
