"""The processes of the benchmark of a GPU, on the host: who answered is told, whatever happens to the engine."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import _gpu_process, _gpu_row
from benchmarks._gpu_models import MODELS, Model
from hybrid_infer._errors import EngineError, PassingFault
from hybrid_infer.backends.native import engine

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.gelu(self.linear(x)).softmax(-1)


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host for a GPU, and a small model."""
    for name in ("synchronize", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 7)
    monkeypatch.setitem(MODELS, "Small", Model(Small, lambda batch: [torch.randn(batch, 8)]))  # type: ignore[arg-type]


def refuse(monkeypatch: pytest.MonkeyPatch, fault: type[Exception]) -> None:
    def prepare(self: Any, *arguments: Any, **options: Any) -> Any:
        raise fault("native", "the package nvidia-cuda-nvrtc is not installed")

    monkeypatch.setattr(engine.Native, "prepare", prepare)


def test_a_process_tells_its_first_call_and_who_served() -> None:
    row = _gpu_row.blank("Small", "float32", 2)
    for what, form in (("eager", "eager"), ("cold", "native"), ("warm", "native")):
        _gpu_row.put_process(row, what, _gpu_process.measure("Small", "float32", 2, form, "cpu"))
    assert row["peak"] == {"eager": 7, "native": 7} and not row["fallbacks"]
    assert row["cold_s"] > row["build_s"] > 0 and row["warm_s"] > 0


@pytest.mark.parametrize("fault", [EngineError, PassingFault])
def test_what_eager_answers_is_not_told_of_native(fault: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused for good, there is no version to tell of; where the fault passes, the call goes through eagerly."""
    refuse(monkeypatch, fault)
    row = _gpu_row.blank("Small", "float32", 2)
    for what in ("cold", "warm"):
        _gpu_row.put_process(row, what, _gpu_process.measure("Small", "float32", 2, "native", "cpu"))
    assert row["cold_s"] is row["warm_s"] is row["build_s"] is None and not row["peak"]
    assert {each.partition(":")[0] for each in row["fallbacks"]} == {"first call, cold store", "first call, warm store"}
    assert all("nvidia-cuda-nvrtc is not installed" in each for each in row["fallbacks"])


def test_speeds_that_are_eagers_are_not_told_of_native() -> None:
    found = {"first_s": {"eager": 1.0, "native": 1.0}, "ms": {"eager": [2.0], "native": [2.0]}, "error": {"eager": 0.1}}
    for answered, words in (
        ({"fallbacks": ["it was refused"], "served_by": ["native"]}, "speed: it was refused"),
        ({"fallbacks": [], "served_by": ["onnxruntime"]}, "speed: served by onnxruntime"),
        ({"fallbacks": [], "served_by": []}, "speed: served by no engine"),
    ):
        row = _gpu_row.blank("Small", "float16", 1)
        _gpu_row.put_speed(row, {**found, "seconds": {}, **answered})
        assert row["ms"] == {"eager": [2.0]} and row["fallbacks"] == [words]
