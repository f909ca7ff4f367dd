"""The progress line on a terminal while tests run."""

from types import SimpleNamespace

import pytest
from progress import Estimate, Progress, minutes


def test_the_estimate_uses_durations_of_the_last_run():
    estimate = Estimate({"slow.py": 9.0, "fast.py": 1.0})
    estimate.collected(["fast.py::a", "fast.py::b", "slow.py::a", "slow.py::b"])
    assert estimate.left(1.0) is None
    estimate.finished("fast.py::a")
    assert estimate.left(0.5) == pytest.approx(0.5 * 19)  # at this pace a second of last time takes half of one
    estimate.finished("slow.py::a")
    assert estimate.left(5.0) == pytest.approx(5.0)
    estimate.finished("fast.py::b")
    estimate.finished("slow.py::b")
    assert estimate.left(10.0) == 0
    assert estimate.counts == (4, 4)


def test_an_unknown_test_file_is_estimated_by_the_mean():
    estimate = Estimate({"slow.py": 9.0, "fast.py": 1.0})
    estimate.collected(["fast.py::a", "new.py::a"])
    estimate.finished("fast.py::a")
    assert estimate.left(2.0) == pytest.approx(10.0)


def test_failures_are_shown_immediately_and_estimates_periodically():
    said, now = [], [100.0]
    progress = Progress(said.append, {}, lambda: now[0])
    progress.pytest_xdist_node_collection_finished([f"a.py::t{index}" for index in range(4)])
    for index, failed in enumerate((False, True)):
        now[0] += 10
        crash = SimpleNamespace(message="assert 1 == 2\n +  where")
        report = SimpleNamespace(
            nodeid=f"a.py::t{index}", failed=failed, duration=10.0, longrepr=SimpleNamespace(reprcrash=crash)
        )
        progress.pytest_runtest_logreport(report)
        progress.pytest_runtest_logfinish(report.nodeid)
    assert said == ["FAILED a.py::t1 - assert 1 == 2", "2 of 4 tests, about 20 s left"]
    assert progress.means() == {"a.py": 10.0}


@pytest.mark.parametrize(("seconds", "text"), [(3, "0 s"), (41, "40 s"), (59, "1 min 00 s"), (204, "3 min 20 s")])
def test_durations_are_rounded_to_ten_seconds(seconds, text):
    assert minutes(seconds) == text


def test_progress_is_shown_only_on_a_terminal(pytester, request, warmed):
    """The plugin is active only on a terminal, so that logs of CI are those of pytest."""
    (pytester.path / "conftest.py").write_text((request.config.rootpath / "tests/conftest.py").read_text())
    for name in ("progress", "warmed"):
        (pytester.path / f"{name}.py").write_text((request.config.rootpath / f"tests/{name}.py").read_text())
    pytester.makepyfile("def test_a(): assert False\n")
    done = warmed.run("pytest", "-p", "no:xdist", cwd=pytester.path)
    assert "1 failed" in done.stdout
    assert sum(line.startswith("FAILED ") and "::test_a" in line for line in done.stdout.splitlines()) == 1
