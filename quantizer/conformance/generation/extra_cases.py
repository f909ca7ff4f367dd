"""Cases beyond spec examples and covering-array rows: those of every target, and those distributed over targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quantizer.conformance.generation.case_classes.axes_of_images import axes_of_images
from quantizer.conformance.generation.case_classes.broadcast_axes import broadcast_axes
from quantizer.conformance.generation.case_classes.conditions import conditions, every_condition
from quantizer.conformance.generation.case_classes.deep import cancelling_and_wide, deep
from quantizer.conformance.generation.case_classes.edge_numbers import edge_numbers
from quantizer.conformance.generation.case_classes.exhaustive import exhaustive_cases
from quantizer.conformance.generation.case_classes.first_broadcast import fewer_axes, first_broadcast, mutual_broadcast
from quantizer.conformance.generation.case_classes.joint_sizes import joint_sizes
from quantizer.conformance.generation.case_classes.last_of_row import last_of_row
from quantizer.conformance.generation.case_classes.layers import layers
from quantizer.conformance.generation.case_classes.long_rows import long_rows
from quantizer.conformance.generation.case_classes.long_sizes import long_sizes
from quantizer.conformance.generation.case_classes.long_windows import long_windows
from quantizer.conformance.generation.case_classes.many_tiles import many_tiles
from quantizer.conformance.generation.case_classes.matrices import matrices
from quantizer.conformance.generation.case_classes.mixed_sizes import mixed_sizes
from quantizer.conformance.generation.case_classes.near_ties import near_ties
from quantizer.conformance.generation.case_classes.one_difference import one_difference_cases
from quantizer.conformance.generation.case_classes.past_blocks import one_rest, past_blocks
from quantizer.conformance.generation.case_classes.past_counter import (
    past_counter,
    past_counter_of_outputs,
    past_counter_of_sums,
)
from quantizer.conformance.generation.case_classes.patterned import patterned
from quantizer.conformance.generation.case_classes.products import products
from quantizer.conformance.generation.case_classes.resized_channels import resized_channels
from quantizer.conformance.generation.case_classes.scaled import far_below, one_sided, scaled, tiny
from quantizer.conformance.generation.case_classes.signals import signals
from quantizer.conformance.generation.case_classes.simple_moves import exchanged, falling_axes, repeated_number
from quantizer.conformance.generation.case_classes.tables import tables, unlike_axes
from quantizer.conformance.generation.case_classes.twice_rounded import twice_rounded
from quantizer.conformance.generation.case_classes.uneven_windows import uneven_windows
from quantizer.conformance.generation.case_classes.usual_sizes import shortened, tripled, usual_sizes
from quantizer.conformance.generation.case_classes.usual_windows import (
    ceiled,
    first_layer,
    fully_padded,
    grouped_windows,
    images,
    overlapping,
    patches,
    same_padding,
    spaced,
    usual_windows,
)
from quantizer.conformance.generation.case_classes.window_channels import deep_windows, spaced_vectors
from quantizer.conformance.generation.case_classes.zero_points import zero_points
from quantizer.conformance.target import Target
from quantizer.core.case import Case

EXTRA_CASES: tuple[Callable[[Target], list[Case]], ...] = (
    one_difference_cases,
    near_ties,
    twice_rounded,
    scaled,
    one_sided,
    exhaustive_cases,
    usual_windows,
    long_windows,
    usual_sizes,
    deep,
    cancelling_and_wide,
    edge_numbers,
    patterned,
    first_broadcast,
    past_blocks,
    last_of_row,
)
"""Functions whose cases every target runs."""


def shared_cases(everything: Sequence[Target], target: Target, *, strong: bool = False) -> list[Case]:
    """Return the target's share of the cases that its platform's or its operator's targets among *everything* share.

    *strong*: with every combination of conditions, as in nightly runs.
    """
    met = every_condition if strong else conditions
    return [
        *met(everything, target),
        *zero_points(everything, target),
        *joint_sizes(everything, target),
        *patches(everything, target),
        *ceiled(everything, target),
        *tripled(everything, target),
        *mutual_broadcast(everything, target),
        *first_layer(everything, target),
        *tiny(everything, target),
        *uneven_windows(everything, target),
        *long_sizes(everything, target),
        *one_rest(everything, target),
        *far_below(everything, target),
        *mixed_sizes(everything, target, strong=strong),
        *past_counter(everything, target),
        *past_counter_of_outputs(everything, target),
        *past_counter_of_sums(everything, target),
        *overlapping(everything, target),
        *fully_padded(everything, target),
        *grouped_windows(everything, target),
        *long_rows(everything, target),
        *fewer_axes(everything, target),
        *tables(everything, target),
        *unlike_axes(everything, target),
        *repeated_number(everything, target),
        *exchanged(everything, target),
        *signals(everything, target),
        *deep_windows(everything, target),
        *spaced_vectors(everything, target),
        *images(everything, target),
        *same_padding(everything, target),
        *products(everything, target),
        *spaced(everything, target),
        *shortened(everything, target),
        *layers(everything, target, strong=strong),
        *axes_of_images(everything, target, strong=strong),
        *broadcast_axes(everything, target, strong=strong),
        *matrices(everything, target, strong=strong),
        *resized_channels(everything, target, strong=strong),
        *many_tiles(everything, target, strong=strong),
        *falling_axes(everything, target),
    ]
