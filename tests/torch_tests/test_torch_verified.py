"""A plan is compared with the eager method once on a machine; where it is wrong, another engine serves."""

from __future__ import annotations

import copy
import gc
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from router_support import Affine, X, comparisons, decided, spoil
from torch_support import counts, same

import hybrid_infer
from hybrid_infer import _miss, _serve, inference
from hybrid_infer._errors import EngineError
from hybrid_infer.checks import _agreement, _comparison, _verify

pytestmark = pytest.mark.torch

Checks = list[str]


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Checks:
    return comparisons(monkeypatch)


def plus_one(arrays: list[Any]) -> list[Any]:
    return [array + 1 for array in arrays]


def process(layer: torch.nn.Module, calls: int = 2, **options: Any) -> list[torch.Tensor]:
    """What the calls of a decorated copy give; nothing is left of it afterwards but what is on disk."""
    hot = inference(copy.deepcopy(layer), **options)
    with torch.no_grad():
        found = [hot(X) for _ in range(calls)]
    hybrid_infer.release(hot)
    del hot
    gc.collect()
    return found


def right(layer: torch.nn.Module, found: list[torch.Tensor]) -> bool:
    with torch.no_grad():
        return all(torch.allclose(each, layer(X), rtol=1e-4, atol=1e-4) for each in found)


def explained(layer: Any) -> dict[str, Any]:
    found: dict[str, Any] = hybrid_infer.explain(layer).to_dict()["methods"][0]
    return found


def test_a_plan_that_nobody_verified_is_verified_by_whom_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, plus_one)
    layer = Affine()
    assert not right(layer, process(layer, backend="openvino", verify="off"))
    assert right(layer, process(layer, backend="openvino"))


def test_nor_is_it_taken_for_verified_by_another_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, plus_one)
    layer = Affine()
    unverified = inference(copy.deepcopy(layer), backend="openvino", verify="off")
    with torch.no_grad():
        unverified(X)
        assert not right(layer, [unverified(X)])
        assert right(layer, process(layer, backend="openvino"))


def test_it_is_verified_once_on_a_machine(checks: Checks) -> None:
    layer = Affine()
    process(layer, verify="off")
    assert not checks
    process(layer)
    assert checks == ["onnxruntime"]
    process(layer)
    process(layer, verify="off")
    process(layer)
    assert checks == ["onnxruntime"] and counts()["builds"] == 1
    process(layer, verify="first")
    assert checks == ["onnxruntime"] * 2


def test_by_wide_tolerances_it_is_not_verified_for_close_ones(checks: Checks) -> None:
    layer = Affine()
    process(layer, rtol=1.0)
    process(layer, rtol=1e-4)
    process(layer, rtol=1e-4)
    process(layer, rtol=1.0)
    assert len(checks) == 2 and counts()["builds"] == 1


def test_a_comparison_that_tells_nothing_verifies_nothing(monkeypatch: pytest.MonkeyPatch, checks: Checks) -> None:
    def compare(*_: Any, **__: Any) -> float:
        raise _verify.Inconclusive("a near-tie")

    layer = Affine()
    with monkeypatch.context() as patched:
        patched.setattr(_verify, "compare", compare)
        hot = inference(copy.deepcopy(layer))
        with torch.no_grad():
            for _ in range(5):
                same(hot(X), layer(X))
        assert len(checks) == 3 and counts()["captures"] == 1 and counts()["hits"] == 2
        process(layer)  # in this process the plan is taken
        assert len(checks) == 3
        hybrid_infer.release(hot)
        del hot
        gc.collect()
        process(layer, calls=1)
        assert len(checks) == 4
    gc.collect()
    process(layer)
    process(layer)
    assert len(checks) == 5, "the comparison that told something is the last one"


def test_a_plan_taken_by_wide_tolerances_is_not_taken_by_close_ones(
    monkeypatch: pytest.MonkeyPatch, checks: Checks
) -> None:
    """Integers that differ where the floats agree tell nothing; with closer tolerances these floats do not agree."""

    def shifted(arrays: list[Any]) -> list[Any]:
        floats, integers = arrays
        integers = integers.copy()
        integers[0] += 1
        return [floats * 1.05, integers]

    spoil(monkeypatch, shifted)

    class Picked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4))

        @inference(backend="openvino", rtol=1.0)
        def wide(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.weight * x, (x * 3).to(torch.int64).sum(-1)

    layer = Picked()
    with torch.no_grad():
        for _ in range(4):
            layer.wide(X)
        assert counts()["hits"] >= 1, "three comparisons told nothing"
        close = copy.deepcopy(layer)
        close.wide = inference(close.wide, backend="openvino", rtol=1e-4)  # type: ignore[method-assign]
        expected = close.weight * X, (X * 3).to(torch.int64).sum(-1)
        for _ in range(3):
            same(close.wide(X), expected)


def test_what_the_eager_method_cannot_compute_is_not_verified(monkeypatch: pytest.MonkeyPatch, checks: Checks) -> None:
    def fail(_: Any) -> Any:
        raise RuntimeError("not implemented for this type")

    layer = Affine()
    with monkeypatch.context() as patched:
        patched.setattr(_serve.Invocation, "run", fail)
        patched.setattr(_comparison, "lacks_kernel", lambda *_: True)
        assert right(layer, process(layer))
        assert not checks and counts()["hits"] == 2
    process(layer)
    process(layer)
    assert checks == ["onnxruntime"]


@pytest.mark.parametrize("automatic", [False, True], ids=["list", "auto"])
def test_the_next_engine_serves_where_one_is_wrong(
    monkeypatch: pytest.MonkeyPatch, checks: Checks, caplog: pytest.LogCaptureFixture, automatic: bool
) -> None:
    options: dict[str, Any] = {"fallback": "error"}
    wrong, serves = ("onnxruntime", "openvino") if automatic else ("openvino", "onnxruntime")
    pytest.importorskip("openvino")
    if automatic:
        monkeypatch.delenv("HYBRID_INFER_BACKEND")
    else:
        options["backend"] = [wrong, serves]
    loads = spoil(monkeypatch, plus_one, wrong)
    times = decided(monkeypatch, eager=3.0, onnxruntime=1.0, openvino=2.0)
    layer = Affine()
    hot = inference(copy.deepcopy(layer), **options)
    with caplog.at_level(logging.INFO, "hybrid_infer"), torch.no_grad():
        assert right(layer, [hot(X), hot(X)])
        other = inference(copy.deepcopy(layer), **options)
        assert right(layer, [other(X), other(X)])
    [version] = explained(hot)["versions"]
    assert version["served_by"] == [serves] and "does not do what" in version["not_considered"][wrong]
    assert not explained(hot)["refusals"] and counts()["hits"] == 3 and not counts()["eager_calls"]
    said = [r for r in caplog.records if f"is not served by {wrong}" in r.getMessage()]
    assert len(said) == 1 and said[0].levelno == (logging.INFO if automatic else logging.WARNING)
    assert checks == [wrong, serves] and len(loads) == 1 and len(times) == automatic
    hybrid_infer.release(hot)
    hybrid_infer.release(other)
    del hot, other
    gc.collect()
    hot = inference(copy.deepcopy(layer), **options)
    with torch.no_grad():
        assert right(layer, [hot(X), hot(X)])
    [version] = explained(hot)["versions"]
    assert version["served_by"] == [serves] and wrong in version["not_considered"] and not explained(hot)["refusals"]
    assert len(loads) == 1 and len(checks) == 2 and len(times) == automatic


def test_where_every_engine_is_wrong_the_eager_method_answers(monkeypatch: pytest.MonkeyPatch, checks: Checks) -> None:
    spoil(monkeypatch, plus_one)
    spoil(monkeypatch, lambda arrays: [array + 2 for array in arrays], "onnxruntime")
    layer = Affine()
    for _ in range(2):
        assert right(layer, process(layer, backend=["openvino", "onnxruntime"]))
    assert checks == ["openvino", "onnxruntime"] and not counts()["hits"]
    [reason] = counts()["fallbacks"]
    assert "openvino: " in reason and "onnxruntime: " in reason


def test_an_engine_that_cannot_build_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    openvino = pytest.importorskip("hybrid_infer.backends.openvino")
    pytest.importorskip("openvino")
    asked: list[int] = []

    def prepare(*_: Any) -> Any:
        asked.append(1)
        raise EngineError("openvino", "not today")

    monkeypatch.setattr(openvino.OpenVino, "prepare", prepare)
    layer = Affine()
    for _ in range(2):
        hot = inference(copy.deepcopy(layer), backend=["openvino", "onnxruntime"], fallback="error")
        with torch.no_grad():
            assert right(layer, [hot(X), hot(X)])
        assert explained(hot)["versions"][0]["not_considered"] == {"openvino": "not today"}
        del hot
        gc.collect()
    assert len(asked) == 1


def test_what_no_engine_computes_is_no_reason_to_try_another(monkeypatch: pytest.MonkeyPatch, checks: Checks) -> None:
    def check(*args: Any) -> Any:
        checks.append("")
        raise _verify.Unlike("a class of the result does not keep what it is given")

    monkeypatch.setattr(_agreement, "check", check)
    pytest.importorskip("openvino")
    layer = Affine()
    assert right(layer, process(layer, backend=["openvino", "onnxruntime"]))
    assert len(checks) == 1 and not counts()["hits"]


def test_a_chosen_engine_that_is_wrong_for_another_instance_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice is made anew among those that are left."""
    monkeypatch.delenv("HYBRID_INFER_BACKEND")
    broken: list[int] = []
    spoil(monkeypatch, lambda arrays: plus_one(arrays) if broken else arrays)
    times = decided(monkeypatch, eager=3.0, onnxruntime=2.0, openvino=1.0)
    layer = Affine()
    first, second = (inference(copy.deepcopy(layer), verify="first", fallback="error") for _ in range(2))
    with torch.no_grad():
        assert right(layer, [first(X), first(X)])
        assert explained(first)["versions"][0]["served_by"] == ["openvino"]
        broken.append(1)
        assert right(layer, [second(X), second(X)])
    assert {r.program.engine for r in _states(second)} == {"onnxruntime"} and len(times) == 2
    assert right(layer, process(layer, fallback="error")) and len(times) == 2


def _states(layer: Any) -> list[Any]:
    states: Callable[..., Any] = layer.forward.__hybrid_infer__.state
    return list(states(layer).routes.values())


def test_the_program_that_reads_weights_at_each_call_is_compared_too(checks: Checks) -> None:
    """An engine makes other kernels for it; and of one plan each of the two is compared once on a machine."""
    for compared in (["onnxruntime", "onnxruntime"], []):
        layer = inference(Affine().eval())
        with torch.no_grad():
            for _ in range(6):
                same(layer(X), Affine.forward(layer, X))
                layer.linear.weight.mul_(1.5)
        assert checks == compared
        hybrid_infer.release(layer)
        checks.clear()


def test_a_method_that_raises_is_not_captured_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return table[index] * 2

    hot, table = inference(taken), torch.rand(4, 3)
    monkeypatch.setattr(_miss, "_AFTER_ERROR", 1e6)
    with torch.no_grad():
        for _ in range(5):
            with pytest.raises(IndexError, match="index 9"):
                hot(table, torch.tensor([9]))
        torch.testing.assert_close(hot(table, torch.tensor([1])), table[[1]] * 2)
    assert counts()["captures"] == 1 and counts()["eager_calls"] == 5, counts()


def test_a_method_that_raised_is_served_once_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return table[index] * 2

    hot, table = inference(taken), torch.rand(4, 3)
    monkeypatch.setattr(_miss, "_AFTER_ERROR", 0.0)
    with torch.no_grad():
        with pytest.raises(IndexError, match="index 9"):
            hot(table, torch.tensor([9]))
        for n in range(3):
            torch.testing.assert_close(hot(table, torch.tensor([n])), table[[n]] * 2)
    assert counts()["hits"] == 2 and counts()["eager_calls"] == 0, counts()
