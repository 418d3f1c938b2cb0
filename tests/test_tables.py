"""Tables at a terminal are as wide as it is; elsewhere each row is one line."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
import terminal

from hybrid_infer.cache import Store
from hybrid_infer.reports import _colour, _doctor, _suggested_view, _tables
from hybrid_infer.reports._suggest import Row, Suggestions

HEADS = ["KEY", "METHOD", "INPUTS", ">SIZE"]
ROWS = [
    ["0123456789ab", "package.of.the.program.module.Class.transformer_blocks",
     "float32 (1, 64, 256), float32 (1, 64, 256), int64 (1, 4)", "187 kB"],
    ["cafecafecafe", "app.Layer.forward", "float32 (any, 8)", "9 B"],
]  # fmt: skip


def words(lines: list[str]) -> str:
    return re.sub(r"\s+", "", "".join(lines))


@pytest.mark.parametrize("width", [60, 72, 80, 100])
def test_a_table_is_no_wider_than_the_terminal(width: int) -> None:
    natural, folded = _tables.blocks(HEADS, ROWS, "  "), _tables.blocks(HEADS, ROWS, "  ", width)
    assert all(len(block) == 1 for block in natural) and max(len(block[0]) for block in natural) > width
    assert max(len(line) for block in folded for line in block) <= width
    for before, after in zip(natural, folded, strict=True):
        assert sorted(words(before)) == sorted(words(after))
        assert after[0].split()[0] == before[0].split()[0]  # a key is copied
        assert all(line.startswith("  ") for line in after)
    assert folded[1][0].endswith("187 kB") and folded[2][0].endswith("   9 B")


def test_a_table_that_fits_is_left_as_it_is() -> None:
    narrow = [["a", "b"], ["cc", "dd"]]
    assert _tables.lines([], narrow, width=80) == _tables.lines([], narrow) == ["a   b", "cc  dd"]
    assert _tables.lines(HEADS, ROWS, width=400) == _tables.lines(HEADS, ROWS)
    assert _tables.lines(HEADS, ROWS, width=30) == _tables.lines(HEADS, ROWS)  # too narrow for any table
    assert _tables.lines([], []) == []


def test_a_path_at_the_end_of_a_row_is_not_parted() -> None:
    path = "/a/very/long/path/to/where/a/static/model/lies/0123456789abcdef0123456789abcdef"
    found = _tables.lines([], [["lies in", f"{path} (read-only)"]], width=60)
    assert path in found[0] and found[1].strip() == "(read-only)"


def test_what_stands_in_one_column_is_folded_between_words() -> None:
    reason = "it draws random numbers, which a static model would draw but once"
    found = _tables.lines([], [["forward", reason]], width=40)
    assert len(found) == 3 and " ".join(line.removeprefix("forward").strip() for line in found) == reason


def test_no_terminal_has_no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    terminal_like = io.StringIO()
    terminal_like.isatty = lambda: True  # type: ignore[method-assign]
    assert _tables.width(io.StringIO()) is None and _tables.width(None) is None
    assert _tables.width(terminal_like) == 50


FOUND = Suggestions(
    1.0,
    [Row("encoder.layers.* (4)", "TransformerEncoderLayer", 4, 4, 0.9, 0.9, "", "inside of what is served above"),
     Row("head", "Linear", 1, 1, 0.1, 0.1, "refused", "it draws random numbers (app.py:3)")],
)  # fmt: skip


def test_suggestions_and_the_doctor_are_folded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    wide, narrow = _suggested_view.text(FOUND), _suggested_view.text(FOUND, width=72)
    assert wide == str(FOUND) and max(map(len, wide.splitlines())) > 72 >= max(map(len, narrow.splitlines()))
    coloured = _suggested_view.text(FOUND, colour=True, width=72)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == narrow
    monkeypatch.setattr(_doctor, "_checked", lambda name: {"problem": "it crashed " + "again and " * 20 + "again"})
    found = _doctor.examine()
    folded = _doctor.text(found, width=72)
    assert words([folded]) == words([_doctor.text(found)])
    assert max(len(line) for line in folded.splitlines() if " again" in line) <= 72


PROGRAM = """\
import sys
from hybrid_infer import cli

sys.exit(cli.main(["cache", "list"]))
"""


@pytest.mark.processes
def test_the_list_at_a_narrow_terminal(
    tmp_path: Path, cache_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # which would count before the terminal's own width
    store = Store(cache_directory, sync=False)
    meta = {"format": 99, "method": "package.of.the.program.module.Class.transformer_blocks_of_it"}
    assert store.publish("ab" * 16, meta, {"graph.onnx": b""}) is not None
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {"PYTHONPATH": str(Path(_colour.__file__).parents[2])}
    out = terminal.sent(program, environment, rows=24, columns=70)
    table = out.replace("\r", "").partition("\n\n")[0].splitlines()
    assert len(table) > 2 and max(map(len, table)) <= 70, out
    assert "transformer_blocks_of_it" in words(table)
