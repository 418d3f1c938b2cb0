"""Weights that TensorRT has copied, and writes to them that no counter tells: their values are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from backend_graphs import linear
from decorated import builds, check, engines, layer
from double import World
from host_memory import PaddleHost, TorchHost

import hybrid_infer
from hybrid_infer import inference
from hybrid_infer._errors import EngineError
from hybrid_infer._types import EngineOptions
from hybrid_infer.backends import engine
from hybrid_infer.frontends import _sampling, _torch_spread

torch = pytest.importorskip("torch")

ENGINE = engine("tensorrt")


def loaded(memory: Any, weights: Any, **more: Any) -> Any:
    return ENGINE.load(linear(), weights, EngineOptions(memory=memory, extra={"graphs": False}, **more))


def weights() -> list[Any]:
    return [torch.randn(4, 4), torch.randn(4)]


# The program


def test_a_write_that_moves_no_counter_ends_the_program(world: World, memory: TorchHost) -> None:
    w, b = weights()
    x = torch.randn(3, 4)
    program = loaded(memory, [w, b])
    torch.testing.assert_close(program.run([x])[0], x @ w.T + b)
    version = b._version
    b.data.add_(1)
    assert b._version == version
    with pytest.raises(EngineError, match="written to where no counter tells"):
        program.run([x])
    assert not program.usable() and program.outdated
    torch.testing.assert_close(loaded(memory, [w, b]).run([x])[0], x @ w.T + b)


def test_what_is_read_where_it_lies_is_not_compared(
    world: World, memory: TorchHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    spread: list[int] = []
    monkeypatch.setattr(TorchHost, "spread", lambda self, tensors: (spread.append(len(tensors)), lambda: bool)[1])
    world.stuck = {"w"}
    w, b = weights()
    loaded(memory, [w, b])
    loaded(memory, [w.T, b])  # one with gaps is copied, too
    loaded(memory, [], live=True)
    world.stuck = {"w", "b"}
    loaded(memory, [w, b])
    assert spread == [1, 2]


def test_nothing_is_waited_for_while_the_program_captures_a_graph(world: World, memory: TorchHost) -> None:
    w, b = weights()
    program = loaded(memory, [w, b])
    memory.under_capture = True
    b.data.add_(1)
    program.run([torch.randn(3, 4)])
    assert program.usable()


def test_the_plan_runs_before_the_answer_is_waited_for(
    world: World, memory: TorchHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def spread(self: Any, tensors: Any) -> Any:
        return lambda: (order.append("compared"), lambda: (order.append("waited for"), True)[1])[1]

    monkeypatch.setattr(TorchHost, "spread", spread)
    program = loaded(memory, weights())
    run = type(program)._run
    monkeypatch.setattr(type(program), "_run", lambda *given: (order.append("run"), run(*given))[1])
    program.run([torch.randn(3, 4)])
    assert order == ["compared", "run", "waited for"]


# The comparison


KINDS: dict[str, Callable[[], Any]] = {
    "large": lambda: torch.randn(300, 700),
    "half": lambda: torch.randn(33, 5).half(),
    "bfloat16": lambda: torch.randn(33, 5).bfloat16(),
    "one number": lambda: torch.randn(()),
    "channels last": lambda: torch.randn(8, 3, 5, 5).to(memory_format=torch.channels_last),
    "transposed": lambda: torch.randn(6, 8).T,
    "with gaps": lambda: torch.randn(40, 40)[::2, ::3],
    "broadcast": lambda: torch.randn(1, 8).expand(5, 8),
    "not a number": lambda: torch.full((9,), float("nan")),
    "parameter": lambda: torch.nn.Parameter(torch.randn(7)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_torchs_tensors_of_every_kind_are_compared(kind: str, memory: TorchHost) -> None:
    tensor, others = KINDS[kind](), [torch.randn(5), torch.zeros(0, 3), torch.ones(3, dtype=torch.int64)]
    compare = memory.spread([*others, tensor])
    assert compare()() and compare()()
    (tensor.data[:1] if kind == "broadcast" else tensor.data).copy_(torch.ones(()))
    assert not compare()()


def test_writes_of_whole_columns_and_rows_are_seen(memory: TorchHost) -> None:
    for n in (64, 1024, 1000):
        for axis in (0, 1):
            tensor = torch.zeros(n, n)
            compare = memory.spread([tensor])
            tensor.data.narrow(axis, n // 4, n // 2).fill_(1)
            assert not compare()(), (n, axis)


SIZES = (1, 2, 3, 5, 16, 63, 64, 65, 100, 300, 768, 1024, 4096)


@pytest.mark.parametrize("rows", SIZES)
def test_half_of_the_rows_or_columns_are_never_missed(rows: int) -> None:
    for columns in SIZES:
        seen = range(0, rows * columns, _sampling.step(rows * columns, columns))
        assert len(seen) <= 1.2 * _sampling.SAMPLE
        for places, size in (([i // columns for i in seen], rows), ([i % columns for i in seen], columns)):
            for first in range(0, size // 2, max(1, size // 16)):
                assert size < 4 or any(first <= place < first + size // 2 for place in places), (columns, first)


def test_few_values_are_read_of_each(memory: TorchHost) -> None:
    assert 48 <= _torch_spread.sample(torch.randn(2048, 2048)).numel() <= 80
    assert _torch_spread.sample(torch.randn(3)).numel() == 3
    assert memory.spread([])()()


def test_paddles_tensors_of_every_kind_are_compared() -> None:
    paddle = pytest.importorskip("paddle")
    memory = PaddleHost("cpu")
    kinds = [paddle.randn([300, 70]), paddle.randn([7]).astype("bfloat16"), paddle.randn([7]).astype("float16"),
             paddle.randn([]), paddle.randn([6, 8]).t(), paddle.full([5], float("nan")),
             paddle.nn.Linear(9, 9).weight]  # fmt: skip
    for i, tensor in enumerate(kinds):
        compare = memory.spread([paddle.ones([3]), paddle.zeros([0, 3]), tensor])
        assert compare()() and compare()(), i
        with paddle.no_grad():
            tensor.set_value(paddle.ones(tensor.shape, tensor.dtype))
        assert not compare()(), i


# Decorated layers, whose frontends see no values on a GPU


@pytest.fixture
def blind(on_the_host: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: the values of weights are not seen by the check before each call."""
    from hybrid_infer.frontends import _paddle_bridge, _torch_watch

    monkeypatch.setattr(_torch_watch, "_sample", lambda tensor: None)
    monkeypatch.setattr(_paddle_bridge, "sample_view", lambda tensor: None)


@pytest.mark.usefixtures("blind")
@pytest.mark.parametrize("weights", ["auto", "bound"])
def test_no_result_is_of_weights_that_are_gone(world: World, weights: str) -> None:
    wrapped, plain = layer(weights=weights)
    check(wrapped, plain, 3, 3)
    refits = world.counts["Refitter.refit_cuda_engine_async"]
    for _ in range(5):
        for each in (wrapped, plain):
            each.linear.weight.data += 0.5
        check(wrapped, plain, 3, 3, 3)
    assert world.counts["Refitter.refit_cuda_engine_async"] == refits + 5
    assert builds(world) == 1 and engines(wrapped) == [["tensorrt"]]  # and no other plan, however often they change
    (found,) = hybrid_infer.explain(wrapped).to_dict()["methods"]
    assert found["changes"] == {"a weight": 5}


@pytest.mark.usefixtures("blind")
def test_nor_with_gradients_nor_where_falling_back_is_an_error(world: World) -> None:
    wrapped, plain = layer(fallback="error")
    check(wrapped, plain, 3)
    for each in (wrapped, plain):
        each.linear.bias.data.fill_(2)
    x = torch.randn(3, 4)
    for _ in range(2):
        torch.testing.assert_close(wrapped(x), plain(x))
        wrapped(x).sum().backward()


@pytest.mark.usefixtures("blind")
def test_nor_of_paddles(world: World) -> None:
    paddle = pytest.importorskip("paddle")
    plain, wrapped = paddle.nn.Linear(4, 4), paddle.nn.Linear(4, 4)
    wrapped.set_state_dict(plain.state_dict())
    wrapped = inference(wrapped, with_trt=True)
    x = paddle.randn([3, 4])
    with paddle.no_grad():
        for n in range(3):
            for _ in range(2):
                np.testing.assert_allclose(wrapped(x).numpy(), plain(x).numpy(), rtol=1e-5, atol=1e-5)
            for each in (plain, wrapped):
                each.weight.set_value(paddle.full([4, 4], float(n)))
    assert ["tensorrt"] in engines(wrapped) and builds(world) == 1


@pytest.mark.usefixtures("on_the_host")
def test_weights_that_change_often_are_not_fed_to_another_plan(world: World) -> None:
    wrapped, plain = layer()
    for _ in range(6):
        check(wrapped, plain, 3)
        with torch.no_grad():
            for each in (wrapped, plain):
                each.linear.weight.add_(1)
    assert builds(world) == 1
