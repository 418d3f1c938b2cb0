"""What a method assigns and what it deletes, where no look-up tells that an answer depends on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import counts, layer_class

from hybrid_infer import inference


def _layers(framework: Any, make: Any) -> tuple[Any, Any]:
    base = layer_class(framework)
    eager, hot = make(base)(), inference(make(base)())
    eager.eval()
    hot.eval()
    return eager, hot


def _full(framework: Any, value: float) -> Any:
    return framework.full([2, 3], value)


def _value(tensor: Any) -> float:
    return float(np.asarray(tensor).flat[0])


def resetting(base: Any) -> Any:
    class Resetting(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.cache = None

        def forward(self, x: Any) -> Any:
            self.cache = None  # each call starts anew
            return x * 2

        def fill(self, x: Any) -> Any:
            if self.cache is None:
                self.cache = x
            return self.cache

    return Resetting


def test_an_attribute_that_is_set_to_what_it_holds_already_is_set_where_it_holds_another(framework: Any) -> None:
    eager, hot = _layers(framework, resetting)
    with framework.no_grad():
        for n in range(6):
            x = _full(framework, float(n))
            assert _value(eager(x)) == _value(hot(x)) == 2 * n
            assert _value(eager.fill(x)) == _value(hot.fill(x)) == n
    assert counts()["eager_calls"] == 0 and counts()["captures"] == 2


def deleting(base: Any) -> Any:
    class Deleting(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.flag = 0

        def forward(self, x: Any) -> Any:
            try:
                del self.flag
                y = x + 1
            except AttributeError:
                y = x * 1
            self.flag = 1
            return y * self.flag

        def reset(self) -> None:
            if hasattr(self, "flag"):
                del self.flag

    return Deleting


def past_its_class(base: Any) -> Any:
    class Past(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.flag = True

        def forward(self, x: Any) -> Any:
            y = x + 1 if object.__getattribute__(self, "flag") else x * 1
            self.flag = True
            return y * int(self.flag)

        def reset(self) -> None:
            self.flag = False

    return Past


@pytest.mark.parametrize("make", [deleting, past_its_class], ids=lambda make: make.__name__)
def test_what_is_asked_of_an_attribute_by_other_ways_than_a_look_up_counts(framework: Any, make: Any) -> None:
    eager, hot = _layers(framework, make)
    with framework.no_grad():
        x = _full(framework, 0.0)
        for n in range(7):
            if n in (2, 4):
                eager.reset()
                hot.reset()
            assert _value(eager(x)) == _value(hot(x)), n


def ordered(base: Any) -> Any:
    class Ordered(base):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            self.second = x + 1
            self.first = x + 2
            self.middle = x + 3
            return x * 2

    return Ordered


def test_attributes_come_to_be_in_the_order_in_which_they_are_assigned(framework: Any) -> None:
    """Sublayers, buffers and keys of other methods are told by it."""
    names = ("first", "second", "middle")
    found = []
    for _ in range(2):  # the second one is served at once
        eager, hot = _layers(framework, ordered)
        for each in (eager, hot):
            with framework.no_grad():
                each(_full(framework, 1.0))
            held = [*vars(each), *vars(each)["_buffers"]]
            found.append([name for name in held if name in names])
    assert found == [["second", "first", "middle"]] * 4
    assert counts()["captures"] == 1 and counts()["hits"] == 1


def noting(base: Any) -> Any:
    class Noting(base):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            self.kind = x.dtype
            self.kinds = (x.dtype, 3, None)
            return x * 2

    return Noting


def asking(base: Any) -> Any:
    class Asking(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.kind = None

        def forward(self, x: Any) -> Any:
            y = x if self.kind is None else x.astype(self.kind) if hasattr(x, "astype") else x.to(self.kind)
            self.kind = x.dtype
            return y * 2

    return Asking


@pytest.mark.parametrize("make", [noting, asking], ids=lambda make: make.__name__)
def test_the_framework_s_own_constants_are_assigned_as_well(framework: Any, make: Any) -> None:
    eager, hot = _layers(framework, make)
    with framework.no_grad():
        for kind in ("float32", "float32", "float64", "float64", "float32", "float32"):
            x = framework.ones([2, 3], dtype=getattr(framework, kind))
            assert eager(x).dtype == hot(x).dtype
            assert hot.kind == eager.kind and type(hot.kind) is type(eager.kind)
            assert getattr(hot, "kinds", None) == getattr(eager, "kinds", None)
    if make is noting:
        assert counts()["eager_calls"] == 0 and counts()["captures"] == 2
