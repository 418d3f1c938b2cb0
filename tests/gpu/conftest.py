"""Tests that need an NVIDIA GPU. They are skipped, with the reason, where there is none."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "native"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)


def reason() -> str:
    """Why nothing can be tested here; empty if it can."""
    from hybrid_infer.backends.native import _driver

    if missing := _driver.missing():
        return f"needs an NVIDIA GPU: {missing}"
    try:
        import torch
    except ImportError:
        return "needs an NVIDIA GPU and PyTorch, which is not installed"
    return "" if torch.cuda.is_available() else "needs an NVIDIA GPU that PyTorch can use"


@pytest.fixture(autouse=True)
def captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs of few steps are captured too, whatever their copies cost."""
    from hybrid_infer.backends.native import _graph_costs

    for name in ("COPY", "REPLAY"):
        monkeypatch.setattr(_graph_costs, name, 0.0)


@pytest.fixture
def memory() -> Any:
    """torch's tensors on the first GPU."""
    if why := reason():
        pytest.skip(why)
    from hybrid_infer.frontends._torch_memory import TorchMemory

    return TorchMemory("cuda:0")
