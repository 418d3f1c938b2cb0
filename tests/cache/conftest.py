"""Stores, on disk and in memory, and what the tests of the store share."""

from __future__ import annotations

from pathlib import Path

import pytest

from hybrid_infer.cache import MemoryStore, Store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store directory that does not exist yet, below a directory that does not either."""
    return tmp_path / "user" / "hybrid_infer"


@pytest.fixture
def store(root: Path) -> Store:
    return Store(root, sync=False)


@pytest.fixture(params=["disk", "memory"])
def any_store(request: pytest.FixtureRequest, root: Path) -> Store | MemoryStore:
    """Each kind of store: what a test asks of one, the other must do too."""
    return Store(root, sync=False) if request.param == "disk" else MemoryStore()
