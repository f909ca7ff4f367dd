"""Apache TVM: Relax's importer of ONNX, its own legalisation, LLVM."""

from __future__ import annotations

from typing import Any

import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

NAME, VERSION, FORM, FLOATS = "tvm", tvm.__version__, "onnx-qdq", True


def load(model: bytes, options: dict[str, Any]) -> Any:
    """Return a machine with the compiled model."""
    imported = from_onnx(onnx.load_from_string(model), keep_params_in_input=False)
    built = tvm.compile(relax.transform.LegalizeOps()(imported), target="llvm")
    return relax.VirtualMachine(built, tvm.cpu())


def run(session: Any, feeds: dict[str, Any]) -> list[Any]:
    """Return every output of the graph; inputs are given in the model's order."""
    made = session["main"](*(tvm.runtime.tensor(values) for values in feeds.values()))
    return [made.numpy()]
