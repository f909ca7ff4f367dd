"""The campaign command as a user sees it: killed and resumed, on Dask clusters, with wrong arguments."""

import contextlib
import json
import subprocess
import sys
import time

import distributed
import psutil
import pytest

from quantizer.cli import main
from quantizer.commands import campaign

EXAMPLES = "5120"


def words(folder, *more):
    return [
        "campaign",
        "--examples",
        EXAMPLES,
        "--op",
        "relu",
        "--op-scheme",
        "a8",
        "--seed",
        "5",
        "-o",
        str(folder),
        *more,
    ]


def command(folder, *more):
    """Run a campaign that is killed, or that is the client of a cluster, in a separate process."""
    return [sys.executable, "-m", "quantizer", *words(folder, *more)]


def record(folder):
    return (folder / "record.json").read_bytes()


def wait_for(condition, seconds=600):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, warmed):
    folder = tmp_path_factory.mktemp("undisturbed")
    result = warmed.run("quantizer", *words(folder, "--workers", "1"))
    assert result.returncode == 0, result.stderr
    assert "0 alarms" in result.stdout
    assert result.stderr == "", "silent in a pipe"
    return record(folder)


def test_a_killed_campaign_ends_its_workers_and_can_resume(tmp_path, undisturbed, warmed):
    journal = tmp_path / "journal.jsonl"
    running = psutil.Popen(command(tmp_path, "--workers", "2"), stdout=subprocess.DEVNULL)
    wait_for(lambda: journal.exists() and journal.read_bytes().count(b"\n") >= 2)
    workers = running.children()
    assert len(workers) >= 2
    running.kill()
    running.wait()
    wait_for(lambda: not any(is_running(worker) for worker in workers))
    assert not (tmp_path / "record.json").exists()
    kept = journal.read_bytes().count(b"\n")
    assert warmed.run("quantizer", *words(tmp_path, "--workers", "2")).returncode == 0
    assert record(tmp_path) == undisturbed
    units = [json.loads(line)["unit"] for line in journal.read_text().splitlines()]
    assert len(units) == len(set(units)) == 20 > kept


def is_running(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _started(*words):
    return subprocess.Popen([sys.executable, "-m", *words], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def cluster(folder, count):
    """Run a Dask scheduler and *count* workers of one thread; yield its address and the workers."""
    file = folder / "scheduler.json"
    local = ["--host", "127.0.0.1", "--no-dashboard"]
    # A worker outlives a run that is killed, unless it is told to end without a scheduler.
    worker = ["--nthreads", "1", "--no-nanny", "--death-timeout", "60"]
    started = [_started("distributed.cli.dask_scheduler", *local, "--port", "0", "--scheduler-file", str(file))]
    try:
        wait_for(lambda: file.exists() and file.read_text().endswith("}"))
        address = json.loads(file.read_text())["address"]
        for _ in range(count):
            started.append(_started("distributed.cli.dask_worker", address, *local, *worker))
        yield address, started[1:]
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_dask_workers_share_units_and_survive_the_loss_of_one(tmp_path, undisturbed):
    """Every worker runs units, none more than half of them, and no unit runs twice: so the rate grows with workers."""
    out, again = tmp_path / "out", tmp_path / "again"
    with cluster(tmp_path, 4) as (address, workers):
        with distributed.Client(address) as client:
            client.wait_for_workers(4)
            subprocess.run(command(out, "--cluster", address), check=True, capture_output=True)
            ran = client.run(lambda dask_worker: dask_worker.state.executed_count)
        journal = again / "journal.jsonl"
        running = subprocess.Popen(command(again, "--cluster", address), stdout=subprocess.DEVNULL)
        try:
            wait_for(lambda: journal.exists() and journal.read_bytes().count(b"\n") >= 2)
            for worker in workers[:2]:
                worker.kill()
            assert running.wait(timeout=600) == 0
        finally:
            running.kill()
    units = [json.loads(line)["unit"] for line in (out / "journal.jsonl").read_text().splitlines()]
    assert sorted(units) == list(range(20))
    assert len(ran) == 4
    assert sum(ran.values()) == 20
    assert 1 <= min(ran.values()) <= max(ran.values()) <= 10
    assert record(out) == record(again) == undisturbed


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ([], "it would never end. Say --examples N, --time T, or both."),
        (["--examples", "0"], "--examples=0: must be 1 or more."),
        (["--time", "soon"], "'soon': must be a number with s, m or h, such as 90s or 8h"),
        (["--examples", "10", "--op", "rleu"], "--op=rleu: no such name. Did you mean 'relu'?"),
        (["--examples", "10", "--op", "relu", "--op-platform", "ort"], "the options leave no target to judge."),
        (["--examples", "10", "--op", "relu", "--cluster", "tcp://127.0.0.1:1"], "no scheduler answers"),
        (["--examples", "10", "--workers", "2", "--cluster", "x"], "--cluster and --workers exclude each other"),
    ],
)
def test_an_impossible_campaign_is_refused_in_one_line(tmp_path, capsys, monkeypatch, asked, text):
    monkeypatch.setattr(campaign, "PATIENCE", "200 ms")
    folder = tmp_path / "out"
    assert main(["campaign", "-o", str(folder), *asked]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert text in said.err
    assert not folder.exists()
