"""A Paddle method that does more than compute its results runs eagerly, with the right answer and the reason."""

from __future__ import annotations

import importlib
import logging
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import counts, grid, same, twice  # noqa: E402
from support import SERVED, answered  # noqa: E402

from hybrid_infer import CaptureError, inference  # noqa: E402

pytestmark = pytest.mark.paddle
F = paddle.nn.functional
X = grid(2, 4)
LOG: list[Any] = []
STATE: dict[str, Any] = {"calls": 0}
TOTAL = 0


class Registry:
    seen: list[Any] = []  # noqa: RUF012  # shared by intent
    count = 0


def _count() -> int:
    global TOTAL
    TOTAL += 1
    return TOTAL


class Layer(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.linear = paddle.nn.Linear(4, 4)
        self.register_buffer("steps", paddle.zeros([1]))
        self.n, self.kept = 0, []

    def counting(self, x: Any) -> Any:
        self.n += 1
        return self.linear(x) + self.n

    def appending(self, x: Any) -> Any:
        self.kept.append(self.linear(x))
        return self.kept[-1]

    def caching(self, x: Any) -> Any:
        self.cache = self.linear(x)
        return self.cache + 1

    def reassigning(self, x: Any) -> Any:
        self.steps = self.steps + 1
        return self.linear(x) + self.steps

    def stepping(self, x: Any) -> Any:
        self.steps += 1
        return self.linear(x) + self.steps

    def adding(self, x: Any) -> Any:
        self.steps.add_(paddle.ones([1]))
        return self.linear(x) + self.steps

    def setting(self, x: Any) -> Any:
        self.steps.set_value(self.steps + 1)
        return self.linear(x) + self.steps

    def assigning(self, x: Any) -> Any:
        paddle.assign(self.steps + 1, output=self.steps)
        return self.linear(x) + self.steps

    def writing(self, x: Any) -> Any:
        x.scale_(2.0)
        return self.linear(x)

    def slicing(self, x: Any) -> Any:
        x.transpose([1, 0])[0] = 3.0
        return self.linear(x)

    def logging(self, x: Any) -> Any:
        y = self.linear(x)
        LOG.append(y.mean())
        return y + len(LOG)

    def stating(self, x: Any) -> Any:
        STATE["calls"] += 1
        STATE["last"] = x + 1
        return self.linear(x) * STATE["calls"]

    def totalling(self, x: Any) -> Any:
        global TOTAL
        TOTAL += 1
        return self.linear(x) * TOTAL

    def totalling_below(self, x: Any) -> Any:
        return self.linear(x) * _count()

    def registering(self, x: Any) -> Any:
        Registry.seen.append(x * 2)
        Registry.count += 1
        return self.linear(x) + Registry.count

    def drawing(self, x: Any) -> Any:
        return self.linear(x) + paddle.rand([4])

    def drawing_in_place(self, x: Any) -> Any:
        return self.linear(x) + paddle.empty([4]).uniform_(0.0, 1.0)

    def permuting(self, x: Any) -> Any:
        return self.linear(x) + paddle.randperm(4).astype("float32")

    def dropping(self, x: Any) -> Any:
        return F.dropout(self.linear(x), 0.5, training=True)

    def python_random(self, x: Any) -> Any:
        return self.linear(x) * random.random()

    def numpy_random(self, x: Any) -> Any:
        return self.linear(x) * float(np.random.rand())

    def environment(self, x: Any) -> Any:
        return self.linear(x) * float(os.environ.get("SOME_SCALE", "1"))

    def iterating(self, x: Any) -> Any:
        return self.linear(x) * (1.0 + any(name.startswith("SOME_PREFIX") for name in os.environ))

    def setting_variables(self, x: Any) -> Any:
        os.environ["SOME_SCALE"] = "2"
        return self.linear(x)

    def file(self, x: Any) -> Any:
        with open(self.path, encoding="ascii") as opened:
            return self.linear(x) * float(opened.read())


#: What the reason says for which a method runs eagerly.
CASES: dict[str, tuple[str, ...]] = {
    "counting": SERVED,
    "appending": ("self.kept",),
    "caching": SERVED,
    "reassigning": SERVED,
    "stepping": SERVED,
    "adding": SERVED,
    "setting": SERVED,
    "assigning": SERVED,
    "writing": SERVED,
    "slicing": ("writes to argument `x`",),
    "logging": ("LOG",),
    "stating": ("STATE",),
    "totalling": ("TOTAL",),
    "totalling_below": ("TOTAL",),
    "registering": ("Registry.count",),
    "drawing": ("random",),
    "drawing_in_place": ("uniform_",),
    "permuting": ("random",),
    "dropping": ("random",),
    "python_random": ("random",),
    "numpy_random": ("NumPy's random",),
    "environment": SERVED,
    "iterating": ("the environment as a whole",),
    "setting_variables": ("it sets the environment variable SOME_SCALE",),
    "file": ("factor.txt",),
}


def _prepare(layer: Layer, path: Path) -> None:
    global TOTAL
    TOTAL = 0
    LOG.clear()
    STATE.clear()
    STATE["calls"] = 0
    Registry.seen.clear()
    Registry.count = 0
    paddle.seed(3)
    random.seed(3)
    np.random.seed(3)
    os.environ.pop("SOME_SCALE", None)
    layer.path = str(path)


@pytest.mark.parametrize("name", CASES)
def test_three_calls_give_the_eager_answers_and_leave_the_eager_state(name: str, tmp_path: Path) -> None:
    path = tmp_path / "factor.txt"
    path.write_text("2.5")
    plain = Layer()

    class Hot(Layer):
        pass

    setattr(Hot, name, inference()(getattr(Layer, name)))
    layer = Hot()
    layer.set_state_dict(plain.state_dict())
    outcomes = []
    for each in (plain, layer):
        _prepare(each, path)
        with paddle.no_grad():
            outcomes.append([getattr(each, name)(X.clone()) for _ in range(3)])
        shared = [list(LOG), dict(STATE), TOTAL, list(Registry.seen), Registry.count]
        outcomes.append([each.n, list(each.kept), each.steps.tolist(), *shared])
    for mine, eager in zip(outcomes[2], outcomes[0], strict=True):
        same(mine, eager)
    assert repr(outcomes[3]) == repr(outcomes[1])
    answered(CASES[name], calls=3)
    held = [*layer.kept, *LOG, *STATE.values(), *Registry.seen, *vars(layer).values()]
    assert not any(isinstance(value, paddle.pir.Value) for value in held)


def test_error_raises_the_reason() -> None:
    class Hot(Layer):
        appending = inference(fallback="error")(Layer.appending)

    with pytest.raises(CaptureError) as caught, paddle.no_grad():
        Hot().appending(X)
    assert "self.kept" in caught.value.reason and caught.value.method.endswith("Layer.appending")


def test_a_branch_on_data_becomes_part_of_the_graph() -> None:
    class Hot(paddle.nn.Layer):
        def compute(self, x: Any) -> Any:
            if x.sum() > 1000:
                y = self.near(x)
                y = y * 2
            else:
                y = x - 1
            return y

        def near(self, x: Any) -> Any:
            return x + 1 if x.max() < 2000 else x

        forward = inference(fallback="error")(compute)

    layer = Hot()
    twice(layer, layer.compute, X)
    for shift in (1000, 5000):
        twice(layer, layer.compute, X + shift)
    assert counts()["captures"] == 1 and counts()["eager_calls"] == 0


def test_numbers_taken_from_tensors_stay_tensors_in_the_graph() -> None:
    class Hot(Layer):
        def compute(self, x: Any) -> Any:
            return self.linear(x) * x.sum().item() + float(x.numpy().max())

        forward = inference(fallback="error")(compute)

    layer = Hot()
    for n in range(3):
        twice(layer, layer.compute, X + n)
    assert counts()["captures"] == 1 and counts()["eager_calls"] == 0


def test_a_failure_is_logged_once_and_not_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    class Hot(Layer):
        appending = inference()(Layer.appending)

    layer = Hot()
    with caplog.at_level(logging.WARNING, "hybrid_infer"), paddle.no_grad():
        for _ in range(4):
            layer.appending(X)
    lines = [r.getMessage() for r in caplog.records if r.name == "hybrid_infer"]
    assert len(lines) == 1 and "runs eagerly" in lines[0] and "self.kept" in lines[0]


class Trained(paddle.nn.Layer):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.linear, self.inner = paddle.nn.Linear(4, 4), inner

    def compute(self, x: Any) -> Any:
        return self.inner(self.linear(x))


@pytest.mark.parametrize(
    "make", [lambda: paddle.nn.Dropout(0.5), lambda: paddle.nn.BatchNorm1D(4)], ids=["dropout", "batchnorm"]
)
def test_a_layer_in_training_runs_eagerly_and_says_to_call_eval(
    make: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    class Hot(Trained):
        forward = inference()(Trained.compute)

    layer = Hot(make())
    mean = layer.inner._mean.numpy().copy() if isinstance(layer.inner, paddle.nn.BatchNorm1D) else None
    with caplog.at_level(logging.WARNING, "hybrid_infer"), paddle.no_grad():
        layer(X)
        layer(X)
    lines = [r.getMessage() for r in caplog.records if r.name == "hybrid_infer"]
    assert len(lines) == 1 and "eval()" in lines[0]
    assert counts()["eager_calls"] == 2
    if mean is not None:
        assert not np.array_equal(layer.inner._mean.numpy(), mean)
    layer.eval()
    with paddle.no_grad():
        for _ in range(2):
            same(layer(X), layer.compute(X))
    assert counts()["eager_calls"] == 2 and counts()["captures"] == 1
    layer.train()
    with paddle.no_grad():
        layer(X)
    assert counts()["eager_calls"] == 3


def _told_later(norm: Any) -> Any:
    norm._use_global_stats = False
    return norm


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: paddle.nn.BatchNorm1D(4, use_global_stats=False), (3, 4)),
        (lambda: paddle.nn.BatchNorm2D(4, use_global_stats=False), (2, 4, 3, 3)),
        (lambda: paddle.nn.BatchNorm3D(4, use_global_stats=False), (2, 4, 2, 2, 2)),
        (lambda: _told_later(paddle.nn.BatchNorm2D(4)), (2, 4, 3, 3)),
        (lambda: paddle.nn.BatchNorm(4, trainable_statistics=True), (2, 4, 3, 3)),
    ],
    ids=["1d", "2d", "3d", "told later", "trainable"],
)
def test_batch_statistics_after_eval_are_written_at_each_call(
    make: Callable[[], Any], shape: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    layer, plain = make(), make()
    for each in (layer, plain):
        each.eval()
    hot = inference(layer, verify="off")
    x = grid(*shape)
    with caplog.at_level(logging.WARNING, "hybrid_infer"), paddle.no_grad():
        for scale in (1.0, 3.0, -2.0):
            same(hot(x * scale), plain(x * scale))
    assert counts()["eager_calls"] == 3
    assert np.array_equal(layer._mean.numpy(), plain._mean.numpy()) and layer._mean.numpy().any()
    assert np.array_equal(layer._variance.numpy(), plain._variance.numpy())
    lines = [r.getMessage() for r in caplog.records if r.name == "hybrid_infer"]
    assert len(lines) == 1 and "use_global_stats" in lines[0] and "eval()" not in lines[0]


@pytest.mark.parametrize("told", [None, True])
def test_running_statistics_are_served(told: bool | None) -> None:
    layer, plain = paddle.nn.BatchNorm2D(4, use_global_stats=told), paddle.nn.BatchNorm2D(4, use_global_stats=told)
    for each in (layer, plain):
        each.eval()
    twice(inference(layer, fallback="error"), plain, grid(2, 4, 3, 3))
    assert counts()["captures"] == 1 and counts()["eager_calls"] == 0


def test_dropout_of_probability_zero_is_no_reason() -> None:
    class Hot(Trained):
        forward = inference(fallback="error")(Trained.compute)

    layer = Hot(paddle.nn.Dropout(0.0))
    twice(layer, layer.compute, X)
    assert counts()["captures"] == 1


@pytest.mark.parametrize("verify", ["build", "off"])
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: paddle.nn.BatchNorm1D(4), (2, 4)),
        (lambda: paddle.nn.BatchNorm2D(4), (2, 4, 3, 3)),
        (lambda: paddle.nn.BatchNorm3D(4), (2, 4, 2, 2, 2)),
        (lambda: paddle.nn.Upsample(scale_factor=2), (1, 2, 3, 3)),
    ],
    ids=["1d", "2d", "3d", "upsample"],
)
def test_a_layer_that_respells_its_data_format_is_served_from_the_first_call(
    make: Callable[[], Any], shape: tuple[int, ...], verify: str
) -> None:
    layer, plain = inference(make(), fallback="error", verify=verify), make()
    for each in (layer, plain):
        each.eval()
    for _ in range(2):
        twice(layer, plain, grid(*shape))
    assert counts()["captures"] == 1 and counts()["eager_calls"] == 0


def test_an_argument_put_into_elements_of_another_tensor_is_not_written_to() -> None:
    def shifted(x: Any) -> Any:
        table = paddle.zeros([x.shape[0], 5])
        table[:, 1:] = x
        return table

    hot = inference(shifted, fallback="error")
    twice(hot, shifted, X)
    assert counts()["captures"] == 1 and not counts()["fallbacks"]


_LIBRARY = """
import os
def scale(x):
    return x * 2.0 if os.getenv("LIBRARY_SETTING", "no") == "no" else x
def kept(x):
    if x.sum() > 0:  # its source is rewritten
        x = x + 1
    return scale(x)
"""


def test_settings_that_a_library_reads_are_its_own_also_where_its_source_is_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in PyTorch, whose tracer runs the library's own code."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "library_with_settings.py").write_text(_LIBRARY, encoding="ascii")
    monkeypatch.syspath_prepend(str(folder))
    kept = importlib.import_module("library_with_settings").kept

    def through(x: Any) -> Any:
        return kept(x)

    hot = inference(through, fallback="error", cache_static_model=False)
    twice(hot, through, X)
    assert counts()["captures"] == 1 and not counts()["fallbacks"]
