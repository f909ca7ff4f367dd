"""Functions of plugins run in a separate process: an error fails only its own item, with a one-line reason."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from conftest import RIGHT, SPEC
from quantizer.cli import main

HEAD = '''\
"""Twice the input, and something else."""
import ctypes
import os
import signal
import sys
import time
import time

import numpy as np
import torch

from quantizer.numerics.requantize_accumulator import requantize_terms
from quantizer.numerics.parameters import default_parameters
from quantizer.numerics.quantize import centred
from quantizer.ops import operator


@operator("{name}")
def reference(x):
    return 2 * x
'''
KERNEL = """

KEPT = {{}}


@operator("{name}")
def quantized(x, *, parameters):
    right = {right}
    {body}
    return {result}
"""
PATCHES = """

import quantizer.conformance.judging.judge as judge
import quantizer.core.verdict as verdict

judge.judge = lambda *_: []
verdict.Verdict.failing = property(lambda self: False)
np.count_nonzero = lambda *_, **__: 0
"""
FILES_OF_THE_PROCESS = "[os.write(int(n), b'A' * 4096) for n in os.listdir('/proc/self/fd') if is_pipe(int(n))]"
IS_PIPE = """

def is_pipe(number):
    import fcntl, stat
    try:
        mode = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE
        return number > 2 and mode == os.O_WRONLY and stat.S_ISFIFO(os.fstat(number).st_mode)
    except OSError:
        return False
"""
CACHE = "found = KEPT.setdefault((x.data_ptr(), tuple(x.shape)), right)"
BUFFER = "found = KEPT.setdefault(tuple(right.shape), torch.empty_like(right)).copy_(right)"
STRIDES = "flat = torch.as_strided(x, x.shape, torch.empty(x.shape).stride(), x.storage_offset())"
RAW = 'requantize_terms({"x": 2 * centred(flat, parameters.inputs["x"])}, parameters)'
WRONG = {
    "crashes": ("ctypes.string_at(0)", "right", "its process was killed by SIGSEGV"),
    "exits": ("os._exit(3)", "right", "its process ended with exit code 3"),
    "hangs": ("time.sleep(600)", "right", "its process did not answer within 2 s"),
    "stops": ("os.kill(os.getpid(), signal.SIGSTOP)", "right", "its process did not answer within 2 s"),
    "grows": (
        "KEPT['all'] = [torch.ones(1 << 24) for _ in range(1 << 12)]",
        "right",
        "its process took more than 768 MB of memory",
    ),
    "babbles": (FILES_OF_THE_PROCESS, "right", "its process answered with a message"),
    "closes": ("os.closerange(3, 64); time.sleep(600)", "right", "its process closed its output"),
    "raises": ("raise ValueError('no such kernel')", "right", "ValueError: no such kernel (my_plugins/raises.py:"),
    "interrupts": ("raise KeyboardInterrupt", "right", "KeyboardInterrupt"),
    "skips": ("import pytest; pytest.skip('today')", "right", "Skipped: today"),
    "floats": ("", "right + 0.25", "codes are integers"),
    "bools": ("", "right > 0", "codes are integers"),
    "nothing": ("", "None", "a function returned NoneType"),
    "arrays": ("", "right.numpy()", "a function returned ndarray"),
    "elsewhere": ("", "right.to('meta')", "tensors are dense, on the CPU"),
    "longer": ("", "right[None]", "shape"),
    "flat": ("", "right.flatten()[:1]", "shape"),
    "writes": ("x += 1", "right", "wrote into operand 'x'. Work on a copy."),
    "rescales": ("parameters.inputs['x'].scale.mul_(2)", "right", "wrote into what it was given. Work on a copy."),
    "remembers": (CACHE, "found", "Keep nothing by the address of a tensor."),
    "reuses": (BUFFER, "found", "Return memory that nothing else uses."),
    "strides": (STRIDES, RAW, "Read them by their strides."),
    "patches": ("", "right + 1", "arithmetic: "),
}
FINE = {
    "prints": ("os.write(1, b'x' * 65536); print('word of a kernel')", "right"),
    "reads": ("assert sys.stdin.read() == ''", "right"),
    "views": ("", "right.flip(0).flip(0)"),
    "narrow": ("", "right.to(torch.int32)"),
    "flattens": ("x.view(x.numel())", "right"),
    "demands": ("assert x.is_contiguous()", "right"),
}
RULE = '''

class Own:
    """What only the plugin knows."""


@operator("keeps")
def quantize(request):
    made = default_parameters(request)
    return __import__("dataclasses").replace(made, extra={"own": Own(), "count": 3})
'''


def text(name: str, body: str, result: str) -> str:
    body = "\n    ".join(body.splitlines()) or "pass"
    head = HEAD.format(name=name) + {"patches": PATCHES, "babbles": IS_PIPE}.get(name, "")
    return head + KERNEL.format(name=name, right=RIGHT, body=body, result=result)


def write(root: Path, name: str, source: str) -> None:
    for folder in ("my_specs", "my_plugins"):
        (root / folder).mkdir(exist_ok=True)
    (root / "my_specs" / f"{name}.yaml").write_text(SPEC.format(name=name, oracle="none"))
    (root / "my_plugins" / f"{name}.py").write_text(source)


def records(root: Path) -> dict[str, dict[str, object]]:
    lines = (root / "reports/out/records.jsonl").read_text().splitlines()
    return {record["op"]: record for record in map(json.loads, lines)}


def everything(root: Path) -> None:
    for name, (body, result, _) in WRONG.items():
        write(root, name, text(name, body, result))
    for name, (body, result) in FINE.items():
        write(root, name, text(name, body, result))
    kept = text("keeps", "assert type(parameters.extra['own']) is Own and parameters.extra['count'] == 3", "right")
    write(root, "keeps", kept + RULE)


LATE = ("hangs", "stops")
"""Functions that only a time limit ends. Only their tests wait for a short limit."""


def test_a_failing_plugin_function_fails_only_its_own_item(vendor):
    everything(vendor.root)
    late = " or ".join(f"{name}-a8-ideal" for name in LATE)
    assert vendor.run("-k", late, "-p", "no:xdist", "--op-plugin-timeout=2").ret == 1
    found = records(vendor.root)
    assert set(found) == set(LATE)
    rest = f"a8-ideal and not ({late})"
    result = vendor.run("-k", rest, "-p", "no:xdist", "--op-plugin-timeout=60", "--op-plugin-memory=0.75")
    assert result.ret == 1
    found |= records(vendor.root)
    assert set(found) == {*WRONG, *FINE, "keeps"}
    for name in (*FINE, "keeps"):
        assert found[name]["outcome"] == "passed", (name, found[name].get("failure"))
    for name, (_, _, said) in WRONG.items():
        assert found[name]["outcome"] == "failed", name
        assert said in str(found[name]["failure"]), (name, found[name]["failure"])
        assert len(str(found[name]["failure"]).splitlines()) == 1
    shown = result.stdout.str()
    assert "Traceback (most recent call last)" in shown, "the traceback of the process is part of the failure"
    assert "raise ValueError('no such kernel')" in shown
    facts = json.loads((vendor.root / "reports/out/run.json").read_text())
    assert facts["lacks"] == [] and not facts["in_process"]
    assert {one["standing"] for one in facts["functions"] if ".quantized" in one["name"]} >= {"judged"}


def test_a_process_left_by_a_plugin_ends_and_invalidates_the_run(vendor):
    """The process has left the session of the process that started it, so no process group contains it."""
    fork = "KEPT or os.fork() or (os.setsid(), os.closerange(0, 64), time.sleep(600)); KEPT.setdefault(1)"
    write(vendor.root, "orphans", text("orphans", fork, "right"))
    marked = [
        sys.executable,
        "-m",
        "pytest",
        "my_specs",
        "--op-plugins=my_plugins",
        "-k",
        "a8-ideal",
        "-p",
        "no:cacheprovider",
    ]
    before = set(psutil.pids())
    done = subprocess.run(marked, cwd=vendor.root, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    assert "not whole: what was judged left 1 process(es) behind, which were ended." in done.stdout
    left = [process for process in psutil.process_iter(["pid", "cmdline"]) if process.pid not in before]
    assert not any("quantizer.runtime.isolation" in " ".join(process.info["cmdline"] or ()) for process in left)
    assert main(["report", "statement", str(vendor.root / "reports/out"), "-o", str(vendor.root / "s")]) == 2


def test_an_in_process_run_is_reported_and_gives_no_statement(vendor, capsys):
    write(vendor.root, "fine", text("fine", "", "right"))
    result = vendor.run("-k", "a8-ideal", "--op-in-process")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["quantizer: functions of plugins run in this process (--op-in-process)*"])
    assert json.loads((vendor.root / "reports/out/run.json").read_text())["in_process"] is True
    assert main(["report", "statement", str(vendor.root / "reports/out"), "-o", str(vendor.root / "s")]) == 2
    assert "--op-in-process" in capsys.readouterr().err
    assert not (vendor.root / "s.json").exists()


def test_the_judge_imports_nothing_of_a_plugin(vendor):
    """The plugin's module, and what it patches while it is loaded, exist only in the other process."""
    write(vendor.root, "fine", text("fine", "", "right") + "\nnp.vendor = np.isnan = None\n")
    (vendor.root / "my_specs/conftest.py").write_text(
        "import sys\n\n\ndef pytest_sessionfinish():\n"
        "    import numpy as np\n    assert not hasattr(np, 'vendor') and callable(np.isnan)\n"
        "    assert not any('my_plugins' in (getattr(m, '__file__', None) or '') for m in list(sys.modules.values()))\n"
    )
    result = vendor.run("-k", "a8-ideal")
    assert result.ret == 0, result.stdout.str()


def test_another_interpreter_loads_the_plugins(vendor, tmp_path):
    """The plugin's dependencies lie elsewhere: the judge cannot import them, and need not."""
    elsewhere = vendor.root / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "vendors_own.py").write_text("TWO = 2\n")
    python = vendor.root / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={elsewhere}:$PYTHONPATH exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    write(vendor.root, "fine", "import vendors_own\n" + text("fine", "assert vendors_own.TWO == 2", "right"))
    assert vendor.run("-k", "a8-ideal").ret == 4
    assert vendor.run("-k", "a8-ideal", f"--op-plugin-python={python}").ret == 0
    missing = vendor.run("-k", "a8-ideal", "--op-plugin-python=nowhere")
    assert missing.ret == 4
    missing.stderr.fnmatch_lines(["ERROR: --op-plugin-python=*nowhere: no such file. Name an interpreter."])


@pytest.mark.parametrize("given", ["--op-plugin-timeout=soon", "--op-plugin-memory=0"])
def test_plugin_limits_must_be_positive_numbers(vendor, given):
    write(vendor.root, "fine", text("fine", "", "right"))
    assert vendor.run(given).ret == 4


def test_each_xdist_worker_has_its_own_plugin_process(vendor):
    for name in ("crashes", "strides"):
        write(vendor.root, name, text(name, *WRONG[name][:2]))
    write(vendor.root, "views", text("views", *FINE["views"]))
    result = vendor.run("-k", "a8-ideal", "-n", "2", "--op-profile=dev")
    assert result.ret == 1
    found = records(vendor.root)
    assert found["views"]["outcome"] == "passed"
    for name in ("crashes", "strides"):
        assert WRONG[name][2] in str(found[name]["failure"]), name


def test_a_layer_gives_the_same_records_in_process_and_apart(pytester, nested):
    """Attributes, placeholders and what the layer's quantize function leaves reach the judge only as plain data."""
    example = Path(__file__).parents[2] / "examples/third_party_plugin"
    for folder in ("op_specs", "plugin"):
        shutil.copytree(example / folder, pytester.path / folder)
    given = (
        "op_specs",
        "--op-specs=op_specs",
        "--op-plugins=plugin",
        "-k",
        "a8-compass",
        "-p",
        "no:cacheprovider",
    )
    assert nested(*given, "--op-report=apart").ret == 0
    assert nested(*given, "--op-report=beside", "--op-in-process").ret == 0
    apart, beside = ((pytester.path / name / "records.jsonl").read_bytes() for name in ("apart", "beside"))
    assert apart == beside != b""


def test_a_process_whose_judge_was_killed_ends_itself(vendor):
    write(vendor.root, "hangs", text("hangs", "open('here', 'w').write(str(os.getpid())); time.sleep(600)", "right"))
    words = [
        sys.executable,
        "-m",
        "pytest",
        "my_specs",
        "--op-plugins=my_plugins",
        "-k",
        "a8-ideal",
        "-p",
        "no:cacheprovider",
    ]
    with subprocess.Popen(words, cwd=vendor.root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as judge:
        note = vendor.root / "here"
        while judge.poll() is None and not (note.exists() and note.read_text()):
            time.sleep(0.1)
        judge.kill()
    pid = int(note.read_text())
    for _ in range(300):
        if not psutil.pid_exists(pid):
            break
        time.sleep(0.1)
    assert not psutil.pid_exists(pid)
