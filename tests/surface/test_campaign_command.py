"""What a user sees of a campaign: killed and gone on with, on a Dask cluster that loses a worker, misused."""

import json
import subprocess
import sys
import time

import psutil
import pytest

from quantizer.cli import main

EXAMPLES = "5120"


def command(folder, *more):
    words = ["campaign", "--examples", EXAMPLES, "--op", "relu", "--op-scheme", "a8", "--seed", "5", "-o", str(folder)]
    return [sys.executable, "-m", "quantizer", *words, *more]


def record(folder):
    return json.loads((folder / "record.json").read_text())


def wait_for(condition, seconds=600):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    result = subprocess.run(command(folder, "--workers", "1"), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "0 alarms" in result.stdout
    assert result.stderr == "", "silent in a pipe"
    return record(folder)


def test_a_campaign_that_was_killed_goes_on_and_ends_the_same_and_its_workers_end_with_it(tmp_path, undisturbed):
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
    subprocess.run(command(tmp_path, "--workers", "2"), check=True, capture_output=True)
    assert record(tmp_path) == undisturbed
    units = [json.loads(line)["unit"] for line in journal.read_text().splitlines()]
    assert len(units) == len(set(units)) == 20 > kept


def is_running(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_dask_cluster_that_loses_a_worker_loses_no_case(tmp_path, undisturbed):
    address_file = tmp_path / "scheduler.json"
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0",
             "--no-dashboard", "--scheduler-file", str(address_file)],
            stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )
    ]  # fmt: skip
    try:
        wait_for(lambda: address_file.exists() and address_file.read_text().endswith("}"))
        address = json.loads(address_file.read_text())["address"]
        worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny",
                  "--no-dashboard", "--host", "127.0.0.1"]  # fmt: skip
        workers = [subprocess.Popen(worker, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) for _ in range(2)]
        started += workers
        journal = tmp_path / "out" / "journal.jsonl"
        running = subprocess.Popen(command(tmp_path / "out", "--cluster", address), stdout=subprocess.DEVNULL)
        started.append(running)
        wait_for(lambda: journal.exists() and journal.read_bytes().count(b"\n") >= 2)
        workers[0].kill()
        assert running.wait(timeout=600) == 0
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert record(tmp_path / "out") == undisturbed


@pytest.mark.parametrize(
    ("words", "text"),
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
def test_what_cannot_run_is_said_in_one_line(tmp_path, capsys, words, text):
    folder = tmp_path / "out"
    assert main(["campaign", "-o", str(folder), *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert text in said.err
    assert not folder.exists()
