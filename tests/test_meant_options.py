"""Options that are not allowed: the error asks what was most likely meant. What has no effect is said."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from hybrid_infer import InputSpec, OptionError, inference, load
from hybrid_infer._options import make


def told(**options: Any) -> str:
    with pytest.raises((OptionError, TypeError)) as error:
        inference(**options)
    return str(error.value)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"backend": "onnxruntime,openvino"}, "did you mean ['onnxruntime', 'openvino']?"),
        ({"backend": "ort, ov"}, "did you mean ['onnxruntime', 'openvino']?"),
        ({"backend": "eager"}, "to run eagerly, leave the decorator out or use stance('eager')"),
        ({"backend": None}, "did you mean 'auto'?"),
        ({"precision_mode": np.float16}, "did you mean 'float16'?"),
        ({"precision_mode": np.dtype("float32")}, "did you mean 'float32'?"),
        ({"verify": False}, "did you mean 'off'?"),
        ({"fallback": "raise"}, "did you mean 'error'?"),
        ({"input_spec": InputSpec([None, 4])}, "did you mean a list of it?"),
        ({"input_spec": [InputSpec([None, 4]), {"a": object}]}, "one entry is <class 'object'>"),
        ({"delete_pass_lists": "fold"}, "did you mean ['fold']?"),
        ({"engine": "openvino"}, "did you mean 'backend'?"), ({"cache_dir": "/x"}, "did you mean 'save_model_dir'?"),
        ({"cache": False}, "did you mean 'cache_static_model'?"),
        ({"dtype": "float16"}, "did you mean 'precision_mode'?"),
        ({"fullgraph": True}, "did you mean 'fallback'?"), ({"dynamic_shapes": 1}, "did you mean 'input_spec'?"),
    ],
)  # fmt: skip
def test_what_was_meant(given: dict[str, Any], meant: str) -> None:
    assert told(**given).endswith(meant)


@pytest.mark.torch
def test_an_element_type_of_the_framework() -> None:
    torch = pytest.importorskip("torch")
    assert told(precision_mode=torch.bfloat16).endswith("did you mean 'bfloat16'?")
    assert "did you mean" not in told(precision_mode=torch.int8)


def test_what_another_function_calls_otherwise_is_not_offered_where_there_is_none() -> None:
    with pytest.raises(TypeError) as error:
        load("nothing", fullgraph=True)  # type: ignore[call-arg]
    assert "did you mean" not in str(error.value)


@pytest.mark.parametrize("name", ["rtol", "atol"])
@pytest.mark.parametrize("value", [float("inf"), True, -0.5, 1j, "1"])
def test_a_tolerance_that_is_none(name: str, value: Any) -> None:
    """With an infinite one nothing would be compared; who wants that says ``verify="off"``."""
    assert f"{name} must be None or a finite number not below 0" in told(**{name: value})


def test_numbers_of_numpy_are_numbers() -> None:
    options = make({"rtol": np.float32(0.5), "atol": np.int64(0), "max_versions": np.int64(3)})
    assert (options.rtol, options.atol, options.max_versions) == (0.5, 0.0, 3)
    assert [*map(type, (options.rtol, options.max_versions))] == [float, int]
    assert "an integer not below 1" in told(max_versions=np.int64(0)) and told(max_versions=np.bool_(True))


@pytest.mark.parametrize("value", [1, 0, np.True_, np.False_, np.int64(1)])
def test_what_arguments_of_programs_give_for_true_and_false(value: Any) -> None:
    """As in ``inference(model, with_trt=args.with_trt)``, which Paddle's own takes."""
    options = make({"with_trt": value, "switch_ir_optim": value})
    assert options.with_trt is options.switch_ir_optim is bool(value)
    assert options == make({"with_trt": bool(value), "switch_ir_optim": bool(value)})


@pytest.mark.parametrize("value", [2, -1, 1.0, "True", None, np.int64(2), np.ones(2, bool)])
def test_what_is_neither_true_nor_false(value: Any) -> None:
    assert "with_trt must be True or False" in told(with_trt=value)


def test_a_set_of_passes_is_in_order() -> None:
    assert make({"delete_pass_lists": {"prune", "fold"}}).delete_pass_lists == ("fold", "prune")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cache_static_model": False, "save_model_dir": "/x"}, "save_model_dir='/x' (for cache_static_model=True)"),
        ({"cache_static_model": False, "cache_key": "1"}, "cache_key='1' (for cache_static_model=True)"),
        ({"verify": "off", "rtol": 1e-3}, "rtol (nothing is compared under verify='off')"),
        ({"verify": "off", "atol": 0.0}, "atol (nothing is compared under verify='off')"),
    ],
)
def test_options_that_another_one_leaves_without_effect(
    caplog: pytest.LogCaptureFixture, given: dict[str, Any], words: str
) -> None:
    with caplog.at_level(logging.INFO, "hybrid_infer"):
        inference(**given)
    (line,) = [each.getMessage() for each in caplog.records if each.name == "hybrid_infer"]
    assert words in line
