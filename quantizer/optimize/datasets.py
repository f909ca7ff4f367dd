"""Built-in data sets: samples and labels from .npy and .npz files, lists of such files, or a seed."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantizer.core.errors import FormatError
from quantizer.core.reading import Readable
from quantizer.core.wording import shown_path
from quantizer.ir.formats.npz import PickledError, read_npy, read_npz
from quantizer.numerics.deviates import RAW, deviates
from quantizer.optimize.pickled_arrays import LARGEST, read_arrays

Array = NDArray[Any]
# the label of a sample without one, as in the original; None could not be collated to a tensor
NO_LABEL = float("-inf")
LISTS = (".txt", ".lst", ".list")
LONGEST_LIST = 1 << 20
FILES = Readable("a list of files", LONGEST_LIST, FormatError)


class NumpyDataset:
    """One array of samples, for a graph with one input, and one array of labels."""

    def __init__(self, data_file: str, label_file: str | None = None) -> None:
        self.data = read_array(Path(data_file))
        self.label = read_array(Path(label_file)) if label_file else None
        check_lengths(Path(data_file), [self.data], self.label)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> list[Any]:
        """Return [[sample], label]."""
        return [[self.arranged(self.data[index])], NO_LABEL if self.label is None else self.label[index]]

    def arranged(self, sample: Array) -> Array:
        """Return the sample in the axis order of the graph."""
        return sample


class NumpyNCHW2NHWCDataset(NumpyDataset):
    """One array of samples [n, c, h, w] for a graph that reads [n, h, w, c]."""

    def arranged(self, sample: Array) -> Array:
        """Move the channel to the end."""
        return np.moveaxis(sample, 0, -1)


class NumpyNHWC2NCHWDataset(NumpyDataset):
    """One array of samples [n, h, w, c] for a graph that reads [n, c, h, w]."""

    def arranged(self, sample: Array) -> Array:
        """Move the channel to the front."""
        return np.moveaxis(sample, -1, 0)


class NumpyMultiInputDataset:
    """Several named arrays, in the order of the graph's inputs: .npz, or a dict of arrays in .npy."""

    def __init__(self, data_file: str, label_file: str | None = None) -> None:
        self.data = read_columns(Path(data_file))
        self.label = read_columns(Path(label_file)) if label_file else None
        check_lengths(Path(data_file), self.data, None)

    def __len__(self) -> int:
        return len(self.data[0])

    def __getitem__(self, index: int) -> list[Any]:
        """Return [[one sample per input], [one label per output]]."""
        labels: Any = NO_LABEL if self.label is None else [column[index] for column in self.label]
        return [[self.arranged(column[index]) for column in self.data], labels]

    def arranged(self, sample: Array) -> Array:
        """Return the sample in the axis order of the graph."""
        return sample


class NumpyMIMONCHWDataset(NumpyMultiInputDataset):
    """Several named arrays [n, h, w, c] for a graph that reads [n, c, h, w]."""

    def arranged(self, sample: Array) -> Array:
        """Move the channel to the front."""
        return np.moveaxis(sample, -1, 0)


class NumpyZippedDataset(NumpyMultiInputDataset):
    """An .npz with arrays 0, 1, ... and their shapes in shape_0, shape_1, ....

    A label with an empty shape has no batch axis.
    """

    def __init__(self, data_file: str, label_file: str | None = None) -> None:
        self.data, _ = _zipped(Path(data_file))
        self.label, self.shapes = _zipped(Path(label_file)) if label_file else (None, [])
        check_lengths(Path(data_file), self.data, None)

    def __getitem__(self, index: int) -> list[Any]:
        """Return [[one sample per input], [one label per output]]."""
        labels: Any = NO_LABEL
        if self.label is not None:
            # an empty shape marks a label for all samples, which must not be indexed
            whole = [i < len(self.shapes) and not self.shapes[i].size for i in range(len(self.label))]
            labels = [column if single else column[index] for column, single in zip(self.label, whole, strict=True)]
        return [[column[index] for column in self.data], labels]


class OpTestNumpyZippedDataset(NumpyZippedDataset):
    """The data set of Compass's operator tests. It reads files as NumpyZippedDataset does."""


class RandomDataset:
    """Normal deviates; data_file gives shape, number of samples and seed, as in `1x8x8x3,count=4,seed=1`."""

    def __init__(self, data_file: str, label_file: str | None = None) -> None:
        self.shapes, self.count, seed = _recipe(data_file)
        # the place of an input is part of its seed: inputs of one shape must not be equal
        self.data = [deviates((self.count, *shape), (seed, place)) for place, shape in enumerate(self.shapes)]
        self.label = read_array(Path(label_file)) if label_file else None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> list[Any]:
        """Return [[one sample per shape], label]."""
        label = NO_LABEL if self.label is None else self.label[index]
        return [[column[index] for column in self.data], label]


BUILT_IN = (
    NumpyDataset,
    NumpyMultiInputDataset,
    NumpyZippedDataset,
    OpTestNumpyZippedDataset,
    NumpyNCHW2NHWCDataset,
    NumpyNHWC2NCHWDataset,
    NumpyMIMONCHWDataset,
    RandomDataset,
)


def read_array(path: Path) -> Array:
    """Return the array of an .npy file, reading its data on use.

    For a text list, the concatenated arrays of its files.
    """
    if path.suffix in LISTS:
        return np.concatenate([read_array(file) for file in listed(path)])
    return read_npy(path, texts=True)


def listed(path: Path) -> list[Path]:
    """Return the files that a text list names, one a line, relative to the list."""
    names = [line.strip() for line in FILES.bytes_of(path).decode("utf-8", "replace").splitlines()]
    found = [path.parent / name for name in names if name and not name.startswith("#")]
    if not found:
        raise FormatError(f"{shown_path(path)}: names no file. Write one .npy file a line.")
    if lists := [name for name in names if name and not name.startswith("#") and Path(name).suffix in LISTS]:
        raise FormatError(f"{shown_path(path)}: {lists[0][:80]!r}: a list names no other list. Name the .npy files.")
    return found


def read_columns(path: Path) -> list[Array]:
    """Return the arrays of an .npz file, or of a dict in an .npy file, in order."""
    if path.suffix in LISTS:
        parts = [read_columns(file) for file in listed(path)]
        return [np.concatenate(column) for column in zip(*parts, strict=True)]
    if zipfile.is_zipfile(path):
        return list(read_npz(path, largest=LARGEST, texts=True).values())
    try:
        return [read_npy(path, texts=True)]
    # an object array: a dict of arrays in the original's own format
    except PickledError:
        return list(read_arrays(path).values())


def _zipped(path: Path) -> tuple[list[Array], list[Array]]:
    """Return the arrays and the shapes of an archive, in the order of the archive."""
    if not zipfile.is_zipfile(path):
        raise FormatError(f"{shown_path(path)}: is not an .npz file. Save the arrays with numpy.savez.")
    found = read_npz(path, largest=LARGEST, texts=True)
    data = [values for name, values in found.items() if not name.startswith("shape")]
    return data, [values for name, values in found.items() if name.startswith("shape")]


def check_lengths(path: Path, columns: Sequence[Array], label: Array | None) -> None:
    """Raise FormatError if there is no sample, or numbers of samples differ."""
    if not columns or any(not column.ndim or not len(column) for column in columns):
        raise FormatError(f"{shown_path(path)}: holds no samples: its first axis counts them.")
    lengths = {len(column) for column in columns} | ({len(label)} if label is not None and label.ndim else set())
    if len(lengths) > 1:
        raise FormatError(f"{shown_path(path)}: {sorted(lengths)} samples and labels: their numbers must be equal.")


def _recipe(text: str) -> tuple[list[tuple[int, ...]], int, int]:
    # the cfg's fields are paths, so a folder may stand before the recipe
    parts = text.rsplit("/", maxsplit=1)[-1].split(",")
    try:
        named = dict(part.split("=", 1) for part in parts[1:])
        shapes = [tuple(int(size) for size in shape.split("x")) for shape in parts[0].split("+")]
        count, seed = int(named.pop("count", "1")), int(named.pop("seed", "0"))
        if named or count < 1 or any(size < 1 for shape in shapes for size in shape):
            raise ValueError(text)
    except ValueError:
        raise FormatError(
            f"RandomDataset: {text!r}: must be shapes of one sample, such as 8x8x3,count=4,seed=1 "
            "(several inputs: 8x8x3+4)."
        ) from None
    # refused before anything is allocated: RAW bytes are read for each number
    if (size := count * sum(map(math.prod, shapes)) * RAW) > LARGEST:
        raise FormatError(
            f"RandomDataset: {text!r}: takes {size} bytes to make, at most {LARGEST}. Ask for fewer samples."
        )
    return shapes, count, seed
