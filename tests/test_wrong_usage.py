"""Wrong usage of the command line says what was most likely meant, in the usage of the command that was given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hybrid_infer import cli


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as end:
        cli.main(arguments)
    assert end.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


@pytest.mark.parametrize(
    "given, meant",
    [
        (["list"], "hybrid-infer cache list"), (["show", "3f2a"], "hybrid-infer cache show"),
        (["clear", "--yes"], "hybrid-infer cache clear"), (["verify"], "hybrid-infer cache verify"),
        (["doctr"], "hybrid-infer doctor"), (["Cache", "list"], "hybrid-infer cache"),
        (["cache", "lst"], "hybrid-infer cache list"), (["cache", "doctor"], "hybrid-infer doctor"),
        (["cache", "whi"], "hybrid-infer cache why"), (["whi"], "hybrid-infer why"),
        (["help"], "hybrid-infer --help"), (["cache", "help"], "hybrid-infer cache --help"),
        (["version"], "hybrid-infer --version"), (["serve.py"], "hybrid-infer run serve.py"),
    ],
)  # fmt: skip
def test_a_command_that_there_is_not(capsys: pytest.CaptureFixture[str], given: list[str], meant: str) -> None:
    err = told(capsys, *given)
    assert "invalid choice" in err and err.endswith(f"; did you mean `{meant}`?\n"), err


def test_a_command_that_is_like_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean" not in told(capsys, "frobnicate")


@pytest.mark.parametrize(
    "given, usage, end",
    [
        (["cache", "list", "--jsn"], "usage: hybrid-infer cache list ", "--jsn; did you mean `--json`?\n"),
        (["cache", "clear", "--yse"], "usage: hybrid-infer cache clear ", "--yse; did you mean `--yes`?\n"),
        (["cache", "prune", "--max=2GB", "--age", "3d"], "usage: hybrid-infer cache prune ", "--age 3d\n"),
        (["export", "m", "--onnx", "f", "--metod=a"], "usage: hybrid-infer export ", "did you mean `--method`?\n"),
        (["cache", "list", "extra"], "usage: hybrid-infer cache list ", "unrecognized arguments: extra\n"),
        (["-V"], "usage: hybrid-infer ", "unrecognized arguments: -V\n"),
    ],
)
def test_an_option_that_there_is_not(
    capsys: pytest.CaptureFixture[str], given: list[str], usage: str, end: str
) -> None:
    err = told(capsys, *given)
    assert err.startswith(usage) and err.endswith(end), err


@pytest.mark.parametrize("where", [0, 1, 2])
def test_what_all_commands_take_may_stand_before_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, where: int
) -> None:
    words = ["cache", "path"]
    words[where:where] = ["--json", "--cache-dir", str(tmp_path)]
    assert cli.main(words) == 0
    assert json.loads(capsys.readouterr().out)["path"] == str(tmp_path)


def test_the_last_of_two_directories_counts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["--cache-dir", "/first", "cache", "path", "--cache-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path}\n"


def test_what_is_missing_is_told_without_what_may_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("run", "warm", "suggest"):
        assert told(capsys, command).endswith("the following arguments are required: SCRIPT\n")


def test_what_a_script_is_given_is_its_own(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys; print(sys.argv[1:])\n")
    before = cli.sys.argv[:], cli.sys.path[:]
    try:
        assert cli.main(["run", str(script), "--json", "--jsn", "list"]) == 0
    finally:
        cli.sys.argv[:], cli.sys.path[:] = before
    assert capfd.readouterr().out == "['--json', '--jsn', 'list']\n"
