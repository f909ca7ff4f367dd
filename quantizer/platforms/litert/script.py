"""Writes a stand-alone script on LiteRT's own API that contains the model as bytes."""

from __future__ import annotations

from collections.abc import Mapping

from quantizer.runtime.engines.frames import Array, Job
from quantizer.runtime.engines.scripts import Source, expression, packed

RESOLVERS = {
    "reference": "BUILTIN_REF",
    "builtin": "BUILTIN_WITHOUT_DEFAULT_DELEGATES",
    "xnnpack": "BUILTIN",
}
"""Variant -> its name in OpResolverType; the worker holds the same (it cannot be imported without LiteRT)."""


def script(job: Job, known: Mapping[str, Array]) -> Source:
    """Return how a script runs the model under one of the three ways to find kernels."""
    resolver = RESOLVERS[str(job.options["resolver"])]
    fed = ", ".join(f'"{name}": {expression(values, known)}' for name, values in job.feeds.items())
    return Source(
        (
            "from importlib.metadata import version",
            "from ai_edge_litert.interpreter import Interpreter, OpResolverType",
        ),
        ("ai-edge-litert {version('ai-edge-litert')}",),
        (
            *packed("model", job.model),
            f"interpreter = Interpreter(model_content=model, experimental_op_resolver_type=OpResolverType.{resolver},",
            "                          num_threads=1)",
            "interpreter.allocate_tensors()",
            f"feeds = {{{fed}}}",
            "for detail in interpreter.get_input_details():",
            '    interpreter.set_tensor(detail["index"], np.asarray(feeds[detail["name"]], order="C"))',
            "interpreter.invoke()",
            'got = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])',
        ),
    )
