"""A recording leaves the frameworks' classes, and those of the program, as they were, whatever happens meanwhile."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hybrid_infer import HybridInferError
from hybrid_infer.reports import _profile
from hybrid_infer.reports._profile import Recording


@pytest.fixture(params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("torch", "paddle")])
def root(request: pytest.FixtureRequest) -> Any:
    """The class of all layers of a framework."""
    nn = importlib.import_module(request.param).nn
    return nn.Module if hasattr(nn, "Module") else nn.Layer


def program(root: Any) -> type[Any]:
    class Doubling(root):  # type: ignore[misc, valid-type]
        def forward(self, x: Any) -> Any:
            return self.twice(x)

        def twice(self, x: Any) -> Any:
            return x * 2

    return Doubling


@pytest.fixture
def unchanged(root: Any) -> Iterator[Callable[[type[Any]], None]]:
    """Notes a class; all that were noted, and the root, are as they were at the end."""
    kinds = {root: dict(vars(root))}

    def note(kind: type[Any]) -> None:
        kinds[kind] = dict(vars(kind))

    finders = list(sys.meta_path)
    yield note
    assert sys.meta_path == finders
    for kind, before in kinds.items():
        after = dict(vars(kind))
        assert [name for name in {*before, *after} if after.get(name) is not before.get(name)] == []


def test_after_a_call_and_after_an_error(root: Any, unchanged: Any) -> None:
    kind = program(root)
    unchanged(kind)
    with Recording().on():
        assert kind()(3) == 6
    with pytest.raises(ZeroDivisionError), Recording().on([kind]):
        kind()(1 / 0)


def test_inside_of_another_one(root: Any, unchanged: Any) -> None:
    kind = program(root)
    unchanged(kind)
    outer, inner = Recording(), Recording()
    with outer.on():
        kind()(1)
        with inner.on():
            kind()(2)
        kind()(3)
    assert sum(node.calls for node in outer.top.children.values()) == 3
    assert sum(node.calls for node in inner.top.children.values()) == 1


def test_on_two_threads_one_after_the_other(root: Any, unchanged: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = program(root)
    unchanged(kind)
    begun, found = threading.Event(), []

    def another() -> None:
        begun.set()
        recording = Recording()
        with recording.on():
            kind()(2)
        found.append(len(recording.top.children))

    thread = threading.Thread(target=another)
    with Recording().on():
        thread.start()
        begun.wait(10)
        kind()(1)
    thread.join(10)
    assert found == [1]
    monkeypatch.setattr(_profile, "_PATIENCE", 0.01)
    with Recording().on():
        faults: list[Exception] = []

        def refused() -> None:
            try:
                with Recording().on():
                    pass
            except HybridInferError as fault:
                faults.append(fault)

        thread = threading.Thread(target=refused)
        thread.start()
        thread.join(10)
        assert "another thread" in str(faults[0])


def test_threads_that_make_and_call_layers_meanwhile(root: Any, unchanged: Any) -> None:
    over = threading.Event()
    kinds: list[type[Any]] = []
    faults: list[BaseException] = []

    def work() -> None:
        try:
            while not over.is_set():
                kind = program(root)
                before = dict(vars(kind))
                kind()(1)
                kinds.append(kind)
                kind.before = before
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work) for _ in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for _ in range(60):
            with Recording().on():
                program(root)()(1)
    finally:
        over.set()
        for thread in threads:
            thread.join(20)
        sys.setswitchinterval(interval)
    assert not faults and kinds
    for kind in kinds:
        assert vars(kind)["twice"] is kind.before["twice"] and vars(kind)["forward"] is kind.before["forward"]


def test_what_the_program_patches_meanwhile_stays(root: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, calls = program(root), []
    monkeypatch.setattr(root, "__call__", root.__call__)  # to be put back
    with Recording().on():
        ours = root.__call__

        def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
            calls.append(1)
            return ours(self, *args, **kwargs)

        root.__call__ = counted
    assert kind()(3) == 6 and len(calls) == 1
