"""Objects that stand for a package that is not installed, and raise whatever they are asked."""

from __future__ import annotations

import types
from typing import Any

import pytest
from support import layer_class, served

import hybrid_infer
from hybrid_infer import inference
from hybrid_infer.fingerprint._framework_code import Named


class Missing(Exception):
    pass


class Lazy:
    def __getattr__(self, name: str) -> Any:
        raise Missing("the optional package is not there")

    def __call__(self, *given: Any) -> Any:
        raise Missing("the optional package is not there")


class Meta(type):
    def __getattr__(cls, name: str) -> Any:
        raise Missing("the optional package is not there")


class LazyClass(metaclass=Meta):
    pass


class LazyModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        raise Missing("the optional package is not there")


OBJECTS: list[Any] = [Lazy(), LazyClass, LazyModule("lazy")]
NAMES = ["object", "class", "module"]


@pytest.mark.parametrize("lazy", OBJECTS, ids=NAMES)
def test_code_that_names_one_and_does_not_use_it(framework: Any, lazy: Any) -> None:
    class Layer(layer_class(framework)):  # type: ignore[misc]
        optional = lazy
        fast = False

        @inference(backend="onnxruntime")
        def forward(self, x: Any) -> Any:
            return lazy.fast(x) if self.fast else x * 2

    layer = Layer()
    layer.eval()
    with framework.no_grad():
        for rows in (2, 2, 3):
            assert layer(framework.ones([rows])).tolist() == [2.0] * rows
        layer.fast = True
        with pytest.raises(Missing):
            layer(framework.ones([2]))
        layer.fast = False
        assert layer(framework.ones([2])).tolist() == [2.0] * 2
    assert "onnxruntime" in str(hybrid_infer.explain(layer))


@pytest.mark.parametrize("lazy", OBJECTS, ids=NAMES)
def test_one_that_is_a_default(framework: Any, lazy: Any) -> None:
    def method(x: Any, optional: Any = lazy) -> Any:
        return x * 2

    hot = inference(method, backend="onnxruntime")
    with framework.no_grad():
        for _ in range(3):
            assert hot(framework.ones([2])).tolist() == [2.0] * 2
    served(captures=1)


@pytest.mark.parametrize("lazy", OBJECTS, ids=NAMES)
def test_one_in_a_namespace_of_a_library(lazy: Any) -> None:
    named = Named({"optional": lazy}, "monai.utils", "optional", lazy)
    assert named.holds() and not named.at_home()
    assert named.label().rpartition(":")[2] in ("Lazy", "LazyClass", "LazyModule")
