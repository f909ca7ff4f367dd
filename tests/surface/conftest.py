"""Runs pytest inside pytest, in a separate folder."""

import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from warmed import Done, Warmed

SPEC = """\
op: {name}
version: "1.0"
summary: Twice the input.
dims:
  shape: {{type: shape, rank: [1, 3], min: 1, max: 4}}
inputs:
  x: {{axes: shape}}
outputs:
  y: {{}}
shape:
  y: shape
error_model: {{kind: linear, terms: 1}}
quantization: {{family: doubling}}
tiling:
  "*": {{rule: independent}}
oracle: {oracle}
"""

MODULE = '''\
"""Twice the input."""
from quantizer.numerics.requantize_accumulator import requantize_terms
from quantizer.numerics.quantize import centred
from quantizer.ops import operator


@operator("{name}")
def reference(x):
    """Return 2 x."""
    return 2 * x


@operator("{name}")
def quantized(x, *, parameters):
    """Double, then round once."""
    return {result}
'''

RIGHT = 'requantize_terms({"x": 2 * centred(x, parameters.inputs["x"])}, parameters)'
OFF_BY_ONE = RIGHT + " + 1"
LEFT_OUT = ("CI", "AIPUPLUGIN_PATH", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER")
"""Environment variables that are not passed on to nested sessions."""


class Vendor:
    """The folder of a vendor with one operator: a spec and a plugin."""

    def __init__(self, pytester: pytest.Pytester, nested: Callable[..., pytest.RunResult], warmed: Warmed) -> None:
        self.pytester = pytester
        self.root = pytester.path
        self.pytest = nested
        self.warmed = warmed

    def write(self, name: str = "double", *, result: str = RIGHT, oracle: str = "none") -> None:
        (self.root / "my_specs").mkdir(exist_ok=True)
        (self.root / "my_plugins").mkdir(exist_ok=True)
        (self.root / "my_specs" / f"{name}.yaml").write_text(SPEC.format(name=name, oracle=oracle))
        (self.root / "my_plugins" / f"{name}.py").write_text(MODULE.format(name=name, result=result))

    def run(self, *args: str) -> pytest.RunResult:
        return self.pytest("my_specs", "--op-plugins", "my_plugins", "-p", "no:cacheprovider", *args)

    def apart(self, *args: str) -> Done:
        """Run pytest in a fresh process with another hash seed for strings: all that `run` starts share one seed."""
        words = ["my_specs", "--op-plugins", "my_plugins", "-p", "no:cacheprovider", *args]
        seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
        environment = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
        return subprocess.run(
            [sys.executable, "-m", "pytest", *words],
            cwd=self.root,
            env={**environment, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=False,
        )

    def quantizer(self, *words: str) -> Done:
        """Run a command in this folder."""
        return self.warmed.run("quantizer", *words, cwd=self.root)


@pytest.fixture
def nested(
    pytester: pytest.Pytester, warmed: Warmed, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., pytest.RunResult]:
    """Run pytest in pytester's folder, as pytester.runpytest_subprocess does, without its four seconds of imports."""
    for name in LEFT_OUT:
        monkeypatch.delenv(name, raising=False)

    def run(*args: str) -> pytest.RunResult:
        start = time.perf_counter()
        done = warmed.run("pytest", *args, cwd=pytester.path)
        seconds = time.perf_counter() - start
        return pytest.RunResult(done.returncode, done.stdout.splitlines(), done.stderr.splitlines(), seconds)

    return run


@pytest.fixture
def vendor(pytester: pytest.Pytester, nested: Callable[..., pytest.RunResult], warmed: Warmed) -> Vendor:
    return Vendor(pytester, nested, warmed)
