"""The reference from the docstrings, and the diagram, are what their sources give."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import hybrid_infer

DOCS = Path(__file__).resolve().parents[2] / "docs"


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_every_public_name_is_in_the_reference() -> None:
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^::: hybrid_infer\.(\w+)$", text, re.MULTILINE)) == set(hybrid_infer.__all__)


@pytest.fixture(autouse=True)
def griffe(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the extension is an extension of: only `make docs` has it."""
    monkeypatch.setitem(sys.modules, "griffe", SimpleNamespace(Extension=object))


@pytest.mark.parametrize("name", sorted(hybrid_infer.__all__))
def test_a_docstring_becomes_markdown(name: str) -> None:
    docstring = inspect.getdoc(getattr(hybrid_infer, name))
    assert docstring
    text = module("_docstrings").markdown(docstring)
    assert "----" not in text and "``" not in text.replace("```", "")
    assert text.count(">>>") == docstring.count(">>>") and text.count("```") % 2 == 0


def test_an_entry_is_a_definition() -> None:
    given = "Does.\n\nParameters\n----------\nx, y : what to do.\n    More.\n\nRaises\n------\nE\n    why."
    expected = "Does.\n\n**Parameters**\n\n`x`, `y`\n:   what to do. More.\n\n**Raises**\n\n`E`\n:   why."
    assert module("_docstrings").markdown(given) == expected


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_diagram_is_the_one_that_is_drawn(scheme: str) -> None:
    drawn = (DOCS / "assets" / f"how-it-works-{scheme}.svg").read_text(encoding="utf-8")
    assert module("_diagram").draw(scheme) == drawn
