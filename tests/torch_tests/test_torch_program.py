"""A decorated layer in the rest of a program: copies, pickles, other tracers, autocast, other decorated methods."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import sys
import types
import weakref
from types import FrameType
from typing import Any

import pytest
import torch
from torch_support import Block, counts, same, served, twice

import hybrid_infer
from hybrid_infer import inference, is_inference_mode

X = torch.linspace(-1, 1, 8).reshape(2, 4)


class Picklable(Block):
    forward = inference(fallback="error", cache_static_model=False)(Block.forward)


def block() -> Any:
    class Hot(Block):
        forward = inference(fallback="error")(Block.forward)

    return Hot()


@pytest.mark.parametrize("make", [block, lambda: inference(Block(), fallback="error")], ids=["class", "instance"])
def test_a_deep_copy_is_a_layer_of_its_own(make: Any) -> None:
    layer = make()
    twice(layer, Block.forward.__get__(layer), X)
    other = copy.deepcopy(layer)
    assert is_inference_mode(other)
    with torch.no_grad():
        other.linear.weight.zero_()
    twice(other, Block.forward.__get__(other), X)
    twice(layer, Block.forward.__get__(layer), X)
    served(captures=1, bindings=2)


@pytest.mark.parametrize("make", [Picklable, lambda: inference(Block(), fallback="error")], ids=["class", "instance"])
def test_pickles_and_state_dicts(make: Any) -> None:
    layer = make()
    twice(layer, Block.forward.__get__(layer), X)
    other = pickle.loads(pickle.dumps(layer))
    twice(other, Block.forward.__get__(layer), X)
    assert is_inference_mode(other)
    held = io.BytesIO()
    torch.save(layer.state_dict(), held)
    held.seek(0)
    other.load_state_dict({k: v * 0 for k, v in torch.load(held).items()})
    with torch.no_grad():
        assert not other(X).any()


class Private(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.__double(x)

    def __double(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * 2

    def accelerate(self) -> None:
        self.__double = inference(self.__double, fallback="error")


class Overridden(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -super().forward(x)


def tripled(layer: Block, x: torch.Tensor) -> torch.Tensor:
    return layer.linear(x) * 3


def private() -> Any:
    layer = Private()
    layer.accelerate()
    return layer


def of_a_base() -> Any:
    layer = Overridden()
    layer.forward = inference(super(Overridden, layer).forward, fallback="error")
    return layer


def given() -> Any:
    layer = Block()
    layer.forward = inference(types.MethodType(tripled, layer), fallback="error")
    return layer


@pytest.mark.parametrize("make", [private, of_a_base, given])
@pytest.mark.parametrize("static", [False, True])
def test_a_method_that_its_class_has_under_no_such_name_is_pickled(
    make: Any, static: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if static:
        monkeypatch.setitem(globals(), "inference", lambda method, **_: hybrid_infer.to_static(method))
    layer = make()
    with torch.no_grad():
        expected = layer(X)
        other = pickle.loads(pickle.dumps(layer))
        for _ in range(2):
            same(other(X), expected)
    assert sum(found["hits"] for found in hybrid_infer.stats().values()) >= 2


def test_one_that_nobody_finds_again_is_refused_where_it_is_pickled() -> None:
    layer = Block()
    layer.forward = inference(types.MethodType(lambda self, x: self.linear(x), layer))
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(layer)


def test_inner_decorated_methods_are_transparent_in_an_outer_capture() -> None:
    class Inner(Block):
        @inference(fallback="error")
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x)

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def compute(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) + self.helper(x)

        @inference(fallback="error")
        def helper(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        forward = inference(fallback="error", verify="off")(compute)

    layer = Outer()
    with torch.no_grad():
        expected = torch.relu(layer.inner.linear(X)) + X * 2
        for _ in range(2):
            same(layer(X), expected)
        served(captures=1, part="Outer")
        assert len(hybrid_infer.stats()) == 1
        same(layer.inner(X), torch.relu(layer.inner.linear(X)))
    assert all(found["eager_calls"] == 0 for found in hybrid_infer.stats().values())


def test_other_tracers_and_transforms_see_the_eager_method() -> None:
    layer = block().requires_grad_(False)
    eager = Block.forward.__get__(layer)
    exported = torch.export.export(layer, (X,), strict=False)
    same(exported.module()(X), eager(X))
    strict = torch.export.export(layer, (X,), strict=True)
    same(strict.module()(X), eager(X))
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    same(compiled(X), eager(X))
    same(torch.vmap(layer)(X), eager(X))
    made = torch.fx.experimental.proxy_tensor.make_fx(layer)(X)
    same(made(X), eager(X))
    traced = torch.jit.trace(layer, X, check_trace=False)
    same(traced(X), eager(X))
    for function in (layer, eager):
        result, tangent = torch.func.jvp(function, (X,), (torch.ones_like(X),))
        same(result, eager(X))
        same(tangent, torch.func.jvp(eager, (X,), (torch.ones_like(X),))[1])
    forward = torch.autograd.forward_ad
    with forward.dual_level():
        found = forward.unpack_dual(layer(forward.make_dual(X, torch.ones_like(X))))
        same(found.tangent, tangent)
    assert counts()["captures"] == 0 and counts()["eager_calls"] == 0
    twice(layer, eager, X)
    served(captures=1)


def test_autocast_is_honoured_and_guarded() -> None:
    layer = block()
    eager = Block.forward.__get__(layer)
    twice(layer, eager, X)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(2):
            found = layer(X)
            assert found.dtype is torch.bfloat16
            same(found, eager(X), 2e-2)
    twice(layer, eager, X)
    served(captures=2)


class Delicate(Block):
    """What models switch autocast off around; nothing is on that this would switch off."""

    @torch.autocast("cuda", enabled=False)
    def angles(self, x: torch.Tensor) -> torch.Tensor:
        return x.float().cos()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False), torch.autocast("cpu", enabled=False):
            x = self.linear(x) * (2 if torch.is_autocast_enabled("cpu") else 3)
        return torch.relu(x) @ self.angles(x).T


def test_autocast_switched_off_where_none_is_on_is_no_context() -> None:
    layer = Delicate().eval()
    eager = copy.deepcopy(layer)
    twice(inference(layer), eager, X)
    served(captures=1)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        same(layer(X), eager(X), 2e-2)
        assert layer(X).dtype is torch.bfloat16
    served(captures=2)


def test_the_default_dtype_is_guarded() -> None:
    def widened(x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.get_default_dtype()) * 2

    hot = inference(fallback="error")(widened)
    twice(hot, widened, X)
    try:
        torch.set_default_dtype(torch.float64)
        twice(hot, widened, X)
    finally:
        torch.set_default_dtype(torch.float32)
    twice(hot, widened, X)
    served(captures=2)


def test_a_dropped_layer_is_freed_with_its_state() -> None:
    kind = type(block())
    layer = kind()
    twice(layer, Block.forward.__get__(layer), X)
    method = kind.forward.__hybrid_infer__
    assert len(method.states) == 1
    references = [weakref.ref(layer), weakref.ref(layer.linear.weight), weakref.ref(method.states[id(layer)][1])]
    del layer
    gc.collect()
    assert [r() for r in references] == [None] * 3 and not method.states


def test_a_wrapped_instance_is_freed_too() -> None:
    layer = inference(Block())
    twice(layer, Block.forward.__get__(layer), X)
    reference = weakref.ref(layer)
    del layer
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize(
    ("verify", "runs"),
    [("build", [1, 0, 0, 0]), ("first", [1, 0, 1, 0]), ("always", [1, 1, 1, 1]), ("off", [0, 0, 0, 0])],
)
def test_how_often_the_eager_method_is_run_for_verification(verify: str, runs: list[int]) -> None:
    class Hot(Block):
        forward = inference(verify=verify, fallback="error")(Block.forward)

    eager: list[Any] = []

    def noted(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is Block.forward.__code__:
            eager.append(torch._guards.detect_fake_mode((frame.f_locals["x"],)))

    layers, found = [Hot(), Hot()], []
    with torch.no_grad():
        for layer in layers:
            for _ in range(2):
                del eager[:]
                sys.setprofile(noted)
                try:
                    layer(X)
                finally:
                    sys.setprofile(None)
                found.append(eager.count(None))
    assert found == runs
    served(captures=1, bindings=2)


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_recurrent_layers_are_served(kind: type[torch.nn.Module]) -> None:
    """They hold their parameters twice, and make the second list anew when they meet others: a tracer's."""

    class Reader(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = kind(4, 8, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.rnn(x)[0]

    eager = Reader().eval()
    hot = inference(copy.deepcopy(eager))
    x = torch.randn(2, 3, 4)
    twice(hot, eager, x)
    served(1)
    with torch.no_grad():
        for layer in (eager, hot):
            layer.rnn.weight_hh_l0.mul_(2)
    twice(hot, eager, x)
    served(1)
