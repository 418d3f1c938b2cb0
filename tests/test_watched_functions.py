"""Functions are seen to change, and to look at them is not told to an audit hook one by one."""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hybrid_infer.fingerprint import _functions


def plain(x: Any) -> Any:
    return x


def other(x: Any) -> Any:
    return x + 1


def given(x: int = 1, *, y: int = 2) -> int:
    return x + y


def _copied(function: types.FunctionType) -> types.FunctionType:
    found = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    found.__kwdefaults__ = function.__kwdefaults__
    return found


def _watched(*functions: Any, followed: bool) -> Callable[[], bool]:
    rows = [(f, f.__code__, f.__defaults__, f.__kwdefaults__) for f in functions]
    check = _functions.unchanged(rows, {id(f) for f in functions} if followed else ())
    assert check() and check()
    return check


CHANGES: dict[str, Callable[[Any], object]] = {
    "code": lambda f: setattr(f, "__code__", other.__code__),
    "defaults": lambda f: setattr(f, "__defaults__", (1.0,)),
    "an array": lambda f: setattr(f, "__defaults__", (np.ones(2),)),
    "keywords": lambda f: setattr(f, "__kwdefaults__", {"y": True}),
}


@pytest.mark.parametrize("followed", [True, False], ids=["followed", "unfollowed"])
@pytest.mark.parametrize("function", [plain, given], ids=["plain", "given"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(name: str, function: Any, followed: bool) -> None:
    first, changed, last = _copied(plain), _copied(function), _copied(given)
    check = _watched(first, changed, last, followed=followed)
    CHANGES[name](changed)
    assert not check() and not check()


def test_an_equal_default_is_another_one() -> None:
    changed = _copied(given)
    changed.__kwdefaults__ = None
    check = _watched(changed, followed=False)
    changed.__defaults__ = (True,)
    assert not check()


@pytest.mark.parametrize("followed", [True, False], ids=["followed", "unfollowed"])
def test_what_else_a_function_holds_does_not_count(followed: bool) -> None:
    changed, last = _copied(plain), _copied(given)
    check = _watched(changed, last, followed=followed)
    changed.__doc__, changed.__annotations__ = "New.", {"x": int}
    vars(changed)["note"] = np.ones(2)
    assert check() and check()
    changed.__dict__ = {"note": np.ones(2)}
    assert check() and check()
    changed.__code__ = other.__code__
    assert not check()


EVENTS = """
import sys
from hybrid_infer.fingerprint import _functions

def plain(x): return x
def given(x, y=1): return x

functions = [type(f)(f.__code__, globals(), "f", f.__defaults__) for f in [plain, given] * 500]
check = _functions.unchanged([(f, f.__code__, f.__defaults__, f.__kwdefaults__) for f in functions], {id(functions[0])})
assert check()
events = []
sys.addaudithook(lambda event, arguments: events.append(event))
assert check() and len(events) <= 2, events[:5]
"""


def test_an_audit_hook_is_told_of_all_at_once() -> None:
    subprocess.run([sys.executable, "-c", EVENTS], check=True)
