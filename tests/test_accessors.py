"""Objects whose class looks for another name than it was asked for, as the configurations of transformers do."""

from __future__ import annotations

import weakref
from typing import Any, ClassVar

import numpy as np
import pytest
from support import counts, layer_class

from hybrid_infer import inference
from hybrid_infer.state import _reads


class Config:
    attribute_map: ClassVar = {"hidden_size": "n_embd", "layers": "n_layer"}

    def __init__(self) -> None:
        self.n_embd, self.n_layer, self.other = 4, 2, 1

    def __setattr__(self, name: str, value: Any) -> None:
        names = super().__getattribute__("attribute_map")
        super().__setattr__(names.get(name, name), value)

    def __getattribute__(self, name: str) -> Any:
        names = super().__getattribute__("attribute_map")
        return super().__getattribute__(names.get(name, name))


def _layer(framework: Any) -> Any:
    class Net(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.config = Config()

        @inference(fallback="error")
        def forward(self, x: Any) -> Any:
            return x * self.config.hidden_size

        @inference()
        def setting(self, x: Any) -> Any:
            self.config.layers = 2
            return x * 3

    return Net()


def _value(framework: Any, method: Any) -> float:
    with framework.no_grad():
        return float(np.asarray(method(framework.ones([2])))[0])


def test_the_attribute_behind_the_name_is_watched(framework: Any) -> None:
    layer = _layer(framework)
    assert [_value(framework, layer) for _ in range(2)] == [4, 4]
    layer.config.hidden_size = 5
    assert [_value(framework, layer) for _ in range(2)] == [5, 5]
    layer.config.n_embd = 6
    assert [_value(framework, layer) for _ in range(2)] == [6, 6]
    layer.config.other = 7
    assert _value(framework, layer) == 6 and counts()["captures"] == 3 and counts()["eager_calls"] == 0


def test_the_attribute_behind_the_name_is_set_again(framework: Any) -> None:
    layer = _layer(framework)
    for before in (2, 2, 5, 2, 7):
        layer.config.n_layer = before
        assert _value(framework, layer.setting) == 3
        assert layer.config.layers == 2, before


class Checked(Config):
    """Looks into its dict for one entry before each of its attributes, and for all of them where it is asked to."""

    def __getattribute__(self, name: str) -> Any:
        held = super().__getattribute__("__dict__")
        if "locked" in held and held["locked"] == name:
            return -1
        if held.get("count_all") is not None and name == "total":
            return float(len({**held}))
        return super().__getattribute__(name)


def _checked(framework: Any) -> Any:
    class Net(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.config = Checked()

        @inference(fallback="error")
        def forward(self, x: Any) -> Any:
            return x * self.config.hidden_size

        @inference(fallback="error")
        def total(self, x: Any) -> Any:
            return x * self.config.total

        @inference(fallback="error")
        def all_of_it(self, x: Any) -> Any:
            return x * len(self.config.__dict__)

    return Net()


def _as_of_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_reads, "_of_library", lambda value, frame: frame.f_code.co_name == "__getattribute__")
    monkeypatch.setattr(_reads, "_looks_into_dicts", lambda kind: False)
    monkeypatch.setattr(_reads, "_CLASSES", weakref.WeakKeyDictionary())  # made as of the program, in other tests


def test_what_an_accessor_of_a_library_looks_for_in_the_dict_is_all_that_counts_of_it(
    framework: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _as_of_a_library(monkeypatch)
    layer = _checked(framework)
    assert [_value(framework, layer) for _ in range(2)] == [4, 4]
    layer.config.other = 7
    layer.config.path = "/elsewhere"
    assert _value(framework, layer) == 4 and counts()["captures"] == 1
    layer.config.locked = "n_embd"
    assert [_value(framework, layer) for _ in range(2)] == [4, 4]  # the name behind it is what super() is asked for
    layer.config.locked = "hidden_size"
    assert [_value(framework, layer) for _ in range(2)] == [-1, -1]
    assert counts()["captures"] == 3 and counts()["eager_calls"] == 0


class AsDict(Config):
    """Asks whether it is a dict, and looks past its methods."""

    def __getattribute__(self, name: str) -> Any:
        held = super().__getattribute__("__dict__")
        if name == "hidden_size" and isinstance(held, dict) and dict.get(held, "locked"):
            return -1
        return super().__getattribute__(name)


class Past(Config):
    """Looks past every class behind it."""

    def __getattribute__(self, name: str) -> Any:
        if name == "hidden_size" and "locked" in object.__getattribute__(self, "__dict__"):
            return -1
        return super().__getattribute__(name)


@pytest.mark.parametrize("kind", [AsDict, Past])
def test_an_accessor_of_the_program_may_look_into_the_dict_in_any_way(framework: Any, kind: type[Any]) -> None:
    layer = _checked(framework)
    layer.config = kind()
    assert [_value(framework, layer) for _ in range(2)] == [4, 4]
    layer.config.locked = 1
    assert [_value(framework, layer) for _ in range(2)] == [-1, -1]


@pytest.mark.parametrize("library", [True, False])
def test_an_accessor_that_looks_at_all_of_the_dict_depends_on_all_of_it(
    framework: Any, library: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if library:
        _as_of_a_library(monkeypatch)
    layer = _checked(framework)
    layer.config.count_all = True
    assert [_value(framework, layer.total) for _ in range(2)] == [4, 4]
    layer.config.path = "/elsewhere"
    assert [_value(framework, layer.total) for _ in range(2)] == [5, 5]
    assert [_value(framework, layer.all_of_it) for _ in range(2)] == [5, 5]
    layer.config.more = 1
    assert _value(framework, layer.all_of_it) == 6 == _value(framework, layer.total)
