"""Which function is built-in does not depend on the order of imports, nor on what a function says of itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

EARLY = """
import importlib, json, sys
from quantizer.core.rooms import rooms

modules = [module for room in reversed(rooms()) for module in reversed(room.functions)]
for module in [*modules, "quantizer.ops.conv2d"]:
    importlib.import_module(module)
sys.path.insert(0, sys.argv[1])
import plugin
from quantizer.ops import REGISTRY, load_built_ins

load_built_ins()
mine = [entry for entry in REGISTRY.all() if entry.op.startswith("forged")]
origins = {entry.op: entry.origin for entry in mine}
print(json.dumps([origins, sorted({e.origin for e in REGISTRY.all() if e not in mine}), len(REGISTRY.all()) - len(mine)]))
"""
PLUGIN = """
import importlib.util, sys, types
from pathlib import Path
from quantizer.ops import operator
from quantizer.platforms.torch import kernels

def said():
    def quantized(x, *, parameters):
        return x
    return quantized

def register(op, function):
    operator(op, kind="quantized")(function)

named = said()
named.__module__ = kernels.__name__
register("forged_module", named)
wraps = said()
wraps.__module__, wraps.__wrapped__ = kernels.__name__, kernels.matmul
register("forged_wrapped", wraps)
file = said()
file.__module__, file.__code__ = kernels.__name__, file.__code__.replace(co_filename=kernels.__file__)
register("forged_file", file)

class Shows:
    __module__, __code__, __globals__ = kernels.__name__, kernels.matmul.__code__, vars(kernels)
    __name__ = "quantized"
    def __call__(self, x, *, parameters):
        return x

register("forged_class", Shows())
spec = importlib.util.spec_from_file_location("quantizer.ops.forged", Path(__file__).parent / "quantizer/ops/forged.py")
sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules[spec.name])
"""
FOLDER = """
from quantizer.ops import operator

@operator("forged_folder")
def quantized(x, *, parameters):
    return x
"""
ALONE = """
import json
from quantizer.ops import REGISTRY, load_built_ins

load_built_ins()
print(json.dumps(len(REGISTRY.all())))
"""


def _said(script: str, *words: str) -> list[object]:
    done = subprocess.run([sys.executable, "-c", script, *words], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_function_origin_does_not_depend_on_import_order(tmp_path: Path) -> None:
    (tmp_path / "plugin.py").write_text(PLUGIN)
    folder = tmp_path / "quantizer" / "ops"
    folder.mkdir(parents=True)
    (folder / "forged.py").write_text(FOLDER)
    forged, others, count = _said(EARLY, str(tmp_path))
    assert isinstance(forged, dict)
    assert sorted(forged) == ["forged_class", "forged_file", "forged_folder", "forged_module", "forged_wrapped"]
    assert "built-in" not in forged.values()
    assert (others, count) == (["built-in"], _said(ALONE))
