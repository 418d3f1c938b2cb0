"""Colours at a terminal, and elsewhere where FORCE_COLOR asks for them; never against NO_COLOR."""

from __future__ import annotations

import io
from typing import Any

import pytest

from hybrid_infer.reports import _colour, _doctor, _suggested_view
from hybrid_infer.reports._suggest import Row, Suggestions


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_where_colours_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert _colour.wanted(Terminal()) and not _colour.wanted(io.StringIO()) and not _colour.wanted(None)
    monkeypatch.setenv("TERM", "dumb")
    assert not _colour.wanted(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not _colour.wanted(Terminal())


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_colours_that_are_asked_for(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> None:
    """As Python itself and other tools take them: a build server shows colours that are sent to a pipe."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert _colour.wanted(stream) and not _colour.wanted(None)
    monkeypatch.setenv("FORCE_COLOR", "")  # as if it were not there
    assert not _colour.wanted(stream)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not _colour.wanted(stream)


FOUND: Any = Suggestions(
    1.0,
    [Row("blocks", "Block", 1, 1, 0.9, 0.9, "openvino", "", 1.8, "inference(model.blocks)"),
     Row("head", "Linear", 1, 1, 0.1, 0.1, "refused", "it draws random numbers (app.py:3)")],
)  # fmt: skip


def test_a_table_says_the_same_with_and_without() -> None:
    import re

    plain, coloured = _suggested_view.text(FOUND), _suggested_view.text(FOUND, colour=True)
    assert "\x1b" not in plain and "\x1b[" in coloured and str(FOUND) == plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


def test_the_doctor_marks_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_doctor, "_checked", lambda name: {"problem": "it crashed"})
    found = _doctor.examine()
    assert "\x1b" not in _doctor.text(found) and "\x1b[33mPROBLEM" in _doctor.text(found, colour=True)
