"""Faults of how numbers become codes: rounding, multipliers, zero points, clips, biases, channels, accumulators."""

from __future__ import annotations

import torch

from quantizer.conformance.faults import by_kind
from quantizer.conformance.faults import code_changes as code
from quantizer.conformance.faults import number_changes as change
from quantizer.conformance.faults.capabilities import (
    added,
    along_channels,
    biased,
    calibrated,
    channelled,
    channelwise,
    coded,
    every,
    factored,
    fed_reals,
    multiplies_activations,
    paired,
    paired_to_the_last,
    recoded,
    reducing,
    summed,
    summing_with_bias,
    sums_products,
    two_operands,
    valued,
    weighted,
)
from quantizer.conformance.faults.changes import (
    clipped_codes,
    constant_codes,
    first_plus_one,
    input_zero,
    kernel,
    output_codes,
    output_zero,
    provided,
    quantizer_change,
    rolled_channels,
    scaled_output,
    significant_bits,
    swapped_factors,
    with_output,
    without_bias,
    wrapped_at_top,
)
from quantizer.conformance.faults.families import (
    at_zero_point,
    first_factor,
    first_zero,
    float32_accumulator,
    folded,
    last_at_zero_point,
    last_input_zero,
    linear_rule,
    operand_change,
    product,
    rolled,
    root_of_squares,
    under_power_of_two,
)
from quantizer.conformance.faults.fault import Fault
from quantizer.core.variants import Variant

_MODES = ("half_up", "half_down", "half_away", "half_toward_zero", "up", "down", "toward_zero")
_OPERATIONS = ("divide_float32", "multiply_float32", "inverse_float32")
_VARIANTS: tuple[Variant, ...] = ("f32_even", "q31_single", "q31_double", "q31_half_up", "half_away", "q15_half_up")

ARITHMETIC: tuple[Fault, ...] = (
    *(Fault(f"rounding_{mode}", "requantize", recoded, "quantized", by_kind.rounded(mode)) for mode in _MODES),  # type: ignore[arg-type]
    *(
        Fault(f"quantizer_{mode}", "quantizer", fed_reals, "quantized", quantizer_change(rounding=mode))
        for mode in _MODES
    ),
    *(
        Fault(f"quantizer_{name}", "quantizer", fed_reals, "quantized", quantizer_change(operation=name))
        for name in _OPERATIONS
    ),
    Fault("quantizer_zero_point_before", "quantizer", fed_reals, "quantized", quantizer_change(zero_point="before")),
    Fault("quantizer_zero_point_after", "quantizer", fed_reals, "quantized", quantizer_change(zero_point="after")),
    Fault("rounding_twice", "requantize", summed, "quantized", change.double_rounding),
    *(
        Fault(f"requantized_as_{v}", "requantize", sums_products, "quantized", kernel(change.requantized_as(v)))
        for v in _VARIANTS
    ),
    Fault("multiplier_7_bits", "kernel multiplier", summed, "quantized", by_kind.coarser(significant_bits(7))),
    Fault("multiplier_8_bits", "kernel multiplier", summed, "quantized", by_kind.coarser(significant_bits(8))),
    Fault("multiplier_15_bits", "kernel multiplier", summed, "quantized", by_kind.coarser(significant_bits(15))),
    Fault("multiplier_truncated", "kernel multiplier", summed, "quantized", by_kind.coarser(change.truncated_bits(8))),
    Fault(
        "multiplier_15_bits_provided",
        "provided multiplier",
        sums_products,
        "quantize",
        provided(by_kind.multipliers(change.truncated_bits(14), factors=True)),
    ),
    Fault("multiplier_half", "kernel multiplier", recoded, "quantized", by_kind.halved),
    Fault(
        "multiplier_next",
        "provided multiplier",
        summed,
        "quantize",
        provided(by_kind.multipliers(lambda m: m + m * 2.0**-9)),
    ),
    Fault("shift_less_one", "kernel multiplier", summed, "quantized", kernel(by_kind.shifts(-1))),
    Fault("shift_more_provided", "provided multiplier", summed, "quantize", provided(by_kind.shifts(1))),
    Fault("input_zero_point", "kernel zero point", recoded, "quantized", kernel(input_zero)),
    Fault("input_zero_point_provided", "provided zero point", coded, "quantize", provided(input_zero)),
    Fault("input_zero_point_sign", "kernel zero point", summed, "quantized", kernel(code.zero_points(lambda z: -z))),
    Fault(
        "input_zero_point_dropped", "kernel zero point", summed, "quantized", kernel(code.zero_points(lambda z: z * 0))
    ),
    Fault("output_zero_point", "kernel zero point", calibrated, "quantized", kernel(output_zero)),
    Fault("output_zero_point_provided", "provided zero point", calibrated, "quantize", provided(output_zero)),
    Fault("output_zero_point_sign", "kernel zero point", summed, "quantized", kernel(code.output_zero_sign)),
    Fault("weight_zero_point", "kernel zero point", weighted, "quantized", kernel(code.weight_zero)),
    Fault("weight_zero_point_provided", "provided zero point", weighted, "quantize", provided(code.weight_zero)),
    Fault("last_zero_point", "kernel zero point", paired_to_the_last, "quantized", kernel(last_input_zero)),
    Fault("first_zero_point_for_all", "kernel zero point", paired, "quantized", kernel(first_zero)),
    Fault("product_of_zero_points", "sum", multiplies_activations, "accumulate", change.without_product_of_zeros),
    Fault("output_scale_x2", "provided scale", calibrated, "quantize", provided(scaled_output(2.0))),
    Fault("output_scale_x1.02", "provided scale", calibrated, "quantize", provided(scaled_output(1.02))),
    Fault("power_of_two_below", "provided scale", calibrated, "quantize", under_power_of_two(scaled_output(0.5))),
    Fault("power_of_two_above", "provided scale", calibrated, "quantize", under_power_of_two(scaled_output(2.0))),
    Fault("power_of_two_left_out", "provided scale", calibrated, "quantize", linear_rule),
    Fault("output_scale_next", "provided scale", calibrated, "quantize", provided(scaled_output(1 + 2.0**-20))),
    Fault("clip_low", "clip", calibrated, "quantized", output_codes(clipped_codes(1, 0))),
    Fault("clip_high", "clip", calibrated, "quantized", output_codes(clipped_codes(0, 1))),
    Fault("clip_missing", "clip", valued, "quantized", output_codes(wrapped_at_top)),
    Fault("clip_unsigned_as_signed", "clip", calibrated, "quantized", output_codes(code.output_other_sign)),
    Fault(
        "clip_range_provided",
        "provided clip",
        calibrated,
        "quantize",
        provided(lambda p: with_output(p, code.other_range)),
    ),
    Fault("clip_range", "clip", calibrated, "quantized", kernel(lambda p: with_output(p, code.other_range))),
    Fault("bias_missing", "bias", biased, "quantized", without_bias),
    Fault("bias_code", "provided bias", biased, "quantize", provided(constant_codes(1, first_plus_one))),
    Fault("bias_halved", "provided bias", biased, "quantize", provided(constant_codes(1, lambda c: c // 2))),
    Fault(
        "bias_int16",
        "provided bias",
        biased,
        "quantize",
        provided(constant_codes(1, lambda c: c.clamp(-(1 << 15), (1 << 15) - 1))),
    ),
    Fault("bias_of_first_channel", "provided bias", biased, "quantize", change.bias_of_first_channel),
    Fault("bias_after_rounding", "bias", summing_with_bias, "quantized", change.bias_after_rounding),
    Fault("bias_rolled", "bias", biased, "quantized", operand_change("bias", "beta", change=rolled(0))),
    Fault("weight_code", "provided weight", weighted, "quantize", provided(constant_codes(0, first_plus_one))),
    Fault("channel_scales_rolled", "kernel multiplier", weighted, "quantized", kernel(rolled_channels)),
    Fault("channel_last_stale", "kernel multiplier", weighted, "quantized", kernel(change.last_channel_stale)),
    Fault("channel_axis_last", "kernel multiplier", channelled, "quantized", change.multiplied_along_last),
    Fault("channels_rolled", "channels", channelwise, "quantized", operand_change("x", change=rolled(1))),
    Fault("weight_rolled", "channels", along_channels, "quantized", operand_change("weight", change=rolled(0))),
    Fault("accumulator_int16", "accumulator", sums_products, "quantized", kernel(change.accumulator(16))),
    Fault(
        "accumulator_int16_saturated",
        "accumulator",
        sums_products,
        "quantized",
        kernel(change.accumulator(16, "saturate")),
    ),
    Fault("accumulator_int24", "accumulator", sums_products, "quantized", kernel(change.accumulator(24))),
    Fault("accumulator_int32", "accumulator", sums_products, "quantized", kernel(change.accumulator(32))),
    Fault("accumulator_float32", "accumulator", sums_products, "quantized", kernel(float32_accumulator)),
    Fault("sum_plus_one", "accumulator", sums_products, "accumulate", change.sums(lambda acc, *_: acc + 1)),
    Fault("term_left_out", "sum", reducing, "quantized", operand_change("x", change=last_at_zero_point)),
    Fault("root_in_float32", "sum", ("reduce_l2",), "quantized", folded(root_of_squares, torch.float32)),
    Fault("squares_int16", "accumulator", ("reduce_l2",), "quantized", kernel(change.accumulator(16))),
    Fault("product_in_float32", "sum", ("reduce_prod",), "quantized", folded(product, torch.float32)),
    Fault("product_int64", "accumulator", ("reduce_prod",), "quantized", folded(product, torch.int64)),
    Fault("second_operand_zero", "operands", two_operands, "quantized", operand_change("b", change=at_zero_point("b"))),
    Fault("first_factor_for_all", "kernel factors", factored, "quantized", kernel(first_factor)),
    Fault("factors_swapped", "kernel factors", added, "quantized", kernel(swapped_factors)),
    Fault(
        "one_code_up", "output", every, "quantized", output_codes(lambda c, p: (c + 1).clamp(max=p.outputs["y"].qmax))
    ),
    Fault("first_code_up", "output", every, "quantized", output_codes(code.first_element(1))),
    Fault("last_code_down", "output", every, "quantized", output_codes(code.last_element)),
)
