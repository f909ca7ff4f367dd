"""Platform `tosa` against the TOSA reference model: codes, sums, refusals; and TOSA's own numbers against its specification.

Shapes go beyond the specs' domains: channels around the widths of vectors, windows larger than the image, odd rests.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from quantizer.conformance.checks.arithmetic import arithmetic
from quantizer.conformance.checks.exact import exact
from quantizer.conformance.checks.fixed_point import rounded
from quantizer.conformance.checks.parameters import parameters as judge_parameters
from quantizer.conformance.expected import multipliers as expected_multipliers
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import integers, uniform
from quantizer.conformance.generation.ranges import range_of
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.errors import RefusedError
from quantizer.core.library import load_library
from quantizer.core.shapes import limits, variables
from quantizer.numerics import ratio_to_multiplier, requantize, requantize_accumulator
from quantizer.numerics.request import Request
from quantizer.ops import load_built_ins
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.engines.catalogue import Chosen
from quantizer.runtime.engines.external import ExternalEngine
from quantizer.runtime.engines.process import Worker

pytest.importorskip("tosa_serializer", reason="tosa-tools is not installed")
from quantizer.platforms.tosa.graph import INT8, INT16, INT32, TosaGraph  # noqa: E402

load_built_ins()
LIBRARY = load_library()
PLATFORM = LIBRARY.platform("tosa")
ENGINE = ExternalEngine(Chosen("tosa"))
OWN = BuiltinEngine()
CONV: dict[str, Any] = {"stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}
DEEP: dict[str, Any] = {"stride": (1, 2, 1), "padding": (1, 0, 2, 0, 1, 1), "dilation": (1, 1, 2), "groups": 1}
POOL: dict[str, Any] = {"kernel": (3, 5), "stride": (2, 3), "padding": (1, 2, 0, 4), "ceil_mode": True}
TRANSPOSED: dict[str, Any] = {
    "stride": (2, 3),
    "padding": (1, 2, 2, 0),
    "output_padding": (1, 0),
    "dilation": (1, 1),
    "groups": 1,
}
Shapes = Mapping[str, tuple[int, ...]]
WIDE: list[tuple[str, Shapes, Mapping[str, Any]]] = [
    *(
        ("conv2d", {"x": (1, c, 5, 4), "weight": (17, c, 2, 3), "bias": (17,)}, CONV)
        for c in (1, 3, 7, 8, 9, 15, 31, 64)
    ),
    ("conv2d", {"x": (2, 33, 9, 7), "weight": (4, 33, 5, 1)}, CONV | {"stride": (3, 2), "padding": (4, 0, 1, 3)}),
    ("conv2d", {"x": (1, 12, 6, 6), "weight": (8, 3, 3, 3), "bias": (8,)}, CONV | {"groups": 4, "dilation": (2, 1)}),
    (
        "conv1d",
        {"x": (2, 16, 21), "weight": (5, 16, 4), "bias": (5,)},
        {"stride": (3,), "padding": (2, 4), "dilation": (2,), "groups": 1},
    ),
    ("conv3d", {"x": (1, 4, 4, 6, 5), "weight": (9, 4, 2, 3, 2), "bias": (9,)}, DEEP),
    ("conv3d", {"x": (1, 4, 4, 6, 5), "weight": (6, 2, 1, 2, 2)}, DEEP | {"groups": 2}),
    (
        "depthwise_conv2d",
        {"x": (1, 17, 7, 6), "weight": (34, 1, 3, 2), "bias": (34,)},
        {"stride": (2, 1), "padding": (1, 3, 0, 2), "dilation": (1, 2)},
    ),
    ("conv_transpose2d", {"x": (2, 9, 4, 3), "weight": (5, 9, 3, 4), "bias": (5,)}, TRANSPOSED),
    ("conv_transpose2d", {"x": (1, 6, 3, 3), "weight": (3, 6, 3, 4), "bias": (6,)}, TRANSPOSED | {"groups": 2}),
    (
        "conv_transpose2d",
        {"x": (1, 3, 5, 4), "weight": (4, 3, 2, 1)},
        TRANSPOSED | {"padding": (4, 1, 5, 3), "dilation": (2, 3)},
    ),
    ("fully_connected", {"x": (7, 513), "weight": (33, 513), "bias": (33,)}, {}),
    ("matmul", {"a": (2, 1, 3, 65), "b": (4, 65, 9)}, {}),
    *((op, {"a": (3, 1, 33), "b": (9, 1)}, {}) for op in ("add", "sub", "mul", "maximum", "minimum")),
    *((op, {"x": (5, 67)}, {}) for op in ("relu", "sigmoid", "tanh")),
    ("leaky_relu", {"x": (5, 67)}, {"slope": 0.3}),
    ("clip", {"x": (5, 67)}, {"low": -0.7, "high": 2.3}),
    ("avg_pool2d", {"x": (1, 17, 11, 13)}, POOL | {"count_include_pad": False}),
    ("avg_pool2d", {"x": (1, 17, 11, 13)}, POOL | {"count_include_pad": True}),
    ("max_pool2d", {"x": (2, 9, 11, 13)}, POOL),
    ("global_avg_pool2d", {"x": (2, 9, 19, 23)}, {}),
    ("reduce_sum", {"x": (3, 17, 5)}, {"axes": (0, 2), "keepdims": False}),
    ("reduce_mean", {"x": (3, 17, 5)}, {"axes": (1,), "keepdims": True}),
    ("argmax", {"x": (3, 300, 2)}, {"axis": 1, "keepdims": False, "select_last": False}),
    ("concat", {"a": (3, 17), "b": (3, 5), "c": (3, 1), "d": (3, 8)}, {"axis": -1}),
    ("gather", {"x": (3, 17, 5), "indices": (4, 2)}, {"axis": -2, "batch_dims": 0}),
    ("gather", {"x": (3, 2, 300), "indices": (3, 9)}, {"axis": 2, "batch_dims": 1}),
    ("transpose", {"x": (3, 17, 5, 2)}, {"perm": (3, 1, 0, 2)}),
    ("pad", {"x": (3, 17)}, {"padding": (0, 4, 5, 1), "value": -0.6}),
    ("reshape", {"x": (3, 17, 4)}, {"shape": (34, 6)}),
]
TARGETS = [(op, name) for op in PLATFORM.ops or () for name in LIBRARY.schemes_for(LIBRARY.spec(op), PLATFORM)]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def target_of(op: str, scheme: str) -> Target:
    return Target(LIBRARY.spec(op), LIBRARY.scheme(scheme), PLATFORM)


def drawn_scale(kind: str, seed: int, name: str) -> float:
    """Return a power of two, or a float32 number whose logarithm is uniform."""
    if kind == "powers":
        return float(2.0 ** integers(seed, name, (), -7, 1))
    return float(np.float32(math.exp(float(uniform(seed, name, ())) * 7 - 6)))


def trial_on(op: str, scheme: str, shapes: Shapes, attrs: Mapping[str, Any], kind: str, seed: int) -> Trial:
    """Return a trial on codes over their whole range under drawn scales; the output mostly does not saturate."""
    target = target_of(op, scheme)
    ranges, scales, constants = {}, [], {}
    for name in (name for name in target.spec.activations if name in shapes):
        gentle = 2.0**-12 if op in ("sigmoid", "tanh") and target.scheme.activation.bits == 16 else 1.0
        scales.append(drawn_scale(kind, seed, name) * gentle)
        ranges[name] = range_of(target, scales[-1], int(integers(seed, f"{name}.zero", (), -128, 127)))
    if "weight" in shapes:
        shape, largest = shapes["weight"], 2 ** (target.scheme.weight.bits - 1) - 1  # type: ignore[union-attr]
        steps = [drawn_scale(kind, seed, f"weight.{channel}") for channel in range(shape[0])]
        codes = integers(seed, "weight", shape, -largest, largest)
        codes.reshape(shape[0], -1)[:, 0] = largest
        constants["weight"] = torch.from_numpy(
            (codes * np.reshape(steps, (-1, *[1] * (len(shape) - 1)))).astype(np.float32)
        )
        scales.append(float(np.median(steps)))
        if "bias" in shapes:
            values = integers(seed, "bias", shapes["bias"], -4000, 4000) * math.prod(scales)
            constants["bias"] = torch.from_numpy(values.astype(np.float32))
    width = 40.0 if target.scheme.activation.bits == 8 else 9000.0
    terms = math.prod(shapes["weight"][1:]) if "weight" in shapes else shapes["a"][-1] if op == "matmul" else 1
    product = target.spec.error_model.kind == "bilinear"
    step = math.prod(scales) * math.sqrt(terms) * width if product else max(scales)
    if op in ("sigmoid", "tanh"):
        step = 1 / (128 if target.scheme.activation.bits == 8 else 32768)
    step *= 0.5 + 2 * float(uniform(seed, "y", ()))
    step = 2.0 ** round(math.log2(step)) if kind == "powers" else float(np.float32(step))
    ranges["y"] = range_of(target, step, int(integers(seed, "y.zero", (), -128, 127)))
    activation = ("none", "relu", "relu6")[seed % 3] if target.spec.fuses else "none"
    request = Request(target.spec, target.scheme, PLATFORM, shapes, attrs, ranges, constants, activation=activation)
    case = build_case(target, HashChoices(0, {})).but(shapes=shapes, attrs=attrs, ranges=ranges, activation=activation)
    trial = Trial(target, case, OWN)
    trial.tensors, trial.parameters = constants, OWN.quantize(request)
    trial.codes = {
        name: torch.from_numpy(integers(seed, name, shapes[name], *code_ends(trial, name)))
        for name in trial.parameters.inputs
    } | {name: constant.codes for name, constant in trial.parameters.constants.items()}
    return trial


def code_ends(trial: Trial, name: str) -> tuple[int, int]:
    """Return the first and the last code of an input: of an index those that point into the tensor."""
    item, params = trial.spec.inputs[name], trial.parameters.inputs[name]
    if item.kind == "value":
        return params.qmin, params.qmax
    low, high = limits(item, variables(trial.spec, trial.case.shapes, trial.case.attrs))
    return int(low), int(high)


def on_model(trial: Trial) -> Trial:
    """Return *trial* on the reference model, under the same parameters and codes."""
    other = Trial(trial.target, trial.case, ENGINE)
    other.tensors, other.parameters, other.codes = trial.tensors, trial.parameters, trial.codes
    return other


def test_every_operator_of_the_platform_is_compared() -> None:
    assert {op for op, _, _ in WIDE} == set(PLATFORM.ops or ())
    assert all(ENGINE.supports(LIBRARY.spec(op), LIBRARY.scheme(name), PLATFORM) is None for op, name in TARGETS)
    assert ENGINE.supports(LIBRARY.spec("softmax"), LIBRARY.scheme("a8"), PLATFORM) == "no one TOSA operator is softmax"


@pytest.mark.parametrize("kind", ["powers", "any"])
@pytest.mark.parametrize("place", range(len(WIDE)))
def test_wide_shapes_give_the_codes_of_the_reference_model(place: int, kind: str) -> None:
    op, shapes, attrs = WIDE[place]
    for seed, scheme in enumerate(name for name in LIBRARY.schemes_for(LIBRARY.spec(op), PLATFORM)):
        for repeat in range(2):
            trial = trial_on(op, scheme, shapes, attrs, kind, 100 * repeat + 7 * seed + place)
            assert np.array_equal(trial.got, on_model(trial).got), (scheme, trial.case.to_json())


@pytest.mark.parametrize(("op", "scheme"), TARGETS)
def test_drawn_cases_agree_and_raise_no_alarm(op: str, scheme: str) -> None:
    compared = 0
    for seed, data in itertools.product(range(4), ("random", "ties", "corners")):
        target = target_of(op, scheme)
        wanted = {} if data not in target.spec.data else {"data": data}
        trial = Trial(target, build_case(target, HashChoices(1000 + seed, wanted)), OWN)
        other = on_model(trial)
        if other.refusal is not None:
            continue
        compared += 1
        assert np.array_equal(trial.got, other.got), trial.case.to_json()
        for judged in (arithmetic(other), judge_parameters(other), exact(other)):
            assert judged is None or judged.status in ("pass", "inconclusive"), (trial.case.to_json(), judged)
    assert compared >= 3


def rescaled(values: list[int], mantissa: int, shift: int, kind: Any, target: Any, *, double: bool) -> list[int]:
    graph = TosaGraph()
    made = graph.rescale(graph.feed(np.array(values), kind), target, [mantissa], [shift], double=double)
    lowered = graph.lowered(made)
    found: list[int] = lowered.result(WORKER.run(lowered.job)).tolist()
    return found


WORKER = Worker("quantizer.platforms.tosa.worker")


@pytest.mark.parametrize("double", [False, True])
def test_every_shift_of_rescale_is_the_integer_formula(double: bool) -> None:
    for shift in range(2, 63):
        reach = (1 << (shift - 1)) - 1
        sums = [*integers(shift, "sum", (20,), -min(reach, 1 << 30), min(reach, 1 << 30)).tolist(), 3, -3, 1, -1]
        sums = [value for value in sums if abs(value) <= reach]
        for mantissa in (1 << 30, (1 << 31) - 1, int(integers(shift, "m", (), 1 << 30, (1 << 31) - 1))):
            variant = "q31_double" if double else "q31_single"
            wanted = rounded(np.array(sums), mantissa, shift, variant)
            ours = requantize.round_fixed_point(
                torch.tensor(sums), torch.tensor(mantissa), torch.tensor(shift), variant
            )
            assert ours.tolist() == wanted.tolist()
            keep = np.abs(wanted) < 1 << 31
            fed = [value for value, kept in zip(sums, keep, strict=True) if kept]
            assert rescaled(fed, mantissa, shift, INT32, INT32, double=double) == wanted[keep].tolist()


def test_values_beyond_rescale_are_refused() -> None:
    with pytest.raises(RefusedError, match="shifts right by 2 to 62 places"):
        rescaled([1], 1 << 30, 1, INT32, INT8, double=False)
    with pytest.raises(RefusedError, match="leaves the result open"):
        rescaled([8], 1 << 30, 3, INT32, INT8, double=False)
    graph = TosaGraph()
    with pytest.raises(RefusedError, match="no zero point of INT16"):
        graph.rescale(graph.feed(np.array([1]), INT16), INT8, [1 << 30], [30], zeros=(1, 0))


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "why"),
    [
        (
            "conv2d",
            {"x": (1, 1, 1, 2), "weight": (1, 1, 1, 1)},
            CONV | {"padding": (2, 0, 0, 0), "stride": (3, 1)},
            "no window reaches",
        ),
        ("argmax", {"x": (3, 2)}, {"axis": 0, "keepdims": True, "select_last": True}, "first of equal elements"),
    ],
)
def test_attributes_that_tosa_lacks_are_refused_with_the_reason(
    op: str, shapes: Shapes, attrs: Mapping[str, Any], why: str
) -> None:
    scheme = LIBRARY.schemes_for(LIBRARY.spec(op), PLATFORM)[0]
    trial = trial_on(op, scheme, shapes, attrs, "powers", 1)
    assert why in str(on_model(trial).refusal)


def test_steep_tables_of_16_bits_are_refused() -> None:
    trial = trial_on("leaky_relu", "a16", {"x": (4,)}, {"slope": 1.0}, "powers", 3)
    table = trial.parameters.tables["lut"]
    table.entries[200], table.entries[201] = -32768, 32767
    assert "slopes of 16 bits" in str(on_model(trial).refusal)


def test_multipliers_equal_the_tosa_specification() -> None:
    ratios = [
        *(2.0**power for power in range(-70, 12)),
        1 - 2.0**-33,
        *np.exp(uniform(5, "r", (200,)) * 50 - 45).tolist(),
    ]
    for ratio, bits in itertools.product(ratios, (15, 31)):
        mantissa, shift = (int(number) for number in ratio_to_multiplier.right_shifted(ratio, bits))
        assert (mantissa, shift) == expected_multipliers.right_shifted(ratio, bits, 62)
        assert shift <= 62
        if shift < 62:
            assert 1 << (bits - 1) <= mantissa < 1 << bits
        assert abs(Fraction(mantissa) / Fraction(2) ** shift - Fraction(ratio)) <= Fraction(1, 1 << min(shift, 61))


def test_reciprocals_equal_the_tosa_specification() -> None:
    counts = torch.cat([torch.arange(1, 3000), 2 ** torch.arange(12, 30), 2 ** torch.arange(12, 30) + 1])
    mantissas, shifts = ratio_to_multiplier.reciprocal(counts)
    for count, mantissa, shift in zip(counts.tolist(), mantissas.tolist(), shifts.tolist(), strict=True):
        assert (mantissa, shift) == expected_multipliers.area_reciprocal(count)
        assert 1 << 30 <= mantissa < 1 << 31


@pytest.mark.parametrize(
    ("op", "scheme", "module", "name", "broken"),
    [
        ("conv2d", "w8a8", requantize, "round_fixed_point", "q31_single"),
        ("add", "a16", requantize, "round_fixed_point", "q31_single"),
        ("concat", "a8", requantize, "round_fixed_point", "q31_double"),
        ("avg_pool2d", "a8", requantize_accumulator, "round_fixed_point", "q31_half_up"),
    ],
)
def test_another_rounding_is_seen(
    monkeypatch: pytest.MonkeyPatch, op: str, scheme: str, module: Any, name: str, broken: str
) -> None:
    """Both the judge and the comparison with the reference model find another system's formula."""
    own = requantize.round_fixed_point
    _, shapes, attrs = next(row for row in WIDE if row[0] == op)
    trials = [trial_on(op, scheme, shapes, attrs, kind, seed) for kind in ("powers", "any") for seed in range(0, 90, 3)]
    monkeypatch.setattr(module, name, lambda acc, m, s, variant, into=None: own(acc, m, s, broken, into=into))
    assert any(arithmetic(trial).failing for trial in trials)
    monkeypatch.undo()
    assert not any(arithmetic(Trial.under_platform(trial, PLATFORM)).failing for trial in map(on_model, trials))
