"""IREE: its importer of ONNX, its compiler for the processor, and its runtime, in one thread."""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from iree import compiler, runtime
from iree.compiler.tools.import_onnx import __main__ as importer

NAME, VERSION, FORM, FLOATS = "iree", version("iree-base-runtime"), "onnx-qdq", True
# the processor's own instructions; the default is a generic processor
TARGET = ["--iree-llvmcpu-target-cpu=host"]


def load(model: bytes, options: dict[str, Any]) -> Any:
    """Return the compiled function; the importer reads and writes files."""
    with tempfile.TemporaryDirectory() as folder:
        source, imported = Path(folder) / "case.onnx", Path(folder) / "case.mlir"
        source.write_bytes(model)
        importer.main(importer.parse_arguments([str(source), "-o", str(imported)]))
        binary = compiler.compile_file(
            str(imported), input_type="onnx", target_backends=["llvm-cpu"], extra_args=TARGET
        )
    return runtime.load_vm_flatbuffer(binary, driver="local-sync")["case"]


def run(session: Any, feeds: dict[str, Any]) -> list[Any]:
    """Return every output of the graph; inputs are given in the model's order."""
    return [np.array(session(*feeds.values()))]
