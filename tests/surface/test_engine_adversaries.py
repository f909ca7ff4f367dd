"""Wrong engines of a user that try to pass are red; unusual engines that are right are green."""

import json
from pathlib import Path

import pytest
from test_adversaries import green

from quantizer.cli import main

WORKER = """\
import json
import os
import sys
import time

import numpy as np

NAME, VERSION, FORM = "my_sim", "0.1", "npz"
OPERATORS = ["relu"]
FLOATS = False
KEPT = {{}}
{top}


def load(model, options):
    case = json.loads(model)
    if case["activation"] != "none":
        raise NotImplementedError("it fuses nothing")
    return case


def run(case, feeds):
    x, into, out = feeds["x"], case["inputs"]["x"], case["output"]
    real = into["scale"] * np.maximum(x.astype(np.int64) - into["zero_point"], 0)
    codes = np.rint(real / out["scale"]) + out["zero_point"]
    y = np.clip(codes, out["lowest"], out["highest"]).astype(out["type"])
    key = x.tobytes() + json.dumps(case).encode()
    seen = KEPT[key] = KEPT.get(key, 0) + 1
    calls = KEPT["calls"] = KEPT.get("calls", 0) + 1
    {body}
    return [y]
"""
WRONG_CODE = "y = y ^ 1"
DAEMON = """\
if calls == 1 and os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(3, 64)
        time.sleep(300)
    os._exit(0)"""
PIPE = """
def is_pipe(number):
    import fcntl, stat
    try:
        mode = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE
        return number > 2 and mode == os.O_WRONLY and stat.S_ISFIFO(os.fstat(number).st_mode)
    except OSError:
        return False
"""
ONCE = "once = not os.path.exists('seen')\nopen('seen', 'w').close()\n"
RED = {
    "one code off": ("", WRONG_CODE, "arithmetic: "),
    "a quarter more": ("", "y = y + 0.25", "declared: int8"),
    "whole floats": ("", "y = y.astype(np.float32)", "declared: int8"),
    "no numbers": ("", "y = np.full(y.shape, np.nan)", "declared: int8"),
    "wider": ("", "y = y.astype(np.int64)", "declared: int8"),
    "unsigned": ("", "y = y.view(np.uint8)", "declared: int8"),
    "texts": ("", "y = y.astype(str)", "an array of type '<U4'"),
    "one more axis": ("", "y = y[None]", "declared: int8"),
    "one more result": ("", "return [y, y]", "declared: int8"),
    "no result": ("", "return []", "answered with nothing"),
    "of the case before": ("", "y, KEPT['y'] = KEPT.get('y', y), y", ""),
    "of the data before": (
        "",
        "y = KEPT.setdefault((x.shape, int(x.astype(int).sum()) % 4), y)",
        "",
    ),
    "on large data": ("", "y = y ^ (x.size > 2000)", "arithmetic: "),
    "where asked again": ("", "y = y ^ (seen > 1)", ""),
    "later": ("", "y = y ^ (calls > 200)", ""),
    "after a large one": ("", "y = y ^ KEPT.get('large', 0)\nKEPT['large'] = int(x.size > 1000)", ""),
    "in a new process": (
        "late = os.path.exists('ended')",
        "if not late and calls == 20: open('ended', 'w').close(); os._exit(0)\ny = y ^ late",
        "elements outside their interval",
    ),
    "refuses where asked again": (
        "",
        "if seen > 1: raise NotImplementedError('no')",
        "refused the case that it ran before",
    ),
    "ends once": (
        "late = os.path.exists('ended')",
        "if not late and calls == 20: open('ended', 'w').close(); os._exit(0)",
        "ended with exit code 0",
    ),
    "refuses all but the first": (
        "",
        "if calls > 4: raise NotImplementedError('no')",
        "refused the case that it ran before",
    ),
    "refuses everything": ("", "raise NotImplementedError('no')", "compared nothing"),
    "ends well": ("", "os._exit(0)", "ended with exit code 0"),
    "junk between answers": (
        PIPE,
        "[os.write(n, b'junk') for n in range(3, 64) if is_pipe(n)]",
        "answered with a message",
    ),
    "deep": (
        PIPE,
        "[os.write(n, (9999).to_bytes(4, 'little') + b'[' * 9999) for n in range(3, 64) if is_pipe(n)]",
        "text is not JSON",
    ),
    "huge": (PIPE, "[os.write(n, b'\\xff' * 8) for n in range(3, 64) if is_pipe(n)]", "bytes of text, more than"),
    "answers twice": ("", "calls == 1 and os.fork()", ""),
    "floats that it has not": ("FLOATS = True", "", "float: the engine raised"),
    "another version later": (ONCE + "VERSION = '0.1' if once else '0.2'", "", "version '0.2', was '0.1'"),
    "other operators later": (ONCE + "OPERATORS = ['relu'] if once else []", "", "operators (), was ('relu',)"),
}
NOT_WHOLE = {
    "leaves a process": ("", DAEMON, "left 1 process(es) behind"),
    "its own file": ("", "open(__file__, 'a').write('#')", "my_sim.py: changed while the run was under way"),
    "a platform": (
        "",
        "os.makedirs('my_specs/platforms', exist_ok=True); open('my_specs/platforms/x.yaml', 'w').close()",
        "x.yaml: changed",
    ),
    "kills the judge": ("", "os.kill(os.getppid(), 9)", "has not ended, or was killed"),
    "interrupts the judge": ("", "os.kill(os.getppid(), 2)", "exit status 2"),
}
REFUSED = {
    "a conftest as it starts": (
        "os.makedirs('my_specs', exist_ok=True)\nopen('my_specs/conftest.py', 'w').write('import os; os._exit(0)')",
        "my_specs/conftest.py: changed while the engine was started. An engine writes no file of the run.",
    ),
    "our name": ("NAME = 'builtin'", "its name is 'builtin'. Give it a NAME of its own."),
    "another's name": ("NAME = 'onnxruntime'", "its name is 'onnxruntime'. Give it a NAME of its own."),
    "two lines": ("VERSION = 'a\\n::error::b'", "a greeting whose version is 'a\\n::error::b', must be a short text"),
}
FINE = {
    "right": ("", ""),
    "prints": ("", "print('x' * 5000, flush=True); os.write(1, b'z' * 999)"),
    "has everything": ("OPERATORS = []", ""),
    "writes a report": ("", "open('reports/out/records.jsonl', 'w').close()"),
    "reads": ("", "assert sys.stdin.read() == ''"),
}


@pytest.fixture
def judged(pytester, nested):
    def judged(top, body, *args):
        body = "\n    ".join(body.splitlines()) or "pass"
        (pytester.path / "my_sim.py").write_text(WORKER.format(top=top, body=body))
        (pytester.path / "my_specs").mkdir()
        asked = ("--op-shipped=relu", "--op-engine=python:my_sim.py", "-p", "no:cacheprovider", *args)
        return nested("my_specs", *asked) if args else nested(*asked)

    return judged


def why(root: Path) -> str:
    records = [json.loads(line) for line in (root / "reports/out/records.jsonl").read_text().splitlines()]
    lacks = json.loads((root / "reports/out/run.json").read_text())["lacks"]
    return "\n".join([*(str(record["failure"]) for record in records), *lacks])


@pytest.mark.nightly
@pytest.mark.parametrize("what", RED)
def test_an_engine_that_is_wrong_is_red(judged, pytester, capsys, what):
    top, body, said = RED[what]
    done = judged(top, body)
    assert not green(pytester.path, done.ret, capsys), done.outlines
    assert said in why(pytester.path)


@pytest.mark.nightly
@pytest.mark.parametrize("what", NOT_WHOLE)
def test_an_engine_that_attacks_the_run_does_not_pass(judged, pytester, capsys, what):
    top, body, said = NOT_WHOLE[what]
    done = judged(top, body)
    assert not green(pytester.path, done.ret, capsys), done.outlines
    assert main(["report", "show", str(pytester.path / "reports/out"), "--check"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("what", ["its own file", "leaves a process"])
def test_damage_by_an_engine_is_named(judged, pytester, capsys, what):
    test_an_engine_that_attacks_the_run_does_not_pass(judged, pytester, capsys, what)


@pytest.mark.parametrize("what", ["refuses where asked again", "another version later"])
def test_an_engine_that_changes_its_answer_is_red(judged, pytester, capsys, what):
    test_an_engine_that_is_wrong_is_red(judged, pytester, capsys, what)


@pytest.mark.parametrize("what", REFUSED)
def test_the_greeting_and_startup_of_an_engine_are_checked(judged, what):
    top, said = REFUSED[what]
    done = judged(top, "", "-p", "no:xdist")
    assert done.ret == 4
    assert said in "\n".join(done.errlines)


@pytest.mark.nightly
@pytest.mark.parametrize("what", FINE)
@pytest.mark.parametrize("workers", [0, 2])
def test_an_unusual_correct_engine_passes(judged, pytester, capsys, what, workers):
    done = judged(*FINE[what], *(["-n", str(workers)] if workers else []))
    assert green(pytester.path, done.ret, capsys), (done.outlines, done.errlines)
