"""A program in a child of the warmed process behaves as in a fresh process."""

import os
import subprocess
import sys

import pytest

from quantizer.core.library import shipped_folder

PROBE = """\
import os, sys
from pathlib import Path

def test_probe():
    Path("said").write_text(repr([os.getcwd(), sys.argv[1:], os.environ.get("PROBE"), sys.path, os.environ.get("PYTEST_XDIST_WORKER")]))
    os.environ["PROBE"] = "changed"
    import quantizer.core.library
    quantizer.core.library.load_library = None
"""


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "in a worker"])
def test_a_warmed_child_behaves_like_a_fresh_process(warmed, tmp_path, workers):
    (tmp_path / "test_probe.py").write_text(PROBE)
    said = []
    for command in (None, [sys.executable, "-m", "pytest"]):
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
        env = {**ours, "PROBE": "given"}
        words = ["-q", "-p", "no:cacheprovider", *workers, "test_probe.py"]
        if command is None:
            done = warmed.run("pytest", *words, cwd=tmp_path, env=env)
        else:
            done = subprocess.run(
                [*command, *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
            )
        assert done.returncode == 0, done.stdout
        said.append((tmp_path / "said").read_text())
        assert done.stdout.splitlines()[-1].startswith("1 passed in ")
        assert done.stderr == ""
    assert said[0] == said[1]
    assert ("'gw0'" in said[0]) == bool(workers)


def test_a_crashed_worker_is_replaced_in_the_same_session(warmed, tmp_path):
    probe = "import os\n\ndef test_ends():\n    os.kill(os.getpid(), 11)\n\ndef test_goes_on():\n    pass\n"
    (tmp_path / "test_probe.py").write_text(probe)
    done = warmed.run("pytest", "-n", "1", "-p", "no:cacheprovider", "test_probe.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "1 failed, 1 passed" in done.stdout
    assert "worker 'gw0' crashed while running 'test_probe.py::test_ends'" in done.stdout


def test_changes_by_a_child_end_with_it(warmed, tmp_path):
    (tmp_path / "test_probe.py").write_text(PROBE)
    for _ in range(2):
        assert warmed.run("pytest", "test_probe.py", "-p", "no:cacheprovider", cwd=tmp_path).returncode == 0
    assert warmed.run("quantizer", "spec", "list", "--json").returncode == 0


def test_exit_codes_and_both_streams_are_returned(warmed, tmp_path):
    good = warmed.run("quantizer", "spec", "lint", shipped_folder() / "add.yaml", cwd=tmp_path)
    assert (good.returncode, good.stdout, good.stderr) == (0, "1 spec ok\n", "")
    bad = warmed.run("quantizer", "spec", "lint", "gone.yaml", cwd=tmp_path)
    assert (bad.returncode, bad.stdout) == (2, "")
    merged = warmed.run("quantizer", "spec", "lint", "gone.yaml", cwd=tmp_path, merged=True)
    assert (merged.stdout, merged.stderr) == (bad.stderr, "")
    assert "gone.yaml: no such file or folder." in bad.stderr


def test_variables_read_at_import_need_a_fresh_process(warmed, tmp_path):
    with pytest.raises(ValueError, match="MKL_CBWR: read at import"):
        warmed.run("quantizer", "--version", env={**os.environ, "MKL_CBWR": "AVX2"})
    other = tmp_path / "quantizer"
    other.mkdir()
    (other / "__init__.py").write_text("")
    done = warmed.run("quantizer", "--version", env={**os.environ, "PYTHONPATH": ""}, cwd=tmp_path)
    assert done.returncode == 1
    assert "this is another quantizer" in done.stderr
