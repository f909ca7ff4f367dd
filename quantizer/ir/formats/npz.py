"""Archives of named arrays (.npz) and single arrays (.npy): deterministic bytes, read without pickle, in bounds."""

from __future__ import annotations

import io
import math
import os
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, TypeAlias, cast

import numpy as np

from quantizer.core.errors import FormatError
from quantizer.core.reading import Readable, shown_value

Array: TypeAlias = "np.ndarray[Any, Any]"
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that an archive can store. Every entry gets it."""
LARGEST = 2 << 30
"""The largest number of bytes of all arrays in one archive."""
FREELY = 256 << 20
"""Any archive may unpack to this many bytes, however small it is."""
PACKED = 20
"""The largest ratio of unpacked to packed size of a large archive. Packed weights and activations reach 3."""
MOST = 65536
"""The largest number of arrays in one archive."""
MAGIC = b"\x93NUMPY"
"""The first bytes of an .npy file."""
NUMBERS = "biuf"
"""Kinds of numpy's types that are real numbers and bools."""
TEXTS = "SU"
"""Kinds that are texts."""
# version 3 is for field names in UTF-8, which arrays of numbers have not
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
BAD_HEADERS = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    SyntaxError,
    tokenize.TokenError,
    OverflowError,
    RecursionError,
    MemoryError,
)
"""Exceptions of numpy for headers that are not literals, or literals of another kind."""
DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    ValueError,
    NotImplementedError,
    RuntimeError,
    OverflowError,
    MemoryError,
)
"""Exceptions of zipfile and numpy for damaged archives and for arrays that do not fit memory."""


ARCHIVE = Readable("an .npz archive", 1 << 40, FormatError)
ARRAY = Readable("an .npy file", 1 << 40, FormatError)
"""Kinds of files that are not read whole: the sizes in their headers are checked first."""


class PickledError(FormatError):
    """An array holds Python objects, which are not unpacked."""


def npz_bytes(arrays: Mapping[str, Array]) -> bytes:
    """Return the archive of *arrays* in their order, uncompressed and without times; numpy.load reads it."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, values in arrays.items():
            # zip64 as numpy.savez writes it, so that large arrays need no other form
            with archive.open(_entry(f"{name}.npy"), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(values, order="C"), allow_pickle=False)
    return stream.getvalue()


def zip_bytes(files: Mapping[str, bytes]) -> bytes:
    """Return the zip of *files* in their order, packed and without times."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(_entry(name), content, zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def entry_bytes(where: str, archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """Return the file called *name* of an open zip; FormatError if it is missing or has more than *most* bytes."""
    try:
        with archive.open(name) as file:
            content = file.read(most + 1)
    except KeyError:
        raise FormatError(f"{where}: has no file {name}.") from None
    except DAMAGED as err:
        raise FormatError(f"{where}: {name} cannot be unpacked: {_line(err)}.") from None
    if len(content) > most:
        raise FormatError(f"{where}: {name} has more than {most} bytes.")
    return content


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, EPOCH)
    # the upper half holds the Unix mode: rw-r--r--
    entry.external_attr = 0o644 << 16
    return entry


def read_npz(path: str | os.PathLike[str], *, largest: int | None = None, texts: bool = False) -> dict[str, Array]:
    """Return the arrays of the archive at *path* by name, in its order, each in the machine's byte order.

    FormatError if it is not an archive of arrays of numbers, or *texts*, is damaged, names one twice, or
    holds more than *largest* bytes (LARGEST), which are not read.
    """
    where = os.fspath(path)
    found: dict[str, Array] = {}
    try:
        with ARCHIVE.opened(Path(where), where) as stream, zipfile.ZipFile(stream) as archive:
            held = os.fstat(stream.fileno()).st_size
            for entry in _entries(where, archive, LARGEST if largest is None else largest, held):
                name = entry.filename.removesuffix(".npy")
                if name in found:
                    raise FormatError(f"{where}: array {name!r} occurs twice: give every array its own name.")
                with archive.open(entry) as file:
                    found[name] = _array(f"{where}: array {name!r}", file, entry.file_size, texts=texts)
    except FormatError:
        raise
    except DAMAGED as err:
        raise FormatError(
            f"{where}: is not a valid .npz archive: {_line(err)}. Save the arrays with numpy.savez."
        ) from None
    return found


def read_npy(path: str | os.PathLike[str], *, texts: bool = False) -> Array:
    """Return the array of the .npy file at *path*, reading its data on use; FormatError as in `read_npz`."""
    where = os.fspath(path)
    try:
        with ARRAY.opened(Path(where), where) as file:
            shape, order, dtype = _header(where, file, texts=texts)
            start = file.tell()
            held = os.fstat(file.fileno()).st_size - start
        wanted = math.prod(shape) * dtype.itemsize
        if wanted > held:
            raise FormatError(f"{where}: shape {list(shape)} of {dtype} needs {wanted} bytes, the file holds {held}.")
        # a map of 0 bytes is an error
        return np.memmap(where, dtype, "r", start, shape, order) if wanted else np.empty(shape, dtype)
    except FormatError:
        raise
    except (OSError, *DAMAGED) as err:
        raise FormatError(f"{where}: is not a .npy file of one numeric array: {_line(err)}.") from None


def _entries(where: str, archive: zipfile.ZipFile, largest: int, held: int) -> Iterator[zipfile.ZipInfo]:
    entries = archive.infolist()
    total = sum(entry.file_size for entry in entries)
    if len(entries) > MOST or total > largest:
        raise FormatError(
            f"{where}: {len(entries)} arrays of {total} bytes: at most {MOST}, of {largest} bytes together."
        )
    # a few kilobytes can be packed so that they fill the memory
    if total > max(FREELY, PACKED * held):
        raise FormatError(
            f"{where}: {held} bytes that unpack to {total}: more than {PACKED} times as many. "
            "Save the arrays with numpy.savez, which packs nothing."
        )
    for entry in entries:
        if not entry.filename.endswith(".npy"):
            raise FormatError(f"{where}: entry {entry.filename!r} is not a .npy array: save with numpy.savez.")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise FormatError(
                f"{where}: entry {entry.filename!r} is packed in a way that numpy.savez does not: use that."
            )
        yield entry


def _array(place: str, file: IO[bytes], size: int, *, texts: bool) -> Array:
    """Return the array of one entry of *size* bytes; its header is checked against the size first."""
    shape, order, dtype = _header(place, file, texts=texts)
    wanted, held = math.prod(shape) * dtype.itemsize, size - file.tell()
    # one byte more shows an entry that is longer than the archive's list says
    data = file.read(wanted + 1) if wanted == held else b""
    if wanted != held or len(data) != wanted:
        raise FormatError(f"{place}: shape {list(shape)} of {dtype} needs {wanted} bytes, the archive holds {held}.")
    return np.frombuffer(data, dtype).reshape(shape, order=order).astype(dtype.newbyteorder("="), order="C")


def _header(place: str, file: IO[bytes], *, texts: bool) -> tuple[tuple[int, ...], Literal["C", "F"], np.dtype[Any]]:
    """Return shape, order and type in the header of an .npy file; FormatError for unsupported ones."""
    try:
        version = np.lib.format.read_magic(cast("BinaryIO", file))
        if version not in _HEADERS:
            raise FormatError(
                f"{place}: .npy of version {version}: must be 1.0 or 2.0, as numpy writes arrays of numbers."
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy warns about headers from Python 2
            shape, fortran, dtype = _HEADERS[version](cast("BinaryIO", file))
    except BAD_HEADERS as err:
        raise FormatError(f"{place}: is not a .npy file of one numeric array: {_line(err)}.") from None
    if dtype.hasobject:
        raise PickledError(f"{place}: elements of type {dtype}: pickled objects are refused. Save numeric arrays.")
    if dtype.kind not in (NUMBERS + TEXTS if texts else NUMBERS):
        wanted = "real numbers, bools or texts" if texts else "real numbers or bools"
        raise FormatError(f"{place}: elements of type {dtype}: must be {wanted}.")
    # the header is a Python literal, in which anybody can write anything
    if not all(type(length) is int for length in shape):
        raise FormatError(f"{place}: shape {shown_value(shape)}: must be whole numbers.")
    if any(length < 0 for length in shape):
        raise FormatError(f"{place}: shape {list(shape)}: no size may be negative.")
    return shape, "F" if fortran else "C", dtype


def _line(err: BaseException) -> str:
    """Return an error's text on one line."""
    return next(iter(str(err).splitlines()), type(err).__name__).rstrip(".")
