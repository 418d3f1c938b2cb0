"""What failed for a cause that passes: when it is tried again."""

from __future__ import annotations

import time
import types
from typing import Any

import pytest

from hybrid_infer import _pauses
from hybrid_infer._errors import PassingFault
from hybrid_infer._family import Held
from hybrid_infer._types import TF32
from hybrid_infer.checks import _verified


@pytest.fixture
def request_() -> Any:
    options = types.SimpleNamespace(rtol=None, atol=None, verify="build")
    call = types.SimpleNamespace(shapes=[], ints=())
    return types.SimpleNamespace(options=options, name="method", live=False, tf32=TF32(), call=call)


def held() -> Any:
    version: Any = types.SimpleNamespace(tensors=(), ints=())
    return Held(version, None, disk=False)


def test_it_is_tried_again_ever_later_until_it_has_served(request_: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(_verified.time, "monotonic", lambda: clock[0])
    mine, engine = held(), types.SimpleNamespace(name="engine")
    fault = PassingFault("engine", "no memory")

    def pause() -> float:
        with pytest.raises(PassingFault) as met, _verified.trying(request_, mine, engine, ["another", "plan"]):
            _verified.leave_out(request_, mine, engine, "plan", fault)
            raise fault
        started, clock[0] = clock[0], _verified.until(met.value)
        return clock[0] - started

    first, second = pause(), pause()
    assert 0 < first < second
    built: Any = types.SimpleNamespace(plan="plan", engine=engine, verified=False)
    _verified.publish(request_, mine, built)
    assert pause() == first


def test_a_plan_that_is_put_off_is_not_tried(request_: Any) -> None:
    mine, engine = held(), types.SimpleNamespace(name="engine")
    _verified.leave_out(request_, mine, engine, "plan", PassingFault("engine", "no memory"))
    with pytest.raises(PassingFault, match="no memory") as met, _verified.trying(request_, mine, engine, ["plan"]):
        pytest.fail("tried")
    assert met.value.until > time.monotonic()
    with _verified.trying(request_, mine, engine, ["another"]):
        pass


def test_a_pause_grows_no_further_than_it_may() -> None:
    assert [_pauses.ever_longer(3.0, times, most=2) for times in range(4)] == [3.0, 6.0, 12.0, 12.0]
