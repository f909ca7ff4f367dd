"""Archives of named arrays (.npz): the same bytes for the same arrays, read without pickle and within bounds."""

from __future__ import annotations

import io
import math
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from quantizer.core.errors import FormatError

Array: TypeAlias = "np.ndarray[Any, Any]"
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that an archive can name: every entry has it."""
LARGEST = 2 << 30
"""Bytes that the arrays of one archive may take together."""
MOST = 65536
"""Arrays that one archive may hold."""
_KINDS = "biuf"


def npz_bytes(arrays: Mapping[str, Array]) -> bytes:
    """Return the archive of *arrays* in their order, uncompressed and without times; numpy.load reads it."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, values in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy", EPOCH)
            entry.external_attr = 0o644 << 16
            with archive.open(entry, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(values, order="C"), allow_pickle=False)
    return stream.getvalue()


def read_npz(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Return the arrays of the archive at *path* by name, in its order.

    FormatError where it is no archive of arrays of numbers, is damaged, names one twice, or holds more than LARGEST bytes.
    """
    where = os.fspath(path)
    found: dict[str, Array] = {}
    try:
        with zipfile.ZipFile(Path(where)) as archive:
            for entry in _entries(where, archive):
                name = entry.filename.removesuffix(".npy")
                if name in found:
                    raise FormatError(f"{where}: array {name!r} stands twice: every array needs a name of its own.")
                with archive.open(entry) as file:
                    found[name] = _array(f"{where}: array {name!r}", file, entry.file_size)
    except FormatError:
        raise
    except OSError as err:
        raise FormatError(f"{where}: cannot be read: {(err.strerror or str(err)).lower()}.") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as err:
        raise FormatError(f"{where}: is no sound .npz archive: {err}. Save the arrays with numpy.savez.") from None
    return found


def _entries(where: str, archive: zipfile.ZipFile) -> Iterator[zipfile.ZipInfo]:
    entries = archive.infolist()
    total = sum(entry.file_size for entry in entries)
    if len(entries) > MOST or total > LARGEST:
        raise FormatError(
            f"{where}: {len(entries)} arrays of {total} bytes: at most {MOST}, of {LARGEST} bytes together."
        )
    for entry in entries:
        if not entry.filename.endswith(".npy"):
            raise FormatError(f"{where}: entry {entry.filename!r} is no .npy array: save the arrays with numpy.savez.")
        yield entry


def _array(place: str, file: Any, size: int) -> Array:
    """Return the array of one entry of *size* bytes; its header is held against the size before anything is made."""
    stream: BinaryIO = io.BytesIO(file.read(size + 1))
    version = np.lib.format.read_magic(stream)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise FormatError(f"{place}: .npy of version {version}: must be 1.0 or 2.0, as numpy writes arrays of numbers.")
    shape, fortran, dtype = readers[version](stream)
    if dtype.hasobject or dtype.kind not in _KINDS:
        raise FormatError(
            f"{place}: elements of type {dtype}: must be real numbers or bools; pickled objects are refused."
        )
    if any(length < 0 for length in shape):
        raise FormatError(f"{place}: shape {list(shape)}: no size may be negative.")
    data = stream.read()
    if math.prod(shape) * dtype.itemsize != len(data):
        wanted = math.prod(shape) * dtype.itemsize
        raise FormatError(
            f"{place}: shape {list(shape)} of {dtype} needs {wanted} bytes, the archive holds {len(data)}."
        )
    flat = np.frombuffer(data, dtype)
    values = flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)
    return values.astype(dtype.newbyteorder("="), order="C")
