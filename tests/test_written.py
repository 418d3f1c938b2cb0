"""Which tensors that a method writes to lie in memory of their own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hybrid_infer._given import Returned
from hybrid_infer._structure import class_path
from hybrid_infer._written import Others, targets

SPANS = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 12)).map(lambda s: (s[0], s[0] + s[1])), max_size=8)


class Frontend:
    """Tensors are the ranges of addresses that they lie in."""

    @staticmethod
    def extent(tensor: tuple[int, int]) -> tuple[int, int]:
        return tensor


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
