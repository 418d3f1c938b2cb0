"""Windows: what turns, cuts and regroups an array, as sizes and strides, is what NumPy makes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_graphs import GRAPHS
from native_packed import PACKED
from native_support import compare, model, node, ops, sample

from hybrid_infer.backends.native import _build, _kernels, _passes, _size
from hybrid_infer.backends.native._cuda_access import access, extent, lanes
from hybrid_infer.backends.native._plan import Plan, Step, Value
from hybrid_infer.backends.native._size import atom
from hybrid_infer.backends.native._window import Window, moved, whole, windows


def _seen(window: Window, array: Any) -> Any:
    strides = [step * array.itemsize for step in window.strides]
    return np.lib.stride_tricks.as_strided(array.reshape(-1)[window.start :], window.sizes, strides)


@st.composite
def _changes(draw: Any) -> tuple[Any, list[tuple[Any, ...]]]:
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4))
    kinds = st.lists(st.sampled_from(["turn", "cut", "drop", "group"]), min_size=1, max_size=5)
    return np.arange(np.prod(shape)).reshape(shape), [(kind, draw(st.randoms())) for kind in draw(kinds)]


def _factors(number: int, draw: Any) -> list[int]:
    """Sizes whose product is that number, ones among them."""
    found = [1] * draw.randrange(2)
    while number > 1:
        part = draw.choice([n for n in range(2, number + 1) if number % n == 0])
        found += [part, *[1] * draw.randrange(2)]
        number //= part
    return found or [1]


@settings(deadline=None, max_examples=400)
@given(_changes())
def test_a_window_is_what_numpy_makes_of_an_array(made: tuple[Any, list[tuple[Any, ...]]]) -> None:
    base, changes = made
    window, expected = whole(base.shape), base
    for kind, draw in changes:
        axis = draw.randrange(expected.ndim)
        if kind == "turn":
            order = draw.sample(range(expected.ndim), expected.ndim)
            window, expected = window.turned(order), expected.transpose(order)
        elif kind == "cut":
            first, by = draw.randrange(expected.shape[axis]), draw.choice([1, 1, 2, -1])
            cut = (*[slice(None)] * axis, slice(first, None, by))
            window, expected = window.cut(axis, first, expected[cut].shape[axis], by), expected[cut]
        elif kind == "drop" and expected.shape[axis] == 1 and expected.ndim > 1:
            window, expected = window.without(axis), expected.squeeze(axis)
        elif kind == "group":
            shape = _factors(expected.size, draw)
            again = window.regrouped(shape)
            seen = np.shares_memory(expected, expected.reshape(shape))  # or NumPy has to copy
            assert (again is not None) == seen or expected.size == 1 or seen, (window, shape)
            if again is None:
                continue
            window, expected = again, expected.reshape(shape)
        assert window.sizes == expected.shape
        np.testing.assert_array_equal(_seen(window, base), expected)
    straight = expected.size == base.size and bool((expected.reshape(-1) == np.arange(base.size)).all())
    assert window.straight() == straight or expected.size < base.size


def test_sizes_that_are_not_known_are_regrouped_where_that_is_certain() -> None:
    tokens = atom("dim", "x", 1)
    window = whole((2, tokens, 24)).regrouped((2, tokens, 3, 2, 4))
    assert window == Window((2, tokens, 3, 2, 4), (tokens * 24, 24, 8, 4, 1), 0)
    part = window.cut(2, 1, 1).without(2).turned([0, 2, 1, 3])
    assert part == Window((2, 2, tokens, 4), (tokens * 24, 4, 24, 1), 8)
    assert part.regrouped((2, 2, tokens * 4)) is None and part.regrouped((4, tokens, 4)) is None
    assert whole((2, tokens)).regrouped((tokens, 2)) == whole((tokens, 2))
    assert whole((3, tokens)).regrouped((2, tokens, 3)) is None
    assert whole((tokens, 6)).cut(1, 0, 3).regrouped((tokens * 3,)) is None


@pytest.mark.parametrize("op", ["Relu", "Concat"])
def test_what_computes_is_no_window(op: str) -> None:
    step = Step(op, ("x",), ("y",), {"axis": 0})
    plan = Plan(["x"], ["y"], [step], {name: Value("float32", (2, 3)) for name in "xy"}, {}, 20)
    assert moved(plan, step, 0, whole((2, 3))) is None


def test_so_many_elements_are_loaded_at_once_as_lie_side_by_side() -> None:
    reach = access([4, 8], [[4, 8], [8]], [Window((4, 8), (24, 1), 8), None])
    assert reach.sizes == [4, 8] and reach.strides == [[24, 1], [0, 1]]
    assert lanes(["float16"], 8, True, [Window((4, 8), (24, 1), 8)]) == [8]
    assert lanes(["float16"], 8, True, [Window((4, 8), (20, 1), 8)]) == [4]
    assert lanes(["float16"], 8, True, [Window((4, 8), (24, 1), 3)]) == [1]
    assert lanes(["float16"], 8, True, [Window((4, 8), (atom("dim", "x", 0), 1), 0)]) == [1]


@pytest.mark.parametrize("name", PACKED)
def test_no_operand_in_a_window_is_copied(name: str) -> None:
    (made, _), steps = GRAPHS[name]
    plan = _passes.plan(made)
    count = sum(each is not None for step in plan.steps for each in windows(step))
    expected = {"packed attention": 3, "packed attention, split": 3, "modulation": 3, "gated": 2}
    assert count == expected.get(name, 0), plan.steps
    copying = {"Slice", "Split", "Transpose", "Gather"}
    assert sum(step.op in copying for step in plan.steps) == sum(steps.get(op, 0) for op in copying)


def test_what_is_read_backwards_is_read_in_place_and_what_is_turned_apart_is_copied_first() -> None:
    """A GPU would not read the neighbours together."""
    nodes = [
        node("Slice", ["x", "first", "end", "axis", "by"], ["r"]),
        node("Tanh", ["r"], ["a"]),
        node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        node("Tanh", ["t"], ["y"]),
    ]
    cut = {name: np.array([n], np.int64) for name, n in {"first": -1, "end": -100, "axis": 1, "by": -1}.items()}
    made, feeds = model(nodes, {"x": ("float32", (2, 5, 8))}, ["a", "y"], cut), {"x": sample((2, 5, 8))}
    plan = _passes.plan(made)
    assert ops(plan) == {"Transpose": 1, "elementwise": 2}
    compare(plan, made, feeds)


def test_places_far_apart_in_a_window_are_counted_in_64_bits() -> None:
    """The kernel of one step serves every step that has equal windows, whatever they are windows of."""
    rows = atom("dim", "x", 0)
    for size, wide in ((4, False), (2**21, True), (rows, None)):
        shape = (size, 1024)
        step = Step("Slice", ("x", "first", "end", "axis"), ("part",))
        cut = {name: np.array([n], np.int64) for name, n in {"first": 8, "end": 16, "axis": 1}.items()}
        values = {"x": Value("float16", shape), "part": Value("float16", (size, 8)), "y": Value("float16", (size, 8))}
        values.update({name: Value("int64", (1,)) for name in cut})
        plan = Plan(["x"], ["y"], [step, Step("Tanh", ("part",), ("y",))], values, cut, 20)
        for each in ("elementwise", "in place"):
            _passes.PASSES[each](plan)
        [fused] = plan.steps
        assert fused.attributes["windows"][0] == [[size, 8], [1024, 1], 8]
        [kernel] = _kernels.kernels(plan).values()
        assert {key[1] for key in kernel.entries} == ({True, False} if wide is None else {wide})
        if wide is None:
            assert [kernel.entry({("dim", "x", 0): n})[1] for n in (4, 2**21)] == [False, True]


def _parts_of(shape: Any, cut: dict[str, int]) -> Any:
    nodes = [node("Slice", ["x", "first", "end", "axis"], ["s"]), node("Tanh", ["s"], ["y"])]
    given = {"end": 2**62, "axis": 0, **cut}
    constants = {name: np.array([n], np.int64) for name, n in given.items()}
    return model(nodes, {"x": ("float32", shape)}, ["y"], constants)


@pytest.mark.parametrize("shape", [(4, 8), ("t", 8)])
@pytest.mark.parametrize("cut", [{"first": 0, "end": 2}, {"first": 1}, {"first": -3}, {"first": -5, "end": -1}])
def test_the_rows_that_a_slice_leaves_are_read_whatever_the_number_of_all(shape: Any, cut: dict[str, int]) -> None:
    made = _parts_of(shape, cut)
    plan = _passes.plan(made)
    assert ops(plan) == {"elementwise": 1} and not _build.uncovered(plan, _kernels.kernels(plan))
    for rows in [4] if shape[0] == 4 else [4, 1, 3, 7]:
        compare(plan, made, {"x": sample((rows, 8))})


def test_the_first_part_of_what_is_split_or_picked_is_no_whole() -> None:
    nodes = [
        node("Split", ["x"], ["a", "b"], axis=0, num_outputs=2),
        node("Tanh", ["a"], ["y"]),
        node("Gather", ["x", "zero"], ["c"], axis=0),
        node("Exp", ["c"], ["z"]),
        node("Sigmoid", ["b"], ["w"]),
    ]
    made = model(nodes, {"x": ("float32", (4, 8))}, ["y", "z", "w"], {"zero": np.array(0, np.int64)})
    plan = _passes.plan(made)
    assert ops(plan) == {"elementwise": 3}
    compare(plan, made, {"x": sample((4, 8))})


def test_what_begins_between_two_vectors_is_loaded_one_by_one() -> None:
    plan = _passes.plan(_parts_of((4, 8), {"first": 1, "end": 5, "axis": 1}))
    [kernel] = _kernels.kernels(plan).values()
    assert [key[0] for key in kernel.entries] == [1]


def test_how_far_a_window_may_reach_is_never_told_too_short() -> None:
    """Sizes behind a convolution are not known to be positive, and a stride may be negative."""
    high = (atom("dim", "x", 2) - 3) // 2 + 1
    for stride in (high * 8, high * -8, -24, 24):
        window = Window((atom("dim", "x", 0), 8), (stride, 1), 0)
        step = Step("elementwise", ("x",), ("y",), {"windows": [window.data(), None]})
        symbols = {("dim", "x", 0): 5, ("dim", "x", 2): 601}
        reached = abs(_size.evaluate(stride, symbols)) * 4 + 7
        assert _size.evaluate(extent(step), symbols) >= reached
