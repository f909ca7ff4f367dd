"""Stand-alone scripts on the TOSA reference model; the graph is in the script, as the bytes of its file."""

from __future__ import annotations

from collections.abc import Mapping

from quantizer.runtime.engines.frames import Array, Job
from quantizer.runtime.engines.scripts import Source, listed, packed


def script(job: Job, known: Mapping[str, Array]) -> Source:
    """Return how a script runs the graph; the model says VALID where the specification defines the result."""
    return Source(
        ("from importlib.metadata import version", "import tosa_reference_model"),
        ("tosa-tools {version('tosa-tools')}",),
        (
            *packed("model", job.model),
            f"outputs, status = tosa_reference_model.run(model, {listed(job.feeds, known)})",
            'print("status  ", status)',
            "got = outputs[0]",
        ),
    )
