"""A condition on sizes in a method: what a static model leaves out of open dimensions is said, and can be saved too."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from support import counts, layer_class

import hybrid_infer
from hybrid_infer import InputSpec, SpecError, inference, load, save
from hybrid_infer._served_sizes import _words


def _padded(framework: Any) -> Any:
    class Padded(layer_class(framework)):  # type: ignore[misc]
        """Of 4 columns at a time, as a network that halves its images twice."""

        def forward(self, x: Any) -> Any:
            more = -x.shape[1] % 4
            if more:
                x = framework.concat([x, x[:, :1].expand([x.shape[0], more])], 1)
            return x.reshape([x.shape[0], -1, 4]).sum(-1)

    return Padded()


def test_what_a_spec_leaves_open_and_the_graph_does_not_take_is_said(
    framework: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    layer = _padded(framework)
    with caplog.at_level(logging.WARNING, "hybrid_infer"):
        save(layer, tmp_path / "m", [InputSpec([None, None], "float32", "x")])
    static = load(tmp_path / "m")
    told = [record.getMessage() for record in caplog.records if "tells sizes apart" in record.getMessage()]
    served = [n for n in range(4, 20) if _taken(static, framework.ones([2, n]))]
    if len(served) == 16:  # Paddle: both branches are in the graph
        assert not told and "alone" not in str(static)
        return
    assert len(told) == 1 and "axis 1 of argument `x`" in told[0]
    assert len(served) in (4, 12)  # those of one branch
    words = "multiples of 4 alone" if len(served) == 4 else "sizes alone that leave 1 or 2 or 3 when divided by 4"
    assert words in told[0] and f"axis 1: {words}" in str(static)


def _taken(static: Any, x: Any) -> bool:
    try:
        static(x)
    except SpecError as fault:
        assert "% 4" in str(fault) and "-1" not in str(fault)
        return False
    return True


def test_a_model_that_takes_all_sizes_says_nothing(
    framework: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "hybrid_infer"):
        save(framework.nn.Linear(4, 2), tmp_path / "m", [InputSpec([None, None, 4], "float32")])
    assert not caplog.records and "alone" not in str(load(tmp_path / "m"))


def test_sizes_of_each_kind_that_were_seen_are_all_saved(framework: Any, tmp_path: Path) -> None:
    layer = _padded(framework)
    hot = inference(layer)
    with framework.no_grad():
        for columns in (4, 8, 5, 10, 11):
            hot(framework.ones([2, columns]))
    save(hot, tmp_path / "m")
    static = load(tmp_path / "m")
    assert "alone" not in str(static)
    for columns in range(4, 20):
        assert static(framework.ones([3, columns])).shape[1] == -(-columns // 4)


def test_warmup_says_it(framework: Any) -> None:
    hot = inference(_padded(framework))
    (whole,) = hybrid_infer.warmup(hot, [InputSpec([None, None], "float32")])
    assert whole.outcome == "compiled"
    before = counts()["captures"]
    for columns in (4, 8, 12, 5, 6, 7):
        hot(framework.ones([2, columns]))
    all_served = counts()["captures"] == before
    assert whole.sizes == "" if all_served else "axis 1 of tensor 0: " in whole.sizes and "alone" in whole.sizes
    (all_,) = hybrid_infer.warmup(inference(framework.nn.Linear(4, 2)), [InputSpec([None, 4], "float32")])
    assert not all_.sizes


@pytest.mark.parametrize(
    ("taken", "words"),
    [
        (range(10, 74), ""),
        ((12,), ""),
        (range(10, 74, 2), "multiples of 2 alone"),
        (range(11, 74, 2), "sizes alone that leave 1 when divided by 2"),
        (range(10, 20), "sizes below 20 alone"),
        (range(20, 74), "sizes from 20 alone"),
        (range(20, 30), "10 of the sizes from 10 to 73 alone"),
    ],
)
def test_sizes_in_words(taken: Any, words: str) -> None:
    assert _words(range(10, 74), set(taken)) == words
