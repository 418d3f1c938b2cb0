"""Objects that are nothing but themselves, and other things that code tells apart by more than their values."""

from __future__ import annotations

import enum
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import counts, eagerly, layer_class

from hybrid_infer import inference

AUTO, OFF = object(), object()
MODE = AUTO
ARRAY = np.ma.masked_array([1.0, 2.0], [False, False])
RECORDS = np.array([1.0, 2.0]).view(np.recarray)
FOLDER = Path("no such folder")


class Base:
    scale = 2.0


class Config(Base):
    unused = 1


class Parts(enum.Flag):
    BASE = enum.auto()
    BIAS = enum.auto()


class Elsewhere:
    scale = 7.0


@pytest.fixture(autouse=True)
def first_values() -> Iterator[None]:
    global MODE
    MODE = AUTO
    ARRAY[0], RECORDS[0] = 1.0, 1.0
    yield
    globals().pop("max", None)
    os.environ.pop("SENTINEL_SCALE", None)


def _value(framework: Any, method: Any, *args: Any) -> float:
    with framework.no_grad():
        return float(np.asarray(method(framework.ones([2]), *args))[0])


def test_a_global_that_is_another_one_of_two(framework: Any) -> None:
    global MODE
    method = inference(lambda x: x * (2.0 if MODE is AUTO else 3.0))
    for mode, expected in ((AUTO, 2), (OFF, 3), (AUTO, 2), (object(), 3)):
        MODE = mode
        assert [_value(framework, method) for _ in range(2)] == [expected] * 2
    assert counts()["eager_calls"] == 0


def test_an_attribute_that_is_another_one_of_two(framework: Any) -> None:
    class Net(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.mode: Any = AUTO

        @inference()
        def forward(self, x: Any) -> Any:
            return x * (2.0 if self.mode is AUTO else 3.0 if self.mode is OFF else 5.0)

    net = Net()
    for mode, expected in ((AUTO, 2), (OFF, 3), (AUTO, 2), (object(), 5), (OFF, 3)):
        net.mode = mode
        assert [_value(framework, net) for _ in range(2)] == [expected] * 2
    assert counts()["eager_calls"] == 0


MODES = {"a": object(), "b": object()}


class Known:
    a, b = object(), object()


KNOWN = Known()


def _in_a_closure() -> tuple[Any, Any, Any]:
    a, b = object(), object()
    return a, b, lambda mode: mode is a


def _as_default() -> tuple[Any, Any, Any]:
    a, b = object(), object()

    def pick(mode: Any, known: Any = a) -> bool:
        return mode is known

    return a, b, pick


def _in_containers() -> tuple[Any, Any, Any]:
    a, b = [object(), object(), object()], [object(), object(), object()]
    return (a, a[0]), (b, b[2]), lambda mode: mode[0].index(mode[1]) == 0


PLACES = {
    "a global dict": lambda: (MODES["a"], MODES["b"], lambda mode: mode is MODES["a"]),
    "an object of a global": lambda: (KNOWN.a, KNOWN.b, lambda mode: mode is KNOWN.a),
    "a closure": _in_a_closure,
    "a default": _as_default,
    "containers": _in_containers,
    "the key of a dict": lambda: ({MODES["a"]: 1}, {MODES["b"]: 1}, lambda mode: MODES["a"] in mode),
    "a tuple": lambda: ((1, (MODES["a"],)), (1, (MODES["b"],)), lambda mode: mode[1][0] is MODES["a"]),
    "a set": lambda: ({MODES["a"]}, {MODES["b"]}, lambda mode: MODES["a"] in mode),
    "a function": lambda: (lambda m: m is MODES["a"], lambda m: m is MODES["b"], lambda mode: mode(MODES["a"])),
}


@pytest.mark.parametrize("place", PLACES)
def test_objects_that_only_their_place_tells_apart(framework: Any, place: str) -> None:
    one, other, is_one = PLACES[place]()

    class Net(layer_class(framework)):  # type: ignore[misc]
        def __init__(self, mode: Any) -> None:
            super().__init__()
            self.mode = mode

        @inference()
        def forward(self, x: Any) -> Any:
            return framework.clip(x, max=10.0) if is_one(self.mode) else x + 0.0

    assert is_one(one) and not is_one(other)
    nets = Net(one), Net(other)
    for net, expected in zip(nets, (10, 100), strict=True):
        assert [_value(framework, net), _value(framework, lambda x, net=net: net(x * 100))] == [1, expected]
    nets[0].mode = other
    assert _value(framework, lambda x: nets[0](x * 100)) == 100


def test_a_builtin_that_a_module_hides_later(framework: Any) -> None:
    method = inference(lambda x: x * max(2.0, 3.0))
    assert [_value(framework, method) for _ in range(2)] == [3, 3]
    globals()["max"] = min
    assert [_value(framework, method) for _ in range(2)] == [2, 2]


@pytest.mark.parametrize("change", ["an attribute for another", "another base"])
def test_a_class_that_gets_an_attribute_and_loses_one(framework: Any, change: str) -> None:
    class Settings(Config):
        unused = 1

    method = inference(lambda x: x * Settings.scale)
    assert [_value(framework, method) for _ in range(2)] == [2, 2]
    if change == "another base":
        Settings.__bases__ = (Elsewhere,)
    else:
        del Settings.unused
        Settings.scale = 7.0
    assert [_value(framework, method) for _ in range(2)] == [7, 7]


@pytest.mark.parametrize("name", ["factor", "_factor", "__factor__"])
def test_an_attribute_of_a_member_of_an_enumeration(framework: Any, name: str) -> None:
    kind = enum.Enum("kind", ["SMALL"])
    setattr(kind.SMALL, name, 2.0)
    method = inference(eval(f"lambda x: x * kind.SMALL.{name}", {"kind": kind}))
    assert [_value(framework, method) for _ in range(2)] == [2, 2]
    setattr(kind.SMALL, name, 7.0)
    assert [_value(framework, method) for _ in range(2)] == [7, 7]
    assert counts()["eager_calls"] == 0


def test_an_attribute_that_the_program_keeps_on_a_logger(framework: Any) -> None:
    log = logging.getLogger("test_sentinels")
    method = inference(lambda x: x * log.factor)  # type: ignore[attr-defined]
    for value in (2.0, 7.0):
        log.factor = value  # type: ignore[attr-defined]
        assert [_value(framework, method) for _ in range(2)] == [value, value]
    assert counts()["eager_calls"] == 0


@pytest.mark.parametrize("name", ["ARRAY", "RECORDS"])
def test_arrays_of_classes_of_their_own_are_seen_to_change(framework: Any, name: str) -> None:
    method = inference((lambda x: x * float(ARRAY[0])) if name == "ARRAY" else (lambda x: x * float(RECORDS[0])))
    assert [_value(framework, method) for _ in range(2)] == [1, 1]
    globals()[name][0] = 4.0
    assert [_value(framework, method) for _ in range(2)] == [4, 4]


@pytest.mark.skipif(not os.supports_bytes_environ, reason="os.environb is that of POSIX systems")
def test_the_environment_in_bytes(framework: Any) -> None:
    method = inference(lambda x: x * float(os.environb.get(b"SENTINEL_SCALE", b"1")))
    assert [_value(framework, method) for _ in range(2)] == [1, 1]
    os.environ["SENTINEL_SCALE"] = "3"
    assert [_value(framework, method) for _ in range(2)] == [3, 3]
    assert counts()["eager_calls"] == 0


def exists(x: Any) -> Any:
    return x * (2.0 if os.path.exists(FOLDER) else 1.5)


def is_file(x: Any) -> Any:
    return x * (2.0 if FOLDER.is_file() else 1.5)


def lists(x: Any) -> Any:
    return x * (1 + len(os.listdir(FOLDER.parent)))


def works_in(x: Any) -> Any:
    return x * len(str(Path.cwd()))


def absolute(x: Any) -> Any:
    return x * len(os.path.abspath("a file"))


ASKED = [exists, is_file, lists, works_in, absolute]


@pytest.mark.parametrize("method", ASKED, ids=lambda method: method.__name__)
def test_whether_there_is_a_file_is_asked_at_each_call(
    framework: Any, method: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    global FOLDER
    FOLDER = tmp_path / "folder" / "file"
    FOLDER.parent.mkdir()
    hot, before = inference(method), _value(framework, method)
    assert _value(framework, hot) == before
    FOLDER.touch()
    monkeypatch.chdir(tmp_path)
    assert _value(framework, hot) == _value(framework, method) != before
    eagerly("it reads the file system", "test_sentinels.py")


def test_flags_that_the_method_combines(framework: Any) -> None:
    """An enumeration of flags remembers the combinations that it is asked for, here that of none."""

    def shifted(x: Any, parts: Parts) -> Any:
        x = x * 2.0
        return x + 1.0 if parts & Parts.BIAS else x

    method = inference(shifted)
    assert [_value(framework, method, parts) for parts in (Parts.BASE, Parts.BIAS) * 2] == [2, 3, 2, 3]
    found = counts()
    assert (found["captures"], found["eager_calls"]) == (2, 0)
