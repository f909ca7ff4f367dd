"""ONNX's own interface to whatever runs its models: onnx.backend.base.Backend over the executor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

from quantizer.core.errors import QuantizerError
from quantizer.ir.formats.onnx import from_model
from quantizer.ir.formats.onnx_values import to_numpy, to_torch
from quantizer.runtime.dispatch import FP32, runs_on
from quantizer.runtime.torch_executor import TorchExecutor


class QuantizerRep(BackendRep):  # type: ignore[misc]
    """One model, ready to run."""

    def __init__(self, executor: TorchExecutor) -> None:
        self.executor = executor

    def run(self, inputs: Any, **_: Any) -> tuple[np.ndarray[Any, Any], ...]:
        """Return the outputs of the model on numpy arrays, in the order of its inputs or by name."""
        graph = self.executor.graph
        if not isinstance(inputs, Mapping):
            given: Sequence[Any] = inputs if isinstance(inputs, list | tuple) else [inputs]
            inputs = dict(zip(graph.inputs, given, strict=True))
        feeds = {name: to_torch(np.asarray(value), graph.tensor(name).dtype) for name, value in inputs.items()}
        outputs = self.executor.forward(feeds)
        return tuple(
            to_numpy(value, graph.tensor(name).dtype) for name, value in zip(graph.outputs, outputs, strict=True)
        )


class QuantizerBackend(Backend):  # type: ignore[misc]
    """Runs ONNX models on the executor, in float."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> bool:
        """Return whether the model loads and each of its operators has a kernel."""
        try:
            cls.prepare(model, device)
        except QuantizerError:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> QuantizerRep:
        """Load a model; UnsupportedError names every operator that nothing runs."""
        return QuantizerRep(TorchExecutor(from_model(model, runs=runs_on(FP32)), device=device.lower(), platform=FP32))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether models run on *device*."""
        return device.upper() == "CPU"


prepare = QuantizerBackend.prepare
run_model = QuantizerBackend.run_model
supports_device = QuantizerBackend.supports_device
