"""What was right at some sizes is compared anew at others: once for each magnitude, plan and machine."""

from __future__ import annotations

import copy
import gc
import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from router_support import Affine, comparisons, decided, routes, spoil
from torch_support import counts, same

import hybrid_infer
from hybrid_infer import cli, inference
from hybrid_infer._errors import EngineError
from hybrid_infer.checks import _comparison, _magnitudes

pytestmark = pytest.mark.torch


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return comparisons(monkeypatch)


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def call(hot: Any, eager: Callable[..., Any], *rows: int) -> None:
    for n in rows:
        x = torch.rand(n, 4)
        same(hot(x), eager(x), 1e-5)


def process(layer: torch.nn.Module, *rows: int, **options: Any) -> None:
    """Calls of a decorated copy, which is right; nothing is left of it afterwards but what is on disk."""
    hot = inference(copy.deepcopy(layer), **options)
    call(hot, layer, *rows)
    hybrid_infer.release(hot)
    del hot
    gc.collect()


def wrong_from(rows: int) -> Callable[[list[Any]], list[Any]]:
    return lambda arrays: [each + 1 if each.shape[0] >= rows else each for each in arrays]


def test_an_engine_that_is_wrong_at_large_sizes_alone_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spoil(monkeypatch, wrong_from(32), "onnxruntime")
    layer = Affine()
    with caplog.at_level(logging.WARNING, "hybrid_infer"):
        process(layer, 3, 4, 5, 31, 32, 33, 4, backend="onnxruntime")
    assert counts()["hits"] == 1  # 31 is not of the magnitude of 4
    assert "is not served by onnxruntime: its static model does not do what the eager method does" in caplog.text
    process(layer, 4, 4, backend="onnxruntime")  # and it is known on this machine
    assert counts()["hits"] == 1


@pytest.mark.parametrize("large", [32, 4096])
def test_another_engine_takes_its_calls(monkeypatch: pytest.MonkeyPatch, large: int) -> None:
    """Of a scale that was measured before, and of one that is measured now."""
    monkeypatch.delenv("HYBRID_INFER_BACKEND")
    spoil(monkeypatch, wrong_from(32))
    decided(monkeypatch, openvino=1.0, onnxruntime=2.0)

    class Hot(Affine):
        forward = inference()(Affine.forward)

    layer, hot = Affine(), Hot()
    hot.load_state_dict(layer.state_dict())
    call(hot, layer, 3, 4, 5, 9)
    assert {route.program.engine for route in routes(hot)} == {"openvino"}
    call(hot, layer, large, large + 1, 4, 4, large)
    assert {route.program.engine for route in routes(hot)} == {"onnxruntime"}
    assert counts()["eager_calls"] == 0 and counts()["captures"] == 2


def test_one_comparison_for_each_magnitude_and_machine(checks: list[str]) -> None:
    layer = Affine()
    process(layer, 2, 3, backend="onnxruntime")
    assert len(checks) == 2  # of sizes that are fixed, and of those that vary
    process(layer, *range(2, 32), backend="onnxruntime")
    assert len(checks) == 3
    process(layer, *range(2, 32), backend="onnxruntime")
    assert len(checks) == 3
    process(layer, *range(4, 200, 3), backend="onnxruntime")
    assert len(checks) == 5
    process(layer, 1, 0, 1, 0, backend="onnxruntime")  # whatever answers them
    assert len(checks) == 7
    process(layer, *range(200), backend="onnxruntime")
    assert len(checks) == 7 and counts()["eager_calls"] == 0


def test_each_instance_once_where_that_is_asked_for(checks: list[str]) -> None:
    layer = Affine()
    for n in range(1, 3):
        process(layer, 2, 3, 4, 9, 10, 3, backend="onnxruntime", verify="first")
        assert len(checks) == 1 + 2 * n


def test_never_where_that_is_asked_for(checks: list[str]) -> None:
    layer = Affine()
    process(layer, 2, 3, 9, 40, backend="onnxruntime", verify="off")
    assert not checks


def test_sizes_of_many_magnitudes_are_not_compared_for_ever(monkeypatch: pytest.MonkeyPatch, checks: list[str]) -> None:
    monkeypatch.setattr(_magnitudes, "MOST", 3)
    process(Affine(), 2, 3, 9, 40, 150, 600, 2400, backend="onnxruntime")
    assert len(checks) == 4


def part(x: torch.Tensor) -> torch.Tensor:
    """Up to 32 rows the caller's own memory, which an engine cannot give, and of which the trace is not told."""
    return x * 1.0 if torch.compiler.is_compiling() or x.shape[0] > 32 else x.view(-1, 4)


def test_a_result_that_is_a_view_at_some_sizes_costs_the_others_nothing(
    monkeypatch: pytest.MonkeyPatch, checks: list[str]
) -> None:
    monkeypatch.setattr(_comparison, "_RETRY", 1000.0)
    hot = inference(backend="onnxruntime")(part)
    call(hot, part, 40, 41, 42)
    assert len(checks) == 2
    for n in (8, 9, 10):
        x = torch.rand(n, 4)
        found = hot(x)
        x += 1
        same(found, part(x))
    assert len(checks) == 3  # calls of such sizes rest, and are not compared at each
    call(hot, part, 43, 44)
    assert counts()["captures"] == 2 and counts()["hits"] == 3
    hybrid_infer.release(hot)
    again = inference(backend="onnxruntime")(part)
    call(again, part, 8)  # the first call of a process
    call(again, part, 43)
    assert counts()["hits"] == 4


def test_nor_does_a_view_that_is_found_first(checks: list[str]) -> None:
    hot = inference(backend="onnxruntime")(part)
    call(hot, part, 8, 9, 40, 41)
    x = torch.rand(8, 4)
    found = hot(x)
    x += 1
    same(found, part(x))


def test_an_engine_that_fails_at_some_sizes_serves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_comparison, "_RETRY", 1000.0)

    def fail(arrays: list[Any]) -> list[Any]:
        if arrays[0].shape[0] >= 32:
            raise EngineError("onnxruntime", "no kernel for so much")
        return arrays

    spoil(monkeypatch, fail, "onnxruntime")
    layer = Affine()
    hot = inference(copy.deepcopy(layer), backend="onnxruntime")
    call(hot, layer, 3, 4, 5, 40, 41, 4, 6)
    found = counts()
    assert found["hits"] == 3 and found["captures"] == 2
    assert any("no kernel for so much" in reason for reason in found["fallbacks"])


def test_nor_is_an_engine_left_out_for_results_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def mean(x: torch.Tensor) -> torch.Tensor:
        return x.mean(0)

    spoil(monkeypatch, lambda arrays: [np.nan_to_num(each) for each in arrays], "onnxruntime")
    hot = inference(backend="onnxruntime")(mean)
    call(hot, mean, 3, 4, 0, 0, 5, 6)
    assert counts()["hits"] == 2


def test_integers_that_vary_count_as_well(monkeypatch: pytest.MonkeyPatch, checks: list[str]) -> None:
    def first(x: torch.Tensor, n: int) -> torch.Tensor:
        return x[:n] * 2

    spoil(monkeypatch, wrong_from(32), "onnxruntime")
    hot, x = inference(backend="onnxruntime")(first), torch.rand(64, 4)
    for n in (3, 4, 5, 40, 41, 6):
        same(hot(x, n), first(x, n))
    assert len(checks) == 4 and counts()["captures"] == 3  # the last one for 40 alone, which is as wrong


def test_what_a_method_changes_is_changed_once(checks: list[str]) -> None:
    class Counts(Affine):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen += x.shape[0]
            return self.linear(x)

    layer = Counts()
    hot = inference(copy.deepcopy(layer), backend="onnxruntime")
    call(hot, layer, 2, 3, 4, 9, 40, 41, 1)
    same(hot.seen, layer.seen)
    assert len(checks) == 5 and counts()["hits"] == 2


def test_nor_for_what_rounding_leaves_of_a_sum(monkeypatch: pytest.MonkeyPatch, checks: list[str]) -> None:
    def total(x: torch.Tensor) -> torch.Tensor:
        return x.sum()

    spoil(monkeypatch, lambda arrays: [np.asarray(each + np.float32(2e-7)) for each in arrays], "onnxruntime")
    hot = inference(backend="onnxruntime", fallback="error")(total)
    call(hot, total, 3, 4, 5)
    x = torch.linspace(-1, 1, 64).reshape(16, 4)
    for _ in range(4):
        same(hot(x), total(x), 1e-6)
    assert len(checks) == 5  # after three that told nothing it is taken
    call(hot, total, 6, 17)
    assert counts()["hits"] == 4


def test_the_cache_tells_at_which_sizes_a_plan_was_compared(capsys: pytest.CaptureFixture[str]) -> None:
    process(Affine(), 2, 3, 9, 40, backend="onnxruntime")
    assert cli.main(["cache", "list"]) == 0
    (wide,) = [line for line in capsys.readouterr().out.splitlines() if "(any, 4)" in line]
    assert cli.main(["cache", "show", wide.split()[0]]) == 0
    told = capsys.readouterr().out
    assert "(verified: onnxruntime, at 8 to 31)" in told and "(verified: onnxruntime, at 32 to 127)" in told
