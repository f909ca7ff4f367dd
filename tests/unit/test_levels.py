"""Levels of instructions: what they are called, what they leave, and whether torch's libraries keep to them."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from quantizer.conformance.agreement.measure import Agreement
from quantizer.conformance.agreement.table import Pairing, document
from quantizer.conformance.defects.document import levels_of
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.judging.known_defects import is_overruled
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.releases import at_release
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.stored.files import read_replay
from quantizer.conformance.stored.fitting import target_of
from quantizer.conformance.trials.trial import Trial
from quantizer.core import levels
from quantizer.core.defects import Defect, check_defects
from quantizer.core.errors import UnsupportedError
from quantizer.core.library import load_library
from quantizer.core.record import Record
from quantizer.core.rooms import engines
from quantizer.ops import load_built_ins
from quantizer.reporting.coverage import platform_table
from quantizer.runtime.engines.catalogue import Chosen
from quantizer.runtime.engines.external import ExternalEngine
from quantizer.runtime.engines.frames import Job
from quantizer.runtime.engines.pins import held_to, instruction_sets, running_variant, variables
from quantizer.runtime.engines.process import Worker

load_built_ins()
LIBRARY = at_release(load_library(), Chosen("torch"))
CASES = Path(__file__).parents[2] / "quantizer/platforms/torch/cases"
XEON = tuple(dict.fromkeys(name for needed in levels.LEVELS.values() for name in needed))
EPYC = (*levels.LEVELS["avx512_vnni"], "avx512_bf16")
LAPTOP = (*levels.LEVELS["avx2"], "avx_vnni")
x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="these variables choose kernels on x86-64 alone")


def defect(platform_: str, name: str) -> Defect:
    return next(d for d in LIBRARY.platform(platform_).defects if d.id == name)


@pytest.mark.parametrize(
    ("available", "expected"),
    [
        (XEON, ("avx2", "avx512", "avx512_vnni", "amx")),
        (EPYC, ("avx2", "avx512", "avx512_vnni")),
        (LAPTOP, ("avx2",)),
        (("sse4_1", "avx"), ()),
        (("asimd", "i8mm"), ()),
    ],
)
def test_levels_follow_the_instruction_sets_of_the_processor(available, expected) -> None:
    assert levels.offered(available) == expected


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch):
    def become(*available: str) -> None:
        monkeypatch.setattr(levels, "instructions", lambda: available)

    return become


def test_the_default_is_a_level_that_machines_of_ci_have(machine) -> None:
    machine(*XEON)
    assert levels.asked("") == ("avx2",)
    assert levels.asked("all") == ("avx2", "avx512", "avx512_vnni", "amx")
    assert levels.label("avx2") == "avx2"
    assert levels.label("unpinned") == "unpinned: amx"
    machine("asimd")
    assert levels.asked("") == levels.asked("all") == ("host",)
    assert levels.label("host") == "host: below avx2"


@pytest.mark.parametrize(
    ("level", "text"),
    [
        ("avx512_vnn", r"--op-isa=avx512_vnn: no such level. Did you mean 'avx512_vnni'\?"),
        ("sse41", r"--op-isa=sse41: no such level. .*avx2, avx512, avx512_vnni, amx, host, all"),
        (
            "amx",
            "--op-isa=amx: this processor has no amx_int8, no amx_bf16. It has the levels avx2, avx512, avx512_vnni.",
        ),
    ],
)
def test_an_unknown_or_missing_level_is_one_error(machine, level, text) -> None:
    machine(*EPYC)
    with pytest.raises(UnsupportedError, match=text):
        levels.asked(level)


def test_a_processor_without_levels_gets_the_possible_values(machine) -> None:
    machine("asimd")
    with pytest.raises(UnsupportedError, match="It has no level: name host, which pins nothing"):
        levels.asked("avx2")


def test_every_variable_has_a_value_for_every_level() -> None:
    for pins in (engine.pins for engine in engines().values() if engine.pins.pins):
        for pin in pins.pins:
            assert pin.values.keys() == levels.LEVELS.keys()
    assert variables("torch", "avx2")["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    assert variables("torch", "host") == variables("onnxruntime", "unpinned") == {}
    assert (held_to("torch", "avx2"), held_to("litert", "avx2")) == ("avx2", "unpinned")


def test_a_level_limits_the_engine_and_its_libraries() -> None:
    for level, named in levels.LEVELS.items():
        left = instruction_sets("torch", level, XEON, {})
        assert {name for name in left if "." not in name} == set(named)
        assert "onednn.avx512_vnni" in left or level in ("avx2", "avx512")
        assert ("onednn.amx_int8" in left) == (level == "amx")
    assert instruction_sets("onnxruntime", "unpinned", LAPTOP, {"ONEDNN_MAX_CPU_ISA": "SSE41"}) == set(LAPTOP)


def test_user_variables_limit_only_their_library_if_unpinned() -> None:
    left = instruction_sets("torch", "host", EPYC, {"ONEDNN_MAX_CPU_ISA": "avx2"})
    assert "avx512_vnni" in left
    assert "fbgemm.avx512_vnni" in left
    assert "onednn.avx2" in left
    assert "onednn.avx512f" not in left
    assert instruction_sets("torch", "avx512", EPYC, {"ONEDNN_MAX_CPU_ISA": "avx2"}) == instruction_sets(
        "torch", "avx512", EPYC, {}
    )


def test_x86_runs_as_fbgemm_below_vnni() -> None:
    assert running_variant("torch", "x86", instruction_sets("torch", "avx512", EPYC, {})) == "fbgemm"
    assert running_variant("torch", "x86", instruction_sets("torch", "host", EPYC, {})) == "x86"
    assert running_variant("torch", "qnnpack", ()) == "qnnpack"
    assert running_variant("litert", "reference", ()) == "reference"


def test_a_defect_applies_at_levels_with_its_instruction_sets() -> None:
    assert levels_of(defect("torch_x86", "delegated_to_fbgemm")) == ("avx2", "avx512")
    assert levels_of(defect("torch_x86", "grouped_conv_single_column_rows_wrong")) == ("avx512_vnni", "amx")
    assert levels_of(defect("torch_x86", "int16_pair_sums_saturate")) == ()
    assert levels_of(defect("ort", "int16_pair_sums_saturate")) == ()


def test_library_instruction_sets_belong_to_their_engine() -> None:
    made = defect("torch_x86", "int16_pair_sums_saturate")
    assert check_defects([made], "defects") == []
    other = made.model_copy(update={"engine": "onnxruntime"})
    (finding,) = check_defects([other], "defects")
    assert finding.location == ("defects", 0, "lacks", 0)
    assert "'onednn.avx512_vnni': no such instruction set" in finding.text


@pytest.fixture(params=[level for level in levels.LEVELS if level in levels.offered()])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Worker]]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "workers"))
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "DEFAULT")
    made = Worker("kernels", pins=variables("torch", request.param))
    yield request.param, made
    made.close()


@x86_64
def test_the_libraries_of_torch_keep_to_the_level(kernels) -> None:
    level, worker = kernels
    capability, codes = worker.run(Job(b"", {"nothing": np.zeros(1, np.int8)}))
    assert capability.tobytes().decode() == ("AVX2" if level == "avx2" else "AVX512")
    exact = round(64 * 127 * 255 * 1e-4)
    saturated = round(32 * 32767 * 1e-4)
    assert codes.tolist() == [saturated if level in ("avx2", "avx512") else exact] * 2


@x86_64
@pytest.mark.parametrize("level", [level for level in levels.LEVELS if level in levels.offered()])
def test_single_column_tiles_fail_only_at_the_declared_levels(level) -> None:
    path = CASES / "defects" / "torch_x86-grouped_conv_single_column_rows_wrong.json"
    case = read_replay(path).case
    engine = ExternalEngine(Chosen("torch"), level)
    trial = Trial(target_of(LIBRARY, case, str(path)), case, engine)
    undeclared = trial.target.platform.model_copy(update={"defects": []})
    (known,), (found,) = judge(trial, ("tiled",)), judge(trial.under_platform(undeclared), ("tiled",))
    engine.close()
    shows = level in ("avx512_vnni", "amx")
    assert found.failing == shows
    assert known.reason.startswith("grouped_conv_single_column_rows_wrong: ") == shows


def test_an_engine_defect_overrules_that_of_its_platform(monkeypatch) -> None:
    path = CASES / "defects" / "torch_x86-vector_body_rounds_differently.json"
    case = read_replay(path).case
    target = target_of(LIBRARY, case, str(path))
    known = defect("torch_x86", "vector_body_rounds_differently")
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    assert not is_overruled(known, Trial(target, case, ExternalEngine(Chosen("torch"))))
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    engine = ExternalEngine(Chosen("torch"))
    assert is_overruled(known, Trial(target, case, engine)) == ("aten.sse4_1" in engine.instructions)


def test_levels_are_columns_of_the_agreement_table() -> None:
    (target, *_) = open_session(Options(root=Path.cwd(), engine="torch", platforms=("torch_x86",))).targets(
        LIBRARY.spec("add")
    )
    full, half = Agreement(elements=10, exact=10), Agreement(elements=10, exact=5, largest=7)
    made = [
        Pairing("torch:x86", "2.13.0", level, target, full, tied, ())
        for level, tied in (("avx2", full), ("avx512_vnni", half))
    ]
    text = document(made)
    (heading,) = [line for line in text.splitlines() if line.startswith("| operator")]
    names = [part.strip() for part in heading.strip("|").split("|")]
    assert names[:4] == ["operator", "scheme", "random, avx2", "tied, avx2"]
    assert names[8:10] == ["random, avx512_vnni", "tied, avx512_vnni"]
    assert "Instructions: avx2, avx512_vnni." in text
    assert "50.0000 %" in text
    assert "| random   |" in document(made[:1])


def test_coverage_has_one_column_per_level() -> None:
    made = [
        Record(f"add-a8-torch_x86-{level}", "add", "cases", "passed", scheme="a8", platform="torch_x86", isa=level)
        for level in ("avx2", "avx512")
    ]
    assert [column.name for column in platform_table(made).columns] == ["op", "torch_x86-avx2", "torch_x86-avx512"]
    assert [column.name for column in platform_table(made[:1]).columns] == ["op", "torch_x86"]
