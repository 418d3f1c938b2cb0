"""How arguments reach a decorated method of Paddle's, and what of them is part of the signature."""

from __future__ import annotations

import dataclasses
import math
from collections import OrderedDict
from typing import Any, NamedTuple

import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import Block, counts, eagerly, grid, same, served, twice  # noqa: E402
from passed_constants import CONSTANTS, of_constant  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle
X = grid(2, 4)
Y = X + 2
ONES = paddle.ones([4])


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Batch:
    ids: Any
    scale: float = 2.0
    extra: Any = None


def test_every_way_to_pass_the_same_arguments_is_one_signature() -> None:
    def mix(x: Any, y: Any, scale: float = 2.0, *, shift: float = 1.0) -> Any:
        return x * scale - y + shift

    hot = inference(fallback="error")(mix)
    for args, kwargs in (
        ((X, Y), {}),
        ((X,), {"y": Y}),
        ((), {"y": Y, "x": X}),
        ((X, Y, 2.0), {"shift": 1.0}),
    ):
        twice(hot, mix, *args, **kwargs)
    served(captures=1)
    twice(hot, mix, X, Y, shift=3.0)
    served(captures=2)


def test_var_positional_and_var_keyword() -> None:
    def total(*parts: Any, **named: Any) -> Any:
        return sum(parts) * named.get("scale", 1) + named["bias"]

    hot = inference(fallback="error")(total)
    twice(hot, total, X, Y, bias=X)
    twice(hot, total, X, Y, X, bias=X, scale=3)
    served(captures=2)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((X,), {}), ((X, Y, 3), {}), ((X,), {"z": Y}), ((X, Y), {"y": Y}), ((X, Y[:1, :3]), {})],
    ids=["none", "one", "three", "a wrong name", "one twice", "a wrong shape"],
)
def test_wrong_arguments_fail_exactly_as_the_eager_method_does(args: Any, kwargs: Any) -> None:
    class Plain:
        def __init__(self) -> None:
            self.weight = paddle.ones([4])

        def add(self, x: Any, y: Any) -> Any:
            return x + y * self.weight

    class Hot(Plain):
        add = inference()(Plain.add)

    with pytest.raises(Exception) as eager:  # which error is what the test is about
        Plain().add(*args, **kwargs)
    with pytest.raises(type(eager.value)) as found:
        Hot().add(*args, **kwargs)
    assert str(found.value).splitlines()[-1] == str(eager.value).splitlines()[-1]


def _nested(tree: Any) -> Any:
    return tree["a"][0] + tree["b"][1]["c"] * (2 if tree["d"] is None else 3)


@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_nested_lists_tuples_and_dicts(kind: Any) -> None:
    hot = inference(fallback="error")(_nested)
    twice(hot, _nested, kind(a=[X], b=(0, {"c": Y}), d=None))
    twice(hot, _nested, kind(a=[X], b=(0, {"c": Y}), d="set"))
    served(captures=2)


def _pair(pair: Pair) -> Any:
    return pair.left * pair.right[0]


def _batch(batch: Batch) -> Any:
    return batch.ids * batch.scale + (0 if batch.extra is None else batch.extra)


def test_named_tuples_and_dataclasses() -> None:
    hot = inference(fallback="error")(_pair)
    twice(hot, _pair, Pair(X, [Y]))
    served(captures=1, part="_pair")
    both = inference(fallback="error")(_batch)
    for batch in (Batch(X), Batch(X, 3.0), Batch(X, 3.0, Y)):
        twice(both, _batch, batch)
    served(captures=3, part="_batch")


def _constant(x: Any, value: Any) -> Any:
    if isinstance(value, bool):
        return x * 10 if value else x * 20
    if isinstance(value, int):
        return x + 30 + value
    if isinstance(value, float):
        return x * math.copysign(5.0, value) + value
    return x - (0 if value is None else len(value))


def test_constants_are_told_apart_by_type_and_bits() -> None:
    hot = inference(fallback="error", max_versions=32)(_constant)
    values = [1, True, 1.0, 0, False, 0.0, -0.0, None, "a", "ab"]
    for _ in range(2):
        for value in values:
            twice(hot, _constant, X, value)
    served(captures=counts()["captures"])
    assert counts()["captures"] <= len(values)


@pytest.mark.parametrize("values", CONSTANTS, ids=repr)
def test_constants_beside_numbers_and_texts(values: tuple[Any, ...]) -> None:
    hot = inference(fallback="error", backend="onnxruntime")(of_constant)
    for _ in range(2):
        for value in values:
            twice(hot, of_constant, X, value)
    served(captures=len(values))
    assert counts()["hits"] >= 3 * len(values)


def test_an_integer_becomes_an_input_at_its_second_value() -> None:
    def shift(x: Any, n: int) -> Any:
        return x * n + n

    hot = inference(fallback="error")(shift)
    for n in (3, 5, 7, 1000, -4, 0, 1):
        twice(hot, shift, X, n)
    served(captures=2)


def test_an_integer_behind_others_that_stay_becomes_an_input() -> None:
    def affine(x: Any, a: int, b: int, c: int) -> Any:
        return x * a + b, c + 1

    function = inference()(affine)
    for b, c in [(3, 1), (4, 1), (5, 1), (6, 1), (7, 2), (8, 3), (9, 4)]:
        same(function(X, 2, b, c), affine(X, 2, b, c))
    served(captures=3)
    assert counts()["hits"] == 3  # at 8, which is four times 2, it is compared once more


def of_sizes(x: Any, n: int) -> Any:
    return x * 2, x.shape[0], (x.shape[0] + n) // 2 - 1, n % 3, max(n, 4)


@pytest.mark.parametrize("verify", ["first", "off"])
def test_sizes_and_what_is_computed_of_them_are_numbers(verify: Any) -> None:
    function = inference(verify=verify)(of_sizes)
    for n in (3, 4, 5, 6, 9, 4):
        same(function(grid(n + 2, 3), n), of_sizes(grid(n + 2, 3), n))
    served(captures=counts()["captures"])
    assert counts()["captures"] <= 3


@pytest.mark.parametrize(
    "of", [lambda n: paddle.to_tensor(n), lambda n: paddle.full([], n), lambda n: n / 2, lambda n: n > 5]
)
def test_what_is_no_integer_is_what_it_is_eagerly(of: Any) -> None:
    function = inference(verify="off")(lambda x: (x + 1, of(x.shape[0])))
    for n in (3, 4, 6, 7):
        same(function(grid(n, 3)), (grid(n, 3) + 1, of(n)))


def test_an_integer_that_python_needs_stays_a_constant() -> None:
    def repeated(x: Any, n: int) -> Any:
        return paddle.concat([x] * n, axis=-1)

    hot = inference(fallback="error")(repeated)
    for n in (2, 3, 4, 3):
        twice(hot, repeated, X, n)
    served(captures=3)


def test_a_loop_over_an_integer_is_right_at_every_number() -> None:
    def doubled(x: Any, n: int) -> Any:
        for _ in range(n):
            x = x * 2
        return x + 1

    hot = inference(fallback="error")(doubled)
    for n in (2, 3, 5, 0, 1, 3):
        twice(hot, doubled, X, n)
    assert counts()["eager_calls"] == 0


def test_an_axis_or_a_size_given_as_an_integer() -> None:
    def cut(x: Any, axis: int, size: int) -> Any:
        return paddle.sum(x, axis=axis) * x.shape[axis] + paddle.ones([size])

    hot = inference(fallback="error")(cut)
    for axis, size in ((0, 4), (1, 2), (0, 1), (1, 1)):
        twice(hot, cut, X, axis, size)
    assert counts()["eager_calls"] == 0


def test_a_default_integer_that_was_left_out_becomes_an_input_too() -> None:
    def shift(x: Any, n: int = 3) -> Any:
        return x * n

    hot = inference(fallback="error")(shift)
    twice(hot, shift, X, 5)
    twice(hot, shift, X)
    twice(hot, shift, X, 7)
    served(captures=2)


def test_a_float_stays_a_constant() -> None:
    def scaled(x: Any, s: float) -> Any:
        return x * s

    hot = inference(fallback="error")(scaled)
    for s in (0.5, 1.5, 0.5):
        twice(hot, scaled, X, s)
    served(captures=2)


def test_a_dtype_and_a_place_are_constants() -> None:
    def cast(x: Any, dtype: Any, place: Any) -> Any:
        return (x * 4).astype(dtype) + paddle.to_tensor([1], dtype=dtype, place=place)

    hot = inference(fallback="error")(cast)
    for dtype in (paddle.float64, paddle.int32, paddle.float64):
        twice(hot, cast, X, dtype, paddle.CPUPlace())
    served(captures=2)


def test_a_dtype_by_its_name() -> None:
    def cast(x: Any, dtype: str) -> Any:
        return (x * 4).astype(dtype)

    hot = inference(fallback="error")(cast)
    for dtype in ("float64", "int64", "float64"):
        twice(hot, cast, X, dtype)
    served(captures=2)


def test_an_argument_of_a_foreign_class_is_answered_eagerly_by_name() -> None:
    def first(x: Any, table: Any) -> Any:
        return x + len(table)

    hot = inference()(first)
    twice(hot, first, X, bytearray(2))
    eagerly("builtins.bytearray")


def test_a_numpy_array_as_an_argument_is_answered_eagerly() -> None:
    def add(x: Any, table: Any) -> Any:
        return x + paddle.to_tensor(table)

    hot = inference()(add)
    twice(hot, add, X, Y.numpy())
    eagerly("numpy.ndarray")


def _default(x: Any, offset: Any = ONES, *, parts: Any = (ONES + 1, 2.0)) -> Any:
    return x + offset * parts[0] * parts[1]


def test_tensors_in_defaults() -> None:
    hot = inference(fallback="error")(_default)
    twice(hot, _default, X)
    twice(hot, _default, X, X[0])
    served(captures=1)
    _default.__defaults__[0].add_(paddle.full([4], 4.0))
    twice(hot, _default, X)
    assert counts()["eager_calls"] == 0


def test_a_layer_among_the_arguments_is_answered_eagerly() -> None:
    def apply(x: Any, layer: Any) -> Any:
        return layer(x)

    twice(inference()(apply), apply, X, paddle.nn.Linear(4, 4))
    eagerly("Linear")


def test_one_tensor_given_twice() -> None:
    def mix(x: Any, y: Any) -> Any:
        return x - 2 * y

    hot = inference(fallback="error")(mix)
    twice(hot, mix, X, X)
    twice(hot, mix, X, Y)
    twice(hot, mix, Y, Y)
    served(captures=2)  # a method may ask whether two arguments are one tensor


def test_an_argument_that_is_a_view_stays_one() -> None:
    block = Block()
    hot = inference(block.forward)
    base = grid(4, 4)
    view = base.t()
    for _ in range(3):
        twice(hot, block.forward, view)
        base.add_(paddle.ones([1]))
        assert not view.is_contiguous()
        assert (view.numpy() == base.numpy().T).all()


def test_an_attribute_of_a_tensor_that_the_code_may_read() -> None:
    class Scaled(Block):
        @inference()
        def forward(self, x: Any) -> Any:
            return self.linear(x) * getattr(x, "factor", 1.0)

    layer = Scaled()
    layer.eval()
    plain = paddle.ones([2, 4])
    with paddle.no_grad():
        for _ in range(2):
            same(layer(plain), layer.linear(plain))
            for factor in (2.0, 3.0):
                scaled = plain.clone()
                scaled.factor = factor
                same(layer(scaled), layer.linear(plain) * factor)
    found = counts()
    assert found["captures"] == 1 and found["hits"] == 1 and found["eager_calls"] == 4
    assert "'factor' of a tensor" in next(iter(found["fallbacks"]))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: paddle.cumsum(x, n % 2),
        lambda x, n: x.argmax(n % 2),
        lambda x, n: x.sum(n % 2),
        lambda x, n: x.max(n % 2),
        lambda x, n: x.unsqueeze(n % 2),
    ],
)
def test_an_axis_that_varies_is_not_left_open(function: Any) -> None:
    """The converter took any axis that it does not know for the first one, or for all of them."""
    hot = inference(verify="off")(function)
    for n in (2, 4, 3, 5, 6, 1):
        same(hot(grid(3, 4), n), function(grid(3, 4), n))
