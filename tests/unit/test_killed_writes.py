"""A process that is killed while it writes: the old files, the new ones, or a set that shows that it is not whole."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from quantizer.core import drafts
from quantizer.core.files import create_files, replace_files
from quantizer.reporting.folder import sweep

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes that are killed are forked")
KILLER = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import kill_steps

def killed_at(step, what, folder):
    kill_steps.prepare(what, folder)
    child = os.fork()
    if child == 0:
        left = [step]
        def counted(plain):
            def call(*args, **named):
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
                return plain(*args, **named)
            return call
        for name in ("open", "write", "fsync", "replace", "rename", "link", "unlink", "chmod", "ftruncate"):
            setattr(os, name, counted(getattr(os, name)))
        kill_steps.watch_databases(counted(lambda *_: 0), step)
        kill_steps.write(what, folder)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])

for what in {whats!r}:
    folder = Path({folder!r}) / what
    folder.mkdir()
    step = 0
    while killed_at(step, what, folder):
        kill_steps.check(what, folder)
        step = kill_steps.after(what, step)
    kill_steps.check_new(what, folder)
    print(step)
"""
WRITERS = [
    "one file",
    "a set",
    "a run",
    "a merge",
    "a statement",
    "a page",
    "junit",
    "a journal",
    "a new file",
    "an operator",
    "new files",
    "a bundle",
]
WRITERS += ["a history", "a history's end"]


def test_a_kill_while_writing_never_leaves_a_mixed_set(tmp_path: Path) -> None:
    script = KILLER.format(tests=str(Path(__file__).parent), folder=str(tmp_path), whats=WRITERS)
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr[-3000:]
    steps = [int(line) for line in done.stdout.split()]
    assert len(steps) == len(WRITERS)
    assert min(steps) >= 2  # so many processes were killed before one came to its end


def test_only_drafts_of_ended_processes_are_removed(tmp_path: Path) -> None:
    for name in (
        ".records.jsonl.0123456789ab.draft",
        ".records.jsonl.0123456789ab.before",
        ".old.json.ffffffffffff.before",
    ):
        (tmp_path / name).write_text("left by a kill")
    (tmp_path / ".mine").write_text("no draft")
    living = drafts.open_draft(tmp_path / "living", drafts.new_token())
    try:
        drafts._swept.clear()
        replace_files({tmp_path / "records.jsonl": "new"})
        assert living.path.exists()
    finally:
        living.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mine", "records.jsonl"]


def test_a_folder_named_like_a_draft_is_kept(tmp_path: Path) -> None:
    """A plugin may have made it: the next run of the folder ended in an IsADirectoryError."""
    made = tmp_path / ".records.jsonl.0123456789ab.draft"
    made.mkdir()
    sweep(tmp_path)
    assert made.is_dir()


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o755])
def test_a_replaced_file_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    file.chmod(mode)
    replace_files({file: "new"})
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("new", mode)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_a_new_file_has_permissions_by_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        replace_files({tmp_path / "replaced": "new"})
        create_files({tmp_path / "created": "new"})
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o666 & ~umask}


def test_a_file_is_synced_before_and_its_folder_after_renaming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    plain_sync, plain_replace = os.fsync, os.replace

    def sync(handle: int) -> None:
        said.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        plain_sync(handle)

    def replace(source: object, target: object) -> None:
        said.append("name")
        plain_replace(source, target)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace)
    replace_files({tmp_path / "file": "new"})
    assert said == ["file", "name", "folder"]


def test_a_draft_of_a_private_file_is_never_open_to_others(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("secret")
    file.chmod(0o600)
    draft = drafts.open_draft(file, drafts.new_token())
    try:
        assert stat.S_IMODE(draft.path.stat().st_mode) == 0o600
    finally:
        draft.close()
