"""Runs `pytest` and `quantizer` in children of a process that has imported what both need, as if in a process of their own.

A start costs four seconds of imports, and the tests start more than a hundred programs. Run as a script, this file is the
parent: it imports, reads requests, forks a child for each and answers with its exit code. `Warmed` is the other end.
A child has its own folder, environment, arguments, streams and sys.path. What it starts itself, processes of plugins, workers of a pool or of xdist, are forks, too. What is read while modules are imported (the
settings of the float libraries, of Python) is the parent's: who sets such a variable is refused and starts a process.
Another copy of the package needs a parent of its own: `Warmed(package)`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, Self

IMPORTED = (
    "pytest", "_pytest.pytester", "xdist.plugin", "hypothesis", "hypothesis.strategies", "_hypothesis_pytestplugin",
    "torch", "quantizer.conformance.run.plugin", "quantizer.conformance.run.collection", "quantizer.conformance.run.items",
    "quantizer.conformance.setup.session", "quantizer.conformance.run.finish", "quantizer.plugins.discovery",
    "quantizer.reporting.terminal", "quantizer.cli", "quantizer.runtime.isolation.worker", "quantizer.commands.faults", "quantizer.commands.optimize",
    "quantizer.reporting.folder", "quantizer.conformance.run.canary", "quantizer.conformance.run.inputs",
    "quantizer.conformance.run.plugin_coverage", "filelock", "execnet", "xdist.dsession", "xdist.looponfail", "xdist.remote",
    "xdist.workermanage",
)  # fmt: skip
READ_AT_IMPORT = (
    "ATEN_",
    "CUDA",
    "DNNL_",
    "FBGEMM_",
    "HYPOTHESIS_",
    "LD_",
    "MKL_",
    "NUMEXPR_",
    "OMP_",
    "ONEDNN_",
    "OPENBLAS_",
    "PYTHONHASHSEED",
    "PYTHONOPTIMIZE",
    "PYTHONWARNINGS",
    "TORCH",
)
CHANGING = "changing"
"""Given to a parent whose package may get operators and rooms while it runs."""
COMMAND = """\
#!{python} -ISE
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({place!r})
with server.makefile("rw") as both:
    print(json.dumps([{program!r}, sys.argv[1:], os.getcwd(), dict(os.environ)]), file=both, flush=True)
    code, out, err = json.loads(both.readline())
sys.stdout.write(out)
sys.stdout.flush()
sys.stderr.write(err)
sys.exit(code if code >= 0 else 128 - code)
"""
"""A program that a shell finds on its PATH: it asks the test's process to run the real one, and ends as that ended."""
Done = subprocess.CompletedProcess[str]


def _fixed(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables that packages read at import, without TORCHINDUCTOR_CACHE_DIR, which torch sets itself."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(READ_AT_IMPORT) and name != "TORCHINDUCTOR_CACHE_DIR"
    }


class Warmed:
    """The parent, started when the first program runs; close() ends it.

    package: the folder that holds the quantizer to run, where it is another one; between two programs its operators and
    rooms may change, its other modules may not.
    """

    def __init__(self, package: Path | None = None) -> None:
        self._environment = dict(os.environ) | ({} if package is None else {"PYTHONPATH": str(package)})
        self._words = [sys.executable, __file__, *([] if package is None else [CHANGING])]
        self._parent: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self,
        program: str,
        *arguments: str | Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        merged: bool = False,
    ) -> Done:
        """Run *program* (`pytest` or `quantizer`) like subprocess.run(..., capture_output=True, text=True).

        merged: stderr goes where stdout does, as on a terminal.
        """
        if self._parent is None:
            self._parent = subprocess.Popen(
                self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self._environment
            )
        environment = dict(os.environ if env is None else env)
        if CHANGING in self._words:
            environment["PYTHONPATH"] = self._environment["PYTHONPATH"]
        changed = {name for name, value in _fixed(environment).items() if self._environment.get(name) != value}
        if changed:
            raise ValueError(f"{', '.join(sorted(changed))}: read at import. Start a process of its own.")
        words = [str(word) for word in arguments]
        with tempfile.TemporaryDirectory() as folder:
            streams = [str(Path(folder) / name) for name in ("stdout", "stderr")]
            for stream in streams:
                Path(stream).touch()
            request = {
                "words": [program, *words],
                "cwd": str(cwd or Path.cwd()),
                "env": environment,
                "streams": streams[:1] * 2 if merged else streams,
            }
            assert self._parent.stdin is not None and self._parent.stdout is not None
            print(json.dumps(request), file=self._parent.stdin, flush=True)
            answer = self._parent.stdout.readline()
            if not answer:
                raise RuntimeError(f"the parent of {program} ended with {self._parent.wait()}.")
            out, err = (Path(stream).read_text(encoding="utf-8", errors="replace") for stream in streams)
        return Done([program, *words], int(answer), out, err)

    @contextmanager
    def commands(self, folder: Path) -> Iterator[None]:
        """Write programs `pytest` and `quantizer` into *folder* that run here, for shell scripts; one at a time."""
        with tempfile.TemporaryDirectory() as place, socket.socket(socket.AF_UNIX) as server:
            server.bind(f"{place}/server")
            server.listen()
            for program in ("pytest", "quantizer"):
                text = COMMAND.format(python=sys.executable, place=f"{place}/server", program=program)
                (folder / program).write_text(text)
                (folder / program).chmod(0o755)
            thread = Thread(target=self._answer, args=(server,), daemon=True)
            thread.start()
            try:
                yield
            finally:
                server.shutdown(socket.SHUT_RDWR)  # wakes the thread
                thread.join()

    def _answer(self, server: socket.socket) -> None:
        while True:
            try:
                asked, _ = server.accept()
            except OSError:
                return
            with asked, asked.makefile("rw") as both:
                program, words, cwd, env = json.loads(both.readline())
                try:
                    done = self.run(program, *words, cwd=Path(cwd), env=env)
                    answer = [done.returncode, done.stdout, done.stderr]
                except ValueError as err:
                    answer = [1, "", f"{err}\n"]
                print(json.dumps(answer), file=both, flush=True)

    def close(self) -> None:
        """End the parent."""
        if self._parent is not None:
            self._parent.communicate()


class Forked:
    """A plugin process forked from this one after its imports; it has the part of Popen's interface that `Child` uses.

    What this one registered in place of plugins is taken out there.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        ends = [os.pipe() for _ in range(3)]
        self.pid = os.fork()
        if self.pid == 0:
            self._serve(environment, ends[0][0], ends[1][1], ends[2][1])
        for theirs in (ends[0][0], ends[1][1], ends[2][1]):
            os.close(theirs)
        self.stdin, self.stdout, self.stderr = (
            os.fdopen(ends[0][1], "wb"),
            os.fdopen(ends[1][0], "rb"),
            os.fdopen(ends[2][0], "rb"),
        )
        self.returncode: int | None = None

    @staticmethod
    def _serve(environment: Mapping[str, str], *streams: int) -> None:
        from quantizer.ops import REGISTRY
        from quantizer.ops.registry import BUILT_IN
        from quantizer.runtime.engines.serve import pipes
        from quantizer.runtime.isolation.worker import serve

        os.setsid()
        os.environ.clear()
        os.environ.update(environment)
        for known in REGISTRY.entries.values():
            known[:] = [entry for entry in known if entry.origin == BUILT_IN]
        _take_streams(*streams)
        sys.stdout = sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        try:
            serve(*pipes())
        finally:
            os._exit(0)

    def poll(self) -> int | None:
        """Return the exit code; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Return how it ended; subprocess.TimeoutExpired where it still runs after *timeout* seconds."""
        until = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("plugins", timeout)
            time.sleep(0.01)
        return code

    def kill(self) -> None:
        """End it."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def _take_streams(*streams: int) -> None:
    """Make *streams* this process's first ones, and close every other file, as a process that was started has them."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)


class Worker:
    """A worker of xdist that `_with_workers` has forked, with the part of Popen's interface that execnet uses."""

    def __init__(self, nursery: socket.socket) -> None:
        (theirs_in, mine_in), (mine_out, theirs_out) = os.pipe(), os.pipe()
        socket.send_fds(nursery, [b"w"], [theirs_in, theirs_out])
        os.close(theirs_in)
        os.close(theirs_out)
        self.pid = int.from_bytes(nursery.recv(8), "big")
        self.stdin, self.stdout = os.fdopen(mine_in, "wb"), os.fdopen(mine_out, "rb")

    def wait(self) -> None:
        """Return once it has ended. Its parent takes no note of that before all have."""
        import psutil

        while psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)

    def kill(self) -> None:
        """End it."""
        os.kill(self.pid, signal.SIGKILL)


def _with_workers(run: Callable[[], int]) -> int:
    """Call *run* in a fork of this process, and fork for it the workers that it asks for; return its exit code.

    A worker is a fork of a process that has done nothing since its imports, and not of the session that asks for it.
    """
    nursery, session = socket.socketpair()
    child = os.fork()
    if child == 0:
        nursery.close()
        _ask_for_workers(session)
        return run()
    session.close()
    workers = []
    while True:
        asked, files, _, _ = socket.recv_fds(nursery, 1, 2)
        if not asked:  # the session has ended, and its workers end with it
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            for worker in workers:
                os.waitpid(worker, 0)
            return code if code >= 0 else 128 - code
        worker = os.fork()
        workers.append(worker)
        if worker == 0:
            _take_streams(*files)
            sys.argv[:] = ["-c"]
            exec(eval(sys.stdin.readline()), {"__name__": "__main__"})  # noqa: S102, S307 - what execnet's own processes do
            return 0
        for file in files:
            os.close(file)
        nursery.send(worker.to_bytes(8, "big"))


def _ask_for_workers(nursery: socket.socket) -> None:
    """Let execnet take its processes from *nursery*."""
    import xdist.workermanage
    from execnet import gateway_io
    from execnet.gateway_base import Popen2IO

    started = gateway_io.create_io

    def create_io(spec: Any, execmodel: Any) -> Any:
        if not spec.popen or spec.python:
            return started(spec, execmodel)
        made = gateway_io.Popen2IOMaster.__new__(gateway_io.Popen2IOMaster)
        made.popen = Worker(nursery)
        Popen2IO.__init__(made, made.popen.stdin, made.popen.stdout, execmodel=execmodel)
        return made

    gateway_io.create_io = create_io
    xdist.workermanage._sys_path = list(sys.path)


def _fork_children() -> None:
    """Start processes of plugins, and those of pools, as forks of this one."""
    import multiprocessing

    from quantizer.runtime.engines import child

    forks = multiprocessing.get_context("fork")
    multiprocessing.get_context = lambda method=None: forks  # type: ignore[assignment,misc]

    started = child.started

    def fork(command: Any, environment: Any) -> Any:
        ours = command[0] == sys.executable and command[-1].endswith("isolation")
        return Forked(environment) if ours else started(command, environment)

    child.started = fork


def _program(name: str) -> int:
    if name == "pytest":
        import pytest

        return int(pytest.main())
    from quantizer.cli import main

    return main()


def _search_path(cwd: str, before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return sys.path of `python -m` in *cwd*: the folder, PYTHONPATH, what the interpreter adds."""
    mine = {Path(item).absolute() for item in before.get("PYTHONPATH", "").split(os.pathsep) if item}
    added = [item for item in sys.path[1:] if Path(item).absolute() not in mine]
    return [cwd, *(item for item in now.get("PYTHONPATH", "").split(os.pathsep) if item), *added]


def _become(request: dict[str, Any]) -> int:
    """Turn this child into the program of *request*, run it, and return its exit code."""
    from importlib.machinery import PathFinder

    import quantizer

    before = dict(os.environ)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    for number, path in enumerate(request["streams"], 1):
        with Path(path).open("ab") as stream:
            os.dup2(stream.fileno(), number)
    sys.argv[:] = [request["words"][0], *request["words"][1:]]
    sys.path[:] = _search_path(request["cwd"], before, os.environ)
    found = PathFinder.find_spec("quantizer", sys.path)
    if found is None or found.origin != quantizer.__file__:
        raise RuntimeError(f"this is another quantizer: {found and found.origin}. Start a process of its own.")
    _fork_children()
    if "-n" in request["words"]:
        return _with_workers(lambda: _program(request["words"][0]))
    return _program(request["words"][0])


def _child(request: dict[str, Any]) -> None:
    """Run the request and end without returning into the parent's loop."""
    import atexit
    import traceback

    code: object = 1
    try:
        code = _become(request)
    except SystemExit as err:
        code = err.code
    except BaseException:  # noqa: BLE001 - a process ends with its traceback, whatever was raised
        traceback.print_exc()
    if isinstance(code, str):
        print(code, file=sys.stderr)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def _serve() -> None:
    import gc
    import importlib

    requests, replies = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in IMPORTED:
        importlib.import_module(name)
    from _pytest.config import default_plugins

    from quantizer.core.library import _load_library, load_library
    from quantizer.core.rooms import rooms
    from quantizer.ops import load_built_ins

    for name in default_plugins:
        importlib.import_module(f"_pytest.{name}")
    load_library()
    if CHANGING in sys.argv:
        _load_library.cache_clear()
        rooms.cache_clear()
    else:
        load_built_ins()  # a hundred modules, for each run and for each process of plugins
    for name, module in sys.modules.items():
        if name.partition(".")[0].lstrip("_").startswith(("quantizer", "hypothesis", "xdist")):
            # else pytest warns that it cannot rewrite the assertions of what is imported
            module.__doc__ = f"{module.__doc__ or ''}\nPYTEST_DONT_REWRITE"
    gc.collect()
    gc.freeze()
    for line in requests:
        child = os.fork()
        if child == 0:
            os.close(requests.fileno())
            os.close(replies.fileno())
            _child(json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=replies, flush=True)


if __name__ == "__main__":
    _serve()
