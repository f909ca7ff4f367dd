"""The node tests that the onnx package ships, run through our backend."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from quantizer.core.errors import QuantizerError
from quantizer.runtime.onnx_backend import QuantizerBackend
from quantizer.runtime.torch_executor import OperationError

Outcome = Literal["passed", "refused", "wrong", "crashed"]
EXPANDED = re.compile(r"_expanded(_ver\d+)?$")

STANDARD = [
    "Abs",
    "Add",
    "And",
    "ArgMax",
    "Attention",
    "AveragePool",
    "BatchNormalization",
    "Cast",
    "Ceil",
    "Clip",
    "Concat",
    "Constant",
    "ConstantOfShape",
    "Conv",
    "ConvTranspose",
    "Cos",
    "CumSum",
    "DepthToSpace",
    "DequantizeLinear",
    "Div",
    "Einsum",
    "Elu",
    "Equal",
    "Erf",
    "Exp",
    "Expand",
    "Flatten",
    "Floor",
    "GRU",
    "Gather",
    "GatherElements",
    "GatherND",
    "Gelu",
    "Gemm",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "Greater",
    "GroupNormalization",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "If",
    "InstanceNormalization",
    "LSTM",
    "LayerNormalization",
    "LeakyRelu",
    "Less",
    "Log",
    "LogSoftmax",
    "Loop",
    "MatMul",
    "Max",
    "MaxPool",
    "Min",
    "Mish",
    "Mod",
    "Mul",
    "Neg",
    "NonMaxSuppression",
    "NonZero",
    "Not",
    "OneHot",
    "PRelu",
    "Pad",
    "Pow",
    "QuantizeLinear",
    "Range",
    "Reciprocal",
    "ReduceL2",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "Relu",
    "Reshape",
    "Resize",
    "RoiAlign",
    "Round",
    "ScatterElements",
    "ScatterND",
    "Selu",
    "Shape",
    "Sigmoid",
    "Sign",
    "Sin",
    "Slice",
    "Softmax",
    "Softplus",
    "SpaceToDepth",
    "Split",
    "Sqrt",
    "Squeeze",
    "Sub",
    "Sum",
    "Swish",
    "Tan",
    "Tanh",
    "Tile",
    "TopK",
    "Transpose",
    "Unsqueeze",
    "Where",
]
"""The part of the frozen list that is in the standard: PPQ's 100 names, and common operators that PPQ lacks."""
PPQ_ONLY = [
    "AdaptiveAvgPool2d",
    "CaffeArgMax",
    "ChannelShuffle",
    "Interp",
    "LayerNorm",
    "MMCVRoiAlign",
    "MultiHeadAttention",
    "PPQBiasFusedMatMul",
    "PPQDeviceSwitch",
    "Parameter",
    "Scale",
    "grid_sampler",
    "skipLayerNormPlugin",
]
"""The names of the frozen list that are in no opset and have no node test."""


CORRECTED = {
    (1, 21): {"test_l2normalization_axis_0"},
    (1, 22): {
        "test_attention_3d_with_past_and_present_qk_matmul_bias",
        "test_attention_3d_with_past_and_present_qk_matmul_softcap",
        "test_attention_4d_with_past_and_present_qk_matmul_bias",
        "test_attention_4d_with_past_and_present_qk_matmul_bias_3d_mask",
        "test_attention_4d_with_past_and_present_qk_matmul_bias_3d_mask_causal",
        "test_attention_4d_with_past_and_present_qk_matmul_bias_4d_mask",
        "test_attention_4d_with_past_and_present_qk_matmul_bias_4d_mask_causal",
        "test_attention_4d_with_qk_matmul_bias",
        "test_attention_4d_with_qk_matmul_softcap",
        "test_qlinearmatmul_2D_int8_float16",
        "test_qlinearmatmul_2D_int8_float32",
        "test_qlinearmatmul_3D_int8_float16",
        "test_qlinearmatmul_3D_int8_float32",
    },
}
"""Release of onnx -> tests whose expected results it corrected: a norm of zero is 0, Attention caps its scores before
masking, QLinearMatMul saturates int8. With an older onnx, these tests and their expansions are left out.
"""


@dataclass(frozen=True)
class NodeTest:
    """One official test: a model and its data. onnx before 1.22 stores both as files, later versions in memory."""

    name: str
    operator: str
    case: Any
    rtol: float
    atol: float

    @property
    def model(self) -> onnx.ModelProto:
        """The model, of one node or of the nodes that an operator expands to."""
        return _model(self.case)

    @property
    def data_sets(self) -> Iterator[tuple[list[Any], list[Any]]]:
        """Inputs and expected outputs."""
        if self.case.model is not None:
            for given, expected in self.case.data_sets:
                yield _arrays(given), _arrays(expected)
            return
        for place in sorted(Path(self.case.model_dir).glob("test_data_set_*")):
            yield _tensors(place, "input"), _tensors(place, "output")


@dataclass(frozen=True)
class Finding:
    """The outcome of one test, with its reason."""

    test: NodeTest
    outcome: Outcome
    reason: str = ""


def corrected_since(version: str) -> set[str]:
    """Return the tests whose expected results were corrected in a release of onnx later than *version*."""
    installed = tuple(int(part) for part in version.split(".")[:2])
    return {name for release, names in CORRECTED.items() if installed < release for name in names}


@cache
def node_tests() -> tuple[NodeTest, ...]:
    """Return every node test by name; a test of an expanded model belongs to the operator that it expands."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # later tests compute their expected results, including infinities
        cases = {case.name: case for case in load_model_tests(kind="node")}
    found, left_out = [], corrected_since(onnx.__version__)
    for name, case in sorted(cases.items()):
        # an expanded test runs the function body of the operator; it counts for the operator
        plain = EXPANDED.sub("", name)
        if plain in left_out:
            continue
        # an expansion whose plain test is missing stands for itself
        owner = cases.get(plain, case)
        operator = _model(owner).graph.node[0].op_type
        found.append(NodeTest(name, operator, case, case.rtol, case.atol))
    return tuple(found)


def run(test: NodeTest) -> Finding:
    """Run one test: wrong if its result is not accepted, refused for our own errors, crashed for any other."""
    try:
        ready = QuantizerBackend.prepare(test.model)
        for inputs, expected in test.data_sets:
            outputs = ready.run(inputs)
            Runner.assert_similar_outputs(expected, outputs, test.rtol, test.atol)
    except AssertionError as err:
        return Finding(test, "wrong", _line(err))
    except OperationError as err:
        return Finding(test, "refused" if isinstance(err.__cause__, QuantizerError) else "crashed", _line(err))
    except QuantizerError as err:
        return Finding(test, "refused", _line(err))
    except Exception as err:  # noqa: BLE001 - whatever escapes is what the table counts
        return Finding(test, "crashed", f"{type(err).__name__}: {_line(err)}")
    return Finding(test, "passed")


def _line(err: Exception) -> str:
    return " ".join(str(err).split())[:200]


def _model(case: Any) -> onnx.ModelProto:
    return case.model if case.model is not None else onnx.load(Path(case.model_dir) / "model.onnx")


def _arrays(values: Sequence[Any]) -> list[Any]:
    """Return *values* as arrays: numbers of 4 and 8 bits are given as ONNX's own tensors."""
    return [numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else item for item in values]


def _tensors(place: Path, kind: str) -> list[np.ndarray[Any, Any]]:
    found = []
    for index in range(len(list(place.glob(f"{kind}_*.pb")))):
        proto = onnx.TensorProto()
        proto.ParseFromString((place / f"{kind}_{index}.pb").read_bytes())
        found.append(numpy_helper.to_array(proto))
    return found
