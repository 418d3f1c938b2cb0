"""Paddle captures: graphs that answer as the eager layer does, at every shape, and leave no trace behind."""

from __future__ import annotations

import copy
import subprocess
import sys
import threading
import warnings

import numpy as np
import onnx
import pytest

paddle = pytest.importorskip("paddle")

from paddle_calls import Call, answers, check, layer, run, slots  # noqa: E402

from hybrid_infer._errors import TraceError  # noqa: E402
from hybrid_infer.frontends.paddle import FRONTEND  # noqa: E402

F = paddle.nn.functional
pytestmark = pytest.mark.paddle


# ---------------------------------------------------------------------------------------------------- capture


@pytest.mark.parametrize("converter", ["forked", pytest.param("alone", marks=pytest.mark.alone)])
def test_linear_dynamic_batch(converter):
    call = Call(paddle.nn.Linear(8, 4), paddle.randn([3, 8]))
    captured = check(call, [paddle.randn([5, 8])], [paddle.randn([1, 8])], dynamic={(0, 0)})
    assert captured.dynamic == {(0, 0)}
    assert captured.specialised == frozenset()
    assert captured.graph.weights == ("w0", "w1")
    assert captured.graph.input_specs[0].shape == (None, 8)
    assert len(captured.graph.model) < 2000


class Block(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.encoder = paddle.nn.TransformerEncoderLayer(16, 4, 32, activation="gelu")

    def forward(self, x, mask):
        return self.encoder(x, mask)


def test_transformer_block_dynamic_batch_and_sequence():
    block = Block()
    block.eval()

    def mask(n):
        return paddle.tril(paddle.ones([n, n])).unsqueeze([0, 1]).astype("bool")

    call = Call(block, paddle.randn([2, 5, 16]), mask(5))
    dims = {(0, 0), (0, 1), (1, 2), (1, 3)}
    captured = check(call, [paddle.randn([3, 7, 16]), mask(7)], [paddle.randn([1, 2, 16]), mask(2)], dynamic=dims)
    assert captured.specialised == frozenset()


def test_resnet():
    model = paddle.vision.models.resnet18()
    model.eval()
    call = Call(model, paddle.randn([2, 3, 32, 32]))
    check(call, [paddle.randn([1, 3, 32, 32])], dynamic={(0, 0)}, tolerance=1e-3)


def test_a_model_of_the_framework_that_takes_a_shape_apart():
    from paddle.vision.models.shufflenetv2 import InvertedResidual

    block = InvertedResidual(8, 8, 1)
    block.eval()
    call = Call(block, paddle.randn([2, 8, 4, 4]))
    dims = {(0, 0), (0, 2), (0, 3)}
    captured = check(call, [paddle.randn([1, 8, 6, 3])], [paddle.randn([3, 8, 1, 5])], dynamic=dims)
    assert captured.specialised == frozenset()


def test_embedding_int64_and_unused_weight():
    table = paddle.nn.Embedding(10, 4)
    made = layer(lambda self, ids: self.table(ids), table=table, spare=paddle.nn.Linear(2, 2))
    captured = check(Call(made, paddle.to_tensor([[1, 2], [3, 9]])), [paddle.to_tensor([[0, 0], [7, 1]])])
    assert captured.graph.weights.count(None) == 2


def test_tied_weights_are_one_input():
    one = paddle.nn.Linear(4, 4)
    other = paddle.nn.Linear(4, 4)
    other.weight = one.weight
    made = layer(lambda self, x: self.b(self.a(x)), a=one, b=other)
    captured = check(Call(made, paddle.randn([2, 4])))
    assert len(captured.graph.weights) == 3


def test_plain_tensors_lists_and_dicts():
    def forward(self, x, y):
        return {"sum": x + self.scale * y, "rest": [self.tables[0] * x, self.named["a"] - y]}

    made = layer(forward, scale=paddle.randn([4]), tables=[paddle.randn([4])], named={"a": paddle.randn([4])})
    check(Call(made, paddle.randn([2, 4]), paddle.randn([2, 4])))


class Reference(paddle.nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.fn = paddle.nn.Linear(width, width, bias_attr=False)

    def forward(self, x):
        for _ in range(10):
            x = F.softmax(x, -1)
        x = x.cast("float32")
        x = self.func(x)
        return x

    def func(self, x):
        x = x + x
        return self.fn(x)


def test_reference_example_in_bfloat16():
    call = Call(Reference(16), paddle.rand([4, 16]).astype("bfloat16"))
    captured = FRONTEND.capture(call, frozenset({(0, 0)}), frozenset())
    assert captured.graph.input_specs[0].dtype == "bfloat16"
    assert captured.graph.output_specs[0].dtype == "float32"
    for batch in (4, 7):
        x = paddle.rand([batch, 16]).astype("bfloat16")
        np.testing.assert_allclose(
            run(captured.graph, call.weights, [x])[0], call.eager(x.astype("float32"))[0].numpy(), rtol=1e-4, atol=1e-5
        )  # eager Paddle has no bfloat16 softmax on a CPU


def test_bfloat16_results_and_constants():
    made = layer(lambda self, x: (F.gelu(self.a(x)) * 0.5).cast("bfloat16") + self.c, a=paddle.nn.Linear(8, 8))
    made.c = paddle.randn([8])
    wide = copy.deepcopy(made)
    made.to(dtype="bfloat16")
    made.c = made.c.astype("bfloat16")
    call = Call(made, paddle.randn([2, 8]).astype("bfloat16"))
    captured = FRONTEND.capture(call, frozenset({(0, 0)}), frozenset())
    assert captured.graph.output_specs[0].dtype == "bfloat16"
    x = paddle.randn([5, 8]).astype("bfloat16")
    expected = F.gelu(wide.a(x.astype("float32"))) * 0.5 + wide.c  # eager has no bfloat16 matmul on a CPU
    np.testing.assert_allclose(run(captured.graph, call.weights, [x])[0], expected.numpy(), rtol=5e-2, atol=5e-2)


class Branching(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.a = paddle.nn.Linear(4, 4)

    def forward(self, x):
        y = x - 1
        if x.sum() > 0:
            y = self.a(x)
        return y


def test_branch_on_a_tensor_becomes_if():
    x = paddle.ones([2, 4])
    captured = check(Call(Branching(), x), [-x])
    nodes = onnx.load_from_string(captured.graph.model).graph.node
    assert "If" in [node.op_type for node in nodes]


def test_bool_scalar_and_repeated_results():
    def forward(self, x):
        y = x * 2
        return x > 0, x.sum(), y, y, x.argmax(-1), (x > 0).all()

    check(Call(layer(forward), paddle.randn([3, 4])), [paddle.randn([6, 4])], dynamic={(0, 0)})


def test_result_that_is_a_scaled_input_has_its_own_name():
    captured = check(Call(layer(lambda self, x: x * 1.0), paddle.randn([3])))
    assert captured.graph.outputs != captured.graph.inputs


@pytest.mark.parametrize("dtype", ["float64", "int32", "int64", "bool"])
def test_element_types(dtype):
    def forward(self, x, y):
        return paddle.where(y, x, x) if x.dtype != paddle.bool else paddle.logical_and(x, y)

    x = (paddle.rand([3, 4]) * 3).astype(dtype)
    check(Call(layer(forward), x, paddle.rand([3, 4]) > 0.5))


def test_decorated_source_is_not_decorated_again():
    namespace = {"calls": []}

    class Decorated(paddle.nn.Layer):
        @namespace["calls"].append
        def forward(self, x):
            if x.sum() > 0:
                x = x + 1
            return x

    made = layer(namespace["calls"][0])
    check(Call(made, paddle.ones([2])), [-paddle.ones([2])])
    assert len(namespace["calls"]) == 1


# ---------------------------------------------------------------------------------------------- varying dims


class Shapes(paddle.nn.Layer):
    def forward(self, x):
        batch, length = x.shape[0], x.shape[1]
        return x.reshape([batch, length, 2, 4]).transpose([0, 2, 1, 3]).reshape([batch * 2, length, 4])


def test_sizes_in_arithmetic_stay_open():
    captured = check(Call(Shapes(), paddle.randn([2, 3, 8])), [paddle.randn([4, 5, 8])], dynamic={(0, 0), (0, 1)})
    assert captured.specialised == frozenset()


def make_helper():
    def helper(x):  # a local function: Paddle does not rewrite it
        return x * 2 if x.shape[1] == 6 else x + 1

    return helper


HELPER = make_helper()
BY_SIZE = {6: 2.0, 7: 3.0}


@pytest.mark.parametrize(
    "forward",
    [
        lambda self, x: HELPER(x),
        lambda self, x: x * 2 if x.shape[1] == 6 else x + 1,
        lambda self, x: x + max(x.shape[1], 6),
        lambda self, x: x * BY_SIZE[x.shape[1]],
        lambda self, x: x + x.shape.index(7),
        lambda self, x: x + float(x.shape[1] > 6),
        lambda self, x: paddle.stack([row * 2 for row in x.t()]),
        lambda self, x: x + len(x.t()),
        lambda self, x: sum(x[:, i] for i in range(x.shape[1])),
    ],
)
def test_size_read_outside_of_rewritten_code_is_never_wrong(forward):
    call = Call(layer(forward), paddle.randn([2, 7]))
    captured = FRONTEND.capture(call, frozenset({(0, 1)}), frozenset())
    assert captured.dynamic | captured.specialised == {(0, 1)}
    calls = [paddle.randn([2, n]) for n in ((7,) if captured.specialised else (7, 6))]
    assert answers(captured, calls[:1])
    for x in calls:
        if not answers(captured, [x]):
            continue
        np.testing.assert_allclose(run(captured.graph, [], [x])[0], call.eager(x)[0].numpy(), rtol=1e-5)


def test_only_the_dim_that_needs_a_number_is_fixed():
    call = Call(layer(lambda self, x: x * BY_SIZE[x.shape[1]]), paddle.randn([2, 7]))
    captured = check(call, [paddle.randn([4, 7])], dynamic={(0, 0), (0, 1)})
    assert captured.dynamic == {(0, 0)}
    assert captured.specialised == {(0, 1)}


def test_integer_inputs():
    call = Call(layer(lambda self, x, n: x[:, :n] * n), paddle.randn([2, 7]), ints=[3])
    captured = check(call, ints={0})
    assert captured.dynamic_ints == {0}
    x = paddle.randn([2, 7])
    np.testing.assert_allclose(run(captured.graph, [], [x], [5])[0], call.eager(x, ints=[5])[0].numpy(), rtol=1e-6)


# --------------------------------------------------------------------------------------------------- purity


def first_add(self, x):
    x.add_(paddle.ones([1]))
    return x * 2


def writes_element(self, x):
    x[0] = 0.0
    return x + 1


def writes_buffer(self, x):
    self.total.add_(x)
    return x * 2


def sets_value(self, x):
    paddle.assign(x * 2, self.total)
    return x + self.total


def writes_temporary(self, x):
    y = x * 2
    y.add_(paddle.ones([1]))
    return y


@pytest.mark.parametrize(
    ("forward", "word"),
    [
        (lambda self, x: F.dropout(x, 0.5, training=True), "dropout"),
        (lambda self, x: x + paddle.rand([3]), "uniform"),
        (lambda self, x: x + paddle.randn([3]), "gaussian"),
        (lambda self, x: x + paddle.randint(0, 9, [3]).astype("float32"), "randint"),
        (lambda self, x: paddle.bernoulli(F.sigmoid(x)), "bernoulli"),
        (lambda self, x: x + paddle.randperm(3).astype("float32"), "randperm"),
        (first_add, "in place"),
        (writes_element, "elements"),
        (writes_buffer, "in place"),
        (sets_value, "in place"),
    ],
)
def test_impure(forward, word):
    made = layer(forward, total=paddle.zeros([3]))
    before = made.total.numpy()
    captured = FRONTEND.capture(Call(made, paddle.ones([3])), frozenset(), frozenset())
    assert any(word in reason for reason in captured.impure), captured.impure
    np.testing.assert_array_equal(made.total.numpy(), before)


def test_batch_norm_in_training_is_impure_and_in_evaluation_is_not():
    made = layer(lambda self, x: self.norm(x), norm=paddle.nn.BatchNorm1D(4))
    check(Call(made, paddle.randn([3, 4])))
    made.train()
    captured = FRONTEND.capture(Call(made, paddle.randn([3, 4])), frozenset(), frozenset())
    assert any("batch_norm" in reason for reason in captured.impure)


def test_dropout_in_evaluation_is_pure():
    check(Call(layer(lambda self, x: self.drop(x), drop=paddle.nn.Dropout(0.5)), paddle.randn([3, 4])))


def test_writer_whose_result_is_all_that_is_used():
    check(Call(layer(lambda self, x: F.relu_(x * 2)), paddle.randn([3, 4])))


def test_writer_whose_result_has_no_name():
    check(Call(layer(writes_temporary), paddle.randn([3])))


def test_read_back_of_what_was_written():
    def forward(self, x):
        y = x * 2
        y[0] = 5.0
        return y + 1

    made = layer(forward)
    captured = FRONTEND.capture(Call(made, paddle.ones([3])), frozenset(), frozenset())
    if not captured.impure:
        np.testing.assert_allclose(run(captured.graph, [], [paddle.ones([3])])[0], [6.0, 3.0, 3.0])


# -------------------------------------------------------------------------------------------------- refusals


def test_unsupported_operator_says_which_and_the_process_lives():
    with pytest.raises(TraceError, match="lgamma"):
        FRONTEND.capture(Call(layer(lambda self, x: paddle.lgamma(x)), paddle.ones([3])), frozenset(), frozenset())


LOST = paddle.randn([3])


def test_tensor_of_nobody_is_refused():
    with pytest.raises(TraceError, match="neither an argument nor held"):
        FRONTEND.capture(Call(layer(lambda self, x: x + LOST), paddle.ones([3])), frozenset(), frozenset())


def test_error_of_the_method_is_the_reason():
    with pytest.raises(TraceError, match="no such thing"):
        FRONTEND.capture(Call(layer(raising), paddle.ones([3])), frozenset(), frozenset())


def test_question_whether_gradients_are_recorded_is_refused():
    made = layer(lambda self, x: x * 2 if paddle.is_grad_enabled() else x)
    with pytest.raises(TraceError, match="gradients"):
        FRONTEND.capture(Call(made, paddle.ones([3])), frozenset(), frozenset())


class Static(paddle.nn.Layer):
    @paddle.jit.to_static(full_graph=True)
    def forward(self, x):
        if x.sum() > 0:
            x = x * 2
        return x


def test_layer_that_is_static_already():
    x = paddle.ones([3])
    check(Call(layer(calls_inner, inner=Static()), x), [-x])


def calls_inner(self, x):
    return self.inner(x) + 1


def raising(self, x):
    raise ValueError("no such thing")


# ---------------------------------------------------------------------------------------------- side effects


def test_capture_leaves_layer_and_process_as_they_were(capfd):
    block = Block()
    block.eval()
    mask = paddle.ones([1, 1, 5, 5], dtype="bool")
    state = {name: t.numpy() for name, t in block.state_dict().items()}
    held = {id(t) for *_, t in slots(block, [], set())}
    paddle.seed(7)
    expected = paddle.rand([3]).numpy()
    paddle.seed(7)
    before = [paddle.get_default_dtype(), paddle.is_grad_enabled(), threading.active_count()]
    shape, warn = paddle.pir.Value.shape, paddle.utils.inplace_utils.warnings
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        FRONTEND.capture(Call(block, paddle.randn([2, 5, 16]), mask), frozenset({(0, 0)}), frozenset())
        paddle.seed(7)
        with pytest.raises(TraceError):
            FRONTEND.capture(Call(layer(lambda self, x: paddle.lgamma(x)), paddle.ones([3])), frozenset(), frozenset())
    assert [str(w.message) for w in caught] == []
    assert capfd.readouterr() == ("", "")
    assert paddle.in_dynamic_mode()
    assert not FRONTEND.transparent()
    assert before == [paddle.get_default_dtype(), paddle.is_grad_enabled(), threading.active_count()]
    assert (paddle.pir.Value.shape, paddle.utils.inplace_utils.warnings) == (shape, warn)
    assert not {"__iter__", "__len__"} & set(vars(paddle.pir.Value))
    np.testing.assert_array_equal(paddle.rand([3]).numpy(), expected)
    assert {id(t) for *_, t in slots(block, [], set())} == held
    for name, tensor in block.state_dict().items():
        assert isinstance(tensor, paddle.Tensor)
        np.testing.assert_array_equal(tensor.numpy(), state[name])


def test_random_state_is_untouched_by_a_random_method():
    paddle.seed(3)
    expected = paddle.rand([3]).numpy()
    paddle.seed(3)
    FRONTEND.capture(Call(layer(lambda self, x: x + paddle.rand([3])), paddle.ones([3])), frozenset(), frozenset())
    np.testing.assert_array_equal(paddle.rand([3]).numpy(), expected)


def test_other_threads_stay_eager_while_one_captures():
    block = Block()
    block.eval()
    x, mask = paddle.randn([2, 5, 16]), paddle.ones([1, 1, 5, 5], dtype="bool")
    expected = block(x, mask).numpy()
    faults, counts, stop = [], [0], threading.Event()

    def work():
        while not stop.is_set():
            try:
                with paddle.no_grad():
                    np.testing.assert_allclose(block(x, mask).numpy(), expected, rtol=1e-5, atol=1e-6)
                counts[0] += 1
            except Exception as fault:
                faults.append(repr(fault))

    def fresh():
        try:
            assert paddle.in_dynamic_mode()
            paddle.matmul(x, x, transpose_y=True).numpy()
            counts[0] += 1
        except Exception as fault:
            faults.append(repr(fault))

    def start_fresh(self, x):
        thread = threading.Thread(target=fresh)
        thread.start()
        thread.join()
        return x + 1

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(2):
            FRONTEND.capture(Call(block, x, mask), frozenset({(0, 0)}), frozenset())
        made = layer(paddle.jit.not_to_static(start_fresh))
        FRONTEND.capture(Call(made, x), frozenset(), frozenset())
    finally:
        stop.set()
        worker.join()
    assert faults == []
    assert counts[0] > 3


def test_import_loads_no_framework():
    code = (
        "import sys, hybrid_infer.frontends.paddle as p; p.FRONTEND.versions();"
        "bad = {'paddle', 'onnx', 'paddle2onnx', 'numpy'} & set(sys.modules); assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
