"""State that a method replaces: a tuple of tensors by a new one, as an LSTM's, what a deque holds, an order."""

from __future__ import annotations

import copy
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from support import layer_class

from hybrid_infer import inference, stats


class Pair(NamedTuple):
    first: Any
    second: Any


class Box:
    pass


def attribute(layer: Any, y: Any) -> Any:
    total = y + layer.state[0]
    layer.state = (total, layer.state[0])
    return total


def of_another_kind(layer: Any, y: Any) -> Any:
    layer.state = None
    return y


def of_another_length(layer: Any, y: Any) -> Any:
    layer.state = (y, *layer.state)[:3]
    return y


def named(layer: Any, y: Any) -> Any:
    layer.named = layer.named._replace(second=y + layer.named.first)
    return y * 2


def in_a_dict(layer: Any, y: Any) -> Any:
    layer.table["last"] = (y + layer.table["last"][0],)
    return y


def in_a_list(layer: Any, y: Any) -> Any:
    layer.rows[0] = (y,)
    return y


def in_a_sublayer(layer: Any, y: Any) -> Any:
    layer.inner.state = (y + layer.inner.state[0], 2)
    return y


def in_an_object(layer: Any, y: Any) -> Any:
    layer.box.state = (layer.box.state[1], y)
    return y + layer.box.state[0]


def in_a_deque(layer: Any, y: Any) -> Any:
    layer.recent[0] = y
    return y * 2


def in_a_tuple_in_a_deque(layer: Any, y: Any) -> Any:
    layer.recent[1] = (y, layer.recent[0])
    return y + layer.recent[0]


def in_an_ordered_dict(layer: Any, y: Any) -> Any:
    layer.used.move_to_end(next(iter(layer.used)))
    return y * next(iter(layer.used.values()))


def in_the_order_of_a_dict(layer: Any, y: Any) -> Any:
    layer.ranks["a"] = layer.ranks.pop("a")
    return y * next(iter(layer.ranks.values()))


def in_the_order_of_sublayers(layer: Any, y: Any) -> Any:
    layer.acts["relu"] = layer.acts.pop("relu")
    for act in layer.acts.values():
        y = act(y) - 0.25
    return y


TUPLES = [attribute, of_another_kind, of_another_length, named, in_a_dict, in_a_list, in_a_sublayer, in_an_object]
DEQUES = [in_a_deque, in_a_tuple_in_a_deque]
ORDERS = [in_an_ordered_dict, in_the_order_of_a_dict, in_the_order_of_sublayers]


def layer_of(framework: Any, way: Callable[..., Any]) -> Any:
    nn = framework.nn

    class Layer(layer_class(framework)):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.inner = nn.Linear(4, 4)
            self.state = zeros(), zeros()
            self.named = Pair(zeros(), zeros())
            self.table, self.rows, self.box = {"last": (zeros(),)}, [(zeros(),)], Box()
            self.recent = deque([zeros(), (zeros(), zeros())], maxlen=2)
            self.used, self.ranks = (kind(a=zeros() + 1, b=zeros() + 2) for kind in (OrderedDict, dict))
            several = nn.ModuleDict if hasattr(nn, "ModuleDict") else nn.LayerDict
            self.acts = several({"relu": nn.ReLU(), "tanh": nn.Tanh()})
            self.inner.state, self.box.state = (zeros(), 1), (zeros(), zeros())

        def forward(self, x: Any) -> Any:
            return way(self, self.linear(x))

    def zeros() -> Any:
        return framework.zeros([2, 4])

    layer = Layer()
    layer.eval()
    return layer


def state(layer: Any) -> list[Any]:
    """The numbers of all tensors that a layer keeps in tuples and in a deque."""
    held = [
        layer.state, layer.named, layer.table["last"], layer.rows[0], layer.inner.state, layer.box.state,
        [layer.recent[0]], layer.recent[1], layer.used.values(), layer.ranks.values(),
    ]  # fmt: skip
    return [
        None if values is None else [each if type(each) is int else each.numpy().round(4).tolist() for each in values]
        for values in held
    ]


@pytest.mark.parametrize("way", TUPLES + DEQUES + ORDERS)
def test_each_call_leaves_what_the_eager_method_does(framework: Any, way: Callable[..., Any]) -> None:
    with framework.no_grad():
        eager = layer_of(framework, way)
        mine = inference(copy.deepcopy(eager))
        for _ in range(4):
            x = framework.rand([2, 4])
            expected = eager(x)
            assert mine(x).numpy() == pytest.approx(expected.numpy(), abs=1e-5)
            assert state(mine) == state(eager)
            assert [*mine.acts] == [*eager.acts]
    (found,) = stats().values()
    if way is in_a_list or way in DEQUES + ORDERS:
        reason = "it replaces the tuple self.rows.0" if way is in_a_list else "it changes self."
        assert any(reason in text for text in found["fallbacks"]), found
    else:
        assert found["hits"] and not found["eager_calls"], found


def a_tensor(y: Any) -> Any:
    return y


def a_tuple(y: Any) -> Any:
    return y, y * 2


def a_list(y: Any) -> Any:
    return [y]


def a_dict(y: Any) -> Any:
    return {"last": y}


@pytest.mark.parametrize("form", [a_tensor, a_tuple, a_list, a_dict])
@pytest.mark.parametrize("in_helper", [False, True], ids=["its own", "of a helper"])
def test_a_variable_of_an_enclosing_function(framework: Any, form: Callable[..., Any], in_helper: bool) -> None:
    def step_of() -> tuple[Callable[..., Any], Callable[[], Any]]:
        held = form(framework.zeros([2, 4]))

        def step(x: Any) -> Any:
            nonlocal held
            last = held["last"] if isinstance(held, dict) else held[0] if isinstance(held, (tuple, list)) else held
            total = x + last * 0.5
            held = form(total)
            return total * 2

        def outer(x: Any) -> Any:
            return step(x) + 1

        return outer if in_helper else step, lambda: held

    (eager, eager_held), (mine, mine_held) = step_of(), step_of()
    mine = inference(mine)
    with framework.no_grad():
        for _ in range(4):
            x = framework.rand([2, 4])
            expected = eager(x)
            assert mine(x).numpy() == pytest.approx(expected.numpy(), abs=1e-5)
            assert type(mine_held()) is type(eager_held())
    (found,) = stats().values()
    assert any("it changes held, a variable of an enclosing function" in why for why in found["fallbacks"]), found
