"""Reads a bundle from a folder or a zip. All sizes are bounded, and every array is checked against its digest."""

from __future__ import annotations

import contextlib
import math
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from quantizer.conformance.trials.trial import Array
from quantizer.conformance.vectors.export import digest
from quantizer.conformance.vectors.models import is_layout
from quantizer.core.case_file import MAX_ELEMENTS, read_model
from quantizer.core.errors import CaseError
from quantizer.core.files import is_folder
from quantizer.core.reading import Readable, one_line
from quantizer.core.vectors import MANIFEST, ArrayFile, Manifest
from quantizer.core.wording import shown_path
from quantizer.ir.formats.npz import DAMAGED, entry_bytes

MOST_MANIFEST = 1 << 28
ARCHIVE = Readable("a bundle of vectors", 1 << 32, CaseError, "Name a bundle from `quantizer vectors export`.")


@dataclass(frozen=True)
class Bundle:
    """An open bundle of vectors. Arrays are read one at a time and compared with their digests."""

    where: str
    manifest: Manifest
    _read: Callable[[str, int], bytes]

    def array(self, file: ArrayFile) -> Array:
        """Return one array; CaseError if its size or its digest differs from the manifest."""
        place, kind = f"{self.where}: {file.file}", np.dtype(file.dtype).newbyteorder("<")
        # before anything is read: the manifest comes from outside
        if (count := math.prod(file.shape)) > MAX_ELEMENTS:
            raise CaseError(f"{place}: {count} elements: at most {MAX_ELEMENTS}.")
        size = count * kind.itemsize
        content = self._read(file.file, size)
        if len(content) != size or digest(content) != file.sha256:
            raise CaseError(f"{place}: is not the file that the manifest names. Export the bundle anew.")
        return np.frombuffer(content, kind).reshape(file.shape)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Bundle]:
    """Open the bundle at *path*; CaseError if it cannot be read or if its manifest is wrong."""
    where = shown_path(path)
    if is_folder(path):

        def read(name: str, most: int) -> bytes:
            kind = Readable("a file of a bundle", most, CaseError, "Export the bundle anew.")
            return kind.bytes_of(path / name)

        yield _bundle(where, read)
        return
    with ARCHIVE.opened(path, where) as stream:
        try:
            archive = zipfile.ZipFile(stream)
        except DAMAGED as err:
            raise ARCHIVE.refused(where, f"is not a valid zip archive: {one_line(err)}") from None
        with archive:
            yield _bundle(where, lambda name, most: entry_bytes(where, archive, name, most))


def _bundle(where: str, read: Callable[[str, int], bytes]) -> Bundle:
    place = f"{where}: {MANIFEST}"
    text = ARCHIVE.decoded(read(MANIFEST, MOST_MANIFEST), place)
    manifest = read_model(Manifest, ARCHIVE.parsed(text, place), place)
    names = [case.id for case in manifest.cases]
    if len(set(names)) != len(names):
        raise CaseError(f"{place}: two cases have one id. Export the bundle anew.")
    for case in manifest.cases:
        for end in () if case.allowed is None else (case.allowed.low, case.allowed.high):
            if (end.dtype, end.shape) != (case.output.dtype, case.output.shape):
                text = "allowed codes have another type or shape than the output. Export the bundle anew."
                raise CaseError(f"{place}: {case.id}: {text}")
        for model in case.models:
            if not model.refused and not is_layout(model.shape, model.axes, case.output.shape):
                text = f"the model {model.form} has an output of another shape. Export the bundle anew."
                raise CaseError(f"{place}: {case.id}: {text}")
    return Bundle(where, manifest, read)
