"""Functions whose first argument is a layer, or an object that holds layers: they are methods of that argument."""

from __future__ import annotations

import functools
import gc
import logging
import weakref
from dataclasses import dataclass
from types import MethodType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support import counts, eagerly, layer_class, served

from hybrid_infer import (
    CaptureError,
    InputSpec,
    SpecError,
    explain,
    inference,
    is_inference_mode,
    load,
    release,
    save,
    stats,
    to_static,
    warmup,
)
from hybrid_infer._frontends import holds_layers


def made(framework: Any) -> Any:
    """A layer with one linear layer, a factor and a method."""

    class Layer(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.factor = framework.nn.Linear(4, 4), 2.0

        def helped(self, x: Any) -> Any:
            return x * self.factor

        def forward(self, x: Any) -> Any:
            return self.helped(self.linear(x))

    layer = Layer()
    layer.eval()
    return layer


def step(model: Any, x: Any, *, shift: float = 1.0) -> Any:
    return model(x) + shift


def right(framework: Any, hot: Any, eager: Any, *args: Any, **kwargs: Any) -> None:
    """Two calls, each with the eager result."""
    with framework.no_grad():
        expected = eager(*args, **kwargs).numpy()
        for _ in range(2):
            np.testing.assert_allclose(hot(*args, **kwargs).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_each_layer_is_served_with_its_own_weights(framework: Any) -> None:
    hot, one, two, x = inference(step), made(framework), made(framework), framework.randn([2, 4])
    for layer in (one, two, one):
        right(framework, hot, step, layer, x)
    served(captures=1, bindings=2)
    with framework.no_grad():
        one.linear.weight.copy_(two.linear.weight) if framework.__name__ == "torch" else one.linear.weight.set_value(
            two.linear.weight * 1
        )
    right(framework, hot, step, one, x)
    right(framework, hot, step, two, x)
    two.factor = 5.0
    right(framework, hot, step, two, x)
    right(framework, hot, step, one, x)
    served(captures=2)


def test_arguments_by_name_and_defaults(framework: Any) -> None:
    hot, layer, x = inference(step), made(framework), framework.randn([2, 4])
    right(framework, hot, step, layer, x=x)
    right(framework, hot, step, model=layer, x=x)
    right(framework, hot, step, x=x, model=layer)
    served(captures=1)
    right(framework, hot, step, layer, x, shift=3.0)
    served(captures=2)
    with pytest.raises(TypeError):
        hot(layer)
    with pytest.raises(TypeError):
        hot(layer, x, model=layer)


def test_what_a_layer_does_is_followed(framework: Any) -> None:
    hot, layer, x = inference(step), made(framework), framework.randn([2, 4])
    kind = type(layer)
    right(framework, hot, step, layer, x)
    layer.helped = lambda y: y - 1
    right(framework, hot, step, layer, x)
    del layer.helped
    right(framework, hot, step, layer, x)
    kind.helped = lambda self, y: y * 7
    right(framework, hot, step, layer, x)
    served(captures=3)


def test_hooks_of_the_layer_run_inside(framework: Any) -> None:
    hot, layer, x = inference(step), made(framework), framework.randn([2, 4])
    right(framework, hot, step, layer, x)
    post = "register_forward_hook" if framework.__name__ == "torch" else "register_forward_post_hook"
    handle = getattr(layer, post)(lambda layer, given, result: result * 2)
    right(framework, hot, step, layer, x)
    handle.remove()
    before = counts()["hits"]
    right(framework, hot, step, layer, x)
    assert counts()["captures"] == 1 and counts()["hits"] == before + 2


def test_objects_that_hold_layers(framework: Any) -> None:
    @dataclass
    class Pair:
        one: Any
        two: Any

    class Plain:
        def __init__(self, one: Any, two: Any) -> None:
            self.one, self.two = one, two

    @inference
    def through(models: Any, x: Any) -> Any:
        return models.two(models.one(x))

    x = framework.randn([2, 4])
    one, two = made(framework), made(framework)
    for models in (Pair(one, two), Plain(two, one)):
        right(framework, through, through.__wrapped__, models, x)
    served(captures=2)  # of two classes


def test_a_function_that_becomes_a_method(framework: Any) -> None:
    def forward(self: Any, x: Any) -> Any:
        return self.linear(x) * 3

    layer, x = made(framework), framework.randn([2, 4])
    kind = type(layer)
    kind.forward = inference(forward)
    assert is_inference_mode(layer) and "none yet" in str(explain(layer))
    right(framework, layer, lambda x: forward(layer, x), x)
    served(captures=1)
    assert "1 captured" in str(explain(layer)) and "1 captured" in str(explain(kind.forward))

    class Plain:
        def __init__(self) -> None:
            self.inner = layer

    def call(self: Any, x: Any) -> Any:
        return self.inner.linear(x) - 1

    Plain.__call__ = inference(call)  # type: ignore[attr-defined]
    plain = Plain()
    right(framework, plain, lambda x: call(plain, x), x)
    assert counts("call")["captures"] == 1 and counts("call")["hits"] == 1


def test_layers_anywhere_else_are_named(framework: Any, caplog: pytest.LogCaptureFixture) -> None:
    @inference
    def last(x: Any, model: Any) -> Any:
        return model(x)

    x = framework.randn([2, 4])
    with caplog.at_level(logging.WARNING, "hybrid_infer"):
        right(framework, last, last.__wrapped__, x, made(framework))
    eagerly("argument `model` is a layer, of class ", "Layer, which only the first argument of a function can be")
    assert "Keep layers as attributes of one layer or object, and pass that first" in caplog.text

    @inference(fallback="error")
    def two(one: Any, other: Any, x: Any) -> Any:
        return other(one(x))

    with framework.no_grad(), pytest.raises(CaptureError, match="argument `other` is a layer"):
        two(made(framework), made(framework), x)


def test_functions_of_tensors_stay_what_they_were(framework: Any) -> None:
    layer, x = made(framework), framework.randn([2, 4])

    @inference
    def either(value: Any, other: Any) -> Any:
        return (value(other) if callable(value) else value) + other

    right(framework, either, either.__wrapped__, x, x)
    right(framework, either, either.__wrapped__, layer, x)
    right(framework, either, either.__wrapped__, x, x)
    right(framework, either, either.__wrapped__, value=x, other=x)
    served(captures=2)
    right(framework, either, either.__wrapped__, 2.0, x)
    held = SimpleNamespace(t=x)
    right(framework, inference(lambda given, y: given.t + y), lambda given, y: given.t + y, held, x)
    assert all(not each["eager_calls"] for each in (counts("either"), counts("<lambda>")))


def test_a_layer_is_not_kept(framework: Any) -> None:
    hot, layer, x = inference(step), made(framework), framework.randn([2, 4])
    right(framework, hot, step, layer, x)
    gone = weakref.ref(layer)
    del layer
    gc.collect()
    assert gone() is None and len(hot.__hybrid_infer__.owned.states) == 0


def test_warmup_save_and_release(framework: Any, tmp_path: Any) -> None:
    hot, one, two = inference(step), made(framework), made(framework)
    x = framework.randn([3, 4])
    warmed = warmup(hot, [one, InputSpec([None, 4])], {"model": two, "x": x})
    assert [each.outcome for each in warmed] == ["compiled", "loaded"]
    assert [each.arguments for each in warmed] == [f"x: float32 ({n}, 4); shift: 1.0" for n in ("any", 3)]
    assert [each.outcome for each in warmup(MethodType(hot, one), [x])] == ["ready"]
    right(framework, hot, step, one, x)
    served(captures=1)
    with pytest.raises(SpecError, match="called with 2 layers"):
        save(hot, str(tmp_path / "which"))
    save(hot, str(tmp_path / "one"), [one])
    save(hot, str(tmp_path / "two"), [two, InputSpec([None, 4])])
    save(step, str(tmp_path / "undecorated"), [two, InputSpec([None, 4])])
    save(MethodType(hot, one), str(tmp_path / "bound"))
    for name, layer in (("one", one), ("two", two), ("undecorated", two), ("bound", one)):
        right(framework, load(str(tmp_path / name)), lambda x, layer=layer: step(layer, x), x)
    release(hot)
    right(framework, hot, step, one, x)
    release(MethodType(hot, one))
    right(framework, hot, step, one, x)
    assert counts()["eager_calls"] == 0


def test_a_function_that_was_called_with_one_layer_is_saved_with_it(framework: Any, tmp_path: Any) -> None:
    hot, layer = inference(step), made(framework)
    x = framework.randn([3, 4])
    right(framework, hot, step, layer, x)
    save(hot, str(tmp_path / "saved"))
    right(framework, load(str(tmp_path / "saved")), lambda x: step(layer, x), x)


def test_input_spec_is_of_the_other_arguments(framework: Any) -> None:
    hot, layer = inference(step, input_spec=[InputSpec([None, 4])]), made(framework)
    for size in (3, 5):
        right(framework, hot, step, layer, framework.randn([size, 4]))
    served(captures=1)


def test_to_static_trains_and_serves_it(framework: Any) -> None:
    def loss(model: Any, x: Any) -> Any:
        return (model(x) ** 2).mean()

    hot, layer, x = to_static(loss), made(framework), framework.randn([2, 4])
    layer.train()
    for named in (False, True):
        (hot(model=layer, x=x) if named else hot(layer, x)).backward()
        assert layer.linear.weight.grad is not None
        layer.clear_gradients() if framework.__name__ == "paddle" else layer.zero_grad()
    assert counts()["captures"] == 0
    layer.eval()
    right(framework, hot, loss, layer, x)
    served(captures=1)


def test_gradients(framework: Any) -> None:
    hot, layer = inference(step), made(framework)
    found = []
    for function in (hot, hot, step):
        x = framework.ones([2, 4])
        x.stop_gradient = False
        x.requires_grad = True
        function(layer, x).sum().backward()
        found.append((x.grad.numpy(), layer.linear.weight.grad.numpy().copy()))
        layer.clear_gradients() if framework.__name__ == "paddle" else layer.zero_grad()
    for one, other in zip(found[0] + found[1], found[2] * 2, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


class Refusing:
    """Stands for what is not there, and raises whatever it is asked."""

    def __getattribute__(self, name: str) -> Any:
        raise ImportError(name)


def test_odd_parameters_and_objects(framework: Any) -> None:
    layer, x = made(framework), framework.randn([2, 4])
    positional = inference(lambda model, /, x: model(x))
    right(framework, positional, lambda model, x: model(x), layer, x)
    right(framework, positional, lambda model, x: model(x), layer, x=x)
    every = inference(lambda *args, **others: args[0](args[1]) + sum(others.values()))
    right(framework, every, every.__wrapped__, layer, x)
    right(framework, every, every.__wrapped__, layer, x, args=x)
    assert not any(each["eager_calls"] for each in stats().values())
    for wrong in (inference(lambda: x), inference(lambda *, model: model(x))):
        with pytest.raises(TypeError, match="positional argument"):
            wrong(layer)
    named = inference(lambda **given: given["model"](x))
    with framework.no_grad():
        assert named(model=layer).shape == x.shape

    assert not holds_layers(SimpleNamespace(absent=Refusing())) and holds_layers(SimpleNamespace(layer=layer))
    assert not holds_layers(Refusing()) and not holds_layers(None)


@dataclass
class Request:
    model: Any
    x: Any


def test_objects_that_are_made_anew_at_each_call_are_left_alone(
    framework: Any, caplog: pytest.LogCaptureFixture
) -> None:
    @inference
    def answer(request: Request) -> Any:
        return request.model(request.x) + 1

    layer, x = made(framework), framework.randn([2, 4])
    with framework.no_grad(), caplog.at_level(logging.WARNING, "hybrid_infer"):
        expected = answer.__wrapped__(Request(layer, x)).numpy()
        for _ in range(12):
            np.testing.assert_allclose(answer(Request(layer, x)).numpy(), expected, rtol=1e-5, atol=1e-6)
        found = counts()
        assert found["captures"] == 1 and found["bindings"] <= 4 and found["eager_calls"] == 8, found
        assert "it is given another object with layers at each call" in caplog.text
        kept = Request(layer, x)  # one that stays is found out in the end
        for _ in range(66):
            np.testing.assert_allclose(answer(kept).numpy(), expected, rtol=1e-5, atol=1e-6)
    assert counts()["captures"] == 1 and counts()["hits"] > 0
    assert len(answer.__hybrid_infer__.owned.states) == 1


def test_layers_that_come_and_go_are_each_served(framework: Any) -> None:
    hot, x = inference(step), framework.randn([2, 4])
    for _ in range(8):
        right(framework, hot, step, made(framework), x)
    assert counts()["eager_calls"] == 0 and counts()["captures"] == 1


def test_what_takes_no_weak_references_is_named(framework: Any) -> None:
    hot = inference(lambda models, x: models.every[0](x))
    layer, x = made(framework), framework.randn([2, 4])
    right(framework, hot, hot.__wrapped__, SimpleNamespace(every=[layer]), x)
    eagerly("nothing would tell when its SimpleNamespace is gone, which takes no weak references")
    with pytest.raises(TypeError, match="nothing would tell when its SimpleNamespace is gone"):
        warmup(hot, [SimpleNamespace(every=[layer]), x])


class Held:
    def __init__(self, value: Any) -> None:
        self.value = value


def test_objects_of_one_class_with_a_layer_and_without(framework: Any) -> None:
    def applied(held: Held, x: Any) -> Any:
        return held.value(x) if callable(held.value) else x + held.value

    hot, layer, x = inference(applied), made(framework), framework.randn([2, 4])
    plain, holder = Held(x), Held(layer)
    for held in (plain, holder, plain, holder, plain):  # the first call with a layer finds it out
        right(framework, hot, applied, held, x)
    assert counts()["eager_calls"] == 1 and counts()["captures"] == 2 and counts()["hits"] > 4


def test_a_layer_among_several_arguments_by_name(framework: Any) -> None:
    def both(model: Any, x: Any, other: Any = None) -> Any:
        return model(x)

    hot, layer, x = inference(both), made(framework), framework.randn([2, 4])
    [warmed] = warmup(hot, {"model": layer, "x": x, "other": None})
    assert warmed.outcome == "compiled"
    with pytest.raises(SpecError, match="the argument `other`"):
        warmup(hot, {"model": layer, "x": x, "other": layer})


def test_a_wrapper_is_passed_what_the_caller_passed(framework: Any) -> None:
    def named(function: Any) -> Any:
        @functools.wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs) * (2 if "model" in kwargs else 1)

        return inner

    wrapped = named(lambda model, x: model(x))
    hot, layer, x = inference(wrapped), made(framework), framework.randn([2, 4])
    right(framework, hot, wrapped, layer, x)
    right(framework, hot, wrapped, model=layer, x=x)
    right(framework, hot, wrapped, layer, x=x)
    right(framework, to_static(wrapped), wrapped, model=layer, x=x)


def test_a_first_parameter_called_self_is_nothing_special(framework: Any) -> None:
    hot = inference(lambda self, x: x * self)
    x = framework.randn([2, 4])
    right(framework, hot, hot.__wrapped__, 2.0, x)
    right(framework, hot, hot.__wrapped__, x, x)
    objects = inference(lambda self, x: x * self.value)
    for _ in range(4):
        right(framework, objects, objects.__wrapped__, Held(x), x)
    assert not any(each["eager_calls"] for each in stats().values())
    assert sum(each["captures"] for each in stats().values()) == 3


GLOBAL: Any = None


def with_a_global(model: Any, x: Any) -> Any:
    return model(x) + GLOBAL(x)


def test_a_layer_that_the_function_names_as_well(framework: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = made(framework), made(framework)
    monkeypatch.setitem(globals(), "GLOBAL", one)
    hot, x = inference(with_a_global), framework.randn([2, 4])
    for layer in (other, one, other, one):
        right(framework, hot, with_a_global, layer, x)
    assert counts()["eager_calls"] == 0 and counts()["captures"] == 2
