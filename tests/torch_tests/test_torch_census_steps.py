"""What a look-up goes through of a layer's state: most of it are dicts for hooks that the layer has not."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

from hybrid_infer import _frontends
from hybrid_infer.state import _census

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Held:
    """A class of the program."""


def taken(layer: Any) -> _census.Census:
    return _census.take({"self": layer}, _frontends.of(layer))


def test_empty_containers_are_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    census = taken(torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(4))))
    kinds = (dict, OrderedDict, list, tuple, set, frozenset)
    assert not [value for value in _census._values(census) if type(value) in kinds and not value]
    looked: list[Any] = []
    functions = _census._functions

    def noted(value: Any, seen: Any) -> Any:
        looked.append(value)
        return functions(value, seen)

    monkeypatch.setattr(_census, "_functions", noted)
    assert not _census.functions(census)
    assert looked and not [value for value in looked if type(value) in kinds and not value]


@pytest.mark.parametrize("kind", ["an attribute", "a value", "a key"])
def test_what_a_container_leads_to_is_met(kind: str) -> None:
    layer, held = torch.nn.Linear(2, 2), OrderedDict[Any, Any]()
    if kind == "an attribute":
        held.beside = Held()  # type: ignore[attr-defined]
    else:
        held.update({"name": Held()} if kind == "a value" else {Held(): "name"})
    layer.held = (held,)
    assert Held in _census.named(taken(layer))[0]
