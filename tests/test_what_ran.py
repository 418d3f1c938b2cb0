"""Of a large program only the code counts that a trace has run; here every program is a large one."""

from __future__ import annotations

import copyreg
import functools
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support import counts, layer_class

from hybrid_infer import _miss, inference
from hybrid_infer._version import Version
from hybrid_infer.fingerprint import _code, _walk
from hybrid_infer.state import _ran

FACTOR = 2.0
FLAGS = {"other": False}
NAMES = ["first", "second"]


def deeper(x: Any) -> Any:
    """Named by `rarely` alone; what imports modules by computed names has no key."""
    return x * importlib.import_module("".join(["ma", "th"])).fabs(-1000.0)


def rarely(x: Any) -> Any:
    return deeper(x) + 1


def usually(x: Any) -> Any:
    return x * FACTOR


def choose(x: Any) -> Any:
    return rarely(x) if FLAGS["other"] else usually(x)


@functools.lru_cache
def table() -> float:
    return FACTOR + 1


def by_table(x: Any) -> Any:
    return x * table()


def twice(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(function)
    def wrapped(x: Any) -> Any:
        return function(function(x))

    return wrapped


def for_tracers(x: Any) -> Any:
    return x + x


def for_others(x: Any) -> Any:
    return x * 2


def asks_what_it_is(x: Any) -> Any:
    """What stands for a tensor in Paddle's traces is one to ``type()``."""
    traced = type(x).__name__ != "Tensor" or hasattr(x, "get_defining_op")
    return for_tracers(x) if traced else for_others(x)


@twice
def decorated(x: Any) -> Any:
    return usually(x)


class Steps:
    def first(self, x: Any) -> Any:
        return x + FACTOR

    def second(self, x: Any) -> Any:
        return x - FACTOR


def by_name(x: Any) -> Any:
    return getattr(Steps(), NAMES[0])(x)


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    global FACTOR
    monkeypatch.setattr(_walk, "MANY", 0)
    FACTOR, FLAGS["other"] = 2.0, False
    table.cache_clear()
    yield


def _layer(framework: Any, function: Callable[[Any], Any], **options: Any) -> Any:
    class Method(layer_class(framework)):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return function(x)

    return _hot(Method(), **options)


def _hot(layer: Any, **options: Any) -> Any:
    layer.eval()
    return inference(layer, **options)


def _x(framework: Any, n: int = 4) -> Any:
    values = np.arange(n, dtype="float32")
    return framework.to_tensor(values) if framework.__name__ == "paddle" else framework.from_numpy(values)


def _right(framework: Any, layer: Any, want: Callable[[Any], Any], n: int = 4) -> None:
    with framework.no_grad():
        np.testing.assert_allclose(np.asarray(layer(_x(framework, n))), want(np.arange(n, dtype="float32")), rtol=1e-6)


def _kept(method: Any) -> list[Version]:
    found = method.store().entries()
    return [Version.from_meta(entry.meta) for entry in found]


def test_what_never_runs_neither_counts_nor_keeps_a_method_off_the_disk(
    framework: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = _layer(framework, choose)
    for _ in range(3):
        _right(framework, layer, lambda x: x * 2)
    monkeypatch.setattr(f"{__name__}.deeper", _thousandfold)
    for _ in range(3):
        _right(framework, layer, lambda x: x * 2)
    assert counts()["captures"] == 1 and counts()["hits"] == 5 and not counts()["fallbacks"], counts()
    (version,) = _kept(layer.forward.__hybrid_infer__)
    assert version.ran is not None
    marks = {each.__name__: _code.mark(each.__code__) in version.ran.codes for each in (choose, usually, rarely)}
    assert marks == {"choose": True, "usually": True, "rarely": False}


def test_a_small_program_is_kept_on_disk_too_for_all_that_never_runs(
    framework: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_walk, "MANY", 400)
    layer = _layer(framework, choose)
    _right(framework, layer, lambda x: x * 2)
    (version,) = _kept(layer.forward.__hybrid_infer__)
    assert version.ran is not None
    FLAGS["other"] = True  # runs what has no fingerprint
    for _ in range(2):
        _right(framework, layer, lambda x: x * 1000 + 1)
    FLAGS["other"] = False
    for _ in range(2):
        _right(framework, layer, lambda x: x * 2)
    assert len(_kept(layer.forward.__hybrid_infer__)) == 1 and not counts()["fallbacks"], counts()


def _thousandfold(x: Any) -> Any:
    return x * 1000


def test_a_flag_that_leads_to_other_code_is_seen(framework: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.deeper", _thousandfold)
    layer = _layer(framework, choose)
    for other in (False, True, False, True):
        FLAGS["other"] = other
        for _ in range(2):
            _right(framework, layer, lambda x: x * 1000 + 1 if FLAGS["other"] else x * 2)
    monkeypatch.setattr(f"{__name__}.deeper", lambda x: x * 5)
    for other in (False, True):
        FLAGS["other"] = other
        _right(framework, layer, lambda x: x * 5 + 1 if FLAGS["other"] else x * 2)
    assert not counts()["fallbacks"], counts()


@pytest.mark.parametrize("function", [usually, choose, decorated, by_name], ids=lambda each: each.__name__)
def test_what_runs_counts(framework: Any, monkeypatch: pytest.MonkeyPatch, function: Callable[[Any], Any]) -> None:
    layer = _layer(framework, function)
    global FACTOR
    for value in (2.0, 3.0):
        FACTOR = value
        _right(framework, layer, function)
    monkeypatch.setattr(f"{__name__}.usually", lambda x: x * 7)
    monkeypatch.setattr(Steps, "first", lambda self, x: x * 7)
    for _ in range(2):
        _right(framework, layer, function)
    NAMES.reverse()
    try:
        _right(framework, layer, function)
    finally:
        NAMES.reverse()
    assert counts()["hits"] >= 1 and not counts()["fallbacks"], counts()


def test_code_behind_a_cache_that_answered_counts(framework: Any) -> None:
    """It has not run, since the program had asked before."""
    global FACTOR
    assert table() == 3.0
    layer = _layer(framework, by_table)
    for factor in (2.0, 5.0):
        FACTOR = factor
        table.cache_clear()
        table()
        for _ in range(2):
            _right(framework, layer, lambda x, factor=factor: x * (factor + 1))  # type: ignore[misc]


def test_code_that_runs_unobserved_counts(framework: Any) -> None:
    def aside(x: Any) -> Any:
        before = sys.getprofile()
        sys.setprofile(None)
        try:
            return usually(x)
        finally:
            sys.setprofile(before)

    global FACTOR
    layer = _layer(framework, aside)
    for FACTOR in (2.0, 3.0):
        for _ in range(2):
            _right(framework, layer, lambda x, factor=FACTOR: x * factor)  # type: ignore[misc]


def test_a_call_whose_code_cannot_be_told_is_asked_for_all(framework: Any) -> None:
    """Another one was narrowed before: what that asks for is less."""
    enabled = framework.is_grad_enabled

    def asking(x: Any) -> Any:
        if not FLAGS["other"]:
            return usually(x)
        return x * (importlib.import_module("".join(["ma", "th"])).fabs(3.0) if enabled() else 30.0)

    layer = _layer(framework, asking)
    _right(framework, layer, lambda x: x * 2)
    FLAGS["other"] = True
    for _ in range(3):
        _right(framework, layer, lambda x: x * 30)
        with framework.enable_grad():
            np.testing.assert_allclose(layer(_x(framework)).detach().numpy(), np.arange(4) * 3.0)
    FLAGS["other"] = False
    for _ in range(2):
        _right(framework, layer, lambda x: x * 2)


def test_calls_that_ask_for_more_and_for_less_may_alternate(
    framework: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is found by what its own static model asks for; whatever the code asks for was looked up anew each time."""
    looked, enabled = [], framework.is_grad_enabled
    subject = _miss.subject_of
    monkeypatch.setattr(_miss, "subject_of", lambda *given: looked.append(given) or subject(*given))

    def asking(x: Any) -> Any:
        return x * (importlib.import_module("".join(["ma", "th"])).fabs(3.0) if enabled() else 30.0)

    class Method(layer_class(framework)):  # type: ignore[misc]
        def forward(self, x: Any, other: str) -> Any:
            return usually(x) if other == "usually" else asking(x)

    layer = _hot(Method())
    factors = {("usually", False): 2, ("usually", True): 2, ("other", False): 30, ("other", True): 3}
    for n in range(4):
        misses = len(looked)
        for size in (4, 5, 6):
            for (other, grad), factor in factors.items():
                with framework.set_grad_enabled(grad):
                    found = layer(_x(framework, size), other).detach().numpy()
                np.testing.assert_allclose(found, np.arange(size) * factor)
        assert n < 2 or len(looked) == misses
    assert counts()["hits"] and not counts()["fallbacks"], counts()


def never() -> None:
    first = second = 1
    print(first, second)


def _none() -> None:
    pass


def _size(code: Any) -> int:
    return int(code.co_nlocals)


@pytest.mark.parametrize(
    "looks",
    [
        lambda x: x * (never.__code__.co_nlocals + never.__code__.co_argcount),
        lambda x: x * (_size(never.__code__) + never.__code__.co_argcount),
        lambda x: x * ((0 if never.__code__ == _none.__code__ else 2) + never.__code__.co_argcount),
    ],
    ids=["a name of its own", "handed on", "compared"],
)
def test_what_never_runs_and_is_looked_into_counts(
    framework: Any, monkeypatch: pytest.MonkeyPatch, looks: Callable[[Any], Any]
) -> None:
    """Also where code asks what any function takes."""
    layer = _layer(framework, looks)
    for _ in range(2):
        _right(framework, layer, lambda x: x * 2)
    monkeypatch.setattr(never, "__code__", _none.__code__)
    for _ in range(2):
        _right(framework, layer, lambda x: x * 0)
    assert not counts()["fallbacks"], counts()


@pytest.mark.torch
@pytest.mark.parametrize("operator", ["cond", "while_loop"])
def test_branches_that_are_compiled_within_a_trace_count(monkeypatch: pytest.MonkeyPatch, operator: str) -> None:
    """torch's compiler takes them, and looks at our code on the way there."""
    torch = pytest.importorskip("torch")
    loop = importlib.import_module("torch._higher_order_ops").while_loop

    def step(i: Any, x: Any) -> Any:
        return i + 1, usually(x)

    def either(x: Any) -> Any:
        if operator == "cond":
            return torch.cond(x.sum() > 0, usually, lambda x: x - 1, (x,))
        return loop(lambda i, x: i < 1, step, (torch.tensor(0), x))[1]

    layer = _layer(torch, either)
    for _ in range(2):
        _right(torch, layer, lambda x: x * 2)
    monkeypatch.setattr(f"{__name__}.usually", lambda x: x * 7)
    for _ in range(2):
        _right(torch, layer, lambda x: x * 7)
    assert counts()["captures"] == 2 and not counts()["fallbacks"], counts()


def test_sizes_vary_as_elsewhere(framework: Any) -> None:
    layer = _layer(framework, choose)
    for n in (3, 4, 5, 6):
        _right(framework, layer, lambda x: x * 2, n)
    assert counts()["captures"] == 2 and counts()["hits"] == 2 and not counts()["fallbacks"], counts()


def _cut(x: Any) -> Any:
    return usually(x)[: int(x.shape[0] * 0.5) + 1]


@pytest.mark.torch
def test_code_that_is_exchanged_for_a_trace_counts_as_it_was_written() -> None:
    torch = pytest.importorskip("torch")
    layer = _layer(torch, _cut)
    for n in (4, 5, 6):
        _right(torch, layer, lambda x: x[: len(x) // 2 + 1] * 2, n)
    ran = {version.ran.codes for version in _kept(layer.forward.__hybrid_infer__) if version.ran is not None}
    assert len(ran) == 1 and _code.mark(_cut.__code__) in next(iter(ran)), ran


def _asks_for_much(x: Any) -> Any:
    return x if x.is_leaf or x.is_contiguous() else deeper(x)


def test_sizes_vary_where_code_that_never_runs_asks_for_more(framework: Any) -> None:
    layer = _layer(framework, lambda x: _asks_for_much(x) if FLAGS["other"] else usually(x))
    for n in (3, 4, 5, 6):
        _right(framework, layer, lambda x: x * 2, n)
    assert counts()["captures"] == 2 and counts()["hits"] == 2 and not counts()["fallbacks"], counts()


def test_instances_of_one_class_run_code_of_their_own(framework: Any) -> None:
    class Either(layer_class(framework)):  # type: ignore[misc]
        def __init__(self, other: bool) -> None:
            super().__init__()
            self.other = other

        @inference()
        def forward(self, x: Any) -> Any:
            return by_name(x) if self.other else usually(x)

    layers = [Either(other) for other in (True, False, True, False)]
    for layer in layers:
        layer.eval()
        for _ in range(2):
            _right(framework, layer, lambda x, other=layer.other: x + 2 if other else x * 2)  # type: ignore[misc]
    assert counts()["captures"] == 2 and not counts()["fallbacks"], counts()


def test_what_ran_is_kept_as_plain_data() -> None:
    ran = _ran.Ran(frozenset({"b", "a"}), "key")
    assert _ran.Ran.from_meta(json.loads(json.dumps(ran.to_meta()))) == ran


@pytest.mark.parametrize("verify", ["first", "off"])
def test_what_eager_calls_run_and_no_trace_counts(
    verify: str, framework: Any, monkeypatch: pytest.MonkeyPatch, captures: list[str]
) -> None:
    hot = _layer(framework, asks_what_it_is, verify=verify)
    for _ in range(2):
        _right(framework, hot, lambda x: x * 2)
    assert len(captures) == 1 and counts()["hits"] == 1 and not counts()["fallbacks"], counts()
    (version,) = _kept(hot.forward.__hybrid_infer__)
    marks = {_code.mark(each.__code__) for each in (asks_what_it_is, for_others, for_tracers)}
    assert version.ran is not None and marks < version.ran.codes
    with monkeypatch.context() as patched:
        patched.setattr(sys.modules[__name__], "for_others", lambda x: x * 3)
        _right(framework, hot, lambda x: x * 3)
    _right(framework, hot, lambda x: x * 2)


def _by_its_class(x: Any) -> Any:
    if type(x).__name__ == "Tensor":
        return copyreg.dispatch_table[Steps](x)  # a library's own table
    return for_tracers(x)


def test_what_eager_calls_run_out_of_sight_makes_all_code_count(
    framework: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_sight(x: Any) -> Any:
        return x * 2

    monkeypatch.setitem(copyreg.dispatch_table, Steps, out_of_sight)
    layer = _layer(framework, _by_its_class)
    _right(framework, layer, lambda x: x * 2)
    (version,) = _kept(layer.forward.__hybrid_infer__)
    assert version.ran is None
