"""Mutate the files of all readers in a process of its own, with a limit on memory and a watch on time; JSON on standard output.

usage: python drive.py COUNT SEED
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from pathlib import Path

import mutations as m
from readers import READERS, Reader, optional

from quantizer.core.errors import QuantizerError

SECONDS, MEMORY = 5, 1 << 30
MOST_SHOWN = 20


class TooLongError(BaseException):
    """A reader has used the processor for longer than it may."""


def _stop(*_: object) -> None:
    raise TooLongError(f"more than {SECONDS} s of the processor")


def _mutated(rng: random.Random, reader: Reader, folder: Path) -> bytes:
    raw = reader.sound
    forms = [*m.BYTES, *reader.forms, *reader.forms, *([m.database(folder)] * 6 if reader.name == "history" else [])]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        with (
            warnings.catch_warnings(),
            contextlib.suppress(OSError, EOFError, ValueError, NotImplementedError, RuntimeError, *_archive_errors()),
        ):
            warnings.simplefilter("ignore")  # an archive that names an array twice is meant
            raw = rng.choice(forms)(rng, raw) or raw
    return raw


def _put(reader: Reader, content: bytes, folder: Path) -> None:
    """Write the file of a reader and the files that it needs into *folder*."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, other in (*reader.beside, (reader.file, content)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(other)


def _archive_errors() -> tuple[type[Exception], ...]:
    import zipfile
    import zlib

    return zipfile.BadZipFile, zlib.error


def drive(count: int, seed: int) -> dict[str, object]:
    """Return how many inputs each reader read and refused, and those on which something else happened."""
    readers = [*READERS, *optional()]
    read: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    broken: list[dict[str, str]] = []
    signal.signal(signal.SIGPROF, _stop)
    used = (
        int(
            next(
                line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmSize")
            ).split()[1]
        )
        << 10
    )
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("error")
        for reader in readers:
            _put(reader, reader.sound, Path(name) / "faults")
            reader.read(Path(name) / "faults" / reader.file)  # a file that is refused as it is would test nothing
        for index in range(count):
            rng = random.Random(f"{seed} {index}")
            (reader,) = rng.choices(readers, [one.weight for one in readers])
            folder = Path(name) / "faults"
            path = folder / reader.file
            _put(reader, _mutated(rng, reader, Path(name)), folder)
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                with contextlib.redirect_stderr(io.StringIO()):
                    reader.read(path)
                read[reader.name] += 1
            except QuantizerError as err:
                refused[reader.name] += 1
                if not str(err).strip() or len(str(err)) > 20_000:
                    broken.append(
                        {"reader": reader.name, "index": str(index), "what": f"a message of {len(str(err))} characters"}
                    )
            except BaseException as err:  # noqa: BLE001 - whatever it is, it is not an answer to a damaged file
                place = traceback.extract_tb(err.__traceback__)[-1]
                what = f"{type(err).__name__}: {str(err)[:200]} at {Path(place.filename).name}:{place.lineno}"
                broken.append({"reader": reader.name, "index": str(index), "what": what})
                if isinstance(err, KeyboardInterrupt):
                    raise
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
    return {
        "read": read,
        "refused": refused,
        "broken": broken[:MOST_SHOWN],
        "count": len(broken),
        "readers": len(readers),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(drive(int(sys.argv[1]), int(sys.argv[2]))) + "\n")
