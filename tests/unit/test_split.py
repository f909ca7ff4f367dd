"""Split: one output for each size along an axis, judged as one concatenated tensor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from plugin_sandbox import sandbox

from quantizer.conformance.failures.shrink import shrink
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.domains import draw
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core.case import Case
from quantizer.core.errors import ConstraintError, GraphError, SpecError
from quantizer.core.library import load_library, read_spec
from quantizer.core.shapes import tensor_shapes
from quantizer.core.spec import Domain
from quantizer.ir.graph import Node
from quantizer.numerics.split_outputs import concatenate_outputs, split_output
from quantizer.ops import REGISTRY, load_built_ins
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.executor import run_node

load_built_ins()
LIBRARY = load_library()
SPEC = LIBRARY.spec("split")
TARGET = Target(SPEC, LIBRARY.scheme("a8"), LIBRARY.platform("ideal"))


def case(index: int) -> Case:
    return build_case(TARGET, HashChoices(index, {}))


@pytest.mark.parametrize("index", range(40))
def test_split_equals_onnx(index: int) -> None:
    drawn = case(index)
    x, axis, sizes = Trial(TARGET, drawn, BuiltinEngine()).tensors["x"], drawn.attrs["axis"], drawn.attrs["sizes"]
    names = [f"y{i}" for i in range(len(sizes))]
    node = helper.make_node("Split", ["x", "s"], names, axis=axis)
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)]
    ends += [helper.make_tensor_value_info("s", TensorProto.INT64, None)]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]
    model = helper.make_model(
        helper.make_graph([node], "g", ends, outputs), opset_imports=[helper.make_opsetid("", 13)]
    )
    wanted = ReferenceEvaluator(model).run(None, {"x": x.numpy(), "s": np.array(sizes, dtype=np.int64)})
    made = run_node(SPEC, Node("s", "split", ("x",), tuple(names), drawn.attrs), {"x": x}).tensors
    assert [piece.tolist() for piece in made] == [piece.tolist() for piece in wanted]
    whole = concatenate_outputs(SPEC, made, {"x": tuple(x.shape)}, drawn.attrs)
    assert torch.equal(whole, x)
    again = split_output(SPEC, whole, {"x": tuple(x.shape)}, drawn.attrs)
    assert [piece.tolist() for piece in again] == [piece.tolist() for piece in made]


def test_every_class_of_sizes_is_drawn() -> None:
    drawn = [case(index).attrs["sizes"] for index in range(300)]
    assert {len(sizes) for sizes in drawn} == {1, 2, 3, 4}
    assert all(min(sizes) >= 1 for sizes in drawn)
    assert any(len(set(sizes)) > 1 for sizes in drawn)


@pytest.mark.parametrize(("bin_name", "legal"), [("ones", lambda n: n == 1), ("pairs", lambda n: n >= 2)])
def test_parts_of_a_sum_lie_in_the_requested_bin(bin_name: str, legal: object) -> None:
    domain = Domain.model_validate(
        {"type": "shape", "rank": [1, 4], "sum": "total", "bins": {"ones": {"max": 1}, "pairs": {"min": 2}}}
    )
    for total in (1, 2, 4, 7):
        for index in range(30):
            sizes = draw("sizes", domain, HashChoices(index, {"sizes": bin_name}), {"total": total})
            assert sum(sizes) == total
            if (bin_name == "ones" and total <= 4) or (bin_name == "pairs" and total > 1):
                assert all(map(legal, sizes)), (total, sizes)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda x: x, "returned Tensor. Return a tuple of 2 tensors"),
        (lambda x: (x[:, :2], x[:, 2:4]), r"pieces of shapes \[3, 2\], \[3, 2\], must be \[3, 2\], \[3, 3\]"),
        (lambda x: (x[:, :2],), r"pieces of shapes \[3, 2\], must be"),
        (lambda x: (x[:, :2], None), "returned NoneType. Return a torch.Tensor"),
    ],
)
def test_a_wrong_number_or_shape_of_pieces_is_refused(made: object, said: str) -> None:
    node = Node("s", "split", ("x",), ("a", "b"), {"axis": 1, "sizes": (2, 3)})
    with REGISTRY.overridden("split", "reference", lambda x, **_: made(x), None), pytest.raises(GraphError, match=said):
        run_node(SPEC, node, {"x": torch.zeros(3, 5)})


def test_sizes_that_do_not_make_up_the_axis_are_refused() -> None:
    with pytest.raises(ConstraintError, match=r"sizes \[2, 2\] must add up to axis 1 of shape \[3, 5\]"):
        tensor_shapes(SPEC, {"x": (3, 5)}, {"axis": 1, "sizes": (2, 2)})


def test_a_case_shrinks_to_sizes_that_still_add_up() -> None:
    first = next(c for c in map(case, range(300)) if len(c.attrs["sizes"]) > 2)
    smallest = shrink(TARGET, first, lambda c: len(c.attrs["sizes"]) > 1)
    assert len(smallest.attrs["sizes"]) == 2
    assert sum(smallest.attrs["sizes"]) == smallest.shapes["x"][smallest.attrs["axis"]] == 2


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("  y: {pieces: {axis: axis, sizes: sizes}}", "  y: {pieces: {axis: axis}}", "sizes"),
        ("  y: {pieces: {axis: axis, sizes: sizes}}", "  y: {pieces: {axis: along, sizes: sizes}}", "along"),
        (
            "  y: {pieces: {axis: axis, sizes: sizes}}",
            "  y: {pieces: {axis: axis, sizes: axis}}",
            "must be a list of sizes",
        ),
        ("    sum: shape[axis]", "    sum: shape[axis]\n    product: shape[axis]", "has product and sum"),
    ],
)
def test_a_wrong_spec_is_an_error_at_its_line(tmp_path: Path, right: str, wrong: str, said: str) -> None:
    text = Path("op_specs/split.yaml").read_text()
    assert right in text
    (tmp_path / "split.yaml").write_text(text.replace(right, wrong))
    with pytest.raises(SpecError, match=rf"split.yaml:\d+(:\d+)?: .*{said}"):
        read_spec(tmp_path / "split.yaml")


def test_swapped_pieces_of_equal_shape_fail() -> None:
    drawn = next(
        c for c in map(case, range(300)) if c.attrs["sizes"][:2] in {(1, 1), (2, 2), (3, 3)} and c.data.set == "random"
    )

    def swapped(x: torch.Tensor, *, parameters: object, axis: int, sizes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:  # noqa: ARG001
        first, second, *rest = torch.split(x, list(sizes), dim=axis)
        return second, first, *rest

    with sandbox(), REGISTRY.overridden("split", "quantized", swapped, None):
        assert "arithmetic" in {v.check for v in judge(Trial(TARGET, drawn, BuiltinEngine())) if v.failing}
    assert not any(v.failing for v in judge(Trial(TARGET, drawn, BuiltinEngine())))
