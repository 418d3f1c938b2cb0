"""suggest(): which sublayers it names, what it says of those that are refused, and that it leaves the layer alone."""

from __future__ import annotations

import importlib
import json
import time
from typing import Any

import pytest

from hybrid_infer import _method, inference, suggest
from hybrid_infer._suggest import Row, Suggestions


@pytest.fixture(params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("torch", "paddle")])
def framework(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("HYBRID_INFER_BACKEND")  # which engine serves is measured
    return importlib.import_module(request.param)


def model(framework: Any) -> Any:
    nn: Any = framework.nn
    base = nn.Module if hasattr(nn, "Module") else nn.Layer

    class Block(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(64, 64)

        def forward(self, x: Any) -> Any:
            return nn.functional.relu(self.linear(x)) + x

    class Net(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            blocks = [Block() for _ in range(3)]
            self.blocks = nn.ModuleList(blocks) if hasattr(nn, "ModuleList") else nn.LayerList(blocks)

        def forward(self, x: Any) -> Any:
            if float(x.max()) > 1e9:  # of a value: what is around the blocks cannot be captured
                raise ValueError("too large")
            for block in self.blocks:
                x = block(x)
            return x

    net = Net()
    net.eval()
    return net


def test_blocks_are_offered_and_the_refused_model_has_its_reason(framework: Any) -> None:
    net = model(framework)
    before = [dict(vars(layer)) for layer in (net, *net.blocks)]
    found = suggest(net, framework.ones([16, 64]))
    rows = {row.where: row for row in found.rows}
    assert rows["(itself)"].outcome == "refused" and rows["(itself)"].reason in str(found)
    assert ("test_suggest.py" if framework.__name__ == "torch" else "too large") in rows["(itself)"].reason
    blocks = rows["blocks.*"]
    assert (blocks.kind, blocks.count, blocks.calls) == ("Block", 3, 3) and 0 < blocks.share <= 1
    assert blocks.outcome in ("eager", "onnxruntime", "openvino") and blocks.gain is not None and blocks.gain >= 1
    assert blocks.line == "for block in model.blocks: inference(block)"
    assert rows["blocks.*.linear"].outcome == "" and "inside" in rows["blocks.*.linear"].reason
    assert found.seconds > 0 and json.loads(json.dumps(found.to_dict()))["rows"]
    assert "blocks.*" in str(found) and str(found).startswith("WHERE")
    assert [dict(vars(layer)) for layer in (net, *net.blocks)] == before


def test_what_is_decorated_already_is_left(framework: Any) -> None:
    net = model(framework)
    for block in net.blocks:
        inference(block)
    rows = {row.where: row for row in suggest(net, framework.ones([16, 64])).rows}
    assert rows["blocks.*"].reason == "decorated already" and rows["blocks.*"].outcome == ""


def test_the_time_limit_holds(framework: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_method.HotMethod, "__call__", lambda *args: time.sleep(3))
    start = time.monotonic()
    rows = suggest(model(framework), framework.ones([16, 64]), time_limit=0.2).rows
    assert time.monotonic() - start < 2.9
    assert [row.reason for row in rows if "0 s" in row.reason or "time was up" in row.reason]


def test_only_layers_are_taken() -> None:
    with pytest.raises(TypeError, match="given a list"):
        suggest([])


def test_the_table_says_what_to_add() -> None:
    good = Row("encoder", "Encoder", 1, 1, 0.1, 0.9, "openvino", "", 1.8, "inference(model.encoder)")
    text = str(Suggestions(0.11, [good, Row("head", "Linear", 1, 1, 0.01, 0.1)]))
    assert "1.80x" in text and text.endswith("Add:\n    inference(model.encoder)") and "not tried" in text
    assert "gains anything" in str(Suggestions(0.1, []))
