"""LiteRT on one thread unless asked for more: a model with one of its three resolvers of kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.typing import NDArray

RESOLVERS = {
    # the plain C++ kernels
    "reference": OpResolverType.BUILTIN_REF,
    # the optimized kernels, without XNNPACK
    "builtin": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    # the default: XNNPACK takes what it supports, the optimized kernels run the rest
    "xnnpack": OpResolverType.BUILTIN,
}


def load(model: bytes, options: Mapping[str, str | int]) -> Interpreter:
    """Return an interpreter whose tensors are allocated."""
    resolver = RESOLVERS[str(options["resolver"])]
    threads = int(options.get("threads", 1))
    interpreter = Interpreter(model_content=model, experimental_op_resolver_type=resolver, num_threads=threads)
    interpreter.allocate_tensors()
    return interpreter


def run(session: Interpreter, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """Return every output of the graph; feeds are named as its inputs."""
    for detail in session.get_input_details():
        session.set_tensor(detail["index"], feeds[detail["name"]])
    session.invoke()
    return [session.get_tensor(detail["index"]) for detail in session.get_output_details()]
