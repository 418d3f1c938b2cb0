"""Log records: the fields that a formatter for JSON finds on them."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
import torch

import hybrid_infer
from hybrid_infer import inference

pytestmark = pytest.mark.torch

_FIELDS = ("event", "method", "seconds", "engine", "reason", "remedy", "error", "figures", "version")


class _Json(logging.Formatter):
    """What a user's program has in its place."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {name: getattr(record, name) for name in _FIELDS if hasattr(record, name)}
        return json.dumps({"level": record.levelname, "message": record.getMessage(), **fields})


@pytest.fixture
def records(caplog: pytest.LogCaptureFixture) -> Any:
    """The lines of the library's logger that are about a method, as data, by event."""
    caplog.set_level(logging.DEBUG, "hybrid_infer")

    def found() -> dict[str, dict[str, Any]]:
        lines = [json.loads(_Json().format(r)) for r in caplog.records if r.name == "hybrid_infer"]
        return {line["event"]: line for line in lines if "event" in line}

    return found


def linear() -> torch.nn.Module:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        @inference
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.linear(x)
            return result

    return Net().eval()


def test_the_steps_of_a_compilation(records: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYBRID_INFER_BACKEND")
    with torch.no_grad():
        linear()(torch.ones(2, 4))
    found = records()
    assert {"captured", "built", "verified", "chosen"} <= found.keys()
    assert {line["method"].rpartition(".")[2] for line in found.values()} == {"forward"}
    assert found["captured"]["seconds"] > 0 and found["built"]["engine"] in ("onnxruntime", "openvino")
    assert {"eager", "onnxruntime"} <= found["chosen"]["figures"].keys() and found["chosen"]["level"] == "INFO"
    assert 0 <= found["verified"]["error"] < 1e-4


def test_what_came_from_disk(records: Any, caplog: pytest.LogCaptureFixture) -> None:
    with torch.no_grad():
        layer = linear()
        layer(torch.ones(2, 4))
        caplog.clear()
        hybrid_infer.release(layer)
        layer(torch.ones(2, 4))
    assert len(records()["loaded"]["version"]) == 32


def test_a_refusal(records: Any) -> None:
    hot = inference(lambda x: x + torch.rand(4))
    hot(torch.ones(4))
    found = records()["eager"]
    assert found["level"] == "WARNING" and "draws random numbers" in found["reason"]
    assert "argument" in found["remedy"] and found["message"].startswith("hybrid_infer: ")
