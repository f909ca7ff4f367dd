"""Real ratios become multipliers: TensorFlow Lite's fixed point and Compass's own numbers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from quantizer.conformance.expected.multipliers import Shifts
from quantizer.conformance.expected.multipliers import float32_multiplier as expected_multiplier
from quantizer.core.errors import GraphError
from quantizer.core.platform_settings import Multiplier
from quantizer.core.platforms import Platform
from quantizer.core.variants import Variant
from quantizer.numerics.ratio_to_multiplier import fixed_point, float32_multiplier, q15, rescale, unify_shifts

# Written by the Compass Optimizer for single operators (reference runs): operator, configuration, activation bits,
# float32 steps of input and weights (per tensor or channel) and output, then its multipliers and their one shift.
COMPASS = [
    ("conv3x3", "a16", 16, 5473.19140625, [31472.248046875, 14212.171875, 22266.4609375, 16621.580078125,
     16776.89453125, 17951.564453125], 854.0357666015625, [10647, 23578, 15049, 20160, 19973, 18667], 31),
    ("conv3x3", "default", 8, 24.293907165527344, 55.08425521850586, 5.417685031890869, 133, 15),
    ("conv3x3", "ext", 8, 21.296463012695312, 55.08425521850586, 3.32309627532959, 186, 16),
    ("conv3x3", "pc_asym", 8, 24.05242156982422, [121.98173522949219, 55.08425521850586, 86.30147552490234,
     64.42276000976562, 65.02474212646484, 69.57758331298828], 4.068809986114502, [182, 402, 256, 344, 340, 318],
     17),
    ("dwconv3x3", "a16", 16, 5473.19140625, [18673.58984375, 22547.525390625, 16148.759765625, 14319.26953125,
     18552.669921875, 14578.693359375], 1564.5367431640625, [16437, 13613, 19007, 21435, 16544, 21054], 30),
    ("dwconv3x3", "default", 8, 24.11579704284668, [72.37604522705078, 87.3908462524414, 62.590179443359375,
     55.499351501464844, 71.90737915039062, 56.50484085083008], 7.341969013214111, [276, 228, 318, 360, 278,
     354], 16),
    ("dwconv3x3", "ext", 8, 21.296463012695312, [72.37604522705078, 87.3908462524414, 62.590179443359375,
     55.499351501464844, 71.90737915039062, 56.50484085083008], 6.087691783905029, [258, 214, 300, 338, 260,
     332], 16),
    ("dwconv3x3", "pc_asym", 8, 24.05242156982422, [72.37604522705078, 87.3908462524414, 62.590179443359375,
     55.499351501464844, 71.90737915039062, 56.50484085083008], 6.580458641052246, [248, 205, 286, 324, 249,
     318], 16),
    ("fc", "a16", 16, 7691.9501953125, [17188.1640625, 14499.01171875, 16786.560546875, 17616.138671875,
     15877.056640625, 17247.048828125, 14214.48828125, 17829.5234375, 11452.71875, 12418.6162109375],
     1317.22412109375, [21396, 25364, 21907, 20876, 23162, 21323, 25872, 20626, 32110, 29613], 31),
    ("fc", "default", 8, 46.690860748291016, 44.38903045654297, 8.838606834411621, 140, 15),
    ("fc", "ext", 8, 29.929767608642578, 44.38903045654297, 5.125385761260986, 253, 16),
    ("fc", "pc_asym", 8, 33.864341735839844, [66.61875915527344, 56.196006774902344, 65.06220245361328,
     68.27752685546875, 61.53710174560547, 66.84698486328125, 55.09323501586914, 69.10457611083984,
     44.38903045654297, 48.1327018737793], 6.645143985748291, [193, 229, 198, 188, 209, 192, 233, 186, 290, 268],
     16),
    ("matmul", "a16", 16, 7691.9501953125, 6070.4833984375, 1838.9761962890625, 21144, 29),
    ("matmul", "default", 8, 46.690860748291016, 32.05485153198242, 10.732010841369629, 235, 15),
    ("matmul", "ext", 8, 29.929767608642578, 23.62055778503418, 7.1555495262146, 166, 14),
    ("matmul", "pc_asym", 8, 33.864341735839844, 29.64573097229004, 7.384768962860107, 241, 15),
]  # fmt: skip


def platform(variant: Variant, **multiplier: Any) -> Platform:
    return Platform(
        platform="p", summary="", schemes=["w8a8"], requantize={"default": variant}, multiplier=Multiplier(**multiplier)
    )


COMPASS_RULE: dict[str, Any] = {"bits": "activation", "max_bits": 15, "unify_shifts": True}


@pytest.mark.parametrize("row", COMPASS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_compass_numbers_of_the_real_optimizer(row: tuple[Any, ...]) -> None:
    _, _, bits, x, w, y, multiplier, shift = row
    steps = [torch.tensor(x, dtype=torch.float32), torch.tensor(w, dtype=torch.float32)]
    scales = [1.0 / s.to(torch.float64) for s in steps]
    made = rescale(
        platform("multiplier_shift", **COMPASS_RULE),
        "conv",
        scales,
        1.0,
        bits,
        steps=steps,
        output_steps=y,
    )
    assert made.mantissa.tolist() == multiplier
    assert set(made.shift.reshape(-1).tolist()) == {shift}


def test_compass_ties_to_one_all_channels_at_once() -> None:
    assert [t.item() for t in float32_multiplier(torch.tensor(0.9999), 8)] == [1, 0]
    together = float32_multiplier(torch.tensor([0.9999, 1.0]), 8)
    assert [t.tolist() for t in together] == [[1, 1], [0, 0]]
    apart = float32_multiplier(torch.tensor([0.9999, 0.5]), 8)
    assert [t.tolist() for t in apart] == [[128, 128], [7, 8]]


def test_compass_shift_is_capped_and_may_be_negative() -> None:
    assert [t.item() for t in float32_multiplier(torch.tensor(1e-9), 8)] == [2, 31]
    assert [t.item() for t in float32_multiplier(torch.tensor(1020.0), 8)] == [255, -2]
    assert [t.item() for t in float32_multiplier(torch.tensor(0.75), 16)] == [24576, 15]
    assert [t.item() for t in float32_multiplier(torch.tensor(128.5 / 256), 8)] == [129, 8]  # half up, not to even
    assert [t.item() for t in float32_multiplier(torch.tensor(0.75), 16, max_bits=16)] == [49152, 16]


@pytest.mark.parametrize("bits", [22, 23, 24])
def test_a_multiplier_of_as_many_bits_as_a_float32_ratio_is_nearest_to_it(bits: int) -> None:
    """A half added to an odd float32 number of 24 bits rounds to an even one: every multiplier of 24 bits was even."""
    fractions = [0x800001, 0x800003, 0x9A8B75, 0xF00001, 0xFFFFFD, 0xABCDEF]
    for fraction in fractions:
        ratio = torch.tensor(fraction / 2**30)
        multiplier, shift = (int(t) for t in float32_multiplier(ratio, bits, 24, 62))
        nearest = (fraction + ((1 << (24 - bits)) >> 1)) >> (24 - bits)
        carry = nearest >> bits
        assert (multiplier, shift) == (nearest >> carry, bits + 6 - carry)
        assert expected_multiplier(np.float32(ratio), bits, Shifts(62, False)) == (multiplier, shift)


def test_unify_shifts_brings_channels_to_one_shift_within_the_limit() -> None:
    mantissas, shifts = unify_shifts(torch.tensor([200, 130, 255]), torch.tensor([10, 17, 12]))
    assert mantissas.tolist() == [25600, 130, 8160]
    assert shifts.tolist() == [17, 17, 17]
    mantissas, shifts = unify_shifts(torch.tensor([255, 129]), torch.tensor([0, 15]))
    assert mantissas.tolist() == [255 << 7, 129 >> 8]
    assert shifts.tolist() == [7, 7]
    assert [t.tolist() for t in unify_shifts(torch.tensor([255, 3]), torch.tensor([-3, -1]))] == [[2040, 6], [0, 0]]


@pytest.mark.parametrize(
    ("ratio", "mantissa", "shift"),
    [
        (0.5, 1 << 30, 31),
        (1.0, 1 << 30, 30),
        (0.75, 3 << 29, 31),
        (1.0 - 2.0**-33, 1 << 30, 30),  # rounds up to 2**31: carried into the exponent
        (2.0**-32, 1 << 30, 62),
        (2.0**-33, 0, 31),  # TFLite gives up below 2**-32
        (3.0e9, (1 << 31) - 1, 1),
    ],
)
def test_fixed_point_corners(ratio: float, mantissa: int, shift: int) -> None:
    found = fixed_point(ratio)
    assert [int(t) for t in found] == [mantissa, shift]


def test_fixed_point_is_within_half_a_unit() -> None:
    ratios = torch.exp(torch.linspace(-20.0, 20.0, 997, dtype=torch.float64))
    for bits in (31, 16):
        mantissas, shifts = fixed_point(ratios, bits)
        assert bool(((mantissas >= 1 << (bits - 1)) & (mantissas < 1 << bits)).all())
        for ratio, m, s in zip(ratios.tolist(), mantissas.tolist(), shifts.tolist(), strict=True):
            assert abs(Fraction(ratio) * Fraction(2) ** s - m) <= Fraction(1, 2)


def test_q15_rounds_the_31_bit_multiplier_and_saturates() -> None:
    assert [int(t) for t in q15(0.75)] == [3 << 13, 15]
    assert [int(t) for t in q15(1.0 - 2.0**-20)] == [0x7FFF, 15]
    mantissa, shift = fixed_point(0.0123)
    assert [int(t) for t in q15(0.0123)] == [(int(mantissa) + 32768) // 65536, int(shift) - 16]


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_a_ratio_must_be_positive_and_finite(bad: float) -> None:
    with pytest.raises(GraphError, match="must be positive and finite"):
        fixed_point(bad)
    with pytest.raises(GraphError, match="must be positive and finite"):
        float32_multiplier(torch.tensor(bad), 8)


SCALES = [torch.tensor(0.1, dtype=torch.float32).double(), torch.tensor([0.3, 0.07], dtype=torch.float32).double()]


def test_exact_keeps_the_product_and_divides() -> None:
    made = rescale(platform("exact"), "conv", SCALES, 0.7, 8)
    assert [Fraction(m) for m in made.mantissa.tolist()] == [
        Fraction(float(SCALES[0])) * Fraction(w) for w in SCALES[1].tolist()
    ]
    assert (made.divisor, made.shift.tolist()) == (0.7, [0, 0])


def test_float32_multiplies_before_it_divides() -> None:
    for seed in range(50):
        draw = torch.rand(3, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)
        made = rescale(platform("f32_even"), "conv", [draw[0].double(), draw[1:2].double()], float(draw[2]), 8)
        assert made.mantissa.tolist() == ((draw[0] * draw[1:2]) / draw[2]).double().tolist()


@pytest.mark.parametrize("variant", ["q31_single", "q31_double"])
def test_conv_ratio_is_a_float64_product(variant: Variant) -> None:
    made = rescale(platform(variant), "conv", SCALES, 0.7, 8)
    mantissas, shifts = fixed_point(SCALES[0] * SCALES[1] / 0.7)
    assert (made.mantissa.tolist(), made.shift.tolist()) == (mantissas.double().tolist(), shifts.tolist())


def test_requantization_can_be_set_per_family() -> None:
    two = platform("exact").model_copy(update={"requantize": {"default": "exact", "matmul": "q15_half_up"}})
    assert rescale(two, "conv", SCALES, 0.7, 8).variant == "exact"
    made = rescale(two, "matmul", SCALES[:1], 0.7, 16)
    assert (made.variant, int(made.mantissa), int(made.shift)) == (
        "q15_half_up",
        *(int(t) for t in q15(SCALES[0] / 0.7)),
    )
