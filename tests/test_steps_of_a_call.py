"""How many of our functions of Python a served call runs: no more than it did, however large the layer is.

Each check that every call makes costs little by itself; together they are what a method has to save before it gains
anything. Times differ from machine to machine, and counts do not. Where a bound no longer holds, the way of a call has
become longer: find a shorter one, or raise the bound knowingly.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from support import layer_class, served

import hybrid_infer
from hybrid_infer import _busy, _miss, inference

OURS = os.path.dirname(hybrid_infer.__file__) + os.sep
OPTIONS: dict[str, Any] = {"backend": "onnxruntime", "core_handover": False}


def steps(call: Callable[[], Any]) -> Counter[str]:
    """The functions of ours that a call runs, once nothing is left to be prepared."""
    found: Counter[str] = Counter()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            found[f"{frame.f_code.co_filename.removeprefix(OURS)}:{frame.f_code.co_name}"] += 1

    for _ in range(5):
        call()
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return found


def tiny(framework: Any, weights: int, attributes: int, blocks: int = 0) -> Any:
    class Block(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = framework.nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            return self.inner(x) + x

    class Tiny(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weights, self.numbers = weights, attributes
            self.blocks = framework.nn.Sequential(*(Block() for _ in range(blocks)))
            for index in range(weights):
                self.register_buffer(f"weight{index}", framework.ones([2]))
            for index in range(attributes):
                setattr(self, f"attribute{index}", float(index))

        def forward(self, x: Any, scale: float = 1.0) -> Any:
            x = self.blocks(x) * scale
            for index in range(self.numbers):
                x = x + getattr(self, f"attribute{index}")
            for index in range(self.weights):
                x = x + getattr(self, f"weight{index}")
            return x

    layer = Tiny()
    layer.eval()
    return layer


#: What holds where the program has imported both frameworks, and Python makes a function of a comprehension.
MOST = {
    "torch": {"a call": 21, "by keyword": 21, "with gradients": 42},
    "paddle": {"a call": 24, "by keyword": 24, "with gradients": 51},
}


def few(framework: Any, kind: str, found: Counter[str]) -> None:
    assert 0 < found.total() <= MOST[framework.__name__][kind], found


def test_a_call(framework: Any) -> None:
    hot, x = inference(tiny(framework, 1, 1).forward, **OPTIONS), framework.ones([2])
    with framework.no_grad():
        few(framework, "a call", steps(lambda: hot(x)))
        few(framework, "by keyword", steps(lambda: hot(x, scale=2.0)))
    served(captures=2)


def test_a_call_while_gradients_are_recorded(framework: Any) -> None:
    layer = framework.nn.Linear(2, 2)
    layer.eval()
    hot, x = inference(layer.forward, **OPTIONS), framework.ones([2, 2])
    few(framework, "with gradients", steps(lambda: hot(x)))
    served(captures=1)


def test_a_large_layer_takes_no_more_of_them_than_a_small_one(framework: Any) -> None:
    x = framework.ones([2])
    with framework.no_grad():
        small, large = (inference(tiny(framework, *size).forward, **OPTIONS) for size in ((1, 1, 1), (20, 20, 8)))
        assert steps(lambda: large(x)) == steps(lambda: small(x))


def test_tensors_that_a_method_does_not_compute_with_take_no_step_each() -> None:
    """Each BatchNorm has a number of the batches that it was trained with."""
    torch = pytest.importorskip("torch")
    x = torch.ones([1, 2, 4])
    with torch.no_grad():
        few, many = (
            inference(torch.nn.Sequential(*(torch.nn.BatchNorm1d(2) for _ in range(count))).eval(), **OPTIONS)
            for count in (2, 12)
        )
        assert steps(lambda: many(x)).total() == steps(lambda: few(x)).total()


@pytest.mark.parametrize("given", [False, True])
def test_what_a_method_works_on_is_looked_for_once(framework: Any, monkeypatch: Any, given: bool) -> None:
    """Also where the first call finds out what else each call has to be asked, and where it is given an object."""

    class Asks(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = framework.nn.Linear(2, 2)

        @inference(**OPTIONS)
        def forward(self, x: Any, config: Any = None) -> Any:
            x = self.linear(x) * (1 if config is None else config.scale)
            return x * 3 if framework.is_grad_enabled() else x

    found, subject_of = [], _miss.subject_of
    monkeypatch.setattr(_miss, "subject_of", lambda *rest: found.append(subject_of(*rest)) or found[-1])
    layer, config = Asks(), [SimpleNamespace(scale=2)] * given
    layer.eval()
    for _ in range(2):
        with framework.no_grad():
            layer(framework.ones([1, 2]), *config)
        assert len(found) == 1 and found[0].asks
    with framework.enable_grad():
        layer(framework.ones([1, 2]), *config)
    assert len(found) == 2


def test_a_capture_of_one_thread_is_none_of_another() -> None:
    found: list[bool] = []
    with _busy.transparent():
        other = threading.Thread(target=lambda: found.append(_busy.capturing()))
        other.start()
        other.join()
        assert _busy.capturing()
    assert found == [False] and not _busy.capturing()
