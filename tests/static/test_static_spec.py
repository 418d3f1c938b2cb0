"""InputSpec: its forms, its equality, and messages that name what is wrong."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from hybrid_infer import InputSpec, OptionError, SpecError, inference
from hybrid_infer._parameters import Parameters
from hybrid_infer._spec import arguments


def test_it_shows_as_the_reference_does() -> None:
    assert repr(InputSpec([None, 784], "float32", "x")) == "InputSpec(shape=(-1, 784), dtype=float32, name=x)"
    assert repr(InputSpec([None, 1], "int64", "label")) == "InputSpec(shape=(-1, 1), dtype=int64, name=label)"
    assert repr(InputSpec(())) == "InputSpec(shape=(), dtype=float32, name=None)"


def test_equal_specs_are_one_key() -> None:
    one, other = InputSpec([None, 3], "int64", "x"), InputSpec((-1, np.int64(3)), np.int64, "x")
    assert one == other and len({one, other}) == 1
    others = [InputSpec([2, 3], "int64", "x"), InputSpec([None, 3], "int32", "x"), InputSpec([None, 3], "int64")]
    assert one not in others
    assert one != "x" and copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one


def test_it_cannot_be_changed() -> None:
    spec = InputSpec([2])
    with pytest.raises(AttributeError, match="cannot be changed"):
        spec.name = "x"


def test_it_is_made_from_an_array() -> None:
    array = np.zeros((2, 2), np.float32)
    assert InputSpec.from_numpy(array, name="x") == InputSpec([2, 2], "float32", "x")
    assert InputSpec.from_numpy(array).name is None
    assert InputSpec.from_tensor(array > 0) == InputSpec([2, 2], "bool")


@pytest.mark.torch
def test_it_is_made_from_a_torch_tensor() -> None:
    torch = pytest.importorskip("torch")
    spec = InputSpec.from_tensor(torch.ones(2, 3, dtype=torch.bfloat16))
    assert spec == InputSpec((2, 3), torch.bfloat16) and spec.dtype == "bfloat16" and spec.name is None


@pytest.mark.paddle
def test_it_is_made_from_a_paddle_tensor_and_keeps_its_name() -> None:
    paddle = pytest.importorskip("paddle")
    tensor = paddle.ones([2, 3], dtype="int32")
    tensor.name = "ids"
    assert InputSpec.from_tensor(tensor) == InputSpec([2, 3], paddle.int32, "ids")
    assert InputSpec.from_tensor(tensor, name="x").name == "x"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: InputSpec([2], "float31"), ("dtype", "float31", "float32")),
        (lambda: InputSpec([2], None), ("dtype", "None")),
        (lambda: InputSpec([-2]), ("shape", "-2")),
        (lambda: InputSpec(["n"]), ("shape", "'n'")),
        (lambda: InputSpec([2.0]), ("shape", "2.0")),
        (lambda: InputSpec("ab"), ("shape", "ab")),
        (lambda: InputSpec([2], name=3), ("name", "3")),
    ],
)
def test_what_no_tensor_can_be_is_refused(make: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(SpecError) as caught:
        make()
    for word in words:
        assert word in str(caught.value)


def forward(x: Any, pair: Any, scale: float = 2.0, flag: bool = False) -> None: ...


PARAMETERS = Parameters(forward, owner=False)


def test_an_omitted_name_becomes_the_parameters() -> None:
    nested = {"a": InputSpec([3]), "b": [InputSpec([1], name="c"), 1]}
    x, pair, scale, flag = arguments([InputSpec([2]), nested], PARAMETERS, "f")
    assert x == InputSpec([2], name="x")
    assert pair == {"a": InputSpec([3], name="pair_a"), "b": [InputSpec([1], name="c"), 1]}
    assert (scale, flag) == (2.0, False)
    assert arguments([InputSpec([2]), None, 3.0, True], PARAMETERS, "f")[1:] == (None, 3.0, True)


@pytest.mark.parametrize(
    ("specs", "words"),
    [
        ([InputSpec([2])], ("`pair`",)),
        ([], ("`x` and `pair`",)),
        ([InputSpec([2])] * 5, ("5 entries", "4 arguments")),
        ([InputSpec([2]), {"a": object()}], ("`pair`['a']", "object")),
        ([1, 2], ("no entry", "tensor")),
        (InputSpec([2]), ("list",)),
    ],
)
def test_wrong_specs_name_the_argument(specs: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(SpecError) as caught:
        arguments(specs, PARAMETERS, "f")
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("specs", [[InputSpec([2])], [InputSpec([2])] * 2, [InputSpec([2])] * 3])
@pytest.mark.parametrize(
    ("option", "remedy"), [("input_spec", "leave input_spec out, and call"), ("inputs[1]", "pass a dict of the")]
)
def test_arguments_by_name_alone_have_no_place_in_a_list(specs: Any, option: str, remedy: str) -> None:
    def function(x: Any, *, scale: Any) -> Any: ...

    words = r": a list has no place for `scale` of f, given by name alone: "
    with pytest.raises(SpecError, match=words + remedy):
        arguments(specs, Parameters(function, owner=False), "f", option)


def test_the_option_of_inference_takes_specs() -> None:
    inference(input_spec=[InputSpec([None, 4]), {"a": InputSpec([2])}, 1])
    with pytest.raises(OptionError, match="input_spec"):
        inference(input_spec=[1])
