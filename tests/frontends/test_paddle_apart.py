"""What one thread captures, and optimisers and programs of other threads, leave each other alone."""

from __future__ import annotations

import contextlib
import threading

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_calls import Call, check, layer, run  # noqa: E402

from hybrid_infer.frontends.paddle import FRONTEND  # noqa: E402

F = paddle.nn.functional
pytestmark = pytest.mark.paddle


class Held(paddle.optimizer.SGD):
    """Is in the middle of a step for as long as is asked."""

    def _append_optimize_op(self, *given):
        self.inside.set()
        assert self.go_on.wait(60)
        return super()._append_optimize_op(*given)


@contextlib.contextmanager
def step_of_another_thread():
    """Lets another thread begin to train; what is given ends that, and gives whether the weights have changed."""
    inside, go_on, changed = threading.Event(), threading.Event(), []

    def step():
        trained = paddle.nn.Linear(4, 4)
        before = trained.weight.numpy()
        trained(paddle.ones([2, 4])).mean().backward()
        optimiser = Held(0.1, parameters=trained.parameters())
        optimiser.inside, optimiser.go_on = inside, go_on
        optimiser.step()
        changed.append(bool((trained.weight.numpy() != before).all()))

    def end():
        go_on.set()
        thread.join()
        return changed == [True]

    thread = threading.Thread(target=step)
    thread.start()
    assert inside.wait(60)
    try:
        yield end
    finally:
        end()


@pytest.mark.parametrize("begins", ["before", "meanwhile"])
@pytest.mark.parametrize("ends", ["meanwhile", "afterwards"])
def test_an_optimiser_of_another_thread_steps_meanwhile(begins, ends):
    """Eager optimisers enter a program for each step, and leave it for the one that was current before."""
    ended = []
    with contextlib.ExitStack() as stack:
        end = stack.enter_context(step_of_another_thread()) if begins == "before" else None

        def meanwhile(x):
            nonlocal end
            if end is None:
                end = stack.enter_context(step_of_another_thread())
            y = F.relu(x)
            if ends == "meanwhile":
                ended.append(end())
            return y + 3

        own = paddle.pir.core.switch_main_program, paddle.static.default_main_program()
        call = Call(layer(lambda self, x: F.tanh(meanwhile(x * 2)) + 1), paddle.randn([3, 8]))
        captured = FRONTEND.capture(call, frozenset({(0, 0)}), frozenset())
        assert paddle.pir.core.switch_main_program is own[0]
        ended.append(end())
    assert all(ended) and captured.dynamic == {(0, 0)}
    assert paddle.static.default_main_program() is own[1]
    x = paddle.randn([5, 8])
    (result,) = run(captured.graph, [], [x])
    np.testing.assert_allclose(result, F.tanh(F.relu(x * 2) + 3) + 1, rtol=1e-5)
    check(Call(paddle.nn.Linear(8, 4), paddle.randn([3, 8])), [paddle.randn([5, 8])], dynamic={(0, 0)})


def building(inside, go_on, found):
    """Builds a program in static mode, stopping in the middle; gives the names of its operators."""
    with paddle.base.framework._dygraph_guard(None):
        program = paddle.static.Program()
        with paddle.static.program_guard(program, paddle.static.Program()):
            x = paddle.static.data("x", [2, 3], "float32")
            inside.set()
            go_on.wait(60)
            F.tanh(x)
    found.append([op.name() for op in program.global_block().ops])


@pytest.mark.parametrize("begins", ["before", "meanwhile"])
def test_a_program_that_another_thread_builds_is_built_before_or_afterwards(begins):
    inside, go_on, found = threading.Event(), threading.Event(), []
    thread = threading.Thread(target=building, args=(inside, go_on, found))

    def meanwhile(x):
        if not thread.ident:
            thread.start()
            assert not inside.wait(0.5)
        return F.relu(x)

    if begins == "before":
        thread.start()
        assert inside.wait(60)
        threading.Timer(0.3, go_on.set).start()
    else:
        go_on.set()
    check(Call(layer(lambda self, x: meanwhile(x) + 3), paddle.randn([3, 8])), [paddle.randn([5, 8])], dynamic={(0, 0)})
    thread.join()
    assert found == [["pd_op.data", "pd_op.tanh"]]
