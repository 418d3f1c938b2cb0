"""Compilation ahead of calls: ``warmup()`` and the option ``input_spec``."""

from __future__ import annotations

import dataclasses
import doctest
import functools
import io
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch_support import Block, counts, same

import hybrid_infer
from hybrid_infer import CaptureError, InputSpec, SpecError, _background, _warmup, inference, stance, warmup

pytestmark = pytest.mark.torch

X = torch.linspace(-1, 1, 8).reshape(2, 4)


@dataclasses.dataclass(frozen=True)
class Pair:
    left: Any
    right: dict[str, Any]
    factor: float = 2.0


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def test_several_shapes_in_one_go_and_no_compilation_afterwards() -> None:
    layer = inference(Block())
    found = warmup(layer, [torch.ones(2, 4)], torch.ones(5, 4), {"x": InputSpec([1, 4])})
    assert [each.outcome for each in found] == ["compiled"] * 3
    assert found[2].arguments == "x: float32 (1, 4)" and found[0].seconds > 0 and not found[0].reason
    with stance("fail_on_compile"):
        for rows in (1, 2, 3, 5, 9, 9):  # the first 9 is compared: none of its magnitude was
            x = torch.rand(rows, 4)
            same(layer(x), Block.forward(layer, x))
    assert counts()["captures"] == 3 and counts()["hits"] == 5 and counts()["eager_calls"] == 0


def test_a_second_instance_and_a_second_time_have_less_to_do() -> None:
    one, two = inference(Block()), inference(Block())
    assert [warmup(each, X)[0].outcome for each in (one, one, two)] == ["compiled", "ready", "loaded"]


def test_an_open_dimension_is_open_at_once() -> None:
    layer = inference(Block())
    assert warmup(layer, InputSpec([None, 4]))[0].arguments == "x: float32 (any, 4)"
    with stance("fail_on_compile"):
        for rows in (2, 3, 50):
            same(layer(torch.ones(rows, 4)), Block.forward(layer, torch.ones(rows, 4)))
    assert counts()["captures"] == 1


def test_an_open_dimension_is_captured_where_only_its_size_was_known() -> None:
    layer = inference(Block())
    layer(X)
    assert warmup(layer, InputSpec([-1, 4]))[0].outcome == "compiled"
    assert warmup(layer, InputSpec([-1, 4]))[0].outcome == "ready"
    assert counts()["captures"] == 2


@inference
def attention(q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) + mask, -1)


def test_sizes_that_must_agree_are_found() -> None:
    found = warmup(attention, [InputSpec([None, None, 8]), InputSpec([None, None, 8]), InputSpec([None, None, None])])
    assert found[0].outcome == "compiled"
    q, k, mask = torch.rand(3, 7, 8), torch.rand(3, 7, 8), torch.zeros(3, 7, 7)
    with stance("fail_on_compile"):
        same(attention(q, k, mask), attention.__wrapped__(q, k, mask))


def test_a_method_among_several_with_a_nested_argument_and_a_plain_value() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(10, 4)

        @inference()
        def embed(self, batch: Any, scale: float = 1.0) -> Any:
            return {"y": self.table(batch["ids"]) * scale + batch["more"][0]}

        def forward(self, batch: Any) -> Any:
            return self.embed(batch)

    model = Model().eval()
    batch = {"ids": InputSpec([None, None], "int64"), "more": [InputSpec([4])]}
    assert [each.outcome for each in warmup(model.embed, [batch], [batch, 2.0])] == ["compiled", "compiled"]
    with stance("fail_on_compile"):
        real = {"ids": torch.tensor([[1, 9, 3]] * 2), "more": [torch.ones(4)]}
        for scale in (1.0, 2.0):
            same(model.embed(real, scale)["y"], model.table(real["ids"]) * scale + 1)
    with pytest.raises(TypeError, match="not decorated"):
        warmup(model, X)
    with pytest.raises(TypeError, match="of an instance"):
        warmup(Model.embed, X)


def test_what_cannot_be_served_is_in_the_summary_and_leaves_no_trace() -> None:
    seen: list[int] = []

    @inference
    def draws(x: torch.Tensor) -> torch.Tensor:
        seen.append(1)
        return x + torch.rand(2)

    found = warmup(draws, InputSpec([None, 2]))
    assert found[0].outcome == "eager" and found[0].reason
    assert not seen and counts()["eager_calls"] == 0
    with pytest.raises(CaptureError, match="draws"):
        warmup(inference(fallback="error")(draws.__wrapped__), X[:, :2])


def test_wrong_arguments_name_the_argument() -> None:
    layer = inference(Block())
    with pytest.raises(SpecError, match="the argument `x` of"):
        warmup(layer, [])
    with pytest.raises(SpecError, match="2 entries where"):
        warmup(layer, [X, X])
    with pytest.raises(SpecError, match=r"^inputs: it has no entry for the argument `x`"):
        warmup(layer, [])
    with pytest.raises(SpecError, match=r"^inputs\[1\]: by name, 'y' are given; the arguments of .* are `x`"):
        warmup(layer, [X], {"y": X})
    with pytest.raises(TypeError, match="at least one call"):
        warmup(layer)
    assert counts()["captures"] == 0


def test_the_stance_of_the_program_does_not_keep_a_warm_up_from_compiling() -> None:
    layer = inference(Block(), background=True)
    with stance("fail_on_compile"):
        assert warmup(layer, X)[0].outcome == "compiled"
        same(layer(X), Block.forward(layer, X))


def test_a_bar_at_a_terminal_and_nothing_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    layer = inference(Block())
    for kind in (Terminal, io.StringIO):
        stream = kind()
        monkeypatch.setattr(sys, "stderr", stream)
        warmup(layer, X, torch.ones(3, 4))
        shown = stream.getvalue()
        if kind is Terminal:
            assert "0/2 [          " in shown and "1/2 [#" in shown and "Block.forward" in shown
            assert shown.endswith("\r\x1b[K")
        else:
            assert shown == ""


def test_the_option_compiles_a_layer_when_it_is_decorated() -> None:
    layer = inference(Block(), input_spec=[InputSpec([None, 4], name="x")])
    assert counts()["captures"] == 1
    with stance("fail_on_compile"):
        for rows in (2, 7):
            same(layer(torch.ones(rows, 4)), Block.forward(layer, torch.ones(rows, 4)))


def test_the_option_compiles_for_a_class_before_the_first_call_of_an_instance() -> None:
    class Model(Block):
        @inference(input_spec=[X])
        def hot(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x)

    model = Model()
    assert counts()["captures"] == 0
    model.hot(torch.ones(1, 4))  # another one than the spec's
    with stance("fail_on_compile"):
        model.hot(X), model.hot(torch.ones(1, 4))
    assert counts()["captures"] == 2


def test_the_option_in_the_background() -> None:
    layer = inference(Block(), input_spec=[InputSpec([None, 4])], background=True)
    deadline = time.monotonic() + 60
    while (thread := _background._worker.thread) is not None and time.monotonic() < deadline:
        thread.join(0.1)
    layer(torch.ones(6, 4))
    assert counts()["captures"] == 1 and counts()["hits"] == 1 and counts()["eager_calls"] == 0


def test_the_option_waits_where_nothing_may_be_compiled() -> None:
    with stance("fail_on_compile"):
        layer = inference(Block(), input_spec=[X])
    assert counts()["captures"] == 0
    layer(torch.ones(1, 4))
    assert counts()["captures"] == 2


def test_a_spec_that_does_not_suit_the_method_is_refused_when_it_is_decorated() -> None:
    with pytest.raises(SpecError, match="2 entries where"):
        inference(Block(), input_spec=[X, X])


def test_options_with_specs_are_compared() -> None:
    layer = inference(Block(), input_spec=[X])
    forward = layer.forward
    assert inference(layer, input_spec=[X]).forward is forward


def test_the_example_of_the_docstring() -> None:
    results = doctest.testmod(_warmup)
    assert results.attempted > 3 and results.failed == 0
    assert hybrid_infer.warmup is warmup


class TakesPair(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, pair: Pair) -> torch.Tensor:
        return self.linear(pair.left) + pair.right["bias"] * pair.factor


def test_specs_and_examples_inside_of_a_dataclass() -> None:
    layer = inference(TakesPair().eval())
    spec = Pair(InputSpec([None, 4]), {"bias": InputSpec([4])})
    done = warmup(layer, [spec], [Pair(torch.ones(3, 4), {"bias": torch.ones(4)})])
    assert [each.outcome for each in done] == ["compiled", "ready"]
    assert done[0].arguments == "pair: Pair(left=float32 (any, 4), right={'bias': float32 (4)}, factor=2.0)"
    assert isinstance(spec.left, InputSpec), "the caller's own object is left as it was"
    pair = Pair(torch.rand(7, 4), {"bias": torch.rand(4)})
    same(layer(pair), TakesPair.forward(layer, pair))
    assert counts()["hits"] == 1


def test_specs_with_the_names_of_each_other_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    class Product(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a @ b

    for names, told in ((("a", "other"), False), (("b", "a"), True)):
        specs = [InputSpec([2, 3], name=names[0]), InputSpec([3, 4], name=names[1])]
        inference(Product().eval(), input_spec=specs)
        words = "the entry for `a` is named 'b', as another argument is: entries go by their places in input_spec"
        assert (words in caplog.text) is told


def test_an_input_spec_that_the_method_cannot_take_is_told_of_as_one(caplog: pytest.LogCaptureFixture) -> None:
    layer = inference(Block(), input_spec=[InputSpec([None, 5])])
    assert "is not compiled ahead for its input_spec (x: float32 (any, 5))" in caplog.text
    assert "If no call has such arguments, correct the rank, the sizes or the element type in input_spec" in caplog.text
    assert "runs eagerly" not in caplog.text
    same(layer(X), Block.forward(layer, X))
    assert counts()["captures"] == 1 and counts()["eager_calls"] == 0
    with pytest.raises(CaptureError):
        inference(Block(), input_spec=[InputSpec([None, 5])], fallback="error")


GIVEN: list[Any] = [{"x": X}, {"x": X, "bias": 2}, {"x": X, "scale": 4, "other": 3}, [X], [X, 3], [X, 3, 4, 5]]


@pytest.mark.parametrize("given", GIVEN, ids=lambda given: ",".join(given) if isinstance(given, dict) else len(given))
@pytest.mark.parametrize("wrapped", [False, True])
def test_arguments_by_name_alone_and_any_number_of_them(wrapped: bool, given: Any) -> None:
    def bare(x: Any, scale: Any = 2, *rest: Any, bias: int = 1, **more: Any) -> Any:
        return x * scale + bias + sum(rest) + sum(more.values())

    @functools.wraps(bare)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return bare(*args, **kwargs)

    hot = inference(wrapper if wrapped else bare)
    assert [each.outcome for each in warmup(hot, given)] == ["compiled"]
    args, kwargs = ((), given) if isinstance(given, dict) else (given, {})
    with stance("fail_on_compile"):
        same(hot(*args, **kwargs), bare(*args, **kwargs))
    assert counts()["captures"] == 1 and not counts()["fallbacks"]
