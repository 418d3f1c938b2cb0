"""Which inputs a trace writes to: what torch's counters tell is what the exporter finds by tracing once more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch_support import counts, eagerly, same

from hybrid_infer import inference
from hybrid_infer.frontends import _torch_writes

pytestmark = pytest.mark.torch


class Kept(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(4))
        self.register_buffer("table", torch.zeros(6, 4))


def _nothing(layer: Any, x: Any, y: Any) -> Any:
    z = layer.linear(x)
    z += y
    return torch.relu_(z.view(-1))


def _argument(layer: Any, x: Any, y: Any) -> Any:
    y[1:, :2].mul_(2)
    return layer.linear(x) + y


def _both(layer: Any, x: Any, y: Any) -> Any:
    x.t()[0] = 7.0
    torch.add(x, 1, out=y)
    return layer.linear(x)


def _buffer(layer: Any, x: Any, y: Any) -> Any:
    layer.seen.copy_(x.sum(0))
    return layer.linear(x) + layer.seen


def _rows(layer: Any, x: Any, y: Any) -> Any:
    layer.table[1 : 1 + x.shape[0]] = x
    return layer.table.detach() * 2


def _view_of_a_view(layer: Any, x: Any, y: Any) -> Any:
    part = layer.table.view(3, 8).unbind(0)[1].chunk(2)[0]
    part.fill_(3.0)
    return layer.table + x.sum()


def _data(layer: Any, x: Any, y: Any) -> Any:
    layer.seen.data += 1
    return layer.linear(x) + layer.seen


def _by_number(layer: Any, x: Any, y: Any) -> Any:
    layer.table.index_add_(0, torch.arange(3), x)
    y[y > 0.5] = 0.0
    return layer.table + y.sum()


def _constant(layer: Any, x: Any, y: Any) -> Any:
    made = torch.tensor([1.0, 2.0, 3.0, 4.0])
    made[0] = 9.0
    y.add_(made)
    return layer.linear(x)


_METHODS = [_nothing, _argument, _both, _buffer, _rows, _view_of_a_view, _data, _by_number, _constant]


@pytest.mark.parametrize("method", _METHODS, ids=lambda each: each.__name__.strip("_"))
def test_counters_tell_what_the_exporter_finds(monkeypatch: pytest.MonkeyPatch, method: Any) -> None:
    real, found = _torch_writes.places, []

    def both(program: Any, tracee: Any, counted: Any, *, training: bool) -> Any:
        first = real(program, tracee, counted, training=training)
        second = real(program, tracee, _torch_writes.Counted(), training=training)
        found.append((sorted(first), sorted(second)))
        return first

    monkeypatch.setattr(_torch_writes, "places", both)
    hot, cold, served = Kept().eval(), Kept().eval(), inference(method, backend="onnxruntime", fallback="error")
    cold.load_state_dict(hot.state_dict())
    for _ in range(2):
        x, y = torch.rand(3, 4), torch.rand(3, 4)
        mine, theirs = (x.clone(), y.clone()), (x.clone(), y.clone())
        with torch.no_grad():
            same(served(hot, *mine), method(cold, *theirs))
        same([*mine, *hot.buffers()], [*theirs, *cold.buffers()])
    assert found and all(first == second for first, second in found), found
    assert not counts()["fallbacks"]


def test_a_graph_is_not_traced_once_more_for_its_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.Sequential(
                torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(inplace=True)
            )

        @inference(backend="onnxruntime", fallback="error")
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x)

    passes = _counted_passes(monkeypatch)
    with torch.no_grad():
        Net().eval()(torch.rand(1, 3, 8, 8))
    assert passes and {} not in passes  # those with a table are the exporter's own


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_nor_for_tensors_that_it_makes_of_numbers(monkeypatch: pytest.MonkeyPatch, mode: Any) -> None:
    @inference(backend="onnxruntime", fallback="error")
    def masked(x: torch.Tensor) -> torch.Tensor:  # as the masks of transformers are made
        return torch.where(x > 0.5, x, torch.tensor(-1.0)) + torch.tensor([1.0, 2.0])

    passes = _counted_passes(monkeypatch)
    for _ in range(2):
        with mode():
            x = torch.rand(3, 2)
            same(masked(x), torch.where(x > 0.5, x, -1.0) + torch.tensor([1.0, 2.0]))
    assert passes and {} not in passes


def test_nor_where_such_a_tensor_is_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    served, passes = inference(_constant, backend="onnxruntime", fallback="error"), _counted_passes(monkeypatch)
    layer, y = Kept().eval(), torch.rand(3, 4)
    expected = y + torch.tensor([9.0, 2.0, 3.0, 4.0])
    with torch.no_grad():
        served(layer, torch.rand(3, 4), y)
    same(y, expected)
    assert passes and {} not in passes


@pytest.mark.parametrize("made", [torch.from_numpy, torch.as_tensor, torch.asarray, torch.from_dlpack])
def test_a_write_to_the_memory_of_an_array_is_one_to_the_array(made: Any) -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen = np.zeros(3, "float32")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen = made(self.seen)
            seen[1:].add_(x[1:])
            return x * seen

    layer, twin = inference(Counting(), verify="off", backend="onnxruntime"), Counting()
    for n in range(3):
        x = torch.arange(3.0) + n
        same(layer(x), twin(x))
        assert layer.seen.tolist() == twin.seen.tolist()
    eagerly("in place")


def _counted_passes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The tables of the passes over graphs that captures make from now on."""
    passes: list[Any] = []
    real = torch.export.ExportedProgram.run_decompositions

    def counting(program: Any, table: Any = None, *args: Any, **kwargs: Any) -> Any:
        passes.append(table)
        return real(program, table, *args, **kwargs)

    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", counting)
    return passes


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_where_there_are_no_counters_the_exporter_is_asked(mode: Any) -> None:
    @inference(backend="onnxruntime", fallback="error")
    def method(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y += 1
        return torch.relu_(x * y)

    for _ in range(2):
        with mode():
            x, y = torch.rand(3, 4), torch.rand(3, 4)
            before = y.clone()
            same(method(x, y), torch.relu(x * (before + 1)))
            same(y, before + 1)


def test_an_argument_that_is_given_twice_may_be_used_in_place_of_copies() -> None:
    @inference(backend="onnxruntime", fallback="error")
    def method(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x * y
        z += 1
        return z

    x = torch.rand(3, 4)
    for _ in range(2):
        with torch.no_grad():
            same(method(x, x), x * x + 1)
