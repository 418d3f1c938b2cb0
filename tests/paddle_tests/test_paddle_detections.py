"""Detections, the choice among overlapping boxes, in each of its forms: served, unverified, and as eagerly."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import eagerly, right, same, served  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle


def drawn(images: int, boxes: int, seed: int) -> tuple[Any, Any]:
    """Overlapping boxes, and the scores of three classes."""
    random = np.random.default_rng(seed)
    corners = random.random((images, boxes, 2)) * 10
    found = np.concatenate([corners, corners + random.random((images, boxes, 2)) * 8], -1).astype("float32")
    return paddle.to_tensor(found), paddle.to_tensor(random.random((images, 3, boxes)).astype("float32"))


def chooser(
    top: int, keep: int, *rest: Any, threshold: float = 0.3, overlap: float = 0.4, counts: Any = None
) -> Any:
    normalized, eta, background = rest

    def choose(boxes: Any, scores: Any) -> Any:
        settings = (threshold, top, keep, overlap, normalized, eta, background)
        return paddle._C_ops.multiclass_nms3(boxes, scores, counts, *settings)

    return choose


FORMS = list(itertools.product((5, -1), (4, -1), (True, False), (-1, 0)))


@pytest.mark.parametrize(("top", "keep", "normalized", "background"), FORMS)
def test_forms(top: int, keep: int, normalized: bool, background: int) -> None:
    choose = chooser(top, keep, normalized, 1.0, background)
    mine = inference(choose, verify="off")
    with paddle.no_grad():
        for seed, (images, boxes) in enumerate([(1, 12), (1, 12), (1, 4), (2, 9), (2, 9)]):
            given = drawn(images, boxes, seed)
            same(mine(*given), choose(*given))
    served(captures=3)  # one for each number of images and boxes


def test_nothing_is_found_on_one_of_the_images() -> None:
    choose = chooser(5, 4, True, 1.0, -1)
    mine = inference(choose, verify="off")
    boxes, scores = drawn(3, 12, 0)
    scores[1] = 0.0
    with paddle.no_grad():
        for _ in range(2):
            same(mine(boxes, scores), choose(boxes, scores))
            same(mine(boxes, scores * 0), choose(boxes, scores * 0))
    served(captures=1)


@pytest.mark.parametrize(("top", "keep"), [(3, -1), (3, 4), (-1, 4), (8, 5)])
@pytest.mark.parametrize("digits", [0, 1], ids=["saturated", "rounded"])
def test_equal_scores(top: int, keep: int, digits: int) -> None:
    """Where not all are taken, eager takes those that come first."""
    choose = chooser(top, keep, True, 1.0, -1)
    mine = inference(choose, verify="off")
    with paddle.no_grad():
        for seed in range(4):
            boxes, scores = drawn(3, 12, seed)
            scores = paddle.round(scores * 10**digits) / 10**digits
            same(mine(boxes, scores), choose(boxes, scores))
    served(captures=1)


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_equal_scores_of_many_boxes(backend: str) -> None:
    """OpenVINO's topk takes any of them."""
    pytest.importorskip(backend)
    choose = chooser(400, -1, True, 1.0, -1)
    mine = inference(choose, verify="off", backend=backend)
    with paddle.no_grad():
        for seed in range(2):
            boxes, scores = drawn(1, 2000, seed)
            scores = paddle.round(scores * 10) / 10
            same(mine(boxes, scores), choose(boxes, scores))
    served(captures=1)


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize(
    ("top", "keep", "backend"), [(8, 6, "onnxruntime"), (-1, -1, "onnxruntime"), (8, -1, "openvino")]
)
def test_boxes_without_area(normalized: bool, top: int, keep: int, backend: str) -> None:
    """Boxes that were clipped to the image: eager takes two of them that meet for one."""
    pytest.importorskip(backend)
    choose = chooser(top, keep, normalized, 1.0, -1)
    mine = inference(choose, verify="off", backend=backend)
    with paddle.no_grad():
        for seed in range(6):
            random = np.random.default_rng(seed)
            low = random.integers(0, 3, (2, 16, 2)).astype("float32") * 304
            high = np.maximum(low, random.integers(0, 3, (2, 16, 2)) * 304).astype("float32")
            boxes = paddle.to_tensor(np.concatenate([low, high], -1))
            scores = paddle.to_tensor(np.round(random.random((2, 3, 16)), 1).astype("float32"))
            same(mine(boxes, scores), choose(boxes, scores))
    served(captures=1)


def apart(boxes: int) -> tuple[Any, Any]:
    """Boxes that do not overlap, of one class and the same score."""
    corners = np.arange(boxes, dtype="float32")[:, None] * 20 + np.zeros((1, 2), "float32")
    found = np.concatenate([corners, corners + 10], -1)[None]
    return paddle.to_tensor(found), paddle.ones([1, 1, boxes])


@pytest.mark.parametrize("top", [2, 4])
def test_boxes_that_are_all_alike(top: int) -> None:
    choose, given = chooser(top, -1, True, 1.0, -1), apart(4)
    mine = inference(choose, verify="off")
    with paddle.no_grad():
        for _ in range(2):
            found = mine(*given)
            same(found, choose(*given))
            assert found[0].shape == [top, 6]
    served(captures=1)


@pytest.mark.parametrize(
    ("top", "keep", "rest"),
    [
        (5, 4, {"eta": 0.9}),
        (0, 4, {}),
        (5, 0, {}),
        (5, 4, {"threshold": -2e30}),
        (5, 4, {"threshold": float("nan")}),
        (5, 4, {"overlap": -0.5}),
        (5, 4, {"overlap": 1.5}),
    ],
)
def test_settings_of_which_the_engine_has_no_form(top: int, keep: int, rest: dict[str, float]) -> None:
    choose = chooser(top, keep, True, rest.pop("eta", 1.0), 0, **rest)
    given = drawn(1, 12, 0)
    with paddle.no_grad():
        same(inference(choose, verify="off")(*given), choose(*given))
    eagerly("multiclass_nms3")


def corners(count: int, seed: int = 0) -> Any:
    random = np.random.default_rng([seed, count])
    return paddle.to_tensor(np.sort(random.random((count, 2, 2)) * 7, axis=1).reshape(count, 4).astype("float32"))


@pytest.mark.parametrize("normalized", [True, False])
def test_boxes_by_their_differences_from_others(normalized: bool) -> None:
    def method(prior: Any, spread: Any, difference: Any, other: Any) -> Any:
        code, four = paddle.vision.ops.box_coder, [0.1, 0.1, 0.2, 0.2]
        turned = difference.transpose([1, 0, 2])
        return [
            each
            for by in (spread, four)
            for each in (
                code(prior, by, difference, "decode_center_size", normalized),
                code(prior, by, turned, "decode_center_size", normalized, axis=1),
                code(prior, by, other, "encode_center_size", normalized),
            )
        ]

    calls = []
    for seed, (count, priors) in enumerate(((1, 1), (1, 1), (2, 3), (4, 1), (5, 6))):
        random = np.random.default_rng(seed)
        spread, difference = random.random((priors, 4)) + 0.1, random.standard_normal((count, priors, 4))
        given = [paddle.to_tensor(each.astype("float32")) for each in (spread, difference)]
        calls.append((corners(priors, seed), *given, corners(count, seed + 1)))
    flat = paddle.to_tensor([[1.0, 1.0, 1.0, 2.0], [0.0, 0.0, 2.0, 2.0], [3.0, 3.0, 1.0, 1.0]])
    right(method, *calls, (flat, flat.abs() + 0.1, flat.unsqueeze(0), flat), tolerance=1e-4)
