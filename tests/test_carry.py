"""What a method carries from call to call in places that it assigns: the state of an LSTM, a mean, a counter."""

from __future__ import annotations

import copy
import gc
import importlib
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support import counts, eagerly, layer_class, served

from hybrid_infer import InputSpec, _background, _dispatch, explain, inference, release, save, warmup
from hybrid_infer.cache import Store
from hybrid_infer.capture import _twin
from hybrid_infer.reports import _inventory


@pytest.fixture
def framework(framework: Any) -> Iterator[Any]:
    with framework.no_grad():
        yield framework


class Pair(NamedTuple):
    first: Any
    second: Any


class Box:
    pass


class Slotted:
    __slots__ = ("__dict__", "size")


def recurrent(layer: Any, x: Any) -> Any:
    y, layer.pair = layer.lstm(x[None] if hasattr(x, "untyped_storage") else x.unsqueeze(0), layer.pair)
    return y[0]


def started_by_none(layer: Any, x: Any) -> Any:
    if layer.state is None:
        layer.state = layer.linear(x).mean(0)
    layer.state = layer.state * 0.5 + x.mean(0)
    return x + layer.state


def running_mean(layer: Any, x: Any) -> Any:
    layer.mean = layer.mean * 0.9 + x.mean(0) * 0.1
    return layer.linear(x - layer.mean)


def last_one_seen(layer: Any, x: Any) -> Any:
    y = layer.linear(x)
    layer.seen = y * 2
    return y


def two_that_are_one(layer: Any, x: Any) -> Any:
    y = layer.linear(x)
    layer.seen, layer.again = y, y
    return y


def the_argument(layer: Any, x: Any) -> Any:
    layer.seen = x
    return layer.linear(x)


def counted(layer: Any, x: Any) -> Any:
    layer.calls += 1
    return layer.linear(x) + layer.calls


def sizes(layer: Any, x: Any) -> Any:
    layer.rows, layer.columns = x.shape[0], x.shape[1]
    return layer.linear(x).reshape([layer.rows * layer.columns])


def flagged(layer: Any, x: Any) -> Any:
    layer.started = True
    return layer.linear(x)


def swapped(layer: Any, x: Any) -> Any:
    layer.mean, layer.other = layer.other, layer.mean
    return x + layer.mean * 2


def of_a_sublayer(layer: Any, x: Any) -> Any:
    layer.linear.seen = x.mean(0) + getattr(layer.linear, "seen", 0)
    return layer.linear(x) + layer.linear.seen


def of_an_object(layer: Any, x: Any) -> Any:
    layer.box.state = (layer.box.state[1], x.mean(0))
    return x + layer.box.state[0]


def of_a_dict(layer: Any, x: Any) -> Any:
    layer.table["mean"] = layer.table["mean"] * 0.5 + x.mean(0)
    return x + layer.table["mean"]


def named(layer: Any, x: Any) -> Any:
    layer.named = layer.named._replace(second=layer.named.first + x.mean(0))
    return x * layer.named.second


def outputs_in_a_list(layer: Any, x: Any) -> Any:
    y = layer.linear(x)
    layer.seen = [y, {"twice": y * 2}]
    return y


def written_and_replaced(layer: Any, x: Any) -> Any:
    layer.rows_of_two[0] = x.mean(0)
    layer.mean = layer.mean * 0.5 + layer.rows_of_two[0]
    layer.rows_of_two[1] = layer.mean
    layer.calls += 1
    return x + layer.mean * layer.calls


def written_beside(layer: Any, x: Any) -> Any:
    layer.rows_of_two[0] = x.mean(0)
    layer.calls += 1
    layer.mean = layer.mean + x.mean(0)
    return x + layer.mean


def written_and_doubled(layer: Any, x: Any) -> Any:
    layer.other[0] = x.mean()
    y = x + layer.other
    layer.other = layer.other * 0.5
    return y


def looked_at_once_assigned(layer: Any, x: Any) -> Any:
    layer.seen = layer.linear(x)
    layer.linear.seen = {"x": layer.seen}
    return layer.seen + layer.linear.seen["x"] * 2


def looked_at_before_and_after(layer: Any, x: Any) -> Any:
    y = x + layer.other
    layer.other = x.mean(0)
    return y * layer.other


def replaced_and_looked_at(layer: Any, x: Any) -> Any:
    layer.mean = x.mean(0)
    return x - layer.mean


def assigned_where_it_is_told(layer: Any, x: Any) -> Any:
    if layer.calls == 0 or x.shape[0] == 5:
        layer.state = layer.linear(x).mean(0)
    layer.calls = 1
    return x + layer.state


#: With the captures that calls with 2, 3, 4, ... rows need: of the first size, of any, and of what is there at first.
WAYS: dict[Callable[..., Any], int] = {
    recurrent: 2, started_by_none: 3, running_mean: 2, last_one_seen: 2, two_that_are_one: 2, the_argument: 2,
    counted: 2, sizes: 2, flagged: 2, swapped: 2, of_a_sublayer: 3, of_an_object: 2, of_a_dict: 2, named: 2,
    outputs_in_a_list: 2, looked_at_once_assigned: 2, looked_at_before_and_after: 2, replaced_and_looked_at: 2,
    assigned_where_it_is_told: 4, written_and_replaced: 2, written_beside: 2, written_and_doubled: 2,
}  # fmt: skip


def make(framework: Any, way: Callable[..., Any]) -> Any:
    nn, base, zeros = framework.nn, layer_class(framework), framework.zeros

    class Layer(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.lstm = nn.LSTM(4, 4, **({"batch_first": True} if base is not getattr(nn, "Layer", None) else {}))
            self.register_buffer("mean", zeros([4]))
            self.pair = zeros([1, 1, 4]), zeros([1, 1, 4])
            self.other, self.rows_of_two = zeros([4]) + 1, zeros([2, 4])
            self.named = Pair(zeros([4]) + 1, zeros([4]))
            self.table, self.box, self.state, self.calls = {"mean": zeros([4])}, Box(), None, 0
            self.box.state = zeros([4]), zeros([4])

        def forward(self, x: Any) -> Any:
            return way(self, x)

    layer = Layer()
    layer.eval()
    return layer


def pair(framework: Any, way: Callable[..., Any], **options: Any) -> tuple[Any, Any]:
    eager = make(framework, way)
    return inference(copy.deepcopy(eager), **options), eager


def told(value: Any) -> Any:
    """What a value holds, as data."""
    if isinstance(value, (tuple, list)):
        return type(value).__name__, [told(item) for item in value]
    if isinstance(value, dict):
        return {key: told(item) for key, item in value.items()}
    if hasattr(value, "numpy"):
        return str(value.dtype), value.detach().numpy().round(4).tolist()
    return value


PLACES = (
    "mean", "pair", "other", "rows_of_two", "named", "table", "state", "calls", "seen", "again", "rows", "columns",
    "started",
)  # fmt: skip


def state(layer: Any) -> dict[str, Any]:
    found = {name: told(getattr(layer, name, "absent")) for name in PLACES}
    return {**found, "box": told(layer.box.state), "inner": told(getattr(layer.linear, "seen", "absent"))}


def alike(framework: Any, mine: Any, eager: Any, rows: int) -> None:
    """One more call of both: the same result, and the same state afterwards."""
    x = framework.rand([rows, 4])
    expected = eager(x)
    found = mine(x)
    assert found.detach().numpy() == pytest.approx(expected.detach().numpy(), abs=1e-4)
    held = state(mine)
    for name, value in state(eager).items():
        assert near(held[name], value), (name, held[name], value)
    if hasattr(eager, "again"):
        assert mine.seen is mine.again is found
    if hasattr(eager, "seen") and eager.seen is x:
        assert mine.seen is x


def near(found: Any, expected: Any) -> bool:
    if isinstance(expected, float):
        return abs(found - expected) < 2e-3
    if isinstance(expected, (tuple, list)):
        return len(found) == len(expected) and all(map(near, found, expected))
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(near(found[key], expected[key]) for key in expected)
    return type(found) is type(expected) and bool(found == expected)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_carried_is_what_the_eager_method_leaves(framework: Any, way: Callable[..., Any]) -> None:
    mine, eager = pair(framework, way)
    for n in range(8):
        alike(framework, mine, eager, 2 + n % 4)
    served(captures=WAYS[way])
    other, others = copy.deepcopy(mine), copy.deepcopy(eager)  # each has its own
    release(mine)
    for n in range(3):
        alike(framework, mine, eager, 3 + n)
        alike(framework, other, others, 5 - n)
    served(captures=WAYS[way])


def test_the_program_may_assign_it_too(framework: Any) -> None:
    mine, eager = pair(framework, started_by_none)
    for value in ("as it is", None, framework.ones([4]), None, framework.zeros([4]) - 3.0):
        for layer in (mine, eager):
            if not isinstance(value, str):
                layer.state = value
        for rows in (2, 2, 3):
            alike(framework, mine, eager, rows)
    assert not counts()["eager_calls"], counts()


def test_another_sublayer_that_carries(framework: Any) -> None:
    mine, eager = pair(framework, of_a_sublayer)
    for _ in range(2):
        for _ in range(3):
            alike(framework, mine, eager, 2)
        eager.linear = make(framework, flagged).linear
        mine.linear = copy.deepcopy(eager.linear)
    assert not counts()["eager_calls"], counts()


@pytest.mark.parametrize("options", [{"verify": "always"}, {"verify": "off"}, {"background": True}], ids=str)
@pytest.mark.parametrize("way", [recurrent, last_one_seen, counted])
def test_options(framework: Any, way: Callable[..., Any], options: dict[str, Any]) -> None:
    mine, eager = pair(framework, way, **options)
    for n in range(8):
        alike(framework, mine, eager, 2 + n // 4)
        _background.wait()
    assert counts()["hits"] >= 2, counts()


@pytest.mark.parametrize("way", [recurrent, running_mean, counted])
def test_measuring_changes_nothing(framework: Any, way: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYBRID_INFER_BACKEND")
    mine, eager = pair(framework, way)
    for n in range(4):
        alike(framework, mine, eager, 2 + n // 2)


@pytest.mark.parametrize("way", [recurrent, last_one_seen])
def test_ahead_of_calls(framework: Any, way: Callable[..., Any]) -> None:
    mine, eager = pair(framework, way)
    before = state(mine)
    warmup(mine, [InputSpec([None, 4])])
    assert state(mine) == before
    for n in range(4):
        alike(framework, mine, eager, 2 + n)
    served(captures=1)


def test_where_gradients_are_recorded(framework: Any) -> None:
    mine, eager = pair(framework, running_mean)
    with framework.enable_grad():
        for _ in range(3):
            alike(framework, mine, eager, 2)
    assert counts()["hits"] == 0 and any("while gradients are recorded" in why for why in counts()["fallbacks"])


def test_an_error_of_the_method(framework: Any) -> None:
    def fails(layer: Any, x: Any) -> Any:
        layer.calls += 1
        if layer.calls == 3:
            raise ValueError("three")
        return layer.linear(x)

    mine, eager = pair(framework, fails)
    for n in range(6):
        if n == 2:
            for layer in (mine, eager):
                with pytest.raises(ValueError, match="three"):
                    layer(framework.rand([2, 4]))
        else:
            alike(framework, mine, eager, 2)


def test_a_saved_model_carries_nothing(framework: Any, tmp_path: Any) -> None:
    mine, _ = pair(framework, running_mean)
    mine(framework.rand([2, 4]))
    before = state(mine)
    with pytest.raises(Exception, match=r"replaces the tensor self\.mean"):
        save(mine, tmp_path / "model", input_spec=[InputSpec([None, 4])])
    assert state(mine) == before


def test_an_instance_that_is_dropped_is_freed(framework: Any) -> None:
    mine, eager = pair(framework, running_mean)
    for _ in range(3):
        alike(framework, mine, eager, 2)
    gone = weakref.ref(mine)
    del mine
    gc.collect()
    assert gone() is None


def test_it_is_told(framework: Any) -> None:
    mine, eager = pair(framework, running_mean)
    for _ in range(2):
        alike(framework, mine, eager, 2)
    told_so = str(explain(mine))
    assert "self.mean" in told_so and "assigns" in told_so, told_so


def test_that_nothing_was_there_yet_is_told_in_words(framework: Any) -> None:
    mine, eager = pair(framework, of_a_sublayer)
    for _ in range(3):
        alike(framework, mine, eager, 2)
    told_so = str(explain(mine))
    assert "constant   self.linear.seen = not there yet" in told_so and "\0" not in told_so, told_so


def ring(layer: Any, x: Any) -> Any:
    layer.rows_of_two[layer.calls] = x.mean(0)
    layer.calls = (layer.calls + 1) % 2
    return x + layer.rows_of_two.sum(0)


def every_third(layer: Any, x: Any) -> Any:
    layer.calls += 1
    return layer.linear(x) * 2 if layer.calls % 3 == 0 else layer.linear(x)


def growing(layer: Any, x: Any) -> Any:
    rows = layer.other.reshape([-1, 4])
    layer.other = framework_of(x).concat([rows, x])
    return x + layer.other.sum()


def framework_of(x: Any) -> Any:
    return importlib.import_module(type(x).__module__.partition(".")[0])


@pytest.mark.parametrize("way", [ring, every_third, growing])
def test_numbers_and_sizes_that_differ_at_each_call(framework: Any, way: Callable[..., Any]) -> None:
    mine, eager = pair(framework, way)
    for _ in range(9):
        alike(framework, mine, eager, 2)
    assert counts()["captures"] <= 3 and counts()["hits"] >= 5 and not counts()["eager_calls"], counts()


def test_integers_that_no_graph_holds_are_computed_eagerly(framework: Any) -> None:
    def generator(layer: Any, x: Any) -> Any:
        layer.calls = layer.calls * 1103515245 + 12345
        return x + layer.calls % 7

    mine, eager = pair(framework, generator)
    for _ in range(5):
        alike(framework, mine, eager, 2)
    assert mine.calls == eager.calls > 2**64
    assert counts()["eager_calls"] >= 2, counts()


def test_a_float_that_differs_at_each_call_runs_eagerly(framework: Any) -> None:
    def timed(layer: Any, x: Any) -> Any:
        layer.calls = layer.calls + 0.5
        return layer.linear(x) * layer.calls

    mine, eager = pair(framework, timed)
    for _ in range(4):
        alike(framework, mine, eager, 2)
    eagerly("it changes self.calls")


def test_its_dict_may_be_replaced(framework: Any) -> None:
    for way in (of_an_object, started_by_none):
        mine, eager = pair(framework, way)
        for n in range(6):
            if n in (2, 4):
                for layer in (mine, eager):
                    for each in (layer, layer.box):
                        object.__setattr__(each, "__dict__", {**vars(each)})
                    layer.state = framework.ones([4]) * n
                    layer.box.state = framework.ones([4]) * n, framework.ones([4])
            alike(framework, mine, eager, 2)


def test_a_class_that_assigns_in_its_own_way_runs_eagerly(framework: Any) -> None:
    class More(Box):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value if isinstance(value, tuple) else value + 1)

    def of_more(layer: Any, x: Any) -> Any:
        layer.box.seen = x.mean(0)
        return x + layer.box.seen

    mine, eager = pair(framework, of_more)
    for layer in (mine, eager):
        layer.box = More()
        layer.box.state, layer.box.seen = (), framework.zeros([4])
    for _ in range(4):
        alike(framework, mine, eager, 2)
        assert told(mine.box.seen)[1] == pytest.approx(told(eager.box.seen)[1], abs=1e-3)
    eagerly("it replaces the tensor self.box.seen")


def by_its_dict(layer: Any, x: Any) -> Any:
    y = x if "seen" in vars(layer) else x + 10
    layer.seen = x.mean(0)
    return y


def by_its_buffers(layer: Any, x: Any) -> Any:
    if layer._buffers["mean"] is None:
        layer._buffers["mean"] = x.mean(0)
    return layer.linear(x)


@pytest.mark.parametrize("verify", ["build", "off"])
@pytest.mark.parametrize("way", [by_its_dict, by_its_buffers])
def test_what_is_read_by_no_name(framework: Any, way: Callable[..., Any], verify: Any) -> None:
    mine, eager = pair(framework, way, verify=verify)
    mine.mean = eager.mean = None
    for _ in range(4):
        alike(framework, mine, eager, 2)


def test_a_sublayer_in_its_place_runs_eagerly(framework: Any) -> None:
    def exchanged(layer: Any, x: Any) -> Any:
        layer.linear, layer.lstm = layer.lstm, layer.linear
        return x * 2

    mine, eager = pair(framework, exchanged)
    for _ in range(3):
        x = framework.rand([2, 4])
        assert mine(x).numpy() == pytest.approx(eager(x).numpy())
    eagerly("it changes self.l")


@pytest.mark.parametrize("also", [False, True], ids=["carried", "and appended"])
def test_what_is_carried_is_listed_among_no_failures(framework: Any, also: bool, cache_directory: Path) -> None:
    """A capture that found out what is carried is remembered as one that failed; it is one where none was of use."""

    class Counting(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.calls, self.seen = 0, []

        @inference()
        def forward(self, x: Any) -> Any:
            self.calls += 1
            if also:
                self.seen.append(self.calls)
            return x * self.calls

    layer, x = Counting(), framework.ones([2])
    for _ in range(3):
        layer(x)
    store = Store(cache_directory, sync=False)
    assert bool(_inventory.failures(store)) == also
    assert bool(list(store.entries())) != also


@pytest.mark.parametrize("grows", [False, True], ids=["assigned", "and appended"])
def test_each_trace_starts_from_the_layer_as_it_is(
    framework: Any, grows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the one before it assigned is a value of another program, which Paddle ends the process for."""
    seen: list[Any] = []
    run = _twin.Twin.run

    def noted(twin: Any, *args: Any) -> Any:
        state = vars(twin.owner)
        held = [*state["boxes"]], dict(state["known"]), set(state["names"])
        seen.append((state["limit"], state["slotted"].size, *held))
        return run(twin, *args)

    class Growing(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.limit, self.boxes, self.known, self.names = 4, [], {}, set()
            self.slotted = Slotted()
            self.slotted.size = 0

        def forward(self, x: Any) -> Any:
            if x.shape[0] > self.limit:
                self.limit = x.shape[0]
                if self.grows:
                    self.slotted.size = x.shape[0]
                    self.boxes.append(x)
                    self.known["x"] = x
                    self.names.add("x")
            return x + self.limit

    monkeypatch.setattr(_twin.Twin, "run", noted)
    Growing.grows = grows
    layer = inference(Growing())
    for rows in (2, 3, 6, 7, 5):
        before = layer.limit, layer.slotted.size, [*layer.boxes], dict(layer.known), set(layer.names)
        seen.clear()
        y = layer(framework.ones([rows, 4]))
        assert float(y[0, 0]) == 1 + max(rows, before[0])
        for limit, size, *others in seen:
            assert type(limit) is type(size) is int and (limit, size) == before[:2]
            assert [*map(len, others)] == [*map(len, before[2:])]


def test_an_entry_that_the_method_itself_puts_into_a_dict_has_no_call_looked_up(
    framework: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maps of attention, kept for who looks at them: what else the dict holds is watched all the same."""

    class Net(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.kept: dict[str, Any] = {"scale": 2.0}

        @inference()
        def forward(self, x: Any) -> Any:
            self.kept["map"] = x + 1
            return x * self.kept["scale"]

    layer, x = Net(), framework.ones([2])
    with framework.no_grad():
        for _ in range(3):
            assert float(layer(x)[0]) == 2
        looked: list[Any] = []
        plain = _dispatch.miss
        monkeypatch.setattr(_dispatch, "miss", lambda *args, **named: (looked.append(args), plain(*args, **named))[1])
        for n in range(3):
            assert float(layer(x * n)[0]) == 2 * n and float(layer.kept["map"][0]) == n + 1
        assert not looked
        layer.kept["scale"] = 3.0
        assert float(layer(x)[0]) == 3 and looked
        layer.kept["other"] = 1
        layer.kept["inside"] = [1]
        assert [float(layer(x)[0]) for _ in range(2)] == [3, 3]
        looked.clear()
        layer.kept["inside"].append(2)
        assert float(layer(x)[0]) == 3 and looked
        del layer.kept["map"]
        assert float(layer(x)[0]) == 3 and float(layer.kept["map"][0]) == 2
