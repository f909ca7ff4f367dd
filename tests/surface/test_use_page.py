"""Each command of docs/use.md runs in a folder with the files that it names."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from followed import environment
from onnx import TensorProto, helper, numpy_helper
from warmed import Warmed

from conftest import OFF_BY_ONE
from quantizer.numerics.deviates import deviates

if TYPE_CHECKING:
    from conftest import Vendor

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "use.md"
COMMAND = re.compile(r"`((?:quantizer|pytest) [^`]*)`")
ELSEWHERE = {
    "quantizer spec new my_op": "tests/surface/test_contributing_recipe.py",
    "quantizer case repro FILE": "tests/unit/test_case_repro.py",
    "quantizer engine probe NAME": "tests/unit/test_probe.py",
    "quantizer optimize --compare cases/reference": "tests/unit/test_optimize_compare.py",
    "quantizer mlir verify model.mlir": "tests/unit/test_top_dialect.py",
    "quantizer faults": "tests/surface/test_contributing_recipe.py",
}
"""Commands that take minutes, or need an extra, an engine or a case of one -> the test that runs them."""
SHORTER = {
    "pytest --op-shipped=conv2d --op-engine=onnxruntime": "--op-scheme=w8a8 --op-check=float",
    "quantizer campaign --examples 1000000": "--examples 16 --op relu --op-scheme a8 --op-platform ideal --workers 1",
}
"""Commands that take hours -> the options that make them short."""
RED = ("pytest my_specs/", "quantizer case replay")
"""Commands that end with status 1 here, because the vendor's function is wrong by one."""


def commands() -> list[str]:
    """Return the command lines of the page, in its order."""
    return list(dict.fromkeys(COMMAND.findall(PAGE.read_text(encoding="utf-8"))))


def float_model() -> onnx.ModelProto:
    """Return a convolution with a Relu, in float."""
    weight = numpy_helper.from_array((deviates((4, 3, 3, 3), (1, 0, 0)) / 4).astype(np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["c"], "conv"), helper.make_node("Relu", ["c"], ["y"], "relu")],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 6, 6])],
        [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture
def folder(vendor: Vendor) -> Path:
    """Return the folder of a vendor whose function is wrong by one, with the files that the page names."""
    pytest.importorskip("onnxruntime")
    vendor.write(result=OFF_BY_ONE)
    for name in ("net.onnx", "model.onnx"):
        onnx.save(float_model(), vendor.root / name)
    for name in ("a.npz", "b.npz"):
        np.savez(vendor.root / name, y=np.arange(4, dtype=np.float32))
    for path in (ROOT / "examples" / "model_test").iterdir():
        if path.is_file():
            shutil.copy(path, vendor.root)
    return vendor.root


def words(command: str, folder: Path) -> list[str]:
    """Return the words of a command, the page's capitals replaced by files of *folder*."""
    failing = next(folder.glob("reports/out/failures/*.json"), None)
    file = "history.db" if "history" in command else str(failing)
    filled = {"FILE": file, "RUN": "reports/out", "BASE": "reports/out", "NAME": "monday"}
    plugins = ["--op-specs=my_specs", "--op-plugins=my_plugins"] if command.startswith("quantizer case") else []
    given = [filled.get(word, word) for word in shlex.split(command)[1:]]
    return given + plugins + shlex.split(SHORTER.get(command, ""))


def test_each_command_runs(folder: Path, warmed: Warmed) -> None:
    for command in commands():
        if command in ELSEWHERE:
            continue
        program = command.split()[0]
        done = warmed.run(program, *words(command, folder), cwd=folder, env=environment(), merged=True)
        assert done.returncode == int(command.startswith(RED)), f"{command}\n{done.stdout}"


def test_commands_tested_elsewhere_or_shortened_occur_on_the_page() -> None:
    assert {*ELSEWHERE, *SHORTER} <= set(commands())
    assert all((ROOT / path).is_file() for path in ELSEWHERE.values())
