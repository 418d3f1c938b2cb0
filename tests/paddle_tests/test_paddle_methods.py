"""Methods of eager tensors that a program's values lack: they write to all elements, or name the same memory."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import counts, grid, same  # noqa: E402

from hybrid_infer import inference  # noqa: E402
from hybrid_infer.frontends import _paddle_onnx  # noqa: E402

pytestmark = pytest.mark.paddle


class Layer(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.linear = paddle.nn.Linear(4, 4)
        self.register_buffer("total", paddle.zeros([4]))


class Zero(Layer):
    def forward(self, x: Any) -> Any:
        y = self.linear(x) * 1
        y.zero_()
        return y + paddle.empty_like(x).zero_() + x


class Fill(Layer):
    def forward(self, x: Any) -> Any:
        number, mask = paddle.empty([]), paddle.empty([4], "bool")
        number.fill_(3.0)
        return self.linear(x) * number + paddle.empty([4]).fill_(0.5) + mask.fill_(True).astype("float32")


class Total(Layer):
    def forward(self, x: Any) -> Any:
        self.total.set_value(self.total + x.sum(0))
        return self.linear(x) + self.total


class Copy(Layer):
    def forward(self, x: Any) -> Any:
        y = paddle.empty_like(x)
        y.copy_(self.linear(x), True)
        return y.view([-1, 2, 2])


class Data(Layer):
    def forward(self, x: Any) -> Any:
        return self.linear(x.data) + self.linear.weight.data.sum()


class Moved(Layer):
    """Itself, where it is there already: a write to it is one to the same tensor."""

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        y.cpu()[:, 0] = 5.0
        return y + self.linear.weight.cpu().sum()


class Argument(Layer):
    def forward(self, x: Any) -> Any:
        x.fill_(2.0)
        return self.linear(x)


KINDS = [Zero, Fill, Total, Copy, Data, Argument, *([] if paddle.is_compiled_with_cuda() else [Moved])]


@pytest.mark.parametrize("kind", KINDS)
def test_methods_that_write_to_all_elements(kind: type[Any]) -> None:
    mine, theirs = kind().eval(), kind().eval()
    theirs.set_state_dict(mine.state_dict())
    fast = inference(mine, backend="onnxruntime")
    with paddle.no_grad():
        for batch in (2, 2, 3, 1):
            x, y = grid(batch, 4), grid(batch, 4)
            same(fast(x), kind.forward(theirs, y))
            np.testing.assert_array_equal(x.numpy(), y.numpy())
            same(mine.total, theirs.total)
    assert counts()["eager_calls"] == 0


def through_data(x: Any) -> Any:
    y = x * 2
    y.data[:, 0] = 5.0
    return y


def through_a_row(x: Any) -> Any:
    y = x * 2
    y[0].fill_(7.0)
    return y


def of_another_shape(x: Any) -> Any:
    y = x * 2
    y.set_value(paddle.zeros([1]))
    return y


@pytest.mark.parametrize("function", [through_data, through_a_row], ids=lambda function: function.__name__)
def test_what_is_written_by_another_name_is_seen(function: Any) -> None:
    hot = inference(backend="onnxruntime")(function)
    with paddle.no_grad():
        for _ in range(3):
            same(hot(grid(2, 4)), function(grid(2, 4)))


def copied_over(x: Any) -> Any:
    """Eager code takes on the sizes of what is copied."""
    q = paddle.zeros([4])
    q.copy_(x.sum(1), True)
    return q


def test_a_copy_of_other_sizes_is_what_eager_makes_of_it() -> None:
    hot = inference(backend="onnxruntime")(copied_over)
    with paddle.no_grad():
        for rows in (4, 4, 1, 3):
            same(hot(grid(rows, 2)), copied_over(grid(rows, 2)))


def doubled(x: Any) -> Any:
    return x * 2


def test_what_eager_refuses_is_refused() -> None:
    hot = inference(backend="onnxruntime")(of_another_shape)
    with paddle.no_grad():
        for _ in range(2):
            with pytest.raises(Exception, match="shape"):
                hot(grid(2, 4))


def test_a_method_that_is_missing_is_named(caplog: pytest.LogCaptureFixture) -> None:
    hot = inference(backend="onnxruntime")(lambda x: x + paddle.zeros([4, 4]).fill_diagonal_(1.0))
    with paddle.no_grad():
        same(hot(paddle.ones([4, 4])), paddle.ones([4, 4]) + paddle.eye(4))
    assert "Paddle has no fill_diagonal_ of a tensor where a program is made" in caplog.text


def test_a_converter_that_ends_without_a_word_has_no_reason() -> None:
    progress = "[Paddle2ONNX] Start parsing the Paddle model file...\n[Paddle2ONNX] Use opset_version = 17\n"
    assert _paddle_onnx._reason(progress) == "its process ended without a reason"
    assert _paddle_onnx._reason(progress, -11) == "it crashed (SIGSEGV)"
    assert _paddle_onnx._reason(progress + "[ERROR] no form\n") == "no form"
    assert _paddle_onnx._reason(progress + "RuntimeError: lost\n\n") == "RuntimeError: lost"


@pytest.mark.alone
def test_a_converter_that_finds_no_room_says_so(caplog: pytest.LogCaptureFixture) -> None:
    begun = subprocess.Popen

    def without_room(*args: Any, **given: Any) -> Any:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        try:
            return begun(*args, **given)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    hot = inference(backend="onnxruntime")(lambda x: x * 2 + 1)
    with paddle.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(_paddle_onnx.subprocess, "Popen", without_room)
        same(hot(paddle.ones([4, 4])), paddle.ones([4, 4]) * 3)
    assert "File too large" in caplog.text


@pytest.mark.alone
@pytest.mark.parametrize("status", [0, 3])
def test_what_a_converter_has_begun_is_not_waited_for(tmp_path: Path, status: int) -> None:
    """It lives on with the converter's pipe."""
    script = tmp_path / "converter.py"
    script.write_text(
        "import os, sys, time\nprint('[ERROR] no form', flush=True)\nif not os.fork():\n"
        f"    open('alive', 'w').write(str(os.getpid()))\n    time.sleep(600)\n"
        f"while not os.path.exists('alive') or not open('alive').read(): time.sleep(0.01)\nos._exit({status})\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_paddle_onnx, "_TIMEOUT_S", 30)
        try:
            if status == 0:
                _paddle_onnx._in_child(script, str(tmp_path / "request.json"))
            else:
                with pytest.raises(subprocess.CalledProcessError) as failed:
                    _paddle_onnx._in_child(script, str(tmp_path / "request.json"))
                assert failed.value.returncode == 3 and failed.value.stdout == b"[ERROR] no form\n"
        finally:
            os.kill(int((tmp_path / "alive").read_text()), signal.SIGKILL)


def test_a_converter_that_was_killed_is_no_fault_of_the_program(caplog: pytest.LogCaptureFixture) -> None:
    def killed(script: Path, described: str) -> None:
        raise subprocess.CalledProcessError(-9, [str(script), described], b"")

    def found() -> Any:  # as another process does
        return inference(backend="onnxruntime")(doubled)

    with paddle.no_grad():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_paddle_onnx, "_in_child", killed)
            same(found()(paddle.ones([4, 4])), paddle.ones([4, 4]) * 2)
        assert "was killed" in caplog.text and counts()["captures"] == 0
        same(found()(paddle.ones([4, 4])), paddle.ones([4, 4]) * 2)
    assert counts()["captures"] == 1
