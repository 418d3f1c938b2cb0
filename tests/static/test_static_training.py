"""A static model is fine-tuned in its framework and saved again."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from static_support import BOTH, close, kit, points, train

from hybrid_infer import CaptureError, InputSpec, SpecError, StaticModelError, inference, load, save, to_static


@pytest.fixture(scope="module", params=BOTH)
def own(request: pytest.FixtureRequest) -> Any:
    return kit(request.param)


@pytest.fixture(scope="module")
def deep(own: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A layer with batch statistics and dropout, saved in evaluation mode."""
    own.seed(0)
    layer, path = own.Deep(), tmp_path_factory.mktemp("deep") / "model"
    layer.eval()
    save(layer, path, [InputSpec([None, 8], name="x")])
    return layer, path


def test_a_linear_classifier_from_training_to_training(own: Any, tmp_path: Path) -> None:
    """Trained eagerly, saved, loaded, predicted with, fine-tuned as it was loaded, saved again."""
    own.seed(1)
    layer = own.Classifier()
    losses = train(own, layer, layer.parameters())
    assert losses[-1] < losses[0]
    save(layer, tmp_path / "first")
    static = load(tmp_path / "first")
    x = points(5, seed=1)
    with own.no_grad():
        close(static(x), own.array(layer(own.tensor(x))))
    static.train()
    assert static.training
    again = train(own, static, static.parameters(), 40)
    assert again[-1] < again[0] <= losses[-1] + 1e-3
    trained = own.array(static(own.tensor(x)))
    static.eval()
    assert not static.training
    close(static(x), trained)
    save(static, tmp_path / "second")
    close(load(tmp_path / "second")(x), trained)
    save(static, tmp_path / "first")  # over an older model
    close(load(tmp_path / "first")(x), trained)


def test_a_layer_with_another_computation_in_training(own: Any, deep: tuple[Any, Path], tmp_path: Path) -> None:
    layer, path = deep
    trainable = load(path).as_layer()
    assert isinstance(trainable, own.Layer)
    x = points(32, seed=2)
    trainable.eval()
    with own.no_grad():
        close(own.array(trainable(own.tensor(x))), own.array(layer(own.tensor(x))))
    statistics = next(name for name in layer.state_dict() if name.endswith("mean"))
    trainable.train()
    with own.no_grad():  # dropout draws anew
        first, second = (own.array(trainable(own.tensor(x))) for _ in range(2))
    assert abs(first - second).max() > 1e-3
    losses = train(own, trainable, trainable.parameters(), 30)
    assert min(losses[-5:]) < losses[0]
    before, after = (own.array(each.state_dict()[statistics]) for each in (layer, trainable))
    assert abs(before - after).max() > 1e-4
    trainable.eval()
    with own.no_grad():
        expected = own.array(trainable(own.tensor(x)))
    save(trainable, tmp_path / "again")
    static = load(tmp_path / "again")
    close(static(x), expected)
    assert abs(static(x) - load(path)(x)).max() > 1e-3
    # And into the layer that it came from, by its own names.
    fresh = own.Deep()
    own.load(fresh, static.state_dict())
    fresh.eval()
    with own.no_grad():
        close(own.array(fresh(own.tensor(x))), expected)


def test_two_layers_of_one_model_have_weights_of_their_own(own: Any, deep: tuple[Any, Path]) -> None:
    static = load(deep[1])
    one, other = static.as_layer(), static.as_layer()
    x = own.tensor(points(4))
    for each in (one, other):
        each.eval()
    with own.no_grad():
        before = own.array(other(x))
    one.train()
    train(own, one, one.parameters(), 3)
    one.eval()
    with own.no_grad():
        close(own.array(other(x)), before)
        assert abs(own.array(one(x)) - before).max() > 1e-4
    close(static(own.array(x)), before)


def test_specs_that_the_graph_takes_may_be_named_again(own: Any, deep: tuple[Any, Path], tmp_path: Path) -> None:
    static = load(deep[1])
    save(static, tmp_path / "example", [own.tensor(points(2))])
    save(static, tmp_path / "spec", [InputSpec([None, 8])], trainable=False)
    with pytest.raises(SpecError, match=r"stays as it is.*any, 8"):
        save(static, tmp_path / "other", [InputSpec([None, 9])])
    with pytest.raises(StaticModelError, match="trainable=False"):
        load(tmp_path / "spec").as_layer()
    with pytest.raises(StaticModelError, match="Call train"):
        load(tmp_path / "spec").parameters()


def test_several_methods_are_trained(own: Any, tmp_path: Path) -> None:
    layer = own.Two()
    with own.no_grad():
        layer(own.tensor(points(4))), layer.encode(own.tensor(points(4)))
    save(layer, tmp_path / "model")
    trainable = load(tmp_path / "model").as_layer()
    x = own.tensor(points(6))
    with own.no_grad():
        close(own.array(trainable.encode(x)["code"]), own.array(layer.encode(x)["code"]))
        close(own.array(trainable(x)), own.array(layer(x)))
    loss = (trainable.encode(x)["code"] ** 2).mean()
    loss.backward()
    gradients = {name: value.grad for name, value in trainable.named_parameters()}
    assert gradients["shared.weight"] is not None and gradients["head.weight"] is None


def test_what_cannot_be_trained_is_served_all_the_same(own: Any, tmp_path: Path) -> None:
    class Counting(own.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = own.Linear(8, 2)
            self.calls = 0

        def forward(self, x: Any) -> Any:
            if self.training:
                self.calls += 1
            return self.linear(x)

    save(Counting(), tmp_path / "model", [InputSpec([None, 8])])
    static = load(tmp_path / "model")
    assert static(points(2)).shape == (2, 2)
    with pytest.raises(StaticModelError, match="calls"):
        static.train()


def test_recurrent_layers_frozen_parts_and_tied_weights(own: Any, tmp_path: Path) -> None:
    class Tagger(own.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = own.module.nn.Embedding(10, 8)
            self.recurrent = own.module.nn.LSTM(8, 8)
            self.head = own.Linear(8, 10)
            if own.name == "torch":
                self.head.weight = self.embedding.weight
            for parameter in self.recurrent.parameters():
                if own.name == "torch":
                    parameter.requires_grad = False
                else:
                    parameter.stop_gradient = True

        def forward(self, ids: Any) -> Any:
            return self.head(self.recurrent(self.embedding(ids))[0])

    layer = Tagger()
    layer.eval()
    save(layer, tmp_path / "model", [InputSpec([2, 5], "int64")])
    static = load(tmp_path / "model")
    assert list(static.state_dict()) == list(layer.state_dict())
    trainable = static.as_layer()
    assert list(trainable.state_dict()) == list(layer.state_dict())
    own.load(layer, trainable.state_dict())
    ids = own.tensor(np.arange(10).reshape(2, 5) % 10)
    before = {name: own.array(value).copy() for name, value in trainable.state_dict().items()}
    trainable.train()
    optimizer = own.sgd([p for _, p in trainable.named_parameters()])
    losses = [own.step(trainable, (trainable(ids) ** 2).mean(), optimizer) for _ in range(10)]
    assert losses[-1] < losses[0]
    for name, value in trainable.state_dict().items():
        assert np.array_equal(own.array(value), before[name]) == name.startswith("recurrent"), name
    trainable.eval()
    save(trainable, tmp_path / "again", trainable=False)
    with own.no_grad():
        close(load(tmp_path / "again")(np.arange(10).reshape(2, 5) % 10), own.array(trainable(ids)))


def test_the_trainable_layer_as_a_part_of_another(own: Any, tmp_path: Path) -> None:
    save(own.Linear(8, 4), tmp_path / "model", [InputSpec([None, 8])])
    whole = own.module.nn.Sequential(load(tmp_path / "model").as_layer(), own.Linear(4, 3))
    losses = train(own, whole, whole.parameters())
    assert losses[-1] < losses[0]
    twin = copy.deepcopy(whole)
    x = points(4)
    with own.no_grad():
        close(own.array(twin(own.tensor(x))), own.array(whole(own.tensor(x))))
    if own.name == "torch":
        save(whole, tmp_path / "whole", [InputSpec([None, 8])])
        with own.no_grad():
            close(load(tmp_path / "whole")(x), own.array(whole(own.tensor(x))))
    else:
        with pytest.raises(CaptureError, match=r"static model.*by itself"):
            save(whole, tmp_path / "whole", [InputSpec([None, 8])])


def test_a_layer_that_was_only_trained_is_saved_with_what_training_has_seen(own: Any, tmp_path: Path) -> None:
    class Trained(own.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = own.Linear(8, 3)

        def forward(self, x: Any) -> Any:
            return self.linear(x)

    layer = Trained()
    layer.train()
    static_path = type(to_static(layer)).forward  # the class's own: nothing is compiled for a test of what was seen
    layer.forward._training._static = static_path
    layer.forward(own.tensor(points(4)))
    save(layer, tmp_path / "model", trainable=False)
    assert load(tmp_path / "model").input_spec == [InputSpec([-1, 8], "float32", "x")]


def test_only_what_can_be_trained_is_offered_where_a_call_is_refused(tmp_path: Path) -> None:
    """Of several graphs for fixed sizes one has the program: the refusal named the very sizes that were given."""
    own = kit("torch")

    class Rows(own.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = own.Linear(4, 4)

        @inference
        def forward(self, x: Any) -> Any:
            return self.linear(x) * len(list(range(x.shape[1])))

    layer = Rows()
    with own.no_grad():
        layer(own.tensor(points(2, 12).reshape(2, 3, 4))), layer(own.tensor(points(2, 20).reshape(2, 5, 4)))
    save(layer, tmp_path / "model")
    trained = load(tmp_path / "model").as_layer()
    with pytest.raises(SpecError, match=r"x: float32 \(2, 3, 4\) was given; this .* takes x: float32 \(any, 5, 4\)$"):
        trained(own.tensor(points(2, 12).reshape(2, 3, 4)))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_has_weights_of_its_own(own: Any, tmp_path: Path, copied: Any) -> None:
    """As what holds a static model is copied: called before or not, in training or not."""
    own.seed(2)
    save(own.Classifier(), tmp_path / "model", [InputSpec([None, 8])])
    static, x = load(tmp_path / "model"), points(5, seed=1)
    early = copied(static)
    expected = static(x)
    late = copied(static)
    for each in (early, late):
        close(each(x), expected)
        each.set_state_dict({name: value * 2 for name, value in each.state_dict("numpy").items()})
        close(each(x), 2 * expected)
    close(static(x), expected)
    static.train()
    again = copied(static)
    assert again.training and not late.training
    train(own, again, again.parameters(), 5)
    close(static.eval()(x), expected)
    assert abs(again.eval()(x) - expected).max() > 1e-3


def test_a_copy_has_what_the_program_has_given_the_model(own: Any, tmp_path: Path) -> None:
    save(own.Classifier(), tmp_path / "model", [InputSpec([None, 8])])
    static: Any = load(tmp_path / "model")
    static.labels, static.itself = ["a", "b"], static
    shallow, deep = copy.copy(static), copy.deepcopy(static)
    assert shallow.labels is static.labels and shallow.itself is static
    assert deep.labels == ["a", "b"] and deep.labels is not static.labels and deep.itself is deep
    close(deep(points(5)), static(points(5)))


@pytest.mark.parametrize("method_first", [False, True])
def test_a_deep_copy_of_a_method_is_one_of_the_copied_model(own: Any, tmp_path: Path, method_first: bool) -> None:
    save(own.Classifier(), tmp_path / "model", [InputSpec([None, 8])])
    static, x = load(tmp_path / "model"), points(5)
    expected = static(x)
    assert copy.copy(static.forward) is static.forward
    alone = copy.deepcopy(static.forward)
    both = [static.forward, static] if method_first else [static, static.forward]
    held = copy.deepcopy(both)
    forward, layer = held if method_first else held[::-1]
    assert forward is layer.forward is not static.forward
    close(forward(x), expected)
    for each in (static, layer):
        each.set_state_dict({name: value * 2 for name, value in each.state_dict("numpy").items()})
        close(forward(x), 2 * expected if each is layer else expected)
        close(alone(x), expected)


def test_what_is_to_be_pickled_says_what_to_hand_on(own: Any, tmp_path: Path) -> None:
    save(own.Classifier(), tmp_path / "model", [InputSpec([None, 8])])
    static = load(tmp_path / "model")
    for each in (static, static.forward):
        with pytest.raises(TypeError, match=r"cannot be pickled: hand on where it lies \(.*model\), and call load"):
            pickle.dumps(each)


def test_a_program_that_pytorch_cannot_write_is_left_out(tmp_path: Path) -> None:
    import math

    import torch

    class Part(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x[: math.floor(x.shape[0] * 0.6)] * 2

    save(Part(), tmp_path / "part", [InputSpec([None, 3])])
    static = load(tmp_path / "part")
    for size in (2, 5, 9, 40):
        x = torch.rand(size, 3)
        assert torch.equal(static(x), Part()(x))
    with pytest.raises(StaticModelError, match="PyTorch cannot write its own program"):
        static.as_layer()


def test_sizes_that_go_another_way_than_the_program_for_training_are_refused(tmp_path: Path) -> None:
    import torch

    class Upright(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = torch.nn.Conv2d(3, 4, 3, padding=1)

        def forward(self, x: Any) -> Any:
            if x.shape[2] > x.shape[3]:
                x = x.transpose(2, 3) * 2
            return self.convolution(x).relu().mean((2, 3))

    layer = Upright().eval()
    save(layer, tmp_path / "model", [InputSpec([None, 3, None, None])])
    trainable = load(tmp_path / "model").as_layer()
    refused = 0
    for mode in (False, True):
        trainable.train(mode)
        for batch, height, width in ((2, 24, 32), (2, 32, 24), (1, 20, 20), (1, 40, 17)):
            x = torch.randn(batch, 3, height, width)
            with torch.no_grad():
                try:
                    found = trainable(x)
                except SpecError as error:
                    refused += 1
                    assert "another way through the method" in str(error) and "axis" in str(error)
                else:
                    close(found, layer(x))
    assert refused == 4
