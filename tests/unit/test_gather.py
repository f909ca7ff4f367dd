"""Gather, and index inputs: whole numbers within a domain that shapes decide, their own codes on every platform."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.datasets import FILLERS, materialise
from quantizer.conformance.target import Target
from quantizer.core.errors import ConstraintError, SpecError
from quantizer.core.library import load_library, read_spec
from quantizer.core.shapes import infer_shapes
from quantizer.numerics.qparams import Parameters
from quantizer.ops import REGISTRY, load_built_ins
from quantizer.tiling.windows import part

load_built_ins()
LIBRARY = load_library()
SPEC = LIBRARY.spec("gather")
SHAPES = [(7,), (4, 5), (3, 4, 5), (2, 3, 4, 5), (2, 1, 3)]
PLACES = [(), (1,), (6,), (2, 3), (3, 1, 2)]


def drawn(
    shape: tuple[int, ...], places: tuple[int, ...], size: int, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Distinct values, and indices of both signs."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.arange(int(np.prod(shape))).reshape(shape)
    return x, torch.randint(-size, size, places, generator=generator)


def both(x: torch.Tensor, indices: torch.Tensor, **attrs: int) -> np.ndarray:
    """Results that the reference and the integer forward share."""
    real = REGISTRY.get("gather", "reference")(x.double(), indices.double(), **attrs)
    codes = REGISTRY.get("gather", "quantized")(x, indices, parameters=object.__new__(Parameters), **attrs)
    assert torch.equal(real.long(), codes)
    shapes = {"x": tuple(x.shape), "indices": tuple(indices.shape)}
    assert tuple(codes.shape) == infer_shapes(SPEC, shapes, attrs)["y"]
    return codes.numpy()


@pytest.mark.parametrize(("shape", "places"), list(itertools.product(SHAPES, PLACES)))
def test_gather_equals_onnx(shape: tuple[int, ...], places: tuple[int, ...]) -> None:
    for axis in range(-len(shape), len(shape)):
        x, indices = drawn(shape, places, shape[axis])
        node = helper.make_node("Gather", ["x", "i"], ["y"], axis=axis)
        values = [helper.make_tensor_value_info(name, TensorProto.INT64, None) for name in "xiy"]
        graph = helper.make_graph([node], "g", values[:2], values[2:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
        (wanted,) = ReferenceEvaluator(model).run(None, {"x": x.numpy(), "i": indices.numpy()})
        np.testing.assert_array_equal(both(x, indices, axis=axis, batch_dims=0), wanted)


@pytest.mark.parametrize(
    ("shape", "places", "axis", "pairs"),
    [
        ((3, 5), (3, 4), 1, 1),
        ((3, 5), (3,), 1, 1),
        ((3, 5, 2), (3, 4, 2), -2, 1),
        ((3, 2, 5), (3, 4), 2, 1),
        ((3, 2, 5), (3, 2, 4), 2, 2),
        ((3, 2, 5, 4), (3, 2), -1, 1),
        ((2, 3, 4, 5), (2, 3, 6), 3, 2),
    ],
)
def test_paired_axes_are_gathered_each_by_itself(
    shape: tuple[int, ...], places: tuple[int, ...], axis: int, pairs: int
) -> None:
    x, indices = drawn(shape, places, shape[axis])
    inner = axis % len(shape) - pairs
    wanted = np.stack(
        [np.take(x.numpy()[place], indices.numpy()[place], inner) for place in np.ndindex(*shape[:pairs])]
    )
    wanted = wanted.reshape(*shape[:pairs], *wanted.shape[1:])
    np.testing.assert_array_equal(both(x, indices, axis=axis, batch_dims=pairs), wanted)


@pytest.mark.parametrize(
    ("shapes", "attrs", "said"),
    [
        (((3, 4), (2,)), {"axis": 2, "batch_dims": 0}, "axis=2 must lie in"),
        (((3, 4), (3,)), {"axis": 0, "batch_dims": 1}, "must not lie after axis=0"),
        (((3, 4), ()), {"axis": 1, "batch_dims": 1}, "nor leave indices of shape"),
        (((3, 4), (2,)), {"axis": 1, "batch_dims": 1}, "the first 1 axes of indices"),
    ],
)
def test_invalid_gather_shapes_are_refused(
    shapes: tuple[tuple[int, ...], ...], attrs: dict[str, int], said: str
) -> None:
    with pytest.raises(ConstraintError, match=said):
        infer_shapes(SPEC, dict(zip(("x", "indices"), shapes, strict=True)), attrs)


@pytest.mark.parametrize(
    ("shape", "places", "axis", "pairs"),
    [
        ((4, 5, 6), (3,), 1, 0),
        ((4, 5, 6), (3, 2), 1, 0),
        ((4, 5, 6), (3, 2), 0, 0),
        ((4, 5, 6), (4, 3), 1, 1),
        ((4, 5, 6), (4, 3), -1, 1),
        ((4, 6), (4,), 1, 1),
    ],
)
def test_a_tile_holds_the_operands_of_its_output(
    shape: tuple[int, ...], places: tuple[int, ...], axis: int, pairs: int
) -> None:
    x, indices = drawn(shape, places, shape[axis])
    attrs = {"axis": axis, "batch_dims": pairs}
    whole = both(x, indices, **attrs)
    for cut in range(whole.ndim):
        start, stop = whole.shape[cut] // 2, whole.shape[cut]
        tile = part(SPEC, {"x": shape, "indices": places}, attrs, {f"d{cut}": (start, stop)})
        own = {
            name: values[tuple(slice(*ends) for ends in tile.inputs[name])]
            for name, values in (("x", x), ("indices", indices))
        }
        np.testing.assert_array_equal(both(own["x"], own["indices"], **attrs), whole.take(range(start, stop), cut))
        small = sum(values.numel() for values in own.values()) < x.numel() + indices.numel()
        assert small, "one operand is cut"


@pytest.mark.parametrize("data", [*FILLERS, "ties", "every_code"])
@pytest.mark.parametrize("platform", ["ideal", "compass", "ort"])
def test_indices_fill_their_domain_in_every_data_set(data: str, platform: str) -> None:
    target = Target(SPEC, LIBRARY.scheme("a8"), LIBRARY.platform(platform))
    seen: set[int] = set()
    for seed in range(40):
        case = build_case(target, HashChoices(seed, {"data": data}))
        size = case.shapes["x"][case.attrs["axis"]]  # type: ignore[index]
        found = materialise(target, case)["indices"]
        assert torch.equal(found, found.round())
        assert -size <= int(found.min()) <= int(found.max()) < size
        seen |= {-1 if int(found.min()) == -size else 0, 1 if int(found.max()) == size - 1 else 0}
        params = target.request(case, {}).inputs["indices"]
        assert (float(params.scale), int(params.zero_point), params.dtype.name) == (1.0, 0, "int32")
    assert seen == {-1, 0, 1}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('    domain: ["-shape[axis]", "shape[axis] - 1"]\n', "", "inputs.indices.domain: must be given for an index"),
        ('"shape[axis] - 1"]', ".inf]", "inputs.indices.domain: must be given for an index"),
        ('"-shape[axis]", "shape[axis] - 1"', "3, 2", "must be .smallest, largest., got"),
        ('"-shape[axis]"', '"-shape[axes]"', "name 'axes' is neither a dim nor an attr"),
        ('"-shape[axis]"', '"-shape[axis] / 2"', "must be an integer"),
        ("kind: index\n", "kind: index\n    role: weight\n", "inputs.indices.role: must be activation for an index"),
        ("      indices: >-", "      index: >-", "input_axis.index: no such input"),
        (
            "i if i < batch_dims else i - axis",
            "j if i < batch_dims else i - axis",
            "name 'j' is neither a dim nor an attr",
        ),
    ],
)
def test_invalid_index_declarations_are_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = Path("op_specs/gather.yaml").read_text()
    assert text.count(old) == 1
    (tmp_path / "gather.yaml").write_text(text.replace(old, new))
    with pytest.raises(SpecError, match=said):
        read_spec(tmp_path / "gather.yaml")
