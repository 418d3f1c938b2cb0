"""Objects whose class looks for another name than it was asked for, as the configurations of transformers do."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from support import counts, layer_class

from hybrid_infer import inference


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
