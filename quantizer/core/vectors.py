"""The manifest of a bundle of test vectors: cases with operands, numbers provided, and codes that are allowed.

A bundle is a folder, or the same files in a zip: `manifest.json`, `index.txt` with the same for readers without JSON,
`SHA256SUMS` with the digest of each of these files, and plain arrays. An array is little-endian, in C order, in the
operator's axis order; its file holds only the elements.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from quantizer.core.case_file import MAX_ELEMENTS, CaseModel
from quantizer.core.model import Model

VERSION: Final = 1
MANIFEST, INDEX, DIGESTS = "manifest.json", "index.txt", "SHA256SUMS"
# no part may begin with a point, so that a bundle names no file outside itself
PATH = r"^[A-Za-z0-9_][A-Za-z0-9_.\-]*(/[A-Za-z0-9_][A-Za-z0-9_.\-]*)*$"
NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.\-]*$"
DIGEST = r"^[0-9a-f]{64}$"
MOST_CASES = 1 << 20
MOST_CODES = (1 << 63) - 1
"""The limits of the reader in C."""

Count = Annotated[int, Field(ge=0)]
Size = Annotated[int, Field(ge=0, le=MAX_ELEMENTS)]
Name = Annotated[str, Field(pattern=NAME, max_length=128)]
Digest = Annotated[str, Field(pattern=DIGEST)]
ArrayType = Literal["int8", "uint8", "int16", "uint16", "int32", "int64", "float32", "float64", "bool"]


class ArrayFile(Model):
    """One array of the bundle; its file holds only the elements."""

    file: Annotated[str, Field(pattern=PATH, max_length=512)]
    """Path inside the bundle."""
    sha256: Digest
    """SHA-256 of the file, hexadecimal."""
    dtype: ArrayType
    """Type of an element. Codes are stored in the first type that holds them."""
    shape: Annotated[list[Size], Field(max_length=8)]
    """Sizes of the axes, in the axis order of the operator."""


class VectorGrid(Model):
    """`real = scale * (code - zero_point)`."""

    scale: Annotated[list[float], Field(min_length=1)]
    """One number, or one for each slice along `axis`."""
    zero_point: Annotated[list[int], Field(min_length=1)]
    """One zero point for each scale."""
    lowest: int
    """The smallest code."""
    highest: int
    """The largest code."""
    axis: int | None = None
    """The axis of the slices; absent for a single scale."""


class VectorOperand(Model):
    """An operand of a case."""

    name: Name
    """The operand's name in the spec."""
    values: ArrayFile
    """Codes; without a grid, real values or indices."""
    grid: VectorGrid | None = None
    """The parameters of the codes; none for real values and indices."""


class VectorMultiplier(Model):
    """The provided multiplier: `multiplier * 2**-shift / divisor`, times the factor of each operand of a sum."""

    variant: str
    """The requantization, as docs/reference/platforms.md names it."""
    multiplier: list[float]
    """One number, or one for each output channel."""
    shift: list[int]
    """One shift, or one for each multiplier."""
    divisor: float = 1.0
    """What the product is divided by."""
    factors: dict[Name, float] = {}
    """The factor of each operand of a sum."""


class TableFile(Model):
    """A provided table: entry i belongs to the code, or the distance, `first + i * step`."""

    name: Name
    """The table's name in the platform."""
    entries: ArrayFile
    """The entries."""
    first: int
    """The code or distance to which the first entry belongs."""
    step: int
    """The number of codes from one entry to the next."""
    unit: float
    """Real value of one entry unit."""


class VectorOutput(Model):
    """The output of a case: the required contents of a result file."""

    dtype: ArrayType
    """Type of an element of the result."""
    shape: Annotated[list[Size], Field(max_length=8)]
    """Sizes of the axes."""
    grid: VectorGrid
    """The parameters of the codes."""


class Allowed(Model):
    """The interval of each element of the output, as the check `arithmetic` derives it."""

    low: ArrayFile
    """The smallest code that is right, per element, in the output's type."""
    high: ArrayFile
    """The largest code that is right."""
    conclusive: Annotated[int, Field(ge=1, le=MOST_CODES)]
    """An interval with more codes than this is inconclusive: a code inside it does not pass, a code outside fails."""
    vacuous: Count
    """The number of inconclusive elements."""


class VectorFeed(Model):
    """One input of a model."""

    name: Annotated[str, Field(max_length=128)]
    """Its name in the model."""
    operand: Name
    """The operand that it holds."""
    values: ArrayFile
    """Its elements, in the model's own axis order and type."""


class VectorModel(Model):
    """The case as a model in one form, or why the form does not hold it."""

    form: Name
    """The form, as docs/engines.md names it."""
    file: Annotated[str, Field(pattern=PATH, max_length=512)] = ""
    """Path of the model inside the bundle; empty where the form does not hold the case."""
    sha256: Annotated[str, Field(pattern=f"{DIGEST}|^$")] = ""
    """SHA-256 of the model."""
    feeds: list[VectorFeed] = []
    """What it is fed, in the order of its inputs."""
    shape: Annotated[list[Size], Field(max_length=9)] = []
    """Sizes of the axes of its output."""
    axes: Annotated[list[int], Field(max_length=9)] = []
    """Transposed by these axes, then reshaped, the model's output is the case's output."""
    refused: str = ""
    """Why there is no model."""


class VectorCase(Model):
    """One case of the bundle."""

    id: Name
    """Name of the case; its result is the file `ID.bin`."""
    case: CaseModel
    """Operator, scheme, platform, attributes, shapes, ranges, fused activation and the recipe of the data."""
    operands: list[VectorOperand]
    """The operands, in the order of the spec."""
    output: VectorOutput
    """The output."""
    multiplier: VectorMultiplier | None = None
    """The multiplier that the platform's rule provides."""
    tables: list[TableFile] = []
    """The tables that the platform's rule provides."""
    numbers: dict[Name, int | float] = {}
    """Further numbers that the platform's rule provides."""
    models: list[VectorModel] = []
    """The case in the forms that the bundle was asked for."""
    allowed: Allowed | None = None
    """The right codes; none if no interval can be derived. Such a case never passes."""
    open: str = ""
    """Why no codes are allowed or forbidden."""


class Manifest(Model):
    """The manifest of a bundle: what wrote it, and its cases with the digests of their files."""

    version: Literal[1]
    """Version of this schema."""
    quantizer: Annotated[str, Field(max_length=64)]
    """Version of the package that wrote the bundle."""
    seed: Annotated[int, Field(ge=0)]
    """Seed of the cases: the same version and seed write the same bytes."""
    index_sha256: Digest
    """SHA-256 of index.txt."""
    cases: Annotated[list[VectorCase], Field(max_length=MOST_CASES)]
    """The cases."""
