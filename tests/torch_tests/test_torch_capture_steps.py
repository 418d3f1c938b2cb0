"""What a capture of a model of many layers and weights does once, and not for each of them."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
from support import counts, eagerly, served

import hybrid_infer
from hybrid_infer.objects import _unordered
from hybrid_infer.state import _described

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("small")]


def many(layers: int) -> Any:
    return torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(layers))).eval()


def test_no_code_is_walked_through_for_the_empty_sets_of_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[Any] = []
    walk = _described._fingerprint.fingerprint

    def noted(roots: Any, *rest: Any, **named: Any) -> Any:
        walked.append(roots)
        return walk(roots, *rest, **named)

    monkeypatch.setattr(_described, "_fingerprint", types.SimpleNamespace(fingerprint=noted))
    with torch.no_grad():
        hybrid_infer.inference(many(8))(torch.ones(2, 4))
    assert counts()["captures"] == 1 and not walked


def test_a_set_that_a_call_fills_is_seen_to_have_been_empty() -> None:
    class Filled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.met: set[int] = set()

        def forward(self, x: Any) -> Any:
            self.met.add(len(x.shape))
            return x * 2

    layer = hybrid_infer.inference(Filled())
    layer(torch.ones(2, 4))
    eagerly("met")
    assert layer.met == {2}


def test_a_set_that_is_copied_in_order_at_once_is_not_shuffled(monkeypatch: pytest.MonkeyPatch) -> None:
    shuffled: list[Any] = []
    shuffle = _unordered._shuffled

    def noted(order: list[Any]) -> Any:
        for made in shuffle(order):
            shuffled.append(made)
            yield made

    monkeypatch.setattr(_unordered, "_shuffled", noted)
    for found in (set(), {"one"}, set(range(8))):
        made = _unordered.copied(found)
        assert [*made] == [*found] and made is not found
    assert not shuffled


@pytest.mark.parametrize("varies", [False, True])
def test_sizes_of_weights_are_asserted_only_beside_one_that_varies(
    monkeypatch: pytest.MonkeyPatch, varies: bool
) -> None:
    given: list[Any] = []
    export = torch.onnx.export

    def noted(program: Any, *rest: Any, **named: Any) -> Any:
        given.append(program.example_inputs)
        return export(program, *rest, **named)

    monkeypatch.setattr(torch.onnx, "export", noted)
    layer = hybrid_infer.inference(many(1))
    with torch.no_grad():
        for n in (2, 3) if varies else (2,):
            x = torch.arange(4.0 * n).reshape(n, 4)
            torch.testing.assert_close(layer(x), torch.nn.Linear.forward(layer[0], x))
    assert [each is not None for each in given] == [False, True][: 1 + varies]
    served(captures=1 + varies)


def test_an_array_of_several_numbers_beside_the_weights_is_asked_for_no_truth() -> None:
    class Named(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scores = np.array([0.5, 0.25])

        def forward(self, x: Any) -> Any:
            return x * 2

    layer = hybrid_infer.inference(Named())
    for _ in range(2):
        assert layer(torch.ones(2, 4)).tolist() == [[2.0] * 4] * 2
    served(captures=1)
