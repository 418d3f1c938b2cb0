"""What a method writes outside of its layer is noticed by name and taken back, whatever holds it."""

from __future__ import annotations

import argparse
import array
import collections
import functools
import itertools
import logging
import types
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
import pytest

from hybrid_infer._errors import TraceError
from hybrid_infer.fingerprint._fingerprint import fingerprint
from hybrid_infer.state._reach import Reach


def no(value: Any) -> bool:
    return False


def reach(function: Callable[..., Any], known: Collection[int] = (), ignored: Collection[str] = ()) -> Reach:
    return Reach(fingerprint([function], [], is_tensor=no, is_layer=no), known, ignored)


class Plain:
    def __init__(self) -> None:
        self.n, self.items, self.inner = 0, [1, 2], {"k": 0}


class Slotted:
    __slots__ = ("__own", "empty", "items", "n")

    def __init__(self) -> None:
        self.n, self.items, self.__own = 0, [1], 0

    def step(self) -> int:
        self.__own += 1
        return self.__own


class Below(Slotted):
    pass


class Counted:
    total = 0
    seen: list[int] = []  # noqa: RUF012  # shared by intent


class Heir(Counted):
    pass


class Chatty(dict):  # type: ignore[type-arg]
    """A dict whose own ways of being written to must not be used."""

    def __setitem__(self, key: Any, value: Any) -> None:
        raise AssertionError

    def update(self, *args: Any, **kwargs: Any) -> None:
        raise AssertionError


NUMBER = 0
LIST: list[Any] = []
DICT: dict[Any, Any] = {}
SET: set[Any] = set()
ORDERED: collections.OrderedDict[str, int] = collections.OrderedDict()
CHATTY = Chatty()
COUNTER: collections.Counter[str] = collections.Counter()
DEQUE: collections.deque[int] = collections.deque()
BYTES = bytearray()
NUMBERS: array.array[float] = array.array("d")
ARRAY = np.zeros(0)
OBJECTS = np.zeros(0, object)
TABLE = np.zeros(0, [("a", "i4"), ("b", "f8")])
PLAIN = Plain()
SLOTTED: Any = Slotted()
NAMESPACE = types.SimpleNamespace()
ARGUMENTS = argparse.Namespace()
NESTED: Any = ()
LARGE: list[int] = []
LARGE_DICT: dict[int, int] = {}
MODULE: Any = types.ModuleType("a_module_of_the_user")
BOUND = SLOTTED.step
PARTIAL: Any = None


@pytest.fixture(autouse=True)
def fresh() -> None:
    scope = globals()
    scope.update(
        NUMBER=0, LIST=[1, [2]], DICT={"a": 1, "b": [2]}, SET={1, 2}, CHATTY=Chatty(a=1), BYTES=bytearray(3),
        ORDERED=collections.OrderedDict(a=1, b=2), COUNTER=collections.Counter(a=1), DEQUE=collections.deque([1, 2], 2),
        NUMBERS=array.array("d", [float("nan"), 1]), ARRAY=np.zeros((2, 3)), OBJECTS=np.array([None, "x"], object),
        TABLE=np.zeros(2, [("a", "i4"), ("b", "f8")]), LARGE=[0] * 5000, LARGE_DICT=dict.fromkeys(range(5000), 0),
        PLAIN=Plain(), SLOTTED=Below(), NESTED=({"a": [Plain()]},), NAMESPACE=types.SimpleNamespace(n=0, d={}),
        ARGUMENTS=argparse.Namespace(n=0), BOUND=Slotted().step, PARTIAL=functools.partial(stepping, Plain()),
    )  # fmt: skip
    scope.pop("NEW", None)
    Counted.total, Counted.seen = 0, []
    if "fresh" in vars(Counted):
        del Counted.fresh  # type: ignore[attr-defined]
    vars(helper).clear()
    vars(MODULE).pop("n", None)


def stepping(held: Any) -> None:
    held.n += 1


def helper() -> None:
    helper.calls = 1  # type: ignore[attr-defined]


def assigns_a_global() -> None:
    global NUMBER
    NUMBER += 1


def assigns_a_new_global() -> None:
    global NEW
    NEW = 1  # type: ignore[name-defined]


def assigns_by_name() -> None:
    globals()["NUMBER"] = NUMBER + 1


def reverses() -> None:
    DEQUE.reverse()


def closing() -> Callable[[], None]:
    count, held = 0, Plain()

    def step() -> None:
        nonlocal count
        count += 1
        held.n += 1

    return step


def defaulting(seen: list[int] = []) -> None:  # noqa: B006  # kept from call to call by intent
    seen.append(1)


def keyword_defaulting(*, held: Plain = Plain()) -> None:  # noqa: B008
    held.items.append(1)


def reshapes() -> None:
    ARRAY.resize((3, 2), refcheck=False)  # to assign a shape warns from NumPy 2.5 on


def deletes() -> None:
    del PLAIN.n


WRITES: dict[str, tuple[Callable[[], Any], str]] = {
    "global": (assigns_a_global, "the global NUMBER"),
    "new global": (assigns_a_new_global, "the global NEW"),
    "global by name": (assigns_by_name, "the global NUMBER"),
    "list": (lambda: LIST.append(1), "the global LIST"),
    "item of a list": (lambda: LIST.__setitem__(0, 5), "the global LIST"),
    "inner list": (lambda: LIST[1].append(1), "the global LIST"),
    "cleared list": (lambda: LIST.clear(), "the global LIST"),
    "dict": (lambda: DICT.update(c=1), "the global DICT"),
    "deleted key": (lambda: DICT.pop("a"), "the global DICT"),
    "changed value": (lambda: DICT.update(a=1.0), "the global DICT"),
    "order of a dict": (lambda: DICT.update(a=DICT.pop("a")), "the global DICT"),
    "set": (lambda: SET.add(3), "the global SET"),
    "shrunken set": (lambda: SET.discard(1), "the global SET"),
    "ordered dict": (lambda: ORDERED.move_to_end("a"), "the global ORDERED"),
    "dict of a class": (lambda: dict.__setitem__(CHATTY, "a", 2), "the global CHATTY"),
    "counter": (lambda: COUNTER.update("ab"), "the global COUNTER"),
    "deque": (lambda: DEQUE.append(4), "the global DEQUE"),
    "turned deque": (reverses, "the global DEQUE"),
    "bytes": (lambda: BYTES.extend(b"x"), "the global BYTES"),
    "numbers": (lambda: NUMBERS.append(1.0), "the global NUMBERS"),
    "array": (lambda: ARRAY.__setitem__((1, 2), 1), "the global ARRAY"),
    "NaN in an array": (lambda: ARRAY.fill(float("nan")), "the global ARRAY"),
    "sign in an array": (lambda: ARRAY.fill(-0.0), "the global ARRAY"),
    "shape of an array": (reshapes, "the global ARRAY"),
    "array of objects": (lambda: OBJECTS.__setitem__(0, 1), "the global OBJECTS"),
    "structured array": (lambda: TABLE["b"].__setitem__(1, 2.0), "the global TABLE"),
    "attribute": (lambda: setattr(PLAIN, "n", 1), "the global PLAIN.n"),
    "new attribute": (lambda: setattr(PLAIN, "fresh", 1), "the global PLAIN.fresh"),
    "deleted attribute": (deletes, "the global PLAIN.n"),
    "list in an object": (lambda: PLAIN.items.append(3), "the global PLAIN.items"),
    "dict in an object": (lambda: PLAIN.inner.update(k=1), "the global PLAIN.inner"),
    "namespace of an object": (lambda: vars(PLAIN).update(n=2), "the global PLAIN.n"),
    "slot": (lambda: setattr(SLOTTED, "n", 1), "the global SLOTTED.n"),
    "empty slot": (lambda: setattr(SLOTTED, "empty", 1), "the global SLOTTED.empty"),
    "deleted slot": (lambda: delattr(SLOTTED, "n"), "the global SLOTTED.n"),
    "private slot": (lambda: SLOTTED.step(), "the global SLOTTED._Slotted__own"),
    "list in a slot": (lambda: SLOTTED.items.append(2), "the global SLOTTED.items"),
    "dict of a slotted heir": (lambda: setattr(SLOTTED, "other", 1), "the global SLOTTED.other"),
    "simple namespace": (lambda: setattr(NAMESPACE, "n", 1), "the global NAMESPACE.n"),
    "dict in a namespace": (lambda: NAMESPACE.d.update(k=1), "the global NAMESPACE.d"),
    "arguments": (lambda: setattr(ARGUMENTS, "n", 1), "the global ARGUMENTS.n"),
    "nested": (lambda: stepping(NESTED[0]["a"][0]), "the global NESTED.n"),
    "large list": (lambda: LARGE.__setitem__(4777, 1), "the global LARGE"),
    "large dict": (lambda: LARGE_DICT.update({4777: 1}), "the global LARGE_DICT"),
    "class": (lambda: setattr(Counted, "total", 1), "Counted.total"),
    "new on a class": (lambda: setattr(Counted, "fresh", 1), "Counted.fresh"),
    "list of a class": (lambda: Counted.seen.append(1), "Counted.seen"),
    "base of a class": (lambda: Heir.seen.append(1), "Counted.seen"),
    "heir of a class": (lambda: setattr(Heir, "total", 1), "Heir.total"),
    "module": (lambda: setattr(MODULE, "n", 1), "a_module_of_the_user.n"),
    "function": (helper, "the global helper.calls"),
    "bound method": (lambda: BOUND(), "the global BOUND._Slotted__own"),
    "partial": (lambda: PARTIAL(), "the global PARTIAL.n"),
    "closure": (closing(), "a variable of an enclosing function"),
    "default": (defaulting, "a default of defaulting"),
    "keyword default": (keyword_defaulting, "a default of keyword_defaulting.items"),
}  # fmt: skip


def picture(value: Any, depth: int = 0) -> Any:
    """All of a value, in a form of which no part is the value's own."""
    if isinstance(value, np.ndarray):
        return value.shape, [picture(v) for v in value.tolist()] if value.dtype.hasobject else value.tobytes()
    if isinstance(value, dict):
        return [(key, picture(item, depth + 1)) for key, item in value.items()]
    if isinstance(value, (list, tuple, set, collections.deque)):
        return type(value).__name__, [picture(item, depth + 1) for item in value]
    if isinstance(value, (Plain, types.SimpleNamespace, argparse.Namespace)):
        return picture(vars(value), depth + 1)
    if isinstance(value, Slotted):
        names = ("_Slotted__own", "empty", "items", "n", "__dict__")
        return [(name, picture(getattr(value, name, "absent"), depth + 1)) for name in names]
    if isinstance(value, functools.partial):
        return picture(value.args)
    if isinstance(value, types.MethodType):
        return picture(value.__self__)
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return picture([cells, value.__defaults__, value.__kwdefaults__, vars(value)])
    return repr(value)


def everything(function: Any) -> Any:
    names = [name for name in globals() if name.isupper() and name != "WRITES"]
    classes = [{k: picture(v) for k, v in vars(kind).items() if not k.startswith("__")} for kind in (Counted, Heir)]
    state = [vars(MODULE).get("n"), picture(function), picture(helper)]
    return {name: picture(globals()[name]) for name in names}, classes, state


@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_named_and_taken_back_and_the_next_one_too(name: str) -> None:
    function, place = WRITES[name]
    before = everything(function)
    for _ in range(2):
        watched = reach(function)
        function()
        assert everything(function) != before
        assert place in watched.take_back()
        assert everything(function) == before
        assert watched.take_back() == []


def test_what_is_only_read_is_not_named() -> None:
    def read() -> Any:
        PLAIN.n = 0 + PLAIN.n  # an equal number is no change
        PLAIN.items[0] = 1
        return LIST, DICT["b"], SET, ARRAY.sum(), SLOTTED.n, LARGE[3], Counted.total, MODULE, NAMESPACE.d, NESTED

    watched = reach(read)
    read()
    assert watched.take_back() == []


def test_only_what_differs_is_written_back() -> None:
    """Other threads may read the object meanwhile: it is never empty in between."""
    seen = []

    class Watching(dict):  # type: ignore[type-arg]
        pass

    held = Watching(a=1, b=2)

    def write() -> None:
        held["c"] = 3

    watched = reach(write)
    write()
    iterator = iter(held)
    seen.append(next(iterator))
    watched.take_back()
    assert dict(held) == {"a": 1, "b": 2} and seen == ["a"]


def test_what_a_twin_stands_for_is_left_alone() -> None:
    watched = reach(WRITES["dict in an object"][0], known={id(PLAIN)})
    PLAIN.inner["k"] = 9
    assert watched.take_back() == [] and PLAIN.inner == {"k": 9}


def test_attributes_that_a_tracer_writes_are_left_alone() -> None:
    watched = reach(WRITES["attribute"][0], ignored={"_built"})
    PLAIN._built = True  # type: ignore[attr-defined]
    assert watched.take_back() == []
    watched = reach(WRITES["attribute"][0], ignored={"_built"})
    PLAIN.n = 4
    assert watched.take_back() == ["the global PLAIN.n"] and PLAIN.n == 0


LOGGER = logging.getLogger("hybrid_infer.tests.reach")


def test_what_a_library_keeps_for_itself_is_no_change() -> None:
    def chat() -> None:
        LOGGER.debug("once")

    watched = reach(chat)
    LOGGER._cache.clear()  # type: ignore[attr-defined]
    chat()
    assert LOGGER._cache  # type: ignore[attr-defined]
    assert watched.take_back() == []


@functools.lru_cache
def remembered(n: int) -> list[int]:
    return [n]


def test_results_that_a_trace_left_in_a_cache_are_dropped() -> None:
    def use() -> list[int]:
        return remembered(3)

    watched = reach(use)
    traced = use()
    assert watched.take_back() == []
    kept = use()
    assert kept is not traced
    assert reach(use).take_back() == []
    assert use() is kept


def test_an_array_too_large_to_copy_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hybrid_infer.state._reach._ARRAYS", 8)
    watched = reach(WRITES["array"][0])
    ARRAY[0, 0] = 1
    assert watched.take_back() == ["the global ARRAY"]


@pytest.mark.parametrize(
    "view", [lambda a: a[:, ::2], lambda a: a.T, np.asfortranarray], ids=["gaps", "turned", "columns"]
)
def test_arrays_of_every_layout_are_put_back(view: Callable[[Any], Any]) -> None:
    held = view(np.arange(12.0).reshape(3, 4))
    before = held.copy()

    def write() -> None:
        held[1, 1] = -1

    watched = reach(write)
    write()
    assert watched.take_back() == ["a variable of an enclosing function"]
    np.testing.assert_array_equal(held, before)


def numbers() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    "make", [lambda: iter([1]), numbers, itertools.count, lambda: zip([1], [2], strict=True), lambda: {"a": iter(())}]
)
def test_an_iterator_is_refused(make: Callable[[], Any]) -> None:
    held = make()

    def use() -> Any:
        return held

    with pytest.raises(TraceError, match="iterator"):
        reach(use)


def test_arguments_are_watched_as_well() -> None:
    def nothing() -> None:
        pass

    watched = reach(nothing)
    cache = {"keys": [1]}
    watched.add(cache, "the argument `cache`")
    cache["keys"].append(2)
    assert watched.take_back() == ["the argument `cache`"]
    assert cache == {"keys": [1]}
