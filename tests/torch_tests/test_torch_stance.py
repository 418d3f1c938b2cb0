"""The stance: eager, default or fail_on_compile, for a block, a thread, a task or the process."""

from __future__ import annotations

import asyncio
import doctest
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_support import Block, counts, same, served, twice

import hybrid_infer
from hybrid_infer import OptionError, StanceError, _stance, inference, stance

pytestmark = pytest.mark.torch

X = torch.linspace(-1, 1, 8).reshape(2, 4)


@pytest.fixture(autouse=True)
def no_gradients() -> Any:
    with torch.no_grad():
        yield


def hot(**options: Any) -> Any:
    return inference(Block(), **options)


def test_eager_answers_with_the_method_and_looks_nothing_up(store: Path) -> None:
    layer = hot(fallback="error")
    with stance("eager"):
        same(layer(X), Block.forward(layer, X))
    found = counts()
    assert found["eager_calls"] == 1 and found["captures"] == 0 and not store.exists()
    assert next(iter(found["fallbacks"])) == "the stance is 'eager'"


def test_eager_goes_before_what_is_ready() -> None:
    layer = hot()
    layer(X), layer(X)
    with stance("eager"):
        layer(X)
    layer(X)
    assert counts()["hits"] == 2 and counts()["eager_calls"] == 1


def test_blocks_nest_and_the_innermost_decides() -> None:
    layer = hot()
    with stance("fail_on_compile"):
        with stance("eager"):
            layer(X)
        with stance("default"):
            twice(layer, Block.forward.__get__(layer), X)
        layer(X)
    assert counts()["captures"] == 1 and counts()["eager_calls"] == 1


def test_a_miss_raises_and_names_what_differs() -> None:
    layer = hot()
    with stance("fail_on_compile"), pytest.raises(StanceError, match="none of this method is stored") as caught:
        layer(X)
    assert caught.value.method.endswith("Block.forward") and "stance 'default'" in caught.value.remedy
    layer(X)
    with stance("fail_on_compile"):
        layer(X)
        with pytest.raises(StanceError, match=r"argument `x` \(float32 \(3, 4\), was float32 \(2, 4\)\)"):
            layer(torch.ones(3, 4))
    served(captures=1)


def test_what_is_on_disk_is_loaded() -> None:
    hot()(X)
    hybrid_infer.reset_stats()
    layer = hot()
    with stance("fail_on_compile"):
        same(layer(X), Block.forward(layer, X))
    assert counts()["captures"] == 0 and counts()["builds"] == 0 and counts()["bindings"] == 1


def test_a_plan_that_would_have_to_be_made_is_a_miss(store: Path) -> None:
    layer = hot()
    layer(X)
    for plans in store.rglob("plans"):
        shutil.rmtree(plans)
    hybrid_infer.release(layer)
    del layer
    with stance("fail_on_compile"), pytest.raises(StanceError, match="no plan of onnxruntime"):
        hot()(X)


def test_changed_weights_are_bound_without_a_build() -> None:
    layer = hot()
    layer(X)
    with stance("fail_on_compile"):
        for _ in range(5):
            layer.linear.weight.mul_(1.5)
            same(layer(X), Block.forward(layer, X))
    assert counts()["builds"] == 1 and counts()["eager_calls"] == 0


def test_what_runs_eagerly_for_a_reason_still_does() -> None:
    @inference
    def draws(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(2)

    draws(torch.ones(2))
    with stance("fail_on_compile"):
        draws(torch.ones(2))
    assert counts()["eager_calls"] == 2


def test_the_environment_is_read_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = hot()
    monkeypatch.setenv("HYBRID_INFER_STANCE", "fail_on_compile")
    with pytest.raises(StanceError):
        layer(X)
    with stance("default"):  # a block goes before the environment
        layer(X)
    layer(X)
    monkeypatch.setenv("HYBRID_INFER_STANCE", "eager")
    layer(X)
    assert counts()["eager_calls"] == 1
    monkeypatch.setenv("HYBRID_INFER_STANCE", "")
    layer(X)
    monkeypatch.delenv("HYBRID_INFER_STANCE")
    layer(X)
    assert counts()["eager_calls"] == 1 and counts()["hits"] == 3


def test_a_wrong_name_says_which_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="'default', 'eager', 'background', 'fail_on_compile'"):
        stance("force_eager")
    layer = hot()
    monkeypatch.setenv("HYBRID_INFER_STANCE", "fail")
    with pytest.raises(OptionError, match="HYBRID_INFER_STANCE"):
        hot()
    with pytest.raises(OptionError, match="fail_on_compile"):
        layer(X)


def test_a_block_is_about_its_thread() -> None:
    layer = hot()
    layer(X)
    with stance("eager"):
        thread = threading.Thread(target=layer, args=(X,))
        thread.start()
        thread.join()
    assert counts()["eager_calls"] == 0 and counts()["hits"] == 1


def test_a_block_is_about_its_task() -> None:
    layer = hot()
    layer(X)
    inside, outside = asyncio.Event(), asyncio.Event()

    async def eager() -> None:
        with stance("eager"):
            inside.set()
            await outside.wait()
            layer(X)

    async def default() -> None:
        await inside.wait()
        layer(X)
        outside.set()

    async def both() -> None:
        await asyncio.gather(eager(), default())

    asyncio.run(both())
    assert counts()["eager_calls"] == 1 and counts()["hits"] == 1


def test_as_a_decorator_of_functions_and_coroutines() -> None:
    layer = hot()
    layer(X)

    @stance("eager")
    def function(depth: int) -> Any:
        return function(depth - 1) if depth else layer(X)

    @stance("eager")
    async def coroutine() -> Any:
        await asyncio.sleep(0)
        return layer(X)

    function(2)
    asyncio.run(coroutine())
    layer(X)
    assert counts()["eager_calls"] == 2 and counts()["hits"] == 1


def test_an_exception_ends_the_block() -> None:
    layer = hot()
    layer(X)
    with pytest.raises(ZeroDivisionError), stance("eager"):
        raise ZeroDivisionError
    layer(X)
    assert counts()["eager_calls"] == 0


def test_the_example_of_the_docstring() -> None:
    results = doctest.testmod(_stance)
    assert results.attempted > 3 and results.failed == 0


def test_threads_share_a_stance_object() -> None:
    shared, first, second = stance("eager"), threading.Event(), threading.Event()
    found: list[str] = []

    def outer() -> None:
        with shared:
            first.set()
            assert second.wait(60)
        found.append(_stance.current())

    def inner() -> None:
        assert first.wait(60)
        with shared:
            second.set()
            threads[0].join(60)
        found.append(_stance.current())

    threads = [threading.Thread(target=outer), threading.Thread(target=inner)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["default", "default"]


def test_a_generator_takes_its_steps_under_the_stance_and_what_is_between_them_is_not() -> None:
    seen: list[str] = []

    @stance("eager")
    def steps(first: int) -> Any:
        """Steps."""
        try:
            seen.append(_stance.current())
            got = yield first
            seen.append(_stance.current())
            try:
                yield got
            except KeyError:
                seen.append(_stance.current())
                yield "caught"
        finally:
            seen.append(_stance.current())

    assert steps.__doc__ == "Steps."
    running = steps(1)
    assert next(running) == 1 and _stance.current() == "default"
    with stance("background"):
        assert running.send(2) == 2 and _stance.current() == "background"
    assert running.throw(KeyError("x")) == "caught" and _stance.current() == "default"
    running.close()
    assert seen == ["eager"] * 4 and _stance.current() == "default"

    @stance("eager")
    def whole() -> Any:
        yield 1
        return _stance.current()

    def outer() -> Any:
        return (yield from whole())

    ending = outer()
    next(ending)
    with pytest.raises(StopIteration) as stopped:
        next(ending)
    assert stopped.value.value == "eager"


def test_an_asynchronous_generator_does_so_too() -> None:
    seen: list[str] = []

    @stance("eager")
    async def steps() -> Any:
        try:
            await asyncio.sleep(0)
            seen.append(_stance.current())
            got = yield 1
            try:
                yield got
            except KeyError:
                seen.append(_stance.current())
                yield 3
        finally:
            seen.append(_stance.current())

    async def program() -> list[Any]:
        running = steps()
        found = [await running.asend(None), _stance.current(), await running.asend(2)]
        found += [await running.athrow(KeyError("x")), _stance.current()]
        await running.aclose()
        return [*found, _stance.current(), [each async for each in steps()]]

    assert asyncio.run(program()) == [1, "default", 2, 3, "default", "default", [1, None]]
    assert seen == ["eager"] * 5
