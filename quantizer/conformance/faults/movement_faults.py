"""Faults of operators that move or pick codes: which elements, in which order."""

from __future__ import annotations

from quantizer.conformance.faults import movement_changes as move
from quantizer.conformance.faults.capabilities import blocked, comparing, ordering, pairing, picking, pointing, resizing
from quantizer.conformance.faults.changes import attribute_change, input_zero, kernel, provided, rounding_mode
from quantizer.conformance.faults.families import first_zero
from quantizer.conformance.faults.fault import Fault
from quantizer.conformance.faults.norm_changes import number_change

MOVEMENTS: tuple[Fault, ...] = (
    Fault("begin_next", "movement", ("slice",), "quantized", attribute_change("begin", move.each_next)),
    Fault("end_before", "movement", ("slice",), "quantized", attribute_change("end", move.each_before)),
    Fault("slice_forwards", "movement", ("slice",), "quantized", move.forwards),
    Fault("index_next", "movement", pointing, "quantized", move.each_index_next),
    Fault("index_before_zero_is_first", "movement", pointing, "quantized", move.none_from_the_end),
    Fault("index_of_eight_bits", "movement", pointing, "quantized", move.indices_in_a_byte),
    Fault("pairs_share_indices", "movement", pairing, "quantized", move.first_indices_for_all),
    Fault("pieces_from_the_start", "movement", ("split",), "quantized", move.each_from_the_start),
    Fault("pieces_of_one_size", "movement", ("split",), "quantized", move.each_at_its_multiple),
    Fault("pieces_begin_next", "movement", ("split",), "quantized", move.each_one_later),
    Fault("pieces_exchanged", "movement", ("split",), "quantized", move.like_pieces_exchanged),
    Fault("blocks_other_mode", "movement", ("depth_to_space",), "quantized", attribute_change("mode", move.other_mode)),
    Fault("blocks_transposed", "movement", blocked, "quantized", move.places_transposed),
    Fault("repeated_by_element", "movement", ("replicate",), "quantized", move.each_element_repeated),
    Fault("squeezed_backwards", "movement", ("squeeze",), "quantized", move.turned_around),
    Fault("places_moved", "movement", resizing, "quantized", attribute_change("mode", move.other_places)),
    Fault("other_side", "movement", ("resize_nearest",), "quantized", attribute_change("rounding", move.other_side)),
    Fault("mean_half_up", "requantize", ("resize_bilinear",), "quantized", rounding_mode("half_up")),
    Fault("mean_down", "requantize", ("resize_bilinear",), "quantized", rounding_mode("down")),
    Fault("mean_of_raw_input", "zero point", ("resize_bilinear",), "quantized", kernel(input_zero)),
    Fault(
        "weights_coarser", "kernel number", ("resize_bilinear",), "quantized", kernel(number_change("weight_bits", -1))
    ),
    Fault(
        "weights_provided_coarser", "provided number", resizing, "quantize", provided(number_change("weight_bits", -1))
    ),
    Fault("sides_exchanged", "selection", ordering, "quantized", move.sides_exchanged),
    Fault("equal_counts_too", "selection", ordering, "quantized", move.not_the_other_way),
    Fault("scales_left_out", "kernel scale", comparing, "quantized", kernel(move.scales_left_out)),
    Fault("compared_zero_point", "kernel zero point", comparing, "quantized", kernel(input_zero)),
    Fault("compared_by_raw_codes", "kernel zero point", comparing, "quantized", kernel(first_zero)),
    Fault("other_end", "selection", picking, "quantized", move.other_end),
    Fault("first_left_out", "selection", picking, "quantized", move.first_left_out),
)
