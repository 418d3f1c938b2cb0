"""A function of the framework that the program has replaced is a part of the program."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
from support import layer_class

from hybrid_infer import explain, inference, stats


def fresh(framework: Any) -> Any:
    nn = framework.nn

    class Linear(layer_class(framework)):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def compute(self, x: Any) -> Any:
            return self.inner(x)

        @inference
        def forward(self, x: Any) -> Any:
            return self.compute(x)

    layer = Linear()
    layer.eval()
    return layer


def alike(framework: Any, layer: Any) -> None:
    x = framework.linspace(-1, 1, 8).reshape((2, 4))
    with framework.no_grad():
        expected = layer.compute(x).numpy()
        for _ in range(2):
            assert abs(layer(x).numpy() - expected).max() < 1e-5


def test_programs_with_and_without_it_share_nothing(framework: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    functional = framework.nn.functional
    linear = functional.linear
    for factor in (2.0, 3.0, 2.0):
        with monkeypatch.context() as patched:
            patched.setattr(functional, "linear", lambda *a, _n=factor, **k: linear(*a, **k) * _n)
            layer = fresh(framework)
            alike(framework, layer)
        alike(framework, layer)  # as it was: seen by the same instance
        alike(framework, fresh(framework))
    [counts] = stats().values()
    assert counts["captures"] == 3


def test_a_property_of_tensors_counts_as_a_function_does(framework: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Transposes(layer_class(framework)):  # type: ignore[misc, valid-type]
        def compute(self, x: Any) -> Any:
            return x.T + 1

        @inference
        def forward(self, x: Any) -> Any:
            return self.compute(x)

    alike(framework, Transposes())
    for factor in (2.0, 3.0):
        with monkeypatch.context() as patched:
            patched.setattr(framework.Tensor, "T", property(lambda x, _n=factor: x * _n), raising=False)
            alike(framework, Transposes())
    alike(framework, Transposes())


@pytest.mark.parametrize("where", ["function", "class"])
def test_what_a_layer_of_the_framework_computes_by_may_be_replaced_at_any_time(
    framework: Any, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nn, layer = framework.nn, fresh(framework)
    alike(framework, layer)
    for factor in (2.0, 3.0):
        with monkeypatch.context() as patched:
            if where == "class":
                patched.setattr(nn.Linear, "forward", lambda _, x, _n=factor: x * _n)
            else:
                patched.setattr(nn.functional, "linear", lambda x, *_a, _n=factor, **_k: x * _n)
            alike(framework, layer)
        alike(framework, layer)
    [counts] = stats().values()
    assert counts["captures"] == 3


class Scaled:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, x: Any, *_a: Any, **_k: Any) -> Any:
        return x * self.factor

    def method(self, x: Any, *_a: Any, **_k: Any) -> Any:
        return x * self.factor


def scaled(factor: float, x: Any, *_a: Any, **_k: Any) -> Any:
    return x * factor


def scaled_by_layer(layer: Any, factor: float, x: Any) -> Any:
    return x * factor


@pytest.mark.parametrize("form", ["object", "method", "partial"])
def test_what_an_object_in_its_place_holds_may_change(
    framework: Any, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Scaled(2.0)
    forms = {"object": held, "method": held.method, "partial": functools.partial(Scaled.method, held)}
    monkeypatch.setattr(framework.nn.functional, "linear", forms[form])
    layer = fresh(framework)
    for factor in (2.0, 3.0, 2.0):
        held.factor = factor
        alike(framework, layer)


OTHERS: dict[str, Callable[[float], Any]] = {
    "partial": lambda factor: functools.partial(scaled, factor),
    "object": Scaled,
    "method": lambda factor: Scaled(factor).method,
    "partialmethod": lambda factor: functools.partialmethod(scaled_by_layer, factor),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_put_there_need_not_be_a_function(
    framework: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nn, layer = framework.nn, fresh(framework)
    alike(framework, layer)
    where, name = (nn.Linear, "forward") if kind == "partialmethod" else (nn.functional, "linear")
    for factor in (2.0, 3.0):
        with monkeypatch.context() as patched:
            patched.setattr(where, name, OTHERS[kind](factor))
            alike(framework, layer)
        alike(framework, layer)


def test_it_may_be_the_frameworks_own_by_another_name(framework: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nn, layer = framework.nn, fresh(framework)
    alike(framework, layer)
    with monkeypatch.context() as patched:
        patched.setattr(nn.Linear, "forward", nn.Identity.forward)
        alike(framework, layer)
    alike(framework, layer)


def test_so_may_a_function_that_one_of_its_functions_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")

    class Attending(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.MultiheadAttention(4, 2, batch_first=True)

        def compute(self, x: Any) -> Any:
            return self.inner(x, x, x, need_weights=False)[0]

        @inference
        def forward(self, x: Any) -> Any:
            return self.compute(x)

    layer, x = Attending(), torch.linspace(-1, 1, 24).reshape(2, 3, 4)
    for _ in range(2):
        layer(x)
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", lambda q, k, v, *_a, **_k: v * 5)
    expected = layer.compute(x)
    for _ in range(2):
        assert torch.allclose(layer(x), expected, atol=1e-5)


def naming(framework: Any) -> Any:
    """A layer whose own code names functions of the framework, in several ways."""
    functional = framework.nn.functional

    class Naming(layer_class(framework)):  # type: ignore[misc, valid-type]
        def compute(self, x: Any) -> Any:
            return functional.relu(x) + framework.tanh(x) + framework.nn.functional.silu(x)

        @inference
        def forward(self, x: Any) -> Any:
            return self.compute(x)

    layer = Naming()
    layer.eval()
    return layer


@pytest.mark.parametrize("place", ["nn.functional.relu", "tanh", "nn.functional.silu"])
def test_a_function_that_code_names_may_be_replaced_at_any_time(
    framework: Any, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    layer = naming(framework)
    alike(framework, layer)
    monkeypatch.setattr(f"{framework.__name__}.{place}", lambda x: x * 3)
    alike(framework, layer)
    monkeypatch.setattr(f"{framework.__name__}.{place}", framework.cos)  # the framework's own, under another name
    alike(framework, layer)
    alike(framework, naming(framework))
    monkeypatch.undo()
    alike(framework, layer)
    [counts] = stats().values()
    assert counts["captures"] == 3 and not counts["fallbacks"]


def test_a_module_that_the_framework_imports_later_makes_no_difference(
    framework: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = types.ModuleType(f"{framework.__name__}.late")
    monkeypatch.setattr(late, "is_tensor", framework.is_tensor, raising=False)

    def compute(layer: Any, x: Any) -> Any:
        return framework.abs(layer.inner(x)) if layer.late is None or layer.late.is_tensor(x) else x

    def made() -> Any:
        layer = fresh(framework)
        layer.late = None
        monkeypatch.setattr(type(layer), "compute", compute)
        return layer

    alike(framework, made())
    monkeypatch.setattr(framework, "late", late, raising=False)
    alike(framework, made())
    [counts] = stats().values()
    assert counts["captures"] == 1
    monkeypatch.setattr(late, "is_tensor", lambda x: False)  # the program's own: a part of it
    alike(framework, made())
    assert next(iter(stats().values()))["captures"] == 2


def test_a_function_that_the_program_adds_to_the_framework(framework: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It alone is part of the key, not all that its module holds: the method is kept on disk, and a size may vary."""
    nn = framework.nn

    def twice(x: Any) -> Any:
        return x * 2

    monkeypatch.setattr(nn, "twice", twice, raising=False)

    class Adding(layer_class(framework)):  # type: ignore[misc, valid-type]
        @inference
        def forward(self, x: Any) -> Any:
            return nn.twice(x) + 1

    with framework.no_grad():
        for instance in range(2):
            layer = Adding()
            layer.eval()
            for rows in (2, 3, 4):
                x = framework.ones([rows, 4])
                assert layer(x).numpy() == pytest.approx(3.0)
            [counts] = stats().values()
            assert counts["captures"] == 2, (instance, counts)
    [method] = explain(layer).to_dict()["methods"]
    assert method["store"] is not None and all(version["key"] for version in method["versions"])
