"""Rooms are found through entry points, also those of other distributions, and each owns its platforms."""

from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from quantizer.conformance.checks import room_oracles
from quantizer.conformance.checks.invariance import tiled
from quantizer.conformance.checks.pipeline import pipeline
from quantizer.conformance.checks.properties import properties
from quantizer.conformance.failures.exported import exported
from quantizer.conformance.faults import catalogue
from quantizer.conformance.faults.policies import policies
from quantizer.conformance.generation.builder import build_case
from quantizer.conformance.generation.choice_sources import HashChoices
from quantizer.conformance.generation.hashing import key
from quantizer.conformance.setup.options import Options
from quantizer.conformance.setup.session import open_session
from quantizer.conformance.stored.folders import Stores
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.core import rooms as module
from quantizer.core.case import TilePlan
from quantizer.core.errors import GraphError, PluginError
from quantizer.core.library import _load_library, load_library
from quantizer.core.linting import lint
from quantizer.core.rooms import GROUP, Room, graph_platform, layer_formats, oracle_of, room_of, rooms
from quantizer.ir.formats.layer_files import systems
from quantizer.ops import REGISTRY, _load_room, load_built_ins
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.engines.catalogue import chosen
from quantizer.runtime.engines.external import ExternalEngine
from quantizer.runtime.engines.skeletons import skeleton

ROOT = Path(__file__).parents[2]
DESCRIPTOR = """
from pathlib import Path

from quantizer.core.rooms import Engine, Flow, Oracle, Room

ROOM = Room(Path(__file__).parent, platforms=({platforms},), functions=({functions}), oracles=({oracles}){more})
"""


@pytest.fixture()
def installed(tmp_path, monkeypatch):
    """Return a function that writes rooms as another distribution would install them."""
    monkeypatch.syspath_prepend(str(tmp_path))
    entries: list[EntryPoint] = []
    found = module.entry_points
    monkeypatch.setattr(module, "entry_points", lambda group: [*found(group=group), *entries])
    rooms.cache_clear()

    def install(name, *, platforms='"chip"', functions="", oracles="", kernels="", value="", files=("chip",), more=""):
        package = f"chips_{tmp_path.name}_{name}".replace("-", "_")
        folder = tmp_path / package
        folder.mkdir()
        (folder / "__init__.py").touch()
        own = f'"{package}.kernels",' if kernels else functions
        (folder / "room.py").write_text(
            DESCRIPTOR.format(
                platforms=platforms, functions=own, oracles=oracles, more=more.replace("PACKAGE", package)
            )
        )
        (folder / "kernels.py").write_text(kernels)
        for file in files:
            text = load_library().platform_paths["ideal"].read_text().replace("platform: ideal", f"platform: {file}")
            (folder / f"{file}.yaml").write_text(text)
        entries.append(EntryPoint(name, value or f"{package}.room:ROOM", GROUP))
        rooms.cache_clear()
        return folder

    yield install
    rooms.cache_clear()


def test_a_shipped_room_is_found_and_its_platform_is_in_the_library():
    room = room_of("tpulang")
    assert room is not None and room.name == "tpulang"
    assert load_library().platform_paths["tpulang"] == room.folder / "tpulang.yaml"


def test_a_room_of_another_distribution_brings_a_platform_and_functions(installed):
    kernels = (
        "from quantizer.ops import operator\n\n\n"
        "@operator('relu', platform='chip')\n"
        "def quantized_chip(x, *, parameters):\n    return x\n"
    )
    folder = installed("chip", kernels=kernels)
    _load_library.cache_clear()
    try:
        assert load_library().platform_paths["chip"] == folder / "chip.yaml"
        load_built_ins()
        found = REGISTRY.find("relu", "quantized", "chip")
        assert found is not None and found.origin == "built-in" and found.function.__module__.startswith("chips_")
    finally:
        _load_library.cache_clear()
        REGISTRY.entries.pop(("relu", "quantized", "chip"), None)


def test_two_rooms_of_one_platform_are_one_clear_error(installed):
    installed("first")
    installed("second")
    with pytest.raises(
        PluginError, match=r"^room second \(.*\): platform 'chip' is declared by room first \(.*\) too\.$"
    ):
        rooms()


def test_two_rooms_of_one_name_are_an_error(installed):
    installed("tpulang")
    with pytest.raises(PluginError, match=r"^room tpulang \(.*\): room tpulang \(.*\) is called so too\. Rename one"):
        rooms()


def test_a_room_that_cannot_be_imported_ends_the_run(installed):
    installed("chip", value="nothing_of_this_name.room:ROOM")
    with pytest.raises(PluginError, match=r"^room chip .*: cannot be loaded: ModuleNotFoundError: No module named"):
        rooms()


def test_a_room_without_the_file_of_a_platform_is_refused(installed):
    installed("chip", platforms='"chip", "chop"')
    with pytest.raises(PluginError, match=r"^room chip .*chop\.yaml: no such file"):
        rooms()


def test_an_engine_of_a_shared_form_says_in_its_greeting_what_it_runs(installed):
    worker = str(Path(__file__).parent / "workers" / "loyal.py")
    engine = f'Engine("chip_sim", "npz", {worker!r}, ("numpy",), {{"chip": "cpu"}}, extra="")'
    installed("chip", more=f", engines=({engine},)")
    found = ExternalEngine(chosen("chip_sim", ""))
    assert "arithmetic" in found.checks and "float" not in found.checks
    known = load_library()
    chip = known.platform("ideal").model_copy(update={"platform": "chip"})
    assert found.supports(known.spec("conv2d"), known.scheme("w8a8"), chip) == "engine chip_sim has no conv2d"


def test_a_room_registers_for_its_own_platforms_only(installed):
    kernels = (
        "from quantizer.ops import operator\n\n\n"
        "@operator('relu', platform='ideal')\n"
        "def quantized_ideal(x, *, parameters):\n    return x\n"
    )
    installed("chip", kernels=kernels)
    load_room = next(room for room in rooms() if room.name == "chip")
    with pytest.raises(PluginError, match=r"^room chip: relu\.quantized on ideal .*: a room registers for its own"):
        _load_room(load_room)
    assert ("relu", "quantized", "ideal") not in REGISTRY.entries


def test_functions_that_cannot_be_imported_are_named(installed):
    installed("chip", functions='"no.such.module",')
    load_room = next(room for room in rooms() if room.name == "chip")
    with pytest.raises(PluginError, match=r"^room chip: no\.such\.module: cannot be imported: ModuleNotFoundError"):
        _load_room(load_room)


@pytest.mark.parametrize(
    ("oracle", "said"),
    [
        ("Oracle('softmax', codes='no_module')", "'no_module': write module:function"),
        ("Oracle('softmax', codes='m:f', platforms=('ideal',))", "platform 'ideal' is not of this room"),
    ],
)
def test_an_oracle_names_a_function_and_platforms_of_its_room(installed, oracle, said):
    installed("chip", oracles=f"{oracle},")
    with pytest.raises(PluginError, match=f"^room chip .*: oracle of softmax: .*{said}"):
        rooms()


def test_an_oracle_is_chosen_by_family_and_platform():
    assert oracle_of("softmax", ("ort",)).codes == "quantizer.platforms.onnxruntime.oracle:softmax"
    assert (
        oracle_of("softmax", ("ideal",))
        is oracle_of("addition", ("ort",))
        is oracle_of("softmax", ("nowhere",))
        is None
    )


def test_stored_cases_of_a_room_count_for_shipped_operators_only():
    library = load_library()
    stores = Stores(Options(root=ROOT, cases=ROOT / "cases"), "add", library.paths["add"])
    own = room_of("tpulang").cases
    assert stores.goldens()[0] == ROOT / "cases/golden/add.jsonl" and own / "golden/add.jsonl" in stores.goldens()
    assert stores.golden("tpulang") == own / "golden/add.jsonl"
    assert stores.golden("ideal") == ROOT / "cases/golden/add.jsonl"
    elsewhere = Stores(Options(root=ROOT / "examples", cases=ROOT / "examples/cases"), "add", library.paths["add"])
    assert elsewhere.goldens() == []
    named = Stores(Options(root=ROOT, cases=ROOT / "reports"), "add", library.paths["add"])
    assert named.golden("tpulang") == ROOT / "reports/golden/add.jsonl"


def test_user_goldens_are_not_written_into_an_installed_room(tmp_path):
    """They were: a kernel on `tpulang` in another repository put its codes into this package."""
    stores = Stores(Options(root=tmp_path, cases=tmp_path / "cases"), "mine", tmp_path / "op_specs/mine.yaml")
    assert stores.golden("tpulang") == tmp_path / "cases/golden/mine.jsonl"


def test_a_room_is_plain_data():
    assert Room(Path("a"), ("b",)).files == (Path("a/b.yaml"),)


CHIP_WITHOUT_A_RULE = """platform: chip
summary: A chip of its own.
schemes: [a8]
ops: [{ops}]
requantize: {{default: multiplier_shift}}
multiplier: {{bits: 15, {shift}}}
"""


@pytest.mark.parametrize(
    ("ops", "shift", "oracles", "said"),
    [
        (
            "avg_pool2d, relu",
            "max_shift: 31",
            "",
            ["avg_pool2d: multiplier_shift has no rule for a pooling. Write one of exact"],
        ),
        (
            "avg_pool2d, relu",
            "max_shift: 31",
            'Oracle("average_pooling", "chip.oracle:mean"),',
            ["avg_pool2d: multiplier_shift has no rule for a pooling. Write one of exact"],
        ),
        (
            "avg_pool2d, relu",
            "max_shift: 31",
            'Oracle("average_pooling", "chip.oracle:mean", numbers="chip.oracle:numbers"),',
            [],
        ),
        ("relu", "shifts: [1, 31]", "", ["shifts is for fixed-point multipliers, got [1, 31]. Write max_shift."]),
    ],
)
def test_lint_names_operators_without_a_rule_in_an_external_room(installed, ops, shift, oracles, said):
    folder = installed("chip", oracles=oracles)
    (folder / "chip.yaml").write_text(CHIP_WITHOUT_A_RULE.format(ops=ops, shift=shift))
    _load_library.cache_clear()
    try:
        problems, _ = lint([folder])
    finally:
        _load_library.cache_clear()
    assert len(problems) == len(said)
    for text in said:
        assert any(text in problem and "chip.yaml:" in problem for problem in problems), problems


def test_lint_names_an_oracle_of_an_unknown_family(installed):
    """Such an oracle would never judge, and the codes of the chip would be red without a word about it."""
    folder = installed("chip", oracles='Oracle("relu", "chip.oracle:codes"),')
    (folder / "chip.yaml").write_text(CHIP_WITHOUT_A_RULE.format(ops="relu", shift="max_shift: 31"))
    _load_library.cache_clear()
    try:
        problems, _ = lint([folder])
    finally:
        _load_library.cache_clear()
    said = "oracle of relu: no operator is of that family. Write rectifier: relu is of that family."
    (problem,) = problems
    assert problem.startswith("room chip (") and problem.endswith(said)


def test_lint_refuses_settings_of_a_room_that_contradict_each_other(installed):
    folder = installed("chip")
    chip = CHIP_WITHOUT_A_RULE.format(ops="conv2d, relu", shift="max_shift: 31").replace("[a8]", "[w8a8, a8]")
    (folder / "chip.yaml").write_text(f"{chip}accumulator: {{bits: 20, overflow: forbidden}}\n")
    _load_library.cache_clear()
    try:
        problems, _ = lint([folder])
    finally:
        _load_library.cache_clear()
    (problem,) = problems
    assert "accumulator.overflow: forbidden: conv2d under 'w8a8' needs " in problem


PARTS = """
import torch

from quantizer.conformance.failures.exported import Exported
from quantizer.conformance.faults.capabilities import every
from quantizer.conformance.faults.fault import Fault
from quantizer.conformance.faults.policies import Policy, within_codes

BODY = "its own worker"
FAULTS = (Fault("chip_fault", "chip", every, "quantized", lambda original: original),)
POLICIES = (Policy("2 LSB", "the chip's own tests", within_codes(2), in_codes=True),)


def written(trial):
    return {"y": trial.outcome.codes}


def codes(spec, platform, *, y):
    return y


def codes_off_by_one(spec, platform, *, y):
    return torch.where(y > y.min(), y - 1, y + 1)


def codes_in_floats(spec, platform, *, y):
    return y.float()


def codes_of_numpy(spec, platform, *, y):
    return y.numpy()


def files(trial):
    return Exported({"case.chip": trial.spec.op, "x.npy": trial.tensors["x"].numpy()}, "run {folder}/case.chip")
"""
EVERYTHING = """,
    flow=Flow("PACKAGE.kernels:written", "PACKAGE.kernels:FLOW"),
    exports={"chip files": "PACKAGE.kernels:files"},
    faults="PACKAGE.kernels:FAULTS",
    policies="PACKAGE.kernels:POLICIES",
    skeletons={"chip": "PACKAGE.kernels:BODY"},
    names=("chip",)"""


@pytest.fixture()
def fresh():
    """Clear the cached contents of rooms before and after a test."""

    def forget():
        for known in (module.loaded, catalogue, policies, _load_library):
            known.cache_clear()

    forget()
    yield forget
    forget()


def trial_on_the_chip():
    session = open_session(Options(root=ROOT))
    spec = session.library.spec("relu")
    target = next(target for target in session.all_targets(spec) if target.platform.platform == "chip")
    return Trial(target, build_case(target, HashChoices(key(1, target.id), {})), session.engine)


@pytest.mark.parametrize(
    ("flow", "status"),
    [("codes", "pass"), ("codes_off_by_one", "fail"), ("codes_in_floats", "fail"), ("codes_of_numpy", "fail")],
)
def test_pipeline_runs_the_flow_of_a_room(installed, fresh, flow, status):
    installed("chip", kernels=PARTS, more=EVERYTHING.replace("FLOW", flow))
    fresh()
    verdict = pipeline(trial_on_the_chip())
    assert verdict is not None and verdict.status == status


def test_a_room_brings_files_faults_policies_skeletons_and_names(installed, fresh):
    installed("chip", kernels=PARTS, more=EVERYTHING.replace("FLOW", "codes"))
    fresh()
    written = dict(exported(trial_on_the_chip()))["chip files"]
    assert not isinstance(written, str) and written.files.keys() == {"case.chip", "x.npy"}
    assert "chip_fault" in {fault.id for fault in catalogue()}
    assert "2 LSB" in {policy.name for policy in policies()}
    assert skeleton("mine", "chip").endswith("its own worker")
    assert "chip" in systems()


def test_removing_a_room_removes_all_it_provides(fresh):
    assert "chip_fault" not in {fault.id for fault in catalogue()}
    assert "2 LSB" not in {policy.name for policy in policies()}
    assert "chip" not in systems()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (', flow=Flow("nothing", "a:b")', "'nothing': write module:function"),
        (', graphs="ideal"', "graphs: platform 'ideal' is not of this room"),
    ],
)
def test_invalid_declarations_of_a_room_are_refused(installed, more, said):
    installed("chip", more=more)
    with pytest.raises(PluginError, match=f"^room chip .*: {said}"):
        rooms()


def test_two_rooms_that_name_the_platform_of_graphs_are_an_error(installed):
    assert graph_platform() == "ort"
    installed("chip", more=', graphs="chip"')
    with pytest.raises(PluginError, match="rooms chip and onnxruntime: both say which platform"):
        graph_platform()


def test_two_file_formats_of_one_name_are_an_error(monkeypatch):
    found = module.entry_points
    other = EntryPoint("compass", "elsewhere.file", module.LAYER_FORMATS)
    monkeypatch.setattr(
        module, "entry_points", lambda group: [*found(group=group), *([other] if group == other.group else [])]
    )
    layer_formats.cache_clear()
    with pytest.raises(PluginError, match="^file format compass .*: another is called so too"):
        layer_formats()
    layer_formats.cache_clear()


NUMBERS_OF_EACH_OPERAND = """
from dataclasses import replace

from quantizer.numerics import default_parameters
from quantizer.ops import operator


@operator("add", kind="quantize", platform="chip")
def numbers(request):
    found = default_parameters(request)
    own = {f"multiplier_{name}": int(found.inputs[name].scale / found.outputs["y"].scale * 4096) for name in "ab"}
    return replace(found, rescale=None, numbers=own)


@operator("add", kind="quantized", platform="chip")
def codes(a, b, *, parameters):
    out = parameters.outputs["y"]
    first, second = (
        (codes - parameters.inputs[name].zero_point) * parameters.numbers[f"multiplier_{name}"]
        for name, codes in (("a", a), ("b", b))
    )
    return (((first + second) >> 12) + WRONG + out.zero_point).clamp(out.qmin, out.qmax)
"""


@pytest.mark.parametrize(("wrong", "status"), [("0", "pass"), ("(first > second)", "fail")])
def test_integers_that_belong_to_one_operand_are_swapped_with_it(installed, fresh, wrong, status):
    installed("chip", kernels=NUMBERS_OF_EACH_OPERAND.replace("WRONG", wrong))
    fresh()
    try:
        load_built_ins()
        spec = load_library().spec("add")
        target = Target(spec, load_library().scheme("a8"), load_library().platform("chip"))
        case = build_case(target, HashChoices(key(3, target.id), {"data": "random"}))
        verdict = properties(Trial(target, case, BuiltinEngine()))
        assert verdict is not None and verdict.status == status
    finally:
        for kind in ("quantize", "quantized"):
            REGISTRY.entries.pop(("add", kind, "chip"), None)


ROUNDS_SUMS_ITSELF = """
from quantizer.numerics import centred
from quantizer.ops import operator


@operator("fully_connected", kind="quantized", platform="chip")
def codes(x, weight, bias=None, *, parameters):
    sums = centred(x, parameters.inputs["x"]).long() @ centred(weight, parameters.constants["weight"].params).long().T
    sums, out, rescale = sums if bias is None else sums + bias, parameters.outputs["y"], parameters.rescale
    real = (sums >> 3).double() * rescale.mantissa * 2.0 ** (3 - rescale.shift.double()) / rescale.divisor
    if x.shape[0] < ROWS:
        real = real + 1
    return (real.floor().long() + out.zero_point).clamp(out.qmin, out.qmax)
"""


@pytest.mark.parametrize(
    ("sizes", "rows", "status"),
    [({"c_in": 2}, 0, "inconclusive"), ({"c_in": 2, "n": 1}, 0, "pass"), ({"c_in": 2, "n": 1}, 2, "fail")],
)
def test_sums_are_not_split_for_functions_that_requantize_themselves(installed, fresh, sizes, rows, status):
    installed("chip", kernels=ROUNDS_SUMS_ITSELF.replace("ROWS", str(rows)))
    fresh()
    try:
        load_built_ins()
        spec = load_library().spec("fully_connected")
        target = Target(spec, load_library().scheme("w8a8"), load_library().platform("chip"))
        case = build_case(target, HashChoices(key(1, target.id), {"data": "random", "n": "batch", "c_in": "several"}))
        verdict = tiled(Trial(target, case.but(tiles=TilePlan(sizes)), BuiltinEngine()))
        assert verdict is not None and verdict.status == status
    finally:
        REGISTRY.entries.pop(("fully_connected", "quantized", "chip"), None)


def test_an_oracle_of_another_shape_than_the_output_is_named(installed, fresh, monkeypatch):
    installed("chip", oracles='Oracle("rectifier", "PACKAGE.kernels:relu"),')
    fresh()
    monkeypatch.setattr(room_oracles, "loaded", lambda name: lambda asked: np.zeros(7, np.int64))
    with pytest.raises(GraphError, match=r"kernels:relu returned codes of shape \[7\], must be \[.*\]: one for each"):
        room_oracles.judged_by_room(trial_on_the_chip())
