"""Generators of random numbers that the program keeps: a method that draws from one is left alone, and so is it."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support import counts

from hybrid_infer import inference

MAKERS: dict[str, Callable[[], Any]] = {
    "python": lambda: random.Random(3),
    "bound method": lambda: random.Random(3).random,
    "numpy": lambda: np.random.default_rng(3),
    "older numpy": lambda: np.random.RandomState(3),
}
KEPT: Any = None


def draw(kept: Any) -> float:
    return float(kept() if callable(kept) else kept.random())


@pytest.mark.parametrize("verify", ["build", "off"])
@pytest.mark.parametrize("place", ["global", "closure", "default", "list"])
@pytest.mark.parametrize("name", MAKERS)
def test_a_method_that_draws(
    framework: Any, name: str, place: str, verify: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "KEPT", MAKERS[name]())
    kept, inside = MAKERS[name](), [MAKERS[name]()]

    def by_global(x: Any) -> Any:
        return x * (2 if draw(KEPT) < 0.9 else 3)

    def by_closure(x: Any) -> Any:
        return x * (2 if draw(kept) < 0.9 else 3)

    def by_default(x: Any, kept: Any = kept) -> Any:
        return x * (2 if draw(kept) < 0.9 else 3)

    def by_list(x: Any) -> Any:
        return x * (2 if draw(inside[0]) < 0.9 else 3)

    method = {"global": by_global, "closure": by_closure, "default": by_default, "list": by_list}[place]
    hot, twin, x = inference(method, verify=verify), MAKERS[name](), framework.ones([2])
    for _ in range(40):
        np.testing.assert_allclose(hot(x).numpy(), [2 if draw(twin) < 0.9 else 3] * 2)
    assert counts()["hits"] == 0 and counts()["fallbacks"], counts()
    if framework.__name__ == "torch":  # Paddle cannot trace what Cython has compiled
        assert all("random numbers" in reason for reason in counts()["fallbacks"]), counts()


@pytest.mark.parametrize("verify", ["build", "off"])
def test_a_generator_that_is_not_drawn_from(framework: Any, verify: str) -> None:
    kept = random.Random(3)

    def scaled(x: Any) -> Any:
        return x * (2 if kept is not None else kept.random())

    hot, before = inference(scaled, verify=verify), kept.getstate()
    for _ in range(3):
        np.testing.assert_allclose(hot(framework.ones([2])).numpy(), [2, 2])
    assert kept.getstate() == before and counts()["hits"] >= 2


@pytest.mark.parametrize("name", ["python", "numpy"])
def test_what_another_thread_draws_meanwhile_is_not_held_against_a_method(
    framework: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be tried again, in this process once some time has gone by, and in others."""
    from hybrid_infer.capture import _outside

    draws, over, watch = {"python": random.random, "numpy": np.random.rand}[name], threading.Event(), _outside.watch

    @contextlib.contextmanager
    def meanwhile(**settings: Any) -> Iterator[Any]:
        with watch(**settings) as found:
            other = threading.Thread(target=draws)
            other.start()
            other.join()
            yield found

    def method(x: Any) -> Any:
        return x * 2

    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        monkeypatch.setattr(_outside, "watch", meanwhile)
        hot = inference(method)
        with framework.no_grad():
            assert [float(hot(framework.ones([2]))[0]) for _ in range(3)] == [2] * 3
    finally:
        over.set()
        thread.join()
    assert counts()["captures"] == 0 and any("draws from" in reason for reason in counts()["fallbacks"])
    monkeypatch.setattr(_outside, "watch", watch)
    hot = inference(method)
    with framework.no_grad():
        assert [float(hot(framework.ones([2]))[0]) for _ in range(3)] == [2] * 3
    assert counts()["captures"] == 1, counts()


def test_a_method_that_names_what_it_draws_from_is_known_beside_other_threads(framework: Any) -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        hot = inference(lambda x: x * (2 if random.random() < 2 else 3))
        for _ in range(2):
            hot(framework.ones([2]))
    finally:
        over.set()
        thread.join()
    assert counts()["captures"] == 0 and counts()["fallbacks"]
