"""At DEBUG level a miss names what differs from the nearest static model."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch_support import Block

from hybrid_infer import inference

pytestmark = pytest.mark.torch

X = torch.ones(2, 4)


class Scaled(Block):
    scale: Any = 2.0

    def compute(self, x: torch.Tensor, mode: str = "a", n: int = 1) -> torch.Tensor:
        y = torch.relu(self.linear(x)) * self.scale * n
        return y + 1 if mode == "b" else y


def hot(**options: Any) -> Any:
    class Hot(Scaled):
        forward = inference(**options)(Scaled.compute)

    return Hot


def misses(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "hybrid_infer" and "no static model" in r.getMessage()]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, logger="hybrid_infer")
    return caplog


def test_the_first_miss_says_that_nothing_is_stored(log: pytest.LogCaptureFixture) -> None:
    layer = hot()()
    with torch.no_grad():
        layer(X)
        layer(X)
    (text,) = misses(log)
    assert "none of this method is stored" in text


CHANGES = {
    "argument `x` (float32 (3, 4), was float32 (2, 4))": lambda layer: layer(torch.ones(3, 4)),
    "argument `mode` ('b', was 'a')": lambda layer: layer(X, "b"),
    "argument `n` (3, was 1)": lambda layer: layer(X, "a", 3),
    "attribute self.scale": lambda layer: (setattr(layer, "scale", 3.0), layer(X)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_miss_names_what_differs(log: pytest.LogCaptureFixture, what: str) -> None:
    layer = hot()()
    layer.scale = 2.0
    with torch.no_grad():
        layer(X, "a", 1)
        log.clear()
        CHANGES[what](layer)
    text = misses(log)[0]
    assert f"differs in {what}" in text, text


def test_another_key_is_named_by_its_ingredients(log: pytest.LogCaptureFixture) -> None:
    first, second = hot(), hot(cache_key="of another release")
    with torch.no_grad():
        first()(X)
        log.clear()
        second()(X)
        (text,) = misses(log)
        assert text.endswith("has another cache_key"), text
        log.clear()
        first(5)(torch.ones(2, 5))
        (text,) = misses(log)
        assert text.endswith("has another weights"), text


def test_nothing_is_searched_at_other_levels(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    from hybrid_infer import _differences

    caplog.set_level(logging.INFO, logger="hybrid_infer")
    monkeypatch.setattr(_differences, "of_miss", lambda *_: pytest.fail("it was searched"))
    with torch.no_grad():
        hot()()(X)
