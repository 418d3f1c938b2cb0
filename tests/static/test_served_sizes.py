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


class _Unlike(dict):  # type: ignore[type-arg]
    """A result that no static model gives."""


def _half(framework: Any) -> Any:
    class Half(layer_class(framework)):  # type: ignore[misc]
        """One of whose branches cannot be saved."""

        def forward(self, x: Any) -> Any:
            if x.shape[1] % 4 == 0:
                return x.reshape([x.shape[0], -1, 4]).sum(-1)
            return _Unlike(result=x)

    return Half()


def test_each_branch_of_a_condition_on_sizes_is_saved(
    framework: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    layer = _padded(framework)
    with caplog.at_level(logging.WARNING, "hybrid_infer"):
        save(layer, tmp_path / "m", [InputSpec([None, None], "float32", "x")])
    static = load(tmp_path / "m")
    assert not caplog.records and "alone" not in str(static)
    for columns in range(2, 20):
        x = framework.ones([3, columns]).cumsum(1)
        assert (static(x) == layer(x)).all()


def test_branches_of_two_axes_and_of_a_number_are_saved(framework: Any, tmp_path: Path) -> None:
    class Image(layer_class(framework)):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            high, wide = -x.shape[1] % 2, -x.shape[2] % 3
            if high:
                x = framework.concat([x, x[:, :1]], 1)
            if wide:
                x = framework.concat([x, x[:, :, :wide]], 2)
            return x + 1 if x.shape[1] < 130 else x + 2

    layer = Image()
    save(layer, tmp_path / "m", [InputSpec([None, None, None], "float32", "x")])
    static = load(tmp_path / "m")
    for high, wide in ((4, 6), (5, 6), (4, 7), (5, 8), (31, 31), (140, 9), (141, 9)):
        x = framework.ones([2, high, wide])
        assert (static(x) == layer(x)).all() and static(x).shape == layer(x).shape


def test_a_branch_that_cannot_be_saved_is_said(
    framework: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "hybrid_infer"):
        save(_half(framework), tmp_path / "m", [InputSpec([None, None], "float32", "x")])
    static = load(tmp_path / "m")
    told = [record.getMessage() for record in caplog.records if "tells sizes apart" in record.getMessage()]
    assert len(told) == 1 and "axis 1 of argument `x`" in told[0] and "cannot be saved: " in told[0]
    assert [n for n in range(4, 20) if _taken(static, framework.ones([2, n]))] == [4, 8, 12, 16]
    assert "multiples of 4 alone" in told[0] and "axis 1: multiples of 4 alone" in str(static)


def test_sizes_that_the_method_does_not_take_either_are_no_matter_for_a_warning(
    framework: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Positions(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = framework.nn.Linear(30, 1)

        def forward(self, x: Any) -> Any:
            if x.shape[1] > 30:
                raise ValueError("too long")
            return x + self.inner.weight.reshape([-1])[: x.shape[1]]

    with caplog.at_level(logging.WARNING, "hybrid_infer"):
        save(Positions(), tmp_path / "m", [InputSpec([None, None], "float32", "x")])
    assert not [record for record in caplog.records if "tells sizes apart" in record.getMessage()]
    assert tuple(load(tmp_path / "m")(framework.ones([2, 30])).shape) == (2, 30)


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
    assert whole.sizes == "" if all_served else "axis 1 of argument `x`: " in whole.sizes and "alone" in whole.sizes
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
