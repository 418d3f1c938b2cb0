"""Remembered failures: small, few, and not for ever."""

from __future__ import annotations

import time

import pytest
from cache_support import META, METHOD, OTHER

from hybrid_infer.cache import MemoryStore, Store

AnyStore = Store | MemoryStore
DAY = 86_400.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands where its one element says."""
    now = [time.time()]
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


def test_they_are_kept_per_method_newest_first(any_store: AnyStore, clock: list[float]) -> None:
    for number in range(3):
        any_store.remember_failure(METHOD, {"number": number})
        clock[0] += 1
    any_store.remember_failure(OTHER, {"other": True})
    assert any_store.failures(METHOD) == [{"number": 2}, {"number": 1}, {"number": 0}]
    assert any_store.failures(OTHER) == [{"other": True}]
    assert any_store.versions(METHOD) == []
    any_store.forget_failures(METHOD)
    assert any_store.failures(METHOD) == []
    assert any_store.failures(OTHER) == [{"other": True}]


def test_an_equal_one_is_one(any_store: AnyStore, clock: list[float]) -> None:
    any_store.remember_failure(METHOD, {"a": 1})
    clock[0] += 6 * DAY
    any_store.remember_failure(METHOD, {"a": 1})
    assert any_store.failures(METHOD) == [{"a": 1}]
    clock[0] += 6 * DAY
    assert any_store.failures(METHOD) == [{"a": 1}]


def test_one_takes_the_place_of_others(any_store: AnyStore, clock: list[float]) -> None:
    for number in range(3):
        any_store.remember_failure(METHOD, {"number": number})
        clock[0] += 1
    any_store.remember_failure(METHOD, {"number": 3}, [{"number": 3}, {"number": 0}, {"number": 2}, {"number": 7}])
    assert any_store.failures(METHOD) == [{"number": 3}, {"number": 1}]


def test_they_expire_after_a_week(any_store: AnyStore, clock: list[float]) -> None:
    any_store.remember_failure(METHOD, {"a": 1})
    clock[0] += 7 * DAY - 1
    assert any_store.failures(METHOD) == [{"a": 1}]
    clock[0] += 2
    assert any_store.failures(METHOD) == []


@pytest.mark.parametrize("back, kept", [(60.0, True), (400 * DAY, False)])
def test_a_clock_set_back_makes_none_of_them_immortal(
    any_store: AnyStore, clock: list[float], back: float, kept: bool
) -> None:
    any_store.remember_failure(METHOD, {"a": 1})
    clock[0] -= back
    assert any_store.failures(METHOD) == ([{"a": 1}] if kept else [])
    any_store.remember_failure(METHOD, {"a": 2})
    assert {"a": 2} in any_store.failures(METHOD)


def test_their_number_is_bounded(any_store: AnyStore, clock: list[float]) -> None:
    for number in range(40):
        any_store.remember_failure(METHOD, {"number": number})
        clock[0] += 1
    assert any_store.failures(METHOD) == [{"number": number} for number in range(39, 23, -1)]
    if isinstance(any_store, Store):
        assert len(list((any_store.root / "v1/methods" / METHOD[:2] / METHOD / "failures").iterdir())) == 16


def test_pruning_removes_expired_ones(store: Store, clock: list[float]) -> None:
    store.remember_failure(METHOD, {"a": 1})
    store.prune()
    assert store.failures(METHOD) == [{"a": 1}]
    clock[0] += 8 * DAY
    store.prune()
    assert not (store.root / "v1/methods" / METHOD[:2]).exists() or not any((store.root / "v1/methods").rglob("*.json"))


def test_clearing_removes_them(any_store: AnyStore) -> None:
    any_store.publish(METHOD, META, {})
    any_store.remember_failure(METHOD, {"a": 1})
    any_store.remember_failure(OTHER, {"a": 1})
    any_store.clear()
    assert any_store.failures(METHOD) == any_store.failures(OTHER) == []


def test_clearing_counts_their_bytes(store: Store) -> None:
    store.remember_failure(METHOD, {"a": 1})
    (record,) = (store.root / "v1/methods").rglob("*.json")
    size = record.stat().st_size
    assert store.clear().freed == size
