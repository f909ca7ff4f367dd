"""`quantizer spec` as its users see it: arguments, files and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import quantizer
from quantizer import cli
from quantizer.cli import COMMANDS, main
from quantizer.commands.new_operator import write_operator
from quantizer.core.files import WriteError, create_files, replace_files
from quantizer.core.library import load_library, load_spec, shipped_folder
from quantizer.core.schema import SCHEMAS
from quantizer.ops import REGISTRY

SOURCE = Path(quantizer.__file__).parents[1]
ENV = {**os.environ, "PYTHONPATH": str(SOURCE)}


def run(*words: str, cwd: Path = SOURCE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "quantizer", *words], capture_output=True, check=False, text=True, env=ENV, cwd=cwd
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


Capture = pytest.CaptureFixture[str]


def test_help_lists_every_command_in_one_line_each() -> None:
    done = run("--help")
    assert done.returncode == 0
    for name, (_, line) in COMMANDS.items():
        assert any(text.split() == [name, *line.split()] for text in done.stdout.split("\n")), name
    assert done.stderr == ""


def test_only_the_module_of_the_command_is_imported() -> None:
    code = (
        "import sys; from quantizer.cli import main; code = main(['spec', 'schema', '--check']);"
        "print([m for m in sys.modules if m in ('torch', 'numpy') or m.startswith('quantizer.reporting')], code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True, env=ENV, cwd=SOURCE)
    assert done.stdout == "[] 0\n"


@pytest.mark.parametrize("words", [["--help"], ["spec", "--help"], ["spec", "new", "-h"], ["--version"]])
def test_help_and_version_exit_with_0(words: list[str], capsys: Capture) -> None:
    assert main(words) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["engine", "list"], ["case", "replay"], ["report", "history", "since"], ["onnx", "show"]]
)
def test_the_help_of_each_verb_describes_it(words: list[str], capsys: Capture) -> None:
    assert main([*words, "-h"]) == 0
    said = capsys.readouterr().out.split("\n\n")[1]
    assert said[0].isupper() and said.endswith(".") and ":" not in said


def test_the_help_of_each_verb_names_its_options(capsys: Capture) -> None:
    for verb, options in {
        "lint": ["PATH"],
        "schema": ["--check", "--dir"],
        "list": ["--json"],
        "new": ["--dir", "--kind", "--plugins"],
    }.items():
        assert main(["spec", verb, "--help"]) == 0
        assert all(option in capsys.readouterr().out for option in options[:1])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "COMMAND"),
        (["--wrong"], "COMMAND"),
        (["spec"], "VERB"),
        (["spec", "lnit"], "lnit"),
        (["spec", "lint", "--fix"], "--fix"),
        (["spec", "new"], "NAME"),
        (["spec", "new", "x", "--kind", "big"], "big"),
        (["sepc", "lint"], "Did you mean 'spec'?"),
        (["quux"], "Commands: spec"),
        (["spec", "list", "--json=1"], "--json"),
    ],
)
def test_an_invalid_command_exits_with_2_and_a_reason(words: list[str], says: str, capsys: Capture) -> None:
    assert main(words) == 2
    shown = capsys.readouterr()
    assert says in shown.err
    assert shown.out == ""


def test_an_unknown_flag_exits_with_2_without_a_traceback() -> None:
    done = run("spec", "lint", "--nonsense")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "--nonsense" in done.stderr


def test_lint_of_the_library(capsys: Capture) -> None:
    assert main(["spec", "lint"]) == 0
    count = len(load_library().specs)
    assert capsys.readouterr().out.startswith(f"{count} specs ok")


def test_lint_of_single_files(capsys: Capture) -> None:
    folder = shipped_folder()
    assert main(["spec", "lint", str(folder / "conv2d.yaml"), str(folder / "add.yaml")]) == 0
    assert capsys.readouterr().out == "2 specs ok\n"
    assert main(["spec", "lint", str(load_library().platform_paths["ideal"])]) == 0
    assert capsys.readouterr().out == "1 platform ok\n"
    assert main(["spec", "lint", str(folder / "schemes.yaml")]) == 0
    assert capsys.readouterr().out == "1 schemes file ok\n"


def test_lint_prints_all_errors_of_all_files_and_exits_with_2(folder: Path, capsys: Capture) -> None:
    (folder / "platforms").mkdir()
    (folder / "a.yaml").write_text("op: 1\nversion: 2\n", encoding="utf-8")
    (folder / "b.yaml").write_text("op: [\n", encoding="utf-8")
    (folder / "schemes.yaml").write_text("schemes: [w9a9]\n", encoding="utf-8")
    (folder / "platforms" / "c.yaml").write_text("platform: c\nsumary: C.\n", encoding="utf-8")
    assert main(["spec", "lint", "."]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    for head in (
        'a.yaml:1:5: op: must be text, got 1. Write "1" in quotes.',
        'a.yaml:2:10: version: must be text, got 2. Write "2" in quotes.',
        "b.yaml:2:1: not YAML",
        "schemes.yaml:1:11: schemes.0: 'w9a9' is not a weight part",
        "platforms/c.yaml:2:1: sumary: no such key. Did you mean 'summary'?",
        "platforms/c.yaml:1:1: requantize: must be given",
    ):
        assert f"\n{head}" in f"\n{shown.err}", head


def test_lint_names_a_missing_file_and_an_empty_folder(folder: Path, capsys: Capture) -> None:
    assert main(["spec", "lint", "gone.yaml"]) == 2
    assert capsys.readouterr().err == "error: gone.yaml: no such file or folder.\n"
    (folder / "empty").mkdir()
    assert main(["spec", "lint", "empty"]) == 2
    assert capsys.readouterr().err == "empty: holds no spec. Name a folder with *.yaml files.\n"


def test_lint_checks_references_between_files(folder: Path, capsys: Capture) -> None:
    text = load_library().platform_paths["ideal"].read_text(encoding="utf-8")
    (folder / "platforms").mkdir()
    chip = folder / "platforms" / "chip.yaml"
    chip.write_text(text.replace("platform: ideal", "platform: chip") + "ops: [conv2, add]\n", encoding="utf-8")
    for path in (".", "platforms/chip.yaml"):
        assert main(["spec", "lint", path]) == 2
        assert "ops.0: no such operator. Did you mean 'conv2d'?" in capsys.readouterr().err
    (folder / "conv2d.yaml").write_bytes((shipped_folder() / "conv2d.yaml").read_bytes())
    assert main(["spec", "lint", "conv2d.yaml"]) == 2
    assert "operator 'conv2d' is declared in " in capsys.readouterr().err


def test_a_platform_may_name_operators_of_an_installed_package(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A room in a wheel may bring operators; lint knew only the shipped ones."""
    text = load_library().platform_paths["ideal"].read_text(encoding="utf-8")
    chip, package = folder / "chip", folder / "package"
    (chip / "platforms").mkdir(parents=True)
    named = text.replace("platform: ideal", "platform: chip") + "ops: [my_gate]\n"
    (chip / "platforms/chip.yaml").write_text(named, encoding="utf-8")
    write_operator("my_gate", "fused", package, None)
    assert main(["spec", "lint", "chip"]) == 2
    assert "ops.0: no such operator." in capsys.readouterr().err
    monkeypatch.setattr("quantizer.plugins.discovery.installed", lambda: ["package"])
    monkeypatch.setattr("quantizer.runtime.isolation.plugins.installed_specs", lambda: [package / "op_specs"])
    assert main(["spec", "lint", "chip"]) == 0
    assert main(["spec", "lint", "package/op_specs"]) == 0, "the sources of what is installed"


def test_a_requantization_of_functions_that_read_tables_is_refused(folder: Path, capsys: Capture) -> None:
    """A chip declared a multiplying ReLU6, but clip read a table; lint did not report it."""
    text = load_library().platform_paths["ideal"].read_text(encoding="utf-8")
    (folder / "platforms").mkdir()
    chip = text.replace("platform: ideal", "platform: chip").replace(
        "{default: exact}", "{default: exact, clamping: exact, addition: exact}\nops: [add, clip]"
    )
    (folder / "platforms/chip.yaml").write_text(chip, encoding="utf-8")
    assert main(["spec", "lint", "."]) == 2
    said = "requantize.clamping: nothing reads it: clip reads a table. Remove it, or register functions of your own"
    assert capsys.readouterr().err == f"platforms/chip.yaml: {said} for chip.\n"


def test_schema_writes_and_checks(folder: Path, capsys: Capture) -> None:
    assert main(["spec", "schema", "--check", "--dir", "."]) == 1
    stale = capsys.readouterr().err
    assert stale.split("\n")[:-1] == [f"{name}: is stale. Run `quantizer spec schema`." for name in SCHEMAS]
    assert list(folder.iterdir()) == []
    assert main(["spec", "schema", "--dir", "."]) == 0
    assert capsys.readouterr().out == "".join(f"wrote {name}\n" for name in SCHEMAS)
    assert main(["spec", "schema", "--dir", "."]) == 0
    assert capsys.readouterr().out == ""
    assert main(["spec", "schema", "--check", "--dir", "."]) == 0
    (folder / "schemes.schema.json").write_text("{}", encoding="utf-8")
    assert main(["spec", "schema", "--check", "--dir", "."]) == 1
    assert capsys.readouterr().err.startswith("schemes.schema.json: is stale")
    assert sorted(path.name for path in folder.iterdir()) == sorted(SCHEMAS)


def test_list_as_a_table(capsys: Capture) -> None:
    assert main(["spec", "list"]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert lines[0].split() == ["op", "version", "summary", "schemes", "x", "platforms", "tiling", "properties"]
    conv = next(line for line in lines if line.startswith("conv2d "))
    library = load_library()
    items = sum(len(library.schemes_for(library.specs["conv2d"], p)) for p in library.platforms.values())
    assert f" {items} " in conv
    assert "equivariant" in conv


def test_list_as_json(folder: Path, capsys: Capture) -> None:
    write_operator("my_op", "custom", folder, None)
    assert main(["spec", "list", "op_specs", "--json"]) == 0
    rows = {row["op"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows.keys() == {*load_library().specs, "my_op"}
    assert rows["my_op"]["file"] == "op_specs/my_op.yaml"
    assert rows["my_op"]["tiling"] == ["n", "h", "w"]
    assert rows["reshape"]["tiling"] == ["none"]
    assert rows["my_op"]["items"] == sum(map(len, rows["my_op"]["schemes"].values()))
    assert rows["conv2d"]["schemes"]["ideal"][0].startswith("w")


@pytest.mark.parametrize("kind", ["elementwise", "custom"])
def test_new_writes_a_spec_and_a_module_that_work_together(folder: Path, kind: str) -> None:
    done = run("spec", "new", "swap_sign", "--kind", kind, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == [
        "wrote op_specs/swap_sign.yaml",
        "wrote op_plugins/swap_sign.py",
        "next: pytest op_specs/swap_sign.yaml --op-plugins op_plugins",
        "",
    ]
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*")) == [
        "op_plugins/swap_sign.py",
        "op_specs/operator.schema.json",
        "op_specs/swap_sign.yaml",
    ]
    spec = load_spec(folder / "op_specs" / "swap_sign.yaml")
    assert spec.oracle == {"elementwise": "torch.clone", "custom": "none"}[kind]
    assert main(["spec", "lint", "op_specs"]) == 0
    code = (
        "import importlib.util, pathlib, torch; from quantizer.core.library import load_spec;"
        "from quantizer.ops import REGISTRY; from quantizer.plugins.signatures import check_signature;"
        "place = importlib.util.spec_from_file_location('swap_sign', 'op_plugins/swap_sign.py');"
        "place.loader.exec_module(importlib.util.module_from_spec(place));"
        "spec = load_spec(pathlib.Path('op_specs/swap_sign.yaml'));"
        "[check_signature(spec, REGISTRY.find('swap_sign', kind)) for kind in ('reference', 'quantized')];"
        "attrs = {name: domain.default for name, domain in spec.attrs.items()};"
        "x = torch.arange(24).reshape(1, 2, 3, 4);"
        "assert torch.equal(REGISTRY.get('swap_sign', 'reference')(x.double(), **attrs), x.double());"
        "assert torch.equal(REGISTRY.get('swap_sign', 'quantized')(x, parameters=None, **attrs), x)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=False, text=True, env=ENV, cwd=folder
    )
    assert done.returncode == 0, done.stderr


def test_new_in_a_checkout_puts_the_module_among_the_operators(folder: Path, capsys: Capture) -> None:
    (folder / "quantizer" / "ops").mkdir(parents=True)
    (folder / "quantizer" / "ops" / "__init__.py").write_text("", encoding="utf-8")
    assert main(["spec", "new", "my_op"]) == 0
    assert capsys.readouterr().out.endswith("next: pytest op_specs/my_op.yaml\n")
    assert (folder / "quantizer" / "ops" / "my_op.py").is_file()
    assert main(["spec", "new", "other_op", "--plugins", "my_plugins", "--dir", "."]) == 0
    assert (folder / "my_plugins" / "other_op.py").is_file()


@pytest.mark.parametrize("there", ["op_specs/my_op.yaml", "op_plugins/my_op.py"])
def test_spec_new_never_replaces_files(folder: Path, there: str, capsys: Capture) -> None:
    (folder / there).parent.mkdir()
    (folder / there).write_text("op: my_op\n", encoding="utf-8")
    assert main(["spec", "new", "my_op"]) == 2
    assert there in capsys.readouterr().err
    assert [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()] == [there]
    assert (folder / there).read_text(encoding="utf-8") == "op: my_op\n"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("HardSwish", "must be snake_case: small letters, digits and _, a letter first. Write 'hard_swish'."),
        ("hard-swish", "Write 'hard_swish'."),
        ("Conv2D", "Write 'conv2d'."),
        ("LSTMCell", "Write 'lstmcell'."),
        ("2d", "must be snake_case"),
        ("../x", "Write 'x'."),
        ("x/y", "Write 'x_y'."),
        ("", "must be snake_case"),
        ("a" * 41, "must be snake_case"),
        ("conv2d", "is taken by "),
        ("schemes", "is a reserved word"),
        ("lambda", "is a reserved word"),
        ("broadcast", "is a reserved word"),
        ("é", "must be snake_case"),
        ("x\n", "must be snake_case"),
    ],
)
def test_new_refuses_names(folder: Path, name: str, says: str, capsys: Capture) -> None:
    assert main(["spec", "new", name]) == 2
    assert says in capsys.readouterr().err
    assert list(folder.iterdir()) == []


def test_create_files_creates_all_or_none(folder: Path) -> None:
    (folder / "b").write_text("old", encoding="utf-8")
    with pytest.raises(WriteError, match=r"^b: exists already and is not replaced\. Nothing was written\.$"):
        create_files({folder / "a": "1", folder / "b": "2", folder / "c": "3"})
    assert [path.name for path in folder.iterdir()] == ["b"]
    assert (folder / "b").read_text(encoding="utf-8") == "old"
    with pytest.raises(WriteError, match="cannot be written"):
        create_files({folder / "a": "1", folder / "b" / "c": "2"})
    assert [path.name for path in folder.iterdir()] == ["b"]
    replace_files({folder / "b": "new", folder / "d" / "e": "é"})
    assert (folder / "b").read_text(encoding="utf-8") == "new"
    assert (folder / "d" / "e").read_bytes() == "é".encode()
    assert sorted(path.name for path in folder.rglob("*")) == ["b", "d", "e"]


def test_an_interrupt_is_one_line_and_130(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("quantizer.commands.spec.lint", interrupted)
    assert main(["spec", "lint"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_broken_pipe_is_quiet() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "quantizer", "spec", "list", "--json"],
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
        env=ENV,
        cwd=SOURCE,
    )
    os.close(write)
    assert done.stderr == b""
    assert done.returncode == 141


def test_an_internal_error_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "COMMANDS", {"spec": ("quantizer.commands.gone", "nothing")})
    with pytest.raises(ModuleNotFoundError):
        main(["spec"])


def test_lint_runs_each_operator_on_the_platform(folder: Path, capsys: Capture) -> None:
    text = load_library().platform_paths["ideal"].read_text(encoding="utf-8")
    (folder / "platforms").mkdir()
    text = text.replace("platform: ideal", "platform: chip").replace(
        "{default: exact}", "{default: exact}\nops: [add, mul]"
    )
    (folder / "platforms" / "chip.yaml").write_text(text, encoding="utf-8")
    assert main(["spec", "lint", "."]) == 0
    capsys.readouterr()
    with REGISTRY.overridden("mul", "quantize", lambda request: request.no_such_field, None):
        assert main(["spec", "lint", "."]) == 2
    lines = capsys.readouterr().err.splitlines()
    reason = "parameters: the quantize rule: AttributeError: 'Request' object has no attribute 'no_such_field'"
    assert [line.partition(" (")[0] for line in lines] == [
        f"platforms/chip.yaml: mul-{scheme}-chip: {reason}" for scheme in ("a4", "a4_pow2")
    ]
