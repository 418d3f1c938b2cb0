"""Calls that take another side of a branch on values than a static model holds, when more than a run of it is due."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_support import Block, counts, same

import hybrid_infer
from hybrid_infer import BackendError, inference
from hybrid_infer._errors import EngineError

pytestmark = pytest.mark.torch

X = torch.arange(1.0, 9.0).reshape(2, 4)


def decorated(kind: Any, **options: Any) -> Any:
    """A layer of a class of its own, with the same weights each time."""
    torch.manual_seed(0)
    return type(kind.__name__, (kind,), {"forward": inference(kind.forward, **options)})().eval()


class Structured(Block):
    def forward(self, x: Any) -> Any:
        y = self.linear(x.abs())
        return y * 2 if x.sum() > 0 else (x, y)


class Viewing(Block):
    def forward(self, x: Any) -> Any:
        return self.linear(x) if x.sum() > 0 else x[0]


class Writing(Block):
    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        if x.sum() < 0:
            x.zero_()
        return y


@pytest.mark.parametrize("verify", ["first", "always", "build"])
@pytest.mark.parametrize("kind", [Structured, Viewing, Writing])
def test_a_side_of_another_kind_is_no_fault_of_the_static_model(kind: Any, verify: str) -> None:
    hot = type(kind.__name__, (kind,), {"forward": inference(kind.forward, verify=verify)})
    with torch.no_grad():
        for _ in range(3):
            layer = hot().eval()  # which finds the static model of the one before
            for given in (-X, X, X, -X, X, X) if counts()["captures"] else (X, X):
                same(layer(given.clone()), kind.forward(layer, given.clone()))
    found = counts()
    assert found["captures"] == 1 and found["hits"] >= 7, found
    assert all("went another way" in reason for reason in found["fallbacks"]), found


def divided(x: Any, d: Any) -> Any:
    return x // d if (d != 0).all() else x


def looked_up(x: Any, d: Any) -> Any:
    return x[:, d] * 2 if (d < 4).all() else x * 2


@pytest.mark.parametrize("verify", ["first", "build"])
@pytest.mark.parametrize("function", [divided, looked_up], ids=lambda each: each.__name__)
def test_what_an_engine_cannot_compute_of_the_other_side_is_no_error(function: Any, verify: str) -> None:
    whole, good, bad = torch.arange(8).reshape(2, 4), torch.tensor([1, 2, 3, 3]), torch.tensor([1, 0, 3, 9])
    for calls in ((good, good, bad, bad, good, bad), (bad, good, bad, good)):
        hot = inference(lambda x, d: function(x, d), fallback="error", verify=verify)
        with torch.no_grad():
            for given in calls:
                same(hot(whole, given), function(whole, given))
    found = counts(next(iter(hybrid_infer.stats())))
    assert found["hits"] and all("another way" in reason for reason in found["fallbacks"]), found


def test_an_engine_that_fails_on_the_side_it_has_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = decorated(Structured, fallback="error")
    with torch.no_grad():
        layer(X), layer(X)
        from hybrid_infer._route import Compiled

        def fails(*_: Any) -> Any:
            raise EngineError("onnxruntime", "out of order")

        monkeypatch.setattr(Compiled, "compute", fails)
        monkeypatch.setattr(Compiled, "run", fails)
        with pytest.raises(BackendError, match="out of order"):
            for _ in range(5):
                layer(X)
    assert counts()["captures"] == 1
