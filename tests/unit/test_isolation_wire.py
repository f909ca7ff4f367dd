"""What crosses to the process of a plugin comes back the same, and a damaged message is one error."""

import io
import json
import math
import random
import struct
import zlib

import numpy as np
import pytest
import torch

from quantizer.core.errors import FormatError, FunctionError, QuantizerError
from quantizer.core.library import load_library
from quantizer.numerics.qparams import Parameters, QParams, Staged
from quantizer.runtime.engines.frames import MAX_BODY, Frame, receive, send
from quantizer.runtime.isolation.wire import TYPES, Opaque, Reader, Writer, read_model, records, write_model


def crossed(value, models=()):
    """Return *value* as the other end has it."""
    kept = []
    writer = Writer(
        lambda model: list(map(id, models)).index(id(model)), lambda one: kept.append(one) or (1, len(kept))
    )
    data = json.loads(json.dumps(writer.write(value)))
    stream = io.BytesIO()
    send(stream, Frame({"value": data}, arrays=writer.arrays))
    stream.seek(0)
    frame = receive(stream)
    return Reader(frame.arrays, lambda number: models[number], lambda handle, name: (handle, name)).read(
        frame.header["value"]
    )


@pytest.mark.parametrize("kind", TYPES.values(), ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3)])
def test_tensors_are_returned_bitwise_in_new_memory(kind, shape):
    values = (torch.randn(shape) * 100).to(kind)
    found = crossed(values)
    assert found.dtype == kind
    assert torch.equal(found, values)
    assert found.numel() == 0 or found.data_ptr() != values.data_ptr()


def test_views_are_sent_by_value():
    whole = torch.arange(24).reshape(2, 3, 4)
    for view in (whole.mT, whole[:, ::2], whole.flip(0), whole[0, 0].expand(5, 4)):
        assert torch.equal(crossed(view), view)


def test_plain_data_keeps_its_types():
    values = {"a": (1, 2.5, "x", None, True), 3: [math.inf, -0.0, 1 << 80], (1, 2): {"deep": ((),)}}
    found = crossed(values)
    assert found == values
    assert type(found["a"]) is tuple
    assert math.isnan(crossed(math.nan))
    assert crossed(np.int64(7)) == 7


def test_specs_schemes_and_platforms_survive_serialization():
    library = load_library()
    for model in (*library.specs.values(), *library.platforms.values(), library.scheme("w8a8")):
        assert read_model(json.loads(json.dumps(write_model(model)))) == model


def test_parameters_keep_their_platform_and_mark_foreign_objects():
    platform = load_library().platform("ideal")
    params = QParams(
        next(iter([records()["DType"][0]("int8", "int", 8, "int8")])),
        torch.tensor(0.5).double(),
        torch.tensor(0),
        -128,
        127,
    )
    provided = Parameters(platform, {"x": params}, {"y": params}, extra={"own": object(), "count": 3})
    found = crossed(provided, (platform,))
    assert found.platform is platform
    assert found.extra == {"own": ((1, 1), "object"), "count": 3}
    assert torch.equal(found.inputs["x"].scale, params.scale)


@pytest.mark.parametrize(
    ("bad", "rule"),
    [
        (torch.ones(2).to("meta"), "tensors are dense, on the CPU"),
        (torch.eye(3).to_sparse(), "tensors are dense, on the CPU"),
        (torch.ones(2, dtype=torch.complex64), "a tensor of torch.complex64: must be one of bool, uint8, "),
    ],
)
def test_a_tensor_of_another_kind_is_refused(bad, rule):
    with pytest.raises(FunctionError, match=rule):
        crossed(bad)


def test_circular_data_is_refused():
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(FunctionError, match="levels"):
        crossed(loop)


def framed(header, body=b""):
    text = json.dumps(header).encode()
    return struct.pack("<I", len(text)) + text + body


@pytest.mark.parametrize(
    "raw",
    [
        b"\x01",
        b"\xff\xff\xff\xff",
        b"\x02\x00\x00\x00{",
        b"A" * 4096,
        framed([]),
        framed({"model": 0}),
        framed({"model": -1, "arrays": []}),
        framed({"model": MAX_BODY + 1, "arrays": []}),
        framed({"model": 0, "arrays": [["<f4", [1 << 40, 1 << 40]]]}),
        framed({"model": 0, "arrays": [["O", [1]]]}),
        framed({"model": 0, "arrays": [["<f4", [-1]]]}),
        framed({"model": 0, "arrays": [["<f4,<f4", [1]]]}),
        framed({"model": 0, "arrays": [["a4", [1]]]}),
        framed({"model": 0, "arrays": [["(2,)<f4", [1]]]}),
        framed({"model": 0, "arrays": [[1, 2, 3]]}),
        framed({"model": 0, "arrays": [["<f4", [4]]]}, b"abc"),
        framed({"model": 9, "arrays": []}),
        b"\xff\x0f\x00\x00" + b"[" * 4095,
    ],
    ids=lambda raw: f"{zlib.crc32(raw):08x}",
)
@pytest.mark.filterwarnings("error")
def test_an_invalid_message_is_refused_before_reading(raw):
    with pytest.raises(FormatError):
        receive(io.BytesIO(raw))


def test_a_damaged_message_is_one_error():
    """1,000 mutations of an answer: each is read, or refused with an error of ours; what is read holds no class of others."""
    platform = load_library().platform("ideal")
    params = QParams(
        records()["DType"][0]("int8", "int", 8, "int8"), torch.tensor(0.5).double(), torch.tensor(0), -128, 127
    )
    writer = Writer(lambda _: 0, lambda _: (1, 1))
    staged = Staged(torch.arange(6).reshape(2, 3), {"first": torch.ones(2)})
    data = writer.write((staged, Parameters(platform, {"x": params}, {"y": params}, numbers={"n": 3})))
    stream = io.BytesIO()
    send(stream, Frame({"result": data}, arrays=writer.arrays))
    whole, dice = stream.getvalue(), random.Random(7)
    for _ in range(1000):
        raw = bytearray(whole)
        for _ in range(dice.randint(1, 4)):
            raw[dice.randrange(len(raw))] = dice.choice(b'0123456789-{}[]",:abrtfno\x00\xff')
        try:
            frame = receive(io.BytesIO(bytes(raw)))
            if frame is not None:
                Reader(frame.arrays, lambda _: platform, lambda handle, _: Opaque(handle)).read(
                    frame.header.get("result")
                )
        except QuantizerError:
            pass
