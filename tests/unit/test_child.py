"""Child processes: every wait for one ends, whatever it does with its pipes."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from quantizer.runtime.engines import child as child_module
from quantizer.runtime.engines.child import Child, DiedError, Limits
from quantizer.runtime.engines.frames import Frame

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes hand their pipes on by fork")

HEIR = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    env = dict(PATH=os.environ["PATH"])
    for number in (0, 1):
        os.set_inheritable(number, True)
    os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(20)"], env)
time.sleep(0.5)
{then}
"""
CRASH, WAIT = "os.kill(os.getpid(), 11)", "time.sleep(600)"


def _asked(script: str, size: int = 1, patience: float = 1.0) -> str:
    child = Child([sys.executable, "-c", script], dict(os.environ), Limits(patience=patience))
    try:
        with pytest.raises(DiedError) as error:
            child.ask(Frame({"kind": "call"}, arrays=[np.zeros(size, np.uint8)]))
    finally:
        child.close()
    return str(error.value)


@pytest.fixture(autouse=True)
def no_heir() -> object:
    """End the hidden process that a test left behind."""
    yield
    for process in psutil.process_iter(["cmdline"]):
        if (process.info["cmdline"] or [""])[-1] == "import time; time.sleep(20)":
            process.kill()


@pytest.mark.parametrize("size", [1, 1 << 22])
def test_a_crashed_process_with_inherited_pipes_is_not_waited_for(size: int) -> None:
    assert _asked(HEIR.format(then=CRASH), size) == "was killed by SIGSEGV"


def test_a_hanging_process_with_inherited_pipes_is_not_waited_for() -> None:
    assert _asked(HEIR.format(then=WAIT), 1 << 22) == "did not answer within 1 s"


def test_a_process_that_reads_nothing_is_not_waited_for() -> None:
    assert _asked("import time; time.sleep(600)", 1 << 22) == "did not answer within 1 s"


def test_a_process_that_writes_endlessly_is_stopped() -> None:
    assert "answered with " in _asked("import os\nwhile True: os.write(1, bytes(65536))")


def test_a_message_of_any_length_crosses_the_pipes() -> None:
    echo = (
        "import sys\nfrom quantizer.runtime.engines.frames import *\n"
        "while (frame := receive(sys.stdin.buffer)) is not None: send(sys.stdout.buffer, frame)\n"
    )
    child = Child([sys.executable, "-c", echo], dict(os.environ), Limits(patience=60.0))
    try:
        for size in (0, 1, 65_535, 65_536, 5_000_001):
            values = np.arange(size, dtype=np.uint8)
            (found,) = child.ask(Frame({}, arrays=[values])).arrays
            assert np.array_equal(found, values)
    finally:
        child.close()


ANSWERS = """
import struct, sys, time
pipe, text = sys.stdout.buffer, b'{"model": 0, "arrays": []}'
def answer(times=1):
    pipe.write((struct.pack("<I", len(text)) + text) * times)
sys.stdin.buffer.read(4)
"""


def test_a_second_answer_is_an_error() -> None:
    said = _asked(ANSWERS + "answer(2); pipe.flush(); time.sleep(9)")
    assert said == "answered with 30 bytes that no question asked for"


def test_a_late_repeated_answer_is_not_taken_for_the_next() -> None:
    script = ANSWERS + "answer(); pipe.flush(); time.sleep(0.2); answer(); pipe.flush(); time.sleep(9)"
    child = Child([sys.executable, "-c", script], dict(os.environ), Limits(patience=5.0))
    child.ask(Frame({"kind": "call"}))
    time.sleep(0.6)
    with pytest.raises(DiedError, match="^answered with 30 bytes that no question asked for$"):
        child.ask(Frame({"kind": "call"}))
    child.close()


def test_a_process_that_starts_slowly_is_not_waited_for() -> None:
    child = Child([sys.executable, "-c", "import time; time.sleep(60)"], dict(os.environ), Limits(starting=0.5))
    with pytest.raises(DiedError, match=r"^did not answer within 0\.5 s$"):
        child.greeting()
    child.close()


def test_a_process_whose_memory_grows_without_end_is_ended() -> None:
    script = "held = []\nwhile True: held.append(bytearray(b'1') * (4 << 20))"
    limits = Limits(patience=30.0, memory=200 << 20)
    child = Child([sys.executable, "-c", script], dict(os.environ), limits)
    with pytest.raises(DiedError, match=r"^took more than 200 MB of memory$"):
        child.ask(Frame({"kind": "call"}))
    child.close()


def test_output_of_an_earlier_question_is_not_blamed_on_the_next() -> None:
    script = """
import os, sys
from quantizer.runtime.engines.frames import Frame, receive, send
receive(sys.stdin.buffer)
print("of the first question", file=sys.stderr, flush=True)
send(sys.stdout.buffer, Frame({"kind": "answer"}))
receive(sys.stdin.buffer)
os.kill(os.getpid(), 6)
"""
    child = Child([sys.executable, "-c", script], dict(os.environ), Limits(patience=60.0))
    try:
        child.ask(Frame({"kind": "call"}))
        deadline = time.monotonic() + 60.0
        while not child.said() and time.monotonic() < deadline:
            time.sleep(0.01)
        with pytest.raises(DiedError) as error:
            child.ask(Frame({"kind": "call"}))
    finally:
        child.close()
    assert str(error.value) == "was killed by SIGABRT"


def test_the_last_words_of_a_process_are_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine reads the output of a dead process late: it still belongs to the message."""
    drain = child_module._drain

    def late(*arguments: Any) -> None:
        time.sleep(0.2)
        drain(*arguments)

    monkeypatch.setattr(child_module, "_drain", late)
    script = "import os, sys; print('no license', file=sys.stderr, flush=True); os._exit(3)"
    assert _asked(script, patience=60.0) == "ended with exit code 3: no license"


READS = """
import os, sys
sys.path.insert(0, {package!r})
from quantizer.runtime.engines.serve import pipes
pipes()
try:
    open(f"/proc/{{os.getppid()}}/{what}", "rb").close()
    print("opened it", file=sys.stderr, flush=True)
except OSError as err:
    print(type(err).__name__, file=sys.stderr, flush=True)
os._exit(3)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems protect a process by other means")
@pytest.mark.parametrize("what", ["mem", "environ", "fd/0"])
def test_a_judged_process_cannot_read_memory_of_the_judge(what: str) -> None:
    package = str(Path(__file__).parents[2])
    script = READS.format(package=package, what=what)
    assert _asked(script, patience=60.0) == "ended with exit code 3: PermissionError"
