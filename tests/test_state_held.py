"""State that a layer holds out of plain sight: in tuples, slots, functions, weak references, the order of a dict."""

from __future__ import annotations

import contextvars
import functools
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import pytest
from support import layer_class

from hybrid_infer import inference, stats


class Slots:
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 1


class More(Slots):
    """Has a dict of attributes too."""


class Held:
    def __init__(self) -> None:
        self.count = 1


class Row(tuple[Any, ...]):
    """Has attributes."""


class Number(float):
    """Has attributes."""


def counting(held: Any) -> int:
    held.count += 1
    return int(held.count)


def marking(held: Any) -> int:
    """The same at each call, and undone by the program in between."""
    before, held.count = held.count, 7
    return int(before)


def first_to_end(held: Any) -> int:
    name = next(iter(held))
    held[name] = held.pop(name)
    return int(held[name])


def growing(held: Any) -> int:
    held.append(1)
    return len(held)


#: By name: makes what is held, and what the method does to it, which is a number.
WRITES: dict[str, tuple[Callable[[], Any], Callable[[Any], int]]] = {
    "slots beside attributes": (More, counting),
    "slots in a tuple": (lambda: (Slots(),), lambda held: counting(held[0])),
    "an iterator in a tuple": (lambda: (iter(range(1, 99)),), lambda held: next(held[0])),
    "a list in a tuple in a tuple": (lambda: (([1],),), lambda held: growing(held[0][0])),
    "a deque in a named row": (lambda: Row((deque([1]),)), lambda held: growing(held[0])),
    "an object in a set": (lambda: {Held()}, lambda held: counting(next(iter(held)))),
    "the order of a dict": (lambda: {"a": 2, "b": 3}, first_to_end),
    "the order of an ordered dict": (lambda: OrderedDict(a=2, b=3), first_to_end),
}
MARKS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "a tuple": (lambda: Row((1, 2)), lambda held: held),
    "a number": (lambda: Number(2), lambda held: held),
    "an object in a set": (lambda: {Held()}, lambda held: next(iter(held))),
    "an object in a deque": (lambda: deque([Held()]), lambda held: held[0]),
}


def layer_of(framework: Any, held: Any, way: Callable[[Any], Any]) -> Any:
    nn = framework.nn

    class Layer(layer_class(framework)):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.held = held

        def forward(self, x: Any) -> Any:
            return self.linear(x) * float(way(self.held))

    layer = Layer()
    layer.eval()
    return layer


def alike(framework: Any, eager: Any, mine: Any, between: Callable[[Any], None] = lambda layer: None) -> None:
    """Four calls each."""
    mine.linear.weight, mine.linear.bias = eager.linear.weight, eager.linear.bias
    with framework.no_grad():
        for _ in range(4):
            x = framework.rand([2, 4])
            between(eager)
            between(mine)
            assert mine(x).numpy() == pytest.approx(eager(x).numpy(), abs=1e-5)


def counts() -> dict[str, Any]:
    (found,) = stats().values()
    return found


@pytest.mark.parametrize("name", WRITES)
def test_what_a_method_changes_in_it(framework: Any, name: str) -> None:
    make, way = WRITES[name]
    alike(framework, layer_of(framework, make(), way), inference(layer_of(framework, make(), way)))
    assert counts()["hits"] == 0 and any("it changes self.held" in why for why in counts()["fallbacks"]), counts()


@pytest.mark.parametrize("name", MARKS)
def test_what_a_method_puts_there_again(framework: Any, name: str) -> None:
    make, of = MARKS[name]

    def back(layer: Any) -> None:
        of(layer.held).count = 2

    eager, mine = (layer_of(framework, make(), lambda held: marking(of(held))) for _ in range(2))
    back(eager), back(mine)  # type: ignore[func-returns-value]
    alike(framework, eager, inference(mine), back)
    assert of(mine.held).count == 7


@pytest.mark.parametrize("state", [False, True], ids=["in place", "by its state"])
def test_what_a_partial_is_given_anew(framework: Any, state: bool) -> None:
    def times(factors: list[float]) -> float:
        return factors[0]

    def between(layer: Any) -> None:
        layer.calls = getattr(layer, "calls", 0) + 1
        if state:
            layer.held.__setstate__((times, ([layer.calls],), {}, {}))
        else:
            layer.held.args[0][0] = layer.calls

    eager, mine = (layer_of(framework, functools.partial(times, [1.0]), lambda held: held()) for _ in range(2))
    alike(framework, eager, inference(mine), between)
    assert counts()["captures"] == 4, counts()


def closure(log: Any) -> Any:
    def kept() -> float:
        log.count += 1
        return 1.0

    return kept


def default(log: Any) -> Any:
    def kept(log: Any = log) -> float:
        log.count += 1
        return 1.0

    return kept


def weakly(log: Any) -> Any:
    reference = weakref.ref(log)

    def kept() -> float:
        reference().count += 1  # type: ignore[union-attr]
        return 1.0

    return kept


def in_a_list(log: Any) -> Any:
    return [closure(log)]


@pytest.mark.parametrize("make", [closure, default, weakly, in_a_list])
def test_what_a_function_that_a_layer_keeps_changes(framework: Any, make: Callable[..., Any]) -> None:
    logs = Held(), Held()

    def called(held: Any) -> float:
        return float(held[0]() if isinstance(held, list) else held())

    eager, mine = (layer_of(framework, make(log), called) for log in logs)
    alike(framework, eager, inference(mine))
    assert [log.count for log in logs] == [5, 5] and counts()["hits"] == 0, counts()


def test_what_a_method_in_c_that_a_layer_keeps_changes(framework: Any) -> None:
    rows: tuple[list[int], list[int]] = [], []

    def called(held: Any) -> float:
        held(1)
        return 2.0

    eager, mine = (layer_of(framework, row.append, called) for row in rows)
    alike(framework, eager, inference(mine))
    assert rows == ([1] * 4, [1] * 4) and counts()["hits"] == 0, counts()


def test_a_function_that_keeps_what_is_computed(framework: Any) -> None:
    nn = framework.nn
    history: list[Any] = []

    class Layer(layer_class(framework)):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.log = nn.Linear(4, 4), history.append

        def forward(self, x: Any) -> Any:
            y = self.linear(x)
            self.log(y)
            return y

    layer = inference(Layer())
    layer.eval()
    with framework.no_grad():
        results = [layer(framework.rand([2, 4])) for _ in range(3)]
    assert [*map(id, history)] == [*map(id, results)]


class Aside:
    """Keeps a layer where no walk over the state finds it."""

    def __init__(self, layer: Any) -> None:
        self.layer = lambda: layer


def by_itself(layer: Any) -> Any:
    return lambda: layer.factor


def by_a_sublayer(layer: Any) -> Any:
    inner = layer.linear
    return lambda: inner.factor


def by_a_mode(layer: Any) -> Any:
    return lambda: 2.0 if layer.training else 3.0


def by_reference(layer: Any) -> Any:
    held = Held()
    held.layer = weakref.ref(layer)  # type: ignore[attr-defined]
    return functools.partial(_of_reference, held)


def _of_reference(held: Any) -> Any:
    return held.layer().factor


def by_a_set(layer: Any) -> Any:
    return {layer.aside.layer()}


def by_a_deque(layer: Any) -> Any:
    return deque([layer.aside.layer()])


def by_slots(layer: Any) -> Any:
    slots = Slots()
    slots.count = layer.aside.layer()
    return slots


@pytest.mark.parametrize("make", [by_itself, by_a_sublayer, by_a_mode, by_reference, by_a_set, by_a_deque, by_slots])
def test_what_is_read_of_a_layer_out_of_sight(framework: Any, make: Callable[..., Any]) -> None:
    def called(held: Any) -> float:
        if isinstance(held, (set, deque)):
            return float(next(iter(held)).factor)
        return float(held.count.factor if isinstance(held, Slots) else held())

    def between(layer: Any) -> None:
        layer.calls = getattr(layer, "calls", 0) + 1
        layer.factor = layer.linear.factor = layer.aside.layer().factor = float(layer.calls)
        layer.train() if layer.calls % 2 else layer.eval()

    eager, mine = (layer_of(framework, None, called) for _ in range(2))
    for layer in (eager, mine):
        layer.aside = Aside(framework.nn.ReLU())
        layer.held = make(layer)
    alike(framework, eager, inference(mine), between)
    assert all("out of sight" in why for why in counts()["fallbacks"]), counts()


def test_functions_that_reach_no_layer_are_served(framework: Any) -> None:
    factors = [2.0]
    mine = inference(layer_of(framework, lambda: factors[0], lambda held: held()))
    eager = layer_of(framework, lambda: factors[0], lambda held: held())
    alike(framework, eager, mine)
    factors[0] = 3.0
    alike(framework, eager, mine)
    assert counts()["captures"] == 2 and not counts()["eager_calls"], counts()


class Asked:
    """Answers whatever it is asked, and counts."""

    def __init__(self) -> None:
        self.count = 0

    def __getattr__(self, name: str) -> float:
        self.count += 1
        return 2.0


LOG: list[int] = []
APPEND, PARTIAL, VARIABLE = (
    LOG.append,
    functools.partial(LOG.append, 1),
    contextvars.ContextVar("VARIABLE", default=LOG),
)
BAG, ASKED = Held(), Asked()
REFERENCE, TABLE = weakref.ref(BAG), weakref.WeakValueDictionary(bag=BAG)
PROXY = types.MappingProxyType({"log": LOG})
OUTSIDE: dict[str, Callable[[], Any]] = {
    "a method in C": lambda: APPEND(1),
    "a partial": lambda: PARTIAL(),
    "a context variable": lambda: VARIABLE.get().append(1),
    "a proxy": lambda: PROXY["log"].append(1),
    "a weak reference": lambda: counting(REFERENCE()),
    "a table of weak references": lambda: counting(TABLE["bag"]),
    "an object that answers all": lambda: ASKED.anything,
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_a_method_changes_by_a_global(framework: Any, name: str) -> None:
    nn = framework.nn
    linear, change = nn.Linear(4, 4), OUTSIDE[name]

    def function(x: Any) -> Any:
        change()
        return linear(x)

    def total() -> int:
        return len(LOG) + BAG.count + vars(ASKED)["count"]

    mine, before = inference(function), total()
    with framework.no_grad():
        for n in range(1, 4):
            x = framework.rand([2, 4])
            assert mine(x).numpy() == pytest.approx(linear(x).numpy(), abs=1e-5)
            assert total() == before + n
    assert counts()["hits"] == 0, counts()


@pytest.mark.parametrize("place", ["layer", "object"])
@pytest.mark.parametrize("first", [True, False], ids=["there", "set later"])
def test_an_attribute_under_a_name_such_as_pythons_own(framework: Any, place: str, first: bool) -> None:
    class Layer(layer_class(framework)):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.held = Held()

        @inference()
        def forward(self, x: Any) -> Any:
            return x * getattr(self if place == "layer" else self.held, "__scale__", 2.0)

    layer = Layer()
    layer.eval()
    holder = layer if place == "layer" else layer.held
    for value in (2.0, 5.0):
        if first or value != 2.0:
            object.__setattr__(holder, "__scale__", value)
        for _ in range(2):
            with framework.no_grad():
                assert float(layer(framework.ones([2]))[0]) == value
    (found,) = stats().values()
    assert found["captures"] == 2 and found["hits"] == 2 and not found["fallbacks"], found
