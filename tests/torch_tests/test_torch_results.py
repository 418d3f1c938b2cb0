"""What a decorated method returns is what the eager method returns: structure, identity, types, sizes."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy
import pytest
import torch
from passed_constants import CONSTANTS, MEMBERS, of_member
from torch_support import eagerly, same, served, twice

from hybrid_infer import inference

X = torch.linspace(-1, 1, 8).reshape(2, 4)


class Result(NamedTuple):
    value: torch.Tensor
    sizes: Any


def _everything(x: torch.Tensor, keep: torch.Tensor, label: str) -> Any:
    y = x * 2
    return {
        "pair": (y, [y, x + 1]),
        "shape": y.shape,
        "sizes": [x.shape[0], x.shape[1] * 2, x.dim(), x.size(0) + 1],
        "kept": keep,
        "plain": (None, True, 3, 2.5, label, x.dtype, x.device),
        "named": Result(y.sum(), {1: y.mean(0), None: ()}),
        7: y.argmax(-1),
    }


def test_a_mixed_result_has_the_eager_structure_at_every_size() -> None:
    hot = inference(fallback="error")(_everything)
    for rows in (2, 3, 5, 6):
        x, keep = torch.randn(rows, 4), torch.randn(2)
        found = twice(hot, _everything, x, keep, "l")
        assert found["kept"] is keep
        assert found["pair"][0] is found["pair"][1][0]
        assert type(found["shape"]) is torch.Size and found["shape"] == (rows, 4)
        assert [type(n) for n in found["sizes"]] == [int] * 4
        assert found["named"].value.shape == ()
    served(captures=2)


class Held(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.ones(4))

    @inference(fallback="error")
    def forward(self, x: torch.Tensor) -> Any:
        return x + self.table, self.table, x


def test_a_weight_and_an_input_come_back_as_those_objects() -> None:
    layer = Held()
    with torch.no_grad():
        for _ in range(2):
            total, table, x = layer(X)
            assert table is layer.table and x is X
            same(total, X + layer.table.detach())
    served(captures=1)


def test_a_result_that_is_nothing_or_a_constant() -> None:
    def checks(x: torch.Tensor) -> Any:
        return None

    def length(x: torch.Tensor) -> Any:
        return len(x)

    assert inference()(checks)(X) is None
    twice(inference()(length), length, X)


def test_the_callers_results_are_never_written_again() -> None:
    hot = inference(fallback="error")(lambda x: x * 2)
    with torch.no_grad():
        hot(X)
        first = hot(X)
        copied = first.clone()
        hot(X + 5)
        same(first, copied)
        first.add_(1)
        same(hot(X), copied)


@pytest.mark.parametrize(
    "dtype",
    [torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float64],
)
def test_element_types(dtype: torch.dtype) -> None:
    def rearrange(x: torch.Tensor) -> Any:
        return torch.cat([x, x.flip(0)]), x == x[0], x.float() * 0.5

    x = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype)
    twice(inference(fallback="error")(rearrange), rearrange, x)
    served(captures=1)


def test_half_precision_layers_stay_half() -> None:
    def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ w, -1)

    for dtype in (torch.bfloat16, torch.float16):
        hot = inference(fallback="error")(block)
        with torch.no_grad():
            x, w = X.to(dtype), torch.eye(4, dtype=dtype)
            for _ in range(2):
                same(hot(x, w), block(x, w), 2e-2)
    served(captures=2)


def test_empty_and_zero_dimensional_tensors() -> None:
    def both(x: torch.Tensor, s: torch.Tensor) -> Any:
        return x * s, x.sum(), s + 1

    hot = inference(fallback="error")(both)
    twice(hot, both, torch.zeros(0, 4), torch.tensor(2.0))
    twice(hot, both, torch.ones(3, 4), torch.tensor(3.0))
    twice(hot, both, torch.zeros(0, 4), torch.tensor(4.0))
    served(captures=2)


def test_strided_expanded_and_shared_inputs() -> None:
    def mix(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b

    hot = inference(fallback="error")(mix)
    square = torch.arange(16.0).reshape(4, 4)
    twice(hot, mix, square, square)
    twice(hot, mix, square.T, square)
    twice(hot, mix, square[::1, :].T, torch.ones(1).expand(4, 4))
    twice(hot, mix, torch.arange(64.0).reshape(8, 8)[::2, ::2], square)
    served(captures=2)  # `a is b` and not: code may ask


def test_a_view_of_an_argument_is_left_to_eager() -> None:
    hot = inference()(lambda x: x.reshape(4, 2))
    with torch.no_grad():
        for _ in range(2):
            found = hot(X)
            assert found.data_ptr() == X.data_ptr()
    eagerly("view of an argument", captures=1)


def test_a_tensor_subclass_is_left_to_eager() -> None:
    class Mine(torch.Tensor):
        pass

    hot = inference()(lambda x: x + 1)
    found = hot(X.as_subclass(Mine))
    assert type(found) is Mine
    eagerly("Mine")


def test_a_sparse_tensor_is_left_to_eager() -> None:
    hot = inference()(lambda x, s: torch.sparse.mm(s, x))
    sparse = torch.eye(2).to_sparse()
    same(hot(X, sparse), X)
    eagerly("sparse")


def test_an_argument_that_comes_back_does_so_in_eagers_layout() -> None:
    def both(x: torch.Tensor) -> Any:
        return x.contiguous(), x * 2

    hot = inference(fallback="error")(both)
    assert twice(hot, both, X)[0] is X
    served(captures=1)
    turned = torch.arange(8.0).reshape(4, 2).T
    found = twice(hot, both, turned)[0]
    assert found is not turned and found.is_contiguous()


def test_views_of_one_tensor_keep_their_layout_in_the_trace() -> None:
    def one(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x * 2, y.contiguous()

    hot = inference(fallback="error")(one)
    for _ in range(3):
        x, y = torch.rand(2, 8).chunk(2, -1)
        found = twice(hot, one, x, y)[1]
        assert found is not y and found.is_contiguous()
    served(captures=1)


class Row:
    """What a cache keeps of one layer: plain attributes, a class among them."""

    kind: type = torch.nn.Linear

    def __init__(self, keys: torch.Tensor) -> None:
        self.keys, self.length, self.dtype = keys, keys.shape[0], keys.dtype
        self.made_by = Row


class Rows(Row):
    def __init__(self, keys: torch.Tensor) -> None:
        super().__init__(keys)
        self.rows = [Row(keys * 2), Row(keys + 1)]
        self.done = {0: False}

    def total(self) -> torch.Tensor:
        return self.keys + sum(row.keys for row in self.rows)


def _rows(x: torch.Tensor) -> Any:
    return x * 3, Rows(x.relu())


def test_an_object_that_the_method_makes_is_made_again_from_its_attributes() -> None:
    hot = inference(fallback="error")(_rows)
    for count in (2, 3, 5):
        x = torch.randn(count, 4)
        with torch.no_grad():
            for _ in range(2):
                (mine, found), (eager, rows) = hot(x), _rows(x)
                same(mine, eager)
                assert type(found) is Rows and [type(row) for row in found.rows] == [Row, Row]
                assert [*vars(found)] == [*vars(rows)] and found.done == {0: False} and found.made_by is Row
                assert type(found.length) is int and found.length == count and found.dtype is torch.float32
                same(found.total(), rows.total())
    served(captures=2)


KEPT = Row(torch.ones(2))


@functools.lru_cache
def remembered() -> Any:
    return Bare()


class Bare:
    """One that a cache gives out each time."""

    def __init__(self) -> None:
        self.scale = 2


class OfItsOwn:
    """Its copies are not made from its attributes alone."""

    def __init__(self, value: torch.Tensor) -> None:
        self.value = value

    def __setstate__(self, state: Any) -> None:
        raise AssertionError("nobody copies it")


class Keeper(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.row = Row(torch.ones(3))

    def of_the_layer(self, x: torch.Tensor) -> Any:
        return x * 2, self.row

    def of_the_program(self, x: torch.Tensor) -> Any:
        return x * 2, KEPT

    def of_a_cache(self, x: torch.Tensor) -> Any:
        return x * 2, remembered()

    def in_two_places(self, x: torch.Tensor) -> Any:
        row = Row(x * 2)
        return row, [row]

    def of_its_own(self, x: torch.Tensor) -> Any:
        return OfItsOwn(x * 2)


@pytest.mark.parametrize("name", ["of_the_layer", "of_the_program", "of_a_cache", "of_its_own"])
def test_an_object_that_would_not_be_the_eager_one_is_left_to_eager(name: str) -> None:
    keeper = Keeper()
    setattr(keeper, name, inference(getattr(keeper, name)))
    hot = getattr(keeper, name)
    with torch.no_grad():
        for _ in range(2):
            found = hot(X)
    if name.startswith("of_the_"):
        assert found[1] is (keeper.row if name == "of_the_layer" else KEPT)
    if name == "of_a_cache":
        assert found[1] is remembered()
    eagerly("which a static graph can neither take nor return")


def test_an_object_that_stands_in_two_places_of_a_result_is_one() -> None:
    keeper = Keeper()
    hot = inference(keeper.in_two_places, fallback="error")
    with torch.no_grad():
        for _ in range(2):
            row, rows = hot(X)
            assert rows[0] is row and torch.equal(row.keys, X * 2)
    served(captures=1)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.float16, torch.float64], ids=str)
def test_a_number_less_a_mask(dtype: torch.dtype) -> None:
    def biases(mask: torch.Tensor) -> Any:
        return (1.0 - mask) * -1e4, 1 - mask, torch.rsub(mask, 0.5, alpha=2), mask.shape[0] - mask

    hot = inference(fallback="error")(biases)
    for rows in (2, 3, 5):
        twice(hot, biases, (torch.arange(rows * 4).reshape(rows, 4) % 2).to(dtype))
    served(captures=2)


@pytest.mark.parametrize("members", MEMBERS, ids=str)
def test_a_member_of_an_enumeration_comes_back_as_itself(members: Any) -> None:
    hot = inference(fallback="error")(of_member)
    for member in (*members, *members):
        with torch.no_grad():
            found, expected = hot(X, member), of_member(X, member)
        same(found[0], expected[0])
        assert found[1] is member and found[2]["of"][0] is member
    served(captures=2)


def test_constants_come_back_as_they_are() -> None:
    given = tuple(value for row in CONSTANTS for value in row if type(value) is not set)

    def with_constants(x: torch.Tensor) -> Any:
        return x * 2, given, {"sizes": (range(x.shape[0]), slice(x.shape[0]), numpy.int64(x.shape[1]))}

    hot = inference(fallback="error")(with_constants)
    for rows in (2, 2, 3, 5):
        found = twice(hot, with_constants, torch.ones(rows, 4))
        assert [*map(type, found[1])] == [*map(type, given)]
        assert repr(found[2]) == repr(with_constants(torch.ones(rows, 4))[2])
    served(captures=3)


def test_a_set_may_be_one_that_the_program_changes() -> None:
    seen = {1}

    def with_set(x: torch.Tensor) -> Any:
        return x * 2, seen

    hot = inference()(with_set)
    with torch.no_grad():
        assert hot(X)[1] is seen and hot(X)[1] is seen
    eagerly("class builtins.set")
