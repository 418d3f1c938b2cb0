"""Branches and loops on the value of a tensor, as plain Python: they run in an engine, right on every side."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import paddle
import pytest
from paddle_support import counts, grid, same, served

from hybrid_infer import inference

pytestmark = pytest.mark.paddle


def branch_in_loop(x: Any) -> Any:
    count = paddle.zeros([], "int64")
    while x.sum() < 1000:
        if x.max() > 3:  # noqa: SIM108
            x = x * 4
        else:
            x = x.abs() + 1
        count = count + 1
    return x, count


def early_returns(x: Any) -> Any:
    if x.sum() > 0:
        return x + 1
    if x.min() < -5:
        return x * 3
    return x - 1


def early_return_and_a_variable(x: Any) -> Any:
    """Behind the return, one tensor is the result and what a variable holds."""
    if x.sum() > 0:
        return x * 3
    elif x.min() < -5:
        return x * 7
    x = x - 1
    return x


def comparisons_in_a_chain(x: Any) -> Any:
    low, middle = -2.0, x.mean()
    if low < middle < 2 < x.shape[-1]:
        x = x + middle
    y = x * 2 if 0 <= x.max() < 10 else x - 2
    while -50 < y.sum() <= 50:
        y = y * 2 - 1
    return x, y


def returns_that_depend_on_a_mean(x: Any) -> Any:
    if x.mean() > 0.5:
        return x * 2 + x.norm()
    if x.logsumexp() < 3:
        return paddle.nn.functional.gelu(x, True) - x.mean()
    return x - 1


def loop_with_break(x: Any) -> Any:
    turn = paddle.zeros([1], "int32")
    while turn < 10:
        x = x * 1.3
        if x.sum() > 20:
            break
        turn = turn + 1
    return x, turn


def loop_in_loop(x: Any) -> Any:
    outer, turns = paddle.zeros([], "int64"), paddle.clip(x.max(), 0, 2) + 2
    while outer < turns:
        inner = paddle.zeros([], "int64")
        while inner < outer:
            x = x + 0.25
            inner = inner + 1
        outer = outer + 1
    return x, outer


def conditions_with_and_or(x: Any) -> Any:
    y = x + 1 if x.sum() > 0 else x - 1
    return y if (x.max() > 1 and x.min() > -3) or x.sum() > 100 else -y


def loops_from_one_tensor(x: Any) -> Any:
    """What a loop starts from is read in it as well, and two of its variables start from one tensor."""
    turn, turns = paddle.zeros([], "int64"), (x.sum() > 0).astype("int64") * 2
    y = z = x
    while turn < turns:
        inner, y = paddle.zeros([], "int64"), y + x * 3
        while inner < turn:
            z, inner = z * 2 + y, inner + 1
        turn = turn + 1
    return y, z


FUNCTIONS = [
    branch_in_loop, early_returns, returns_that_depend_on_a_mean, loop_with_break, loop_in_loop, conditions_with_and_or,
    loops_from_one_tensor, early_return_and_a_variable, comparisons_in_a_chain,
]  # fmt: skip


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_every_side_is_right(function: Callable[..., Any], engine: str) -> None:
    hot = inference(backend=engine)(function)
    with paddle.no_grad():
        for x in (grid(2, 4) + 1, grid(2, 4) - 1, grid(2, 4) * 6, grid(2, 4) + 30):
            same(hot(x), function(x), 1e-4)
    served(captures=1)


class Flow(paddle.nn.Layer):
    """A branch with a layer on either side."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.scale = paddle.nn.Linear(4, 4), paddle.nn.Linear(4, 4), 2.0

    def forward(self, x: Any) -> Any:
        return self.one(x) if x.mean() > 0 else self.two(x) * self.scale


def test_layers_and_attributes_of_either_side_are_the_instances_own() -> None:
    class Hot(Flow):
        forward = inference()(Flow.forward)

    for _ in range(2):
        layer = Hot()
        layer.eval()
        with paddle.no_grad():
            for x in (grid(2, 4) + 1, grid(2, 4) - 1):
                same(layer(x), Flow.forward(layer, x))
    served(captures=1)
    with paddle.no_grad():
        layer.two.weight.set_value(layer.two.weight + 1)
        same(layer(grid(2, 4) - 1), Flow.forward(layer, grid(2, 4) - 1))
        layer.scale = 3.0
        same(layer(grid(2, 4) - 1), Flow.forward(layer, grid(2, 4) - 1))
    served(captures=2)


def loops_over_parts(x: Any) -> Any:
    for row, factor in zip([x, x * 2], [1.0, 3.0], strict=True):
        x = x + row * factor
    for n, row in enumerate([x, x * 2], start=1):
        x = x + row * n
    return x


def test_zip_and_enumerate_with_what_they_take_by_name() -> None:
    hot = inference()(loops_over_parts)
    with paddle.no_grad():
        same(hot(grid(2, 4)), loops_over_parts(grid(2, 4)), 1e-4)
    served(captures=1)


def of_their_own() -> None:
    """Are the arguments of the block that is being traced values of their own, at each time that they are asked for?"""
    if not paddle.in_dynamic_mode():
        block = paddle.pir.get_current_insertion_point().block()
        first, second = block.args(), block.args()
        assert first and not any(first[i] is second[i] for i in range(len(first)))
        assert all(first[i].is_same(second[i]) for i in range(len(first)))


def loop_that_looks(x: Any) -> Any:
    while x.sum() < 100:
        of_their_own()
        x = x + 1
    return x


def test_the_arguments_of_a_loop_point_into_no_list_that_moves() -> None:
    """Those that the framework gives do: what a traceback kept of one crashed another trace, now and then."""
    hot = inference()(loop_that_looks)
    with paddle.no_grad():
        same(hot(grid(2, 4)), loop_that_looks(grid(2, 4)), 1e-4)
    served(captures=1)



def turns(x: Any, n: Any) -> Any:
    i, h = paddle.zeros([], "int64"), x * 0.5
    while i < n:
        h = paddle.tanh(h * 2)
        i = i + 1
    return h


def doubled(x: Any, n: Any) -> Any:
    i, y, z = paddle.zeros([], "int64"), x * 2, paddle.zeros_like(x)
    while i < n:
        y, z, i = y * 2, z + y, i + 1
    return y, z


def root(x: Any, n: Any) -> Any:
    a = x.abs().sum() * n.astype("float32")
    g = a / 2
    while (g * g - a).abs() > 1e-3:
        g = (g + a / g) / 2
    return g


@pytest.mark.parametrize("function", [turns, doubled, root], ids=lambda function: function.__name__)
@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_a_loop_carries_on_from_turn_to_turn(
    function: Callable[..., Any], engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call has one turn, after which nothing was carried yet: with two, no check of results would pass."""
    monkeypatch.setenv("HYBRID_INFER_BACKEND", engine)
    hot = inference()(function)
    with paddle.no_grad():
        for n in (1, 1, 3, 0, 5):
            number = paddle.to_tensor(n)
            same(hot(grid(2, 4), number), function(grid(2, 4), number), 1e-4)
    served(captures=1)


def test_what_a_failed_trace_of_the_framework_left_behind_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records of programs that are gone are kept by address: those of the next program can be the same."""
    from paddle.jit.dy2static import parameter_recorder

    class Stale(dict[Any, Any]):
        def __contains__(self, key: object) -> bool:
            raise AssertionError("a record of another program")

        __getitem__ = __setitem__ = __contains__  # type: ignore[assignment]

    def fails(x: Any) -> Any:
        x[0] = 1.0
        return unknown(x)  # type: ignore[name-defined]  # noqa: F821

    maps = parameter_recorder._global_inplace_map, parameter_recorder._global_parameter_recorder
    with pytest.raises(Exception, match="unknown"):
        paddle.jit.to_static(fails, full_graph=True)(grid(2, 4))
    assert maps[0].params_dict, "the framework takes its records back now: trace() need not"
    maps[0].params_dict.clear()
    for name in ("parameter_recorder", "program_translator"):
        module = getattr(__import__("paddle.jit.dy2static", fromlist=[name]), name)
        monkeypatch.setattr(module, "_program_hash", lambda program: 7)
    for each in (maps[0].params_dict, maps[1].params_dict, maps[1].tensor2value):
        monkeypatch.setitem(each, 7, Stale())
    hot = inference()(loop_in_loop)
    with paddle.no_grad():
        same(hot(grid(2, 4)), loop_in_loop(grid(2, 4)), 1e-4)
    served(captures=1)


def truth(x: Any) -> Any:
    return x * 2 if x.sum() else x * 3


def truth_of_not(x: Any) -> Any:
    if not x.sum():
        x = x * 5
    return x * 3


def truth_by_name(x: Any) -> Any:
    return x * 2 if bool(x.sum()) else x * 3


def truth_of_whole_numbers(x: Any) -> Any:
    return x * 2 if x.sum().astype("int64") else x * 3


@pytest.mark.parametrize(
    "function", [truth, truth_of_not, truth_by_name, truth_of_whole_numbers], ids=lambda function: function.__name__
)
def test_a_number_is_true_where_eager_says_so(function: Callable[..., Any]) -> None:
    """A tensor is where it is more than 0, of Paddle; a number of Python's, where it is another than 0."""
    hot = inference()(function)
    with paddle.no_grad():
        for value in (1.0, 1.0, -1.0, 0.0, 2.0):
            x = paddle.full([2], value)
            same(hot(x), function(x), 1e-5)
    served(captures=1)


def assigned_in_and(x: Any) -> Any:
    largest = 0
    if (largest := x.max()) > 0 and largest < 5:
        return x + largest
    return x - 1


def assigned_on_a_side(x: Any) -> Any:
    mean = 7
    y = (mean := x.mean()) * 2 if x.sum() > 0 else x.mean()
    return y + mean


def assigned_in_a_chain(x: Any) -> Any:
    low = bound = 3
    return x * bound if -9 < x.shape[0] < (bound := low + 2) else x


def assigned_in_front_of_a_chain(x: Any) -> Any:
    total, bound = 0, 30
    y = x + 1 if (total := x.sum()) < bound < 99 else x
    return y + total


def assigned_in_front_of_a_chain_of_an_if(x: Any) -> Any:
    total, bound = x.sum() * 0, 30
    if (total := x.sum()) < bound < 99:
        x = x + 1
    return x + total


def assigned_in_the_condition_of_a_loop(x: Any) -> Any:
    y, turns = x, 0
    while (turns := turns + 1) < 4:
        y = y + turns
    return y * turns


@pytest.mark.parametrize(
    ("function", "hits"),
    [
        (assigned_in_and, 0),
        (assigned_on_a_side, 0),
        (assigned_in_a_chain, 3),
        (assigned_in_front_of_a_chain, 0),
        (assigned_in_front_of_a_chain_of_an_if, 0),
        (assigned_in_the_condition_of_a_loop, 3),
    ],
)
def test_what_an_expression_assigns_is_not_lost(function: Callable[..., Any], hits: int) -> None:
    hot = inference(function, verify="off")
    for x in (grid(2, 4) - 1, grid(2, 4) + 1, grid(2, 4) * 6):
        same(hot(x), function(x))
    assert counts()["hits"] == hits


def what_a_loop_goes_through(x: Any) -> Any:
    """It is what it was before the loop, whatever the loop does to the names in it."""
    for each in (x, x + 1):
        if each.shape[0] == 9:
            break
        x = x + each
    for row in x:
        if row.shape[0] == 9:
            continue
        x = x + row
    for place, each in enumerate([x, x * 2]):
        if place > 5:
            break
        x = x - each
    return x


def returns_from_loops(x: Any) -> Any:
    for name in ["a", "skipped", "b"]:
        if name.startswith("c"):
            return x
        x = x * 2
    for place, (name, factor) in enumerate({"a": 2, "last": 3}.items()):
        if len(name) > 1 and factor * place == 3:
            return x * factor
        x = x + place
    return x


def pairs_and_tables(x: Any) -> Any:
    pairs, table = [(x, x + 1), (x * 2, x)], {"a": 2.0, "b": 3.0}
    for one, other in pairs:
        if one.ndim == 5:
            return one
        x = x + one * other
    for place, (one, other) in enumerate(zip(pairs, pairs, strict=True)):
        if place == 7:
            continue
        x = x - one[0] * other[1]
    for key in table:
        if key.isupper():
            break
        x = x * table[key]
    turn = 0
    while turn < 5:
        doubled = turn * 2
        if doubled - 4 == 0:
            return x + doubled
        turn += 1
    return x


@pytest.mark.parametrize("function", [what_a_loop_goes_through, returns_from_loops, pairs_and_tables])
def test_ways_out_of_loops_that_numbers_decide(function: Callable[..., Any]) -> None:
    hot = inference(function, verify="off", fallback="error")
    for x in (grid(4, 4) - 1, grid(4, 4) + 1):
        same(hot(x), function(x))
    served(captures=1)


def what_a_loop_counts(x: Any) -> Any:
    """Its number and its value are variables as others are: behind it, where it changes them, and where it has none."""
    count, place, value = 3, 7, x * 100
    for _ in range(count):
        count -= 1
        if count == 9:
            break
        x = x + 1
    for number in range(5):
        number = number * 2
        if number == 6:
            break
        x = x + number
    for place, value in enumerate([x, x + 1, x + 2], start=2):
        x = x - value
        if place == 3:
            break
    x = x * place + number + value
    for value in range(-place, 0, -count - 1):
        if value == 9:
            continue
        x = x + value
    for name, value in {"a": 1, "b": 2, "c": 3}.items():
        if name == "b":
            break
        x = x + value
    return x * value


def in_functions_of_a_method(x: Any) -> Any:
    def inner(values: Any) -> Any:
        for each in (values, values + 1):
            if each.shape[0] == 9:
                break
            values = values + each
        return values

    return inner(x)


class Backwards:
    """It goes through its values in another order than their numbers are in."""

    def __init__(self, *values: Any) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, place: int) -> Any:
        return self.values[place]

    def __iter__(self) -> Any:
        return iter(self.values[::-1])


def a_class_of_its_own(x: Any) -> Any:
    values = Backwards(x, x + 1)
    for each in values:
        if each.ndim == 9:
            break
        x = x * 2 - each
    return x


def a_list_that_grows(x: Any) -> Any:
    values = [x]
    for each in values:
        if len(values) < 4:
            values.append(each * 2)
        x = x + each
    return x


LAYERS = paddle.nn.LayerDict({"first": paddle.nn.Linear(4, 4), "second": paddle.nn.Linear(4, 4)})


def what_layers_have(x: Any) -> Any:
    for name, weight in LAYERS.named_parameters():
        if name.startswith("second"):
            break
        x = x + weight.sum()
    for layer in reversed(LAYERS.sublayers()):
        if layer.weight.ndim == 9:
            return x
        x = layer(x)
    for number in reversed(range(5)):
        if number == 2:
            break
        x = x + number
    return x * number


@pytest.mark.parametrize(
    "function",
    [what_a_loop_counts, in_functions_of_a_method, a_class_of_its_own, a_list_that_grows, what_layers_have],
)
def test_what_loops_count_and_go_through(function: Callable[..., Any]) -> None:
    hot = inference(function, verify="off", fallback="error")
    for x in (grid(4, 4) - 1, grid(4, 4) + 1):
        same(hot(x), function(x))
    served(captures=1)


def all_numbers(x: Any) -> Any:
    for number in itertools.count():
        if number == 3:
            break
        x = x + number
    return x


def the_rest_of_an_iterator(x: Any) -> Any:
    values = iter([x, x * 2, x * 3])
    for each in map(abs, values):
        if each.ndim == 2:
            break
    return next(values, x)


def yields_in_a_loop(x: Any) -> Any:
    def each() -> Any:
        for place in (1, 2):
            if place == 2:
                yield x * place

    return sum(each(), x)


@pytest.mark.parametrize("function", [all_numbers, the_rest_of_an_iterator, yields_in_a_loop])
@pytest.mark.timeout(60)
def test_iterators_are_taken_as_far_as_eagerly(function: Callable[..., Any]) -> None:
    """Some have no end, and Paddle makes lists of all; of a generator it makes a loop without an end."""
    hot = inference(function, verify="off")
    for x in (grid(4, 4) - 1, grid(4, 4) + 1):
        same(hot(x), function(x))
