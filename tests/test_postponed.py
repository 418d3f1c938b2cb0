"""What failed for a cause that passes: when it is tried again."""

from __future__ import annotations

import types
from typing import Any

import pytest

from hybrid_infer import _verified
from hybrid_infer._errors import PassingFault
from hybrid_infer._family import Held


@pytest.fixture
def request_() -> Any:
    options = types.SimpleNamespace(rtol=None, atol=None, verify="build")
    return types.SimpleNamespace(options=options, name="method")


def held() -> Any:
    version: Any = None
    return Held(version, None, disk=False)


def test_it_is_tried_again_ever_later_until_it_has_served(request_: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_verified.time, "monotonic", lambda: 0.0)
    mine, engine = held(), types.SimpleNamespace(name="engine")
    fault = PassingFault("engine", "no memory")

    def pause() -> float:
        _verified.leave_out(request_, mine, engine, "plan", fault)
        return _verified.until(mine)

    first, second = pause(), pause()
    assert 0 < first < second
    built: Any = types.SimpleNamespace(plan="plan", engine=engine, verified=False)
    _verified.publish(request_, mine, built)
    assert _verified.until(mine) == 0.0 and pause() == first


def test_other_threads_may_put_something_off_meanwhile() -> None:
    mine = held()

    class Entry:
        @property
        def until(self) -> float:
            mine.postponed["another"] = _verified.Postponed("", 1.0, 0)
            return 2.0

    mine.postponed["one"] = Entry()
    assert _verified.until(mine) == 2.0
