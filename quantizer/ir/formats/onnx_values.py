"""Numbers of an ONNX file: number formats, and tensors whose sizes are checked before they are read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from onnx import TensorProto, numpy_helper

from quantizer.core.dtypes import DTYPES, DType
from quantizer.core.errors import FormatError, UnsupportedError
from quantizer.core.files import is_file, resolved
from quantizer.core.reading import Readable
from quantizer.ir.graph import LARGEST, Tensor, container

EXTERNAL = Readable("a file of external data", 1 << 40, FormatError)
"""Such a file is read in pieces, each of a tensor's size."""

ONNX_DTYPES: dict[int, DType] = {
    int(getattr(TensorProto, theirs)): DTYPES[ours]
    for theirs, ours in {
        "FLOAT": "float32",
        "DOUBLE": "float64",
        "FLOAT16": "float16",
        "BFLOAT16": "bfloat16",
        "BOOL": "bool",
        "INT2": "int2",
        "INT4": "int4",
        "INT8": "int8",
        "INT16": "int16",
        "INT32": "int32",
        "INT64": "int64",
        "UINT2": "uint2",
        "UINT4": "uint4",
        "UINT8": "uint8",
        "UINT16": "uint16",
        "UINT32": "uint32",
        "UINT64": "uint64",
        "FLOAT8E4M3FN": "float8_e4m3fn",
        "FLOAT8E5M2": "float8_e5m2",
        "FLOAT8E4M3FNUZ": "float8_e4m3fnuz",
        "FLOAT8E5M2FNUZ": "float8_e5m2fnuz",
        "FLOAT8E8M0": "float8_e8m0fnu",
        "FLOAT4E2M1": "float4_e2m1fn",
    }.items()
    if hasattr(TensorProto, theirs)
}
"""ONNX's number format -> ours; strings and complex numbers are not among them."""
CODES: dict[DType, int] = {ours: theirs for theirs, ours in ONNX_DTYPES.items()}
# with _WIDE: where a TensorProto keeps values that are not raw bytes; all other formats are in int32_data
_FIELDS = {"float32": "float_data", "float64": "double_data", "int64": "int64_data"}
_WIDE = {"uint32": "uint64_data", "uint64": "uint64_data"}


def dtype_of(place: str, code: int) -> DType:
    """Return our format for ONNX's *code*; UnsupportedError for strings, complex numbers and unknown codes."""
    found = ONNX_DTYPES.get(code)
    if found is None:
        known = code in TensorProto.DataType.values()
        raise UnsupportedError(
            f"{place}: elements of type {TensorProto.DataType.Name(code) if known else code}: must be numbers or bools."
        )
    return found


def read_tensor(place: str, proto: Any, folder: Path | None, name: str | None = None) -> Tensor:
    """Return the constant that *proto* holds; external data is read from within *folder* only."""
    dtype = dtype_of(place, proto.data_type)
    shape = tuple(int(size) for size in proto.dims)
    if any(size < 0 for size in shape):
        raise FormatError(f"{place}: shape {list(shape)}: no size may be negative.")
    if proto.HasField("segment"):
        raise UnsupportedError(f"{place}: holds a segment of a tensor: write the tensor whole, in one initialiser.")
    count = math.prod(shape)
    # a size of 0 hides the others in `count`, and numpy multiplies sizes in 64 bits
    if math.prod(size or 1 for size in shape) * dtype.bits >= 1 << 63:
        raise FormatError(f"{place}: shape {list(shape)} of {dtype}: more elements than 63 bits can count.")
    if count * dtype.bits > 8 * LARGEST:
        raise FormatError(
            f"{place}: shape {list(shape)} of {dtype}: more than {LARGEST} bytes, which no tensor may have."
        )
    if proto.data_location == TensorProto.EXTERNAL:
        _read_external(place, proto, folder, _bytes(count, dtype))
    _check_length(place, proto, dtype, shape)
    return Tensor(proto.name if name is None else name, shape, dtype, to_torch(numpy_helper.to_array(proto), dtype))


def to_torch(values: np.ndarray[Any, Any], dtype: DType) -> torch.Tensor:
    """Return numpy's *values* (in a type of ml_dtypes if numpy lacks the format) in the container of *dtype*."""
    kind = container(dtype)
    values = np.array(values, order="C")
    if dtype.is_integer or dtype.kind == "bool":
        return torch.from_numpy(np.asarray(values.astype(dtype.storage)))
    if dtype.name in ("float16", "float32", "float64"):
        return torch.from_numpy(values)
    # numpy knows these floats only through ml_dtypes, and torch takes their bits
    codes = values.view(np.uint16 if dtype.bits == 16 else np.uint8)
    return torch.from_numpy(codes.view(np.int16) if dtype.bits == 16 else codes).view(kind)


def to_numpy(values: torch.Tensor, dtype: DType) -> np.ndarray[Any, Any]:
    """Return *values*, stored in the container of *dtype*, as the numpy array that ONNX uses for that format."""
    from onnx import helper

    kind = helper.tensor_dtype_to_np_dtype(CODES[dtype])
    values = values.detach().cpu().contiguous()
    if dtype.is_integer or dtype.kind == "bool" or dtype.name in ("float16", "float32", "float64"):
        return np.asarray(values.numpy().astype(kind))
    return np.asarray(values.view(torch.int16 if dtype.bits == 16 else torch.uint8).numpy().view(kind))


def _bytes(count: int, dtype: DType) -> int:
    return -(-count * max(dtype.bits, 8 if dtype.kind == "bool" else 1) // 8)


def _check_length(place: str, proto: Any, dtype: DType, shape: tuple[int, ...]) -> None:
    """Refuse a tensor that holds more or fewer values than its shape says."""
    count = math.prod(shape)
    if proto.HasField("raw_data"):
        held, wanted, unit = len(proto.raw_data), _bytes(count, dtype), "bytes"
    else:
        field = _FIELDS.get(dtype.name) or _WIDE.get(dtype.name) or "int32_data"
        held, wanted, unit = len(getattr(proto, field)), count, "values"
        if dtype.bits < 8 and dtype.kind != "bool":
            # formats below a byte are packed in int32_data as in raw_data, a byte in each entry
            wanted = -(-count * dtype.bits // 8)
    if held != wanted:
        raise FormatError(f"{place}: shape {list(shape)} of {dtype} needs {wanted} {unit}, the file holds {held}.")


def _read_external(place: str, proto: Any, folder: Path | None, size: int) -> None:
    """Move external data into *proto*; only a file inside *folder*, links followed, is read."""
    entries = {item.key: item.value for item in proto.external_data}
    location = entries.get("location", "")
    if not isinstance(location, str):
        raise FormatError(f"{place}: external data {location!r}: the file's name must be text in UTF-8.")
    if folder is None:
        raise FormatError(f"{place}: its data is in {location!r}: load the model from its file, not from bytes.")
    path = folder / location
    if not is_file(path) or not resolved(path).is_relative_to(resolved(folder)):
        raise FormatError(f"{place}: external data {location!r}: must be a file inside the model's folder.")
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", size))
    except ValueError:
        raise FormatError(f"{place}: external data {location!r}: offset and length must be whole numbers.") from None
    if length != size or offset < 0 or offset + size > path.stat().st_size:
        raise FormatError(f"{place}: external data {location!r}: {size} bytes from byte {offset} on are not all there.")
    with EXTERNAL.opened(path) as file:
        file.seek(offset)
        proto.raw_data = file.read(size)
    proto.data_location = TensorProto.DEFAULT
    del proto.external_data[:]
