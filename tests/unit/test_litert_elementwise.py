"""LiteRT's kernels other than products agree bit for bit with our functions of its three platforms, beyond the specs' domains too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from quantizer.conformance.checks.arithmetic import arithmetic
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case, DataRecipe, TilePlan
from quantizer.core.errors import EngineError
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.engines.external import ExternalEngine

ROOT = Path(__file__).parents[2]
PLATFORMS = ("tflite_ref", "tflite_builtin", "xnnpack")
SCHEMES = ("a8", "a16")
UNIT = (0.0, 1.0)
IMAGE = (2, 35, 3, 5)
WINDOWS: Mapping[str, Any] = {
    "kernel": (3, 2),
    "stride": (2, 1),
    "padding": (0, 0, 0, 0),
    "ceil_mode": False,
    "count_include_pad": True,
}
CASES: Mapping[str, list[tuple[dict[str, tuple[int, ...]], dict[str, Any]]]] = {
    "add": [({"a": (3, 5, 37), "b": (3, 5, 37)}, {}), ({"a": (4, 33), "b": (33,)}, {}), ({"a": (1,), "b": (70,)}, {})],
    "sub": [({"a": (3, 5, 37), "b": (3, 5, 37)}, {}), ({"a": (4, 33), "b": (4, 1)}, {})],
    "mul": [
        ({"a": (3, 5, 37), "b": (3, 5, 37)}, {}),
        ({"a": (2, 1, 9), "b": (5, 1)}, {}),
        ({"a": (70,), "b": (1,)}, {}),
    ],
    "maximum": [({"a": (3, 70), "b": (70,)}, {})],
    "minimum": [({"a": (3, 70), "b": (70,)}, {})],
    "relu": [({"x": (600,)}, {})],
    "leaky_relu": [({"x": (600,)}, {"slope": slope}) for slope in (0.0, 0.01, 0.3, 1.5)],
    "sigmoid": [({"x": (600,)}, {})],
    "tanh": [({"x": (600,)}, {})],
    "softmax": [({"x": (9, 257)}, {"axis": 1}), ({"x": (40, 3, 2)}, {"axis": 1}), ({"x": (70, 2)}, {"axis": -1})],
    "max_pool2d": [({"x": IMAGE}, {k: v for k, v in WINDOWS.items() if k != "count_include_pad"})],
    "avg_pool2d": [
        ({"x": IMAGE}, {**WINDOWS}),
        (
            {"x": IMAGE},
            {**WINDOWS, "kernel": (3, 3), "stride": (1, 1), "padding": (1, 1, 1, 1), "count_include_pad": False},
        ),
        ({"x": IMAGE}, {**WINDOWS, "padding": (1, 1, 0, 1)}),
    ],
    "global_avg_pool2d": [({"x": IMAGE}, {}), ({"x": (1, 16, 9, 7)}, {})],
    "reduce_mean": [
        ({"x": (2, 3, 5, 35)}, {"axes": axes, "keepdims": kept})
        for axes, kept in (((1, 2), True), ((1, 2), False), ((3,), True), ((0, 1, 2, 3), False))
    ],
    "reduce_sum": [
        ({"x": (2, 3, 5, 35)}, {"axes": (1, 3), "keepdims": True}),
        ({"x": (7, 50)}, {"axes": (0,), "keepdims": False}),
    ],
    "argmax": [({"x": (9, 70)}, {"axis": 1, "keepdims": True, "select_last": False})],
    "concat": [({"a": (3, 20), "b": (3, 33), "c": (3, 1)}, {"axis": 1})],
    "transpose": [({"x": (3, 17, 5, 2)}, {"perm": (2, 0, 3, 1)})],
    "pad": [({"x": (3, 17)}, {"padding": (1, 0, 2, 3), "value": 0.7})],
    "reshape": [({"x": (6, 35)}, {"shape": (5, 42)})],
    "gather": [
        ({"x": (3, 300, 5), "indices": (70,)}, {"axis": 1, "batch_dims": 0}),
        ({"x": (9, 300), "indices": (9, 4, 8)}, {"axis": -1, "batch_dims": 1}),
        ({"x": (40, 35), "indices": ()}, {"axis": 0, "batch_dims": 0}),
    ],
}
"""Operator -> shapes and attributes, most of them around and above the widths of vectors."""


@pytest.fixture(scope="module")
def targets() -> Iterator[tuple[ExternalEngine, Mapping[tuple[str, str, str], Target]]]:
    """Every target of LiteRT, and the engine."""
    session = open_session(Options(root=ROOT, engine="litert"))
    found = {
        (target.spec.op, target.scheme.name, target.platform.platform): target
        for op in CASES
        for target in session.targets(session.library.specs[op])
    }
    assert isinstance(session.engine, ExternalEngine)
    yield session.engine, found
    session.engine.close()


def trial(target: Target, engine: ExternalEngine, shapes: Any, attrs: Any, **more: Any) -> Trial:
    """Return a case of random data; the output's range follows from the reference unless *more* gives it."""
    ranges = more.pop("ranges")
    case = Case(
        target.spec.op,
        target.scheme.name,
        target.platform.platform,
        shapes,
        attrs,
        ranges,
        "channels_first",
        TilePlan({}),
        DataRecipe("random", more.pop("seed", 1)),
        **more,
    )
    return Trial(target, case, engine)


def scales(op: str, inputs: Mapping[str, Any], kind: int) -> dict[str, tuple[float, float]]:
    """Ranges whose steps are any number (0), powers of two (1), or those of much finer outputs than inputs (2)."""
    step = 2.0**-5 if kind == 1 else 0.0371
    widths = {name: step * (1 + place * (3 if kind == 1 else 1.7)) for place, name in enumerate(inputs)}
    ranges = {name: (-128 * width, 127 * width) for name, width in widths.items()}
    out = {0: 0.083, 1: 2.0**-2, 2: 2.0**-12}[kind] * (40 if op == "reduce_sum" else 1)
    return {**ranges, "y": UNIT if op in ("sigmoid", "softmax") else (-100 * out, 155 * out)}


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("op", sorted(CASES))
def test_codes_equal_those_of_litert(targets: Any, op: str, scheme: str, platform: str) -> None:
    engine, found = targets
    if op == "argmax" and scheme == "a16":
        assert ("argmax", "a16", platform) not in found
        return
    if op == "reduce_sum" and platform == "tflite_ref":
        return  # declared: reduce_sum_wrong_numbers
    target = found[op, scheme, platform]
    for shapes, attrs in CASES[op]:
        for kind in (0, 1, 2):
            if kind == 2 and (op in ("add", "sub") and scheme == "a16"):
                continue
            made = trial(target, engine, shapes, attrs, ranges=scales(op, shapes, kind))
            wanted = BuiltinEngine().run(made.call, made.codes, made.parameters).codes.numpy()
            np.testing.assert_array_equal(made.got, wanted, err_msg=f"{shapes} {attrs} {kind}")


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("op", ["sigmoid", "tanh"])
@pytest.mark.parametrize("exponent", [-12, -11, -9])
def test_near_powers_of_two_16_bit_functions_are_equal(targets: Any, op: str, platform: str, exponent: int) -> None:
    engine, found = targets
    half = 2.0**exponent * 65535 / 2 * 1.0005
    made = trial(found[op, "a16", platform], engine, {"x": (500,)}, {}, ranges={"x": (-half, half), "y": UNIT})
    wanted = BuiltinEngine().run(made.call, made.codes, made.parameters).codes.numpy()
    np.testing.assert_array_equal(made.got, wanted)


@pytest.mark.parametrize(
    ("shape", "other"), [((40,), (40,)), ((40,), (1,)), ((3, 23), (23,)), ((3, 23), (3, 1)), ((15,), (15,))]
)
def test_near_tie_sums_equal_litert_in_vectors_and_tails(targets: Any, shape: Any, other: Any) -> None:
    engine, found = targets
    target = found["add", "a8", "tflite_builtin"]
    ranges = {"a": (-616.0, 276.5), "b": (-698.5, 704.0), "y": (-470.0, 40.0)}  # scales 3.5, 5.5 and 2
    for seed in range(40):
        made = trial(target, engine, {"a": shape, "b": other}, {}, ranges=ranges, seed=seed)
        wanted = BuiltinEngine().run(made.call, made.codes, made.parameters).codes.numpy()
        np.testing.assert_array_equal(made.got, wanted)
        assert arithmetic(made).status == "pass"


def test_a_sum_next_to_a_tie_rounds_by_its_place(targets: Any) -> None:
    _, found = targets
    grids = {"a": ((52,), 3.5, 48), "b": ((-71,), 5.5, -1)}
    ranges = {"a": (-616.0, 276.5), "b": (-698.5, 704.0), "y": (-470.0, 40.0)}
    made = trial(found["add", "a8", "tflite_builtin"], BuiltinEngine(), {"a": (17,), "b": (17,)}, {}, ranges=ranges)
    codes = {name: torch.full((17,), code[0]) for name, (code, _, _) in grids.items()}
    assert [int(p.zero_point) for p in made.parameters.inputs.values()] == [48, -1]
    got = BuiltinEngine().run(made.call, codes, made.parameters).codes.tolist()
    assert got == [-79] * 16 + [-78]  # LiteRT 2.3; exactly -78.5


def test_fused_limits_are_equal_on_ties(targets: Any) -> None:
    engine, found = targets
    for op in ("add", "sub", "mul", "maximum"):
        for platform in PLATFORMS:
            ranges = {"a": (-512.0, 508.0), "b": (-512.0, 508.0), "y": (-512.0 - 4 * 5, 508.0 - 4 * 5)}
            shapes = {"a": (40,), "b": (40,)}
            made = trial(found[op, "a8", platform], engine, shapes, {}, ranges=ranges, activation="relu6")
            wanted = BuiltinEngine().run(made.call, made.codes, made.parameters).codes.numpy()
            np.testing.assert_array_equal(made.got, wanted, err_msg=f"{op} {platform}")


def test_a_large_scale_ratio_aborts_and_the_next_case_runs(targets: Any) -> None:
    engine, found = targets
    target, shapes = found["add", "a16", "tflite_ref"], {"a": (2,), "b": (2,)}
    fine = {"a": (-1000.0, 1000.0), "b": (-1000.0, 1000.0), "y": (-1e-3, 1e-3)}
    with pytest.raises(EngineError, match="SIGABRT"):
        _ = trial(target, engine, shapes, {}, ranges=fine).got
    again = trial(target, engine, shapes, {}, ranges={**fine, "y": (-1000.0, 1000.0)})
    assert again.got.shape == (2,)
