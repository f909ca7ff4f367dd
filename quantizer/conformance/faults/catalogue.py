"""The faults that the gate must find."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from quantizer.conformance.faults import norm_changes as norm
from quantizer.conformance.faults.capabilities import (
    Capability,
    added,
    biased,
    calibrated,
    computed,
    cut,
    dilated,
    every,
    fusing,
    padded,
    paired,
    reducing,
    strided,
    summed,
    tabulated,
    valued,
    weighted,
    windowed,
)
from quantizer.conformance.faults.changes import (
    Wrap,
    attribute_change,
    batch_statistic,
    clipped_codes,
    column_major,
    constant_codes,
    constants_in_place,
    first_plus_one,
    half_precision,
    handed,
    in_place,
    input_zero,
    kernel,
    last_tile_dropped,
    mantissa_change,
    narrow_accumulator,
    next_shift,
    one_entry,
    other_tie,
    output_codes,
    output_zero,
    rolled_channels,
    rounding_mode,
    scaled_output,
    significant_bits,
    stale_result,
    swapped_factors,
    table_change,
    tables_in_place,
    weights_swapped_groups,
    without_bias,
    without_max,
    wrapped_at_top,
)
from quantizer.conformance.faults.families import (
    at_zero_point,
    filled_half_up,
    first_factor,
    first_zero,
    flipped_kernel,
    float32_accumulator,
    fused_as,
    inverse,
    last_at_zero_point,
    last_code_unread,
    last_copied,
    last_input_zero,
    mirrored,
    no_halo,
    number,
    one_wrong_entry,
    operand_change,
    raw_padding,
    rolled,
    six_less_one,
    swapped,
    tables_rounded,
    turned_table,
)
from quantizer.core.spec import Spec
from quantizer.ops import FunctionKind


@dataclass(frozen=True)
class Fault:
    """One fault: what it changes, in which operators, and how each function under test is wrapped."""

    id: str
    place: str
    where: tuple[str, ...] | Capability
    """Operators by name, for what only they can get wrong; else what an operator must have (`capabilities`)."""
    kind: FunctionKind
    wrap: Wrap

    def concerns(self, spec: Spec) -> bool:
        """Return whether the fault is planted in the operator; where it changes nothing it is not applicable."""
        return spec.op in self.where if isinstance(self.where, tuple) else self.where(spec)


CATALOGUE: tuple[Fault, ...] = (
    *(
        Fault(f"rounding_{mode}", "requantize", calibrated, "quantized", rounding_mode(mode))
        for mode in ("half_up", "half_down", "half_away", "half_toward_zero", "up", "down", "toward_zero")
    ),
    Fault("multiplier_7_bits", "kernel multiplier", weighted, "quantized", kernel(mantissa_change(significant_bits(7)))),
    Fault("multiplier_half", "kernel multiplier", calibrated, "quantized", kernel(mantissa_change(lambda m: m / 2))),
    Fault("multiplier_next", "handed multiplier", summed, "quantize", handed(mantissa_change(lambda m: m + m * 2.0**-9))),
    Fault("input_zero_point", "kernel zero point", calibrated, "quantized", kernel(input_zero)),
    Fault("input_zero_point_handed", "handed zero point", every, "quantize", handed(input_zero)),
    Fault("output_zero_point", "kernel zero point", calibrated, "quantized", kernel(output_zero)),
    Fault("output_zero_point_handed", "handed zero point", calibrated, "quantize", handed(output_zero)),
    Fault("output_scale_x2", "handed scale", calibrated, "quantize", handed(scaled_output(2.0))),
    Fault("output_scale_x1.02", "handed scale", calibrated, "quantize", handed(scaled_output(1.02))),
    Fault("padding_raw_zero", "padding", windowed, "quantized", raw_padding(lambda _: 0)),
    Fault("padding_zero_point", "padding", ("max_pool2d",), "quantized", raw_padding(lambda p: int(p.inputs["x"].zero_point))),
    Fault("padding_next", "padding", ("max_pool2d",), "quantized", raw_padding(lambda p: p.inputs["x"].qmin + 1)),
    Fault("bias_missing", "bias", biased, "quantized", without_bias),
    Fault("bias_code", "handed bias", biased, "quantize", handed(constant_codes(1, first_plus_one))),
    Fault("bias_halved", "handed bias", biased, "quantize", handed(constant_codes(1, lambda c: c // 2))),
    Fault("weight_code", "handed weight", weighted, "quantize", handed(constant_codes(0, first_plus_one))),
    Fault("channel_scales_rolled", "kernel multiplier", weighted, "quantized", kernel(rolled_channels)),
    Fault("clip_low", "clip", calibrated, "quantized", output_codes(clipped_codes(1, 0))),
    Fault("clip_high", "clip", calibrated, "quantized", output_codes(clipped_codes(0, 1))),
    Fault("clip_missing", "clip", valued, "quantized", output_codes(wrapped_at_top)),
    Fault("accumulator_int16", "accumulator", weighted, "quantized", kernel(narrow_accumulator)),
    Fault("bias_rolled", "bias", biased, "quantized", operand_change("bias", rolled(0))),
    Fault("stride_swapped", "attribute", strided, "quantized", attribute_change("stride", swapped)),
    Fault("dilation_swapped", "attribute", dilated, "quantized", attribute_change("dilation", swapped)),
    Fault("padding_mirrored", "attribute", padded, "quantized", attribute_change("padding", mirrored)),
    Fault("groups_reversed", "attribute", ("conv1d", "conv2d", "conv3d", "conv_transpose2d"), "quantized", weights_swapped_groups),
    Fault("count_include_pad_flipped", "attribute", ("avg_pool2d",), "quantized", attribute_change("count_include_pad", lambda v: not v)),
    Fault("channels_rolled", "channels", ("depthwise_conv2d", "max_pool2d", "avg_pool2d"), "quantized", operand_change("x", rolled(1))),
    Fault("kernel_flipped", "weights", ("conv1d", "conv2d", "conv3d", "depthwise_conv2d", "conv_transpose2d"), "quantized", operand_change("weight", flipped_kernel)),
    Fault("weight_rolled", "channels", ("batch_norm", "fully_connected"), "quantized", operand_change("weight", rolled(0))),
    Fault("halo_missing", "tile", windowed, "tile", no_halo),
    Fault("term_left_out", "sum", reducing, "quantized", operand_change("x", last_at_zero_point)),
    Fault("second_operand_zero", "operands", ("add", "sub", "mul", "maximum", "minimum", "matmul", "concat"), "quantized", operand_change("b", at_zero_point("b"))),
    Fault("last_zero_point", "kernel zero point", paired, "quantized", kernel(last_input_zero)),
    Fault("first_zero_point_for_all", "kernel zero point", paired, "quantized", kernel(first_zero)),
    Fault("first_factor_for_all", "kernel factors", ("concat", "add", "sub", "maximum", "minimum"), "quantized", kernel(first_factor)),
    Fault("accumulator_float32", "accumulator", ("conv1d", "conv2d", "conv3d", "conv_transpose2d", "depthwise_conv2d", "fully_connected"), "quantized", kernel(float32_accumulator)),
    Fault("activation_missing", "fused activation", fusing, "quantize", handed(fused_as({"relu": "none", "relu6": "none"}))),
    Fault("relu6_as_relu", "fused activation", fusing, "quantize", handed(fused_as({"relu6": "relu"}))),
    Fault("relu6_one_code_early", "fused activation", fusing, "quantized", output_codes(six_less_one)),
    Fault("relu_as_relu6", "fused activation", fusing, "quantize", handed(fused_as({"relu": "relu6"}))),
    Fault("last_tile_dropped", "tile", cut, "tile", last_tile_dropped),
    Fault("factors_swapped", "kernel factors", added, "quantized", kernel(swapped_factors)),
    Fault("table_index", "kernel table", computed, "quantized", kernel(table_change(lambda t: replace(t, entries=t.entries.roll(1))))),
    Fault("table_unsigned_index", "kernel table", tabulated, "quantized", kernel(table_change(turned_table))),
    Fault("table_one_entry", "handed table", tabulated, "quantize", handed(table_change(one_wrong_entry))),
    Fault("table_one_entry_read", "kernel table", tabulated, "quantized", kernel(table_change(one_wrong_entry))),
    Fault("table_last_code", "kernel table", tabulated, "quantized", operand_change("x", last_code_unread)),
    Fault("table_half_up", "handed table", ("clip", "leaky_relu"), "quantize", tables_rounded("half_up")),
    Fault("slope_handed_next", "handed number", ("leaky_relu",), "quantize", handed(number("slope", 1))),
    Fault("bound_handed_next", "handed number", ("clip",), "quantize", handed(number("high", 1))),
    Fault("slope_next", "kernel number", ("leaky_relu",), "quantized", kernel(number("slope", 1))),
    Fault("bound_next", "kernel number", ("clip",), "quantized", kernel(number("high", 129))),
    Fault("table_entries", "handed table", computed, "quantize", handed(table_change(one_entry))),
    Fault("softmax_without_max", "softmax", ("softmax",), "quantized", without_max),
    Fault("argmax_other_tie", "index", ("argmax",), "quantized", other_tie),
    Fault("perm_inverse", "movement", ("transpose",), "quantized", attribute_change("perm", inverse)),
    Fault("fill_half_up", "movement", ("pad",), "quantized", filled_half_up),
    Fault("last_copied", "operands", ("concat",), "quantized", last_copied),
    Fault("pad_zero", "movement", ("pad",), "quantized", attribute_change("value", lambda _: 0.0)),
    Fault("reshape_column_major", "movement", ("reshape",), "quantized", column_major),
    Fault("one_code_up", "output", every, "quantized", output_codes(lambda c, p: (c + 1).clamp(max=p.outputs["y"].qmax))),
    Fault("stale_second_run", "state", every, "quantized", stale_result),
    Fault("batch_statistic", "state", every, "quantized", batch_statistic),
    Fault("operand_in_place", "state", every, "quantized", in_place),
    Fault("reference_in_place", "state", every, "reference", in_place),
    Fault("constants_in_place", "state", weighted, "quantize", constants_in_place),
    Fault("tables_in_place", "state", computed, "quantized", tables_in_place),
    *(
        Fault(name, place, ("layer_norm",), "quantized", wrap)
        for name, place, wrap in (
            ("epsilon_dropped", "attribute", attribute_change("epsilon", lambda _: 0.0)),
            ("axis_last", "attribute", attribute_change("axis", lambda _: -1)),
            ("mean_plus_one", "mean", norm.step("divide", norm.plus(1))),
            ("mean_floored", "mean", norm.step("divide", norm.floored)),
            ("variance_plus_one", "variance", norm.step("_variance", norm.plus(1))),
            ("variance_unbiased", "variance", norm.unbiased),
            ("variance_few_bits", "variance", norm.step("square_root", norm.few_bits)),
            ("variance_few_bits_table", "variance", norm.step("table_inverse_root", norm.few_bits)),
            ("root_minus_one", "root", norm.step("square_root", norm.root_minus_one)),
            ("inverse_root_q15", "root", norm.step("quotient", norm.inverse_in_q15)),
            ("inverse_root_plus_one", "root", norm.step("table_inverse_root", norm.plus(1 << 16))),
            ("quotient_plus_one", "normalised value", norm.step("quotient", norm.plus(1))),
            ("normalized_plus_one", "normalised value", norm.step("shift_right", norm.normalized_plus_one)),
            ("gamma_missing", "weight", norm.without_gamma),
            ("gamma_rolled", "weight", norm.rolled_gamma),
        )
    ),
    *(
        Fault(name, place, ("layer_norm",), "quantize", handed(change))
        for name, place, change in (
            ("variance_shift_next", "handed shift", norm.number_change("variance_shift", 2)),
            ("norm_shift_next", "handed shift", norm.number_change("norm_shift", 1)),
            ("norm_multiplier_next", "handed multiplier", norm.number_change("norm_multiplier", 1)),
        )
    ),
    Fault("handed_shift_next", "handed multiplier", computed, "quantize", handed(next_shift)),
    Fault("float16_reference", "float path", every, "reference", half_precision),
)  # fmt: skip


def pairs(specs: Iterable[Spec]) -> list[tuple[Fault, str]]:
    """Return every fault with every operator that it concerns, in the order of the catalogue."""
    known = list(specs)
    return [(fault, spec.op) for fault in CATALOGUE for spec in known if fault.concerns(spec)]
