"""Vectors: a bundle states the correct codes, its C reader agrees, and returned codes are judged."""

import hashlib
import json
import os
import shutil
import subprocess
import zipfile
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from quantizer.cli import main
from quantizer.commands import vectors as command
from quantizer.conformance.judging.judge import judge
from quantizer.conformance.target import Target
from quantizer.conformance.trials.trial import Trial
from quantizer.conformance.vectors.intervals import intervals
from quantizer.conformance.vectors.reading import opened
from quantizer.core.case import Case
from quantizer.core.errors import CaseError, UnsupportedError
from quantizer.core.library import load_library
from quantizer.numerics.qparams import Staged
from quantizer.ops import load_built_ins
from quantizer.reporting.store import read_run
from quantizer.runtime.engines.builtin import BuiltinEngine
from quantizer.runtime.engines.catalogue import chosen
from quantizer.runtime.engines.external import ExternalEngine
from quantizer.runtime.engines.frames import Job

COMPILER = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
EXAMPLE = Path(__file__).parents[2] / "examples/vectors_in_c"
load_built_ins()
LIBRARY = load_library()


def export(path, *words, op="relu", cases="6"):
    assert main(["vectors", "export", "--op", op, "--cases", cases, "-o", str(path), *words]) == 0
    return path


def trial_of(vector):
    case = Case.from_dict(vector.case.model_dump(), vector.id)
    target = Target(LIBRARY.spec(case.op), LIBRARY.scheme(case.scheme), LIBRARY.platform(case.platform))
    return Trial(target, case, BuiltinEngine())


def answer(bundle_path, folder, change=lambda codes: codes):
    """Write the results of the package's own functions."""
    folder.mkdir()
    with opened(bundle_path) as bundle:
        for vector in bundle.manifest.cases:
            codes = change(trial_of(vector).got)
            (folder / f"{vector.id}.bin").write_bytes(
                codes.astype(f"<{np.dtype(vector.output.dtype).str[1:]}").tobytes()
            )
    return folder


def files(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def relu(tmp_path_factory):
    return export(tmp_path_factory.mktemp("bundle") / "relu")


def test_the_default_scheme_falls_back_to_the_platforms_first():
    narrow = LIBRARY.platform("ideal").model_copy(update={"platform": "narrow", "schemes": ["a4", "a16"]})
    library = replace(LIBRARY, platforms={**LIBRARY.platforms, "narrow": narrow})
    asked = Namespace(platform=["narrow"], op=["relu"], scheme=[])
    assert [target.scheme.name for target in command._targets(asked, library)] == ["a4"]
    with pytest.raises(UnsupportedError, match="--scheme=w8a8: relu on narrow has no such scheme"):
        list(command._targets(Namespace(platform=["narrow"], op=["relu"], scheme=["w8a8"]), library))


def test_the_same_seed_writes_the_same_bytes_in_a_folder_and_in_a_zip(relu, tmp_path):
    assert files(export(tmp_path / "again")) == files(relu)
    first, second = (export(tmp_path / name).read_bytes() for name in ("a.zip", "b.zip"))
    assert first == second
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == files(relu)
    assert files(export(tmp_path / "other", "--seed", "1")) != files(relu)


@pytest.mark.parametrize("op", ["conv2d", "add", "sigmoid", "avg_pool2d", "argmax", "transpose"])
def test_bundle_intervals_equal_those_of_the_check(op, tmp_path):
    with opened(export(tmp_path / "bundle.zip", op=op, cases="3")) as bundle:
        for vector in bundle.manifest.cases:
            assert vector.allowed is not None, vector.open
            low, high = bundle.array(vector.allowed.low).astype(int), bundle.array(vector.allowed.high).astype(int)
            trial = trial_of(vector)
            assert ((low <= trial.got) & (trial.got <= high)).all()
            for operand in vector.operands:
                assert np.array_equal(bundle.array(operand.values), trial.codes[operand.name].numpy())
            for codes, wrong in ((low, False), (high, False), (high + 1, True), (low - 1, True)):
                again = trial_of(vector)
                again.outcome = Staged(torch.from_numpy(codes), {})
                (verdict,) = judge(again, ("arithmetic",))
                assert verdict.failing == wrong, (vector.id, verdict)


def test_own_codes_pass_and_one_off_fails_with_interval(relu, tmp_path, capsys):
    assert (
        main(["vectors", "judge", str(relu), str(answer(relu, tmp_path / "right")), "-o", str(tmp_path / "run")]) == 0
    )
    assert "6 passed, 0 failed, 0 open" in capsys.readouterr().out
    (record,) = read_run(tmp_path / "run")
    assert (record.id, record.outcome, record.checks["arithmetic"].passed) == ("relu-a8-ideal", "passed", 6)
    wrong = answer(relu, tmp_path / "wrong", lambda codes: np.where(codes < 127, codes + 1, codes - 1))
    assert main(["vectors", "judge", str(relu), str(wrong)]) == 1
    out = capsys.readouterr().out
    assert "fail: relu-a8-ideal-0000: element [" in out
    assert "0 passed, 6 failed" in out


def test_a_result_that_is_missing_or_too_short_fails(relu, tmp_path, capsys):
    results = answer(relu, tmp_path / "results")
    (results / "relu-a8-ideal-0001.bin").unlink()
    (results / "relu-a8-ideal-0002.bin").write_bytes(b"\0")
    assert main(["vectors", "judge", str(relu), str(results)]) == 1
    out = capsys.readouterr().out
    assert "fail: relu-a8-ideal-0001: no result" in out
    assert "fail: relu-a8-ideal-0002: relu-a8-ideal-0002.bin has 1 bytes" in out
    assert "4 passed, 2 failed" in out


def test_a_case_without_intervals_has_a_reason_and_never_passes(tmp_path, capsys):
    bundle = tmp_path / "bundle"
    export(bundle)
    manifest = json.loads((bundle / "manifest.json").read_text())
    for case in manifest["cases"]:
        del case["allowed"]
        case["open"] = "no interval is known"
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    results = answer(bundle, tmp_path / "results")
    assert main(["vectors", "judge", str(bundle), str(results), "-o", str(tmp_path / "run")]) == 1
    out = capsys.readouterr().out
    assert "open: relu-a8-ideal-0000: no interval is known" in out
    assert "0 passed, 0 failed, 6 open" in out
    (record,) = read_run(tmp_path / "run")
    assert (record.outcome, record.checks["arithmetic"].inconclusive) == ("skipped", 6)


def test_intervals_derived_from_the_judged_codes_are_rejected(monkeypatch, relu):
    from quantizer.conformance.trials.elements import Allowed, judge_codes
    from quantizer.conformance.vectors import intervals as module

    with opened(relu) as bundle:
        trial = trial_of(bundle.manifest.cases[0])
    assert not isinstance(intervals(trial), str)
    monkeypatch.setattr(module, "arithmetic", lambda t: judge_codes("arithmetic", t, Allowed(t.got, t.got + 0)))
    assert intervals(trial) == "the interval depends on the codes that are judged"


def test_every_code_allowed_is_not_an_interval(monkeypatch, relu):
    from quantizer.conformance.trials.elements import Allowed, judge_codes
    from quantizer.conformance.vectors import intervals as module

    with opened(relu) as bundle:
        trial = trial_of(bundle.manifest.cases[0])
    ends = [np.full(trial.output_shape, end) for end in (-128, 127)]
    monkeypatch.setattr(module, "arithmetic", lambda t: judge_codes("arithmetic", t, Allowed(*ends)))
    assert intervals(trial) == "every code is allowed for every element"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: "{", "not JSON"),
        (lambda text: text.replace('"version": 1\n', '"version": 2\n'), "version"),
        (lambda text: text.replace("cases/relu-a8-ideal-0000/x.bin", "../x.bin"), "must match"),
        (lambda text: text.replace('"seed": 0,', ""), "seed"),
        (lambda text: text.replace('relu-a8-ideal-0001"', 'relu-a8-ideal-0000"'), "two cases have one id"),
    ],
)
def test_a_wrong_manifest_is_one_clear_error(relu, tmp_path, damage, said, capsys):
    bundle = shutil.copytree(relu, tmp_path / "bundle")
    text = (bundle / "manifest.json").read_text()
    (bundle / "manifest.json").write_text(damage(text))
    (tmp_path / "results").mkdir()
    assert main(["vectors", "judge", str(bundle), str(tmp_path / "results")]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert said in err


def test_a_file_unlike_its_manifest_entry_is_an_error(relu, tmp_path, capsys):
    bundle = shutil.copytree(relu, tmp_path / "bundle")
    path = bundle / "cases/relu-a8-ideal-0003/allowed.high.bin"
    path.write_bytes(b"\x7f" * len(path.read_bytes()))
    assert main(["vectors", "judge", str(bundle), str(answer(relu, tmp_path / "results"))]) == 2
    assert "allowed.high.bin: is not the file that the manifest names" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"PK\x05\x06", b"no zip"])
def test_an_invalid_zip_is_an_error(content, tmp_path):
    (tmp_path / "bundle.zip").write_bytes(content)
    with pytest.raises(CaseError, match=r"bundle\.zip"), opened(tmp_path / "bundle.zip"):
        pass


def test_a_damaged_or_overlong_file_of_a_zip_is_an_error(tmp_path, capsys):
    good = export(tmp_path / "good.zip")
    with zipfile.ZipFile(good) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    name = "cases/relu-a8-ideal-0000/allowed.low.bin"
    for place, (content, said) in enumerate(
        ((held[name] + b"\0", "has more than"), (held[name][:-1], "is not the file"), (None, "has no file"))
    ):
        path = tmp_path / f"bad{place}.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for entry, kept in held.items():
                if entry != name or content is not None:
                    archive.writestr(entry, content if entry == name else kept)
        assert main(["vectors", "judge", str(path), str(tmp_path)]) == 2
        assert said in capsys.readouterr().err
    raw = bytearray(good.read_bytes())
    raw[raw.index(b"manifest.json") + 40] ^= 0xFF
    (tmp_path / "torn.zip").write_bytes(raw)
    assert main(["vectors", "judge", str(tmp_path / "torn.zip"), str(tmp_path)]) == 2


def test_existing_or_too_large_bundles_are_refused(relu, tmp_path, capsys, monkeypatch):
    assert main(["vectors", "export", "--op", "relu", "-o", str(relu)]) == 2
    monkeypatch.setattr(command, "MEGABYTE", 5000)
    words = ["vectors", "export", "--op", "relu", "--cases", "9999", "--budget", "1", "-o", str(tmp_path / "big")]
    assert main(words) == 2
    assert "more than 0.005 MB" in capsys.readouterr().err
    assert not (tmp_path / "big").exists()


def rewritten(bundle_path, folder, case, end, change):
    """Return a copy of a bundle with one file of allowed codes, and its digest, changed."""
    shutil.copytree(bundle_path, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    entry = manifest["cases"][case]["allowed"][end]
    content = change(np.fromfile(folder / entry["file"], np.int8)).astype(np.int8).tobytes()
    (folder / entry["file"]).write_bytes(content)
    entry["sha256"] = hashlib.sha256(content).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_a_bundle_diff_names_what_changed(relu, tmp_path, capsys):
    assert main(["vectors", "diff", str(relu), str(relu)]) == 0
    wider = rewritten(relu, tmp_path / "wider", 2, "high", lambda codes: np.minimum(codes.astype(int) + 1, 127))
    more = export(tmp_path / "more.zip", cases="7")
    capsys.readouterr()
    for old, new, said in (
        (wider, relu, "stricter: relu-a8-ideal-0002: "),
        (relu, wider, "looser: relu-a8-ideal-0002: "),
        (relu, more, "added: relu-a8-ideal-0006: "),
        (more, relu, "removed: relu-a8-ideal-0006: "),
    ):
        assert main(["vectors", "diff", str(old), str(new)]) == 1
        first, *others = capsys.readouterr().out.splitlines()
        assert first.startswith(said)
        assert len(others) == 1
        assert f"1 {said.split(':')[0]}" in others[0]


def test_a_recipe_with_half_a_surrogate_pair_is_compared(relu, tmp_path):
    folder = shutil.copytree(relu, tmp_path / "odd")
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    manifest["cases"][0]["case"]["platform"] = "\ud800"
    (folder / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    assert main(["vectors", "diff", str(folder), str(folder)]) == 0


@pytest.mark.skipif(COMPILER is None or os.name == "nt", reason="no compiler of C")
def test_the_c_example_finds_a_kernel_off_by_one(relu, tmp_path):
    ends = []
    for flags in ([], ["-DFAULTY"]):
        program = tmp_path / f"judge{len(flags)}"
        words = [
            COMPILER,
            "-std=c99",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-O2",
            *flags,
            "-o",
            program,
            "judge_relu.c",
            "-lm",
        ]
        subprocess.run(words, cwd=EXAMPLE, check=True)
        results = tmp_path / f"results{len(flags)}"
        results.mkdir()
        ended = subprocess.run([program, relu, results], capture_output=True, text=True, check=False)
        ends.append((ended.returncode, main(["vectors", "judge", str(relu), str(results)])))
        assert ("fail: relu-a8-ideal-" in ended.stdout) == bool(flags)
    assert ends == [(0, 0), (1, 1)]


@pytest.mark.skipif(COMPILER is None or os.name == "nt", reason="no compiler of C")
def test_the_reader_in_c_reads_every_kind_of_line(tmp_path):
    bundle = tmp_path / "bundle"
    words = ["vectors", "export", "-o", str(bundle), "--cases", "2", "--platform", "tflite_ref", "--platform", "ideal"]
    assert main([*words, *(w for op in ("conv2d", "add", "softmax", "gather", "quantize") for w in ("--op", op))]) == 0
    starts = {line.split(" ", 1)[0] for line in (bundle / "index.txt").read_text().splitlines()}
    assert {"case", "attribute", "operand", "multiplier", "table", "output", "allowed", "end"} <= starts
    (tmp_path / "sum.c").write_text(
        '#include "quantizer_vectors.h"\n'
        "int main(int n, char **w) { (void)n; static quantizer_case t; quantizer_vectors b; int s;\n"
        "  if (quantizer_open(&b, w[1])) return 2;\n"
        "  while ((s = quantizer_next(&b, &t)) == 1) { int64_t sum = 0;\n"
        "    for (int k = 0; k < t.operand_count; k++) for (size_t i = 0; i < t.operands[k].count; i++) sum += t.operands[k].codes[i];\n"
        '    printf("%s %lld %ld\\n", t.id, (long long)sum, t.judged ? quantizer_judge(&t, t.low.codes) : -1); quantizer_free(&t); }\n'
        "  quantizer_close(&b); return s < 0; }\n"
    )
    program = tmp_path / "sum"
    subprocess.run([COMPILER, "-std=c99", f"-I{EXAMPLE}", "-o", program, tmp_path / "sum.c"], check=True)
    said = subprocess.run([program, bundle], capture_output=True, text=True, check=True).stdout.splitlines()
    with opened(bundle) as read:
        wanted = [
            f"{vector.id} {sum(_sum(read.array(part.values)) for part in vector.operands)} {0 if vector.allowed else -1}"
            for vector in read.manifest.cases
        ]
    assert said == wanted


@pytest.fixture(scope="module")
def modelled(tmp_path_factory):
    """Return a bundle that also contains LiteRT models of its cases."""
    ops = ("conv2d", "conv1d", "softmax", "argmax", "add", "max_pool2d", "reshape")
    words = [word for op in ops for word in ("--op", op)]
    path = tmp_path_factory.mktemp("modelled") / "bundle"
    told = ["vectors", "export", *words, "--cases", "2", "--platform", "tflite_ref", "--form", "tflite"]
    assert main([*told, "--form", "onnx-qdq", "-o", str(path)]) == 0
    return path


def outputs_of_models(bundle_path, folder, form, engine, options):
    """Write results that a real engine computes from a bundle's models; return the number of cases without a model."""
    folder.mkdir()
    real, refused = ExternalEngine(chosen(engine)), 0
    with opened(bundle_path) as bundle:
        for vector in bundle.manifest.cases:
            (model,) = [one for one in vector.models if one.form == form]
            refused += bool(model.refused)
            if not model.refused:
                content = (bundle_path / model.file).read_bytes()
                assert hashlib.sha256(content).hexdigest() == model.sha256
                feeds = {feed.name: bundle.array(feed.values) for feed in model.feeds}
                (found,) = real.alone(Job(content, feeds, options))
                assert [*found.shape] == model.shape
                (folder / f"{vector.id}.bin").write_bytes(found.astype(vector.output.dtype).tobytes())
    real.close()
    return refused


def test_a_bundled_model_gives_correct_codes_in_its_engine(modelled, tmp_path, capsys):
    results = tmp_path / "results"
    refused = outputs_of_models(modelled, results, "tflite", "litert:reference", {"resolver": "reference"})
    capsys.readouterr()
    assert main(["vectors", "judge", str(modelled), str(results), "--form", "tflite"]) == 0
    assert f"{14 - refused} passed, 0 failed, {refused} open" in capsys.readouterr().out
    assert refused < 3
    assert main(["vectors", "judge", str(modelled), str(results)]) == 1
    assert main(["vectors", "judge", str(modelled), str(results), "--form", "tosa"]) == 1
    assert "tosa: the bundle has no such models" in capsys.readouterr().out


def test_missing_forms_and_wrong_layouts_are_refused(modelled, tmp_path, capsys):
    assert main(["vectors", "export", "--op", "relu", "--form", "tflit", "-o", str(tmp_path / "new")]) == 2
    assert "--form=tflit: no such form. Did you mean 'tflite'" in capsys.readouterr().err
    folder = shutil.copytree(modelled, tmp_path / "odd")
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    manifest["cases"][0]["models"][0]["axes"] = [0, 0, 1, 2]
    (folder / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    assert main(["vectors", "diff", str(folder), str(folder)]) == 2
    assert "has an output of another shape" in capsys.readouterr().err


STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-O1")
SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def with_numbers(line, scale, zero_point):
    """Return the line of an operand of relu with another scale and zero point; other lines are unchanged."""
    return f"{line.rsplit(' ', 2)[0]} {scale} {zero_point}\n" if line.startswith("operand") else line


@pytest.mark.skipif(COMPILER is None or os.name == "nt", reason="no compiler of C")
def test_the_c_reader_maps_each_element_of_a_model_output(modelled, tmp_path):
    (tmp_path / "places.c").write_text(
        '#include "quantizer_vectors.h"\n'
        "int main(int n, char **w) { (void)n; static quantizer_case t; quantizer_vectors b; int s;\n"
        "  if (quantizer_open(&b, w[1])) return 2;\n"
        "  while ((s = quantizer_next(&b, &t)) == 1) {\n"
        '    const quantizer_model *m = quantizer_form(&t, "tflite"); printf("%s", t.id);\n'
        '    for (int k = 0; m && k < m->feed_count; k++) printf(" %s %lld", t.feeds[m->first + k].name, (long long)t.feeds[m->first + k].codes[0]);\n'
        '    for (size_t i = 0; m && i < t.output.count; i++) printf(" %lu", (unsigned long)quantizer_place(m, i));\n'
        '    puts(""); quantizer_free(&t); }\n'
        "  quantizer_close(&b); return s < 0; }\n"
    )
    program = tmp_path / "places"
    subprocess.run([COMPILER, *STRICT, f"-I{EXAMPLE}", "-o", program, tmp_path / "places.c"], check=True)
    said = subprocess.run([program, modelled], capture_output=True, text=True, check=True).stdout.splitlines()
    with opened(modelled) as bundle:
        wanted = []
        for vector in bundle.manifest.cases:
            (model,) = [one for one in vector.models if one.form == "tflite"]
            feeds = [word for feed in model.feeds for word in (feed.name, bundle.array(feed.values).flat[0])]
            places = np.arange(np.prod(model.shape, dtype=int)).reshape(model.shape).transpose(model.axes).ravel()
            wanted.append(" ".join(map(str, [vector.id, *([] if model.refused else [*feeds, *places])])))
    assert said == wanted


LINES = {
    "a case less": (lambda lines: lines[: lines.index("end\n") + 1], "index.txt: has fewer cases"),
    "a case more": (lambda lines: [*lines, *lines[1 : lines.index("end\n") + 1]], "index.txt: has more cases"),
    "a line between": (lambda lines: [lines[0], "end\n", *lines[1:]], "end: is no line of index.txt here"),
    "a word less": (lambda lines: lines[:-1], "relu-a8-ideal-0001: has a line"),
    "two outputs": (
        lambda lines: [word for line in lines for word in [line] * (1 + line.startswith("output"))],
        "0000",
    ),
    "two intervals": (
        lambda lines: [word for line in lines for word in [line] * (1 + line.startswith("allow"))],
        "0000",
    ),
    "no output": (lambda lines: [line for line in lines if not line.startswith("output")], "relu-a8-ideal-0000"),
    "two multipliers": (
        lambda lines: [word for line in lines for word in [line] * (1 + line.startswith("mult"))],
        "0000",
    ),
    "a file outside": (lambda lines: [line.replace("cases/", "../cases/") for line in lines], "relu-a8-ideal-0000"),
    "a type unknown": (lambda lines: [line.replace(" int8 ", " int4 ") for line in lines], "relu-a8-ideal-0000"),
    "a scale that is no number": (lambda lines: [with_numbers(line, "nan", "0") for line in lines], "0000"),
    "a scale of zero": (lambda lines: [with_numbers(line, "0.0", "0") for line in lines], "0000"),
    "a zero point beyond the codes": (lambda lines: [with_numbers(line, "1.0", "128") for line in lines], "0000"),
    "a code too small": (
        lambda lines: [line.replace(" -128 127 ", " 127 127 ") for line in lines],
        "relu-a8-ideal-0000",
    ),
    "an axis too many": (lambda lines: [line.replace(" 127 -1 ", " 127 9 ") for line in lines], "relu-a8-ideal-0000"),
    "another version": (lambda lines: ["quantizer-vectors 2 2\n", *lines[1:]], "index.txt: is no index of version 1"),
}


@pytest.fixture(scope="module")
def judge_relu(tmp_path_factory):
    """Return the example in C under the sanitizers of addresses, leaks and undefined behaviour, where the compiler has them."""
    program = tmp_path_factory.mktemp("judge") / "judge"
    for flags in (SANITIZED, ()):
        words = [COMPILER, *STRICT, *flags, "-o", program, "judge_relu.c", "-lm"]
        if not subprocess.run(words, cwd=EXAMPLE, capture_output=True, check=False).returncode:
            return program
    pytest.fail("the example in C does not compile")


def refused(program, folder):
    """Return the single error line of the program for a refused bundle."""
    ended = subprocess.run([program, folder], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    return ended.stderr


def resummed(folder):
    names = [name for name in files(folder) if name not in ("SHA256SUMS", "index.txt")] + ["index.txt"]
    lines = (f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names)
    (folder / "SHA256SUMS").write_text("".join(lines), newline="\n")


@pytest.mark.skipif(COMPILER is None or os.name == "nt", reason="no compiler of C")
def test_the_c_reader_refuses_damaged_or_missing_files(relu, judge_relu, tmp_path):
    whole = files(relu)
    assert [line.split("  ")[1] for line in whole["SHA256SUMS"].decode().splitlines()][-1] == "index.txt"
    for name in ("SHA256SUMS", "index.txt", "manifest.json", "cases/relu-a8-ideal-0003/allowed.low.bin"):
        content = whole[name]
        last = content[: content[:-1].rfind(b"\n") + 1]
        damages = {content[:-1] + b"x", content[1:], b"\x81" + content[1:], content + b"1", last, b"", None}
        for damage in damages - {content, content[:-1] + b"\n"}:
            folder = tmp_path / "damaged"
            shutil.copytree(relu, folder)
            (folder / name).unlink() if damage is None else (folder / name).write_bytes(damage)
            assert refused(judge_relu, folder).count("\n") == 1, (name, damage)
            shutil.rmtree(folder)


@pytest.mark.skipif(COMPILER is None or os.name == "nt", reason="no compiler of C")
@pytest.mark.parametrize(("change", "said"), LINES.values(), ids=LINES)
def test_the_c_reader_refuses_a_wrong_index_without_leaks(change, said, judge_relu, tmp_path):
    folder = export(tmp_path / "bundle", cases="2")
    index = folder / "index.txt"
    index.write_text("".join(change(index.read_text().splitlines(keepends=True))), newline="\n")
    resummed(folder)
    assert said in refused(judge_relu, folder)


@pytest.mark.skipif(COMPILER is None or os.name == "nt", reason="no compiler of C")
def test_vacuous_intervals_do_not_pass_in_c(judge_relu, tmp_path):
    folder = export(tmp_path / "bundle", cases="2")
    index = folder / "index.txt"
    lines = index.read_text().splitlines(keepends=True)
    wide = [f"{line.rsplit(' ', 1)[0]} 0\n" if line.startswith("allowed") else line for line in lines]
    index.write_text("".join(wide), newline="\n")
    resummed(folder)
    ended = subprocess.run([judge_relu, folder], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "0 passed, 0 failed, 2 open\n")


def _sum(values):
    return 0 if values.dtype.kind == "f" else int(values.astype(np.int64).sum())
