"""A run that a plugin or an engine changed the files of is not whole: which files those are."""

import importlib
import os
import py_compile
import sys
import types
from pathlib import Path

import pytest

from quantizer.conformance.run import inputs
from quantizer.runtime.engines.process import environment

TAG = sys.implementation.cache_tag
CHANGED = {
    "a module in the root": "run/torch.py",
    "a package in the root": "run/numpy/__init__.py",
    "a compiled module in the root": "run/torch.pyc",
    "a native module in the root": "run/torch.abi3.so",
    "a native package in the root": "run/torch/__init__.abi3.so",
    "a module beside the specs": "run/my_specs/yaml.py",
    "a compiled module beside the specs": "run/my_specs/yaml.pyc",
    "a package beside the specs": "run/my_specs/_pytest/__init__.py",
    "an archive on the path": "site/python311.zip",
    "the program of pytest": "bin/pytest",
    "the program of reports": "bin/quantizer",
    "the settings of the interpreter": "pyvenv.cfg",
    "a conftest beside the specs": "run/my_specs/conftest.py",
    "settings": "run/pyproject.toml",
    "an entry point": "site/cheat-1.0.dist-info/entry_points.txt",
    "another plugin": "run/my_plugins/second.py",
    "a path file": "site/cheat.pth",
    "our compiled module": f"code/quantizer/__pycache__/cli.{TAG}.pyc",
    "our module of pytest": "code/quantizer_conformance.py",
    "a module that was imported": "lib/numbers_of_others.py",
    "its compiled form": f"lib/__pycache__/numbers_of_others.{TAG}.pyc",
    "its form with pytest's assertions": f"lib/__pycache__/numbers_of_others{inputs.PYTEST_TAIL}",
    "the template of the page": "code/quantizer/reporting/templates/report.html",
    "a shipped spec": "code/quantizer/op_specs/relu.yaml",
    "the shipped schemes": "code/quantizer/op_specs/schemes.yaml",
    "a platform of a room": "code/quantizer/platforms/ideal/ideal.yaml",
    "the schemes of a room": "code/quantizer/platforms/ideal/schemes.yaml",
    "a golden of a room": "code/quantizer/platforms/ideal/cases/golden/add.jsonl",
    "a stored failure": "run/cases/regressions/relu-0123456789ab.json",
    "the case of a defect in a room": "code/quantizer/platforms/ideal/cases/defects/relu.json",
    "what Python runs at its start": "path/usercustomize.py",
}
OTHER = (
    "run/reports/out/records.jsonl",
    "run/notes.txt",
    "run/my_specs/report.json",
    "run/my_specs/.cache/x.py",
    "code/quantizer/__pycache__/x.pyc",
    f"code/quantizer/__pycache__/edited.{TAG}.pyc",
)


def _compile(source: Path) -> None:
    """Compile a source file, long ago."""
    compiled = Path(inputs._compiled(str(source))[0])
    py_compile.compile(str(source), str(compiled), doraise=True)
    os.utime(compiled, (0, 0))


@pytest.fixture
def seen(tmp_path, monkeypatch):
    """Return the watcher of a run in the folder `run`, with this package in `code`."""
    for name in ("run/my_specs/a.yaml", *(f"code/quantizer/{name}.py" for name in ("__init__", "cli", "edited"))):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    for name in ("cli", "edited"):
        _compile(tmp_path / f"code/quantizer/{name}.py")
    (tmp_path / "code/quantizer/edited.py").write_text("# edited after it was compiled")
    module = types.ModuleType("numbers_of_others")
    module.__file__ = str(tmp_path / "lib/numbers_of_others.py")
    path = Path(module.__file__)
    path.parent.mkdir()
    path.touch()
    _compile(path)
    asserting = Path(inputs._compiled(str(path))[1])
    asserting.write_bytes(Path(inputs._compiled(str(path))[0]).read_bytes())
    os.utime(asserting, (0, 0))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin/python"))
    monkeypatch.setitem(sys.modules, "numbers_of_others", module)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "path"), str(tmp_path / "site/python311.zip")])
    monkeypatch.setattr(inputs.quantizer, "__file__", str(tmp_path / "code/quantizer/__init__.py"))
    shipped, room = (tmp_path / "code/quantizer" / name for name in ("op_specs", "platforms/ideal"))
    monkeypatch.setattr(inputs, "shipped_folder", lambda: shipped)
    monkeypatch.setattr(inputs, "shipped_platforms", lambda: [room / "ideal.yaml"])
    monkeypatch.setattr(inputs, "scheme_files", lambda _: [room / "schemes.yaml"])
    monkeypatch.setattr(inputs, "rooms", lambda: [types.SimpleNamespace(cases=room / "cases")])
    monkeypatch.setattr(inputs.site, "getsitepackages", lambda: [str(tmp_path / "site")])
    root = tmp_path / "run"
    config = types.SimpleNamespace(args=["my_specs"], invocation_params=types.SimpleNamespace(dir=root))
    asked = types.SimpleNamespace(
        root=root, specs=(), cases=root / "cases", plugins=(root / "my_plugins",), reports=root / "reports/out"
    )
    asked.golden_update = asked.baseline = asked.xfails = None
    return inputs.Inputs(config, asked)


@pytest.mark.parametrize("what", CHANGED)
def test_changes_of_judging_or_imported_files_are_detected(seen, tmp_path, what):
    file = tmp_path / CHANGED[what]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("#")
    assert seen.changed() == str(file).removeprefix(f"{tmp_path}/run/")


@pytest.mark.parametrize("name", OTHER)
def test_files_written_by_the_run_are_no_changes(seen, tmp_path, name):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("x")
    assert seen.changed() is None


def test_removal_of_bytecode_by_another_run_is_no_change(seen, tmp_path):
    (tmp_path / f"code/quantizer/__pycache__/cli.{TAG}.pyc").unlink()
    assert seen.changed() is None
    (tmp_path / "code/quantizer/cli.py").unlink()
    assert seen.changed() == str(tmp_path / "code/quantizer/cli.py")


def test_removal_of_imported_bytecode_is_a_change(seen, tmp_path, monkeypatch):
    """Another file may have been in its place when it was imported."""
    module = types.ModuleType("cli_of_others")
    module.__file__ = str(tmp_path / "code/quantizer/cli.py")
    compiled = tmp_path / f"code/quantizer/__pycache__/cli.{TAG}.pyc"
    monkeypatch.setitem(sys.modules, "cli_of_others", module)
    assert seen.changed() is None
    compiled.unlink()
    assert seen.changed() == str(compiled)


def test_compiled_modules_of_ours_that_appeared_are_removed(seen, tmp_path):
    """Any process may have written them, and the next one would run them in place of the source."""
    names = ("cli", "edited", "new")
    old, outdated, new = (tmp_path / f"code/quantizer/__pycache__/{name}.{TAG}.pyc" for name in names)
    new.write_bytes(b"x")
    seen.sweep()
    assert old.exists()
    assert not outdated.exists()
    assert not new.exists()


@pytest.mark.parametrize("form", [0, 1])
def test_bytecode_written_by_others_during_the_run_is_removed(seen, tmp_path, form):
    """A fresh environment: it is too young to be watched. The next process of the recipe would run it."""
    compiled = Path(inputs._compiled(str(tmp_path / "lib/numbers_of_others.py"))[form])
    beside = compiled.with_name("other_of_others.pyc")
    for path in (compiled, beside):
        path.write_bytes(b"x")
        os.utime(path, (0, 0))
    seen.sweep()
    assert not compiled.exists()
    assert not beside.exists()
    assert Path(inputs._compiled(str(tmp_path / "lib/numbers_of_others.py"))[1 - form]).exists()


def test_a_bytecode_folder_moved_into_place_is_emptied(seen, tmp_path):
    """Its files keep their times: they were made before the run, beside a plugin."""
    for folder in (tmp_path / "lib", tmp_path / "code/quantizer"):
        made = tmp_path / "made"
        made.mkdir()
        (made / f"numbers_of_others.{TAG}.pyc").write_bytes(b"x")
        (folder / "__pycache__").rename(tmp_path / f"old of {folder.name}")
        made.rename(folder / "__pycache__")
        seen._since = 1 << 63
        assert seen.sweep() == []
        assert not list((folder / "__pycache__").iterdir())


@pytest.mark.parametrize("name", ["new", "cli"])
def test_a_compiled_module_that_cannot_be_removed_is_named(seen, tmp_path, monkeypatch, name):
    path = tmp_path / f"code/quantizer/__pycache__/{name}.{TAG}.pyc"
    monkeypatch.setattr(seen, "_known", {*seen._known} - {str(path)})
    path.unlink(missing_ok=True)
    (path / "below").mkdir(parents=True)
    monkeypatch.setitem(sys.modules, "cli_of_others", types.SimpleNamespace(__file__=str(path.parents[1] / "cli.py")))
    (problem,) = seen.sweep()
    assert problem.startswith(f"{path}: the next process may run what a plugin or an engine wrote there; it cannot be ")


def test_a_module_that_is_imported_later_is_compiled_from_its_source(seen, tmp_path, monkeypatch):
    """A plugin may have written its compiled form by then."""
    source = tmp_path / "path/imported_later.py"
    source.parent.mkdir()
    source.write_text("RIGHT = False")
    _compile(source)
    planted = Path(inputs._compiled(str(source))[0])
    stamp = source.stat()
    source.write_text("RIGHT = True ")
    os.utime(source, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    restored = []
    before = sys.pycache_prefix, sys.dont_write_bytecode
    seen.read_no_caches(types.SimpleNamespace(add_cleanup=restored.append))
    try:
        module = importlib.import_module("imported_later")
        assert module.RIGHT
        monkeypatch.delitem(sys.modules, "imported_later")
        with seen._usual_caches():
            assert inputs._compiled(str(source))[0] == str(planted)
    finally:
        restored[0]()
    assert (sys.pycache_prefix, sys.dont_write_bytecode) == before
    assert not importlib.import_module("imported_later").RIGHT
    monkeypatch.delitem(sys.modules, "imported_later")


def test_a_module_written_before_its_import_is_detected(seen, tmp_path, monkeypatch):
    monkeypatch.setattr(inputs.sysconfig, "get_path", lambda name: str(tmp_path / "site"))
    module = types.ModuleType("late")
    module.__file__ = str(tmp_path / "site/late.py")
    (tmp_path / "site").mkdir()
    Path(module.__file__).touch()
    monkeypatch.setitem(sys.modules, "late", module)
    assert seen.changed() == module.__file__


def test_judged_processes_get_no_ci_or_test_variables(monkeypatch):
    for name in (
        "CI", "GITHUB_TOKEN", "GITLAB_CI", "CI_JOB_ID", "PYTEST_CURRENT_TEST", "BUILD_NUMBER", "JENKINS_URL", "TOX_ENV_NAME", "NOX_CURRENT_SESSION",
        "COVERAGE_RUN", "HYPOTHESIS_PROFILE", "CODEBUILD_BUILD_ID", "CIRRUS_CI", "HUDSON_URL", "SEMAPHORE", "BAMBOO_BUILDKEY", "AGENT_NAME",
    ):  # fmt: skip
        monkeypatch.setenv(name, "1")
        assert name not in environment() and name not in environment({name: "1"})
    monkeypatch.setenv("CIVIL_LICENCE", "1")
    assert environment({"MKL_CBWR": "COMPATIBLE"}).items() >= {"MKL_CBWR": "COMPATIBLE", "CIVIL_LICENCE": "1"}.items()


def test_names_of_rewritten_assertion_files_equal_those_of_pytest():
    from _pytest.assertion.rewrite import PYC_TAIL

    assert inputs.PYTEST_TAIL == PYC_TAIL
