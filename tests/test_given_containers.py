"""Containers of the standard library, given and returned: of the class, and with the content, that eager code has."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest
from support import counts, layer_class

from hybrid_infer import inference, release

CALLS = 3


class Frozen(dict[str, Any]):
    """Says otherwise what is in it."""


def told(value: Any) -> Any:
    """All that a program can tell of a structure: classes, content, and what else a container is."""
    if isinstance(value, defaultdict):
        return type(value), value.default_factory, [(key, told(held)) for key, held in value.items()]
    if isinstance(value, MappingProxyType):
        return type(value), told(value.copy())
    if isinstance(value, dict):
        return type(value), [(key, told(held)) for key, held in value.items()]
    if isinstance(value, deque):
        return type(value), value.maxlen, [*map(told, value)]
    if isinstance(value, (list, tuple)):
        return type(value), [*map(told, value)]
    return value.numpy().tolist() if hasattr(value, "numpy") else value


def ones(framework: Any) -> Any:
    return framework.ones([2, 3])


def reads(held: Any) -> Any:
    return held["x"] * held["scale"]


def makes(held: Any) -> Any:
    held["made"].append(held["x"] * 2)
    return held["made"][-1] + 1


def asks_for_what_is_not_there(held: Any) -> Any:
    return held["x"] + len(held["none"])


def by_factory(held: Any) -> Any:
    return held["x"] * (2 if held.default_factory is list else 3)


def pushes(held: Any) -> Any:
    held.append(held[-1] * 2)
    held.appendleft(held[0] + 1)
    return held[0] + held[-1]


def turns(held: Any) -> Any:
    held.rotate(1)
    return held.popleft() + (held.maxlen or 0)


def shows(held: Any) -> Any:
    return held["x"] * len(held), type(held.copy()) is dict


def given_back(held: Any) -> Any:
    return {"held": held, "sum": held["x"] + 1}


def nested(held: Any) -> Any:
    held["recent"].append(held["x"] * 2)
    return held["recent"][0] + held["deep"]["a"][0]


DEFAULT = {
    "list": lambda x: defaultdict(list, x=x, scale=2),
    "int": lambda x: defaultdict(int, x=x, scale=2),
    "none": lambda x: defaultdict(None, x=x, scale=2),
}
QUEUES = {"free": lambda x: deque([x, x + 1]), "short": lambda x: deque([x, x + 1], 3), "full": lambda x: deque([x], 1)}
PROXIES = {
    "dict": lambda x: MappingProxyType({"x": x, "scale": 2}),
    "ordered": lambda x: MappingProxyType(OrderedDict(x=x, scale=2)),
    "default": lambda x: MappingProxyType(defaultdict(list, x=x, scale=2)),
}
SERVED = [
    *((reads, make) for kinds in (DEFAULT, PROXIES) for make in kinds.values()),
    (makes, DEFAULT["list"]), (by_factory, DEFAULT["list"]), (by_factory, DEFAULT["int"]),
    (asks_for_what_is_not_there, DEFAULT["list"]), (given_back, DEFAULT["list"]), (given_back, PROXIES["default"]),
    *((method, make) for method in (pushes, turns) for make in QUEUES.values()),
    *((shows, make) for make in PROXIES.values()),
    (nested, lambda x: {"x": x, "recent": deque([x, x], 2), "deep": MappingProxyType({"a": [x]})}),
]  # fmt: skip


@pytest.mark.parametrize(("method", "make"), SERVED)
def test_given(framework: Any, method: Callable[..., Any], make: Callable[..., Any]) -> None:
    hot = inference(method)
    for n in range(CALLS):
        mine, theirs = make(ones(framework) * n), make(ones(framework) * n)
        found, expected = hot(mine), method(theirs)
        assert told(found) == told(expected)
        assert told(mine) == told(theirs)
        if method is given_back:
            assert found["held"] is mine
    assert counts()["hits"] == CALLS - 1, counts()


def collects(x: Any) -> Any:
    found = defaultdict(list)
    found["x"].append(x * 2)
    found["y"] = [x, 3]
    return found


def counted(x: Any) -> Any:
    return defaultdict(None, {"x": x + 1}), defaultdict(int, {1: x - 1, None: 4})


def recent(x: Any) -> Any:
    return deque([x + 1, x * 2, 7], 5), deque((x + 3,))


def shown(x: Any) -> Any:
    return MappingProxyType({"x": x + 1, "more": deque([x * 2])}), MappingProxyType(OrderedDict(y=x - 1))


@pytest.mark.parametrize("method", [collects, counted, recent, shown])
def test_returned(framework: Any, method: Callable[..., Any]) -> None:
    hot = inference(method)
    for n in range(CALLS):
        found = hot(ones(framework) * n)
        assert told(found) == told(method(ones(framework) * n))
        if method is collects:
            found["new"].append(1)  # by its factory
            assert found["new"] == [1]
    assert counts()["hits"] == CALLS - 1, counts()
    release(hot)
    assert told(hot(ones(framework))) == told(method(ones(framework)))
    assert (counts()["captures"], counts()["disk_loads"]) == (1, 1)


def sets_the_factory(held: Any) -> Any:
    held.default_factory = int if held.default_factory is list else list
    return held["x"] * 2


def makes_its_own(x: Any) -> Any:
    return defaultdict(lambda: 3, x=x * 2)


def shows_another(x: Any) -> Any:
    return MappingProxyType(UserDict(x=x * 2))


REFUSED = {
    "factory": (sets_the_factory, DEFAULT["list"], "it changes the default_factory of an argument"),
    "own": (reads, lambda x: defaultdict(lambda: 3, x=x, scale=2), "argument `held` is of class"),
    "registry": (reads, lambda x: MappingProxyType(Frozen(x=x, scale=2)), "is of class builtins.mappingproxy"),
    "made": (makes_its_own, lambda x: x, "the result is of class collections.defaultdict"),
    "another": (shows_another, lambda x: x, "the result is of class builtins.mappingproxy"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_answered_eagerly(framework: Any, name: str) -> None:
    method, make, reason = REFUSED[name]
    hot = inference(method)
    for n in range(CALLS):
        mine, theirs = make(ones(framework) * n), make(ones(framework) * n)
        found, expected = hot(mine), method(theirs)
        if name not in ("made", "another"):
            assert told(found) == told(expected)
            assert told({**mine}) == told({**theirs})
            assert getattr(mine, "default_factory", None) is not list or name != "factory"
        else:
            assert told({**found}) == told({**expected})
    assert counts()["hits"] == 0
    assert any(reason in each for each in counts()["fallbacks"]), counts()


def test_a_proxy_of_a_dict_that_is_given_too(framework: Any) -> None:
    def method(held: Any, shown: Any) -> Any:
        held["x"] = held["x"] * 2
        return shown["x"] + 1

    hot = inference(method)
    for n in range(2 * CALLS):
        both = [{"x": ones(framework) * n} for _ in range(2)]
        apart = {"x": ones(framework) * 5} if n % 2 else None
        found = hot(both[0], MappingProxyType(apart or both[0]))
        expected = method(both[1], MappingProxyType(apart or both[1]))
        assert told(found) == told(expected) and told(both[0]) == told(both[1])
    assert counts()["hits"] == 2 * CALLS - 2


@pytest.mark.parametrize("name", ["recent", "table", "shown"])
def test_one_that_the_layer_keeps(framework: Any, name: str) -> None:
    """As a result it is that very object, which the layer goes on to change."""

    class Layer(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.recent, self.table = deque([1], 4), defaultdict(list, a=1)
            self.shown = MappingProxyType({"a": 1})

        @inference()
        def forward(self, x: Any) -> Any:
            return x * 2, getattr(self, name)

        @inference()
        def put(self, x: Any, held: Any) -> Any:
            held.append(3)
            return x * len(self.recent)

    layer = Layer()
    layer.eval()
    for n in range(CALLS):
        found = layer(ones(framework) * n)
        assert found[1] is getattr(layer, name)
    for n in range(CALLS):
        assert told(layer.put(ones(framework), layer.recent)) == told(ones(framework) * (2 + n if n < 3 else 4))


def test_two_proxies_of_a_dict_are_told_from_one_that_is_given_twice(framework: Any) -> None:
    def method(x: Any, one: Any, other: Any) -> Any:
        return x * (2 if one is other else 3), [one, other]

    hot, x, content = inference(method), ones(framework), {"a": 1}
    for _ in range(2):
        for proxies in ([MappingProxyType(content)] * 2, [MappingProxyType(content), MappingProxyType(content)]):
            found, held = hot(x, *proxies)
            assert told(found) == told(method(x, *proxies)[0])
            assert all(one is other for one, other in zip(held, proxies, strict=True))
    assert counts()["captures"] == 2 and counts()["hits"] == 2, counts()
