"""How a ratio of scales is formed, and how an exact sum becomes codes: the words that platform files name."""

from __future__ import annotations

from typing import Literal

RatioArithmetic = Literal["float64", "float32_product", "float32_product_of_one", "float32"]
"""How the ratio of scales is formed before it becomes a fixed-point multiplier; real kernels have all four.

float64: convolutions; float32_product (scales multiplied in float32, divided in float64): batch matmul;
float32_product_of_one (as float32_product where all channels share one ratio, else float64): fully connected without a
delegate; float32: mul. Verified on a real system with 12 to 100 million elements each.
"""
Variant = Literal[
    "exact",
    "f32_even",
    "f32_even_zpin",
    "q31_single",
    "q31_double",
    "q31_half_up",
    "q31_half_up_in_8_lanes",
    "q31_folded",
    "q31_mean_in_16_lanes",
    "q21_half_up",
    "q8_half_up",
    "mean_of_codes_half_away",
    "f32_mean_of_codes_half_even",
    "f32_mean_of_codes_half_away",
    "half_away",
    "q15_half_up",
    "q15_single",
    "multiplier_shift",
    "area_multiplier",
    "area_reciprocal",
    "f32_dequantized",
    "q31_wrapping_left",
    "q31_wrapping",
    "integer_multiplier_shift",
    "f32_even_bias",
    "f32_even_inverse",
    "f32_stages_bias",
    "f32_products",
    "f32_scaling",
    "f32_add_in_lanes",
    "f32_dequantized_fused",
    "f32_mean_divided",
    "f32_mean_zpin",
    "f32_mean_raw",
    "f32_mean_inverse",
    "aligned_half_away",
    "half_up",
    "quotient_first",
]
"""How an exact sum becomes codes.

Variants of torch's quantized operators compute in float32. s and z are scale and zero
point of x (or a, b), w and y:

f32_even_bias: (acc + bias / (s_x s_w)) * (s_x s_w / s_y); per tensor the bias times an inverse, in one rounding.
f32_even_inverse (mul): acc * (s_x s_w * (1 / s_y)); a bias of more bits than float32 holds loses low ones.
f32_stages_bias: (acc * (1 / (1 / s_x)) * s_w + bias) * (1 / s_y) + z_y, then one rounding to a code. f32_products:
products of dequantized values, added in float32. f32_scaling: (x - z_x) * (w s_x / s_y) + bias / s_y, fused.
f32_add_in_lanes: operands dequantized and added; in whole vectors fused and z_y added after rounding, in the rest not
and before. f32_dequantized_fused: x dequantized, times 1 / s_y plus z_y in one rounding, to a code. f32_mean_divided:
sum / n + z, then one rounding to a code. f32_mean_zpin: sum * (1 / n) + z. f32_mean_raw: the sum of raw codes * (1 /
n); of one channel as f32_mean_zpin. f32_mean_inverse: sum * (s / (s n)), z added after rounding. half_up: one quotient,
rounded half up (softmax). quotient_first: the integer quotient of exponential and sum, rounded half up, then multiplier
and shift (softmax; under multiplier_shift the multiplier is divided by the sum first). aligned_half_away: two ratios as
integers of 22 bits under one shift, rounded half away; else as f32_add_in_lanes.

Where these say that z_y is added before rounding, or in one rounding with the product, the kernel ends as the
platform's `quantizer` does: with `zero_point: after` it rounds only the product and then adds z_y. That holds for
f32_products, f32_add_in_lanes, f32_dequantized_fused, aligned_half_away, and means of one channel (f32_mean_zpin).
"""
