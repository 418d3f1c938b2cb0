"""What a decorated method of Paddle's returns is what it returns eagerly: structure, identity, types, sizes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import counts, eagerly, grid, same, served, twice  # noqa: E402
from passed_constants import CONSTANTS, MEMBERS, of_member  # noqa: E402

from hybrid_infer import _miss, inference, reset_stats  # noqa: E402

pytestmark = pytest.mark.paddle
X = grid(2, 4)


class Result(NamedTuple):
    value: Any
    sizes: Any


def _everything(x: Any, keep: Any, label: str) -> Any:
    y = x * 2
    return {
        "pair": (y, [y, x + 1]),
        "kept": keep,
        "plain": (None, True, 3, 2.5, label, paddle.float64),
        "named": Result(y.sum(), {1: y.mean(0), None: ()}),
        7: y.argmax(-1),
    }


def test_a_mixed_result_has_the_eager_structure_at_every_size() -> None:
    hot = inference(fallback="error")(_everything)
    for rows in (2, 3, 5, 6):
        x, keep = grid(rows, 4), grid(2)
        found = twice(hot, _everything, x, keep, "l")
        assert found["kept"] is keep
        assert found["pair"][0] is found["pair"][1][0]
        assert found["named"].value.shape == []
    served(captures=2)


def test_sizes_among_the_results() -> None:
    def sizes(x: Any) -> Any:
        return x * 2, x.shape, [x.shape[0], x.shape[1] * 2], len(x), x.ndim

    hot = inference(fallback="error")(sizes)
    for rows in (2, 3, 5, 6):
        found = twice(hot, sizes, grid(rows, 4))
        assert found[1] == [rows, 4] and [type(n) for n in found[2]] == [int] * 2
    assert counts()["eager_calls"] == 0


class Held(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.table = paddle.create_parameter([4], "float32")

    @inference(fallback="error", backend="onnxruntime")
    def forward(self, x: Any) -> Any:
        return x + self.table, self.table, x


def test_a_weight_and_an_input_come_back_as_those_objects() -> None:
    layer = Held()
    with paddle.no_grad():
        for _ in range(2):
            total, table, x = layer(X)
            assert table is layer.table and x is X
            same(total, X + layer.table.detach())
    served(captures=1)


def test_a_result_that_is_nothing_or_a_constant() -> None:
    def checks(x: Any) -> Any:
        assert x.ndim == 2
        return None

    assert inference()(checks)(X) is None
    eagerly("computes nothing")


def test_the_callers_results_are_never_written_again() -> None:
    hot = inference(fallback="error")(lambda x: x * 2)
    with paddle.no_grad():
        hot(X)
        first = hot(X)
        copied = first.clone()
        hot(X + 5)
        same(first, copied)
        first.add_(paddle.ones([2, 4]))
        same(hot(X), copied)


@pytest.mark.parametrize("nothing", [None, (), {}, [None, ((), [])]], ids=str)
def test_a_result_without_tensors_is_left_to_eager(nothing: Any) -> None:
    hot = inference(lambda x: nothing)
    for _ in range(2):
        found = hot(X)
        assert type(found) is type(nothing) and found == nothing
    eagerly("computes nothing")


def test_results_beside_nothing_and_without_elements() -> None:
    def several(x: Any) -> Any:
        whole = (x * 9).astype("int8")
        return {
            "nothing": (x * 2, None, (), {}), "bytes": (whole, whole + whole, x.abs().astype("uint8"), x > 0),
            "points": (x.sum(), x[0, 0] * 1, x.mean().astype("int32"), x.max() > 0),
            "empty": (x[:0] * 2, x[:, :0] + 1, x[:0].sum(), x[:0].sum(0), paddle.zeros([0, 4])),
        }  # fmt: skip

    hot = inference(several, fallback="error")
    for rows in (2, 3, 1):
        found = twice(hot, several, grid(rows, 4))
        assert all(tensor.stop_gradient for group in found.values() for tensor in group if hasattr(tensor, "dtype"))
    served(captures=2)


@pytest.mark.parametrize("converter", ["forked", pytest.param("alone", marks=pytest.mark.alone)])
def test_int16_is_left_to_eager(converter: str) -> None:
    hot = inference(lambda x: (x * 9).astype("int16"))
    for _ in range(2):
        same(hot(X), (X * 9).astype("int16"))
    eagerly("paddle2onnx refused")


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int32", "int64", "float16", "float64"])
def test_element_types(dtype: str) -> None:
    def rearrange(x: Any) -> Any:
        wide = x.astype("float32")
        return (wide + 1).astype(dtype), wide * 0.5, (wide * 3) > 1, x == x[0]

    x = paddle.to_tensor([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    twice(inference(fallback="error")(rearrange), rearrange, x)
    served(captures=1)


def test_empty_and_zero_dimensional_tensors() -> None:
    def both(x: Any, s: Any) -> Any:
        return x * s, x.sum(), s + 1

    hot = inference(fallback="error")(both)
    twice(hot, both, paddle.zeros([0, 4]), paddle.to_tensor(2.0))
    twice(hot, both, paddle.ones([3, 4]), paddle.to_tensor(3.0))
    twice(hot, both, paddle.zeros([0, 4]), paddle.to_tensor(4.0))
    served(captures=2)


def test_strided_expanded_and_shared_inputs() -> None:
    def mix(a: Any, b: Any) -> Any:
        return a @ b

    hot = inference(fallback="error")(mix)
    square = paddle.arange(16, dtype="float32").reshape([4, 4])
    twice(hot, mix, square.clone(), square)
    twice(hot, mix, square.T, square)
    twice(hot, mix, square.T, paddle.ones([1]).expand([4, 4]))
    twice(hot, mix, paddle.arange(64, dtype="float32").reshape([8, 8])[::2, ::2], square)
    served(captures=1)


def test_a_view_of_an_argument_is_left_to_eager() -> None:
    hot = inference()(lambda x: x.reshape([4, 2]))
    with paddle.no_grad():
        shared = X.reshape([4, 2]).data_ptr() == X.data_ptr()
        for _ in range(2):
            assert (hot(X).data_ptr() == X.data_ptr()) == shared
    if shared:
        eagerly("view of an argument", captures=1)


def test_a_sparse_tensor_is_left_to_eager() -> None:
    hot = inference()(lambda x, s: s.to_dense() @ x)
    sparse = paddle.eye(2).to_sparse_coo(2)
    same(hot(X, sparse), X)
    eagerly("sparse")


def test_an_argument_that_comes_back_does_so_in_eagers_layout() -> None:
    def both(x: Any) -> Any:
        return x.contiguous(), x * 2

    hot = inference(fallback="error")(both)
    with paddle.no_grad():
        kept = both(X)[0] is X
        for _ in range(2):
            found = hot(X)
            assert (found[0] is X) == kept
            same(found, both(X))
    turned = paddle.arange(8, dtype="float32").reshape([4, 2]).transpose([1, 0])
    found = twice(hot, both, turned)[0]
    assert found.is_contiguous()


def test_results_share_no_memory_with_the_arguments_or_each_other() -> None:
    hot = inference(fallback="error")(lambda x: (x * 1, x * 1))
    with paddle.no_grad():
        for _ in range(2):
            one, two = hot(X)
            one.zero_()
            np.testing.assert_array_equal(two.numpy(), X.numpy())


def test_results_without_gradients_are_as_eager_marks_them() -> None:
    hot = inference(fallback="error")(lambda x: (x * 2, x.argmax(-1)))
    for _ in range(2):
        found = hot(X)
        assert [r.stop_gradient for r in found] == [True, True] and [r.is_leaf for r in found] == [True, True]
    served(captures=1)


def test_an_argument_with_gaps_that_comes_back_as_it_is_is_served() -> None:
    def both(x: Any, keys: Any) -> Any:
        return x + keys.sum(), (keys, keys.transpose([1, 0]) * 2)

    gaps = grid(4, 6)[:, :3]
    assert not gaps.is_contiguous()
    for first in (grid(4, 3), gaps):  # seen where the static model is built, or where it meets the first gaps
        reset_stats()
        _miss._IN_MEMORY.clear()  # of the static model of the turn before
        hot = inference(lambda x, keys: both(x, keys), fallback="error", cache_static_model=False)
        with paddle.no_grad():
            for keys in (first, gaps, gaps):
                found = hot(X, keys)
                assert found[1][0] is keys
                same(found, both(X, keys))
        served(captures=1)
        assert counts()["hits"] >= 1


def test_a_cache_of_transposed_keys_is_served() -> None:
    layer = paddle.nn.TransformerDecoderLayer(8, 2, 16)
    layer.eval()
    eager, memory, x = type(layer).forward, grid(2, 5, 8), grid(2, 4, 8)
    hot = inference(layer, fallback="error")
    with paddle.no_grad():
        mine, wanted = (
            (
                layer.self_attn.gen_cache(memory[:, :1]),
                layer.cross_attn.gen_cache(memory, memory, type=paddle.nn.MultiHeadAttention.StaticCache),
            )
            for _ in range(2)
        )
        for step in range(4):
            token = x[:, step : step + 1]
            found, mine = hot(token, memory, None, None, mine)
            expected, wanted = eager(layer, token, memory, None, None, wanted)
            same((found, mine), (expected, wanted))
    served(captures=3)


@pytest.mark.parametrize("members", MEMBERS, ids=str)
def test_a_member_of_an_enumeration_comes_back_as_itself(members: Any) -> None:
    hot = inference(fallback="error")(of_member)
    for member in (*members, *members):
        with paddle.no_grad():
            found, expected = hot(X, member), of_member(X, member)
        same(found[0], expected[0])
        assert found[1] is member and found[2]["of"][0] is member
    served(captures=2)


def test_constants_come_back_as_they_are() -> None:
    given = tuple(value for row in CONSTANTS for value in row if type(value) is not set)

    def with_constants(x: Any) -> Any:
        return x * 2, given, {"sizes": (range(x.shape[0]), slice(x.shape[0]), np.int64(x.shape[1]))}

    hot = inference(fallback="error")(with_constants)
    for rows in (2, 2, 3, 5):
        found = twice(hot, with_constants, paddle.ones([rows, 4]))
        assert [*map(type, found[1])] == [*map(type, given)]
        assert repr(found[2]) == repr(with_constants(paddle.ones([rows, 4]))[2])
    served(captures=3)
