"""Arguments that a method writes to: caches of a fixed size above all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_support import Block, counts, eagerly, same, served, twice

from hybrid_infer import _background, inference, save
from hybrid_infer._route import Compiled
from hybrid_infer._types import OVERLAP
from hybrid_infer.state._written import RESTLESS

pytestmark = pytest.mark.torch
ROWS = 4


def added(x: Any, c: Any) -> Any:
    c.add_(x.exp())
    return c * 2


def handed_back(x: Any, c: Any) -> Any:
    c[:, 1:3] = x[:, 1:3]
    return c


def through_a_view(x: Any, c: Any) -> Any:
    row = c[0]
    row.mul_(x[1])
    return c.sum()


def through_views_of_views(x: Any, c: Any) -> Any:
    c.t()[1:, :2].unsqueeze(0).copy_(x[:2, 1:].t().unsqueeze(0))
    return x + 1


def in_both(x: Any, c: Any) -> Any:
    x.sub_(c)
    c.copy_(x.cumsum(0))
    return x @ c.t(), x


def scattered(x: Any, c: Any) -> Any:
    c.index_copy_(0, torch.tensor([2, 0]), x[:2])
    c.index_put_((torch.tensor([1]),), x[1:2], accumulate=True)
    c.masked_fill_(x > 0.9, 0.5)
    return c.argmax(-1)


def filled(x: Any, c: Any) -> Any:
    c.zero_()
    torch.add(x, 1, out=c)
    return x


def in_a_loop(x: Any, c: Any) -> Any:
    for row in range(2):
        c[row] = c[row] + x[row] * row
    return x.mean()


METHODS = [added, handed_back, through_a_view, through_views_of_views, in_both, scattered, filled, in_a_loop]


@pytest.mark.parametrize("function", METHODS)
def test_what_a_method_writes_is_written(function: Callable[..., Any]) -> None:
    method = inference()(function)
    with torch.no_grad():
        for n in range(6):
            x, c = torch.rand(ROWS + n % 4, ROWS), torch.rand(ROWS + n % 4, ROWS)
            x, c = (x[:, :3], c[:, :3]) if function is through_views_of_views else (x, c)
            own_x, own_c = x.clone(), c.clone()
            found, expected = method(x, c), function(own_x, own_c)
            same((found, x, c), (expected, own_x, own_c))
            if isinstance(expected, torch.Tensor):
                assert (found is c) == (expected is own_c) and (found is x) == (expected is own_x)
    served(captures=counts()["captures"])
    assert counts()["captures"] == 2 or function is through_views_of_views


def test_engines_are_measured_on_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured is run many times, and what the caller passed is written once."""
    monkeypatch.delenv("HYBRID_INFER_BACKEND")

    class Steps(Block):
        @inference
        def forward(self, x: torch.Tensor, position: torch.Tensor, cache: dict[str, torch.Tensor]) -> torch.Tensor:
            cache["rows"].index_copy_(0, position, self.linear(x))  # out of range where it is run once too often
            position.add_(1)
            return cache["rows"].sum()

    layer = Steps()
    eager = Steps.forward.__wrapped__  # type: ignore[attr-defined]
    with torch.no_grad():
        state = [{"rows": torch.zeros(3, 4)} for _ in range(2)], [torch.zeros(1, dtype=torch.long) for _ in range(2)]
        (cache, own), (position, at) = state
        for _ in range(3):
            x = torch.rand(1, 4)
            same((layer(x, position, cache), position, cache), (eager(layer, x, at, own), at, own))
    assert position.item() == 3 and counts()["captures"] == 1, counts()


@pytest.mark.parametrize("verify", ["always", "off"])
def test_however_results_are_compared(verify: Any) -> None:
    method = inference(verify=verify)(added)
    with torch.no_grad():
        for _ in range(4):
            x, c = torch.rand(2, 3), torch.rand(2, 3)
            own = c.clone()
            same((method(x, c), c), (added(x, own), own))
    served(captures=1)


def test_the_next_process_serves_from_its_first_call(tmp_path: Path) -> None:
    with torch.no_grad():
        inference()(added)(torch.rand(2, 3), torch.rand(2, 3))
        again = inference()(added)  # of another instance, from the same store
        x, c = torch.rand(2, 3), torch.rand(2, 3)
        own = c.clone()
        same((again(x, c), c), (added(x, own), own))
    assert counts()["disk_loads"] == 1 or counts()["captures"] == 1, counts()


def test_one_tensor_in_two_places_is_left_to_eager() -> None:
    method = inference()(in_both)
    with torch.no_grad():
        for _ in range(3):
            x = torch.rand(3, 3)
            own = x.clone()
            same((method(x, x), x), (in_both(own, own), own))
    eagerly("it writes to an argument in place, and is given it twice")


def test_tensors_that_overlap_are_left_to_eager() -> None:
    """The same signature as those that do not, which are served, before and after."""
    method = inference()(added)
    with torch.no_grad():
        for shift in (4, 4, 1, 3, 4, 0, 5):
            whole = torch.rand(9, 3)
            own = whole.clone()
            same((method(whole[:4], whole[shift : shift + 4]), whole), (added(own[:4], own[shift : shift + 4]), own))
    assert counts()["fallbacks"] == {OVERLAP: 3} and counts()["hits"] == 3, counts()


def test_the_first_call_may_be_one_that_overlaps() -> None:
    with torch.no_grad():
        inference()(added)(torch.rand(4, 3), torch.rand(4, 3))  # leaves a static model
        method = inference()(added)
        for _ in range(3):
            whole = torch.rand(9, 3)
            own = whole.clone()
            same((method(whole[:4], whole[1:5]), whole), (added(own[:4], own[1:5]), own))
    assert set(counts()["fallbacks"]) == {OVERLAP}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("strides", [(0, 1), (1, 1)])
def test_a_tensor_that_overlaps_itself_is_left_to_eager(strides: tuple[int, int], first: bool) -> None:
    def first_row(x: Any, c: Any) -> Any:
        c[0] = x[0]
        return c * 2

    method = inference()(first_row)
    with torch.no_grad():
        for folded in [True, True] if first else [False, False, True, True]:
            x, whole = torch.rand(3, 4), torch.rand(12)
            own = whole.clone()
            mine, eager = (w.as_strided((3, 4), strides if folded else (4, 1)) for w in (whole, own))
            same((method(x, mine), whole), (first_row(x, eager), own))
    assert counts()["hits"] == (0 if first else 1), counts()


def test_a_weight_that_is_passed_is_not_written_behind_the_layer() -> None:
    class Own(Block):
        @inference
        def forward(self, x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
            c.add_(x)
            return self.linear(x)

    layer, plain = Own(), Own.forward.__wrapped__  # type: ignore[attr-defined]
    with torch.no_grad():
        for n in range(5):
            x, c = torch.rand(4, 4), layer.linear.weight if n > 2 else torch.rand(4, 4)
            before, own = layer.linear.weight.clone(), c.clone()
            found = layer(x, c)
            assert torch.allclose(c, own + x)
            layer.linear.weight.copy_(before + x if n > 2 else before)
            same(found, layer.linear(x))
    assert plain


def test_gradients_flow_through_what_is_written() -> None:
    method = inference()(added)
    for _ in range(3):
        x, c = torch.rand(2, 3, requires_grad=True), torch.rand(2, 3)
        method(x, c).sum().backward()
        assert x.grad is not None and c.requires_grad
        same(x.grad, 2 * x.detach().exp())
    assert counts()["hits"] == 0


def test_a_tensor_whose_shape_is_changed_is_left_to_eager() -> None:
    def turned(x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        c.add_(x)
        c.t_()
        return c @ x

    method = inference(verify="off")(turned)
    with torch.no_grad():
        for _ in range(3):
            x, c = torch.rand(3, 3), torch.rand(3, 3)
            own = c.clone()
            same((method(x, c), c), (turned(x, own), own))
            assert c.stride() == own.stride()
    eagerly("changes the shape")


def test_a_gap_in_the_memory_stays_as_it_is() -> None:
    method = inference()(through_a_view)
    with torch.no_grad():
        for _ in range(4):
            x, whole = torch.rand(3, 3), torch.rand(3, 6)
            own = whole.clone()
            same((method(x, whole[:, ::2]), whole), (through_a_view(x, own[:, ::2]), own))
    served(captures=1)


def test_what_comes_back_may_have_gaps() -> None:
    method = inference()(handed_back)
    with torch.no_grad():
        for n in range(4):
            x, whole = torch.rand(3, 4), torch.rand(3, 8)
            own, cut = whole.clone(), whole[:, ::2] if n else torch.rand(3, 4)
            found = method(x, cut)
            assert found is cut
            same(whole, own) if not n else same((found, whole), (handed_back(x, own[:, ::2]), own))
    assert counts()["hits"] == 2, counts()  # one call has shown that it comes back as it is


def reshaped(x: Any, c: Any) -> Any:
    c.reshape(-1)[:3] = 5.0
    return c * 2


def without_gaps(x: Any, c: Any) -> Any:
    c.contiguous()[0] = x[0]
    return c * 2


def of_its_own(x: Any, c: Any) -> Any:
    y = c * 1  # which lies in memory as `c` does
    y.ravel()[0] = 5.0
    return y + x


def of_its_own_without_gaps(x: Any, c: Any) -> Any:
    y = c + 0
    y.contiguous().add_(1)
    return y + x


def read_from_before(x: Any, c: Any) -> Any:
    row = c.flatten()
    c[0] = 9.0
    return row * 2


def test_a_write_of_fewer_elements_is_repeated() -> None:
    def means(x: Any, c: Any) -> Any:
        c.copy_(x.mean(0, keepdim=True))
        return c * 1

    method = inference(verify="off")(means)  # the graph is right, and not only found to be wrong
    with torch.no_grad():
        for rows in (3, 3, 5, 6):
            x, c = torch.rand(rows, 4), torch.rand(rows, 4)
            own = c.clone()
            same((method(x, c), c), (means(x, own), own))
    served(captures=2)


def test_an_argument_that_is_to_require_a_gradient_does() -> None:
    def tracked(x: Any, c: Any) -> Any:
        c.requires_grad_()
        return x + c

    for method in (inference()(tracked), inference()(tracked)):
        with torch.no_grad():
            for _ in range(3):
                x, c = torch.rand(3), torch.rand(3)
                same(method(x, c), x + c)
                assert c.requires_grad and not x.requires_grad
                assert not method(x, c).requires_grad  # though it does by now
    served(captures=2)  # what the code names of tensors is part of each call


def test_with_gradients_on_it_is_the_eager_method_that_has_an_argument_require_one() -> None:
    def tracked(x: Any, c: Any) -> Any:
        c.requires_grad_()
        return (x + c).sum()

    method = inference()(tracked)
    for recorded in (False, True, False, True):
        with torch.set_grad_enabled(recorded):
            x, c = torch.rand(3), torch.rand(3)
            result = method(x, c)
            assert c.requires_grad and result.requires_grad == recorded
        if recorded:
            result.backward()
            same(c.grad, torch.ones(3))
    assert counts()["captures"] == 1 and counts()["hits"] == 1


def test_an_argument_with_gaps_that_is_to_require_a_gradient() -> None:
    def tracked(x: Any) -> Any:
        x = x.contiguous()
        x.requires_grad_()
        return x.detach() * 2

    method = inference()(tracked)
    with torch.no_grad():
        for make in (lambda: torch.rand(3, 4), lambda: torch.rand(4, 3).t()) * 2:
            x, own = make(), make()
            tracked(own)
            method(x)
            assert x.requires_grad == own.requires_grad


def test_a_weight_that_is_to_require_a_gradient() -> None:
    class Layer(Block):
        @inference
        def forward(self, x: Any) -> Any:
            self.linear.weight.requires_grad_()
            return self.linear(x)

    layer = Layer()
    layer.linear.weight.requires_grad_(False)
    with torch.no_grad():
        layer(torch.rand(2, 4))
    assert layer.linear.weight.requires_grad
    eagerly("it changes whether self.linear.weight requires a gradient")


UNSETTLED = [reshaped, without_gaps, of_its_own, of_its_own_without_gaps, read_from_before]


@pytest.mark.parametrize("turned_first", [True, False])
@pytest.mark.parametrize("function", UNSETTLED)
def test_writes_to_what_may_be_a_view_or_a_copy(function: Callable[..., Any], turned_first: bool) -> None:
    """It is one by how tensors lie in memory, of which a signature tells nothing."""
    method = inference()(function)
    with torch.no_grad():
        for n in range(4):
            x, whole = torch.rand(4, 4), torch.rand(4, 4)
            own = whole.clone()
            mine, eager = (w.t() if (n < 2) == turned_first else w for w in (whole, own))
            same((method(x, mine), whole), (function(x, eager), own))
    eagerly("depends on the layout in memory", captures=0)


def test_writes_to_views_and_copies_that_nothing_else_reads() -> None:
    def served_all_the_same(x: Any, c: Any) -> Any:
        c.add_(x)
        y = (c.reshape(-1) * 2).reshape(4, -1)
        y += 1
        y = y.t().contiguous().contiguous()
        y.relu_()
        return y.flatten() + 1

    method = inference()(served_all_the_same)
    with torch.no_grad():
        for n in range(5):
            x, whole = torch.rand(4, 4), torch.rand(4, 4)
            own = whole.clone()
            mine, eager = (w.t() if n % 2 else w for w in (whole, own))
            same((method(x, mine), whole), (served_all_the_same(x, eager), own))
    served(captures=1)


def test_many_threads_write_to_tensors_of_their_own() -> None:
    method = inference()(added)
    x = torch.rand(3, 4)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        with torch.no_grad():
            for n in range(20):
                c = torch.full((3, 4), float(seed + n))
                own = c.clone()
                if not (torch.allclose(method(x, c), added(x, own)) and torch.allclose(c, own)):
                    wrong.append((seed, n))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_threads_may_write_to_parts_of_one_tensor(mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eagerly each writes to its own rows; a static model puts back the whole, with what others' rows held before."""

    def step(x: Any, row: Any, c: Any) -> Any:
        c.index_copy_(0, row, c.index_select(0, row) + x)
        return x * 2

    method, rows, times = inference()(step), 4, 15
    with mode():
        for _ in range(2):
            method(torch.ones(1, 8), torch.tensor([0]), torch.zeros(rows, 8))
        cache = torch.zeros(rows, 8)
    run = Compiled.run
    monkeypatch.setattr(Compiled, "run", lambda *given: [run(*given), time.sleep(0.001)][0])

    def work(row: int) -> None:
        with mode():
            for _ in range(times):
                method(torch.ones(1, 8), torch.tensor([row]), cache)

    threads = [threading.Thread(target=work, args=(row,)) for row in range(rows)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.eq(times).all(), cache
    assert counts()["hits"] == 1 + rows * times, counts()


def test_eager_code_may_write_to_other_parts_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    method = inference()(added)
    run, cache = Compiled.run, torch.zeros(3, 4)
    with torch.no_grad():
        for _ in range(2):
            method(torch.zeros(3, 4), torch.zeros(3, 4))
        writes = iter([True, False, True, True])

        def meanwhile(*given: Any) -> Any:
            found = run(*given)
            if next(writes):  # as another thread might
                cache[2] += 10
            return found

        monkeypatch.setattr(Compiled, "run", meanwhile)
        assert method(torch.zeros(3, 4), cache)[:2].eq(2).all() and cache[:2].eq(1).all() and cache[2].eq(11).all()
        assert method(torch.zeros(3, 4), cache)[:2].eq(4).all() and cache[:2].eq(2).all() and cache[2].eq(32).all()
    assert counts()["fallbacks"] == {RESTLESS: 1}, counts()


def test_in_the_background() -> None:
    method = inference(background=True)(added)
    with torch.no_grad():
        for _ in range(3):
            x, c = torch.rand(2, 3), torch.rand(2, 3)
            own = c.clone()
            same((method(x, c), c), (added(x, own), own))
            _background.wait()
    assert counts()["hits"] == 2, counts()


def test_such_a_method_is_not_saved(tmp_path: Path) -> None:
    class Writes(Block):
        @inference
        def forward(self, x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
            c.add_(self.linear(x))
            return c + 1

    layer = Writes()
    with torch.no_grad():
        for _ in range(2):
            layer(torch.rand(2, 4), torch.rand(2, 4))
        with pytest.raises(Exception, match="writes to argument `c`"):
            save(layer, tmp_path / "model", trainable=False)


def test_a_trace_that_ends_inside_of_vmap_leaves_nothing_behind() -> None:
    def method(x: Any) -> Any:
        return torch.vmap(torch.vmap(lambda number: number * 2))(x) + x

    hot = inference(method, backend="onnxruntime")
    x = torch.rand(2, 3)
    for _ in range(3):
        same(hot(x), method(x))
        assert torch._C._functorch.peek_interpreter_stack() is None
        torch.nn.Linear(3, 3)


def test_beside_what_vmap_makes() -> None:
    """The tracer's notes of it are of wrappers, which lie nowhere in memory."""

    def method(x: Any) -> Any:
        made = torch.vmap(lambda row: row.flip(0) + row.reshape(-1))(x)
        return torch.zeros_like(made).add_(made)

    hot = inference(method, backend="onnxruntime")
    for rows in (2, 3, 4):
        twice(hot, method, torch.rand(rows, 3))
    served(captures=2)
