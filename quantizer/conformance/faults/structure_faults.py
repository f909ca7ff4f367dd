"""Faults in inputs and outputs of an operator: attributes, tables, movement, tiles, state, files, float paths."""

from __future__ import annotations

from dataclasses import replace

from quantizer.conformance.faults import by_kind
from quantizer.conformance.faults import code_changes as code
from quantizer.conformance.faults import rule_changes as rule
from quantizer.conformance.faults import tile_changes as tile
from quantizer.conformance.faults.capabilities import (
    along_axis,
    biased,
    calibrated,
    computed,
    counting,
    cut,
    dilated,
    every,
    filtered,
    fusing,
    grouped,
    indexing,
    multiplying_channels,
    padded,
    picking_windows,
    recoded,
    rounding_up,
    spatial_cut,
    splitting,
    strided,
    sums_products,
    tabulated,
    valued,
    weighted,
    windowed,
)
from quantizer.conformance.faults.changes import (
    attribute_change,
    batch_statistic,
    column_major,
    constants_in_place,
    half_precision,
    in_place,
    kernel,
    last_tile_dropped,
    one_entry,
    other_tie,
    output_codes,
    provided,
    stale_result,
    table_change,
    tables_in_place,
    weights_swapped_groups,
    with_output,
    without_bias,
    without_max,
)
from quantizer.conformance.faults.families import (
    filled_half_up,
    flipped_kernel,
    fused_as,
    inverse,
    last_code_unread,
    last_copied,
    mirrored,
    no_halo,
    one_wrong_entry,
    operand_change,
    raw_padding,
    six_less_one,
    swapped,
    tables_rounded,
    turned_table,
)
from quantizer.conformance.faults.fault import Fault
from quantizer.conformance.faults.number_changes import multiplier_in_place

ATTRIBUTES: tuple[Fault, ...] = (
    Fault("padding_raw_zero", "padding", windowed, "quantized", raw_padding(lambda _: 0)),
    Fault(
        # a selection such as max pooling pads with the smallest code, so the zero point is a fault in it
        "padding_zero_point",
        "padding",
        picking_windows,
        "quantized",
        raw_padding(lambda p: int(p.inputs["x"].zero_point)),
    ),
    Fault("padding_next", "padding", picking_windows, "quantized", raw_padding(lambda p: p.inputs["x"].qmin + 1)),
    Fault("stride_swapped", "attribute", strided, "quantized", attribute_change("stride", swapped)),
    Fault("dilation_swapped", "attribute", dilated, "quantized", attribute_change("dilation", swapped)),
    Fault("padding_mirrored", "attribute", padded, "quantized", attribute_change("padding", mirrored)),
    Fault("padding_moved", "attribute", padded, "quantized", attribute_change("padding", code.padding_moved)),
    Fault("groups_reversed", "attribute", grouped, "quantized", weights_swapped_groups),
    Fault("groups_interleaved", "attribute", grouped, "quantized", code.groups_interleaved),
    Fault("filters_interleaved", "channels", multiplying_channels, "quantized", code.filters_interleaved),
    Fault(
        "count_include_pad_flipped",
        "attribute",
        counting,
        "quantized",
        attribute_change("count_include_pad", lambda v: not v),
    ),
    Fault("overhang_left_out", "attribute", counting, "quantized", code.overhang_left_out),
    Fault("ceil_mode_flipped", "attribute", rounding_up, "quantized", attribute_change("ceil_mode", lambda v: not v)),
    Fault("kernel_flipped", "weights", filtered, "quantized", operand_change("weight", change=flipped_kernel)),
    Fault(
        "slope_shared",
        "weights",
        ("prelu",),
        "quantized",
        operand_change("weight", change=lambda w, _: w[:1].expand_as(w).clone()),
    ),
    Fault(
        "axis_previous", "attribute", along_axis, "quantized", attribute_change("axis", lambda v: v - 1 if v > 0 else v)
    ),
    Fault("argmax_other_tie", "index", indexing, "quantized", other_tie),
    Fault("perm_inverse", "movement", ("transpose",), "quantized", attribute_change("perm", inverse)),
    Fault("fill_half_up", "movement", ("pad",), "quantized", filled_half_up),
    Fault("pad_zero", "movement", ("pad",), "quantized", attribute_change("value", lambda _: 0.0)),
    Fault("pad_unclamped", "movement", ("pad",), "quantized", code.fill_unclamped),
    Fault("last_copied", "operands", ("concat",), "quantized", last_copied),
    Fault("reshape_column_major", "movement", ("reshape",), "quantized", column_major),
    Fault(
        "activation_missing",
        "fused activation",
        fusing,
        "quantize",
        provided(fused_as({"relu": "none", "relu6": "none"})),
    ),
    Fault("relu6_as_relu", "fused activation", fusing, "quantize", provided(fused_as({"relu6": "relu"}))),
    Fault("relu6_one_code_early", "fused activation", fusing, "quantized", output_codes(six_less_one)),
    Fault("relu_as_relu6", "fused activation", fusing, "quantize", provided(fused_as({"relu": "relu6"}))),
)

TABLES: tuple[Fault, ...] = (
    Fault(
        "table_index",
        "kernel table",
        computed,
        "quantized",
        kernel(table_change(lambda t: replace(t, entries=t.entries.roll(1)))),
    ),
    Fault("table_unsigned_index", "kernel table", tabulated, "quantized", kernel(table_change(turned_table))),
    Fault("table_one_entry", "provided table", tabulated, "quantize", provided(table_change(one_wrong_entry))),
    Fault("table_one_entry_read", "kernel table", tabulated, "quantized", kernel(table_change(one_wrong_entry))),
    Fault("table_last_code", "kernel table", tabulated, "quantized", operand_change("x", change=last_code_unread)),
    Fault("table_last_cell", "kernel table", tabulated, "quantized", rule.last_cell_extrapolated),
    Fault(
        "table_interpolation", "kernel table", tabulated, "quantized", kernel(table_change(rule.other_interpolation))
    ),
    Fault("table_not_interpolated", "kernel table", tabulated, "quantized", rule.not_interpolated),
    Fault("table_half_up", "provided table", ("clip", "leaky_relu"), "quantize", tables_rounded("half_up")),
    Fault("table_floored", "provided table", tabulated, "quantize", tables_rounded("down")),
    Fault("table_half_cell", "provided table", computed, "quantize", provided(table_change(rule.half_cell_late))),
    Fault("table_coarser", "provided table", computed, "quantize", provided(table_change(rule.coarser_table))),
    Fault("table_few_bits", "provided table", computed, "quantize", provided(table_change(rule.few_bits))),
    Fault("table_entries", "provided table", computed, "quantize", provided(table_change(one_entry))),
    Fault("slope_provided_next", "provided number", ("leaky_relu",), "quantize", provided(by_kind.slope(1))),
    Fault("bound_provided_next", "provided number", ("clip",), "quantize", provided(by_kind.limit(1))),
    Fault("slope_next", "kernel number", ("leaky_relu",), "quantized", kernel(by_kind.slope(1))),
    Fault("bound_next", "kernel number", ("clip",), "quantized", kernel(by_kind.limit(129))),
    Fault("softmax_without_max", "softmax", ("softmax",), "quantized", without_max),
)

TILES: tuple[Fault, ...] = (
    Fault("halo_missing", "tile", windowed, "tile", no_halo),
    Fault("halo_too_wide", "tile", spatial_cut, "tile", tile.retiled(tile.halo_too_wide)),
    Fault("halo_shifted", "tile", spatial_cut, "tile", tile.retiled(tile.halo_shifted)),
    Fault("tile_padding_everywhere", "tile", spatial_cut, "tile", tile.retiled(tile.padding_everywhere)),
    Fault("last_tile_dropped", "tile", cut, "tile", last_tile_dropped),
    Fault("seam_doubled", "tile", cut, "tile", tile.retiled(tile.seam_doubled)),
    Fault("tiles_exchanged", "tile", cut, "tile", tile.retiled(tile.seam_late)),
    Fault("split_sum_restarted", "tile", splitting, "tile", tile.retiled(tile.sum_restarted)),
    Fault("split_part_left_out", "tile", splitting, "tile", tile.retiled(tile.part_left_out)),
)

RULES: tuple[Fault, ...] = (
    Fault("range_not_widened", "quantize rule", calibrated, "quantize", rule.not_widened),
    Fault("zero_point_unclamped", "quantize rule", calibrated, "quantize", rule.zero_point_unclamped),
    Fault("output_sign", "quantize rule", calibrated, "quantize", provided(lambda p: with_output(p, rule.other_sign))),
    Fault("input_sign", "dtype", recoded, "quantized", code.first_operand_other_sign),
    Fault("weight_sign", "dtype", weighted, "quantized", code.weight_change(code.wrapped)),
    Fault("weight_nibbles_swapped", "dtype", weighted, "quantized", code.weight_change(code.swapped_nibbles)),
    Fault("calibration_percentile", "calibration", recoded, "quantize", rule.ranges(rule.percentile)),
    Fault("calibration_of_the_run", "calibration", recoded, "quantize", rule.ranges(rule.extrema_of_sample)),
    Fault("calibration_mean", "calibration", recoded, "quantize", rule.ranges(rule.mean_of_batches)),
    Fault("calibration_of_magnitude", "calibration", calibrated, "quantize", rule.ranges(rule.of_magnitude)),
    Fault("calibration_in_float16", "calibration", calibrated, "quantize", rule.ranges(rule.in_float16)),
    Fault("weights_rounded_down", "provided weight", weighted, "quantize", rule.quantizer(rounding="down")),
    Fault("weights_rounded_half_away", "provided weight", weighted, "quantize", rule.quantizer(rounding="half_away")),
    Fault("weight_scale_per_tensor", "quantize rule", weighted, "quantize", rule.weights(granularity="tensor")),
    Fault("weight_range_full", "quantize rule", weighted, "quantize", rule.other_weight_range),
)

STATE: tuple[Fault, ...] = (
    # found only by a second run, another batch, or a comparison of what was passed in
    Fault("stale_second_run", "state", every, "quantized", stale_result),
    Fault("batch_statistic", "state", every, "quantized", batch_statistic),
    Fault("operand_in_place", "state", every, "quantized", in_place),
    Fault("reference_in_place", "state", every, "reference", in_place),
    Fault("constants_in_place", "state", weighted, "quantize", constants_in_place),
    Fault("tables_in_place", "state", computed, "quantized", tables_in_place),
    Fault("multiplier_in_place", "state", sums_products, "quantized", multiplier_in_place),
)

FLOATS: tuple[Fault, ...] = (
    Fault("float16_reference", "float path", every, "reference", half_precision),
    Fault("bfloat16_reference", "float path", valued, "reference", code.bfloat16),
    Fault(
        "reference_axis",
        "float path",
        along_axis,
        "reference",
        attribute_change("axis", lambda v: v - 1 if v > 0 else v),
    ),
    Fault("reference_without_bias", "float path", biased, "reference", without_bias),
    # 2**-18 is 32 units in the last place of float32
    Fault("reference_one_ulp", "float path", valued, "reference", code.relative(2.0**-18)),
)
