"""The command line: what it prints, what it leaves alone, how it fails."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hybrid_infer import _style, cli
from hybrid_infer._keys import digest
from hybrid_infer._types import Graph, TensorSpec
from hybrid_infer._version import Version, Weight
from hybrid_infer.cache import Store, _files
from hybrid_infer.reports import _amounts
from hybrid_infer.state._attributes import Read

REPOSITORY = Path(__file__).resolve().parents[1]
#: What none of the commands may import: the output of `cache path` is used in scripts.
HEAVY = ("torch", "paddle", "onnx", "onnxruntime", "openvino", "numpy", "onnxscript", "paddle2onnx")

FIRST, SECOND = "ab" * 16, "cd" * 16
INPUT = TensorSpec("float32", (2, 8))
GRAPH = Graph(b"", ("w0",), ("x0",), ("y0",), (INPUT,), (INPUT,))
VERSION = Version(
    "app.Layer.forward", ["u", "builtins:tuple", [["t"], ["c", "str", "a"]]], (INPUT,), (), ("torch.float32",),
    (Weight("self.linear.weight", ("self.linear.weight",), "float32", (8, 8)),),
    conditions=(["<=", 2, ["dim", 0, 0]],),
    reads=(Read(("self",), "scale", "value", "11" * 16),), graph=GRAPH, results=["t"], sources=(("y", 0),),
)  # fmt: skip
KEY = [["version torch", "aa" * 16], ["weights", "bb" * 16], ["code function app.Layer.forward", "cc" * 16]]


def put(store: Store, method: str = FIRST, key: Any = None, size: int = 1000, name: str = "", **changes: Any) -> str:
    """Publish a version with a plan; its key."""
    meta = dataclasses.replace(VERSION, method=name or VERSION.method, **changes).to_meta()
    meta |= {"versions": {"torch": "2.13.0"}, "key": key or KEY}
    entry = store.publish(method, meta, {"graph.onnx": bytes(size)})
    assert entry is not None
    assert store.publish_plan(entry, "ef" * 16, {"engine": "onnxruntime", "version": "1.31"}, {"live.onnx": b"1"})
    return entry.version


@pytest.fixture
def cache(cache_directory: Path) -> Store:
    return Store(cache_directory, sync=False)


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process: status, output, errors."""

    def command(*arguments: str) -> tuple[int, str, str]:
        try:
            status = cli.main(["cache", *arguments])
        except SystemExit as end:  # of argparse
            status = int(end.code or 0)
        return (status, *capsys.readouterr())

    return command


def loads(found: tuple[int, str, str]) -> Any:
    assert found[0] == 0 and found[2] == "", found
    return json.loads(found[1])


def test_path_prints_the_directory_and_nothing_else(run: Run, cache_directory: Path) -> None:
    assert run("path") == (0, f"{cache_directory}\n", "")
    assert loads(run("path", "--json")) == {"path": str(cache_directory), "exists": False, "read_only": []}
    assert run("path", "--cache-dir", "/elsewhere") == (0, "/elsewhere\n", "")
    assert not cache_directory.exists()


def test_an_empty_cache_is_no_fault(run: Run, cache_directory: Path) -> None:
    assert run("list") == (0, f"0 static models, 0 B in {cache_directory}\n", "")
    assert run("verify") == (0, "0 static models sound, 0 damaged\n", "")
    assert run("prune")[0] == run("clear", "--yes")[0] == 0
    assert loads(run("list", "--json"))["models"] == []


@pytest.mark.parametrize(
    "command", [["list"], ["show", "ab"], ["verify"], ["prune"], ["clear", "--yes"], ["why", "a", "b"]]
)
def test_a_directory_that_was_named_and_is_not_there(run: Run, tmp_path: Path, command: list[str]) -> None:
    """That of the environment need not be there yet; one that was named is misspelled."""
    named = tmp_path / "nope"
    told = f"hybrid-infer: --cache-dir: there is no directory {named}\n"
    for more in ([], ["--json"]):
        assert run(*command, *more, "--cache-dir", str(named)) == (1, "", told)
    assert not named.exists()
    named.write_text("")
    assert run(*command, "--cache-dir", str(named)) == (1, "", told)


@pytest.mark.parametrize("command", ["cache path", "cache list", "doctor", "run x.py", "warm x.py", "suggest x.py"])
def test_a_relative_directory_where_the_folder_of_the_program_is_gone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Of commands that run a program, too, which let its errors through as they are."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(SystemExit) as end:
        cli.main(["--cache-dir", "mine", *command.split()])
    assert end.value.code == 2
    told = "--cache-dir: 'mine' must be an absolute path, as the folder in which the program runs is gone\n"
    assert capsys.readouterr().err.endswith(told)


@pytest.mark.parametrize("command", [["list"], ["show", "a"], ["verify"], ["prune"], ["clear", "--yes"]])
def test_a_file_where_the_cache_is_to_be(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    monkeypatch.setenv("HYBRID_INFER_CACHE_DIR", str(tmp_path / "file"))
    status, out, err = run(*command)
    assert status == 1 and not out and "is no directory: set HYBRID_INFER_CACHE_DIR" in err
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    "command", [["list"], ["show", "a"], ["why", "a", "b"], ["verify"], ["prune"], ["clear", "--yes"]]
)
@pytest.mark.parametrize("place", [".", "v1"])
def test_a_cache_that_cannot_be_read_is_not_called_empty(
    run: Run, cache: Store, monkeypatch: pytest.MonkeyPatch, command: list[str], place: str
) -> None:
    put(cache)
    barred, scandir = cache.root / place, os.scandir

    def refused(path: Any = ".") -> Any:
        if Path(os.fspath(path)) == barred:
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)  # who runs the tests may read everything
    status, out, err = run(*command)
    assert (status, out) == (1, "")
    assert err == f"hybrid-infer: the cache in {cache.root} cannot be read (Permission denied: {barred})\n"


def test_a_warning_is_told_once_and_verify_tells_it_too(
    run: Run, cache: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(cache)
    for method in (FIRST, SECOND):
        cache.remember_failure(method, dataclasses.replace(VERSION, reason="it draws random numbers").to_meta())
    monkeypatch.setattr(_files, "current_user", lambda: os.geteuid() + 1)
    for command in (["verify"], ["list"]):
        out, err = run(*command)[1:]
        assert len(err.splitlines()) == 1, err
        assert out.startswith("0 static models") and err.count("is not used, since it belongs to user") == 1, err


def test_list_is_a_table_most_recently_used_first(run: Run, cache: Store) -> None:
    old = put(cache, size=2_500_000)
    new = put(cache, tensors=(TensorSpec("float32", (None, 8)),), ints=(None,))
    os.utime(next(e for e in cache.versions(FIRST) if e.version == old).path / "manifest.json", (0, time.time() - 7200))
    cache.remember_failure(SECOND, dataclasses.replace(VERSION, reason="it draws random numbers").to_meta())
    status, out, err = run("list")
    lines = out.splitlines()
    assert (status, err) == (0, "")
    assert lines[0].split() == ["KEY", "METHOD", "INPUTS", "PLANS", "SIZE", "USED"]
    assert lines[1].startswith(f"{new[:12]}  app.Layer.forward  float32 (any, 8), int  onnxruntime")
    assert lines[2].startswith(f"{old[:12]}  app.Layer.forward  float32 (2, 8)")
    assert lines[2].endswith("2 h ago") and "2.5 MB" in lines[2]
    assert {line.index("onnxruntime") for line in lines[1:3]} == {lines[0].index("PLANS")}
    assert "it draws random numbers" in out and lines[-1].startswith("2 static models, 2.5 MB in ")
    found = loads(run("list", "--json"))
    assert [each["key"] for each in found["models"]] == [new, old]
    assert found["failures"][0]["reason"] == "it draws random numbers"
    assert found["size"] == cache.size()


def test_a_narrower_model_that_a_wider_one_replaces_says_so(run: Run, cache: Store) -> None:
    narrow = put(cache, example=((2, 8),))
    assert "replaced" not in run("list")[1]
    put(cache, example=((3, 8),), tensors=(TensorSpec("float32", (3, 8)),), reads=())  # which reads something else
    wide = put(cache, example=((2, 8),), tensors=(TensorSpec("float32", (None, 8)),))
    widest = put(cache, example=((2, 8),), tensors=(TensorSpec("float32", (None, None)),))
    rows = {line.split()[0]: line for line in run("list")[1].splitlines() if "app.Layer" in line}
    replaced = {key for key, line in rows.items() if f" (replaced by {widest[:12]}) " in line}
    assert replaced == {narrow[:12], wide[:12]} and len(rows) == 4
    assert "What is replaced is of no more use" in run("list")[1]
    assert f"replaced by {widest[:12]}" in run("show", FIRST)[1]
    assert f"replaced by  {widest[:12]}, a wider one" in run("show", narrow)[1]
    assert "replaced" not in run("show", widest)[1]
    assert {each["key"]: each["wider"] for each in loads(run("list", "--json"))["models"]}[narrow] == widest


def test_why_of_one_key_says_that_it_is_one(run: Run, cache: Store) -> None:
    key = put(cache)
    assert run("why", key, key[:8]) == (0, "Both keys are those of one static model.\n", "")


def test_a_wider_model_that_an_engine_refused_replaces_none(run: Run, cache: Store) -> None:
    narrow = put(cache, example=((2, 8),))
    wide = put(cache, example=((2, 8),), tensors=(TensorSpec("float32", (None, 8)),))
    widest = put(cache, example=((2, 8),), tensors=(TensorSpec("float32", (None, None)),))
    for refused, replacing in ((widest, {narrow: wide}), (wide, {})):
        record = dataclasses.replace(VERSION, reason="it is wrong", kind="build", scope="12" * 16, failed=refused)
        cache.remember_failure(FIRST, record.to_meta())
        models = loads(run("list", "--json"))["models"]
        assert {each["key"]: each["wider"] for each in models if each["wider"]} == replacing


def test_equal_inputs_in_a_row_are_told_once(run: Run, cache: Store) -> None:
    """A language model is given its cache as dozens of tensors: a line of a thousand characters is no line."""
    ids, keys = TensorSpec("int64", (1, 1)), TensorSpec("float32", (1, 4, None, 16))
    tree = ["u", "builtins:tuple", [["t"]] * 26]
    key = put(cache, tensors=(ids, *[keys] * 24, ids), tree=tree)
    told = "int64 (1, 1), 24x float32 (1, 4, any, 16), int64 (1, 1)"
    assert f"{key[:12]}  app.Layer.forward  {told}  onnxruntime" in run("list")[1]
    assert len(loads(run("list", "--json"))["models"][0]["inputs"]) == 26


def test_what_one_engine_refused_names_the_static_model_that_another_may_serve(run: Run, cache: Store) -> None:
    key = put(cache)
    record = dataclasses.replace(VERSION, reason="it has no such operator", kind="build", scope="12" * 16, failed=key)
    cache.remember_failure(FIRST, record.to_meta())
    assert f"  static model {key[:12]}: it has no such operator\n" in run("list")[1]
    assert loads(run("list", "--json"))["failures"][0]["static_model"] == key


def test_show_takes_the_first_digits_of_a_key(run: Run, cache: Store) -> None:
    key = put(cache)
    status, out, _ = run("show", key[:6].upper())
    assert status == 0
    for part in (key, "app.Layer.forward", "torch 2.13.0", "float32 (2, 8)", "attribute self.scale", "1.31",
                 "2 <= tensor 0 axis 0", "code function app.Layer.forward", "'a'"):  # fmt: skip
        assert part in out, part
    (found,) = loads(run("show", key, "--json"))
    assert found["key"] == key and found["plans"][0]["engine"] == "onnxruntime"
    assert found["guards"]["tensor 0"] == "float32 (2, 8)"


def test_what_a_static_model_takes_is_told_by_the_names_of_the_arguments(run: Run, cache: Store) -> None:
    tensor, text = ["t"], ["c", "str", "a"]
    tree = ["u", "builtins:tuple", [tensor, text, ["u", "builtins:list", [tensor, ["i"]]], ["c", "str", "1 x"]]]
    spec = VERSION.tensors[0]
    named = ("x", "mode", "self.h", _style.NAME)
    key = put(cache, tree=tree, tensors=(spec, spec), ints=(3,), names=named, conditions=(["<=", 2, ["dim", 1, 0]],))
    guards = loads(run("show", key, "--json"))[0]["guards"]
    told = dict(list(guards.items())[:7])
    assert told == {
        "argument x": "tensor", "argument mode": "'a'", "self.h": "list(tensor, integer)",
        "passed": "1 by position, x by name", "tensor x": "float32 (2, 8)", "tensor self.h[0]": "float32 (2, 8)",
        "integer self.h[1]": "3",
    }  # fmt: skip
    assert guards["condition 2 <= axis 0 of self.h[0]"] == "holds"
    assert Version.from_meta(dataclasses.replace(VERSION, names=named).to_meta()).names == named


def test_show_of_a_method_key_lists_its_static_models(run: Run, cache: Store) -> None:
    keys = {put(cache), put(cache, ambient=("torch.float64",))}
    status, out, _ = run("show", FIRST[:8])
    assert status == 0 and all(key[:12] in out for key in keys)
    assert {each["key"] for each in loads(run("show", FIRST, "--json"))} == keys


@pytest.mark.parametrize("key, words", [("zz", "no key begins with 'zz'"), (" ", "an empty key"), ("ab", "2 keys")])
def test_a_key_that_names_none_or_several_is_an_error(run: Run, cache: Store, key: str, words: str) -> None:
    put(cache)
    put(cache, method="ab" * 15 + "00")
    status, out, err = run("show", key)
    assert (status, out) == (1, "") and err.startswith("hybrid-infer: ") and words in err


def test_an_entry_of_another_release_is_listed_and_shown(run: Run, cache: Store) -> None:
    entry = cache.publish(FIRST, {"format": 99}, {"graph.onnx": b""})
    assert entry is not None
    assert "(of another release)" in run("list")[1]
    assert entry.version in run("show", entry.version)[1]
    assert loads(run("why", entry.version, entry.version, "--json"))["guards"] == []


def test_why_names_the_ingredients_and_the_guards_that_differ(run: Run, cache: Store) -> None:
    edited = [KEY[0], ["weights", "bd" * 16], ["code function app.Layer.forward", "ce" * 16]]
    first = put(cache)
    second = put(cache, SECOND, edited, reads=(Read(("self",), "scale", "value", "22" * 16),), conditions=())
    status, out, _ = run("why", first[:8], second[:8])
    assert status == 0 and out.startswith("Ingredients of the method key that differ\n") and "\n\nGuards" in out
    assert "code function app.Layer.forward  cccccccccccc" in out and "weights" in out
    assert "version torch" not in out
    assert "attribute self.scale" in out and "2 <= tensor 0 axis 0" in out and "tensor 0  " not in out
    found = loads(run("why", first, second, "--json"))
    assert [each["what"] for each in found["ingredients"]] == ["weights", "code function app.Layer.forward"]
    assert {each["what"] for each in found["guards"]} == {"attribute self.scale", "condition 2 <= tensor 0 axis 0"}
    assert cli.main(["why", first, second]) == 0  # without "cache", too


def test_why_shows_values_that_attributes_have_often(run: Run, cache: Store) -> None:
    reads = [Read(("self",), name, "value", digest(value)) for name, value in (("slicing", False), ("rank", 8))]
    first = put(cache, reads=tuple(reads))
    second = put(cache, SECOND, reads=(Read(("self",), "slicing", "value", digest(True)),))
    found = {each["what"]: each for each in loads(run("why", first, second, "--json"))["guards"]}
    assert [found["attribute self.slicing"][side] for side in ("first", "second")] == ["False", "True"]
    assert [found["attribute self.rank"][side] for side in ("first", "second")] == ["8", "absent"]


def test_why_of_two_methods_says_so_first(run: Run, cache: Store) -> None:
    first, second = put(cache), put(cache, SECOND, [["weights", "bd" * 16]], name="app.Layer.encode")
    out = run("why", first, second)[1]
    told = "These are two different methods: app.Layer.forward and app.Layer.encode.\n\nIngredients of the method key"
    assert out.startswith(told)
    assert run("why", FIRST, SECOND)[1].startswith(told)


def test_why_of_equals_and_of_method_keys(run: Run, cache: Store) -> None:
    key = put(cache)
    assert "Nothing differs" in run("why", key, put(cache, size=7))[1]
    put(cache, ints=(1,))
    put(cache, SECOND, [["weights", "bd" * 16]])
    assert "give their own keys" in run("why", FIRST, FIRST)[1]
    out = run("why", FIRST, SECOND)[1]
    assert "weights" in out and "Guards" not in out


def test_verify_reports_what_is_damaged_and_sets_it_aside(run: Run, cache: Store) -> None:
    put(cache)
    damaged = put(cache, ints=(1,))
    path = next(e for e in cache.versions(FIRST) if e.version == damaged).path
    (path / "graph.onnx").write_bytes(b"")
    status, out, err = run("verify")
    assert status == 1 and err == ""
    assert out.startswith(f"damaged: {path}") and "1 static model sound, 1 damaged; " in out
    assert run("verify") == (0, "1 static model sound, 0 damaged\n", "")
    (path.parent / damaged).mkdir()
    status, out, _ = run("verify", "--json")
    assert status == 1 and len(json.loads(out)["damaged"]) == 1


def test_what_is_found_damaged_on_the_way_is_a_warning(run: Run, cache: Store) -> None:
    put(cache)
    next(cache.root.rglob("manifest.json")).write_bytes(b"{}")
    status, _, err = run("list")
    assert status == 0 and err.startswith("warning: cache entry ") and len(err.splitlines()) == 1


def test_prune_by_size_and_by_age(run: Run, cache: Store) -> None:
    keys = [put(cache, size=n * 1_000_000) for n in (1, 2, 3)]
    for hours, key in zip((72, 48, 1), keys, strict=True):
        path = next(e for e in cache.versions(FIRST) if e.version == key).path / "manifest.json"
        os.utime(path, (0, time.time() - hours * 3600))
    assert run("prune", "--older-than", "60h") == (0, "removed 1 static model, 1.0 MB\n", "")
    assert loads(run("prune", "--max-size", "4MB", "--json"))["removed"] == 1
    assert [each["key"] for each in loads(run("list", "--json"))["models"]] == [keys[2]]
    assert run("prune")[1] == "removed 0 static models, 0 B\n"


def test_what_is_in_use_stays(run: Run, cache: Store) -> None:
    put(cache)
    (entry,) = cache.versions(FIRST)
    entry.use()
    assert run("clear", "--yes")[1] == "removed 0 static models, 0 B; 1 static model stayed, being in use\n"
    entry.close()
    assert "removed 1" in run("clear", "--yes")[1]


@pytest.mark.parametrize("answer, cleared", [("y\n", True), ("YES\n", True), ("n\n", False), ("", False)])
def test_clear_asks_on_a_terminal(
    run: Run, cache: Store, monkeypatch: pytest.MonkeyPatch, answer: str, cleared: bool
) -> None:
    put(cache)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stdin, "readline", lambda: answer, raising=False)
    status, _, err = run("clear")
    assert "Remove all static models" in err and status == (0 if cleared else 1)
    assert bool(list(cache.entries())) != cleared


def test_clear_does_not_ask_with_yes(run: Run, cache: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal in (False, True):
        put(cache)
        monkeypatch.setattr(sys.stdin, "isatty", lambda terminal=terminal: terminal, raising=False)
        status, _, err = run("clear", "--yes")
        assert (status, err) == (0, "") and not list(cache.entries())


def test_clear_where_nobody_can_be_asked_wants_yes(run: Run, cache: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    put(cache)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    status, out, err = run("clear")
    assert (status, out) == (2, "") and "--yes" in err and list(cache.entries())


SIZES = {"0": 0, "10": 10, "2GB": 2 * 10**9, "1.5 kib": 1536, "3M": 3 * 2**20, "500MB": 5 * 10**8}


@pytest.mark.parametrize("text", SIZES)
def test_sizes(text: str) -> None:
    assert _amounts.size(text) == SIZES[text]


@pytest.mark.parametrize("option", ["--max-size", "--older-than"])
@pytest.mark.parametrize("text", ["", "x", "-1", "2 parsecs", "1e3", "nan"])
def test_a_bad_size_or_age_is_wrong_usage(run: Run, option: str, text: str) -> None:
    status, _, err = run("prune", f"{option}={text}")
    assert status == 2 and repr(text) in err and "a number and" in err


@pytest.mark.parametrize("command", ["path", "list", "show", "why", "verify", "prune", "clear"])
def test_every_command_explains_itself(run: Run, command: str) -> None:
    status, out, _ = run(command, "--help")
    assert status == 0 and "--json" in out and "usage: hybrid-infer cache" in out


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_help_is_as_wide_as_the_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    rooms = ["cache", "why", "export", "doctor", "run", "warm", "suggest"]
    inner = [["cache", each] for each in ("path", "list", "show", "why", "verify", "prune", "clear")]
    for command in ([], *([each] for each in rooms), *inner):
        with pytest.raises(SystemExit):
            cli.main([*command, "--help"])
        out = capsys.readouterr().out
        assert max(map(len, out.splitlines())) < columns, f"{command}: {out}"
        if len(command) < 1 or command == ["cache"]:
            for line in ("examples:", "  hybrid-infer cache show 3f2a", "environment:", "  HYBRID_INFER_CACHE_DIR"):
                assert any(each.rstrip() == line or each.startswith(f"{line}  ") for each in out.splitlines()), out


def test_without_a_command_the_help_is_printed(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run()[0] == 2
    assert cli.main([]) == 2
    assert "examples:" in capsys.readouterr().out


def test_a_read_only_store_is_listed_and_left_alone(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_directory: Path
) -> None:
    key = put(Store(tmp_path / "base", sync=False))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "base").rglob("*")}
    monkeypatch.setenv("HYBRID_INFER_CACHE_READONLY", str(tmp_path / "base"))
    assert run("list")[1].splitlines()[1].endswith("read-only")
    assert "(read-only)" in run("show", key)[1]
    for command in (["verify"], ["prune", "--max-size", "0"], ["clear", "--yes"]):
        assert run(*command)[0] == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "base").rglob("*")} == before
    assert loads(run("path", "--json"))["read_only"] == [str(tmp_path / "base")]
    assert not cache_directory.exists()


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip


@pytest.mark.processes
def test_no_command_imports_a_framework_or_an_engine(cache: Store) -> None:
    key = put(cache)
    commands = [["path"], ["list"], ["show", key], ["why", key, key], ["verify"], ["prune"], ["clear", "--yes"]]
    program = f"""if True:
        import sys
        from hybrid_infer import cli
        for command in {commands!r}:
            assert cli.main(["cache", *command]) == 0, command
            loaded = set(sys.modules) & set({HEAVY!r})
            assert not loaded, (command, loaded)
    """
    done = python("-c", program)
    assert done.returncode == 0, done.stderr


@pytest.mark.processes
def test_the_module_runs(cache_directory: Path) -> None:
    done = python("-m", "hybrid_infer", "cache", "path")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{cache_directory}\n", "")
    assert python("-m", "hybrid_infer", "cache", "show", "00").returncode == 1


@pytest.mark.processes
def test_a_reader_that_goes_away_is_no_error(cache: Store) -> None:
    for number in range(40):
        put(cache, ints=(number,), method=f"{number:032x}")
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {sys.executable} -m hybrid_infer cache list --json | head -1"],
        capture_output=True, text=True, cwd=REPOSITORY,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "{\n", "")
