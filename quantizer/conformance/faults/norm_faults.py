"""Faults inside a normalisation: its moments, its inverse root, its normalised value."""

from __future__ import annotations

from quantizer.conformance.faults import norm_changes as norm
from quantizer.conformance.faults.capabilities import centring, exponential, normalizing
from quantizer.conformance.faults.changes import attribute_change, next_shift, provided
from quantizer.conformance.faults.fault import Fault

NORMALISATIONS: tuple[Fault, ...] = (
    *(
        Fault(name, place, where, "quantized", wrap)
        for where, name, place, wrap in (
            (normalizing, "epsilon_dropped", "attribute", attribute_change("epsilon", lambda _: 0.0)),
            (("layer_norm", "rms_norm"), "axis_last", "attribute", attribute_change("axis", lambda _: -1)),
            (centring, "mean_plus_one", "mean", norm.step("divide", norm.plus(1))),
            (centring, "mean_floored", "mean", norm.step("divide", norm.floored)),
            (normalizing, "variance_plus_one", "variance", norm.step("_variance", norm.plus(1))),
            (normalizing, "variance_unbiased", "variance", norm.unbiased),
            (normalizing, "variance_few_bits", "variance", norm.step("square_root", norm.few_bits)),
            (normalizing, "variance_few_bits_table", "variance", norm.step("table_inverse_root", norm.few_bits)),
            (normalizing, "root_minus_one", "root", norm.step("square_root", norm.root_minus_one)),
            (normalizing, "inverse_root_q15", "root", norm.step("quotient", norm.inverse_in_q15)),
            (normalizing, "inverse_root_plus_one", "root", norm.step("table_inverse_root", norm.plus(1 << 16))),
            (normalizing, "quotient_plus_one", "normalised value", norm.step("quotient", norm.plus(1))),
            (
                normalizing,
                "normalized_plus_one",
                "normalised value",
                norm.step("shift_right", norm.normalized_plus_one),
            ),
            (normalizing, "gamma_missing", "weight", norm.without_gamma),
            (normalizing, "gamma_rolled", "weight", norm.rolled_gamma),
        )
    ),
    *(
        Fault(name, place, where, "quantize", provided(change))
        for where, name, place, change in (
            (centring, "variance_shift_next", "provided shift", norm.number_change("variance_shift", 2)),
            (normalizing, "norm_shift_next", "provided shift", norm.number_change("norm_shift", 1)),
            (normalizing, "norm_multiplier_next", "provided multiplier", norm.number_change("norm_multiplier", 1)),
        )
    ),
    Fault("provided_shift_next", "provided multiplier", exponential, "quantize", provided(next_shift)),
)
