"""Versions of installed distributions: how often they are read, and what is seen of another release in their place."""

from __future__ import annotations

import importlib
import importlib.metadata
import shutil
from pathlib import Path
from typing import Any

import pytest

from hybrid_infer import _installed

NAME = "a-distribution-for-a-test"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of distributions whose metadata was looked for."""
    asked: list[str] = []
    look = importlib.metadata.distribution

    def distribution(name: str) -> Any:
        asked.append(name)
        return look(name)

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)
    return asked


def install(site: Path, number: str) -> Path:
    folder = site / f"{NAME.replace('-', '_')}-{number}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {number}\n", encoding="utf-8")
    return folder


def test_a_version_is_read_once(reads: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "1.0")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [_installed.version(NAME) for _ in range(3)] == ["1.0"] * 3
    assert reads == [NAME]


def test_another_release_in_its_place_is_seen(
    reads: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = install(tmp_path, "1.0")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert _installed.version(NAME) == "1.0"
    shutil.rmtree(folder)
    install(tmp_path, "1.1")
    importlib.invalidate_caches()
    assert [_installed.version(NAME) for _ in range(2)] == ["1.1"] * 2
    assert reads == [NAME] * 2


def test_one_that_comes_to_stand_before_it_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "behind", "1.0")
    install(tmp_path / "before", "2.0")
    monkeypatch.syspath_prepend(str(tmp_path / "behind"))
    assert _installed.version(NAME) == "1.0"
    monkeypatch.syspath_prepend(str(tmp_path / "before"))
    assert _installed.version(NAME) == "2.0"


def test_what_is_not_installed_is_looked_for_again(
    reads: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [_installed.version(NAME) for _ in range(2)] == ["", ""]
    install(tmp_path, "1.0")
    importlib.invalidate_caches()
    assert _installed.version(NAME) == "1.0"
    assert reads == [NAME] * 3
