"""Loops of the user's code go through what they go through one by one, and see what changes in it meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import grid, same, served  # noqa: E402

from hybrid_infer import explain, inference  # noqa: E402

pytestmark = pytest.mark.paddle


def a_list_by_another_name(x: Any) -> Any:
    values = [x, x + 1]
    others = values
    for each in values:
        if len(others) == 5:
            break
        others.append(each * 2)
        x = x + each
    return x


def a_list_of_an_object(x: Any) -> Any:
    held = SimpleNamespace(values=[x, x + 1])
    for each in held.values:
        if len(held.values) < 5:
            held.values.append(each * 2)
        x = x + each
    return x


def a_list_that_loses_what_it_had(x: Any) -> Any:
    values = [x, x + 1, x + 2, x + 3]
    for each in values:
        x = x + each
        if len(values) > 2:
            del values[0]
    return x


def a_list_that_is_written_to(x: Any) -> Any:
    values = [x, x + 1, x + 2]
    for place, each in enumerate(values):
        x = x + each
        values[(place + 1) % 3] = x
    return x


def a_list_among_those_that_zip_takes(x: Any) -> Any:
    found = [x]
    for each, number in zip(found, (1, 2, 3), strict=False):
        found.append(each * number)
    return found[-1]


def a_list_among_those_that_zip_takes_for_a_while(x: Any) -> Any:
    found = [x]
    for place, (each, number) in enumerate(zip(found, (1, 2, 3), strict=False)):
        if place == 2:
            break
        found.append(each * number)
    return found[-1]


def a_list_that_a_function_changes(x: Any) -> Any:
    values = [x, x + 1]

    def more(each: Any) -> None:
        if len(values) < 4:
            values.append(each * 3)

    for each in values:
        more(each)
        if each.ndim == 9:
            continue
        x = x + each
    return x


def a_dict_that_is_written_to(x: Any) -> Any:
    values = {"a": x, "b": x + 1}
    for name, each in values.items():
        if name == "a":
            values["b"] = each * 5
        x = x + each
    return x


def a_generator_of_what_changes(x: Any) -> Any:
    factors = [2.0]
    for each in (factors[0] * value for value in (x, x + 1, x + 2)):
        factors[0] += 1.0
        x = x + each
    return x


def an_iterator_that_the_loop_takes_more_of(x: Any) -> Any:
    values = iter([x, x + 1, x + 2, x + 3, x + 4])
    for each in values:
        x = x + each * next(values, 1.0)
    return x


def pairs_of_one_iterator(x: Any) -> Any:
    values = iter([x, x + 1, x + 2, x + 3])
    for one, other in zip(values, values, strict=False):
        x = x + one * other
    return x


def what_zip_left_at_the_end(x: Any) -> Any:
    """Of the first, it takes one more than there are of the second."""
    values = iter([x, x + 1, x + 2, x + 3, x + 4])
    for one, number in zip(values, (1, 2), strict=False):
        x = x + one * number
    return x + next(values, 1.0)


def beside_a_branch_on_a_tensor(x: Any) -> Any:
    values, y = [x, x + 1], x
    for one, number in zip(values, (1, 2, 3), strict=False):
        if x.sum() > 0:
            y = y + one * number
        values.append(y)
    return y


def in_a_branch_on_a_tensor(x: Any) -> Any:
    y = x
    if x.sum() > 0:
        for one, number in zip((x, x + 1), (1, 2, 3), strict=False):
            y = y + one * number
    else:
        for one in [x, x - 1]:
            y = y - one
    return y


def in_a_loop_on_a_tensor(x: Any) -> Any:
    count, y = paddle.zeros([], "int64"), x
    while count < (x.sum() > 0).astype("int64") + 2:
        for one, number in zip((x, x + 1), (1, 2, 3), strict=False):
            y = y + one * number
        for each in enumerate([x, 3]):
            y = y + each[1]
        count = count + 1
    return y


SERVED = (
    a_list_by_another_name, a_list_of_an_object, a_list_that_loses_what_it_had, a_list_that_is_written_to,
    a_list_among_those_that_zip_takes, a_list_among_those_that_zip_takes_for_a_while, a_list_that_a_function_changes,
    a_dict_that_is_written_to, a_generator_of_what_changes, an_iterator_that_the_loop_takes_more_of,
    pairs_of_one_iterator, what_zip_left_at_the_end, beside_a_branch_on_a_tensor, in_a_branch_on_a_tensor,
    in_a_loop_on_a_tensor,
)  # fmt: skip


@pytest.mark.parametrize("function", SERVED, ids=lambda function: function.__name__)
def test_a_loop_sees_what_changes_in_what_it_goes_through(function: Callable[..., Any]) -> None:
    hot = inference(function, backend="onnxruntime", verify="off", fallback="error")
    with paddle.no_grad():
        for x in (grid(4, 4) - 1, grid(4, 4) + 1):
            same(hot(x), function(x))
    served(captures=1)


def what_zip_left(x: Any) -> Any:
    values = iter([x, x + 1, x + 2, x + 3])
    for one, number in zip(values, (1, 2, 3), strict=False):
        x = x + one
        if number == 2:
            break
    return x * next(values, x)


def what_enumerate_left(x: Any) -> Any:
    values = iter(deque([x, x + 1, x + 2, x + 3]))
    for place, one in enumerate(values):
        x = x + one
        if place == 1:
            break
    return x * next(values, x)


def what_zip_in_enumerate_left(x: Any) -> Any:
    values = iter({"a": x, "b": x + 1, "c": x + 2, "d": x + 3}.values())
    for place, (one, number) in enumerate(zip(values, (1, 2, 3), strict=False)):
        x = x + one * number
        if place == 1:
            break
    return x * next(values, x)


def what_an_exact_zip_left(x: Any) -> Any:
    values = iter([x, x + 1, x + 2])
    for one, number in zip(values, (1, 2, 3), strict=True):
        x = x + one * number
        if number == 2:
            break
    return x * next(values, x)


def what_a_generator_left_undone(x: Any) -> Any:
    done = []

    def each() -> Any:
        for number in (1, 2, 3):
            done.append(number)
            yield x * number

    for one, number in zip(each(), (1, 2, 3), strict=False):
        x = x + one
        if number == 2:
            break
    return x * len(done)


def what_a_call_gave_that_a_variable_holds(x: Any) -> Any:
    values = iter([x, x + 1, x + 2, x + 3])
    for each in iter(values):
        x = x + each
        if x.shape[0] == 4:
            break
    return x * next(values)


def what_a_function_gave_to_enumerate(x: Any) -> Any:
    values = reversed([x, x + 1, x + 2, x + 3])

    def rest() -> Any:
        return values

    for place, each in enumerate(rest()):
        x = x + each
        if place == 1:
            break
    return x * next(values)


LEFT = (
    what_zip_left, what_enumerate_left, what_zip_in_enumerate_left, what_an_exact_zip_left,
    what_a_generator_left_undone, what_a_call_gave_that_a_variable_holds, what_a_function_gave_to_enumerate,
)  # fmt: skip


@pytest.mark.parametrize("function", LEFT, ids=lambda function: function.__name__)
def test_what_a_loop_leaves_of_an_iterator_is_there(function: Callable[..., Any]) -> None:
    hot = inference(function, backend="onnxruntime", verify="off")
    with paddle.no_grad():
        for x in (grid(4, 4) - 1, grid(4, 4) + 1):
            same(hot(x), function(x))


def test_a_loop_through_a_list_that_a_tensor_ends_says_so() -> None:
    def function(x: Any) -> Any:
        for factor in (1.0, 1.5) * 40:
            x = x * factor
            if x.sum() > 40:
                return x - 1
        return x

    hot = inference(function, backend="onnxruntime")
    with paddle.no_grad():
        for x in (grid(4, 4) - 1, grid(4, 4) + 1, grid(4, 4) + 7):
            same(hot(x), function(x))
    assert "a loop through what is no tensor ends by the values of a tensor" in str(explain(hot))
