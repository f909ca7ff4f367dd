"""What other code may import: named on the page, importable in any order, without torch where that is promised."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from quantizer.commands.api_reference import PUBLIC

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")


def on_page(package: str) -> set[str]:
    section = PAGE.split(f"## quantizer.{package}\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\* `(\w+)", section, re.MULTILINE))


@pytest.mark.parametrize("package", PUBLIC)
def test_the_page_lists_what_a_package_exports(package):
    module = importlib.import_module(f"quantizer.{package}")
    assert on_page(package) == set(module.__all__)
    assert set(module.__all__) <= set(dir(module))


@pytest.mark.parametrize("package", PUBLIC)
def test_no_public_name_shadows_a_module(package):
    """`from package import name` would give the module once somebody imported it."""
    module = importlib.import_module(f"quantizer.{package}")
    beside = {path.stem for path in Path(module.__file__).parent.iterdir()}
    assert not set(module.__all__) & beside


def test_an_unknown_name_is_an_import_error():
    with pytest.raises(ImportError, match="TorchExecuter"):
        from quantizer.runtime import TorchExecuter  # noqa: F401


def test_the_import_line_of_the_page_runs():
    (line,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    found: dict[str, object] = {}
    exec(line, found)  # the page is ours
    assert {"RuntimeHook", "TorchExecutor", "register_operation_handler"} <= found.keys()


def test_core_and_reporting_need_no_torch():
    text = (
        "import sys; from quantizer.core import Record, Spec, load_spec; from quantizer.reporting import read_run;"
        "assert 'torch' not in sys.modules;"
        "from quantizer.runtime import RuntimeHook, TorchExecutor, register_operation_handler"
    )
    subprocess.run([sys.executable, "-c", text], check=True)


def test_no_public_name_needs_an_extra():
    """`quantizer docs --check` reads every name where none of the extras is installed, as a plain installation has it."""
    text = (
        "import sys, importlib\n"
        "sys.modules.update(dict.fromkeys(['onnx', 'onnxruntime', 'ai_edge_litert', 'xdsl', 'distributed', 'sklearn']))\n"
        f"for package in {PUBLIC}:\n"
        "    module = importlib.import_module(f'quantizer.{package}')\n"
        "    for name in module.__all__:\n"
        "        getattr(module, name)\n"
    )
    subprocess.run([sys.executable, "-c", text], check=True)
