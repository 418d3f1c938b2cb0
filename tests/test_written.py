"""Which tensors that a method writes to lie in memory of their own."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from hybrid_infer._structure import class_path
from hybrid_infer.state._given import Returned
from hybrid_infer.state._targets import targets
from hybrid_infer.state._written import Others, folded

SPANS = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 12)).map(lambda s: (s[0], s[0] + s[1])), max_size=8)


class Frontend:
    """Tensors are the ranges of addresses that they lie in."""

    @staticmethod
    def extent(tensor: tuple[int, int]) -> tuple[int, int]:
        return tensor

    @staticmethod
    def axes(tensor: tuple[int, int]) -> list[tuple[int, int]]:
        return []


def meet(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return max(a[0], b[0]) < min(a[1], b[1])


@given(SPANS, SPANS, st.sets(st.integers(0, 7)))
def test_no_memory_that_is_written_is_anothers(
    tensors: list[tuple[int, int]], others: list[tuple[int, int]], written: set[int]
) -> None:
    written &= set(range(len(tensors)))
    expected = not any(
        meet(tensors[i], each) for i in written for each in [*tensors[:i], *tensors[i + 1 :], *others]
    )
    assert Others(Frontend, others).apart(tensors, written) == expected


def test_the_leaves_that_are_written_to_are_found_in_a_tree() -> None:
    leaf, nothing = ["t"], ["c", "NoneType", None]

    def group(kind: str, *nodes: object) -> list[object]:
        return ["u", kind, [*nodes]]

    value = group("builtins:tuple", leaf, ["c", "int", 3], leaf)
    change = group("builtins:tuple", ["g", 0, 1], group("builtins:tuple"), group("builtins:list", leaf))
    write = group("builtins:tuple", leaf, nothing, leaf)
    tree = group(class_path(Returned), value, group("builtins:list", change, write, write))
    assert targets(tree) == [3, 5]
    assert targets(value) == targets(leaf) == targets([]) == []


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=4))
def test_elements_that_lie_in_one_place_are_seen(axes: list[tuple[int, int]]) -> None:
    places = [
        sum(n * stride for n, (_, stride) in zip(at, axes, strict=True)) for at in product(*(range(n) for n, _ in axes))
    ]
    if len(set(places)) < len(places):
        assert folded(axes)


def test_what_lies_in_places_of_its_own_is_known_to() -> None:
    for axes in ([], [(3, 4), (4, 1)], [(4, 1), (3, 4)], [(3, 8), (4, 2)], [(1, 0), (4, 1)], [(0, 0), (4, 1)]):
        assert not folded(axes)
    assert folded([(3, 0), (4, 1)]) and folded([(3, 1), (4, 1)])
