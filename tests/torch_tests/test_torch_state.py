"""State: tensors that a layer holds and its method writes to, such as a cache of keys and values of its own."""

from __future__ import annotations

import copy
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from router_support import decided
from torch_support import Block, counts, eagerly, same, served

from hybrid_infer import InputSpec, _background, _defects, inference, release, save, warmup
from hybrid_infer._route import Compiled
from hybrid_infer._types import OVERLAP
from hybrid_infer.checks._invocation import Invocation

pytestmark = pytest.mark.torch
STEPS = 6
OURS = _defects.ours  # before a fixture takes it away
BOXES = (dict, list, tuple)


class Attention(torch.nn.Module):
    """A cache of a fixed size that each call fills at a position, and how many calls there were."""

    def __init__(self) -> None:
        super().__init__()
        self.mixed = torch.nn.Linear(4, 12)
        self.register_buffer("keys", torch.zeros(STEPS, 4))
        self.register_buffer("values", torch.zeros(STEPS, 4))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        query, key, value = self.mixed(x).chunk(3, -1)
        self.keys.index_copy_(0, at, key)
        self.values[at] = value
        self.steps += 1
        seen = torch.arange(STEPS) < self.steps
        weights = (query @ self.keys.t()).masked_fill(~seen, -1e9).softmax(-1)
        return weights @ self.values


class Mean(Block):
    """A plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = torch.zeros(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.mul_(0.5).add_(x.mean(0), alpha=0.5)
        return self.linear(x - self.mean)


class Last(Block):
    """What it holds is not read, and is a result."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.last.copy_(self.linear(x)[-1])
        return x + 1, self.last


class Held(torch.nn.Module):
    """In a list, a tuple, a dict and a sublayer, of several element types, through views."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Mean()
        self.listed = [torch.zeros(4, dtype=torch.bool), torch.ones(2, 4, dtype=torch.float64)]
        self.paired = torch.zeros(3, 4), torch.zeros(4, dtype=torch.bfloat16)
        self.named = {"count": torch.zeros(1, dtype=torch.int32)}

    def forward(self, x: torch.Tensor) -> Any:
        y = self.inner(x)
        self.listed[0] |= y[0] > 0
        self.listed[1][1].t().add_(y[0].double())
        self.paired[0][1:, 2:].mul_(0.5).sub_(x.mean())
        self.paired[1].fill_(2.5)
        self.named["count"][0] += x.shape[0]
        return y.where(self.listed[0], y * 2), self.paired[0].sum() + self.named["count"]


class Weighted(Block):
    """A parameter, which it computes with too."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.linear.bias.mul_(0.9)
        return self.linear(x)


def state(layer: torch.nn.Module) -> list[torch.Tensor]:
    found = [*layer.state_dict().values()]
    for part in layer.modules():
        for value in vars(part).values():
            values = value.values() if isinstance(value, dict) else value
            found += [each for each in values if type(each) is torch.Tensor] if isinstance(value, BOXES) else []
            found += [value] if type(value) is torch.Tensor else []
    return found


def arguments(layer: torch.nn.Module, n: int) -> tuple[torch.Tensor, ...]:
    if isinstance(layer, Attention):
        return torch.rand(1, 4), torch.tensor([n % STEPS])
    return (torch.rand(2 + n % 3, 4),)


def alike(mine: Any, eager: torch.nn.Module, n: int) -> None:
    """One more call of both: the same result, and the same state afterwards."""
    given = arguments(eager, n)
    expected = eager(*given)
    same((mine(*given), state(mine)), (expected, state(eager)))


def pair(kind: type[torch.nn.Module], **options: Any) -> tuple[Any, torch.nn.Module]:
    torch.manual_seed(0)
    eager = kind().eval()
    return inference(copy.deepcopy(eager), **options), eager


KINDS = [Attention, Mean, Last, Held, Weighted]


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_what_a_method_writes_to_its_layer_is_written(kind: type[torch.nn.Module]) -> None:
    mine, eager = pair(kind)
    for n in range(8):
        alike(mine, eager, n)
    served(captures=1 if kind is Attention else 2, bindings=1 if kind is Attention else 2)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_another_instance_and_another_start_have_state_of_their_own(kind: type[torch.nn.Module]) -> None:
    mine, eager = pair(kind)
    for n in range(3):
        alike(mine, eager, n)
    captures = counts()["captures"]
    other, others = copy.deepcopy(mine), copy.deepcopy(eager)
    for n in range(3):
        alike(other, others, n + 1)
        alike(mine, eager, n)
    release(mine)
    for n in range(3):
        alike(mine, eager, n)
    assert counts()["captures"] == captures and not counts()["fallbacks"], counts()


@torch.no_grad()
def test_the_program_may_write_to_state_and_replace_it() -> None:
    mine, eager = pair(Attention)

    def each(change: Any) -> None:
        alike(mine, eager, 0)
        change(mine), change(eager)
        alike(mine, eager, 1)

    each(lambda layer: None)
    each(lambda layer: layer.keys.zero_())
    each(lambda layer: layer.values.data.fill_(2))
    served(captures=1, bindings=1)  # state is read at each call
    each(lambda layer: setattr(layer, "keys", torch.ones(STEPS, 4)))
    each(lambda layer: setattr(layer, "keys", torch.ones(4, STEPS).t()))
    served(captures=1, bindings=3)
    each(lambda layer: layer.load_state_dict({**layer.state_dict(), "steps": torch.tensor(3)}))
    served(captures=1)
    each(lambda layer: setattr(layer, "values", layer.keys))  # one tensor in two places is another layer
    assert counts()["captures"] == 2, counts()


@torch.no_grad()
def test_another_method_may_read_it() -> None:
    class Filled(Attention):
        @inference
        def fill(self, x: torch.Tensor) -> torch.Tensor:
            self.keys[: len(x)] = x
            return x.sum()

        @inference
        def read(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.keys.t()

    layer, x = Filled().eval(), torch.rand(2, 4)
    for n in range(6):
        layer.fill(x + n)
        same(layer.read(x), x @ layer.keys.t())
        assert layer.keys[:2].equal(x + n)
    fills, reads = counts("Filled.fill"), counts("Filled.read")
    assert fills["hits"] == 5 and reads["hits"] > 0 and fills["bindings"] == 1, (fills, reads)


@torch.no_grad()
def test_each_call_compared() -> None:
    mine, eager = pair(Attention, verify="always")
    for n in range(4):
        alike(mine, eager, n)
    served(captures=1)


@torch.no_grad()
def test_in_the_background() -> None:
    mine, eager = pair(Attention, background=True)
    for n in range(4):
        alike(mine, eager, n)
        _background.wait()
        same(state(mine), state(eager))
    assert counts()["hits"] > 0, counts()


@torch.no_grad()
def test_ahead_of_calls() -> None:
    mine, eager = pair(Attention)
    warmup(mine, [torch.rand(1, 4), torch.tensor([2])])
    same(state(mine), state(eager))
    alike(mine, eager, 0)
    served(captures=1)
    mine, eager = pair(Mean, input_spec=[InputSpec([None, 4])])
    for n in range(3):
        same(state(mine), state(eager))
        alike(mine, eager, n)
    assert counts("Mean")["captures"] == 1 and not counts("Mean")["fallbacks"]


@pytest.mark.parametrize("kind", [Attention, Held])
@torch.no_grad()
def test_measuring_changes_no_state(kind: type[torch.nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYBRID_INFER_BACKEND")
    times = decided(monkeypatch, eager=2.0, onnxruntime=1.0, openvino=3.0)
    mine, eager = pair(kind)
    for n in range(4):
        alike(mine, eager, n)
    assert times and counts()["hits"] == 4 - counts()["captures"], counts()


COUNT, LISTED = torch.zeros(4), [torch.zeros(4)]
PAIRED = torch.zeros(4), torch.zeros(4)


def counted(x: torch.Tensor) -> torch.Tensor:
    COUNT.add_(x.sum(0))
    LISTED[0].mul_(0.5).add_(COUNT)
    PAIRED[1].add_(x.sum(0))
    return x - LISTED[0]


@torch.no_grad()
def test_measuring_changes_no_state_of_globals_and_closures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYBRID_INFER_BACKEND")
    decided(monkeypatch, eager=2.0, onnxruntime=1.0, openvino=3.0)
    own = torch.zeros(4)

    def enclosed(x: torch.Tensor) -> torch.Tensor:
        own.add_(x.sum(0))
        return counted(x) * own

    for tensor in (COUNT, *LISTED, *PAIRED):
        tensor.zero_()
    mine, total, listed = inference(enclosed), torch.zeros(4), torch.zeros(4)
    for n in range(4):
        x = torch.rand(2 + n % 3, 4)
        total += x.sum(0)
        listed = listed * 0.5 + total
        same((mine(x), own, COUNT, LISTED, PAIRED), ((x - listed) * total, total, total, [listed], (x[0] * 0, total)))
    assert counts()["hits"] == 4 - counts()["captures"], counts()


@torch.no_grad()
def test_state_that_cannot_be_written_to_is_written_as_often_as_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_defects, "ours", OURS)

    class Summed(Mean):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.mean.add_(x.sum(0))
            return self.linear(x)

    mine, eager = pair(Summed)
    for n in (0, 3):
        alike(mine, eager, n)
    for layer in (mine, eager):
        with torch.inference_mode():
            layer.mean = torch.zeros(4)
        with pytest.raises(RuntimeError, match="inference tensor"):  # which torch says after it has written
            layer(torch.ones(2, 4))
    assert mine.mean.equal(eager.mean) and not counts()["fallbacks"], (mine.mean, eager.mean, counts())


@pytest.mark.parametrize("backend", ["native", "openvino"])
@torch.no_grad()
def test_other_engines(backend: str) -> None:
    if backend == "openvino":
        pytest.importorskip("openvino")
    mine, eager = pair(Mean, backend=backend)
    for n in range(4):
        alike(mine, eager, n)
    assert counts()["hits"] == 2 and not counts()["fallbacks"], counts()


def test_where_gradients_are_recorded() -> None:
    mine, eager = pair(Mean)
    for n in range(3):
        alike(mine, eager, n)
    eagerly("while gradients are recorded", captures=2)
    for layer in (mine, eager):
        layer.requires_grad_(False)
    for n in range(3):
        alike(mine, eager, n)
    assert counts()["hits"] > 0


@torch.no_grad()
def test_state_in_the_memory_of_a_weight() -> None:
    class Views(Block):
        def __init__(self) -> None:
            super().__init__()
            self.row = self.linear.weight.data[0]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.linear(x)
            self.row.mul_(0.5)
            return y

    mine, eager = inference(Views().eval()), Views().eval()
    eager.linear.load_state_dict(mine.linear.state_dict())
    for n in range(3):
        alike(mine, eager, n)
    eagerly(OVERLAP)
    other = copy.deepcopy(eager)
    other.row = torch.ones(4)
    alike(inference(copy.deepcopy(other)), other, 0)  # which is another instance's trouble
    assert counts()["captures"] == 1, counts()
    mine.row, eager.row = torch.ones(4), torch.ones(4)
    for n in range(3):
        alike(mine, eager, n)
    assert counts()["hits"] > 0, counts()


@torch.no_grad()
def test_an_argument_in_the_memory_of_state() -> None:
    mine, eager = pair(Mean)
    alike(mine, eager, 0)
    for _ in range(2):
        same(mine(mine.mean[None]), eager(eager.mean[None]))
        same(state(mine), state(eager))
    assert OVERLAP in counts()["fallbacks"], counts()


@torch.no_grad()
def test_a_result_that_is_a_view_of_state() -> None:
    class Seen(Mean):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.mean.add_(x.mean(0))
            return self.mean[:2]

    mine, eager = pair(Seen)
    for n in range(3):
        alike(mine, eager, n)
    eagerly("view of an argument or a weight", captures=1)


@torch.no_grad()
def test_statistics_of_training_are_no_state() -> None:
    class Normed(Block):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(self.linear(x))

    eager = Normed()
    mine = inference(copy.deepcopy(eager))
    for n in range(2):
        alike(mine, eager, n)
    eagerly("self.norm.running_mean in place")


@torch.no_grad()
def test_a_new_tensor_in_its_place_at_each_call() -> None:
    class Replaced(Mean):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.mean = self.mean + x.mean(0)
            return self.linear(x - self.mean)

    mine, eager = pair(Replaced)
    for n in range(3):
        alike(mine, eager, n)
    served(captures=2)


@torch.no_grad()
def test_threads_may_write_to_parts_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slots(Block):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("rows", torch.zeros(4, 4))

        def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            self.rows.index_copy_(0, at, self.rows.index_select(0, at) + x)
            return x * 2

    layer, times = inference(Slots().eval()), 12
    for _ in range(2):
        layer(torch.ones(1, 4), torch.tensor([0]))
    layer.rows.zero_()
    run = Compiled.run
    monkeypatch.setattr(Compiled, "run", lambda *given: [run(*given), time.sleep(0.001)][0])

    def work(row: int) -> None:
        with torch.no_grad():
            for _ in range(times):
                layer(torch.ones(1, 4), torch.tensor([row]))

    threads = [threading.Thread(target=work, args=(row,)) for row in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert layer.rows.eq(times).all(), layer.rows


@torch.no_grad()
def test_other_threads_may_write_while_it_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    class Rows(Block):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("rows", torch.zeros(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.rows[0] = x
            return self.linear(self.rows)

    layer = inference(Rows().eval())
    run = Invocation.run

    def disturbed(call: Any) -> Any:
        layer.rows[3] += 1  # as another thread might, between the copy and the run
        return run(call)

    monkeypatch.setattr(Invocation, "run", disturbed)
    for n in range(3):
        x = torch.rand(4)
        same(layer(x), layer.linear(layer.rows))
        assert layer.rows[0].equal(x) and layer.rows[3].eq(1).all(), n
    served(captures=1)


@torch.no_grad()
def test_such_a_layer_is_not_saved(tmp_path: Path) -> None:
    mine, eager = pair(Mean)
    alike(mine, eager, 0)
    with pytest.raises(Exception, match=r"writes to self\.mean in place"):
        save(mine, tmp_path / "model", trainable=False)
    same(state(mine), state(eager))
