"""Losses and metrics that are written out: of varying sizes and of numbers of every kind, as eagerly."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import counts, eagerly, everything, right  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle
F = paddle.nn.functional


def rows(count: int, *inner: int, dtype: str = "float32", seed: int = 0) -> Any:
    found = np.random.default_rng([seed, count, *inner]).standard_normal((count, *inner))
    return paddle.to_tensor(found.astype(dtype))


def classes(*sizes: int, seed: int = 0) -> Any:
    return paddle.to_tensor(np.random.default_rng([seed, *sizes]).integers(0, 6, sizes))


COUNTS = (1, 1, 3, 5, 0)
labelled = [(rows(count, 6, seed=n), classes(count, seed=n)) for n, count in enumerate(COUNTS)]
pairs = [(rows(count, 6, seed=n), rows(count, 6, seed=n + 9)) for n, count in enumerate(COUNTS)]
kinds = pytest.mark.parametrize("dtype", ["float32", "float64"])


@pytest.mark.parametrize("weight", [None, [1.0, 0.0, 0.5, 2.0, 3.0, 0.0], [1.0, 0.0, math.inf, math.nan, 3.0, 0.0]])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_logarithms_of_classes(reduction: str, weight: list[float] | None) -> None:
    by_class = None if weight is None else paddle.to_tensor(weight)

    def method(x: Any, y: Any) -> Any:
        return F.nll_loss(x, y, by_class, ignore_index=2, reduction=reduction)

    none = (labelled[2][0], paddle.full([3], 2, "int64"))
    ends = (paddle.to_tensor([[math.inf, math.nan, -math.inf, 0.0, -0.0, 1e38]] * 6), paddle.arange(6))
    right(method, *labelled, none, ends)


@kinds
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_logarithms_of_the_classes_of_pixels(reduction: str, dtype: str) -> None:
    """With none left out: there Paddle's kernel writes beyond its memory."""

    def method(x: Any, y: Any) -> Any:
        return F.nll_loss(x, y, reduction=reduction)

    sizes = [(1, 4, 5), (1, 4, 5), (3, 4, 5), (2, 6, 3)]
    right(method, *((rows(n, 6, *size, dtype=dtype), classes(n, *size)) for n, *size in sizes))


def test_a_class_that_there_is_not_is_refused_as_eagerly() -> None:
    method = inference(lambda x, y: F.nll_loss(x, y), backend="onnxruntime")
    method(*labelled[2])
    for wrong in (-1, 6):
        with pytest.raises(ValueError, match="cur_label"):
            method(labelled[2][0], paddle.full([3], wrong, "int64"))


@kinds
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_of_probabilities(reduction: str, dtype: str) -> None:
    given = [tuple(F.sigmoid(each.astype(dtype)) for each in pair) for pair in pairs]
    ends = paddle.to_tensor([[0.0, 1.0, -0.0, 1.0, 1e-30, 1 - 1e-7]], dtype=dtype)
    hard = paddle.to_tensor([[0.0, 1.0, 1.0, 0.0, 1.0, 1.0]], dtype=dtype)
    wild = paddle.to_tensor([[math.inf, math.nan, -math.inf, -1.0, 2.0, 0.5]], dtype=dtype)
    right(lambda x, y: F.binary_cross_entropy(x, y, reduction=reduction), *given, (ends, hard), (ends, wild))


def test_what_is_no_probability_is_refused_as_eagerly() -> None:
    method = inference(lambda x, y: F.binary_cross_entropy(x, y), backend="onnxruntime")
    half = paddle.full([2, 3], 0.5)
    method(half, half)
    for wrong in (1.5, -0.5, math.nan):
        with pytest.raises(ValueError, match="x_data"):
            method(half * wrong * 2, half)


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "logits": lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none"),
    "weighted logits": lambda x, y: F.binary_cross_entropy_with_logits(
        x, y, reduction="none", pos_weight=paddle.full([1], 3.0, x.dtype)
    ),
    "divergence": lambda x, y: F.kl_div(x, y, "none"),
    "divergence of logarithms": lambda x, y: F.kl_div(x, y, "none", log_target=True),
    "Huber": lambda x, y: F.smooth_l1_loss(x, y, "none", delta=0.7),
    "smooth": lambda x, y: F.smooth_l1_loss(x, y, "none", delta=0.7, is_huber=False),
    "log_loss": lambda x, y: F.log_loss(x.unsqueeze(-1), y.unsqueeze(-1)),
}


LACKING = ("log_loss", "float64")  # which Paddle lacks
PAIRS = [(name, dtype) for dtype in ("float32", "float64") for name in ELEMENTWISE if (name, dtype) != LACKING]


@pytest.mark.parametrize(("name", "dtype"), PAIRS)
def test_losses_of_every_kind_of_number(name: str, dtype: str) -> None:
    harmless = rows(5, dtype=dtype), rows(5, dtype=dtype, seed=1)
    right(ELEMENTWISE[name], harmless, harmless, everything(dtype, -100.0))


@kinds
def test_losses_that_are_reduced(dtype: str) -> None:
    def method(x: Any, y: Any) -> Any:
        part = F.sigmoid(y)
        weight = paddle.arange(6).astype(x.dtype)
        return (
            F.binary_cross_entropy_with_logits(x, part, weight, pos_weight=weight), F.kl_div(x, part),
            F.kl_div(x, part, "sum"), F.kl_div(F.log_softmax(x), part, "batchmean"), F.smooth_l1_loss(x, y),
            paddle.nn.SmoothL1Loss("sum", 2.0)(x, y), F.binary_cross_entropy(part, part, weight),
        )  # fmt: skip

    right(method, *([each.astype(dtype) for each in pair] for pair in pairs[:-1]))


@kinds
def test_smooth_labels(dtype: str) -> None:
    def method(x: Any) -> Any:
        spread = paddle.arange(6).astype(x.dtype).unsqueeze(0)
        return F.label_smooth(x), F.label_smooth(x, spread, 0.3), F.label_smooth(x.unsqueeze(1), epsilon=0.5)

    right(method, *((x.astype(dtype),) for x, _ in pairs))


@pytest.mark.parametrize("best", [1, 2, 6])
def test_accuracy(best: int) -> None:
    right(lambda x, y: paddle.metric.accuracy(x, y.unsqueeze(-1), k=best), *labelled)


def test_accuracy_in_double_precision_is_eager() -> None:
    method = inference(lambda x, y: paddle.metric.accuracy(x.astype("float64"), y.unsqueeze(-1)))
    with paddle.no_grad():
        method(*labelled[2])
    eagerly("another element type in a program")
    assert counts()["eager_calls"] == 1


def test_a_loss_that_repeats_by_the_size_of_a_batch_has_a_static_model_for_each() -> None:
    """Paddle takes one that varies for -1."""
    method = inference(lambda x, y: F.npair_loss(x, x * 2, y), verify="off", fallback="error", backend="onnxruntime")
    with paddle.no_grad():
        for x, y in labelled[1:4]:
            np.testing.assert_allclose(method(x, y), F.npair_loss(x, x * 2, y), rtol=1e-5)
    assert counts()["captures"] == 3


def test_a_divergence_for_each_of_a_batch_that_varies() -> None:
    """By the number of the batch, which the framework took for -1, unseen where the program has a -1 of its own."""

    def method(x: Any, y: Any) -> Any:
        apart = F.cosine_embedding_loss(x, y, paddle.ones([x.shape[0]]))
        return F.kl_div(F.log_softmax(x), F.softmax(y), "batchmean"), apart

    shapes = [np.random.default_rng(n).standard_normal((2, n, 4)).astype("float32") for n in (3, 3, 5, 1)]
    right(method, *([*map(paddle.to_tensor, pair)] for pair in shapes), tolerance=1e-5)
