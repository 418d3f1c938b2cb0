"""A changed Paddle weight is used by the very next call, without a new capture, whoever wrote it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import Block, counts, grid, same, served, twice  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle
X = grid(2, 4)


class Rich(paddle.nn.Layer):
    """Weights in every place where a layer can keep them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = paddle.nn.Linear(4, 4)
        self.register_buffer("offset", paddle.arange(4, dtype="float32"))
        self.plain = paddle.ones([4])
        self.listed = [paddle.full([4], 2.0), {"deep": paddle.full([4], 3.0)}]
        self.paired = (paddle.full([4], 4.0), "name")
        self.blocks = paddle.nn.LayerList([paddle.nn.Linear(4, 4)])
        self.own = paddle.nn.ParameterList([paddle.create_parameter([4], "float32")])

    def compute(self, x: Any) -> Any:
        y = self.linear(x) + self.offset * self.plain + self.own[0]
        for block in self.blocks:
            y = block(y)
        return y * self.listed[0] - self.listed[1]["deep"] / self.paired[0]


def rich(**options: Any) -> Any:
    """A layer with a decorated forward that no other test has called."""

    class Hot(Rich):
        forward = inference(fallback="error", **options)(Rich.compute)

    return Hot()


def _set_value(layer: Rich) -> None:
    layer.linear.weight.set_value(np.full((4, 4), 0.5, "float32"))


def _set_value_of_a_tensor(layer: Rich) -> None:
    layer.linear.weight.set_value(paddle.eye(4))


def _set_slice_of_the_storage(layer: Rich) -> None:
    layer.linear.weight.get_tensor().set(np.full((4, 4), 0.75, "float32"), paddle.CPUPlace())


def _copy(layer: Rich) -> None:
    layer.linear.weight.copy_(paddle.full([4, 4], 0.25), True)


def _add(layer: Rich) -> None:
    with paddle.no_grad():
        layer.linear.weight.add_(paddle.eye(4))


def _scale(layer: Rich) -> None:
    with paddle.no_grad():
        layer.linear.weight.scale_(2.0)


def _subtract(layer: Rich) -> None:
    with paddle.no_grad():
        layer.linear.weight.subtract_(paddle.ones([4, 4]))


def _zero(layer: Rich) -> None:
    with paddle.no_grad():
        layer.linear.bias.zero_()
        layer.linear.bias.fill_(3.0)


def _element(layer: Rich) -> None:
    with paddle.no_grad():
        layer.linear.weight[1, 2] = 17.0


def _slice(layer: Rich) -> None:
    with paddle.no_grad():
        layer.linear.weight[:, 1] = paddle.full([4], 5.0)


def _everything(layer: Rich) -> None:
    with paddle.no_grad():
        layer.linear.weight[...] = paddle.full([4, 4], 0.125)


def _fill_diagonal(layer: Rich) -> None:
    with paddle.no_grad():
        layer.linear.weight.fill_diagonal_(8.0)


def _augmented(layer: Rich) -> None:
    layer.linear.weight.data += paddle.ones([4, 4])


def _assign(layer: Rich) -> None:
    paddle.assign(paddle.full([4, 4], 0.375), output=layer.linear.weight)


def _data(layer: Rich) -> None:
    layer.linear.weight.data = paddle.full([4, 4], 0.625)


def _load(layer: Rich) -> None:
    layer.set_state_dict({k: v + 1 for k, v in layer.state_dict().items()})


def _load_arrays(layer: Rich) -> None:
    layer.load_dict({k: v.numpy() * 0.5 + 1 for k, v in layer.state_dict().items()})


def _replace(layer: Rich) -> None:
    layer.linear.bias = paddle.create_parameter([4], "float32", default_initializer=paddle.nn.initializer.Constant(9.0))


def _initialise(layer: Rich) -> None:
    paddle.nn.initializer.Constant(0.3)(layer.linear.weight)


def _optimise(kind: Any) -> Callable[[Rich], None]:
    def step(layer: Rich) -> None:
        optimiser = kind(learning_rate=0.1, parameters=layer.parameters())
        layer.compute(X).sum().backward()
        optimiser.step()
        optimiser.clear_grad()

    return step


def _merge(layer: Rich) -> None:
    """An adapter: low rank, but every element changes."""
    down, up = paddle.full([4, 1], 0.5), paddle.full([1, 4], 0.5)
    layer.linear.weight.set_value(layer.linear.weight + down @ up)


def _buffer(layer: Rich) -> None:
    layer.offset.add_(paddle.ones([4]))


def _new_buffer(layer: Rich) -> None:
    layer.offset = paddle.full([4], 5.0)


def _plain(layer: Rich) -> None:
    layer.plain = paddle.full([4], 6.0)


def _list_element(layer: Rich) -> None:
    layer.listed[0] = paddle.full([4], 7.0)


def _dict_element(layer: Rich) -> None:
    layer.listed[1]["deep"].fill_(8.0)


def _tuple(layer: Rich) -> None:
    layer.paired = (paddle.full([4], 10.0), "name")


def _parameter_list(layer: Rich) -> None:
    layer.own[0] = paddle.create_parameter([4], "float32", default_initializer=paddle.nn.initializer.Constant(4.0))


def _whole_sublayer(layer: Rich) -> None:
    layer.linear = paddle.nn.Linear(4, 4)


def _layer_list(layer: Rich) -> None:
    layer.blocks[0] = paddle.nn.Linear(4, 4)


CHANGES: list[Callable[[Any], None]] = [
    _set_value, _set_value_of_a_tensor, _set_slice_of_the_storage, _copy, _add, _scale, _subtract, _zero, _element,
    _slice, _everything, _fill_diagonal, _augmented, _assign, _data, _load, _load_arrays, _replace, _initialise,
    _optimise(paddle.optimizer.SGD), _optimise(paddle.optimizer.AdamW), _optimise(paddle.optimizer.Momentum), _merge,
    _buffer, _new_buffer, _plain, _list_element, _dict_element, _tuple, _parameter_list, _whole_sublayer, _layer_list,
]  # fmt: skip


@pytest.mark.parametrize("weights", ["auto", "bound", "live"])
def test_every_way_to_change_a_weight(weights: str) -> None:
    layer = rich(weights=weights)
    twice(layer, layer.compute, X)
    for change in CHANGES:
        with paddle.no_grad():
            before = layer.compute(X)
        change(layer)
        with paddle.no_grad():
            expected = layer.compute(X)
            assert not np.allclose(before.numpy(), expected.numpy()), change
            same(layer(X), expected, 1e-4)
            same(layer(X), expected, 1e-4)
    served(captures=1)
    if weights == "live":
        assert counts()["builds"] == 1


def test_an_adapter_merged_into_every_layer_of_a_model() -> None:
    class Hot(Block):
        forward = inference(fallback="error")(Block.forward)

    model = paddle.nn.Sequential(*[Hot() for _ in range(3)])
    plain = paddle.nn.Sequential(*[Block() for _ in range(3)])
    plain.set_state_dict(model.state_dict())
    with paddle.no_grad():
        same(model(X), plain(X))
        for sign in (1, -1):
            for each in (model, plain):
                for block in each:
                    block.linear.weight.add_(paddle.full([4, 4], 0.25 * sign))
            same(model(X), plain(X))
            same(model(X), plain(X))
    served(captures=1)


def test_weights_that_keep_changing_are_fed_live() -> None:
    layer = rich()
    for n in range(8):
        layer.linear.weight.set_value(paddle.full([4, 4], float(n)))
        twice(layer, layer.compute, X)
    served(captures=1)
    assert counts()["bindings"] <= 5


def test_a_few_elements_of_a_large_weight_are_seen_where_weights_are_live() -> None:
    class Wide(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.linear = paddle.nn.Linear(4, 64)

        def compute(self, x: Any) -> Any:
            return self.linear(x)

        forward = inference(fallback="error", weights="live")(compute)

    layer = Wide()
    twice(layer, layer.compute, X)
    array = layer.linear.weight.numpy()
    array[2, 13] = 50.0
    layer.linear.weight.set_value(array)
    twice(layer, layer.compute, X)
    served(captures=1)


@pytest.mark.parametrize("through", ["the eager method", "the compiled one"])
@pytest.mark.parametrize("weights", ["auto", "bound"])
def test_a_training_step_that_changes_a_few_rows_is_seen(through: str, weights: str) -> None:
    class Wide(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.linear = paddle.nn.Linear(64, 32)

        def compute(self, x: Any) -> Any:
            return self.linear(x)

        forward = inference(fallback="error", weights=weights)(compute)

    layer = Wide()
    optimiser = paddle.optimizer.SGD(0.5, parameters=[layer.linear.weight])
    sparse, full = paddle.zeros([2, 64]), grid(2, 64)
    sparse[:, 5] = 1.0
    twice(layer, layer.compute, full)
    for lap in range(5):
        (layer.compute if through == "the eager method" else layer)(sparse).square().sum().backward()
        if lap % 2:
            twice(layer, layer.compute, full)  # between a backward pass and its step
        optimiser.step()
        optimiser.clear_grad(set_to_zero=bool(lap % 2))
        twice(layer, layer.compute, full)
    served(captures=1)


@pytest.mark.parametrize("again", [False, True], ids=["left trainable", "frozen again"])
def test_a_frozen_weight_that_is_trained_for_one_step_is_seen(again: bool) -> None:
    layer = paddle.nn.Linear(64, 32)
    eager = type(layer).forward.__get__(layer)
    inference(layer, fallback="error")
    sparse, full = paddle.zeros([2, 64]), grid(2, 64)
    sparse[:, 5] = 1.0
    optimiser = paddle.optimizer.SGD(0.5, parameters=[layer.weight])
    layer.weight.stop_gradient = layer.bias.stop_gradient = True
    for _ in range(2):
        twice(layer, eager, full)
        layer.weight.stop_gradient = False
        eager(sparse).square().sum().backward()
        optimiser.step()
        layer.weight.stop_gradient = again
        twice(layer, eager, full)
    served(captures=1)


def test_another_element_type_is_another_version() -> None:
    class Layer(Block):
        forward = inference(fallback="error")(Block.forward)

    layer = Layer()
    twice(layer, Block.forward.__get__(layer), X)
    layer.to(dtype="float64")
    twice(layer, Block.forward.__get__(layer), X.astype("float64"))
    layer.to(dtype="float32")
    twice(layer, Block.forward.__get__(layer), X)
    served(captures=2)


class Two(paddle.nn.Layer):
    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.one, self.two = paddle.nn.Linear(4, 4), paddle.nn.Linear(4, 4)
        if tied:
            self.two.weight = self.one.weight

    def compute(self, x: Any) -> Any:
        return self.two(paddle.nn.functional.relu(self.one(x)))

    forward = inference(fallback="error", backend="onnxruntime")(compute)


def test_tied_and_untied_instances_are_told_apart() -> None:
    tied, untied = Two(True), Two(False)
    twice(tied, tied.compute, X)
    twice(untied, untied.compute, X)
    served(captures=2)
    untied.two.weight = untied.one.weight
    twice(untied, untied.compute, X)
    with paddle.no_grad():
        untied.one.weight.add_(paddle.ones([4, 4]))
    twice(untied, untied.compute, X)
    tied.two.weight = paddle.create_parameter([4, 4], "float32")
    twice(tied, tied.compute, X)
    served(captures=2)


def test_a_sublayer_shared_by_two_paths() -> None:
    class Shared(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.one = paddle.nn.Linear(4, 4)
            self.again = self.one

        def compute(self, x: Any) -> Any:
            return self.again(self.one(x))

        forward = inference(fallback="error")(compute)

    layer = Shared()
    twice(layer, layer.compute, X)
    layer.one.weight.set_value(paddle.eye(4))
    twice(layer, layer.compute, X)
    layer.again = paddle.nn.Linear(4, 4)
    twice(layer, layer.compute, X)
    served(captures=2)


def test_instances_share_one_model_and_keep_their_weights(store: Any) -> None:
    class Layer(Block):
        forward = inference(fallback="error")(Block.forward)

    layers = [Layer() for _ in range(12)]
    for _ in range(2):
        for layer in layers:
            twice(layer, Block.forward.__get__(layer), X)
    served(captures=1, bindings=12)
    assert len(list(store.rglob("graph.onnx"))) == 1


def test_transformer_blocks_are_captured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = paddle.nn.TransformerEncoderLayer
    model = paddle.nn.TransformerEncoder(kind(8, 2, 16, dropout=0.0), 12)
    model.eval()
    x, mask = grid(2, 5, 8), paddle.tril(paddle.ones([5, 5])).astype("bool")
    with paddle.no_grad():
        expected = model(x, mask)
        monkeypatch.setattr(kind, "forward", inference(fallback="error")(kind.forward))
        for _ in range(2):
            same(model(x, mask), expected, 1e-4)
    served(captures=1, bindings=12)
    assert counts()["hits"] >= 12


@pytest.mark.parametrize("make", ["to_sparse_coo", "to_sparse_csr"])
def test_a_sparse_tensor_that_is_held_and_not_used_keeps_no_method_from_being_served(make: str) -> None:
    eager, layer = Rich(), Rich()
    layer.set_state_dict(eager.state_dict())
    for each in (eager, layer):
        dense = paddle.eye(3)
        each.held = dense.to_sparse_coo(2) if make == "to_sparse_coo" else dense.to_sparse_csr()
    layer.compute = inference(layer.compute)
    for rows in (2, 2, 3, 5):
        twice(layer.compute, eager.compute, grid(rows, 4))
    served(captures=2)


GRAPH: Any = None


def _times_count(x: Any) -> Any:
    return x * GRAPH.nnz()


def test_a_sparse_tensor_that_code_names_is_told_by_its_values() -> None:
    global GRAPH
    method = inference(_times_count)
    for count in (3, 2, 3):
        GRAPH = paddle.diag(paddle.to_tensor([1.0, 1.0, float(count == 3)])).to_sparse_coo(2)
        for _ in range(2):
            np.testing.assert_array_equal(method(paddle.ones([2])).numpy(), [count, count])
