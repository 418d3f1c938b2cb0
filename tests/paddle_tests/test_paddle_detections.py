"""Detections, the choice among overlapping boxes, in each of its forms: served, unverified, and as eagerly."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import eagerly, same, served  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle


def drawn(images: int, boxes: int, seed: int) -> tuple[Any, Any]:
    """Overlapping boxes, and the scores of three classes."""
    random = np.random.default_rng(seed)
    corners = random.random((images, boxes, 2)) * 10
    found = np.concatenate([corners, corners + random.random((images, boxes, 2)) * 8], -1).astype("float32")
    return paddle.to_tensor(found), paddle.to_tensor(random.random((images, 3, boxes)).astype("float32"))


def chooser(top: int, keep: int, *rest: Any, threshold: float = 0.3, counts: Any = None) -> Any:
    normalized, eta, background = rest

    def choose(boxes: Any, scores: Any) -> Any:
        settings = (threshold, top, keep, 0.4, normalized, eta, background)
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


def test_a_threshold_that_changes() -> None:
    choose = chooser(5, 4, True, 0.9, -1)
    given = drawn(1, 12, 0)
    with paddle.no_grad():
        same(inference(choose)(*given), choose(*given))
    eagerly("nms_eta")
