"""Random quantized graphs of 4, 8 and 16 bits against ONNX Runtime: code by code the same, or refused by name.

Between a quantization and the next ONNX Runtime computes in float (optimizations off) or by its integer kernels (on), which part
at ties. Either is right. So is a neighbour of both where the real number lies on the edge of two codes, within what float32 adds up.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from qdq_clothes import dressed
from qdq_graphs import Case, session
from qdq_steps import drawn_case

from quantizer.core.errors import QuantizerError
from quantizer.ir.formats.onnx import from_model
from quantizer.runtime.integer import integer_graph
from quantizer.runtime.integer_executor import IntegerExecutor
from quantizer.runtime.torch_executor import TorchExecutor

EDGE = 2.0**-18
"""How far a quotient may lie from the edge of two codes, over the largest of its tensor, to have either."""
SINGLE, CHAINED = 40, 10
"""Graphs of one operator, and of six, in a block of the gate; a nightly run has twenty times as many."""
NIGHTLY = 20
COMPUTED = 0.1
"""Share of the graphs that must run on integers: a fuzzer whose graphs are all refused finds nothing."""


def runs(case: Case, names: list[str]) -> list[list[np.ndarray]]:
    """Return the results of ONNX Runtime without optimizations, and with them if it accepts the graph."""
    found = [session(case.model, optimized=False).run(names, case.feeds)]
    try:
        found.append(session(case.model, optimized=True).run(names, case.feeds))
    except Exception:  # noqa: BLE001 - what it raises has no class of its own; its optimizer fails on some graphs of 4 bits
        found.append(found[0])
    return found


def is_on_the_edge(case: Case, result: str, got: np.ndarray, expected: np.ndarray) -> bool:
    """Return whether two results are one code apart wherever they differ, and the real number lies between those codes."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info(f"{result}_raw", onnx.TensorProto.FLOAT, None))
    (raw,) = session(model, optimized=False).run(None, case.feeds)
    scale = float(case.grids[result].scale)
    quotient, differs = raw.astype(np.float64) / scale, got != expected
    apart = np.abs(got.astype(np.float64) - expected)[differs] / scale
    fraction = np.abs(quotient - np.floor(quotient) - 0.5)[differs]
    return bool((apart < 1.5).all() and (fraction <= EDGE * (1 + np.abs(quotient).max())).all())


def outcome(case: Case, executor: type[IntegerExecutor | TorchExecutor]) -> str:
    """Return equal, edge, or refused; AssertionError names seed, operator and codes of what is wrong."""
    names = [output.name for output in case.model.graph.output]
    off, on = runs(case, names)
    x = torch.from_numpy(case.feeds["x"])
    try:
        graph = from_model(case.model)
        integers = executor is IntegerExecutor
        made = executor(integer_graph(graph, inputs={"x": x})) if integers else executor(graph, platform="fp32")
        got = [values.numpy() for values in made.forward({"x": x}, names)]
    except QuantizerError as err:
        assert str(err)
        return "refused"
    for name, own, first, second in zip(names, got, off, on, strict=True):
        if np.array_equal(own, first) or np.array_equal(own, second):
            continue
        result = name.removesuffix("_out")
        assert own.shape == first.shape, f"seed {case.seed}: {result}"
        if is_on_the_edge(case, result, own, first):
            return "edge"
        op = case.operators[int(result[1:])]
        differs = own != first
        raise AssertionError(
            f"seed {case.seed}, {executor.__name__}: {result} of {op}: {own[differs][:4]}, "
            f"ONNX Runtime {first[differs][:4]} off, {second[differs][:4]} on, scale {case.grids[result].scale}"
        )
    return "equal"


@pytest.mark.parametrize("block", range(4))
@pytest.mark.parametrize("size", [1, 6])
def test_codes_equal_onnx_runtime_or_the_graph_is_refused(block, size, request):
    count = SINGLE if size == 1 else CHAINED
    if request.config.getoption("--op-profile", None) == "nightly":
        count *= NIGHTLY
    found: Counter[str] = Counter()
    for seed in range(1_000_000 * size + block * count, 1_000_000 * size + (block + 1) * count):
        case = drawn_case(seed, size)
        if case is not None:
            found[outcome(case, IntegerExecutor)] += 1
            assert outcome(case, TorchExecutor) != "refused", seed
    assert found["equal"] >= COMPUTED * count, found
    assert found["edge"] <= 1 + 0.02 * count, found


def is_one_of(case: Case, expected: list[list[np.ndarray]], executor: type[IntegerExecutor | TorchExecutor]) -> bool:
    """Return whether the codes are those of a run of ONNX Runtime, optimizations off or on."""
    names = [output.name for output in case.model.graph.output]
    x = torch.from_numpy(case.feeds["x"])
    graph = from_model(case.model)
    integers = executor is IntegerExecutor
    made = executor(integer_graph(graph, inputs={"x": x})) if integers else executor(graph, platform="fp32")
    got = [values.numpy() for values in made.forward({"x": x}, names)]
    return all(any(np.array_equal(own, one) for one in either) for own, *either in zip(got, *expected, strict=True))


@pytest.mark.parametrize("block", range(2))
def test_equivalent_forms_of_a_graph_give_the_same_codes(block, request):
    """Bodies, functions, shared constants, constants with defaults, names: equal, or on an edge without them too."""
    count = CHAINED * (NIGHTLY if request.config.getoption("--op-profile", None) == "nightly" else 1)
    found: Counter[str] = Counter()
    for seed in range(8_000_000 + block * count, 8_000_000 + (block + 1) * count):
        case = drawn_case(seed, 4)
        if case is None:
            continue
        model, changes = dressed(case.model, seed)
        names = [output.name for output in model.graph.output]
        try:  # without optimizations: with them, some bodies end ONNX Runtime's process
            expected = [session(model, optimized=False).run(names, case.feeds), runs(case, names)[1]]
        except Exception:  # noqa: BLE001 - what it raises has no class of its own; it has no Identity of some formats
            found["nobody runs it"] += 1
            continue
        for executor in (IntegerExecutor, TorchExecutor):
            plain = outcome(case, executor)
            try:
                equal = is_one_of(replace(case, model=model), expected, executor)
            except QuantizerError as err:
                assert plain == "refused", f"seed {seed}, {changes}: {err}"
                continue
            found["equal" if equal else plain] += 1
            assert equal or plain != "equal", f"seed {seed}, {executor.__name__}, {changes}"
    assert found["equal"] >= count, found


def test_a_seed_gives_the_same_graph_every_time():
    first, second = drawn_case(5, 6), drawn_case(5, 6)
    assert first is not None
    assert second is not None
    assert first.model.SerializeToString() == second.model.SerializeToString()
    assert np.array_equal(first.feeds["x"], second.feeds["x"])
