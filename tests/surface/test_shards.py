"""--op-shard and `quantizer report merge`: shards merge to the bytes of one run, and so do their reports."""

import json
import shutil

import pytest

from conftest import OFF_BY_ONE
from quantizer.cli import main
from quantizer.core.errors import UnsupportedError
from quantizer.reporting.shards import Shard, read_shard

COUNT = 3
FILES = ("records.jsonl", "summary.json", "run.json")


@pytest.fixture
def whole(vendor):
    """Run three operators, one of them wrong, on one platform: as a whole, and in three shards."""
    for name, result in (("double", None), ("twice", None), ("wrong", OFF_BY_ONE)):
        vendor.write(name, **({} if result is None else {"result": result}))
    assert vendor.run("--op-report", "one", "--op-platform=ideal", "--op-scheme=a8", "--op-scheme=a16").ret == 1
    for index in range(1, COUNT + 1):
        shard = ("--op-report", f"shards/{index}", f"--op-shard={index}/{COUNT}")
        assert vendor.run(*shard, "--op-platform=ideal", "--op-scheme=a8", "--op-scheme=a16").ret in (0, 1)
    return vendor.root


def shards(root):
    return [root / "shards" / str(index) for index in range(1, COUNT + 1)]


def ids(file):
    return {json.loads(line)["id"] for line in file.read_text().splitlines()}


def call(*words):
    return main(["report", *map(str, words)])


def test_shards_are_disjoint_and_merge_to_the_same_bytes(whole, capsys):
    parts = [ids(path / "records.jsonl") for path in shards(whole)]
    assert all(parts)
    assert sum(map(len, parts)) == len(set().union(*parts))
    assert call("merge", *reversed(shards(whole)), "-o", whole / "merged") == 0
    assert capsys.readouterr().out == "wrote merged\n"
    for name in FILES:
        assert (whole / "merged" / name).read_bytes() == (whole / "one" / name).read_bytes(), name
    replays = {path.name: path.read_bytes() for path in (whole / "one/failures").iterdir()}
    assert replays == {path.name: path.read_bytes() for path in (whole / "merged/failures").iterdir()} != {}
    assert ids(whole / "merged/timings.jsonl") == set().union(*parts)
    for verb in (["show"], ["show", "--format", "markdown"], ["diff", whole / "one"]):
        said = []
        for name in ("one", "merged"):
            assert call(*verb, whole / name) == 0
            said.append(capsys.readouterr().out.replace(str(whole / name), "RUN"))
        assert said[0] == said[1], verb
    for name in ("one", "merged"):
        for verb in ("junit", "statement"):
            assert call(verb, whole / name, "-o", whole / f"{name}.{verb}") == 0
    assert (whole / "one.junit").read_bytes() == (whole / "merged.junit").read_bytes()
    for end in ("json", "md"):
        assert (whole / f"one.statement.{end}").read_bytes() == (whole / f"merged.statement.{end}").read_bytes()
    for name in ("one", "merged"):
        assert call("html", whole / name, "-o", whole / f"{name}.html") == 0
    # The page names the folder in the commands that run its replay files again.
    assert (whole / "one.html").read_bytes() == (whole / "merged.html").read_bytes().replace(b"merged/", b"one/")
    wrong_shards_give_one_error_and_write_nothing(whole, capsys)


def spoilt(folder, **changes):
    """Change the facts of a run."""
    text = json.loads((folder / "run.json").read_text()) | changes
    (folder / "run.json").write_text(json.dumps(text))


def wrong_shards_give_one_error_and_write_nothing(whole, capsys):
    one, two, three = shards(whole)
    other = whole / "other"

    def says(text, *named):
        assert call("merge", *named, "-o", whole / "nothing") == 2
        assert text in capsys.readouterr().err
        assert not (whole / "nothing").exists()

    says("shard 2 of 3: missing. Name the folder of every shard.", one, three)
    says("is shard 1/3, and so is", one, two, three, one)
    says("is not a shard of a run. Name folders that `pytest --op-shard K/N` wrote.", one, two, whole / "one")
    shutil.copytree(two, other)
    spoilt(other, shard="2/4")
    says("is shard 2/4, and", one, other, three)
    spoilt(other, shard="2/3", profile="nightly")
    says("of another run: profile is 'nightly', and 'gate' in", one, other, three)
    spoilt(other, profile="gate", greeting={"name": "sim", "operators": ["relu"]})
    says("of another run: greeting is", one, other, three)
    judged = json.loads((other / "run.json").read_text())["judged"]
    assert sorted(judged) == [f"my_plugins/{name}.py" for name in ("double", "twice", "wrong")]
    spoilt(other, greeting={}, judged=judged | {"my_plugins/twice.py": "0" * 64})
    says("of another run: judged is", one, other, three)
    shutil.rmtree(other)
    shutil.copytree(two, other)
    specs = json.loads((other / "run.json").read_text())["specs"]
    shared = next(op for op in specs if op in json.loads((one / "run.json").read_text())["specs"])
    specs[shared]["sha256"] = "0" * 64
    spoilt(other, specs=specs)
    says(f"the spec of {shared} differs from that in", one, other, three)
    shutil.rmtree(other)
    shutil.copytree(two, other)
    functions = json.loads((other / "run.json").read_text())["functions"]
    spoilt(other, functions=functions[1:])
    says(f"{one}: its plugins have {functions[0]['name']} (", one, other, three)
    spoilt(other, functions=[*functions, functions[0] | {"name": "zzz.quantized 2"}])
    says(f"{other}: its plugins have zzz.quantized 2 (", one, other, three)
    other_items = json.loads((three / "run.json").read_text())
    for name in ("records.jsonl", "summary.json"):
        shutil.copy(three / name, two / name)
    says("records.jsonl is not the one that run.json was written with.", one, two, three)
    spoilt(two, items=other_items["items"], digests=other_items["digests"], specs=other_items["specs"])
    says("does not belong to shard 2/3. Run the shard again.", one, two, three)


def test_an_invalid_shard_is_a_usage_error(vendor):
    vendor.write()
    result = vendor.run("--op-shard=4/3")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*--op-shard: must be K/N with 1 <= K <= N <= 10000, such as 1/3, got '4/3'.*"])


@pytest.mark.parametrize("text", ["0/3", "1", "1/0", "a/b", "1/3/5", "-1/3", "1/99999"])
def test_a_shard_must_be_k_of_n(text):
    with pytest.raises(UnsupportedError, match="must be K/N with"):
        read_shard(text, "here")


def test_an_empty_shard_passes_but_all_empty_shards_fail(vendor, capsys):
    vendor.write()
    empty = next(k for k in range(1, 51) if not Shard(k, 50).holds("double-a8-ideal"))
    assert vendor.run("-k", "a8-ideal", f"--op-shard={empty}/50").ret == 0
    assert (vendor.root / "reports/out/records.jsonl").read_text() == ""
    spoilt(vendor.root / "reports/out", shard="1/1")
    assert call("merge", vendor.root / "reports/out", "-o", vendor.root / "merged") == 2
    assert "no shard has a record: nothing was checked." in capsys.readouterr().err


@pytest.mark.nightly
def test_shards_do_not_depend_on_workers(vendor):
    vendor.write()
    found = []
    for words in (["-p", "no:xdist"], ["-n", "2"]):
        assert vendor.run("--op-shard=1/2", "-k", "ideal", *words).ret == 0
        found.append([(vendor.root / "reports/out" / name).read_bytes() for name in FILES])
    assert found[0] == found[1]
