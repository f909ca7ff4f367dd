"""Ctrl-C: one word from the process that it is meant for, and no traceback from its workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from quantizer.conformance.run.state import Run

ROOT = Path(__file__).parents[2]
SCRIPT = """
import os, signal
from quantizer.core.workers import worker_pool

if __name__ == "__main__":
    with worker_pool(1) as pool:
        ended = [pool.submit(signal.raise_signal, signal.SIGINT), pool.submit(os.getpid)]
        print([type(one.exception(60)).__name__ for one in ended])
"""

DURING_IMPORT = """
import sys

class Interrupted:
    seen = False

    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            if Interrupted.seen:
                raise RuntimeError("torch cannot be imported twice")
            Interrupted.seen = True
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted())
"""


@pytest.mark.skipif(os.name == "nt", reason="processes of a console get no signal there")
def test_an_interrupt_in_a_worker_is_passed_to_the_parent(tmp_path: Path) -> None:
    (tmp_path / "pool.py").write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "pool.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("['KeyboardInterrupt', 'KeyboardInterrupt']\n", "")


def test_an_interrupted_session_needs_no_canary() -> None:
    run = Run()
    run._judging.add("")
    assert run.damage(pytest.ExitCode.OK)
    assert not run.damage(pytest.ExitCode.INTERRUPTED)


def test_an_interrupt_during_the_torch_import_gives_no_traceback(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(DURING_IMPORT)
    result = pytester.runpytest_subprocess("-p", "quantizer_conformance", "--op-shipped=relu")
    said = result.stdout.str() + result.stderr.str()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "KeyboardInterrupt" in said
    assert not any(word in said for word in ("INTERNALERROR", "cannot be imported twice", "no item of --op-shipped"))
