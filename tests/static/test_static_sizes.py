"""A saved model takes the sizes that its graph is right for, none and one among them; of others it says so."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from static_support import BOTH, close, kit, points

from hybrid_infer import HybridInferError, InputSpec, SpecError, inference, load, save
from hybrid_infer.static import _saved_stage


@pytest.fixture(scope="module", params=BOTH)
def own(request: pytest.FixtureRequest) -> Any:
    return kit(request.param)


def _layers(own: Any) -> dict[str, tuple[type[Any], Any]]:
    """Layers of several kinds, and what makes an input of a batch size for each."""
    nn = own.module.nn
    convolution, norm = (nn.Conv2d, nn.BatchNorm2d) if own.name == "torch" else (nn.Conv2D, nn.BatchNorm2D)

    class Convolution(own.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.convolution, self.norm, self.last = convolution(3, 4, 3), norm(4), own.Linear(4 * 36, 5)

        @inference
        def forward(self, images: Any) -> Any:
            return self.last(nn.functional.relu(self.norm(self.convolution(images))).flatten(1))

    class Attention(own.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.project, self.last = own.Linear(8, 24), own.Linear(8, 8)

        @inference
        def forward(self, x: Any) -> Any:
            count, steps, _ = x.shape
            query, key, value = (
                part.reshape((count, steps, 2, 4)).swapaxes(1, 2) for part in self.project(x).split([8, 8, 8], -1)
            )
            heads = own.softmax(query @ key.swapaxes(2, 3) / 2.0) @ value
            return self.last(heads.swapaxes(1, 2).reshape((count, steps, 8)))

    class Embedding(own.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.table, self.last = nn.Embedding(10, 8), own.Linear(8, 3)

        @inference
        def forward(self, words: Any) -> Any:
            return self.last(self.table(words).sum(1))

    class Recurrent(own.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.steps = nn.LSTM(8, 6, batch_first=True) if own.name == "torch" else nn.LSTM(8, 6)
            self.last = own.Linear(6, 2)

        @inference
        def forward(self, x: Any) -> Any:
            return self.last(self.steps(x)[0][:, -1])

    def words(count: int) -> Any:
        return np.random.default_rng(1).integers(0, 10, (count, 7))

    return {
        "convolution": (Convolution, lambda count: points(count, 3 * 64).reshape(count, 3, 8, 8)),
        "attention": (Attention, lambda count: points(count, 48).reshape(count, 6, 8)),
        "embedding": (Embedding, words),
        "recurrent": (Recurrent, lambda count: points(count, 40).reshape(count, 5, 8)),
    }


def _made(own: Any, kind: type[Any]) -> Any:
    own.seed(0)
    layer = kind()
    layer.eval()
    return layer


def _eager(own: Any, layer: Any, *arrays: Any) -> Any:
    function = type(layer).forward
    function = getattr(function, "__wrapped__", function)
    with own.no_grad():
        return own.array(function(layer, *map(own.tensor, arrays)))


@pytest.mark.parametrize("name", ["convolution", "attention", "embedding", "recurrent"])
def test_a_layer_that_has_seen_one_batch_takes_any(own: Any, tmp_path: Path, name: str) -> None:
    kind, make = _layers(own)[name]
    layer = _made(own, kind)
    with own.no_grad():
        layer(own.tensor(make(16)))
    save(layer, tmp_path / "model", trainable=False)
    static = load(tmp_path / "model")
    for count in (1, 10_000, 3):
        x = make(count)
        expected = _eager(own, layer, x)
        close(own.array(static(own.tensor(x))), expected, 1e-4)
        close(static(x), expected, 1e-4)
    x = make(0)
    try:
        found = static(x)
    except SpecError as fault:
        assert "0" in str(fault) and "axis 0" in str(fault), fault
        assert name in ("recurrent", "convolution")  # where the engine, or Paddle's reshape, needs one at least
    else:
        expected = _eager(own, layer, x)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        given = static(own.tensor(x))
        assert type(given) is type(own.tensor(x)) and tuple(given.shape) == expected.shape


def test_a_batch_and_a_sequence_of_one(own: Any, tmp_path: Path) -> None:
    kind, make = _layers(own)["attention"]
    layer = _made(own, kind)
    save(layer, tmp_path / "model", [InputSpec([None, None, 8])], trainable=False)
    static = load(tmp_path / "model")
    for count, steps in ((1, 6), (4, 1), (1, 1), (3, 9)):
        x = make(count)[:, :1].repeat(steps, 1)
        close(static(x), _eager(own, layer, x))


def test_a_single_row_that_is_computed_otherwise_has_a_graph_of_its_own(own: Any, tmp_path: Path) -> None:
    class Odd(own.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = own.Linear(8, 3)

        def forward(self, x: Any) -> Any:
            return self.linear(x) * 2 if x.shape[0] == 1 else self.linear(x)

    layer = _made(own, Odd)
    save(layer, tmp_path / "model", [InputSpec([None, 8])], trainable=False)
    static = load(tmp_path / "model")
    for count in (1, 2, 5):
        close(static(points(count)), _eager(own, layer, points(count)))


def test_a_size_that_changes_the_rank_is_never_answered_wrongly(own: Any, tmp_path: Path) -> None:
    class Squeezed(own.Layer):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x.squeeze() + 1

    layer = _made(own, Squeezed)
    save(layer, tmp_path / "model", [InputSpec([None, None, 4])], trainable=False)
    static = load(tmp_path / "model")
    refused = 0
    for count, width in ((2, 3), (1, 3), (2, 1), (1, 1), (5, 2)):
        x = points(count, width * 4).reshape(count, width, 4)
        expected = _eager(own, layer, x)
        try:
            found = static(x)
        except SpecError as fault:
            refused += 1
            assert "axis" in str(fault) and "1" in str(fault)
        else:
            assert found.shape == expected.shape
            close(found, expected)
    assert not refused, "each has a graph of its own"


def test_two_sizes_of_one_together_are_never_answered_wrongly(own: Any, tmp_path: Path) -> None:
    """Each alone is right: a tracer that takes sizes for two or more finds no product of them to be one."""

    class Product(own.Layer):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x * 2 if x.shape[0] * x.shape[1] == 1 else x + 1

    layer = _made(own, Product)
    save(layer, tmp_path / "model", [InputSpec([None, None, None])], trainable=False)
    static = load(tmp_path / "model")
    served = 0
    for shape in ((2, 3, 4), (1, 3, 4), (2, 1, 4), (2, 3, 1), (1, 3, 1), (1, 1, 4), (1, 1, 1), (1, 1, 7)):
        x = points(1, shape[0] * shape[1] * shape[2]).reshape(shape)
        try:
            found = static(x)
        except SpecError:
            continue
        served += 1
        close(found, _eager(own, layer, x))
    assert own.name == "paddle" or served >= 5  # Paddle's graph is for the sizes that it was traced with


@pytest.mark.parametrize("axes", [2, 3, 4])
def test_any_two_axes_are_checked_at_sizes_of_one_together(axes: int) -> None:
    dims = frozenset((tensor, axis) for tensor in range(2) for axis in range(axes))
    checked = _saved_stage.together(dims)
    for one, other in itertools.combinations(range(axes), 2):
        assert frozenset(place for place in dims if place[1] in (one, other)) in checked
    assert len(checked) == len(set(checked)) and dims in checked


def test_what_the_method_itself_does_not_take_is_refused(own: Any, tmp_path: Path) -> None:
    class Pairs(own.Layer):  # type: ignore[misc]
        def forward(self, x: Any, y: Any) -> Any:
            return x.reshape((-1, 2, 4)) + y.mean()

    layer = _made(own, Pairs)
    save(layer, tmp_path / "model", [InputSpec([None, 4]), InputSpec([None, 4], name="other")], trainable=False)
    static = load(tmp_path / "model")
    close(static(points(6, 4), points(1, 4)), _eager(own, layer, points(6, 4), points(1, 4)))
    for count in (1, 3):
        with pytest.raises(HybridInferError, match=r"axis 0 of `x`|Reshape: ") as fault:
            static(points(count, 4), points(2, 4))
        assert len(str(fault.value)) < 300


def test_sizes_that_are_tied_are_named_where_the_tracer_knows_them(own: Any, tmp_path: Path) -> None:
    class Sum(own.Layer):  # type: ignore[misc]
        def forward(self, x: Any, y: Any) -> Any:
            return x + y

    layer = _made(own, Sum)
    save(layer, tmp_path / "model", [InputSpec([None, 4]), InputSpec([None, 4], name="other")], trainable=False)
    static = load(tmp_path / "model")
    for count in (2, 1, 0):
        x = points(count, 4)
        assert static(x, x).shape == (count, 4)
    given = r"x: float32 \(2, 4\); y: float32 \(3, 4\) was given"
    told = given + r".*axis 0 of `y` == axis 0 of `x`" if own.name == "torch" else "Add: .*2 by 3"
    with pytest.raises(HybridInferError, match=told):
        static(points(2, 4), points(3, 4))


def test_the_check_of_small_sizes_is_no_ground_to_fail(
    own: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A method that fails for a size of one is saved for the others, without a warning."""

    class Windows(own.Layer):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x[:, 1:] - x[:, :-1].max() if x.shape[1] > 1 else x.reshape((7, 11))

    with caplog.at_level(logging.WARNING, "hybrid_infer"):
        save(_made(own, Windows), tmp_path / "model", [InputSpec([3, None])], trainable=False)
    static = load(tmp_path / "model")
    assert static(points(3, 5)).shape == (3, 4) and not caplog.records
    with pytest.raises(SpecError, match="axis 1 of `x`"):
        static(points(3, 1))
