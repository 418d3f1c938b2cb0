"""Puts a double in the place of TensorRT, and gives these tests the graphs of the other engines' tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from double import World
    from host_memory import TorchHost

sys.path.extend(str(Path(__file__).resolve().parents[1] / room) for room in ("backends", "native"))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A machine with a GPU and TensorRT, both made of the CPU; what it is to do can be changed in the test."""
    import double

    made = double.install(monkeypatch)
    yield made
    assert not made.outside, "what another thread captures would be spoilt"


@pytest.fixture
def memory() -> TorchHost:
    import host_memory

    return host_memory.TorchHost("cpu")


@pytest.fixture
def on_the_host(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The CPU's tensors are said to be a GPU's."""
    import host_memory

    from hybrid_infer import _background

    host_memory.install(monkeypatch)
    yield
    _background.wait()
