"""A stand-alone script on ONNX Runtime's own API."""

from __future__ import annotations

from collections.abc import Mapping

from quantizer.runtime.engines.forms.onnx_source import IMPORTS, model_lines
from quantizer.runtime.engines.frames import Array, Job
from quantizer.runtime.engines.scripts import Source, feeds_text


def script(job: Job, known: Mapping[str, Array]) -> Source:
    """Return how a script builds the model and runs it unchanged, without optimizations."""
    return Source(
        (IMPORTS[0], "import onnxruntime", IMPORTS[1]),
        ("onnxruntime {onnxruntime.__version__}", "onnx {onnx.__version__}"),
        (
            *model_lines(job, known),
            "options = onnxruntime.SessionOptions()",
            "options.intra_op_num_threads = 1",
            "options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL",
            'session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])',
            f"got = session.run(None, {feeds_text(job.feeds, known)})[0]",
        ),
    )
