"""Writes a stand-alone script on the TOSA reference model that contains the graph as bytes."""

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
