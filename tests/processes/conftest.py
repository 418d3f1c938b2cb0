"""A program in a folder of its own with an empty cache, and two servers that fork its processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from forks import EXPORTER, Zygote
from process_support import LAYER, Program

pytest.importorskip("torch")


@pytest.fixture(scope="session")
def bare() -> Iterator[Zygote]:
    """Forks processes that have imported torch and nothing else."""
    zygote = Zygote("torch")
    yield zygote
    zygote.close()


@pytest.fixture(scope="session")
def ready() -> Iterator[Zygote]:
    """Forks processes in which the exporter is imported too, with its forms: a capture takes a quarter of the time."""
    zygote = Zygote(*EXPORTER)
    yield zygote
    zygote.close()


@pytest.fixture
def program(ready: Zygote, tmp_path: Path) -> Iterator[Program]:
    """A program whose module ``layers`` holds ``Layer``."""
    folder = tmp_path / "program"
    folder.mkdir()
    made = Program(ready, folder, tmp_path / "cache")
    made.write(LAYER)
    yield made
    made.end()
