"""What a method asks about sizes that vary: answered by proof, or as of the example and under a condition."""

from __future__ import annotations

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_calls import Call, answers, check, layer, run  # noqa: E402

from hybrid_infer._guards import text  # noqa: E402
from hybrid_infer._types import CHECKED  # noqa: E402
from hybrid_infer.frontends import _paddle_trace  # noqa: E402
from hybrid_infer.frontends.paddle import FRONTEND  # noqa: E402

F, nn = paddle.nn.functional, paddle.nn
pytestmark = pytest.mark.paddle


def branch(self, x):
    if x.shape[1] > 4:
        return x * 2
    return x - 1


def divides(self, x):
    y = x.reshape([x.shape[0], -1, 2]).sum(-1) if not x.shape[1] % 2 and x.shape[0] else x
    return y + 1


def compares_shapes(self, x):
    if list(x.shape) != [x.shape[0], 6]:
        raise ValueError("a length of 6 was expected")
    return x * 2


def chained(self, x):
    assert 4 <= x.shape[1] < 9 or x.shape[0] == 1, "sizes"
    return x * 2


def outside_of_rewritten_code(self, x):
    return x * max(x.shape[1] - 4, 1) + (2 if [*x.shape, 3] == [2, 6, 3] else 1)


@pytest.mark.parametrize("forward", [branch, divides, compares_shapes, chained, outside_of_rewritten_code])
def test_the_answer_is_that_of_the_example_and_holds_under_a_condition(forward):
    made = layer(forward)
    call = Call(made, paddle.randn([2, 6]))
    captured = FRONTEND.capture(call, frozenset({(0, 0), (0, 1)}), frozenset())
    assert captured.impure == () and captured.specialised == frozenset()
    met = 0
    for shape in ((2, 6), (3, 6), (2, 8), (3, 3), (1, 5), (2, 12), (2, 1)):
        x = paddle.randn(shape)
        if answers(captured, [x]):
            met += 1
            np.testing.assert_allclose(run(captured.graph, [], [x])[0], call.eager(x)[0].numpy(), rtol=1e-6)
    assert 0 < met < 7
    assert answers(captured, call.tensors)


def test_every_side_is_kept_where_one_graph_is_to_serve_all_sizes():
    call = Call(layer(branch), paddle.randn([2, 6]))
    call.any_size = True
    captured = check(call, [paddle.randn([3, 4])], dynamic={(0, 0), (0, 1)})
    assert captured.conditions == () and captured.specialised == frozenset()


def test_conditions_read_as_what_was_asked():
    captured = FRONTEND.capture(Call(layer(branch), paddle.randn([2, 6])), frozenset({(0, 1)}), frozenset())
    assert [text(each, ["`x`"]) for each in captured.conditions] == ["4 < axis 1 of `x`"]


def test_an_integer_argument_is_asked_about():
    def forward(self, x, height, width):
        assert x.shape[1] == height * width, "sizes"
        return x.reshape([x.shape[0], height, width]) * width

    call = Call(layer(forward), paddle.randn([2, 12]), ints=[3, 4])
    captured = check(call, [paddle.randn([5, 12])], dynamic={(0, 0), (0, 1)}, ints={0, 1})
    assert captured.dynamic_ints == {0, 1}
    assert answers(captured, [paddle.randn([2, 10])], [5, 2]) and not answers(captured, [paddle.randn([2, 10])], [3, 4])


class Attention(nn.Layer):
    """With the checks that such layers make of their own results, and a cache of keys."""

    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x, past, mask):
        batch, length = x.shape[:2]
        query = self.query(x).reshape([batch, length, 2, 4]).transpose([0, 2, 1, 3])
        key = paddle.concat([past, self.key(x).reshape([0, 0, 2, 4])], axis=1)
        total = key.shape[1]
        scores = paddle.matmul(query, key.transpose([0, 2, 3, 1])) + mask
        if scores.shape != [batch, 2, length, total]:
            raise ValueError("scores of another shape")
        assert total == length + past.shape[1]
        return F.softmax(scores, -1)


def test_sizes_of_intermediate_results_are_proven():
    def tensors(batch, length, past):
        return [paddle.randn([batch, length, 8]), paddle.randn([batch, past, 2, 4]), paddle.randn([1, 1, 1, 1])]

    call = Call(Attention(), *tensors(2, 3, 5))
    captured = check(call, tensors(4, 2, 7), dynamic={(0, 0), (1, 0), (0, 1), (1, 1)})
    assert captured.specialised == frozenset()
    assert all(c[0] == "==" and c[1][0] == c[2][0] == "dim" for c in captured.conditions)


def test_sizes_that_may_be_stretched_are_taken_to_agree_as_in_the_example():
    def tensors(batch, length, past, masks):
        mask = paddle.randn([masks, 1, length, past + length])
        return [paddle.randn([batch, length, 8]), paddle.randn([batch, past, 2, 4]), mask]

    call = Call(Attention(), *tensors(2, 3, 5, 2))
    dims = {(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 2)}
    captured = FRONTEND.capture(call, frozenset(dims), frozenset())
    assert captured.specialised == frozenset()
    assert captured.conditions
    assert answers(captured, tensors(4, 3, 5, 4)) and not answers(captured, tensors(4, 3, 5, 1))


def chosen(self, x, y):
    z = paddle.where(x > 0, x, y)
    return z * 2 if z.shape[0] == y.shape[0] else z * 3


def chosen_of_parts(self, x, y):
    z = paddle.where(x > 0, x, paddle.concat([y, y[:1]], 0))
    return z * 2 if z.shape[0] == x.shape[0] else z * 3


@pytest.mark.parametrize(("forward", "sizes"), [
    (chosen, [(5, 5), (6, 6), (6, 1), (1, 6)]), (chosen_of_parts, [(5, 4), (6, 5), (1, 5)]),
])  # fmt: skip
def test_a_choice_between_tensors_may_stretch_one_of_them(forward, sizes):
    call = Call(layer(forward), *(paddle.randn([size, 2]) for size in sizes[0]))
    captured = FRONTEND.capture(call, frozenset({(0, 0), (1, 0)}), frozenset())
    for given in sizes:
        tensors = [paddle.randn([size, 2]) for size in given]
        if answers(captured, tensors):
            np.testing.assert_allclose(run(captured.graph, [], tensors)[0], call.eager(*tensors)[0].numpy(), rtol=1e-6)
    assert answers(captured, call.tensors)


def test_sizes_that_the_analysis_takes_to_agree_are_a_condition():
    def forward(self, x, y):
        z = paddle.concat([x, y], 1)
        if z.shape[0] != y.shape[0]:
            raise ValueError("another number of rows")
        return z.reshape([x.shape[0], -1]) * 2

    call = Call(layer(forward), paddle.randn([5, 2]), paddle.randn([5, 3]))
    captured = check(call, [paddle.randn([6, 2]), paddle.randn([6, 3])], dynamic={(0, 0), (1, 0)})
    assert captured.conditions == (["==", ["dim", 0, 0], ["dim", 1, 0]],)


def test_nothing_is_assumed_where_one_graph_is_to_serve_all_sizes():
    def forward(self, x, y):
        z = x + y
        if z.shape[0] == x.shape[0]:
            return z * 2
        return z - 1

    call = Call(layer(forward), paddle.randn([5, 2]), paddle.randn([5, 2]))
    call.any_size = True
    captured = FRONTEND.capture(call, frozenset({(0, 0), (1, 0)}), frozenset())
    assert captured.conditions == ()
    for sizes in ((5, 5), (1, 6), (6, 1)):
        tensors = [paddle.randn([size, 2]) for size in sizes]
        np.testing.assert_allclose(run(captured.graph, [], tensors)[0], call.eager(*tensors)[0].numpy(), rtol=1e-6)


def test_a_size_that_a_value_decides_is_no_matter_of_sizes():
    def forward(self, x):
        found = paddle.nonzero(x > 0)
        return x * 2 if found.shape[0] > 3 else x

    call = Call(layer(forward), paddle.to_tensor([[1.0, 1.0, -1.0], [1.0, 1.0, -1.0]]))
    captured = FRONTEND.capture(call, frozenset({(0, 0)}), frozenset())
    assert captured.conditions == ()
    for x in (paddle.ones([2, 3]), -paddle.ones([4, 3])):
        np.testing.assert_allclose(run(captured.graph, [], [x])[0], call.eager(x)[0].numpy())


def test_an_assertion_on_values_is_checked_at_each_call():
    def forward(self, x):
        assert x.sum() > 0
        return x * 2

    captured = FRONTEND.capture(Call(layer(forward), paddle.ones([2, 3])), frozenset({(0, 0)}), frozenset())
    assert captured.impure == () and captured.graph.outputs[-1] == CHECKED
    for sign in (1, -1):
        assert bool(run(captured.graph, [], [paddle.ones([4, 3]) * sign])[-1]) is (sign > 0)


def test_nothing_is_assumed_of_a_program_that_is_trained():
    call = Call(layer(branch), paddle.randn([2, 6]))
    traced = _paddle_trace.trace(call, frozenset({(0, 1)}), frozenset(), gradients=True)
    assert traced.conditions == ()
    assert "pd_op.if" in [op.name() for op in traced.program.global_block().ops]


def test_the_process_is_told_nothing(capfd):
    FRONTEND.capture(Call(layer(compares_shapes), paddle.randn([2, 6])), frozenset({(0, 0)}), frozenset())
    FRONTEND.capture(
        Call(Attention(), paddle.randn([2, 3, 8]), paddle.randn([2, 5, 2, 4]), paddle.randn([1, 1, 1, 1])),
        frozenset({(0, 0), (1, 0)}), frozenset(),
    )  # fmt: skip
    out, err = capfd.readouterr()
    assert out == "" and "pir.cc" not in err


def asserts_of_an_intermediate_size(self, x):
    y = F.max_pool1d(x.unsqueeze(1), 2, 2).squeeze(1)
    assert y.shape[1] % 3 == 0, "a multiple of 3 was expected"
    return y * 2


def test_an_assertion_that_the_sizes_do_not_tell_is_checked_at_each_call():
    call = Call(layer(asserts_of_an_intermediate_size), paddle.randn([2, 6]))
    captured = FRONTEND.capture(call, frozenset({(0, 0), (0, 1)}), frozenset())
    assert captured.specialised == frozenset() and captured.graph.outputs[-1] == CHECKED
    assert [bool(run(captured.graph, [], [paddle.randn([3, n])])[-1]) for n in (6, 12, 8)] == [True, True, False]


def test_the_converter_runs_once_where_a_size_is_needed(monkeypatch):
    from hybrid_infer.frontends import _paddle_capture

    runs, convert = [], _paddle_capture.convert
    monkeypatch.setattr(_paddle_capture, "convert", lambda write: (runs.append(0), convert(write))[1])
    call = Call(layer(lambda self, x, y: x * int(x.shape[1]) + y), paddle.randn([2, 6]), paddle.randn([2, 6]))
    captured = check(call, dynamic={(0, 0), (0, 1), (1, 0), (1, 1)})
    assert (0, 1) in captured.specialised
    assert (0, 0) in captured.dynamic
    assert len(runs) == 1


def unconditional(self, x):
    rows, columns = x.shape
    assert rows * columns >= 0 and rows + columns > -1 and not rows < 0, "sizes"
    assert not (rows == -1 or columns // 2 < 0 or columns % 3 < 0)
    return x * 2


def test_what_holds_of_all_sizes_is_no_condition():
    call = Call(layer(unconditional), paddle.randn([2, 6]))
    captured = FRONTEND.capture(call, frozenset({(0, 0), (0, 1)}), frozenset())
    assert captured.conditions == () and captured.specialised == frozenset() and captured.impure == ()


def of_truths(self, x):
    rows = x.shape[0]
    return x * ((rows > 2) + (rows > 4) + (rows > 5) + 1), x - ((rows > 2) - (rows > 5)), x * ((rows > 2) * (rows > 4))


def test_answers_about_sizes_are_numbers():
    call = Call(layer(of_truths), paddle.randn([5, 3]))
    captured = FRONTEND.capture(call, frozenset({(0, 0)}), frozenset())
    met = 0
    for rows in (1, 2, 3, 4, 5, 6, 7):
        x = paddle.randn([rows, 3])
        if answers(captured, [x]):
            met += 1
            for mine, eager in zip(run(captured.graph, [], [x]), call.eager(x), strict=True):
                np.testing.assert_allclose(mine, eager.numpy(), rtol=1e-6)
    assert 0 < met < 7
