"""Methods that change what they are given, and the comparison of that with the eager method's: for every framework."""

from __future__ import annotations

import enum
import types
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class Cache:
    """What grows along the first axis; `concat` joins two tensors there."""

    def __init__(self, concat: Any, **attributes: Any) -> None:
        self.kind, self.rows, self.keys = concat, 0, None
        self.history: list[Any] = []
        self.named: dict[str, Any] = {"last": None}
        vars(self).update(attributes)

    def update(self, x: Any) -> Any:
        self.keys = x if self.keys is None else self.kind.joined(self.keys, x)
        self.rows += x.shape[0]
        return self.keys


class Parts:
    """A cache of caches, as language models keep one for each of their layers."""

    def __init__(self, concat: Any) -> None:
        self.layers = [Cache(concat), Cache(concat)]
        self.first = True


class Mode(enum.Enum):
    SUM = "sum"
    LAST = "last"


@dataclass
class Record:
    value: Any
    count: int = 0


def grows(x: Any, given: Cache) -> Any:
    return given.update(x * 2).sum(0) + given.rows


def returned(x: Any, given: Cache) -> Any:
    given.update(x)
    return {"cache": given, "sum": x + 1, "keys": given.keys}


def puts_and_drops(x: Any, given: Cache) -> Any:
    given.extra = x + 1  # type: ignore[attr-defined]
    if hasattr(given, "gone"):
        del given.gone
    return x * 2


def fills(x: Any, given: Cache) -> Any:
    given.history[:] = [x, *given.history[:1]]
    given.named["last"] = x * 2
    given.named["n"] = given.named.pop("n", 0) + 1
    return x


def of_parts(x: Any, given: Parts) -> Any:
    for n, layer in enumerate(given.layers):
        x = layer.update(x + n)[-2:]
    given.first = False
    return x


def another_part(x: Any, given: Parts) -> Any:
    if len(given.layers) < 3:
        given.layers.append(type(given.layers[0])(given.layers[0].kind))
    return given.layers[-1].update(x)


def swapped(x: Any, given: Parts) -> Any:
    given.layers.reverse()
    return given.layers[0].update(x)


def of_a_list(x: Any, given: list[Any]) -> Any:
    given[0] = given[0] + x
    return given[0] * 2


def of_a_dict(x: Any, given: dict[str, Any]) -> Any:
    given["sum"] = given["sum"] + x
    given.pop("once", None)
    return given


def of_an_ordered_dict(x: Any, given: OrderedDict[str, Any]) -> Any:
    given["sum"] = given["sum"] + x
    given.move_to_end("sum", last=False)
    return x


def of_a_record(x: Any, given: Record) -> Any:
    given.value, given.count = given.value + x, given.count + 1
    return given.value


def of_a_namespace(x: Any, given: types.SimpleNamespace) -> Any:
    given.total = given.total + x if given.mode is Mode.SUM else x
    return given.total * len(given.options)


def reads_alone(x: Any, given: Cache) -> Any:
    return x * given.rows if given.keys is None else x + given.keys[:1]


def nothing_back(x: Any, given: Cache) -> None:
    given.update(x + 1)


#: Each with what makes its argument of a tensor.
CHANGES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "grows": (grows, lambda x, kind: Cache(kind)),
    "returned": (returned, lambda x, kind: Cache(kind)),
    "puts_and_drops": (puts_and_drops, lambda x, kind: Cache(kind, gone=3)),
    "fills": (fills, lambda x, kind: Cache(kind, history=[x], named={"n": 3, "last": x})),
    "of_parts": (of_parts, lambda x, kind: Parts(kind)),
    "another_part": (another_part, lambda x, kind: Parts(kind)),
    "swapped": (swapped, lambda x, kind: Parts(kind)),
    "of_a_list": (of_a_list, lambda x, kind: [x + 1, 5]),
    "of_a_dict": (of_a_dict, lambda x, kind: {"once": 1, "sum": x, "other": x + 1}),
    "of_an_ordered_dict": (of_an_ordered_dict, lambda x, kind: OrderedDict(a=x, sum=x + 1)),
    "of_a_namespace": (
        of_a_namespace, lambda x, kind: types.SimpleNamespace(total=x, mode=Mode.SUM, options=["a", "b"])
    ),
    "of_a_record": (of_a_record, lambda x, kind: Record(x)),
    "reads_alone": (reads_alone, lambda x, kind: Cache(kind, keys=x, rows=2)),
    "nothing_back": (nothing_back, lambda x, kind: Cache(kind)),
}


def described(value: Any, numbers: Callable[[Any], Any], seen: dict[int, int] | None = None) -> Any:
    """Everything in a structure, and which objects in it are one; `numbers` gives a tensor's values, else None."""
    seen = {} if seen is None else seen
    found = numbers(value)
    if found is not None:
        return found
    if isinstance(value, (int, float, str, type, type(None))):
        return type(value).__name__, value
    if id(value) in seen:
        return "again", seen[id(value)]
    seen[id(value)] = len(seen)
    if isinstance(value, dict):
        inside = [(k, described(v, numbers, seen)) for k, v in value.items()]
        return type(value).__name__, inside
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [described(v, numbers, seen) for v in value]
    return type(value).__name__, sorted((k, described(v, numbers, seen)) for k, v in vars(value).items())


def containers(value: Any) -> list[int]:
    """The ids of the lists, dicts and objects in a structure that stay the same object while they change."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else vars(value).values()
    return [id(value), *(n for v in inside if isinstance(v, (list, dict, Cache)) for n in containers(v))]
