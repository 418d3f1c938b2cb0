"""A defect of ours costs a warning, never the program's answer; what the program raises reaches it as it is."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch

import hybrid_infer
from hybrid_infer import _background, _defects, _dispatch, _miss, _ranges
from hybrid_infer._keys import Unhashable

pytestmark = pytest.mark.torch

OURS = _defects.ours


@pytest.fixture(autouse=True)
def caught(defects_raise: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_defects, "ours", OURS)


def layer(**options: Any) -> Any:
    class Hot(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        @hybrid_infer.inference(**options)
        def forward(self, x: Any, fail: bool = False) -> Any:
            if fail:
                RUNS[0] += 1
                raise KeyError("of the program")
            return self.linear(x)

    RUNS[0] = 0
    return Hot().eval()


def counted(name: str) -> Any:
    (found,) = hybrid_infer.stats().values()
    return found[name]


RUNS = [0]
X = torch.linspace(-1, 1, 8).reshape(2, 4)


def broken(*args: Any, **kwargs: Any) -> Any:
    raise AttributeError("a name that a new release lacks")


@pytest.mark.parametrize("place", [(_miss, "resolve"), (_miss, "subject_of"), (_dispatch.State, "layout")])
def test_the_eager_method_answers_and_one_line_says_why(
    place: tuple[Any, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(*place, broken)
    net = layer()
    with torch.no_grad(), caplog.at_level(logging.WARNING, "hybrid_infer"):
        for _ in range(3):
            assert torch.equal(net(X), net.linear(X))
    (line,) = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert "a defect of hybrid_infer: AttributeError: a name that a new release lacks (" in line
    assert "#defects" in line and "report" in line
    (reason,) = counted("fallbacks")
    assert reason.startswith("a defect of hybrid_infer")


def test_it_is_tried_again_after_a_pause_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    net = layer()
    with torch.no_grad():
        with monkeypatch.context() as patch:
            patch.setattr(_miss, "resolve", broken)
            patch.setattr(_defects, "_PAUSE", 0.0)
            net(X)
        net(X)
        assert counted("captures") == 1
        with monkeypatch.context() as patch:
            patch.setattr(_miss, "resolve", broken)
            net(torch.ones(3, 4))
        net(torch.ones(3, 4))
        assert counted("captures") == 1


def test_an_error_of_the_program_is_raised_once_and_as_it_is() -> None:
    net = layer()
    with torch.no_grad():
        with pytest.raises(KeyError, match="of the program") as caught:
            net(X, fail=True)
        assert caught.value.__cause__ is None
        assert RUNS[0] == 1
        with pytest.raises(TypeError, match="unexpected keyword"):
            net(X, nothing=1)
    assert not hybrid_infer.stats()


def test_an_error_of_the_program_met_on_the_way_is_the_one_that_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_miss, "resolve", broken)
    net = layer()
    with torch.no_grad(), pytest.raises(KeyError, match="of the program") as caught:
        net(X, fail=True)
    assert caught.value.__context__ is None  # ours is no part of its story
    assert not hybrid_infer.stats()


def test_it_is_an_error_where_fallbacks_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_miss, "resolve", broken)
    with torch.no_grad(), pytest.raises(hybrid_infer.CaptureError, match="a defect of hybrid_infer"):
        layer(fallback="error")(X)


def test_functions_are_answered_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_miss, "resolve", broken)

    @hybrid_infer.inference()
    def double(x: Any) -> Any:
        return x * 2

    assert torch.equal(double(X), X * 2)


def test_a_wish_to_see_warnings_as_errors_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    def warned(*args: Any, **kwargs: Any) -> Any:
        raise hybrid_infer.CacheWarning("as the filters ask for")

    monkeypatch.setattr(_miss, "resolve", warned)
    with torch.no_grad(), pytest.raises(hybrid_infer.CacheWarning):
        layer()(X)


def test_a_method_runs_once_where_no_thread_can_be_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hot(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        @hybrid_infer.inference(background=True)
        def forward(self, x: Any) -> Any:
            self.calls += 1
            return x * 2

    def none(thread: Any) -> None:
        raise RuntimeError("can't start new thread")

    net = Hot()
    with torch.no_grad(), monkeypatch.context() as patched:
        patched.setattr("threading.Thread.start", none)
        for calls in (1, 2):
            assert torch.equal(net(X), X * 2) and net.calls == calls
    _background.wait()
    with torch.no_grad():
        assert torch.equal(net(X), X * 2) and net.calls == 3
    assert all(not reason.startswith("a defect") for reason in counted("fallbacks"))


def test_what_is_to_be_compiled_ahead_is_compiled_later_where_no_thread_can_be_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none(job: Any) -> None:
        raise RuntimeError("can't start new thread")

    net = layer(background=True, input_spec=[hybrid_infer.InputSpec([None, 4])])
    with torch.no_grad():
        with monkeypatch.context() as patched:
            patched.setattr(_background, "submit", none)
            assert torch.equal(net(X), net.linear(X))
        assert all(not reason.startswith("a defect") for reason in counted("fallbacks"))


def test_a_wider_plan_is_built_later_where_no_thread_can_be_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(job: Any) -> None:
        raise RuntimeError("can't start new thread")

    built: list[str] = []
    held: Any = SimpleNamespace(ranges=_ranges.Ranges(), ledger=SimpleNamespace(unfit={}))
    engine = SimpleNamespace(name="an engine")
    with monkeypatch.context() as patched:
        patched.setattr(_background, "submit", none)
        patched.setattr(_ranges, "_AGAIN", 0.0)
        assert not _ranges.widen("a method", held, engine, (), lambda: built.append("never")).pending()
    job = _ranges.widen("a method", held, engine, (), lambda: built.append("wider"))
    _background.wait()
    assert built == ["wider"] and not job.pending()


def helper(x: Any) -> Any:
    return x * 2


def test_a_helper_that_a_mock_stands_for_costs_no_answer() -> None:
    @hybrid_infer.inference
    def method(x: Any) -> Any:
        return helper(x) + 1

    with mock.patch(f"{__name__}.helper", autospec=True, side_effect=lambda x: x * 7):
        for _ in range(2):
            assert torch.equal(method(X), X * 7 + 1)
    for _ in range(2):
        assert torch.equal(method(X), X * 2 + 1)


def test_an_error_for_itself_that_nobody_catches_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> Any:
        raise Unhashable("[0]", "a mock")

    held = layer()
    monkeypatch.setattr(_miss, "subject_of", broken)
    with torch.no_grad():
        assert torch.equal(held(X), held.linear(X))
    (reason,) = counted("fallbacks")
    assert reason.startswith("a defect of hybrid_infer: Unhashable")


def test_what_is_nested_too_deeply_is_no_defect() -> None:
    class Node:
        def __init__(self, following: Any) -> None:
            self.following, self.value = following, 1.0

    held = layer()
    for _ in range(1500):
        held.head = Node(getattr(held, "head", None))
    with torch.no_grad():
        for _ in range(2):
            assert torch.equal(held(X), held.linear(X))
    assert counted("eager_calls") == 2 and counted("captures") == 0
    (reason,) = counted("fallbacks")
    assert reason.startswith("what it holds is nested too deeply") and "1000" in reason
